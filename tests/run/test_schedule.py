"""Rank 0's choice of the next case: within a time limit, by estimates that what was measured corrects."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest

from linkgauge.model.case import Case
from linkgauge.plan.pace import Pace
from linkgauge.run.parent.prepared import TimeLimit
from linkgauge.run.rank.schedule import Schedule
from linkgauge.run.wire.spec import CaseEntry, WorkerSpec


def case(transport: str, size: int, pattern: str = "pingpong") -> Case:
    return Case(transport, pattern, size, size, (0, 1))


def spec_of(cases: list[Case], estimates_s: list[float], end_by: float | None) -> WorkerSpec:
    return WorkerSpec(
        launch=0, repeat=0, launch_key="", launch_info={}, mode="threads", ranks=2, ranks_per_device=1, devices=(0, 1),
        runtime="host", ordinals=(0, 1), cores=None, available_cores=2, peer_access=True, seed=1, max_failures=3,
        failures={}, journal="", heartbeat="", folder="", evidence="", thread_level="funneled",
        cases=tuple(CaseEntry(one, 0, index) for index, one in enumerate(cases)), end_by=end_by,
        estimates_s=tuple(estimates_s),
    )  # fmt: skip


def measured(spec: WorkerSpec, takes_s: Callable[[Case], float]) -> tuple[list[int], float, int]:
    """Indices of the cases in the order in which they were measured, when the last was over, and how many are left."""
    now = 0.0
    schedule = Schedule(spec, lambda: now)
    order = []
    while (entry := schedule.next(lambda _: False, lambda *_: None)) is not None:
        order.append(entry.index)
        now += takes_s(entry.case)
        schedule.ended(entry, None)
    return order, now, schedule.left


@pytest.mark.parametrize("error", [0.05, 0.3, 1.0, 4.0])
def test_a_limit_is_used_whatever_the_estimates(error: float) -> None:
    generator = random.Random(3)
    cases = [case(t, 8 << (3 * k), p) for k in range(8) for t in ("kernel", "mpi") for p in ("pingpong", "allreduce")]
    cases = [dataclasses.replace(one, devices=(0, d)) for d in range(1, 40) for one in cases]
    true_s = {one: generator.uniform(0.02, 0.3) * (3.0 if one.transport == "mpi" else 1.0) for one in cases}
    estimates = [true_s[one] / error * generator.uniform(0.7, 1.4) for one in cases]
    limit_s = 54.0
    order, ended, left = measured(spec_of(cases, estimates, limit_s), true_s.__getitem__)
    assert left > 0
    assert len(order) + left == len(cases)
    assert 0.97 * limit_s <= ended <= 1.01 * limit_s
    assert order[:100] == list(range(100))  # in the order of value for as long as there is time for all


def test_what_does_not_fit_is_passed_over_and_what_comes_behind_it_is_measured() -> None:
    cases = [case("mpi", 1 << 30), case("kernel", 8), case("mpi", 2 << 30), case("kernel", 64)]
    order, ended, left = measured(spec_of(cases, [3.0, 1.0, 90.0, 1.0], 10.0), lambda one: 3.0 if one.size > 99 else 1)
    assert (order, ended, left) == ([0, 1, 3], 5.0, 1)
    assert measured(spec_of(cases, [3.0, 1.0, 90.0, 1.0], None), lambda _: 1.0)[0] == [0, 1, 2, 3]


def test_a_guess_that_was_too_long_is_corrected_by_cases_that_are_alike() -> None:
    # By the guesses alone 3 of 100 fit into 10 s.
    cases = [case("kernel", 1 << 20, pattern) for pattern in ("pingpong", "unidirectional")] * 50
    cases = [dataclasses.replace(one, devices=(0, number + 1)) for number, one in enumerate(cases)]
    order, _, left = measured(spec_of(cases, [3.0] * 100, 10.0), lambda _: 0.1)
    assert len(order) == 100
    assert left == 0


def test_pace_knows_the_nearest() -> None:
    pace = Pace()
    assert pace.corrected_s(case("kernel", 8), 2.0) == 2.0
    pace.note(case("kernel", 8), 1.0, 0.1)
    assert pace.corrected_s(case("mpi", 1 << 20, "reduce"), 2.0) == pytest.approx(0.2)
    pace.note(case("mpi", 1 << 20), 1.0, 1000.0)  # one slow case, the first of its kind
    assert pace.corrected_s(case("mpi", 1 << 20), 2.0) == pytest.approx(2.0)
    pace.note(case("mpi", 1 << 20), 1.0, 3.0)
    assert pace.corrected_s(case("mpi", 1 << 20, "reduce"), 2.0) == pytest.approx(6.0)
    assert pace.corrected_s(case("kernel", 1 << 20), 2.0) == pytest.approx(0.2)
    assert pace.corrected_s(case("mpi", 2 << 20), 2.0) == pytest.approx(6.0)


def test_launches_share_what_is_left_of_the_time() -> None:
    limit = TimeLimit.of(60.0, 100.0)
    assert 100.0 + 0.75 * 60.0 < limit.last_end < limit.cut < 160.0
    left = limit.last_end - 100.0
    assert limit.share(100.0, [1.0, 1.0, 2.0]) == pytest.approx(100.0 + left / 4)
    assert limit.share(100.0 + left / 4, [1.0, 2.0]) == pytest.approx(100.0 + left / 2)
    assert limit.share(100.0 + left / 2, [2.0]) == pytest.approx(limit.last_end)
    assert limit.share(120.0, [0.0, 2.0]) == 0.0
    assert limit.share(120.0, [0.0, 0.0]) == pytest.approx((120.0 + limit.last_end) / 2)
