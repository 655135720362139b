"""Why a network is slow follows from what its nodes counted; counters and times here are made up."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest
from causes import facts_of
from planting import World

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.findings.high_latency import far_nodes, high_latency
from linkgauge.findings.network_causes import flapping_link, link_down, lossy_link, mtu_mismatch
from linkgauge.findings.rules import apply
from linkgauge.model.case import Case
from linkgauge.model.result import Observation
from linkgauge.run.rank.node_counters import NIC, PROTOCOLS
from linkgauge.stats.crossing import NETWORK, Crossing
from linkgauge.stats.launches import Places
from linkgauge.stats.node_counts import NodeCounts
from linkgauge.system import catalog

KIB, MIB = 1 << 10, 1 << 20
Grown = Callable[[str, str], Mapping[str, float]]
"""By a node and the other one of its case, what its TCP counted."""


def cluster(nodes: int, time: Callable[[str, str], float], size: int = MIB, pattern: str = "unidirectional") -> Facts:
    """Facts of all ordered pairs of nodes; `time` of a pair: a factor of the usual, of a small message added us."""
    hosts = tuple(f"n{number}" for number in range(nodes))
    world = World(catalog.load("alps"), np.random.default_rng(nodes), hosts=hosts)
    each = len(world.names)

    def of_pair(case: Case) -> float:
        return time(*(hosts[device // each] for device in case.devices))

    if size < KIB:
        world.extra_ns.append(lambda case: 1e3 * of_pair(case))
    else:
        world.slowness.append(of_pair)
    for a, b in itertools.permutations(range(nodes), 2):
        world.add("mpi", pattern, size, (a * each, b * each))
    return facts_of(world)


def counted(facts: Facts, grown: Grown, carrier: Callable[[str, int], int] = lambda node, case: 0) -> Facts:
    """The facts with observations of both ends of each case."""
    observations, devices = [], {}
    for number, measure in enumerate(facts.measures):
        for identity in measure.identities:
            devices[identity] = measure.devices
            ends = [facts.host_of(device) for device in measure.devices]
            for place, node in enumerate(ends):
                of = grown(node, ends[1 - place])
                for moment, share in (("before", 0), ("after", 1)):
                    values = [(PROTOCOLS, name, value * share) for name, value in of.items()]
                    values += [(f"{NIC}eth0", "nic_sent", 1e6 * share), (f"{NIC}eth0", "nic_received", 1e6 * share),
                               (f"{NIC}eth0", "carrier_changes", carrier(node, 2 * number + share))]  # fmt: skip
                    observations += [
                        Observation(identity, place, subject, name, "packets", value, moment, 2 * number + share)
                        for subject, name, value in values
                    ]
    return dataclasses.replace(facts, counts=NodeCounts.of(observations, devices, Places(facts.launches)))


def loss(lossy: Mapping[tuple[str, str], float], usual: float = 3.0) -> Grown:
    """Of 20,000 packets each; `lossy`: by sender and receiver ("" any) the share that is lost of the way."""

    def grown(node: str, other: str) -> dict[str, float]:
        def lost(a: str, b: str) -> float:
            return max((share for (x, y), share in lossy.items() if x in ("", a) and y in ("", b)), default=0.0)

        answers = 0.3 * lost(other, node)  # of the answers on the way back, some make their sender send again
        return {
            "tcp_sent": 20_000,
            "tcp_retransmitted": usual + 20_000 * (lost(node, other) + answers),
            "tcp_duplicates": 20_000 * 0.3 * lost(node, other),
            "tcp_out_of_order": 20_000 * lost(other, node),
        }

    return grown


def told(rule: Callable[[Facts], Iterable[Finding]], facts: Facts) -> list[tuple[str, str]]:
    return [(one.severity, one.subject) for one in rule(facts)]


@pytest.mark.parametrize("share", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("nodes", [3, 4, 6, 8])
@pytest.mark.parametrize(
    ("lossy", "words"),
    [((("", "n2"),), "into eth0 of n2"), ((("n1", ""),), "out of eth0 of n1"),
     ((("", "n0"), ("n0", "")), "at eth0 of n0, in both directions")],
)  # fmt: skip
def test_a_lossy_link_is_named_with_its_direction(
    share: float, nodes: int, lossy: tuple[tuple[str, str], ...], words: str
) -> None:
    facts = cluster(nodes, lambda a, b: 1.0)
    (found,) = lossy_link(counted(facts, loss(dict.fromkeys(lossy, share))))
    assert (found.rule, found.severity) == ("lossy_link", "fault")
    assert words in found.sentence
    assert "sent again" in found.evidence[0].text


@pytest.mark.parametrize("usual", [0, 3, 60, 400])
def test_full_queues_that_drop_a_little_everywhere_are_no_lossy_link(usual: float) -> None:
    facts = cluster(5, lambda a, b: 1.0)
    rng = np.random.default_rng(1)
    grown = loss({})
    noisy = counted(facts, lambda a, b: {**grown(a, b), "tcp_retransmitted": usual * rng.random()})
    assert told(lossy_link, noisy) == []


def test_packets_that_busy_nodes_send_again_without_need_are_not_lost() -> None:
    """Counted on a machine with 40 runnable processes: 0.1 to 0.5 % sent again, most got twice, none out of order."""
    rng = np.random.default_rng(5)

    def busy(node: str, other: str) -> dict[str, float]:
        return {"tcp_sent": 3_500, "tcp_retransmitted": rng.integers(2, 40), "tcp_duplicates": rng.integers(0, 12),
                "tcp_out_of_order": rng.integers(0, 2)}  # fmt: skip

    facts = cluster(6, lambda a, b: 1.0)
    assert told(lossy_link, counted(facts, busy)) == []

    def lossy(node: str, other: str) -> dict[str, float]:
        out_of_order = {"tcp_out_of_order": rng.integers(150, 600)} if node == "n0" else {}
        again = {"tcp_retransmitted": rng.integers(20, 40)} if other == "n0" else {}
        return {**busy(node, other), **again, **out_of_order}

    assert told(lossy_link, counted(facts, lossy)) == [("fault", "eth0 of n0")]


def test_a_pair_that_alone_loses_is_told_as_the_pair() -> None:
    facts = cluster(4, lambda a, b: 1.0)
    (found,) = lossy_link(counted(facts, loss({("n1", "n3"): 0.02})))
    assert found.subject == "n1 - n3"


def test_loss_is_told_in_place_of_the_slow_node_that_it_explains() -> None:
    facts = cluster(6, lambda a, b: 1.5 if b == "n2" else 1.0, 64 * MIB)
    assert [one.rule for one in apply(facts, samples=False) if one.severity == "fault"] == ["slow_nic"]
    found = apply(counted(facts, loss({("", "n2"): 0.02})), samples=False)
    assert [one.rule for one in found if one.severity == "fault"] == ["lossy_link"]
    (slow,) = (one for one in found if one.rule == "slow_nic")
    assert "Lost packets explain it" in slow.sentence


def test_a_carrier_that_went_away_between_two_cases_is_told_with_node_and_interface() -> None:
    facts = cluster(4, lambda a, b: 1.0)
    assert told(flapping_link, counted(facts, loss({}))) == []
    found = counted(facts, loss({}), lambda node, when: 4 + 2 * (node == "n1" and when > 9))
    assert told(flapping_link, found) == [("fault", "eth0 of n1")]


def test_a_carrier_that_went_away_before_a_node_s_first_case_is_told_by_the_look_before_the_run() -> None:
    facts = counted(cluster(4, lambda a, b: 1.0), loss({}), lambda node, when: 4 if node == "n1" else 2)
    looks = [{"host": f"n{number}", "network": {"rdma": [], "interfaces": [
        {"name": "eth0", "kind": "network", "up": True, "carrier_changes": 2},
    ]}}
             for number in range(4)]  # fmt: skip
    assert told(flapping_link, facts) == []
    assert told(flapping_link, dataclasses.replace(facts, info={"nodes": looks})) == [("fault", "eth0 of n1")]


def test_mtus_that_differ_are_told_of_the_fewer_nodes() -> None:
    facts = cluster(3, lambda a, b: 1.0)

    def node(host: str, mtu: int, address: str = "10.0.0.1") -> dict[str, object]:
        one = {"name": "eth0", "kind": "network", "up": True, "rate": 0, "address": address, "driver": "", "mtu": mtu}
        return {"host": host, "network": {"interfaces": [one], "rdma": []}}

    facts = dataclasses.replace(facts, info={"nodes": [node("n0", 1500), node("n1", 9000), node("n2", 1500)]})
    (found,) = mtu_mismatch(facts)
    assert (found.subject, found.severity) == ("eth0 of n1", "fault")
    for others in ([node("n0", 1500), node("n1", 1500)], [node("n0", 1500), node("n1", 9000, "192.168.0.1")]):
        assert list(mtu_mismatch(dataclasses.replace(facts, info={"nodes": others}))) == []


def railed(nodes: Mapping[str, Mapping[str, object]], carried: Iterable[str]) -> Facts:
    """Facts of nodes with two cards, of which one is on a node as it is given; those of `carried` moved data."""
    facts = cluster(len(nodes), lambda a, b: 2.0 if "n1" in (a, b) else 1.0, 64 * MIB)
    card = {"kind": "network", "up": True, "rate": 0, "address": "10.0.0.1", "driver": "", "mtu": 1500}
    info = [{"host": host, "network": {"rdma": [], "interfaces": [
        {"name": "eth0", **card}, *([{"name": "eth1", **card, **own}] if own else []),
    ]}} for host, own in nodes.items()]  # fmt: skip
    crossings = {}
    for measure in facts.measures:
        cards = {facts.host_of(device): dict.fromkeys(carried, (1 << 30, 1 << 30)) for device in measure.devices}
        for identity in measure.identities:
            crossings[identity] = Crossing(identity, NETWORK, 1 << 30, 1 << 30, cards)
    return dataclasses.replace(facts, info={"nodes": info}, crossings=crossings)


UP: Mapping[str, object] = {"up": True}


@pytest.mark.parametrize(
    ("state", "words"),
    [({"up": False, "address": ""}, "is down"), ({"carrier": False}, "has no carrier"), ({}, "is not there")],
)
def test_a_card_that_is_down_on_one_node_is_told_in_place_of_the_slow_node(
    state: Mapping[str, object], words: str
) -> None:
    nodes = {"n0": UP, "n1": state, "n2": UP, "n3": UP}
    found = apply(railed(nodes, ("eth0", "eth1")), samples=False)
    assert [(one.rule, one.subject) for one in found if one.is_alarm] == [("link_down", "eth1 of n1")]
    assert words in found[0].sentence
    (slow,) = (one for one in found if one.rule.startswith("slow_"))
    assert "A link that is down explains it (eth1 of n1)" in slow.sentence


def test_a_card_that_nobody_uses_is_a_note_and_explains_nothing() -> None:
    found = apply(railed({"n0": UP, "n1": {"up": False}, "n2": UP}, ("eth0",)), samples=False)
    assert [one.rule for one in found if one.is_alarm] == ["slow_nic"]
    assert [one.severity for one in found if one.rule == "link_down"] == ["note"]


@pytest.mark.parametrize("down", [(), ("n0", "n1"), ("n0", "n1", "n2", "n3")])
def test_cards_that_are_up_everywhere_or_down_on_half_of_the_nodes_are_not_told(down: tuple[str, ...]) -> None:
    nodes = {f"n{number}": {"up": f"n{number}" not in down} for number in range(4)}
    assert told(link_down, railed(nodes, ("eth0", "eth1"))) == []


@pytest.mark.parametrize("nodes", [3, 4, 5, 8])
def test_a_node_that_is_far_is_told_by_latency_alone(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    facts = cluster(nodes, lambda a, b: (800.0 if "n1" in (a, b) else 1.0) * rng.uniform(1, 3), 8, "pingpong")
    assert told(high_latency, facts) == [("fault", "node n1")]
    facts = cluster(nodes, lambda a, b: float(rng.uniform(1, 3)), 8, "pingpong")
    assert told(high_latency, facts) == []


def busy_nodes(nodes: int, seed: int, far: str = "", added_us: float = 10_000.0) -> Facts:
    """All pairs of busy nodes at 8 B: ranks wait for cores, some pairs' longer than others', and each operation's.

    As measured with 50 runnable processes on two cores: the fastest operations of pairs take 40 to 190 us.
    """
    hosts = tuple(f"n{number}" for number in range(nodes))
    rng = np.random.default_rng((nodes, seed))
    world = World(catalog.load("alps"), rng, hosts=hosts, samples=20, sigma=0.05)
    each = len(world.names)
    world.extra_ns.append(lambda case: 30e3 + 1e3 * added_us * (far in {hosts[d // each] for d in case.devices}))
    waits: dict[tuple[int, ...], float] = {}
    world.ticks.append(lambda case, at, lasts: waits[case.devices] * rng.gamma(4.0))
    for a, b in itertools.combinations(range(nodes), 2):
        waits[a * each, b * each] = 150e3 * np.exp(1.2 * rng.normal())
        world.add("mpi", "pingpong", 8, (a * each, b * each))
    return facts_of(world)


def accused(facts: Facts) -> list[str]:
    return [one.subject for one in apply(facts, samples=False, only={"high_latency"}) if one.is_alarm]


def test_busy_nodes_are_not_told_as_far() -> None:
    drawn = [busy_nodes(nodes, seed) for nodes in (3, 4, 5, 6) for seed in range(25)]
    assert sum(bool(accused(facts)) for facts in drawn) <= len(drawn) // 50


def test_a_far_node_among_busy_ones_is_told_and_no_other() -> None:
    drawn = [busy_nodes(nodes, seed, "n1") for nodes in (4, 6) for seed in range(30)]
    found = [accused(facts) for facts in drawn]
    assert sum("node n1" in one for one in found) >= 0.95 * len(drawn)
    assert sum(len(one) > 1 for one in found) <= len(drawn) // 50


def test_no_node_is_far_where_halves_are_or_all_are() -> None:
    pairs = list(itertools.combinations("abcd", 2))
    assert far_nodes({pair: 9e6 if len({"a", "b"} & set(pair)) == 1 else 1e4 for pair in pairs})[1] == []
    assert far_nodes(dict.fromkeys(pairs, 9e6))[1] == []
    pairs = list(itertools.combinations("abcde", 2))
    found = far_nodes({pair: 9e6 if len({"a", "b"} & set(pair)) == 1 else 1e4 for pair in pairs})[1]
    assert found == [frozenset("ab")]


UPLINKS = [
    (5, ("n3", "n4"), "both"), (6, ("n2", "n3"), "both"), (6, ("n2", "n3"), "in"), (7, ("n0", "n1", "n2"), "out"),
    (8, ("n2", "n3", "n4"), "both"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "behind", "direction"), UPLINKS)
def test_nodes_that_are_full_among_each_other_and_slow_to_others_are_told_as_their_uplink(
    nodes: int, behind: tuple[str, ...], direction: str
) -> None:
    def time(a: str, b: str) -> float:
        leaves, enters = a in behind and b not in behind, b in behind and a not in behind
        return 2.0 if (leaves and direction != "in") or (enters and direction != "out") else 1.0

    facts = cluster(nodes, time, 64 * MIB)
    found = [one for one in apply(facts, samples=False) if one.is_alarm]
    assert [(one.rule, one.subject) for one in found] == [("slow_uplink", f"uplink of {{{', '.join(behind)}}}")]
    assert "lanes, rails or engines" not in found[0].sentence


@pytest.mark.parametrize(("slow", "words"), [("both", ""), ("n0", " from {n0, n1} to {n2, n3}"),
                                             ("n2", " from {n2, n3} to {n0, n1}")])  # fmt: skip
def test_two_halves_are_a_loss_that_may_be_meant_at_either(slow: str, words: str) -> None:
    """The same pairs cross the uplink of either half."""

    def time(a: str, b: str) -> float:
        return 2.0 if (a < "n2") != (b < "n2") and (slow == "both" or (a < "n2") == (slow < "n2")) else 1.0

    found = [one for one in apply(cluster(4, time, 64 * MIB), samples=False) if one.is_alarm]
    assert [(one.rule, one.severity, one.subject) for one in found] == [
        ("slow_uplink", "loss", "uplink of {n0, n1} or {n2, n3}")]  # fmt: skip
    assert f"below its siblings{words}." in found[0].sentence


@pytest.mark.parametrize("nodes", [4, 5, 6, 8])
def test_nodes_that_are_alike_have_no_slow_uplink(nodes: int) -> None:
    facts = cluster(nodes, lambda a, b: 1.0, 64 * MIB)
    assert [one.subject for one in apply(facts, samples=False) if one.is_alarm] == []
