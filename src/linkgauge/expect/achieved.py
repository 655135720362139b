"""Limits of kind `measured`, by what the lowest-level primitives reached on each port in this run (definitions.md).

The bound's own rule, on a graph of the rates of expect/ports.py, gives the limit of a collective.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.expect.collectives import link_bounds, staging
from linkgauge.expect.graph import FABRIC, HOST, Wires
from linkgauge.expect.latency import of_latency, way
from linkgauge.expect.limit import Limit, goodput, limit
from linkgauge.expect.points import staging_point_to_point
from linkgauge.expect.ports import Load, Ports, between_hosts, cores_of
from linkgauge.expect.query import Query, query
from linkgauge.expect.streams import in_own_memory
from linkgauge.model.device_words import device_words
from linkgauge.model.result import Measured
from linkgauge.model.transports import THROUGH_HOST
from linkgauge.system.model import System
from linkgauge.system.remembered import remembered
from linkgauge.system.units import show_rate

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_MEMORY = "memory"


def achieved_limits(run: Run, system: System) -> Callable[[Mapping[str, Any]], list[Limit]]:
    """Return the function that gives a case on one node, by its devices' ordinals, what the run itself says of it: its
    achievable limits, and what is typical by the bytes that its links counted."""
    from linkgauge.expect.wire_shares import counted_share, wire_shares
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.launches import Places, nodes_of

    known = Places(run.launched)
    ports = Ports()
    for row in counted(run).rows:
        if isinstance(row, Measured) and not row.case.background:  # loads leave it less
            places = known.of_row(row)
            if len(nodes_of(places)) <= 1:
                ports.add(row, [place.device for place in places] or row.devices)
    shares = wire_shares(run)
    return lambda case: [*counted_share(system, case, shares), *from_ports(system, case, ports)]


def from_ports(system: System, case: Mapping[str, Any], ports: Ports) -> list[Limit]:
    """Return the achievable limits of a case: of its goodput by the ports it needs, and of its latency.

    None of groups side by side: what each reached alone says nothing of ports that they share.
    """
    if int(case.get("groups") or 1) > 1:
        return []
    q = query(system, case)
    result = []
    rate = None if q.nodes > 1 else _goodput(q, ports)
    if q.traits.by_cores and cores_of(case) in ports.cores:
        rate = ports.cores[cores_of(case)], "the cores of that node on memory of those nodes"
    if rate is not None:
        result.append(limit("host_copy" if q.on_host or q.traits.by_cores else "port", *rate))
    result.extend(_primitive_latency(q, ports, case))
    latency = _latency(q, ports)
    if latency is not None:
        words = f"half a flag ping-pong on {device_words(sorted(latency[1]), q.noun)}"
        result.append(of_latency("latency", latency[0], words))
    return result


def _goodput(q: Query, ports: Ports) -> tuple[float, str] | None:
    if q.traits.host_ways:
        return _host_links(q, ports)
    if q.traits.by_cores or (q.pattern == "stream_copy" and not in_own_memory(q)):
        return None
    if q.pattern in ("local_copy", "stream_copy"):
        rates = [ports.local.get(device) for device in q.devices]
        if any(rate is None for rate in rates):
            return None
        return sum(rate or 0.0 for rate in rates), "each device's local copy"
    info = q.traits
    if q.on_host:
        # Between host buffers nothing below the transports is measured: the best of them, among the same ranks.
        rate = ports.host_copy.get(between_hosts(q.pattern, q.devices, (q.source_node, q.target_node)))
        return None if rate is None else (rate, f"host memory of ranks on {device_words(q.devices, q.noun)}")
    if info.latency_only or q.source_memory != "device" or q.target_memory != "device":
        return None
    if q.transport in THROUGH_HOST:
        return _staged(q, ports)
    if len(q.names) < 2:
        rate = ports.local.get(q.devices[0]) if q.traits.pair else None
        return None if rate is None else (rate, f"the local copy of {q.noun} {q.devices[0]}")
    if q.traits.one_way:
        return _pair(q, ports)
    graph = measured_graph(q, ports)
    if graph is None:
        return None
    found = [c for c in link_bounds(q, graph, "upper bound") if c.value_bytes_per_s is not None]
    least = min(found, key=goodput, default=None)
    return None if least is None else (goodput(least), f"{least.rule} on the ports as measured")


def _host_links(q: Query, ports: Ports) -> tuple[float, str] | None:
    directions = q.traits.host_ways
    if len(set(q.devices)) < q.ranks:
        return None
    total = 0.0
    for device in q.devices:
        rates = [ports.host.get((direction, device)) for direction in directions]
        if any(rate is None for rate in rates):
            return None
        # Both directions carry the same bytes, so the slower one sets the time of both.
        total += len(rates) * min(rate or 0.0 for rate in rates)
    return total, "each device's host link as measured alone"


def _staged(q: Query, ports: Ports) -> tuple[float, str] | None:
    """Return what staging's slowest leg allows where each device's way to and from its host is as measured alone."""
    graph = q.graph(HOST)
    arcs = dict(graph.arcs)
    ordinals = {name: ordinal for ordinal, name in graph.devices.items()}
    for name in q.names:
        for way_name, ends in (("out", [a for a in arcs if a[0] == name]), ("into", [a for a in arcs if a[1] == name])):
            rate = ports.host.get((way_name, ordinals[name]))
            if rate is None and _in_host_memory(q, name):
                # Host buffers and a host device's own lie in one memory: a copy between devices is such a leg too.
                rate = (ports.out if way_name == "out" else ports.into).get(ordinals[name])
            if rate is None or len(ends) != 1:
                return None
            arcs[ends[0]] = rate
    measured = graph.with_arcs(arcs)
    found = staging_point_to_point(q, measured) if q.traits.one_way else staging(q, measured)
    legs = [c.value_bytes_per_s for c in found if c.rule == "staging_pipelined" and c.value_bytes_per_s]
    return (legs[0], "staging_pipelined on the host links as measured") if legs else None


def _pair(q: Query, ports: Ports) -> tuple[float, str] | None:
    a, b = q.devices[0], q.devices[-1]
    fabric = q.graph(FABRIC)
    devices = set(fabric.devices.values())
    through_switch = any(tail == q.names[0] and head not in devices for tail, head in fabric.arcs)
    through_switch = through_switch and fabric.joined((a, b)) and (q.names[0], q.names[-1]) not in fabric.arcs
    if through_switch and a in ports.out and b in ports.into:
        leaving, entering = ports.out[a], ports.into[b]
        return min(
            leaving, entering
        ), f"out of {q.noun} {a} {show_rate(leaving)}, into {q.noun} {b} {show_rate(entering)}"
    rate = ports.pair.get((a, b))
    return None if rate is None or through_switch else (rate, f"the way from {q.noun} {a} to {q.noun} {b}")


def measured_graph(q: Query, ports: Ports) -> Wires | None:
    """Return the fabric with the ports' measured rates; None where a link of a device that takes part has none.

    Host devices have no fabric: their memory stands for a switch that joins them.
    """
    graph = q.graph(FABRIC)
    if not graph.joined(q.devices):
        if not all(_in_host_memory(q, name) for name in q.names):
            return None
        graph = _star(graph, q.names)
    ordinals = {name: ordinal for ordinal, name in graph.devices.items()}
    arcs = {}
    for (tail, head), rate in graph.arcs.items():
        a, b = ordinals.get(tail), ordinals.get(head)
        seen: float | None = rate
        if a is not None and b is not None:
            seen = ports.pair.get((a, b))
        elif a is not None:
            seen = ports.out.get(a)
        elif b is not None:
            seen = ports.into.get(b)
        if seen is not None:
            arcs[tail, head] = seen
        elif tail in q.names or head in q.names:
            return None
    return _rated(graph, arcs)


# One graph for all cases with these ends and rates: what is asked of it is remembered with it.
@remembered
def _rated(graph: Wires, arcs: Mapping[tuple[str, str], float]) -> Wires:
    return graph.with_arcs(arcs)


@remembered
def _star(graph: Wires, names: Sequence[str]) -> Wires:
    arcs = {arc: math.inf for name in names for arc in ((name, _MEMORY), (_MEMORY, name))}
    return dataclasses.replace(graph, scope=_MEMORY, arcs=arcs, links=dict.fromkeys(arcs, 1))


def _in_host_memory(q: Query, name: str) -> bool:
    return all(link.kind == "memory" for link in q.system.links_of(name))


def _primitive_latency(q: Query, ports: Ports, case: Mapping[str, Any]) -> list[Limit]:
    """Return what this run's own primitives allow a chase, a flag or a floor."""
    if q.pattern == "pointer_chase":
        return _fastest_load(q, ports)
    if q.pattern == "flag_pingpong":
        return _flag_crossing(q, ports)
    if q.pattern == "empty_op":
        asked = q.transport, str(case.get("cadence") or "isolated"), q.clock
        known = {floor.device: ns for floor, ns in ports.empty_op_ns.items() if floor[:3] == asked}
        if known:
            device = min(known, key=lambda key: known[key])
            return [of_latency("fastest_empty_op", known[device], f"{q.noun} {device}")]
    return []


def _fastest_load(q: Query, ports: Ports) -> list[Limit]:
    joined = way(q)
    alike: dict[Load, float] = {}
    for load, ns in ports.load_ns.items():
        if load.memory == q.source_memory and load.size == (q.size_bytes or load.size):
            devices = (load.walker,) if load.walker == load.lender else (load.walker, load.lender)
            if way(dataclasses.replace(q, devices=devices, source_memory=load.memory)) == joined:
                alike[load] = ns
    if not alike:
        return []
    fastest = min(alike, key=lambda key: alike[key])
    return [of_latency("fastest_load", alike[fastest], f"{q.noun} {fastest.walker} through {_lender(fastest, q.noun)}")]


def _lender(load: Load, noun: str) -> str:
    if load.memory != "device":
        return f"{load.memory} memory"
    return "its own memory" if load.walker == load.lender else f"memory of {noun} {load.lender}"


def _flag_crossing(q: Query, ports: Ports) -> list[Limit]:
    """Return one crossing of the link and one look at the flag, both as this run's chases saw them."""
    a, b = q.devices[0], q.devices[-1]
    device = [(load, ns) for load, ns in ports.load_ns.items() if load.memory == "device"]
    own = [ns for load, ns in device if load.walker == load.lender and load.walker in (a, b)]
    if a == b:
        return [of_latency("flag_crossing", min(own), f"a load of {q.noun} {a}'s own memory")] if own else []
    remote = [ns for load, ns in device if {load.walker, load.lender} == {a, b}]
    if not remote:
        return []
    look = min(own, default=0.0)
    words = f"half of a load of {min(remote):.0f} ns on {device_words((a, b), q.noun)}"
    words += f", and a look of {look:.0f} ns" if own else ""
    return [of_latency("flag_crossing", min(remote) / 2 + look, words)]


def _latency(q: Query, ports: Ports) -> tuple[float, frozenset[int]] | None:
    """Return the largest latency among the pairs that must exchange, and that pair; None where one was not measured."""
    devices = list(q.devices)
    if q.nodes > 1 or len(set(devices)) < 2 or q.source_memory != "device" or q.target_memory != "device":
        return None
    info = q.traits
    if info.rooted:
        pairs = {frozenset((devices[q.root], d)) for d in devices if d != devices[q.root]}
    elif q.traits.pair or q.traits.to_next:
        following = [*devices[1:], devices[0]]
        pairs = {frozenset(pair) for pair in zip(devices, following, strict=True) if pair[0] != pair[1]}
    elif q.traits.side_by_side_of:
        pairs = {frozenset(pair) for pair in zip(devices[::2], devices[1::2], strict=True) if pair[0] != pair[1]}
    elif info.collective:
        pairs = {frozenset((a, b)) for a in devices for b in devices if a != b}
    else:
        return None
    if any(pair not in ports.latency_ns for pair in pairs):
        return None
    worst = max(pairs, key=lambda pair: ports.latency_ns[pair])
    return ports.latency_ns[worst], worst
