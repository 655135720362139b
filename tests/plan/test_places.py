"""Plans over several nodes: places numbered through, pairs across nodes, what a case names on its own node."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.case import Case
from linkgauge.model.taking import BY_SWITCH
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.memory import memory_need
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent import fallback, prepare
from linkgauge.run.parent.fallback import Fallback
from linkgauge.run.wire.spec import core_case, rank_list
from run.test_launchers import fake_mpi

GIB = 1 << 30


def machine(nodes: int, devices: int) -> PlanMachine:
    return PlanMachine("host", devices, 8 * GIB, 8 * GIB, 8 * GIB, 4, nodes=nodes)


def cases_of(text: str, nodes: int, devices: int, *, skipped: bool = False) -> list[Case]:
    plan = parse_plan(f"[[case]]\n{text}", "test.toml", "test")
    return [one.case for one in expand(plan, machine(nodes, devices)) if bool(one.skip) == skipped]


def test_n_nodes_of_d_devices_are_n_times_d_ranks() -> None:
    plan = parse_plan('[[case]]\ntransport="mpi"\npattern="allreduce"\nsize="8"', "test.toml", "test")
    hosts = dataclasses.replace(plan, launches=(dataclasses.replace(plan.launches[0], hosts=("a", "b", "c")),))
    (launch,) = plan_run(hosts, expand(hosts, machine(3, 4)), machine(3, 4))
    assert launch.settings.devices == tuple(range(12))
    assert launch.settings.key_contents("x")["nodes"] == 3
    (case,) = launch.cases
    assert (case.devices, case.devices_per_node, case.nodes) == (tuple(range(12)), 4, (0, 1, 2))
    assert [case.node_of(device) for device in case.devices] == [0] * 4 + [1] * 4 + [2] * 4
    assert [case.on_its_node(device) for device in case.devices] == [0, 1, 2, 3] * 3


def test_threads_never_take_the_place_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = parse_plan('[[case]]\ntransport="mpi"\npattern="allreduce"\nsize="8"', "test.toml", "test")
    (launch,) = plan_run(plan, expand(plan, machine(1, 2)), machine(1, 2))
    settings = dataclasses.replace(launch.settings, mpi="x", mpi_requested=False)
    for hosts, last in (((), True), (("a", "b"), False)):
        found = Fallback({"x": fake_mpi("hydra")}, {})
        monkeypatch.setattr(fallback, "find_all", list)
        step = found.go_on(dataclasses.replace(settings, hosts=hosts), "it is broken", lambda mpi: mpi is None)
        assert (step is not None) == last

    def none() -> MpiInstallation:
        raise EnvironmentLackingError("no usable MPI library")

    monkeypatch.setattr(prepare, "default_installation", none)
    on_hosts = dataclasses.replace(plan, launches=(dataclasses.replace(plan.launches[0], hosts=("a", "b")),))
    assert prepare._mpis_or_threads(plan, [])[2] == "no usable MPI library"
    with pytest.raises(EnvironmentLackingError, match="no usable MPI library"):
        prepare._mpis_or_threads(on_hosts, [])


def test_a_case_on_the_first_node_alone_is_the_one_of_a_run_on_one_node() -> None:
    text = 'transport="mpi"\npattern="pingpong"\nsize="8"\npairs="ordered"'
    alone = {case.case_key for case in cases_of(text, 1, 2)}
    several = cases_of(text, 2, 2)
    assert {case.devices for case in several} == set(itertools.permutations(range(4), 2))
    on_first = {case.case_key for case in several if case.nodes == (0,)}
    assert on_first == alone
    assert len({case.case_key for case in several}) == 12


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [("first", [(0, 2)]), ("nodes", [(0, 2), (0, 4), (2, 0), (2, 4), (4, 0), (4, 2)]),
     ("root", [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),
     ("ordered", [*itertools.permutations(range(6), 2)]),
     ("all", [*itertools.permutations(range(6), 2), *((place,) for place in range(6))])],
)  # fmt: skip
def test_pairs_between_nodes(pairs: str, expected: list[tuple[int, int]]) -> None:
    found = cases_of(f'transport="mpi"\npattern="pingpong"\nsize="8"\npairs="{pairs}"', 3, 2)
    assert [case.devices for case in found] == expected


def test_a_plans_devices_are_of_each_node() -> None:
    (case,) = cases_of('transport="mpi"\npattern="allreduce"\nsize="8"\ndevices=[[1, 3]]', 2, 4)
    assert case.devices == (1, 3, 5, 7)
    found = cases_of('transport="copy_engine"\npattern="pingpong"\nsize="8"\npairs="ordered"\ndevices=[[0, 1]]\nvia=2',
                     2, 3)  # fmt: skip
    assert {(case.devices, case.via) for case in found} == {((0, 1), 2), ((1, 0), 2), ((3, 4), 5), ((4, 3), 5)}
    with pytest.raises(UsageError, match="no device 3"):
        cases_of('transport="mpi"\npattern="allreduce"\nsize="8"\ndevices=[[0, 3]]', 2, 3)


def test_what_reaches_one_node_only_is_skipped_across_nodes() -> None:
    text = 'transport=["kernel", "mpi"]\npattern="pingpong"\nsize="8"\npairs="ordered"'
    skipped = cases_of(text, 2, 2, skipped=True)
    assert {case.transport for case in skipped} == {"kernel"}
    assert all(len(case.nodes) == 2 for case in skipped)
    assert sum(case.transport == "kernel" for case in cases_of(text, 2, 2)) == 4


@given(nodes=st.integers(1, 4), devices=st.integers(1, 4), per_device=st.integers(1, 3), data=st.data())
def test_each_place_of_a_case_is_played_by_a_rank_of_its_node_and_device(
    nodes: int, devices: int, per_device: int, data: st.DataObject
) -> None:
    placed = [rank // per_device for rank in range(nodes * devices * per_device)]  # node after node
    ranks = data.draw(st.permutations(range(len(placed))))
    chosen = ranks[: data.draw(st.integers(1, len(placed)))]
    members = tuple(placed[rank] for rank in chosen)
    case = Case("mpi", "alltoall", 8, 8, members, devices_per_node=devices if max(members) >= devices else 0)
    found = rank_list(case, tuple(placed))
    assert len(set(found)) == len(found)
    told = core_case(case, tuple(placed), 1)["devices"]
    for rank, device, own in zip(found, members, told, strict=True):
        assert rank // (devices * per_device) == case.node_of(device)
        assert own == (rank % (devices * per_device)) // per_device


def test_memory_is_that_of_the_node_with_most_ranks() -> None:
    one = Case("mpi", "alltoall", 1 << 20, 1 << 20, (0, 1, 2, 3), source_memory="pinned", target_memory="pinned")
    two = dataclasses.replace(one, devices=(0, 1, 2, 3), devices_per_node=2)
    assert memory_need(two).host_bytes * 2 == memory_need(one).host_bytes


def test_pairs_of_nodes_side_by_side_are_a_tournament_of_the_nodes() -> None:
    found = cases_of('transport="mpi"\npattern="pairs_bidirectional"\nsize="8"\npairs="nodes"', 4, 2)
    met = [frozenset(pair) for case in found for pair in zip(case.devices[::2], case.devices[1::2], strict=True)]
    assert sorted(map(sorted, met)) == [[a, b] for a, b in itertools.combinations((0, 2, 4, 6), 2)]
    assert all(set(case.devices) == {0, 2, 4, 6} for case in found)


def test_pairs_of_nodes_are_skipped_on_one_with_what_to_give() -> None:
    text = 'transport="mpi"\npattern=["pingpong", "alltoall"]\nsize="8"\npairs="nodes"'
    plan = parse_plan(f"[[case]]\n{text}", "test.toml", "test")
    reasons = {one.case.pattern: one.skip for one in expand(plan, machine(1, 2))}
    assert reasons == {"pingpong": "pairs of nodes need several: give --hosts or --nodes", "alltoall": ""}


SHIFT = 'transport="mpi"\npattern="ring_shift"\nsize="8"\n'
ABOVE = {
    "a": ("s0", "g0"),
    "b": ("s1", "g0"),
    "c": ("s0", "g0"),
    "d": ("s2", "g1"),
    "e": ("s2", "g1"),
    "f": ("s1", "g0"),
}


def nodes_of(choose: str, ranks: int, above: dict[str, tuple[str, ...]] | None = ABOVE, devices: int = 2) -> list[int]:
    """The nodes of a case of so many ranks on six nodes, a device each time."""
    six = dataclasses.replace(machine(6, devices), above=above)
    plan = parse_plan(f'seed=3\n[[case]]\n{SHIFT}ranks={ranks}\nplacement="{choose}"', "test.toml", "test")
    (one,) = expand(plan, six)
    return [one.case.node_of(device) for device in one.case.devices]


def test_jobs_get_whole_nodes_in_the_order_that_their_placement_says() -> None:
    assert nodes_of("linear", 6) == [0, 0, 1, 1, 2, 2]
    assert nodes_of("interleaved", 6) == [0, 0, 2, 2, 4, 4]
    assert nodes_of("interleaved", 5) == [0, 0, 2, 2, 4]
    drawn, shuffled = nodes_of("random", 8), nodes_of("shuffled", 8)
    assert drawn == sorted(shuffled) != shuffled
    assert len(set(drawn)) == 4
    # g0 has four nodes, two on each switch; s2 of g1 has two.
    assert nodes_of("packed", 4) == [0, 0, 2, 2]
    assert nodes_of("packed", 12) == [node for node in (0, 2, 1, 5, 3, 4) for _ in range(2)]
    assert nodes_of("spread", 12)[::2] == [0, 3, 1, 4, 2, 5]
    of_one_group = {node: (names[0], "g0") for node, names in ABOVE.items()}
    assert nodes_of("spread", 6, of_one_group) == [0, 0, 1, 1, 3, 3]


def test_placements_by_switches_that_no_one_knows_are_one_line() -> None:
    with pytest.raises(UsageError, match=r"test.toml: \[\[case\]\] 1: placement packed: which switch .* --fabric FILE"):
        nodes_of("packed", 4, None)
    with pytest.raises(UsageError, match="no switch of node d is known: give --fabric FILE"):
        nodes_of("spread", 4, {**ABOVE, "d": ()})
    with pytest.raises(UsageError, match="here is one node: give --hosts or --nodes"):
        cases_of(SHIFT + 'ranks=2\nplacement="packed"', 1, 4)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12), st.integers(1, 12))
def test_packed_takes_the_fewest_groups_and_spread_the_most(where: list[tuple[int, int]], count: int) -> None:
    """By brute force over all choices of so many nodes: groups, and where there is one group its switches."""
    count = min(count, len(where))
    levels = [np.array([group for group, _ in where]), np.array([3 * group + switch for group, switch in where])]
    chosen = {name: [where[place] for place in take(levels)[:count]] for name, take in BY_SWITCH.items()}
    sets = list(itertools.combinations(where, count))

    def groups(nodes: Iterable[tuple[int, int]]) -> int:
        return len({group for group, _ in nodes})

    assert groups(chosen["packed"]) == min(map(groups, sets))
    assert groups(chosen["spread"]) == max(map(groups, sets))
    if groups(where) == 1:
        assert len(set(chosen["packed"])) == min(len(set(nodes)) for nodes in sets)
        assert len(set(chosen["spread"])) == max(len(set(nodes)) for nodes in sets)
