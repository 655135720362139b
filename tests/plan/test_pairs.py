"""Pairs by the words of `pairs`, shifts and counts of whole nodes: what each means on any allocation."""

from __future__ import annotations

import dataclasses
import itertools
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.layout import Layout
from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.plan.choice import node_counts
from linkgauge.plan.expand import PlannedCase, expand
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.pairs import DRAWS
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.parent.reporter import case_text
from linkgauge.system.switches import of_text
from linkgauge.view.tables import case_text as words_of_row
from results import results_of

GIB = 1 << 30
ONE_WAY = 'transport="mpi"\npattern="pairs_unidirectional"\nsize="8"\n'
SHIFT = 'transport="mpi"\npattern="halo"\nsize="8"\ndistribution="shift:each"\n'
REDUCE = 'transport="mpi"\npattern="allreduce"\nsize="8"\nranks="nodes"\n'


def machine(nodes: int, devices: int) -> PlanMachine:
    return PlanMachine("host", devices, 8 * GIB, 8 * GIB, 8 * GIB, 4, nodes=nodes)


def planned(text: str, on: PlanMachine) -> list[PlannedCase]:
    return expand(parse_plan(f"[[case]]\n{text}", "test.toml", "test"), on)


def cases_of(text: str, on: PlanMachine) -> list[Case]:
    return [one.case for one in planned(text, on) if not one.skip]


def pairs_of(case: Case) -> list[tuple[int, int]]:
    return list(zip(case.devices[::2], case.devices[1::2], strict=True))


@pytest.mark.parametrize("word", ["all", "first", "root", "nodes", "nics", "halves", "random_halves"])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_too_few_devices_are_a_case_that_is_skipped_and_says_which(word: str, devices: int) -> None:
    found = planned(f'{ONE_WAY}pairs="{word}"\nranks_per_device=2', machine(1, devices))
    assert found
    assert all(one.case.devices for one in found)
    assert all("at least 4 devices" in (one.skip or "") for one in found)


@given(nodes=st.integers(4, 9), devices=st.integers(1, 3), word=st.sampled_from(["halves", "random_halves"]))
def test_halves_are_of_whole_nodes_each_place_with_its_like_and_turned_round(
    nodes: int, devices: int, word: str
) -> None:
    found = cases_of(f'{ONE_WAY}pairs="{word}"', machine(nodes, devices))
    assert len(found) <= 2 * (DRAWS if word == "random_halves" else 1)
    met = [set(pairs_of(case)) for case in found]
    assert all({(b, a) for a, b in pairs} in met for pairs in met)
    for case in found:
        pairs = pairs_of(case)
        assert len(pairs) == nodes // 2 * devices
        assert len({*case.devices}) == len(case.devices)
        assert all(case.on_its_node(a) == case.on_its_node(b) for a, b in pairs)
        sides = [{case.node_of(pair[side]) for pair in pairs} for side in (0, 1)]
        assert len(sides[0]) == len(sides[1]) == nodes // 2
        assert sides[0].isdisjoint(sides[1])


def test_random_halves_are_drawn_by_the_seed() -> None:
    def drawn(seed: int) -> list[tuple[int, ...]]:
        plan = parse_plan(f'seed={seed}\n[[case]]\n{ONE_WAY}pairs="random_halves"', "test.toml", "test")
        return [one.case.devices for one in expand(plan, machine(8, 1))]

    assert len(set(drawn(1))) == 2 * DRAWS
    assert drawn(1) == drawn(1) != drawn(2)


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3), st.randoms())
def test_worst_halves_cut_no_group_where_halves_of_whole_groups_exist(groups: list[list[int]], chance: Random) -> None:
    """By brute force over all halves of at most eight nodes, in any order."""
    layout = Layout(tuple(map(tuple, groups)))
    names = list(layout.nodes)
    if not 4 <= len(names) <= 8 or len(names) % 2:
        return
    chance.shuffle(names)  # the run's order says nothing
    above = of_text(layout.fabric_file(), "there").above
    on = dataclasses.replace(machine(len(names), 1), above={name: tuple(above[name]) for name in names})
    (case, _) = cases_of(f'{ONE_WAY}pairs="halves"', on)
    group_of = [layout.place(name)[0] for name in names]

    def apart(half: tuple[int, ...]) -> bool:
        there = {group_of[node] for node in range(len(names)) if node not in half}
        return there.isdisjoint(group_of[node] for node in half)

    sizes = {group: group_of.count(group) for group in group_of}
    if len(set(sizes.values())) == 1 and any(map(apart, itertools.combinations(range(len(names)), len(names) // 2))):
        assert apart(case.devices[::2])


def test_halves_of_one_node_are_of_its_devices() -> None:
    (case,) = cases_of(f'{ONE_WAY}pairs="halves"', machine(1, 8))
    assert pairs_of(case) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    (alone, *_) = cases_of('transport="mpi"\npattern="pingpong"\nsize="8"\npairs="halves"', machine(1, 4))
    assert alone.devices == (0, 2)


@pytest.mark.parametrize(("one_a_nic", "pairs"), [
    ((), [(0, 8), (1, 9), (2, 10), (3, 11), (4, 12), (5, 13), (6, 14), (7, 15)]),
    ((1, 3, 5, 7), [(1, 9), (3, 11), (5, 13), (7, 15)]),
])  # fmt: skip
def test_a_pair_a_nic_between_two_nodes_alone_and_all_at_once(
    one_a_nic: tuple[int, ...], pairs: list[tuple[int, int]]
) -> None:
    on = dataclasses.replace(machine(3, 8), one_a_nic=one_a_nic)
    alone = cases_of('transport="mpi"\npattern="pingpong"\nsize="8"\npairs="nics"', on)
    assert [case.devices for case in alone] == pairs
    (together,) = cases_of('transport="mpi"\npattern="pairs_pingpong"\nsize="8"\npairs="nics"', on)
    assert pairs_of(together) == pairs
    for pattern in ("pingpong", "pairs_pingpong"):
        skipped = planned(f'transport="mpi"\npattern="{pattern}"\nsize="8"\npairs="nics"', machine(1, 8))
        assert {one.skip for one in skipped} == {"pairs of nodes need several: give --hosts or --nodes"}


@pytest.mark.parametrize(("nodes", "devices", "shifts"), [(4, 1, [1, 2, 3]), (3, 2, [2, 4]), (1, 4, [1, 2, 3])])
def test_every_shift_is_by_whole_nodes_where_there_are_several(nodes: int, devices: int, shifts: list[int]) -> None:
    found = cases_of(SHIFT, machine(nodes, devices))
    assert [case.distribution for case in found] == [f"shift:{places}" for places in shifts]
    assert [case_text(case) for case in found] == [
        f"mpi halo shift:{at} 8 B on devices 0-{nodes * devices - 1}" for at in shifts
    ]
    rows = results_of([{**case.dimensions(), "devices": list(case.devices)} for case in found])
    shown: Any = SimpleNamespace(kinds=SimpleNamespace(noun="GPU"), shown=str, shown_names={})
    assert len({words_of_row(row, shown) for row in rows}) == len(shifts)
    (alone,) = planned(SHIFT, machine(1, 1))
    assert "needs at least 2 ranks" in alone.skip


def test_each_ordered_pair_of_nodes_sends_in_one_shift() -> None:
    """mpiGraph's property: over all shifts each sends to each other once."""
    met = []
    for case in cases_of(SHIFT, machine(5, 1)):
        places = int(case.distribution.removeprefix("shift:"))
        met += [(rank, (rank + places) % 5) for rank in range(5)]
    assert sorted(met) == sorted(itertools.permutations(range(5), 2))


@given(st.integers(1, 5000))
def test_counts_of_nodes_rise_to_all_of_them_by_at_most_half(nodes: int) -> None:
    found = node_counts(nodes)
    assert found == sorted(set(found))
    assert found[-1] == nodes
    assert found[0] == min(2, nodes)
    assert all(b <= a * 1.5 or b == a + 1 for a, b in itertools.pairwise(found))


def test_collectives_go_over_two_three_and_more_nodes() -> None:
    found = cases_of(REDUCE, machine(5, 2))
    assert [case.devices for case in found] == [tuple(range(2 * nodes)) for nodes in (2, 3, 4, 5)]
    assert [case.devices for case in cases_of(REDUCE, machine(1, 4))] == [(0, 1, 2, 3)]
    twice = cases_of(REDUCE + "ranks_per_device=2", machine(3, 1))
    assert [case.devices for case in twice] == [(0, 0, 1, 1), (0, 0, 1, 1, 2, 2)]
    with pytest.raises(UsageError, match="or nodes: those of 2, 3"):
        parse_plan(f"[[case]]\n{REDUCE.replace('nodes', 'knots')}", "test.toml", "test")
