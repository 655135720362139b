"""Sizes that fit a slow link: a case between nodes is measured at what its time holds, and every pair is measured."""

from __future__ import annotations

import dataclasses

import pytest

from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.curves import Point
from linkgauge.plan.expand import expand
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.rank.fitting import moved
from linkgauge.run.rank.schedule import Schedule
from linkgauge.run.wire.spec import FITTED, CaseEntry, WorkerSpec

MS = 1_000_000


def spec_of(entries: list[CaseEntry]) -> WorkerSpec:
    return WorkerSpec(
        launch=0, repeat=0, launch_key="", launch_info={}, mode="processes", ranks=4, ranks_per_device=1,
        devices=(0, 1, 2, 3), runtime="host", ordinals=(0,), cores=None, available_cores=2, peer_access=True, seed=0,
        max_failures=3, failures={}, journal="", heartbeat="", folder="", evidence="", cases=tuple(entries),
        thread_level="funneled",
    )  # fmt: skip


def entries_of(plan: str, nodes: int) -> list[CaseEntry]:
    machine = PlanMachine("host", 1, 8 << 30, 8 << 30, 8 << 30, 2, nodes=nodes)
    planned = [one for one in expand(builtin_plan(plan), machine) if not one.skip and one.case.transport == "mpi"]
    return [CaseEntry(one.case, 0, index, one.step, fits=one.fits) for index, one in enumerate(planned)]


def measured(entries: list[CaseEntry], rate: float, latency_ns: float = 2e5) -> tuple[list[CaseEntry], dict[str, str]]:
    """What a link of so many bytes/s is measured with; and why what is left out is."""
    schedule = Schedule(spec_of(entries))
    done, left_out = [], {}

    def leave_out(entry: CaseEntry, why: object) -> None:
        left_out[entry.case.case_key] = getattr(why, "reason", "")

    while (entry := schedule.next(lambda one: False, leave_out)) is not None:
        done.append(entry)
        time_ns = time_of(entry.case, rate, latency_ns)
        schedule.ended(entry, Point(time_ns, entry.case.size / time_ns * 1e9))
    return done, left_out


def time_of(case: Case, rate: float, latency_ns: float) -> float:
    return latency_ns + (moved(case, case.size) / rate * 1e9 if len(case.nodes) > 1 else 0.0)


@pytest.mark.parametrize("plan", ["default", "quick"])
@pytest.mark.parametrize("mbit", [10, 100, 1_000])
@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_no_operation_exceeds_its_cases_time_and_every_pair_is_measured(plan: str, mbit: int, nodes: int) -> None:
    entries = entries_of(plan, nodes)
    done, left_out = measured(entries, mbit * 1e6 / 8)
    told = 64 << 10  # the first operation of a transport, before anything is known
    for entry in done:
        slow = time_of(entry.case, mbit * 1e6 / 8, 2e5)
        assert slow <= entry.case.stop.time_ns or moved(entry.case, entry.case.size) <= 4 * told, entry.case
    assert len(done) + len(left_out) == len(entries)
    assert len({entry.case.case_key for entry in done}) == len(done)
    across = {(one.case.pattern, one.case.devices) for one in entries if len(one.case.nodes) > 1}
    assert {(one.case.pattern, one.case.devices) for one in done if len(one.case.nodes) > 1} == across
    whole = sum(5 * max(time_of(one.case, mbit * 1e6 / 8, 2e5), 1e5) + one.case.stop.time_ns for one in done) / 1e9
    assert whole < {"default": 3, "quick": 1.5}[plan] * sum(one.case.stop.time_ns for one in entries) / 1e9 + 1


def test_a_fast_link_is_measured_at_all_sizes() -> None:
    entries = entries_of("default", 2)
    done, left_out = measured(entries, 50e9, 2e3)
    assert {one.case.case_key for one in done} == {one.case.case_key for one in entries}
    assert left_out == {}


def test_a_smaller_size_says_which_case_it_stands_for() -> None:
    asked = Case("mpi", "unidirectional", 4 << 20, 4 << 20, (0, 1), devices_per_node=1,
                 stop=StopRule(time_ns=150 * MS))  # fmt: skip
    small = dataclasses.replace(asked, pattern="pingpong", size=64 << 10, size_requested=64 << 10)
    done, _ = measured([CaseEntry(asked, 0, 0, fits=True), CaseEntry(small, 0, 1, fits=True)], 1.25e6)
    assert [one.case.pattern for one in done] == ["pingpong", "unidirectional"]
    (shrunk,) = (one for one in done if one.planned_key)
    assert shrunk.case.size_requested < asked.size_requested
    assert shrunk.evidence(None) == {FITTED: asked.case_key}


def test_sizes_that_are_asked_for_stay() -> None:
    asked = Case("mpi", "unidirectional", 4 << 20, 4 << 20, (0, 1), devices_per_node=1,
                 stop=StopRule(time_ns=150 * MS))  # fmt: skip
    done, _ = measured([CaseEntry(asked, 0, 0)], 1.25e6)
    assert [one.case.size_requested for one in done] == [4 << 20]
