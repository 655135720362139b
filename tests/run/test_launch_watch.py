"""What the parent's eye on a launch counts as a case's own time, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.run.parent.watch import LaunchWatch, Trouble, patience_for
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.heartbeat import PHASE, PHASE_NAMES, HeartbeatFile
from linkgauge.run.wire.spec import CaseEntry
from linkgauge.store.journal import JournalWriter
from run.conftest import machine_of

STEP_S = 0.2
CASE = Case("mpi", "pingpong", 8, 8, (0, 1), stop=StopRule(time_ns=10**9))


def first_trouble(
    folder: Path, waits: Callable[[float], bool], compiles: Callable[[float], bool] = lambda now: False
) -> tuple[Trouble | None, float]:
    """The trouble of a case whose heart beats for ever, and when: within 1000 s of the clock."""
    entry, now = CaseEntry(CASE, 0, 0), [0.0]
    heartbeat = HeartbeatFile(folder / "heartbeat", 2, create=True)
    journal = folder / "launch-00000.lgj"
    watch = LaunchWatch(journal, heartbeat, {entry.key: entry}, machine_of(2), devices=(0, 1),
                        waits=lambda: waits(now[0]), clock=lambda: now[0])  # fmt: skip
    with JournalWriter(journal) as writer:
        writer.append("launch", {"launch": 0, "ranks": []}, durable=False)
        writer.append("begin", {"case_key": CASE.case_key, "launch": 0, "repeat": 0, "attempt": 0}, durable=False)
    assert len(watch.new_records()) == 2
    trouble = None
    while trouble is None and now[0] < 1000:
        now[0] += STEP_S
        heartbeat.set_word(0, beat.COUNT, int(now[0] / STEP_S))
        heartbeat.set_word(0, PHASE, PHASE_NAMES.index("compile" if compiles(now[0]) else "time"))
        trouble = watch.trouble()
    return trouble, now[0]


def limit_s() -> float:
    return patience_for(CASE, machine_of(2), 2 * STEP_S, 10.0).total_s


def test_a_case_that_waits_for_its_loads_launch_spends_no_time_of_its_own(tmp_path: Path) -> None:
    trouble, _ = first_trouble(tmp_path, lambda now: True)
    assert trouble is None


@pytest.mark.parametrize("also_compiles", [False, True])
def test_what_was_waited_is_added_once_to_what_a_case_may_take(tmp_path: Path, also_compiles: bool) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    trouble, alone_s = first_trouble(plain, lambda now: False)
    assert trouble is not None
    assert trouble.status == "timeout"
    waited = [lambda now: 5 < now <= 105, lambda now: also_compiles and 5 < now <= 105]
    trouble, after_s = first_trouble(tmp_path, *waited)
    assert trouble is not None
    assert trouble.status == "timeout"
    assert after_s - alone_s == pytest.approx(100, abs=2 * STEP_S)
    assert alone_s == pytest.approx(limit_s(), abs=5)
