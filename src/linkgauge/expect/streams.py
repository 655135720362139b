"""What bounds a kernel's copy between memories: its own device's, another device's, the host's; and the host's cores'.

Payload is counted once for each copy and summed over devices (docs/definitions.md, stream_copy). Each of the two ends
bounds it alone: what is read must come in, what is written must go out.
"""

from __future__ import annotations

import dataclasses

from linkgauge.expect.limit import Limit, goodput, limit
from linkgauge.expect.points import beyond_cache, finite, host_and_devices, local, point_to_point
from linkgauge.expect.query import HOST_MEMORY, Query, hosts_for
from linkgauge.system.units import show_rate


def in_own_memory(q: Query) -> bool:
    """Return whether both ends of a stream_copy are plain memory of the device that copies."""
    plain = q.source_memory == "device" and q.target_memory == "device"
    return plain and q.source_device < 0 and q.target_device < 0


def streams(q: Query) -> list[Limit]:
    """Return the limits of stream_copy and host_stream, in bytes of payload per second over all devices.

    Where pages of managed memory lie is the driver's choice, so that end bounds nothing.
    """
    if q.traits.by_cores:
        return _of_cores(q)
    if in_own_memory(q):
        return local(q)
    result: list[Limit] = []
    for memory, other, pattern in (
        (q.source_memory, q.source_device, "host_to_device"),
        (q.target_memory, q.target_device, "device_to_host"),
    ):
        if memory in HOST_MEMORY:
            one_end = {"source_memory": "pinned", "target_memory": "device"}
            if pattern == "device_to_host":
                one_end = {"source_memory": "device", "target_memory": "pinned"}
            result += host_and_devices(_asked(q, pattern=pattern, **one_end))
        elif memory == "device" and other >= 0:
            result += _of_peer(q, other, inwards=pattern == "host_to_device")
    if q.source_memory in HOST_MEMORY and q.target_memory in HOST_MEMORY:
        result = [_passed_twice(c) if c.rule == "memory" else c for c in result]
    return list({(c.rule, c.value_bytes_per_s, c.kind): c for c in result}.values())


def _passed_twice(c: Limit) -> Limit:
    words = f"{c.basis}; here it is read and written, so half of it"
    return dataclasses.replace(c, value_bytes_per_s=goodput(c) / 2, basis=words)


def _asked(q: Query, **changes: object) -> Query:
    return dataclasses.replace(q, **changes)  # type: ignore[arg-type]


def _of_peer(q: Query, other: int, *, inwards: bool) -> list[Limit]:
    """Return k times the bound of the slowest device's way to or from the other: all copy as much, the last ends it."""
    alone = _asked(q, pattern="unidirectional", source_memory="device", target_memory="device",
                   source_device=-1, target_device=-1)  # fmt: skip
    pairs = [(other, device) if inwards else (device, other) for device in q.devices if device != other]
    found = [c for pair in pairs for c in point_to_point(_asked(alone, devices=pair))]
    bounds = [c for c in found if c.kind == "upper bound" and finite(c.value_bytes_per_s)]
    if not bounds:
        return []
    least = min(bounds, key=goodput)
    way = f"{'from' if inwards else 'to'} {q.noun} {other}"
    basis = f"{way}: {least.basis}" + (f"; {q.ranks} {q.noun}s at that rate" if q.ranks > 1 else "")
    return [dataclasses.replace(least, value_bytes_per_s=goodput(least) * q.ranks, basis=basis)]


def passes_of_cores(variant: str) -> tuple[str, ...]:
    """Return by which ends each byte of a host_stream passes a memory, without what caches add of their own."""
    ways = {"read": ("source",), "write": ("target",), "triad": ("source", "source", "target")}
    return ways.get(variant, ("source", "target"))


def _of_cores(q: Query) -> list[Limit]:
    """Return what the memory of the case's nodes allows the cores: a copy within one memory passes it twice."""
    ends = {"source": q.source_node, "target": q.target_node}
    hosts = [hosts_for(q.system, q.names[0], ends[end]) for end in passes_of_cores(q.variant)]
    if any(len(found) != 1 for found in hosts) or not beyond_cache(q, [found[0] for found in hosts]):
        return []
    result = []
    for name in dict.fromkeys(found[0] for found in hosts):
        rate = q.system.node(name).memory_rate
        if rate is None:
            continue
        passes = sum(found[0] == name for found in hosts)
        words = f"memory of {name}: {show_rate(rate.value)}"
        words += {1: "", 2: ", passed twice", 3: ", passed three times"}[passes]
        result.append(limit("memory", rate.value / passes, words))
    return result
