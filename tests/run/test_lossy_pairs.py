"""Two nodes that lose large packets between them: who is at fault, and launches that have not both."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from linkgauge.model.case import Case
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.run.parent import lossy_pairs, reach
from linkgauge.run.parent.prepared import Pending
from linkgauge.run.wire.spec import CaseEntry

HOSTS = tuple(f"n{number}" for number in range(6))
JUMBO, USUAL = 9000, 1500


def settings(devices: int = 1) -> LaunchSettings:
    return LaunchSettings(
        mpi="mpich", env=(), derived_env=(), launcher_args=(), bind="none", threads=False, ranks_per_device=1,
        peer_access=True, devices=tuple(range(devices * len(HOSTS))), thread_level="funneled", hosts=HOSTS,
    )  # fmt: skip


def pending(cases: Iterable[Case], devices: int = 1) -> Pending:
    cases = tuple(cases)
    planned = PlannedLaunch(3, 1, settings(devices), cases)
    return Pending.of(planned, [CaseEntry(one, 0, index) for index, one in enumerate(cases)], 7)


def case(devices: Iterable[int], pattern: str = "unidirectional", of_node: int = 1) -> Case:
    return Case("mpi", pattern, 4096, 4096, tuple(devices), devices_per_node=of_node)


def pairs(*words: str) -> set[frozenset[str]]:
    return {frozenset(word.split("-")) for word in words}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("devices", [1, 2])
def test_every_case_without_a_lossy_pair_is_in_one_launch_and_none_has_both_nodes(seed: int, devices: int) -> None:
    drawn = random.Random(f"{seed}/{devices}/lossy")
    all_pairs = [frozenset(two) for two in itertools.combinations(HOSTS, 2)]
    lossy = set(drawn.sample(all_pairs, drawn.randint(1, 6)))
    ranks = devices * len(HOSTS)
    cases = [case(two, of_node=devices) for two in itertools.permutations(range(ranks), 2)]
    cases += [case(drawn.sample(range(ranks), drawn.randint(3, ranks)), "allreduce", devices) for _ in range(8)]
    drawn.shuffle(cases)
    cases = list(dict.fromkeys(cases))

    def hosts(one: Case) -> set[str]:
        return {HOSTS[device // devices] for device in one.devices}

    one, left_out = pending(cases, devices), dict[Case, frozenset[str]]()
    parts = [one, pending([case([0])])]
    changed = lossy_pairs.part(parts, lossy, lambda _, entry, pair: left_out.update({entry.case: pair}))
    assert all(pair <= hosts(each) for each, pair in left_out.items())
    assert len(left_out) == sum(any(pair <= hosts(each) for pair in lossy) for each in cases)
    assert parts.pop().entries
    assert parts[0] is one
    assert changed == parts
    measured = [entry.case for part in parts for entry in part.entries.values()]
    assert sorted(map(cases.index, measured)) == [
        at for at, each in enumerate(cases) if not any(pair <= hosts(each) for pair in lossy)
    ]
    for part in parts:
        there = part.planned.settings
        assert not any(pair.issubset(there.hosts) for pair in lossy)
        assert [HOSTS[device // devices] for device in there.devices] == [
            host for host in there.hosts for _ in range(devices)]  # fmt: skip
        assert all(hosts(entry.case) <= set(there.hosts) for entry in part.entries.values())
        assert part.entries
        assert (part.planned.number, part.planned.repeat) == (3, 1)


def test_one_lossy_pair_takes_two_launches_and_none_takes_one() -> None:
    cases = [case(two) for two in itertools.permutations(range(6), 2)]
    one = pending(cases)
    assert lossy_pairs.take_out(one, pairs("n1-n9")) == []
    assert lossy_pairs.apart(one, pairs("n1-n9")) == [one]
    assert one.planned.settings == settings()
    lossy_pairs.take_out(one, pairs("n1-n4"))
    first, second = lossy_pairs.apart(one, pairs("n1-n4"))
    assert first.planned.settings.hosts == ("n0", "n1", "n2", "n3", "n5")
    assert second.planned.settings.hosts == ("n0", "n2", "n3", "n4", "n5")


def hellos(mtus: dict[str, int]) -> dict[str, dict[str, object]]:
    return {name: {"addresses": {"eth0": (f"10.0.0.{at}", mtu)}} for at, (name, mtu) in enumerate(mtus.items())}


def looked_at(mtus: dict[str, int], loses: Iterable[frozenset[str]], dead: Iterable[str] = ()) -> reach.Reached:
    """What a look at nodes finds where some pairs lose packets of full size, and nobody connects to the dead ones."""
    loses, dead, found, nodes = set(loses), set(dead), reach.Reached(), hellos(mtus)
    for tries in (reach.first_tries(nodes), None):
        tries = reach.further_tries(nodes, found.lossy()) if tries is None else tries
        found.try_all(tries)
        for source, others in tries.items():
            said = {other: {"why": "refused", "mtu": 0} for other in others if {source, other} & dead}
            said |= {other: {"why": "full packets are lost", "mtu": mtus[source]}
                     for other in others if frozenset((source, other)) in loses}  # fmt: skip
            found.note(source, said)
    return found


@pytest.mark.parametrize("count", [4, 6, 8, 30])
def test_two_nodes_that_lose_packets_only_between_them_are_both_used(count: int) -> None:
    mtus = {f"n{number}": JUMBO if number in (1, 3) else USUAL for number in range(count)}
    found = looked_at(mtus, pairs("n1-n3"))
    assert found.unusable(list(mtus)) == {}
    assert list(found.lossy()) == list(pairs("n1-n3"))
    assert f"between n1 and n3 (MTU {JUMBO} at " in found.lossy()[frozenset(("n1", "n3"))]


@pytest.mark.parametrize("count", [4, 6, 8, 30])
def test_a_node_that_loses_packets_with_all_others_is_no_pair(count: int) -> None:
    mtus = {f"n{number}": JUMBO for number in range(count)}
    bad = [frozenset(("n2", other)) for other in mtus if other != "n2"]
    found = looked_at(mtus, bad)
    assert found.lossy() == {}
    assert list(found.unusable(list(mtus))) == ["n2"]


@pytest.mark.parametrize("count", [10, 30])
def test_of_many_nodes_on_two_switches_every_lossy_pair_is_found(count: int) -> None:
    mtus = {f"n{number}": JUMBO for number in range(count)}
    names = list(mtus)
    across = {frozenset(two) for two in itertools.product(names[: count // 2], names[count // 2 :])}
    found = looked_at(mtus, across)
    assert found.unusable(names) == {}
    assert set(found.lossy()) == across


def test_of_two_nodes_alone_the_later_one_cannot_be_used() -> None:
    found = looked_at({"n0": JUMBO, "n1": JUMBO}, pairs("n0-n1"))
    assert (found.lossy(), list(found.unusable(["n0", "n1"]))) == ({}, ["n1"])


def test_a_node_that_nobody_connects_to_is_named_beside_a_lossy_pair() -> None:
    mtus = {f"n{number}": JUMBO if number in (1, 3) else USUAL for number in range(5)}
    found = looked_at(mtus, pairs("n1-n3"), dead=["n4"])
    assert list(found.unusable(list(mtus))) == ["n4"]
    assert set(found.lossy()) == pairs("n1-n3")
