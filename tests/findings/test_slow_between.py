"""What is slow between nodes is named: a node, a rail, a switch's uplink, a switch; and on sound networks nothing.

Made-up networks of two levels: a pair's rate is the least of what lies on its way, with the noise of real runs.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from causes import facts_of
from planting import MIB, World

from linkgauge.expect.network import Network
from linkgauge.findings.finding import Finding
from linkgauge.findings.rules import apply
from linkgauge.model.case import Case
from linkgauge.stats.launches import Places
from linkgauge.system import catalog
from linkgauge.system.switches import Switches
from results import launches_of
from thorough import most

SEEDS = most(25, 3)
KINDS = ("node", "rail", "uplink")


@dataclasses.dataclass
class Net:
    """Hosts on leaves on groups; rates in units of a node's, upwards in all."""

    above: dict[str, tuple[str, ...]]
    up: dict[str, float]  # what a host or switch has upwards, for one pair
    rates_known: bool

    def rate(self, a: str, b: str) -> float:
        way = Switches(self.above, "made up").way(a, b)
        assert way is not None
        upwards = {pair for host, names in self.above.items() for pair in itertools.pairwise((host, *names))}
        parts = [x if (x, y) in upwards else y for x, y in way]
        return min(self.up[part] for part in parts)


def net(seed: int) -> tuple[Net, np.random.Generator]:
    rng = np.random.default_rng([seed, 77])
    groups = int(rng.integers(1, 3))
    per_group = int(rng.integers(2 if groups > 1 else 3, 5))  # of two switches alone none is slower than its siblings
    per_leaf = int(rng.integers(3, 6))
    narrow = (1.0, 1.0, 0.5)[int(rng.integers(3))]  # what one pair has of a leaf's uplink
    narrower = narrow * (1.0, 0.5)[int(rng.integers(2))]
    above, up = {}, {}
    for group in range(groups):
        for leaf in range(per_group):
            for _ in range(per_leaf):
                name = f"n{len(above)}"
                above[name] = (f"l{group}.{leaf}", f"g{group}", "core")
                up[name] = 1.0
            up[f"l{group}.{leaf}"] = narrow
        up[f"g{group}"] = narrower
    return Net(above, up, bool(rng.integers(2))), rng


def found(seed: int, kind: str) -> tuple[list[Finding], str]:
    """The faults that are told, and the name of what was made slow."""
    made, rng = net(seed)
    hosts = tuple(made.above)
    leaves = sorted({names[0] for names in made.above.values()})
    slow = str(rng.choice(hosts if kind in ("node", "rail") else leaves))
    sound = dict(made.up)
    factor = {"node": 0.6, "rail": 0.5, "uplink": 0.5, "": 1.0}[kind]
    made.up[slow] *= factor
    world = World(catalog.load("alps"), rng, hosts=hosts)
    per_host = len(world.names)
    rates = {(a, b): made.rate(a, b) for a in hosts for b in hosts if a != b}

    def longer(case: Case) -> float:
        a, b = (hosts[device // per_host] for device in case.devices)
        return 1 / rates[a, b]

    world.slowness.append(longer)
    for a in range(len(hosts)):
        for b in range(len(hosts)):
            if a != b:
                world.add("mpi", "unidirectional", 64 * MIB, (a * per_host, b * per_host))
    facts = facts_of(world)
    port = 25e9  # of alps
    stated = {name: rate * port for name, rate in sound.items()} if made.rates_known else {}
    facts.network = Network(Switches(made.above, "made up", stated), Places(launches_of(world.launches())))
    return [one for one in apply(facts, samples=False) if one.severity == "fault"], slow


def names(finding: Finding, kind: str, slow: str) -> bool:
    if kind == "uplink":
        return finding.rule == "slow_link" and slow in finding.subject.replace(",", " ").split()
    return (
        finding.rule in ("slow_node", "slow_nic", "slow_device") and slow in finding.subject.replace(",", " ").split()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_slow_between_nodes_is_named(kind: str) -> None:
    named = 0
    for seed in range(SEEDS):
        told, slow = found(seed, kind)
        named += bool(told) and all(names(one, kind, slow) for one in told)
    assert named >= 0.95 * SEEDS - 1e-9


def two_switches(nodes: tuple[int, int], slow: tuple[str, ...], seed: int, *, busy: bool = False) -> list[Finding]:
    """The alarms of nodes on two switches, whose way `slow`, from one to the other, has half its rate.

    `busy`: eight samples a case, of which more than half are delayed, as on a machine with 70 runnable processes.
    """
    above = {f"n{number}": (f"l{int(number >= nodes[0])}", "g") for number in range(sum(nodes))}
    hosts, rng = tuple(above), np.random.default_rng(seed)
    world = World(catalog.load("alps"), rng, 8 if busy else 48, hosts=hosts)
    each = len(world.names)
    world.slowness.append(lambda case: 2.0 if tuple(above[hosts[d // each]][0] for d in case.devices) == slow else 1.0)
    if busy:
        delayed = 0.6
        world.over_time.append(lambda _, at: 1 + rng.exponential(0.8, at.size) * (rng.random(at.size) < delayed))
    for a, b in itertools.permutations(range(len(hosts)), 2):
        world.add("mpi", "unidirectional", 64 * MIB, (a * each, b * each))
    facts = facts_of(world)
    rates = dict.fromkeys((*hosts, "l0", "l1"), 25e9)
    facts.network = Network(Switches(above, "made up", rates), Places(launches_of(world.launches())))
    return [one for one in apply(facts, samples=False) if one.is_alarm]


WAYS = [("l0", "l1"), ("l1", "l0"), ()]


@pytest.mark.parametrize("slow", WAYS)
@pytest.mark.parametrize("nodes", [(2, 3), (3, 3), (2, 5)])
def test_of_two_switches_the_way_between_is_named_with_its_direction(
    nodes: tuple[int, int], slow: tuple[str, ...]
) -> None:
    told = two_switches(nodes, slow, 3)
    assert [(one.rule, one.subject) for one in told] == ([("slow_link", "trunk l0 - l1")] if slow else [])
    assert all(f"in the direction from {slow[0]} to {slow[1]}" in one.sentence for one in told)


@pytest.mark.parametrize("slow", WAYS)
def test_on_busy_nodes_the_fastest_operations_tell_what_a_link_allows(slow: tuple[str, ...]) -> None:
    named = [[(one.rule, one.subject) for one in two_switches((3, 3), slow, seed, busy=True)] for seed in range(8)]
    right = [("slow_link", "trunk l0 - l1")] if slow else []
    assert named.count(right) >= 7
    assert all(one in (right, []) for one in named)


def test_sound_networks_are_not_accused() -> None:
    assert sum(bool(found(seed, "")[0]) for seed in range(SEEDS)) <= 0.02 * SEEDS


def test_rates_of_a_fabric_file_set_limits_between_nodes() -> None:
    """A pair is bound by the narrowest link on its way; an incast by the port into which all send."""
    above = {f"n{number}": (f"s{number // 2}", "core") for number in range(4)}
    launches = launches_of(World(catalog.load("alps"), np.random.default_rng(1), hosts=tuple(above)).launches())
    rates = {**dict.fromkeys(above, 4e9), "s0": 1e9, "s1": 3e9}
    network = Network(Switches(above, "made up", rates), Places(launches))
    each = len(launches[0].ranks) // 4
    n = [number * each for number in range(4)]

    def bound(pattern: str, *devices: int) -> float | None:
        found = network.limit(Case("mpi", pattern, MIB, MIB, devices), launches[0].launch)
        return None if found is None else found.value_bytes_per_s

    assert bound("unidirectional", n[0], n[1]) == 4e9
    assert bound("unidirectional", n[0], n[3]) == 1e9
    assert bound("all_to_one", n[2], n[0], n[1]) is not None
    assert bound("unidirectional", n[0], n[0] + 1) is None  # inside a node
    assert bound("allreduce", *n) is None
