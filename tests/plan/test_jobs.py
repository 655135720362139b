"""Jobs of a plan: names that stand for loads, where they are, roles swapped, and devices drawn for them."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model.background import Pace, load_text, part_of_rest
from linkgauge.model.case import Case, LoadCase, Loads, loads_written
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.expand import PlannedCase, expand
from linkgauge.plan.jobs import LEAST_TIME_NS, named_jobs, swapped_roles
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan

GIB = 1 << 30
JOB = """
[[job]]
name = "crowd"
transport = "kernel"
pattern = "alltoall"
size = ["1MiB", "16MiB"]
duty = [0.5, 1.0]
"""


def planned(text: str, devices: int = 8) -> list[PlannedCase]:
    machine = PlanMachine("cuda", devices, 64 * GIB, 64 * GIB, 64 * GIB, 32)
    return expand(parse_plan(text, "p.toml", "p"), machine)


def case_of(keys: str) -> str:
    return f'{JOB}\n[[case]]\ntransport = "kernel"\npattern = "allreduce"\nsize = "1MiB"\n{keys}\n'


def test_a_name_stands_for_each_combination_of_its_lists() -> None:
    found = planned(case_of('ranks = 4\nbackground = ["none", "crowd", "crowd; copy_engine local_copy 8 on=same"]'))
    loads = [case.case.background for case in found]
    assert not loads[0]
    assert len(loads) == len(set(loads)) == 1 + 4 + 4
    assert Counter(len(text.each) for text in loads[1:]) == {1: 4, 5: 4}  # a copy on each of four devices
    assert {load.pace.duty for text in loads[1:5] for load in text.each} == {0.5, 1.0}
    assert all(text.each[0].case.devices == (4, 5, 6, 7) for text in loads[1:])
    assert all(case.case.stop.time_ns == (LEAST_TIME_NS if case.case.background else 10**9) for case in found)


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"case\]\] 1: load 'crow': expected a job of the plan \(crowd\), or TRANS"):
        planned(case_of('background = "crow"'))
    with pytest.raises(UsageError, match="load 'crow': expected TRANSPORT PATTERN SIZE"):
        named_jobs(("crow",), {}, "x")


def test_too_many_combinations_are_refused_by_the_name_of_the_key() -> None:
    with pytest.raises(UsageError, match=r"case\]\] 1: background stands for more than 10000 combinations of loads"):
        planned(case_of(f'background = "{"; ".join(["crowd"] * 7)}"'))


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_parts_of_the_rest_are_all_of_it_each_once(parts: int) -> None:
    text = "; ".join(f"kernel local_copy 8 on=rest:{k}/{parts}" for k in range(1, parts + 1))
    (found,) = planned(case_of(f'ranks = 2\nbackground = "{text}"'))
    devices = [device for load in found.case.background.each for device in load.case.devices]
    assert sorted(devices) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("word", ["rest:0/4", "rest:5/4", "rest:1/0", "rest:1", "rest:1/4/2", "rest:/"])
def test_what_is_no_part_of_the_rest_is_refused(word: str) -> None:
    assert part_of_rest(word) is None
    with pytest.raises(UsageError, match="rest"):
        loads_written(f"kernel local_copy 8 on={word}")


def test_each_load_is_measured_beside_the_others_and_the_case() -> None:
    text = "kernel alltoall 1MiB on=4,5 duty=0.5; copy_engine host_to_device 8 on=6"
    found = planned(case_of(f'ranks = 4\nbackground = "{text}"\nswap_roles = true'))
    jobs = [sorted([(case.case.transport, case.case.pattern, case.case.devices),
                    *((load.case.transport, load.case.pattern, load.case.devices)
                      for load in case.case.background.each)]) for case in found]  # fmt: skip
    assert len(found) == 3
    assert jobs[0] == jobs[1] == jobs[2]
    assert len({case.case.devices for case in found}) == 3
    # Who is measured has no pace; a load keeps its own.
    assert {load.pace for case in found[1:] for load in case.case.background.each} == {Pace(), Pace(duty=0.5)}
    assert len({case.case.case_key for case in found}) == 3


def test_roles_swapped_twice_are_the_first() -> None:
    text = "kernel alltoall 1MiB on=4,5"
    first, other = planned(case_of(f'ranks = 4\nbackground = "{text}"\nswap_roles = true'))
    ((again, reason),) = swapped_roles(other.case)
    assert (again.case_key, reason) == (first.case.case_key, "")


def test_a_case_that_no_load_can_be_is_not_swapped() -> None:
    found = planned(case_of('ranks = 4\nin_place = true\nbackground = "kernel alltoall 1MiB"\nswap_roles = true'))
    assert [bool(case.skip) for case in found] == [False, True]
    assert "in_place" in found[1].skip


def test_a_share_of_the_ranks_is_drawn_by_the_seed() -> None:
    keys = 'ranks = "20%"\nplacement = "shuffled"\nbackground = "crowd"'
    drawn = {seed: planned(f"seed = {seed}\n{case_of(keys)}", devices=64)[0].case for seed in range(20)}
    assert {len(set(case.devices)) for case in drawn.values()} == {13}
    assert len({case.devices for case in drawn.values()}) == 20
    assert any(list(case.devices) != sorted(case.devices) for case in drawn.values())
    again = planned(f"seed = 3\n{case_of(keys)}", devices=64)
    assert {case.case.devices for case in again} == {drawn[3].devices}  # the same for all cases of a plan
    for case in drawn.values():
        (load,) = case.background.each
        assert sorted([*case.devices, *load.case.devices]) == list(range(64))


def test_a_share_is_two_ranks_at_least() -> None:
    (found,) = planned(case_of('ranks = "1%"\nbackground = "none"'))
    assert found.case.ranks == 2


SIZES = st.integers(1, 1 << 30)


@given(SIZES, st.integers(0, 100), st.sampled_from([0, 10_000, 250_000_000]), st.sampled_from([0.1, 0.5, 1.0]),
       st.booleans())  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_the_text_of_a_load_is_read_as_it_was(size: int, burst: int, every: int, duty: float, wide: bool) -> None:
    pace = Pace(burst, every, duty)
    values = {"transport": "kernel", "pattern": "unidirectional", "size": size, "blocks": 4, "huge_pages": wide}
    (load,) = loads_written(load_text(values, "2,3", pace)).each
    assert (load.values, load.where, load.pace) == (values, (2, 3), pace)
    case = Case("kernel", "unidirectional", size, size, (2, 3), blocks=4, huge_pages=wide)
    (back,) = Loads.of([LoadCase(case, pace)]).each
    assert dataclasses.replace(back.case, size_requested=size) == case


def test_the_built_in_plan_has_gpcnets_mix_on_twenty_ranks() -> None:
    machine = PlanMachine("host", 20, 64 * GIB, 64 * GIB, 64 * GIB, 32)
    mixes = [one.case for one in expand(builtin_plan("interference"), machine)
             if one.case.transport == "mpi" and not one.skip]  # fmt: skip
    assert [(case.pattern, case.size) for case in mixes] == [("halo", 8), ("halo", 128 << 10), ("allreduce", 8)]
    for case in mixes:
        groups = [load.case.devices for load in case.background.each]
        assert [case.ranks, *map(len, groups)] == [4, 4, 4, 4, 4]
        assert sorted([*case.devices, *(device for group in groups for device in group)]) == list(range(20))


def test_a_mistake_in_loads_is_told_as_the_plan_is_read() -> None:
    """Also where the table is for devices that are not here: nobody expands it."""
    with pytest.raises(UsageError, match=r"p\.toml: \[\[case\]\] 1: load 'crow': expected a job of the plan \(crowd\)"):
        parse_plan(case_of('on = "gpu"\nbackground = "crow"'), "p.toml", "p")
