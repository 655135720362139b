"""All limits of a case: the rules that apply, what papers publish, and what of it stands above a bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.expect.collectives import collective
from linkgauge.expect.graph import FABRIC, Wires
from linkgauge.expect.internode import several_nodes
from linkgauge.expect.latency import latencies
from linkgauge.expect.limit import Limit, goodput, limit
from linkgauge.expect.points import beyond_cache, finite, half_of_memory, host_and_devices, local, point_to_point
from linkgauge.expect.query import HOST_MEMORY, Query, hosts_for, query
from linkgauge.expect.relay import relay, striped
from linkgauge.expect.rules import KINDS, RULES
from linkgauge.expect.streams import streams
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS, STRIPED
from linkgauge.model.quantity import percent
from linkgauge.system.model import Figure, Link, System, is_fabric, most_particular
from linkgauge.system.units import RATE, show_rate

# A TLP of PCIe 3.0 to 5.0 with 64-bit addresses: header 16 B, framing and sequence 4 B, LCRC 4 B.
_TLP_OVERHEAD_BYTES = 24


def limits(system: System, case: Mapping[str, Any]) -> list[Limit]:
    """Return every limit that the rules give a case on a system, largest kinds of certainty first.

    `case` has the names of docs/definitions.md's dimensions: `pattern` (the only one that must be there), `transport`,
    `variant`, `devices` (ordinals, one for each rank; all by default), `size` or `size_bytes`, `root`, `source_memory`,
    `target_memory`, `source_node`, `target_node`, `via`, `path` (`pcie`, `host`: not by the fabric), `algorithm`, and
    `nodes` (several nodes of this kind, `devices` on each), `groups` (equal groups of `devices` side by side: the
    bounds of the group that has the lowest, for each). Values are goodputs as that page counts them for the
    pattern, in bytes per second, or latencies in ns. What no figure of the system supports is left out: missing, never
    0. Raises `UsageError` for an unknown pattern or device.

    >>> from linkgauge.system import load
    >>> for one in limits(load("hgx-h100-8"), {"pattern": "pingpong", "devices": (0, 1)})[:2]:
    ...     print(one.rule, f"{one.value_bytes_per_s / 1e9:.0f} GB/s")
    max_flow 450 GB/s
    memory 3350 GB/s
    """
    if int(case.get("groups") or 1) > 1:
        return _of_groups(system, case, int(case["groups"]))
    q = query(system, case)
    result = _of_links(q)
    if q.via >= 0 and q.nodes == 1 and PATTERNS[q.pattern].routed:
        result.extend(relay(q))
    if q.variant == STRIPED and q.nodes == 1 and PATTERNS[q.pattern].routed:
        result.extend(striped(q))
    result.extend(_caps(q))
    result.extend(_published(q))
    result.extend(_typical(q, result))
    result.extend(latencies(q))
    return _judged(result)


def _of_groups(system: System, case: Mapping[str, Any], groups: int) -> list[Limit]:
    """Return what bounds each of several groups side by side: of every rule the lowest of any group alone.

    The links that groups share are counted for each, so these bounds stand above what can be had there; schedules and
    figures of one group alone are left out, since the others may take their links.
    """
    devices = list(case.get("devices") or range(len(system.devices)))
    size = len(devices) // groups
    if size < 2 or size * groups != len(devices):
        raise UsageError(f"{len(devices)} devices are not {groups} equal groups of 2 or more")
    alone = [{**case, "groups": 1, "devices": devices[first : first + size]} for first in range(0, len(devices), size)]
    found = [one for group in alone for one in limits(system, group)]
    bounds = [one for one in found if one.kind == "upper bound" and one.value_bytes_per_s is not None]
    lowest = [min(alike, key=goodput) for alike in grouped((one.rule, one) for one in bounds).values()]
    words = "each group alone; links that groups share are counted for each"
    return [dataclasses.replace(one, basis=f"{one.basis}; {words}") for one in lowest]


def _of_links(q: Query) -> list[Limit]:
    if PATTERNS[q.pattern].latency_only:
        return []
    if q.nodes > 1:
        return several_nodes(q)
    if q.traits.within_device:
        return local(q)
    if q.pattern in ("stream_copy", "host_stream"):
        return streams(q)
    if PATTERNS[q.pattern].host_ways:
        return host_and_devices(q)
    if PATTERNS[q.pattern].pair:
        return _pair(q)
    if q.on_host:
        return []
    return collective(q)


def _pair(q: Query) -> list[Limit]:
    both = q.traits.ways == 2
    plain = q.source_memory == "device" and q.target_memory == "device"
    if len(q.names) == 1 and plain:
        # Both buffers lie in one memory: read and written once, or twice where each way has its own.
        memory = q.memory_of(q.names[0])
        rate = memory.memory_rate
        if rate is None:
            return []
        words = f"payload read and written in {memory.name}: {show_rate(rate.value)}"
        return [half_of_memory(q, [memory.name], rate.value / (4 if both else 2), words)]
    result = point_to_point(q)
    if q.on_host:
        result.extend(_host_copy(q))
    elif both and plain and not q.mechanism.through_host:
        result.extend(collective(q))
    elif plain:
        memories = [q.memory_of(name) for name in q.names]
        # Of two host devices on one host payload is read and written in one memory.
        rates = {m.name: m.memory_rate.value / memories.count(m) for m in memories if m.memory_rate is not None}
        if rates and beyond_cache(q, list(rates)):
            name = min(rates, key=lambda key: rates[key])
            shared = ", read and written there" if memories[0] == memories[-1] else ""
            words = f"memory of {name}: {show_rate(rates[name] * (2 if shared else 1))}{shared}"
            result.append(limit("memory", rates[name], words))
    return result


def _host_copy(q: Query) -> list[Limit]:
    """Return half of the memory rate where both host buffers lie on one host."""
    ends = [
        hosts_for(q.system, name, node) for name, node in ((q.names[0], q.source_node), (q.names[-1], q.target_node))
    ]
    if len(ends[0]) != 1 or ends[0] != ends[1]:
        return []
    rate = q.system.node(ends[0][0]).memory_rate
    if rate is None or not beyond_cache(q, ends[0]):
        return []
    value = rate.value / (2 * q.traits.ways)
    return [limit("memory", value, f"payload read and written on {ends[0][0]}: {show_rate(rate.value)}")]


def _caps(q: Query) -> list[Limit]:
    if q.nodes > 1 or not PATTERNS[q.pattern].pair or len(q.names) != 2 or q.variant == STRIPED:
        return []
    return [
        limit("engine_cap", cap.rate.value, cap.note or cap.transport, source=cap.rate.source)
        for cap in q.system.caps
        if cap.transport == q.transport and q.source_memory == q.target_memory == "device"
    ]


def _published(q: Query) -> list[Limit]:
    result = []
    for entry in q.system.published:
        if entry.pattern != q.pattern or (entry.transport is not None and entry.transport != q.transport):
            continue
        if entry.devices is not None and entry.devices != q.devices:
            continue
        if (entry.nodes or 1) != q.nodes or q.source_memory in HOST_MEMORY or q.target_memory in HOST_MEMORY:
            continue
        value = entry.value
        basis = entry.note or "as printed"
        if value.unit == RATE:
            result.append(Limit(entry.rule, "published", value.value, basis, value.source))
        else:
            result.append(Limit(entry.rule, "published", None, basis, value.source, latency_ns=value.value))
    return result


def _typical(q: Query, found: Sequence[Limit]) -> list[Limit]:
    """Return the payload's share of the least link limit, where the links' packets are known."""
    if q.nodes > 1 or PATTERNS[q.pattern].own_memory:
        return []
    least = least_of_links(found)
    if least is None:
        return []
    used = _links_used(q)
    shares = [(s, link) for link in used if (s := _share(q, link)) is not None]
    if not shares or len(shares) < len(used):
        return []
    share, link = min(shares, key=lambda pair: pair[0].value)
    basis = f"{percent(share.value, 1)} of {least.rule}: payload on {link.kind} ({link.a} - {link.b})"
    return [limit("payload_share", goodput(least) * share.value, basis, source=share.source)]


def least_of_links(found: Iterable[Limit]) -> Limit | None:
    """Return the limit of the links that what is typical is a share of: the least bound, else the least schedule."""
    of_links = [
        c for c in found if c.kind in ("upper bound", "achievable schedule") and c.rule not in ("memory", "local_copy")
    ]
    values = [c for c in of_links if finite(c.value_bytes_per_s)]
    bounds = [c for c in values if c.kind == "upper bound" and c.without is None]
    return min(bounds or values, key=goodput, default=None)


def _links_used(q: Query) -> list[Link]:
    """Return the links at the devices that take part, within the case's scope."""
    graph: Wires = q.graph()
    ends = {name for name in q.names if name in graph.vertices}
    inside = set(graph.vertices)
    kinds = {node.name: node.kind for node in q.system.nodes}
    result = []
    for link in q.system.links:
        if not ends & {link.a, link.b}:
            continue
        other = link.other(next(iter(ends & {link.a, link.b})))
        merged = other in inside or kinds[other] == "switch"
        if merged and kinds[other] != "nic" and is_fabric(link, kinds) == (q.scope == FABRIC):
            result.append(link)
    return result


def _share(q: Query, link: Link) -> Figure | None:
    """Return the payload's share of a link's data rate: as described, by PCIe's packets, or as a source accepted it."""
    if link.payload_share is not None:
        return link.payload_share
    if link.kind == "pcie" and link.max_payload_bytes is not None:
        payload = link.max_payload_bytes
        provenance = link.data_rate.provenance if link.data_rate is not None else "described"
        return Figure(payload / (payload + _TLP_OVERHEAD_BYTES), "1", provenance, RULES["payload_share"].source)
    entry = most_particular(
        e
        for e in q.system.accepted
        if e.kind == link.kind and e.fits(q.transport, q.pattern, q.size_bytes, q.ranks, q.algorithm)
    )
    return None if entry is None else entry.share


def _judged(found: Sequence[Limit]) -> list[Limit]:
    """Sort by kind and value; say of a published value above the least bound that no schedule reaches it."""
    bounds = [c for c in found if c.kind == "upper bound" and c.value_bytes_per_s is not None and c.without is None]
    least = min(bounds, key=goodput, default=None)
    result = []
    for c in sorted(found, key=lambda c: (KINDS.index(c.kind), goodput(c))):
        if least is not None and c.kind != "upper bound" and goodput(c) > goodput(least) * (1 + 1e-6):
            words, most = f"above the bound {least.rule} ({show_rate(goodput(least))}): nothing reaches it", goodput(c)
            if c.kind in ("achievable schedule", "typical"):
                # A schedule over the links still has to pass what the bound stands for.
                words, most = f"{show_rate(most)} of links held to the bound {least.rule}", goodput(least)
            c = dataclasses.replace(c, basis=f"{c.basis}; {words}", value_bytes_per_s=most)
        result.append(c)
    return result
