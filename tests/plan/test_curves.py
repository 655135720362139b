"""Curves that end by themselves: where, why, and at which size a matrix is then measured."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.model.quantity import parse_sizes
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.curves import FULL, PAST_BEGINNING, Curves, Point, Step, Until, curve_id, left_out_of
from linkgauge.plan.expand import PlannedCase, expand
from linkgauge.plan.launches import PlannedLaunch, plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan

GPUS = PlanMachine("cuda", 4, 140 << 30, 400 << 30, 64 << 30, 64)
SIZES = parse_sizes("1KiB:16GiB:x8")
UNTIL = Until(gain=0.02, time_ns=20_000_000)
STEP = Step("c", UNTIL)
CURVE = """
[[case]]
pattern = "unidirectional"
size = "1KiB:2GiB:x8"
until_gain = "2%"
until_time = "20ms"
pairs = "first"
transport = ["kernel", "ccl"]
"""
MATRIX = """
[[case]]
pattern = "unidirectional"
size = "full"
pairs = "ordered"
transport = ["kernel", "ccl"]
"""


def measured(latency_ns: float, bytes_per_s: float, sizes: tuple[int, ...] = SIZES) -> dict[int, Point]:
    """What is measured of a link: a time to begin, and a rate."""
    times = {size: latency_ns + size / bytes_per_s * 1e9 for size in sizes}
    return {size: Point(time_ns, size / time_ns * 1e9) for size, time_ns in times.items()}


def walked(points: dict[int, Point], step: Step = STEP) -> tuple[Curves, list[int], dict[int, tuple[str, str]]]:
    """The curve measured in rising order: what is known, the sizes measured, and those left out with why."""
    curves, taken, left = Curves(), [], {}
    for size, point in points.items():
        found = curves.left_out(step, size)
        if found is not None:
            left[size] = (found.why, found.reason)
            continue
        taken.append(size)
        curves.note("c", size, point)
    return curves, taken, left


@given(st.floats(1e3, 1e5), st.floats(1e9, 2e12))
def test_a_curve_ends_full_or_by_its_time_and_never_before(latency_ns: float, bytes_per_s: float) -> None:
    points = measured(latency_ns, bytes_per_s)
    _, taken, left = walked(points)
    assert taken == [size for size in SIZES if size <= taken[-1]]  # no size between is missing
    assert all(points[size].time_ns <= UNTIL.time_ns * 1.001 for size in taken)
    if any(why == "full" for why, _ in left.values()):
        assert points[taken[-1]].goodput >= 0.99 * bytes_per_s  # 8 times more data would give 1 % at most
        assert {why for why, _ in left.values()} == {"full"}
    else:
        assert all(why == "time" and points[size].time_ns > UNTIL.time_ns * 0.999 for size, (why, _) in left.items())


def test_the_reason_tells_by_how_much_goodput_rose() -> None:
    points = measured(8_000, 394e9)
    _, taken, left = walked(points)
    assert taken[-1] == 2 << 30
    assert left == {16 << 30: ("full", "full at 2GiB: goodput rose by 1.0 % from 256MiB")}
    points[2 << 30] = Point(points[2 << 30].time_ns * 1.1, points[2 << 30].goodput / 1.1)
    assert walked(points)[2][16 << 30][1] == "full at 2GiB: goodput fell by 8.2 % from 256MiB"
    _, taken, left = walked(measured(8_000, 10e9))  # as through host memory
    assert taken[-1] == 32 << 20
    assert left[256 << 20] == ("full", "full at 32MiB: goodput rose by 1.7 % from 4MiB")
    _, taken, left = walked(measured(1e5, 5e9), Step("c", Until(0.002, UNTIL.time_ns)))
    assert left[256 << 20] == ("time", "an operation would take more than 20 ms: 32MiB took 6.81 ms")


def test_goodput_that_stays_the_same_at_small_sizes_is_no_full_curve() -> None:
    # As where a library changes its protocol: 512 KiB takes 8 times as long as 64 KiB, and the peak is far off.
    points = measured(10_000, 400e9)
    points[512 << 10] = Point(points[64 << 10].time_ns * 8, points[64 << 10].goodput)
    assert points[512 << 10].time_ns < PAST_BEGINNING * points[1 << 10].time_ns
    assert walked(points)[1][-1] == 2 << 30


def test_a_size_that_failed_does_not_end_its_curve_and_is_not_compared_with() -> None:
    points = measured(8_000, 394e9)
    curves = Curves()
    for size in SIZES[:4] + SIZES[5:7]:
        assert curves.left_out(STEP, size) is None
        curves.note("c", size, points[size])
    assert curves.left_out(STEP, 2 << 30) is None
    assert Curves().left_out(STEP, 2 << 30) is None  # nothing is known: it is measured


def test_no_room_is_said_where_the_curve_has_not_ended_before() -> None:
    step = Step("c", UNTIL, "needs 32 GiB")
    found = Curves().left_out(step, 16 << 30)
    assert found is not None
    assert (found.why, found.reason) == ("memory", "needs 32 GiB")
    full = walked(measured(8_000, 394e9))[0].left_out(step, 16 << 30)
    assert full is not None
    assert full.why == "full"
    assert left_out_of(full.evidence()) == "full"
    assert left_out_of({"left_out": {"why": "time"}}) == "time"
    assert left_out_of({}) == ""


@given(st.permutations(SIZES), st.floats(2e3, 5e4), st.floats(5e9, 1e12))
def test_the_order_in_which_sizes_are_measured_leaves_none_out_that_rising_order_has(
    order: list[int], latency_ns: float, bytes_per_s: float
) -> None:
    points = measured(latency_ns, bytes_per_s)
    rising = walked(points)[1]
    curves = Curves()
    for size in order:
        if curves.left_out(STEP, size) is None:
            curves.note("c", size, points[size])
        else:
            assert size not in rising
    assert all(curves.left_out(STEP, size) is None for size in rising)


@pytest.mark.parametrize(
    ("latency_us", "rate", "size"),
    [(7.7, 394e9, 256 << 20), (11.0, 369e9, 256 << 20), (13.5, 360e9, 256 << 20), (10.0, 25e9, 32 << 20)],
)
def test_a_matrix_has_the_first_size_whose_beginning_costs_little(latency_us: float, rate: float, size: int) -> None:
    # Copy engines, kernels and NCCL between H200, and PCIe 4 (docs/results/h200.md).
    curves = walked(measured(latency_us * 1e3, rate))[0]
    assert curves.full_size("c") == size
    curves.note_full("c", 4 << 20)
    assert curves.full_size("c") == 4 << 20  # one size a matrix: the one that it was begun with
    assert curves.full_size("another") is None
    assert Curves(curves.to_plain()).to_plain() == curves.to_plain()


def test_a_repeat_measures_the_sizes_of_the_first() -> None:
    first = walked(measured(8_000, 394e9))[0]
    again = Curves(first.to_plain())
    for size, point in measured(30_000, 300e9).items():  # a slower day
        assert (again.left_out(STEP, size) is None) == (first.left_out(STEP, size) is None)
        if again.left_out(STEP, size) is None:
            again.note("c", size, point)
    assert again.to_plain() == first.to_plain()


def planned(text: str, machine: PlanMachine = GPUS) -> list[PlannedCase]:
    return expand(parse_plan(text, "plan.toml", "p"), machine)


def test_tables_stand_for_curves_and_for_pairs_where_they_are_full() -> None:
    cases = planned(CURVE + MATRIX)
    steps = [one for one in cases if one.step is not None and one.step.until is not None]
    cells = [one for one in cases if one.step is not None and one.step.until is None]
    assert len(cases) == len(steps) + len(cells)
    assert {one.case.size_requested for one in steps} == set(parse_sizes("1KiB:2GiB:x8"))
    assert {curve_id(one.case) for one in steps} == {one.step.curve for one in steps if one.step}
    assert all(one.step == Step(curve_id(one.case), UNTIL) for one in steps)
    # The curve's own pair is not measured twice.
    assert sorted(one.case.devices for one in cells) == sorted(
        pair for pair in itertools.permutations(range(4), 2) for _ in range(2) if pair != (0, 1)
    )
    by_transport = {one.case.transport: one.step.curve for one in steps if one.step}
    assert all(one.step == Step(by_transport[one.case.transport]) for one in cells)
    assert {one.case.size_requested for one in cells} == {FULL}
    assert not any(one.skip for one in cases)


def test_what_is_wrong_with_a_curve_in_a_plan_file_is_said() -> None:
    for text, said in (
        (MATRIX + CURVE, "no table before it has its curve"),
        (CURVE + MATRIX.replace('pairs = "ordered"', "window = 4"), "no table before it has its curve"),
        (CURVE.replace('"2%"', '"2"'), "'2' is not a percentage"),
        (CURVE.replace('"2%"', '"0%"'), "above 0%"),
        (CURVE.replace('"2%"', "2"), "expected a text"),
        (CURVE.replace('"20ms"', '"20"'), "until_time"),
        (CURVE + MATRIX + 'until_gain = "1%"\n', "'size' is full"),
        (CURVE + 'on = "fpga"\n', "expected one of all, gpu, host"),
    ):
        with pytest.raises(UsageError) as error:
            planned(text)
        assert said in str(error.value)


def test_tables_are_of_gpus_or_of_host_devices() -> None:
    text = CURVE + 'on = "gpu"\n' + CURVE.replace("1KiB:2GiB:x8", "8") + 'on = "host"\n'
    host = PlanMachine("host", 2, 8 << 30, 8 << 30, 4 << 30, 2, {"ccl": "no GPUs"})
    assert {one.case.size_requested for one in planned(text, host)} == {8}
    assert 8 not in {one.case.size_requested for one in planned(text)}


def test_what_is_too_large_for_memory_is_left_to_the_end_of_its_curve() -> None:
    small = PlanMachine("cuda", 4, 1 << 30, 400 << 30, 64 << 30, 64)
    cases = [one for one in planned(CURVE, small) if one.case.transport == "kernel"]
    assert not any(one.skip for one in cases)
    without = [one.case.size_requested for one in cases if one.step is not None and one.step.no_room]
    assert without == [2 << 30]


def launches_of(text: str) -> list[PlannedLaunch]:
    plan = parse_plan(text, "plan.toml", "p")
    return list(plan_run(plan, expand(plan, GPUS), GPUS))


def test_curves_stay_whole_in_rising_order_and_come_before_their_matrices() -> None:
    for seed in random.Random(3).sample(range(1000), 5):
        (launch,) = launches_of(f"seed = {seed}\n" + CURVE + MATRIX)
        order = [(launch.steps[case.case_key], case.size_requested) for case in launch.cases]
        for curve in {step.curve for step, _ in order}:
            places = [place for place, (step, _) in enumerate(order) if step.curve == curve and step.until]
            assert places == list(range(places[0], places[0] + len(places)))
            sizes = [order[place][1] for place in places]
            assert sizes == sorted(sizes)
            cells = [place for place, (step, _) in enumerate(order) if step.curve == curve and not step.until]
            assert min(cells) > places[-1]


def test_the_default_plan_has_a_curve_of_every_pattern_on_gpus_and_is_as_it_was_on_host_devices() -> None:
    plan = builtin_plan("default")
    cases = expand(plan, GPUS)
    curves: dict[str, list[Case]] = {}
    for one in cases:
        if one.step is not None and one.step.until is not None:
            curves.setdefault(one.step.curve, []).append(one.case)
    for steps in curves.values():
        sizes = sorted(case.size_requested for case in steps)
        assert sizes[-1] == 2 << 30
        assert sum(low * 8 >= high for low, high in itertools.pairwise(sizes)) >= 7
    assert {steps[0].pattern for steps in curves.values()} >= {one.case.pattern for one in cases}
    full = [one.case for one in cases if one.case.size_requested == FULL]
    for pattern in ("unidirectional", "bidirectional"):
        pairs = {case.devices for case in full if case.pattern == pattern and case.transport == "ccl"}
        assert pairs == set(itertools.permutations(range(4), 2))
    latency = {one.case.devices for one in cases if one.case.pattern == "pingpong" and one.case.size_requested == 8}
    assert set(itertools.permutations(range(4), 2)) <= latency
    host = PlanMachine("host", 4, 8 << 30, 8 << 30, 4 << 30, 4, {"ccl": "no GPUs"})
    assert not any(one.step for one in expand(plan, host))
