"""Ceilings of cases over several nodes: what the NICs and the network between nodes allow."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from linkgauge.expect import cuts, flows
from linkgauge.expect.collectives import gathered
from linkgauge.expect.graph import MACHINE, Wires
from linkgauge.expect.points import finite, serial
from linkgauge.expect.query import Query
from linkgauge.expect.rules import Ceiling, ceiling
from linkgauge.system.model import Network, Node
from linkgauge.system.units import show_rate

# Ends that the graph of one node gets in place of the network; no description has such names.
_OUT, _IN = "\0out", "\0in"


class _Doors:
    """What can pass between a node and the network: by the NICs' ports, and by the links that lead to them.

    All rates in bytes per second. A NIC that no described link joins to where a way begins counts by its port alone,
    so that every rate is a bound.
    """

    def __init__(self, q: Query, nics: Sequence[Node]) -> None:
        """Take the case and the node's NICs, each of a known rate."""
        self.graph = q.graph(MACHINE)
        self._rates = {nic.name: nic.port_rate.value for nic in nics if nic.port_rate is not None}
        self.ports = sum(self._rates.values())
        self.words = f"{len(nics)} NICs, {show_rate(self.ports)} a node"
        memories = (q.source_memory, q.target_memory)
        # Where buffers lie in host memory, the way begins there, or in a device: whichever allows more.
        hosts = () if set(memories) == {"device"} else tuple(host.name for host in q.system.hosts)
        self._beside = frozenset(hosts)

    def _passing(self, graph: Wires, sources: Iterable[str]) -> float:
        begun = {*sources, *self._beside}
        known = sorted(begun & set(graph.vertices))
        joined = graph.reached(known, around=graph.network)
        loose = sum(rate for name, rate in self._rates.items() if name not in joined)
        if graph.network is None or loose == self.ports or begun - self._beside - set(known):
            return self.ports
        value = cuts.max_flow_between(graph, known, [graph.network]).value
        return self.ports if value is None else min(self.ports, value + loose)

    def out(self, sources: Iterable[str]) -> float:
        """Return what these vertices together can send out of the node."""
        return self._passing(self.graph, sources)

    def into(self, targets: Iterable[str]) -> float:
        """Return what these vertices together can get from outside."""
        return self._passing(self.graph.reversed(), targets)

    def held(self, rate: float) -> str:
        """Return the words of a basis that rests on the NICs, of which the links to them leave this rate."""
        short = rate < self.ports * (1 - 1e-9)
        return f"{self.words}, {show_rate(rate)} by the links to them" if short else self.words


def several_nodes(q: Query) -> list[Ceiling]:
    """Return the ceilings of a case whose `devices` are those of each of `nodes` nodes.

    A point-to-point case pairs each device with its twin on the other node; its goodput is the node's sum, as
    De Sensi et al. draw it (SC'24, Fig. 7). A ring_shift's goodput is one flow's: where a node's ranks follow each
    other, one flow leaves it and one enters. Every node is alike, so a rate out of one and one into another bind both.
    """
    nics = list(q.system.of_kind("nic"))
    if not nics or any(nic.port_rate is None for nic in nics):
        return []
    doors = _Doors(q, nics)
    nodes, g, names = q.nodes, q.ranks, q.names
    n = nodes * g
    every = min(doors.out(names), doors.into(names))
    result: list[Ceiling] = []

    def slowest(way: Callable[[Iterable[str]], float]) -> float:
        return min(way([name]) for name in names)

    def bundle(rate: float, factor: float = 1.0, words: str = "") -> None:
        result.append(ceiling("nic_bundle", rate * factor, f"{doors.held(rate)}{words}"))

    if q.traits.pair or q.traits.to_next:
        ring = q.traits.to_next
        first, last = q.system.names_by_ordinal[q.devices[0]], q.system.names_by_ordinal[q.devices[-1]]
        bundle(min(doors.out([last]), doors.into([first])) if ring else every)
        near = _nearest(q, doors.graph, first, last)
        if near is not None:
            result.append(ceiling("nic_nearest", *near))
    elif q.traits.to_each:
        result.append(ceiling("nic_share_asymptotic", doors.ports / g, f"{doors.words} for {g} devices"))
        leaving = (nodes - 1) * g / (n - 1)
        # Each rank sends as much as each other, so the one that can send least counts for all.
        least = min(min(doors.out([v]), doors.into([v])) / weight for v, weight in q.weights.items())
        bundle(min(every, least * g), 1 / (g * leaving), f"; {leaving:.1%} of the traffic leaves the node")
        result.extend(_network(q, n))
    elif q.pattern == "allreduce":
        bundle(min(slowest(doors.out), slowest(doors.into)), 1.0, "; every byte must leave and enter a node once")
        # Hosts and switches may add and repeat, so that only what lies between them and the network counts.
        may = {*names, *(host.name for host in q.system.hosts), *doors.graph.multicast, *doors.graph.reduction}
        may &= {*names, *doors.graph.vertices}
        most = min(doors.out(may), doors.into(may))
        between = nodes * most / (2 * (nodes - 1))
        result.append(ceiling("allreduce_node_bytes", between, f"{doors.held(most)}, {nodes} nodes"))
        inside = _inside(q)
        if inside is not None:
            result.extend(_hierarchical(q, doors.graph, inside, between))
    elif q.traits.block_of_each:
        all_of, own = (doors.out, doors.into) if q.traits.reduces else (doors.into, doors.out)
        words = f"; {nodes - 1} of {nodes} parts come from outside"
        bundle(min(slowest(all_of), own(names) * (nodes - 1)), nodes / (nodes - 1), words)
    elif q.traits.rooted and q.traits.one_buffer:
        of_root, others = (doors.out, doors.into) if q.traits.root == "sends" else (doors.into, doors.out)
        bundle(min(of_root([q.root_name]), slowest(others)))
    elif q.traits.rooted:
        outward = q.traits.root == "sends"
        factor = (n - 1) / ((nodes - 1) * g) if q.traits.per_peer else nodes / (nodes - 1)
        rate = doors.out([q.root_name]) if outward else doors.into([q.root_name])
        bundle(rate, factor, " of the root's node")
    return result


def _hierarchical(q: Query, graph: Wires, inside: float, between: float) -> list[Ceiling]:
    """Return what a hierarchical allreduce reaches: what is inside at most, and less where both share links."""
    arcs = frozenset(q.graph().arcs)
    if not arcs <= set(graph.arcs) or graph.network not in graph.vertices:
        return []
    try:
        reached = flows.hierarchical(graph, q.weights, arcs, 2 * (q.nodes - 1) / q.nodes)
    except flows.TooLargeError:
        return []
    if not finite(reached):
        return []
    basis = f"inside {show_rate(inside)}, between nodes {show_rate(between)}"
    if reached < min(inside, between) * (1 - 1e-6):
        basis += f", both at once over the links that they share {show_rate(reached)}"
    return [ceiling("allreduce_hierarchical", min(inside, between, reached), basis)]


def _nearest(q: Query, graph: Wires, first: str, last: str) -> tuple[float, str] | None:
    """Return what devices reach by the NICs nearest to them, all at the same rate; None where none is near.

    A linear program over the node's links, which what ring_shift sends inside the node shares.
    """
    ring = q.traits.to_next
    senders, receivers = ([last], [first]) if ring else (list(q.names), list(q.names))
    own = {v: [n for n in q.system.nearest(v, "nic") if n in graph.vertices] for v in {*senders, *receivers}}
    if not all(own.values()) or not set(q.names) <= set(graph.vertices):
        return None
    weights = {v: 1 if ring else q.weights[v] for v in q.names}
    out = {(v, f"{v}{_OUT}"): float(weights[v]) for v in senders}
    into = {(f"{v}{_IN}", v): float(weights[v]) for v in receivers}
    inside = dict(Counter(p for p in itertools.pairwise(_ranks(q)) if p[0] != p[1])) if ring else {}
    doored = graph.with_arcs(_doored(graph, own))
    if ring or q.traits.both_ways:
        rates = [flows.concurrent(doored, {**out, **into, **{pair: float(count) for pair, count in inside.items()}})]
    else:
        rates = [flows.concurrent(doored, demands) for demands in (out, into)]
    known = [rate.reached for rate in rates if rate is not None and finite(rate.reached)]
    if len(known) < len(rates):
        return None
    used = sorted({nic for nics in own.values() for nic in nics})
    words = "; one flow leaves each node, whose ranks follow each other" if ring else ""
    return min(known) * (1 if ring else q.ranks), f"NICs {', '.join(used)}{words}"


def _ranks(q: Query) -> list[str]:
    return [q.system.names_by_ordinal[ordinal] for ordinal in q.devices]


def _doored(graph: Wires, own: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """Return a node's arcs with an end for what each device sends to and gets from its own NICs, which pass no more."""
    ports = {nic: graph.arcs[nic, graph.network] for nic, head in graph.arcs if head == graph.network and graph.network}
    arcs: dict[tuple[str, str], float] = {}
    for (tail, head), rate in graph.arcs.items():
        if graph.network not in (tail, head):
            arcs[f"{tail}{_IN}" if tail in ports else tail, f"{head}{_OUT}" if head in ports else head] = rate
    for vertex, nics in own.items():
        for nic in nics:
            arcs[f"{nic}{_OUT}", f"{nic}{_OUT}{_OUT}"] = arcs[f"{nic}{_IN}{_IN}", f"{nic}{_IN}"] = ports[nic]
            arcs[f"{nic}{_OUT}{_OUT}", f"{vertex}{_OUT}"] = arcs[f"{vertex}{_IN}", f"{nic}{_IN}{_IN}"] = math.inf
    return arcs


def _inside(q: Query) -> float | None:
    """Return what reduce_scatter, then allgather, reach inside a node."""
    if len(q.names) < 2:
        return None
    graph = q.graph()
    if any(math.isinf(rate) for rate in graph.arcs.values()):
        return None
    return serial(*(gathered(q, turned)[0] for turned in (graph, graph.reversed())))


def global_rate_of_group(network: Network) -> float | None:
    """Return the rate of a group's links to the other groups that nodes are in; None where figures lack.

    Where the links between two groups are stated, those; else every global port, as if all were cabled so. Dragonfly:
    switches of a group (all joined, so local ports + 1) times global ports; dragonfly+: spine switches times them.
    """
    port = network.value("port_rate")
    if port is None or network.topology not in ("dragonfly", "dragonfly+"):
        return None
    pair, groups = network.value("links_per_group_pair"), groups_of_nodes(network)
    if pair is not None and groups is not None:
        return (groups - 1) * pair * port
    if network.topology == "dragonfly":
        local, glob = network.value("switch_local_ports"), network.value("switch_global_ports")
        return None if local is None or glob is None else (local + 1) * glob * port
    spines, glob = network.value("spine_switches_per_group"), network.value("spine_global_ports")
    return None if spines is None or glob is None else spines * glob * port


def groups_of_nodes(network: Network) -> float | None:
    """Return how many groups nodes are in: no more than there are groups, nor than the nodes fill; None if unknown."""
    groups, nodes, each = (network.value(name) for name in ("groups", "nodes", "nodes_per_group"))
    if groups is None or nodes is None or each is None:
        return groups
    return min(groups, math.ceil(nodes / each))


def _network(q: Query, n: int) -> list[Ceiling]:
    network = q.system.network
    if network is None:
        return []
    if network.topology == "fat_tree":
        return _fat_tree(q, n)
    group_rate, groups, per_group = (
        global_rate_of_group(network),
        groups_of_nodes(network),
        network.value("nodes_per_group"),
    )
    if group_rate is None or groups is None or per_group is None:
        return []
    g, nodes, result = q.ranks, q.nodes, []
    if nodes > per_group:
        # Whoever sits in a full group sends at least to all outside it; scattered placements send more.
        leaving = n * (nodes - per_group) * g / (n - 1)
        value = groups * group_rate / leaving
        basis = f"{groups:.0f} groups of {show_rate(group_rate)} of global links; {leaving / n:.1%} leave their group"
        result.append(ceiling("network_global", value, basis))
    total = network.value("nodes")
    if total is not None and nodes >= total and groups > 1:
        # Groups joined evenly: a pair of groups shares 1 / (groups - 1) of a group's global links.
        halves = (groups // 2) * (groups - groups // 2)
        across = halves * group_rate / (groups - 1)
        left = n * (groups // 2) / groups
        value = across / (left * (n - left) / (n - 1))
        if finite(value):
            result.append(ceiling("network_bisection", value, f"{show_rate(across)} between two halves of the groups"))
    return result


def _fat_tree(q: Query, n: int) -> list[Ceiling]:
    """Return what the uplinks of a fat tree's leaf switches allow, where it has fewer of them than links to nodes.

    A tree with as many uplinks carries whatever its nodes inject, so their NICs bound it already.
    """
    network = q.system.network
    assert network is not None
    over, leaf = network.value("oversubscription"), network.value("nodes_per_leaf")
    rates = [nic.port_rate.value for nic in q.system.of_kind("nic") if nic.port_rate is not None]
    if over is None or leaf is None or not rates or over < 1 or q.nodes <= leaf:
        return []
    uplinks = leaf * sum(rates) / over
    inside = leaf * q.ranks
    # Each of a full leaf's ranks sends to all ranks outside of it.
    value = uplinks * (n - 1) / (inside * (n - inside))
    basis = f"{leaf:.0f} nodes of a leaf switch share {show_rate(uplinks)} of uplinks"
    return [ceiling("network_global", value, basis)]
