"""How long a run is likely to take: its starts by how long this one took, and more where cores are busy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge import started
from linkgauge.model.case import Case
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.estimate import around_s, case_s
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import estimated_s, likely_run_s, plan_run
from linkgauge.plan.machine import PlanMachine, slowdown
from linkgauge.plan.plan_file import parse_plan

GIB = 1 << 30
MACHINE = PlanMachine("host", 4, 8 * GIB, 8 * GIB, 8 * GIB, 4)
PINGPONGS = parse_plan('[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8:8MiB:x4"', "test.toml", "test")
CASES = [one.case for one in expand(PINGPONGS, MACHINE)]


def test_a_run_takes_its_starts_besides_its_launches_and_longer_where_cores_are_busy() -> None:
    planned = plan_run(builtin_plan("quick"), expand(builtin_plan("quick"), MACHINE), MACHINE)
    slow = dataclasses.replace(MACHINE, start_s=5.0)
    assert likely_run_s(planned, slow) > likely_run_s(planned, MACHINE) > around_s(MACHINE)
    assert around_s(dataclasses.replace(slow, nodes=2)) > around_s(slow) > 5.0
    busy = dataclasses.replace(MACHINE, slowdown=4.0)
    assert likely_run_s(planned, MACHINE) < likely_run_s(planned, busy) < 4 * likely_run_s(planned, MACHINE)
    assert estimated_s(planned, busy) == estimated_s(planned, MACHINE)  # what a time limit is shared out by


@given(st.sampled_from(CASES), st.floats(1, 100))
def test_busy_cores_lengthen_a_case_but_not_its_stop_rules_time(case: Case, times: float) -> None:
    free, busy = case_s(case, MACHINE), case_s(case, MACHINE, times)
    assert free <= busy <= times * free * 1.001


@pytest.mark.parametrize(("says", "times"), [("2000 6000 5", 4.0), ("10 0 1", 1.0), ("", 1.0), ("0 7 1", 1.0)])
def test_how_much_longer_work_takes_is_what_the_kernel_counts_of_waits_for_a_core(
    says: str, times: float, tmp_path: Path
) -> None:
    (tmp_path / "thread-self").mkdir()
    (tmp_path / "thread-self" / "schedstat").write_text(says)
    assert slowdown(tmp_path) == times


def test_a_start_is_known_only_of_the_program_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "_began", None)
    monkeypatch.setattr(started, "_took_s", 0.0)
    started.done()
    assert started.start_s() == 0.0
    started.begin()
    started.done()
    took = started.start_s()
    assert took > 0.0
    started.done()  # of a later run of the same process
    assert started.start_s() == took
