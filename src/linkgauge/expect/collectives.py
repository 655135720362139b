"""Limits of patterns in which all ranks of a node take part."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

from linkgauge.expect import cuts, flows, paths, rings
from linkgauge.expect.graph import FABRIC, HOST, MACHINE, NODE, Wires
from linkgauge.expect.limit import Limit, limit
from linkgauge.expect.linear_program import TooLargeError
from linkgauge.expect.points import beyond_cache, finite, serial
from linkgauge.expect.query import Query, show
from linkgauge.model.quantity import percent
from linkgauge.model.rank_bytes import sent_and_received
from linkgauge.system.units import show_rate

IN_NETWORK, MULTICAST = "in-network reduction", "multicast"
_ALONE = "repeated by devices alone"
# By version of NVLink, of 5 to 8 devices and messages of a GiB and more (rule allreduce_nvls_typical).
_NVLS_TYPICAL = {"4": 0.68, "5": 0.60}
_NVLS_MOST, _NVLS_LEAST_BYTES = 8, 1 << 30
_NEVER_REACHED = ("injection", "allreduce_cut", "allreduce_bytes")


def collective(q: Query) -> list[Limit]:
    """Return the limits of a collective on one node."""
    result: list[Limit] = []
    if len(q.names) > 1:
        if q.mechanism.through_host:
            result.extend(staging(q, q.graph(HOST)))
        else:
            for scope, kind in q.scopes.items():
                result.extend(link_bounds(q, q.graph(scope), kind))
            result.extend(_constructive(q))
    result.extend(_memory(q))
    return result


def link_bounds(q: Query, graph: Wires, kind: str) -> list[Limit]:
    """Return what the links of a graph allow at best; `kind` says whether that binds this case's transport."""
    if not set(q.names) <= set(graph.vertices):
        return []
    where = f"over the {graph.scope} links"
    n, weights, names = q.ranks, q.weights, q.names
    result: list[Limit] = []

    def add(rule: str, value: float | None, basis: str) -> None:
        # Some bounds are reached by a schedule over these links and so are constructive where they do not bind.
        if value is not None and finite(value) and (kind == "upper bound" or rule not in _NEVER_REACHED):
            # Where no transport is named, switches that can may repeat what these trees have devices repeat.
            unless = MULTICAST if _ALONE in basis and q.transport is None and _may_use_network(q, graph) else None
            found = limit(rule, value, f"without {unless}, {basis}" if unless else basis, kind=kind)
            result.append(dataclasses.replace(found, without=unless))

    if q.traits.link_ways == "both" or q.traits.side_by_side_of:
        # A round trip of pairs_pingpong holds one message each way, of which each pair has one under way at a time.
        factor = _payload(q)
        flow = flows.alltoall(graph, weights) if q.traits.to_each else flows.concurrent(graph, _demands(q))
        if flow is not None:
            rate = flow.bound if kind == "upper bound" else flow.reached
            each = "each way for each pair" if q.traits.half_round_trip else "for each pair"
            if q.traits.distributed:
                each = f"for a {q.traits.size_means}"
            words = f"; {flow.words if kind == 'upper bound' else 'even shares over the paths of fewest hops'}"
            add("concurrent_flow", rate * factor, f"{where}, {show_rate(rate)} {each}{words if flow.words else ''}")
    if q.traits.side_by_side_of and q.traits.half_round_trip:
        add("max_flow", *_slowest_pair(q, graph))
    if q.traits.to_each:
        ports = {name: min(graph.out_rate(name), graph.in_rate(name)) for name in names}
        # A port carries what its ranks exchange with other devices: w (n - w) messages.
        shares = {name: rate * (n - 1) / (weights[name] * (n - weights[name])) for name, rate in ports.items()}
        least = min(shares, key=lambda name: shares[name])
        add("injection", shares[least], f"ports of {least}: {show_rate(ports[least])}")
    if q.traits.block_of_each:
        turned = graph.reversed() if q.traits.reduces else graph
        value, words = gathered(q, turned, None if kind != "upper bound" else _repeaters(q, turned))
        add("tree_packing", value, f"{where}; {words}")
    if q.traits.rooted and q.traits.one_buffer:
        turned = graph if q.traits.root == "sends" else graph.reversed()
        cut = cuts.broadcast(turned, q.root_name, names)
        weight = {name: int(name == q.root_name) for name in names}
        value, words = _packed(turned, cut, weight, None if kind != "upper bound" else _repeaters(q, turned))
        add("rooted_cut", value, f"{where}; {words}")
    elif q.traits.rooted:  # each other rank has bytes of its own
        outward = q.traits.root == "sends"
        cut = cuts.scatter(graph if outward else graph.reversed(), q.root_name, weights)
        factor = n - 1 if q.traits.per_peer else n
        value = None if cut.value is None else factor * cut.value
        add("scatter_cut", value, f"{where}; cut at {show(cut.side)}")
    if q.pattern == "allreduce":
        # A node without other links has the fabric's graph again: seconds of a thousand devices' cuts.
        cut = cuts.smallest_pair_cut(q.graph() if graph.arcs == q.graph().arcs else graph, names)
        add("allreduce_cut", cut.value, f"{where}; cut at {show(cut.side)}")
        total = sum(graph.out_rate(name) for name in names)
        words = f"{where}: {show_rate(total)} leave the devices in all"
        if kind == "upper bound":
            result.extend(bytes_bound(q, graph, _sent_in_all(graph, names), words))
    return result


def bytes_bound(q: Query, graph: Wires, value: float, words: str) -> list[Limit]:
    """Return the bound of all bytes that an allreduce's devices must send, where these alone repeat and add.

    Where no transport is named and switches can, it says that it holds without them.
    """
    unless = IN_NETWORK if q.transport is None and _may_use_network(q, graph) else None
    others_add = _may_use_network(q, graph) or _hosts_take_part(q, graph)
    if not finite(value) or (others_add and not unless):
        return []
    found = limit("allreduce_bytes", value, f"without {unless}, {words}" if unless else words, kind="upper bound")
    return [dataclasses.replace(found, without=unless)]


def _sent_in_all(graph: Wires, names: Sequence[str]) -> float:
    """Return the rate of an allreduce at which these devices send all that they can, 2 (n - 1) m bytes."""
    return sum(graph.out_rate(name) for name in names) / (2 * (len(names) - 1))


def _demands(q: Query) -> dict[tuple[str, str], float]:
    """Return who sends to whom at the same time, and how many messages; an alltoall's is `flows.alltoall`."""
    ranks = q.rank_names
    demands: dict[tuple[str, str], float] = {}
    if q.traits.distributed:
        for (sender, receiver), moved in q.messages.items():
            pair = ranks[sender], ranks[receiver]
            if pair[0] != pair[1]:
                demands[pair] = demands.get(pair, 0.0) + moved / q.message_bytes
        return demands
    # The pair of a bidirectional case is a ring of two.
    flows_of_ranks = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))
    if q.traits.side_by_side_of:
        flows_of_ranks = list(zip(ranks[::2], ranks[1::2], strict=True))
        if q.pattern != "pairs_unidirectional":
            flows_of_ranks += [(b, a) for a, b in flows_of_ranks]
    for source, target in flows_of_ranks:
        if source != target:
            demands[source, target] = demands.get((source, target), 0.0) + 1.0
    return demands


def _slowest_pair(q: Query, graph: Wires) -> tuple[float | None, str]:
    """Return the least ping-pong rate of any pair that has the links to itself, and where it is cut."""
    found: list[tuple[float, str]] = []
    like, wanted = flows.of_demands(graph, _demands(q))
    for flow in like.flows:
        a, b = graph.vertices[flow.end], graph.vertices[int(wanted[flow.number].argmax())]
        there, back = cuts.max_flow(graph, a, b), cuts.max_flow(graph, b, a)
        mean = serial(there.value, back.value)
        if mean is not None:
            found.append((2 * mean, f"over the {graph.scope} links, {a} with {b} alone; cut at {show(there.side)}"))
    return min(found, default=(None, ""))


def gathered(q: Query, graph: Wires, repeaters: frozenset[str] | None = None) -> tuple[float | None, str]:
    """Return the goodput of an allgather over a graph in bytes per second, and what sets it.

    (Of a reduce_scatter over the graph turned round.) It is reached, but where `repeaters` are given: then it is a
    bound of what is done where these repeat data as well.
    """
    value, words = _packed(graph, cuts.gather_all(graph, q.weights), q.weights, repeaters)
    return None if value is None else q.ranks * value, words


def _packed(
    graph: Wires, cut: cuts.Cut, weights: Mapping[str, int], repeaters: frozenset[str] | None
) -> tuple[float | None, str]:
    """Return the rate of packed trees: the cut's where all between the ends is balanced, else a program's.

    Where that is too large the cut's, which bounds; and nothing where it must be reached, as it is without `repeaters`.
    """
    words = f"cut at {show(cut.side)}"
    if not graph.balanced(tuple(weights)):
        try:
            packed = flows.packed_trees(graph, weights, repeaters=repeaters or frozenset())
        except TooLargeError as error:
            return (None, "") if repeaters is None else (cut.value, f"{words} alone ({error} is not solved)")
        if packed is not None and (cut.value is None or packed < cut.value * (1 - 1e-9)):
            return packed, "trees packed" if repeaters else f"trees packed, {_ALONE}"
    return cut.value, words


def _repeaters(q: Query, graph: Wires) -> frozenset[str]:
    """Return the vertices beside the ends that may repeat data for this case: switches that can, and hosts."""
    able = graph.multicast if q.transport and _may_use_network(q, graph) else frozenset()
    kinds = {node.name: node.kind for node in q.system.nodes}
    if _hosts_take_part(q, graph):
        able |= {vertex for vertex in graph.vertices if kinds.get(vertex) == "host"}
    if graph.scope not in (FABRIC, NODE, HOST, MACHINE):
        # The memory that joins host devices where what a run measured is all that is known.
        able |= {vertex for vertex in graph.vertices if vertex not in kinds}
    return able


def _may_use_network(q: Query, graph: Wires) -> bool:
    """Whether switches may repeat and add for this case: they can, and the library, or one not named, may ask them."""
    able = bool(graph.multicast or graph.reduction)
    ring_or_tree = any(word in q.algorithm.lower() for word in ("ring", "tree")) and "nvls" not in q.algorithm.lower()
    return able and (q.transport is None or q.mechanism.collects(q.variant)) and not ring_or_tree


def _hosts_take_part(q: Query, graph: Wires) -> bool:
    """Whether the hosts' processors may add and repeat for this case."""
    return graph.scope != FABRIC and q.transport in ("ccl", "mpi", "staging")


def _constructive(q: Query) -> list[Limit]:
    graph = q.graph()
    if any(math.isinf(rate) for rate in graph.arcs.values()) or not set(q.names) <= set(graph.vertices):
        return []
    if q.traits.to_each:
        return _forwarding(q, graph)
    if q.pattern not in ("allreduce", "allgather", "reduce_scatter"):
        return []
    result: list[Limit] = []
    names = q.names
    half = 2 if q.pattern == "allreduce" else 1
    plain = f"without {IN_NETWORK}, " if q.pattern == "allreduce" and _may_use_network(q, graph) else ""
    if q.pattern == "allreduce":
        after, before = (gathered(q, turned)[0] for turned in (graph, graph.reversed()))
        phases = serial(before, after)
        words = f"{plain}reduce_scatter {show_rate(before)}, then allgather {show_rate(after)}"
        trees, what = phases, f"{plain}trees packed over the {graph.scope} links"
        # Both phases are trees, and where they send no more bytes than any schedule must, no others are better.
        if phases is None or phases < _sent_in_all(graph, names) * (1 - 1e-12):
            try:
                trees = flows.allreduce_trees(graph, names)
            except TooLargeError as error:
                what = f"{words}: trees, if not the best ({error} is not solved)"
        if finite(trees):
            result.append(limit("allreduce_trees", trees, what))
        if _may_use_network(q, graph):
            what = f"{show(sorted(graph.multicast))} repeat and add"
            with contextlib.suppress(TooLargeError):
                trees = flows.allreduce_trees(graph, names, in_network=True)
                result.append(limit("allreduce_in_network", trees, what))
            result.extend(_nvls(q, graph))
        if phases is not None:
            result.append(limit("reduce_scatter_allgather", phases, words))
    k = len(names)
    units = _direct(q, graph)
    listed = rings.cycles(graph, names) if units is not None and k <= rings.MOST_DEVICES else []
    if units is not None and listed:
        links, rate = units
        count = rings.most_disjoint(tuple(links.items()), tuple(listed))
        cycles = f"{len(listed)} Hamiltonian cycle{'' if len(listed) == 1 else 's'}"
        words = f"{count} directed ring{'' if count == 1 else 's'} of {show_rate(rate)} ({cycles})"
        result.append(limit("rings", count * rate * k / (k - 1) / half, words))
        if q.pattern == "allreduce" and not _full_mesh(graph, q):
            result.append(limit("sc24_rings", count * rate / 2, words))
    else:
        demands = dict.fromkeys(zip(names, (*names[1:], names[0]), strict=True), 1.0)
        ring = flows.concurrent(graph, demands)
        if ring is not None and finite(ring.reached):
            words = f"the ring of the ranks at {show_rate(ring.reached)} a step"
            result.append(limit("ring_in_order", ring.reached * k / (k - 1) / half, words))
    if q.pattern == "allreduce" and _full_mesh(graph, q):
        sent = min(graph.out_rate(name) for name in names)
        result.append(limit("sc24_direct_trees", sent, "every device to every other directly"))
    return result


def _nvls(q: Query, graph: Wires) -> list[Limit]:
    """Return what NVLink SHARP allows an allreduce whose devices are joined by its switches alone, and what is usual.

    A sum goes back to the device that asks for it, which then writes it to all: not from the switch to all at once, as
    `allreduce_in_network` supposes.
    """
    able = graph.multicast & graph.reduction
    if len(q.names) != q.ranks or any((tail in q.names) and head not in able for tail, head in graph.arcs):
        return []
    n, port = q.ranks, min(min(graph.out_rate(name), graph.in_rate(name)) for name in q.names)
    value = port * n / (n + 1)
    words = f"{show_rate(port)} of a port for m (1 + 1/{n}) bytes each way"
    result = [limit("allreduce_nvls", value, words)]
    versions = {link.version for name in q.names for link in q.system.links_of(name) if link.kind == "nvlink"}
    share = _NVLS_TYPICAL.get(next(iter(versions)) or "") if len(versions) == 1 else None
    if share is not None and 2 < n <= _NVLS_MOST and (q.size_bytes or _NVLS_LEAST_BYTES) >= _NVLS_LEAST_BYTES:
        result.append(limit("allreduce_nvls_typical", value * share, f"{percent(share)} of allreduce_nvls"))
    return result


def _direct(q: Query, graph: Wires) -> tuple[dict[tuple[str, str], int], float] | None:
    """Return the devices' direct links by number and rate, where all their links are direct and of one rate."""
    if any(vertex not in graph.devices.values() for vertex in graph.vertices):
        return None
    if not any(arc[0] in q.names and arc[1] in q.names for arc in graph.arcs):
        return None
    return rings.unit_links(graph, q.names)


def _full_mesh(graph: Wires, q: Query) -> bool:
    """Whether every two devices of the system are joined directly, and all of them take part."""
    return len(q.names) == len(graph.devices) and all((a, b) in graph.arcs for a in q.names for b in q.names if a != b)


def _forwarding(q: Query, graph: Wires) -> list[Limit]:
    place = {vertex: i for i, vertex in enumerate(graph.vertices)}
    found = paths.even_loads(graph, [place[name] for name in q.names], paths.exchanged(graph, q.weights))
    if found is None:
        return []
    loads = dict(zip(graph.arcs, found.tolist(), strict=True))
    rate, worst = min((graph.arcs[arc] / load, arc) for arc, load in loads.items() if load > 0)
    words = f"{' - '.join(worst)} carries {loads[worst]:.3g} shares of {show_rate(graph.arcs[worst])}"
    result = [limit("forwarding_index", rate * (q.ranks - 1), words)]
    if _direct(q, graph) is not None and len(q.names) == q.ranks == len(graph.devices):
        count = {name: sum(c for (tail, _), c in graph.links.items() if tail == name) for name in q.names}
        factor = min(min(count.values()), q.ranks - 1)
        result.append(limit("sc24_forwarding_index", rate * factor, f"{words}; times {factor} links"))
    return result


def _memory(q: Query) -> list[Limit]:
    """Return the bound that memories set: payload is read once at its source, written at its end.

    Host devices of one host share its memory, so what all of them must move counts there.
    """
    n = q.ranks
    memories = {name: q.memory_of(name) for name in q.names}
    share = 1.0 / n if q.traits.block_of_each else 1.0
    if q.on_host or not beyond_cache(q, [memory.name for memory in memories.values()], share):
        return []
    # Goodput counts (n - 1) m for these patterns and m for the rest.
    payload = n - 1.0 if q.traits.per_peer else 1.0
    traffic: dict[str, float] = {}
    usual, root = q.traits.legs(n) if q.traits.legs is not None else ((0, 0), None)
    if root is not None and not q.traits.one_buffer:
        traffic[memories[q.root_name].name] = sum(root) / n
    elif sum(usual):
        for name, weight in q.weights.items():
            # Ranks on one device may share what they read, so only what each writes by itself is surely there.
            counted = 1 if weight > 1 and q.pattern in ("broadcast", "allgather", "reduce") else weight
            memory = memories[name].name
            traffic[memory] = traffic.get(memory, 0.0) + sum(usual) / n * counted
    rates = {memory.name: memory.memory_rate.value for memory in memories.values() if memory.memory_rate is not None}
    limits = {name: rates[name] * payload / moved for name, moved in traffic.items() if name in rates and moved}
    if not limits:
        return []
    name = min(limits, key=lambda key: limits[key])
    return [limit("memory", limits[name], f"memory of {name}: {show_rate(rates[name])}, reads and writes together")]


def _payload(q: Query) -> float:
    """Return what goodput counts of one operation, in m."""
    return float(q.traits.payload_bytes(q.message_bytes, q.ranks, 1, q.distribution) / q.message_bytes)


def _legs(q: Query, rank: int) -> tuple[int, int]:
    """Return what leaves and enters a rank's buffers in one operation: bytes of distributed patterns, else in m / n."""
    if q.traits.legs is None:
        sent, received = sent_and_received(q.pattern, q.ranks, q.message_bytes, q.distribution)
        return sent[rank], received[rank]
    usual, root = q.traits.legs(q.ranks)
    return root if root is not None and rank == q.root else usual


def staging(q: Query, graph: Wires) -> list[Limit]:
    """Return the limits of staging over host links: every rank's buffer to a host, the exchange there, and back."""
    hosts = [host.name for host in q.system.hosts if host.name in graph.vertices]
    if not hosts or not set(q.names) <= set(graph.vertices) or (q.traits.legs is None and not q.traits.distributed):
        return []
    out: dict[str, int] = {}
    into: dict[str, int] = {}
    for rank, name in enumerate(q.rank_names):
        leaving, entering = _legs(q, rank)
        out[name] = out.get(name, 0) + leaving
        into[name] = into.get(name, 0) + entering
    legs = [
        cuts.fill(turned, hosts, {name: weight for name, weight in weights.items() if weight}).value
        for turned, weights in ((graph.reversed(), out), (graph, into))
    ]
    # A leg's x moves m / n (or a byte) of every weight each second: n x (or m x) of m, of which goodput counts some.
    whole = q.message_bytes if q.traits.legs is None else q.ranks
    rates = [None if x is None else x * whole * _payload(q) for x in legs]
    known = [rate for rate in rates if rate is not None and finite(rate)]
    if not known:
        return []
    words = f"device to host alone {show_rate(rates[0])}, host to device alone {show_rate(rates[1])}"
    result = [limit("staging_pipelined", min(known), words)]
    both = serial(*rates)
    if both is not None:
        result.append(limit("staging_legs", both, words))
    return result
