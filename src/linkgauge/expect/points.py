"""Limits between two memories, inside one device, and between hosts and devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from linkgauge.expect import cuts, paths
from linkgauge.expect.graph import FABRIC, HOST, Wires
from linkgauge.expect.limit import Limit, limit
from linkgauge.expect.query import HOST_MEMORY, Query, hosts_for, show
from linkgauge.model.patterns import REPEATED
from linkgauge.system.graph import Path
from linkgauge.system.units import show_rate


def finite(value: float | None) -> bool:
    """Return whether a value is known and above 0."""
    return value is not None and math.isfinite(value) and value > 0


def serial(*rates: float | None) -> float | None:
    """Return the rate of legs one after the other; None where one is unknown."""
    if not all(finite(rate) for rate in rates):
        return None
    return 1.0 / sum(1.0 / rate for rate in rates if rate is not None)


def round_trip(there: float | None, back: float | None) -> float | None:
    """Return the goodput of a ping-pong, m over half of its round trip: the harmonic mean of both ways' rates."""
    both = serial(there, back)
    return None if both is None else 2 * both


def point_to_point(q: Query) -> list[Limit]:
    """Return the limits of pingpong and unidirectional, and of one direction of bidirectional taken alone."""
    if q.mechanism.through_host and not q.on_host:
        return staging_point_to_point(q, q.graph(HOST))
    sources = _ends(q, 0, q.source_memory, q.source_node)
    targets = _ends(q, 1, q.target_memory, q.target_node)
    if not sources or not targets:
        return []
    result: list[Limit] = []
    if set(sources) & set(targets):
        # Both ends lie in one memory: nothing but that memory limits them.
        return []
    for scope, kind in q.scopes.items():
        best = _best_flow(q.graph(scope), sources, targets)
        if q.traits.half_round_trip and best is not None:
            back = _best_flow(q.graph(scope), targets, sources)
            best = cuts.Cut(round_trip(best.value, back.value if back is not None else None), best.side)
        if best is not None and finite(best.value):
            basis = f"over the {scope} links; cut at {show(best.side)}"
            result.append(limit("max_flow", best.value, basis, kind=kind))
    if q.via >= 0:
        return result  # that way is the relay's; these paths are others
    there_and_back = q.traits.half_round_trip
    result.extend(_paths(q.graph(), sources, targets, there_and_back))
    if q.scope == FABRIC and not q.graph().joined(q.devices, by_hardware=True):
        # No hardware passes traffic on over the fabric here: without a program that does, copies go by the host links.
        result.extend(_paths(q.graph(HOST), sources, targets, there_and_back))
    return result


def _paths(graph: Wires, sources: Sequence[str], targets: Sequence[str], there_and_back: bool) -> list[Limit]:
    result = []
    for rule, find in (("widest_path", paths.widest), ("shortest_path", paths.shortest)):
        path = _best_path(graph, sources, targets, find)
        if path is None:
            continue
        rate: float | None = paths.rate_of(graph, path)
        count = paths.length(graph, path)
        words = f"{paths.shown(graph, path)} ({'1 hop' if count == 1 else f'{count} hops'})"
        if there_and_back:
            back = _best_path(graph, targets, sources, find)
            rate_back = None if back is None else paths.rate_of(graph, back)
            if back is not None and (back != path[::-1] or rate_back != rate):
                words += f" at {show_rate(rate)}, back {paths.shown(graph, back)} at {show_rate(rate_back)}"
            rate = round_trip(rate, rate_back)
        if rate is not None and finite(rate):
            result.append(limit(rule, rate, words))
    return result


def _best_path(
    graph: Wires,
    sources: Sequence[str],
    targets: Sequence[str],
    find: Callable[[Wires, str, str], Path | None],
) -> Path | None:
    """Return the path of the largest rate over the places where the memories may be."""
    known = set(graph.vertices)
    ends = [(s, t) for s in sources for t in targets if s in known and t in known]
    found = [path for s, t in ends if (path := find(graph, s, t)) is not None]
    return max(found, key=lambda path: paths.rate_of(graph, path), default=None)


def _best_flow(graph: Wires, sources: Sequence[str], targets: Sequence[str]) -> cuts.Cut | None:
    """Return the largest max flow over the places where the memories may be."""
    known = set(graph.vertices)
    found = [cuts.max_flow(graph, s, t) for s in sources for t in targets if s in known and t in known]
    if not found or any(cut.value is None for cut in found):
        return None
    return max(found, key=lambda cut: cut.value or 0.0)


def _ends(q: Query, rank: int, memory: str, node: int) -> tuple[str, ...]:
    """Return the vertices where a rank's buffer may lie; managed memory may be on either side."""
    device = q.rank_names[min(rank, q.ranks - 1)]
    if memory in HOST_MEMORY:
        return hosts_for(q.system, device, node)
    if memory == "managed":
        return (device, *hosts_for(q.system, device, node))
    return (device,)


def staging_point_to_point(q: Query, graph: Wires) -> list[Limit]:
    """Return the limits of a copy by way of host memory, over host links."""
    hosts = [host.name for host in q.system.hosts if host.name in graph.vertices]
    if not hosts:
        return []
    ends = (q.names[0], q.source_memory), (q.names[-1], q.target_memory)
    there = _staged(q, graph, hosts, *ends)
    if not q.traits.half_round_trip:
        return list(there.values())
    back = _staged(q, graph, hosts, *reversed(ends))
    result = []
    for rule, way in there.items():
        other = back.get(rule)
        if other is None:
            continue
        value = round_trip(way.value_bytes_per_s, other.value_bytes_per_s)
        basis = way.basis
        if not math.isclose(way.value_bytes_per_s or 0.0, other.value_bytes_per_s or 0.0):
            shown = show_rate(way.value_bytes_per_s), show_rate(other.value_bytes_per_s)
            basis = f"{shown[0]} there ({basis}), {shown[1]} back ({other.basis})"
        result.append(dataclasses.replace(way, value_bytes_per_s=value, basis=basis))
    return result


def _staged(
    q: Query, graph: Wires, hosts: Sequence[str], start: tuple[str, str], end: tuple[str, str]
) -> dict[str, Limit]:
    """Return what each rule of staging allows one way, between two devices with the kinds of memory of their ends."""
    (source, source_memory), (target, target_memory) = start, end
    out = cuts.max_flow_between(graph, [source], hosts).value if source_memory == "device" else None
    back = cuts.max_flow_between(graph, hosts, [target]).value if target_memory == "device" else None
    across = cuts.max_flow(graph, source, target).value if source != target else None
    result: dict[str, Limit] = {}

    def add(rule: str, value: float | None, basis: str, source: str | None = None) -> None:
        if value is not None:
            result[rule] = limit(rule, value, basis, source=source)

    legs = {"device to host": out, "host to device": back, "whole way": across}
    known = {name: rate for name, rate in legs.items() if rate is not None and finite(rate)}
    basis = ", ".join(f"{name} {show_rate(rate)}" for name, rate in known.items())
    add("staging_pipelined", min(known.values(), default=None), basis)
    add("staging_legs", serial(out, back), f"{show_rate(out)} out, {show_rate(back)} back")
    near = hosts_for(q.system, source, -1)
    copy = q.system.node(near[0]).copy_rate if near else None
    if copy is not None:
        words = f"{show_rate(out)} out, host copy {show_rate(copy.value)}"
        add("staging_two_legs", serial(out, copy.value), words, copy.source)
        add("staging_three_legs", serial(out, copy.value, back), f"{words}, {show_rate(back)} back")
    return result


def local(q: Query) -> list[Limit]:
    """Return the limits of copies inside each device: half of the memory rate, summed over devices."""
    memories = [q.memory_of(name) for name in q.names]
    rates = {memory.name: memory.memory_rate for memory in memories}
    if any(rate is None for rate in rates.values()):
        return []
    # local_copy is timed on each device by itself, stream_copy on all together; host devices share one memory.
    if q.pattern == "stream_copy":
        value = sum(rate.value for rate in rates.values() if rate is not None) / 2
    else:
        value = sum(m.memory_rate.value for m in memories if m.memory_rate is not None) / 2 / len(memories)
    return [half_of_memory(q, list(rates), value, f"half of {show_rate(2 * value)} of memory")]


def half_of_memory(q: Query, names: Sequence[str], value: float, basis: str) -> Limit:
    """Return the limit of copies inside a memory: a bound, and within the caches no more than typical."""
    if beyond_cache(q, names):
        return limit("local_copy", value, basis)
    return limit(
        "local_copy", value, f"{basis}; within twice the last-level cache, which may exceed it", kind="typical"
    )


def beyond_cache(q: Query, names: Sequence[str], factor: float = 1.0) -> bool:
    """Return whether memory bounds hold: no size stated, or buffers beyond twice the last-level cache.

    Where the cache's size is unknown, 1 GiB stands for what is surely beyond it.
    """
    if q.size_bytes is None:
        return True
    for name in names:
        cache = q.system.node(name).cache_bytes
        if q.size_bytes * factor <= (2**30 if cache is None else 2 * cache.value):
            return False
    return True


def host_and_devices(q: Query) -> list[Limit]:
    """Return the limits of host_to_device, device_to_host, and host_device_bidirectional (both directions summed)."""
    result = []
    for scope, kind in q.scopes.items():
        result.extend(_from_hosts(q, q.graph(scope), kind))
    hosts = _hosts(q, q.graph(HOST))
    rates = [q.system.node(name).memory_rate for name in hosts]
    known = hosts and all(rate is not None for rate in rates)
    if known and q.variant != REPEATED and beyond_cache(q, hosts):
        total = sum(rate.value for rate in rates if rate is not None)
        result.append(limit("memory", total, f"memory of {show(hosts)}: each byte is read or written there once"))
    return result


def _hosts(q: Query, graph: Wires) -> list[str]:
    """Return where the host memory may lie: the node that the case states, else any host, the weaker and so the
    bound."""
    vertices = set(graph.vertices)
    node = q.source_node if q.source_node >= 0 else q.target_node
    stated = hosts_for(q.system, q.names[0], node) if node >= 0 else tuple(host.name for host in q.system.hosts)
    return [name for name in stated if name in vertices]


def _from_hosts(q: Query, graph: Wires, kind: str) -> list[Limit]:
    hosts = _hosts(q, graph)
    if not hosts or not set(q.names) <= set(graph.vertices):
        return []
    into = cuts.fill(graph, hosts, q.weights)
    out = cuts.fill(graph.reversed(), hosts, q.weights)
    chosen = {
        "host_to_device": (into,),
        "device_to_host": (out,),
        "host_device_bidirectional": (into, out),
    }[q.pattern]
    if not all(finite(cut.value) for cut in chosen):
        return []
    # Each direction carries the same bytes, so the slower one sets the time of both.
    least = min(chosen, key=lambda cut: cut.value or 0.0)
    value = (least.value or 0.0) * q.ranks * len(chosen)
    ranks = "the rank" if q.ranks == 1 else f"each of {q.ranks} ranks"
    basis = f"over the {graph.scope} links, {show_rate(least.value)} for {ranks}; cut at {show(least.side)}"
    return [limit("host_links", value, basis, kind=kind)]
