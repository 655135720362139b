"""Ceilings of kind `achievable`: what the lowest-level primitives reached on each port in this run
(docs/definitions.md).

A port is a device's links to one switch fabric in one direction, or the bundle to one neighbour. Its rate is the
largest median goodput that went through it in any case of `kernel` or `copy_engine`: single pairs, and fan-in and
fan-out, where several peers together fill a port that one of them does not. The bound's own rule, on a graph of those
rates, gives the ceiling of a collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from linkgauge.expect.collectives import link_bounds
from linkgauge.expect.graph import FABRIC, Wires
from linkgauge.expect.query import Query, query
from linkgauge.expect.rules import RULES, Ceiling
from linkgauge.plan.patterns import PATTERNS
from linkgauge.system.model import System
from linkgauge.system.units import show_rate

if TYPE_CHECKING:
    from linkgauge.store.run import Run

PRIMITIVES = ("kernel", "copy_engine")
_HOST = {"host_to_device": "into", "device_to_host": "out"}


@dataclass
class Ports:
    """The largest median seen on each port, in bytes per second, by device ordinals; latencies in ns one way."""

    out: dict[int, float] = field(default_factory=dict)
    into: dict[int, float] = field(default_factory=dict)
    pair: dict[tuple[int, int], float] = field(default_factory=dict)
    host: dict[tuple[str, int], float] = field(default_factory=dict)
    local: dict[int, float] = field(default_factory=dict)
    latency_ns: dict[frozenset[int], float] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one row of a summary: a case's dimensions, `lane`, `goodput_bytes_per_s` and `latency_ns`."""
        if row.get("transport") not in PRIMITIVES or row.get("status", "ok") != "ok":
            return
        devices = [int(d) for d in row["devices"]]
        pattern, lane = str(row["pattern"]), int(row.get("lane", -1))
        if pattern == "flag_pingpong":
            if row.get("latency_ns") and lane == -1:
                _raise(self.latency_ns, frozenset(devices), float(row["latency_ns"]), lowest=True)
            return
        rate = row.get("goodput_bytes_per_s")
        if not rate or PATTERNS[pattern].latency_only:
            return
        plain = row.get("source_memory", "device") == row.get("target_memory", "device") == "device"
        if pattern in _HOST and lane == -1 and len(devices) == 1:
            _raise(self.host, (_HOST[pattern], devices[0]), float(rate))
        elif pattern == "local_copy" and lane == -1:
            _raise(self.local, devices[0], float(rate))
        elif plain:
            self._add_flows(pattern, devices, lane, float(rate), int(row.get("root") or 0))

    def _add_flows(self, pattern: str, devices: list[int], lane: int, rate: float, root: int) -> None:
        if len(set(devices)) < len(devices) or len(devices) < 2:
            return
        if pattern in ("unidirectional", "pingpong") and lane == -1:
            self._flow(devices[0], devices[1], rate)
            if pattern == "pingpong":
                self._flow(devices[1], devices[0], rate)
        elif pattern == "bidirectional" and lane in (0, 1):
            self._flow(devices[lane], devices[1 - lane], rate)
        elif lane != -1:
            return
        elif pattern == "one_to_all":
            _raise(self.out, devices[root], rate)
        elif pattern == "all_to_one":
            _raise(self.into, devices[root], rate)
        elif pattern in ("alltoall", "ring_shift"):
            # The slowest rank sets the time, so every port carried at least this.
            for device in devices:
                _raise(self.out, device, rate)
                _raise(self.into, device, rate)

    def _flow(self, source: int, target: int, rate: float) -> None:
        _raise(self.pair, (source, target), rate)
        _raise(self.out, source, rate)
        _raise(self.into, target, rate)


def _raise(table: dict[Any, float], key: Any, value: float, *, lowest: bool = False) -> None:
    known = table.get(key)
    table[key] = value if known is None else min(known, value) if lowest else max(known, value)


def ports_of(rows: Iterable[Mapping[str, Any]]) -> Ports:
    """Return the ports' rates from the rows of a summary."""
    ports = Ports()
    for row in rows:
        ports.add(row)
    return ports


def achieved_ceilings(run: Run, system: System) -> Callable[[Mapping[str, Any]], list[Ceiling]]:
    """Return the function that gives a case of this run its achievable ceilings."""
    from linkgauge.stats.summary import summarise

    ports = ports_of(summarise(run).to_pylist())
    return lambda case: from_ports(system, case, ports)


def from_ports(system: System, case: Mapping[str, Any], ports: Ports) -> list[Ceiling]:
    """Return the achievable ceilings of a case: of its goodput by the ports it needs, and of its latency."""
    q = query(system, case)
    result = []
    rate = None if q.nodes > 1 else _goodput(q, ports)
    rule = RULES["port"]
    if rate is not None:
        result.append(Ceiling(rule.name, rule.kind, rate[0], rate[1], rule.source))
    latency = _latency(q, ports)
    if latency is not None:
        rule = RULES["latency"]
        words = f"half a flag ping-pong between devices {' and '.join(str(d) for d in sorted(latency[1]))}"
        result.append(Ceiling(rule.name, rule.kind, None, words, rule.source, latency_ns=latency[0]))
    return result


def _goodput(q: Query, ports: Ports) -> tuple[float, str] | None:
    if q.pattern in _HOST:
        rates = [ports.host.get((_HOST[q.pattern], device)) for device in q.devices]
        if len(set(q.devices)) < len(q.devices) or any(rate is None for rate in rates):
            return None
        return sum(rate or 0.0 for rate in rates), "each device's host link as measured alone"
    if q.pattern in ("local_copy", "stream_copy"):
        rates = [ports.local.get(device) for device in q.devices]
        if any(rate is None for rate in rates):
            return None
        return sum(rate or 0.0 for rate in rates), "each device's local copy"
    info = PATTERNS[q.pattern]
    if info.latency_only or q.source_memory != "device" or q.target_memory != "device" or len(q.names) < 2:
        return None
    if q.transport == "staging":
        return None
    if q.pattern in ("pingpong", "unidirectional"):
        return _pair(q, ports)
    graph = measured_graph(q, ports)
    if graph is None:
        return None
    found = [c for c in link_bounds(q, graph, "bound") if c.value_bytes_per_s is not None]
    if not found:
        return None
    least = min(found, key=lambda c: c.value_bytes_per_s or 0.0)
    return least.value_bytes_per_s or 0.0, f"{least.rule} on the ports as measured"


def _pair(q: Query, ports: Ports) -> tuple[float, str] | None:
    a, b = q.devices[0], q.devices[-1]
    fabric = q.graph(FABRIC)
    devices = set(fabric.devices.values())
    through_switch = any(tail == q.names[0] and head not in devices for tail, head in fabric.arcs)
    through_switch = through_switch and fabric.joined((a, b)) and (q.names[0], q.names[-1]) not in fabric.arcs
    if through_switch and a in ports.out and b in ports.into:
        leaving, entering = ports.out[a], ports.into[b]
        return min(leaving, entering), f"out of device {a} {show_rate(leaving)}, into {b} {show_rate(entering)}"
    rate = ports.pair.get((a, b))
    return None if rate is None or through_switch else (rate, f"the way from device {a} to {b}")


def measured_graph(q: Query, ports: Ports) -> Wires | None:
    """Return the fabric with the ports' measured rates; None where a link of a device that takes part has none."""
    graph = q.graph(FABRIC)
    if not graph.joined(q.devices):
        return None
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
    return graph.with_arcs(arcs)


def _latency(q: Query, ports: Ports) -> tuple[float, frozenset[int]] | None:
    """Return the largest latency among the pairs that must exchange, and that pair; None where one was not measured."""
    devices = list(q.devices)
    if q.nodes > 1 or len(set(devices)) < 2 or q.source_memory != "device" or q.target_memory != "device":
        return None
    info = PATTERNS[q.pattern]
    if info.rooted:
        pairs = {frozenset((devices[q.root], d)) for d in devices if d != devices[q.root]}
    elif q.pattern in ("ring_shift", "pingpong", "unidirectional", "bidirectional"):
        following = [*devices[1:], devices[0]]
        pairs = {frozenset(pair) for pair in zip(devices, following, strict=True) if pair[0] != pair[1]}
    elif info.collective:
        pairs = {frozenset((a, b)) for a in devices for b in devices if a != b}
    else:
        return None
    if any(pair not in ports.latency_ns for pair in pairs):
        return None
    worst = max(pairs, key=lambda pair: ports.latency_ns[pair])
    return ports.latency_ns[worst], worst
