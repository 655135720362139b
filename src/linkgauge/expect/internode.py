"""Limits of cases over several nodes: what NVLink domains, NICs and the network between nodes allow.

Where nodes of a job are is not known, so a bound holds wherever they are: N nodes are in at least N / D domains of D
nodes (rounded up), and the smallest of these has no more than an even part of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from linkgauge.expect import cuts, flows
from linkgauge.expect.collectives import bytes_bound, collective, gathered
from linkgauge.expect.graph import HOST, MACHINE, Wires
from linkgauge.expect.limit import Limit, goodput, limit
from linkgauge.expect.linear_program import TooLargeError
from linkgauge.expect.network_bounds import network
from linkgauge.expect.points import finite, serial
from linkgauge.expect.query import Query
from linkgauge.model.quantity import percent
from linkgauge.system.domain import domain_of, ordinals_of_domain
from linkgauge.system.units import show_rate

# Ends that the graph of one node gets in place of the network; no description has such names.
_OUT, _IN = "\0out", "\0in"
_MOST_OF_DOMAIN = 1024  # devices of a domain; 1,024 take 10 s, and the largest that is sold has 576


class _Doors:
    """What can pass between a node, or a domain, and the network: by the NICs' ports, and the links that lead to them.

    All rates in bytes per second. A NIC that no described link joins to where a way begins counts by its port alone,
    so that every rate is a bound.
    """

    def __init__(self, q: Query, where: str) -> None:
        """Take a case on a system whose NICs all have a known rate, and what has them in words."""
        nics = list(q.system.of_kind("nic"))
        self.graph = q.graph(MACHINE)
        self._rates = {nic.name: nic.port_rate.value for nic in nics if nic.port_rate is not None}
        self.ports = sum(self._rates.values())
        self.words = f"{len(nics)} NICs, {show_rate(self.ports)} a {where}"
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


def several_nodes(q: Query) -> list[Limit]:
    """Return the limits of a case whose `devices` are those of each of `nodes` nodes.

    A point-to-point case pairs each device with its twin on the other node; its goodput is the node's sum, as
    De Sensi et al. draw it (SC'24, Fig. 7). A ring_shift's goodput is one flow's: where a node's ranks follow each
    other, one flow leaves it and one enters. Every node is alike, so a rate out of one and one into another bind both.
    """
    nics = list(q.system.of_kind("nic"))
    known = bool(nics) and all(nic.port_rate is not None for nic in nics)
    most = _nodes_of_domain(q)
    near = _nearest_of_ends(q) if known else []
    if most > 1:
        if min(most, q.nodes) * q.ranks > _MOST_OF_DOMAIN:
            return near
        if q.nodes <= most or q.traits.pair:
            # All in one domain, or apart: whichever allows more, as where nodes are is not known.
            inside = _pairs_in_domain(q) if q.traits.pair else _in_domain(q)
            if q.mechanism.through_host and inside:  # the way to the hosts is the same wherever they are
                return [*inside, *near]
            # A pair is of two nodes, each in a domain of its own then.
            parts = q.nodes if q.traits.pair else 2
            apart = _between_domains(q, most, parts) if known else []
            return [*(apart if nics and _least(apart) > _least(inside) else inside), *near]
    return [*_between_domains(q, most, -(-q.nodes // most)), *near] if known else []


def _least(found: Iterable[Limit]) -> float:
    """Return the least bound; infinite where there is none."""
    return min((goodput(one) for one in found if one.kind == "upper bound" and one.without is None), default=math.inf)


def _nodes_of_domain(q: Query) -> int:
    stated = q.system.network.value("nodes_per_domain") if q.system.network is not None else None
    return max(1, math.floor(stated or 1))


def _domain(q: Query, count: int, parts: int = 1) -> Query:
    """Return the same case on `parts` domains of so many nodes, each of them one node of it."""
    devices = ordinals_of_domain(q.system, q.devices, count)
    return dataclasses.replace(q, system=domain_of(q.system, count), devices=devices, nodes=parts)


def _in_domain(q: Query) -> list[Limit]:
    """Return the limits of a collective whose nodes may all be in one domain: those of its links."""
    there = _domain(q, q.nodes)
    staged = there.mechanism.through_host
    if not q.traits.collective or q.on_host or (there.scope == HOST and not staged):
        return []
    return collective(there)


def _pairs_in_domain(q: Query) -> list[Limit]:
    """Return what pairs of devices on two nodes of a domain can exchange, all at once."""
    two = _domain(q, 2)
    if two.scope == HOST:  # from host memory, or past it: whatever leads from one node to the other
        graph = two.graph(MACHINE)
        ends = [[f"{name}@{node}" for name in (*q.names, *(host.name for host in q.system.hosts))] for node in (0, 1)]
        known = [[name for name in names if name in graph.vertices] for names in ends]
        flow = cuts.max_flow_between(graph, *known).value if all(known) else None
        return [] if flow is None else [limit("max_flow", flow, "over the machine links of a domain")]
    names = [two.system.names_by_ordinal[ordinal] for ordinal in two.devices]
    pairs = list(zip(names[: q.ranks], names[q.ranks :], strict=True))
    if q.traits.both_ways:
        pairs += [(b, a) for a, b in pairs]
    demands = {pair: float(count) for pair, count in Counter(pairs).items()}
    result = []
    for scope, kind in two.scopes.items():
        rate = flows.concurrent(two.graph(scope), demands)
        if rate is not None and finite(value := rate.bound if kind == "upper bound" else rate.reached):
            words = f"over the {scope} links of a domain, {show_rate(value)} for each pair"
            result.append(limit("concurrent_flow", value * q.ranks, words, kind=kind))
    return result


def _nearest_of_ends(q: Query) -> list[Limit]:
    if not q.traits.pair and not q.traits.to_next:
        return []
    first, last = q.system.names_by_ordinal[q.devices[0]], q.system.names_by_ordinal[q.devices[-1]]
    near = _nearest(q, q.graph(MACHINE), first, last)
    return [] if near is None else [limit("nic_nearest", *near)]


def _between_domains(q: Query, most: int, parts: int) -> list[Limit]:
    """Return the limits of nodes in so many domains or more: of what must leave the smallest one, and of wires."""
    size = q.nodes // parts
    there = _domain(q, size, parts) if most > 1 else q
    where = "node" if most == 1 else _domain_words(size)
    doors = _Doors(there, where)
    g, names, n = there.ranks, there.names, q.nodes * q.ranks
    every = min(doors.out(names), doors.into(names))
    result: list[Limit] = []

    def slowest(way: Callable[[Iterable[str]], float]) -> float:
        return min(way([name]) for name in names)

    def bundle(rate: float, factor: float = 1.0, words: str = "", of: _Doors = doors) -> None:
        result.append(limit("nic_bundle", rate * factor, f"{of.held(rate)}{words}"))

    if q.traits.pair or q.traits.to_next:
        first, last = (there.system.names_by_ordinal[there.devices[end]] for end in (0, -1))
        bundle(min(doors.out([last]), doors.into([first])) if q.traits.to_next else every)
    elif q.traits.to_each:
        result.append(limit("nic_share_asymptotic", doors.ports / g, f"{doors.words} for {g} devices"))
        leaving = (n - g) / (n - 1)
        # Each rank sends as much as each other, so the one that can send least counts for all.
        least = min(min(doors.out([v]), doors.into([v])) / weight for v, weight in there.weights.items())
        bundle(min(every, least * g), 1 / (g * leaving), f"; {percent(leaving, 1)} of the traffic leaves the {where}")
        result.extend(network(q, n, most))
    elif q.pattern == "allreduce":
        bundle(min(slowest(doors.out), slowest(doors.into)), 1.0, f"; every byte must leave and enter a {where} once")
        # Hosts and switches may add and repeat, so that only what lies between them and the network counts.
        may = {*names, *(host.name for host in there.system.hosts), *doors.graph.multicast, *doors.graph.reduction}
        may &= {*names, *doors.graph.vertices}
        widest = min(doors.out(may), doors.into(may))
        between = q.nodes * widest / size / (2 * (parts - 1))
        basis = f"{doors.held(widest)}, {q.nodes} nodes{'' if most == 1 else f' in {parts} domains or more'}"
        result.append(limit("allreduce_node_bytes", between, basis))
        inside = _inside(there) if parts * size == q.nodes else None
        if inside is not None:
            result.extend(_hierarchical(there, doors.graph, inside, between))
    elif q.traits.block_of_each:
        all_of, own = (doors.out, doors.into) if q.traits.reduces else (doors.into, doors.out)
        words = f"; {percent(1 - g / n, 1)} of the blocks come from outside"
        bundle(min(slowest(all_of) / (1 - g / n), own(names) * n / g), 1.0, words)
    elif q.traits.rooted and q.traits.one_buffer:
        of_root, others = (doors.out, doors.into) if q.traits.root == "sends" else (doors.into, doors.out)
        bundle(min(of_root([there.root_name]), slowest(others)))
    elif q.traits.rooted:
        # The root's own domain may be the largest.
        own_nodes = min(most, q.nodes - 1)
        root = _domain(q, own_nodes, parts) if most > 1 else q
        wide = doors if own_nodes == size else _Doors(root, _domain_words(own_nodes))
        rate = wide.out([root.root_name]) if q.traits.root == "sends" else wide.into([root.root_name])
        whole = n - 1 if q.traits.per_peer else n
        bundle(rate, whole / (n - root.ranks), f" of the root's {'node' if most == 1 else 'domain'}", wide)
    return [*result, *_by_wires(there, doors.graph, n)] if most > 1 else result


def _domain_words(nodes: int) -> str:
    return f"domain of {nodes} node{'' if nodes == 1 else 's'}"


def _by_wires(q: Query, graph: Wires, n: int) -> list[Limit]:
    """Return what each device's own links allow, of n ranks of which `q` has those of a domain."""
    if {q.source_memory, q.target_memory} != {"device"}:
        return []
    ports = {name: min(graph.out_rate(name), graph.in_rate(name)) for name in q.names if name in graph.vertices}
    if len(ports) < len(q.names) or not all(map(math.isfinite, ports.values())):
        return []
    away = {name: n - weight for name, weight in q.weights.items()}

    def least_of(rule: str, rates: Mapping[str, float], shares: Mapping[str, float]) -> list[Limit]:
        least = min(shares, key=lambda name: shares[name])
        return [limit(rule, shares[least], f"links of {least}: {show_rate(rates[least])}")]

    if q.traits.to_each:
        return least_of("injection", ports, {v: ports[v] * (n - 1) / (away[v] * q.weights[v]) for v in ports})
    if q.traits.rooted and not q.traits.one_buffer:
        rate = (graph.out_rate if q.traits.root == "sends" else graph.in_rate)(q.root_name)
        whole = n - 1 if q.traits.per_peer else n
        return least_of("scatter_cut", {q.root_name: rate}, {q.root_name: rate * whole / away[q.root_name]})
    if q.traits.block_of_each:
        rates = {name: graph.out_rate(name) if q.traits.reduces else graph.in_rate(name) for name in ports}
        return least_of("tree_packing", rates, {name: rate * n / away[name] for name, rate in rates.items()})
    if q.pattern == "allreduce":
        devices = len(ports) * n // q.ranks
        whole_rate = sum(graph.out_rate(name) for name in ports) * n / q.ranks
        words = f"{show_rate(whole_rate)} leave all devices"
        return bytes_bound(q, graph, whole_rate / (2 * (devices - 1)), words)
    return []


def _hierarchical(q: Query, graph: Wires, inside: float, between: float) -> list[Limit]:
    """Return what a hierarchical allreduce reaches: what is inside at most, and less where both share links."""
    arcs = frozenset(q.graph().arcs)
    if not arcs <= set(graph.arcs) or graph.network not in graph.vertices:
        return []
    try:
        reached = flows.hierarchical(graph, q.weights, arcs, 2 * (q.nodes - 1) / q.nodes)
    except TooLargeError:
        return []
    if not finite(reached):
        return []
    basis = f"inside {show_rate(inside)}, between nodes {show_rate(between)}"
    if reached < min(inside, between) * (1 - 1e-6):
        basis += f", both at once over the links that they share {show_rate(reached)}"
    return [limit("allreduce_hierarchical", min(inside, between, reached), basis)]


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
    inside = dict(Counter(p for p in itertools.pairwise(q.rank_names) if p[0] != p[1])) if ring else {}
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
