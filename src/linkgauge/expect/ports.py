"""What a run's lowest-level primitives reached on each port.

A port is a device's links to one switch fabric in one direction, or the bundle to one neighbor. Its rate is the largest
median goodput that went through it in any case of `kernel` or `copy_engine`: single pairs, and fan-in and fan-out,
where several peers together fill a port that one of them does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from linkgauge.expect.query import HOST_MEMORY
from linkgauge.model.patterns import PATTERNS, UNORDERED_FLAGS
from linkgauge.model.result import HEADLINE, Measured
from linkgauge.model.transports import TRANSPORTS


class Load(NamedTuple):
    """A chase: the device that walks, the one whose memory it is (or that is nearest to it), its kind, its bytes."""

    walker: int
    lender: int
    memory: str
    size: int


class Floor(NamedTuple):
    """An empty launch: how it was made and timed, and where."""

    transport: str
    cadence: str
    clock: str
    device: int


@dataclass
class Ports:
    """The largest median seen on each port, in bytes per second, by device ordinals; latencies in ns one way."""

    out: dict[int, float] = field(default_factory=dict)
    into: dict[int, float] = field(default_factory=dict)
    pair: dict[tuple[int, int], float] = field(default_factory=dict)
    host: dict[tuple[str, int], float] = field(default_factory=dict)
    local: dict[int, float] = field(default_factory=dict)
    host_copy: dict[HostKey, float] = field(default_factory=dict)
    cores: dict[tuple[int, int, int, str], float] = field(default_factory=dict)
    latency_ns: dict[frozenset[int], float] = field(default_factory=dict)
    load_ns: dict[Load, float] = field(default_factory=dict)
    empty_op_ns: dict[Floor, float] = field(default_factory=dict)

    def add(self, row: Measured, devices: Sequence[int]) -> None:
        """Take in a result, of devices by their ordinals."""
        case, lane = row.case, row.lane
        if row.status != "ok" or case.groups > 1:  # others used the links meanwhile
            return
        traits, rate = PATTERNS[row.pattern], row.goodput_bytes_per_s
        memories = {case.source_memory, case.target_memory}
        if traits.by_cores and rate and row.is_headline:
            _raise(self.cores, cores_of(case.dimensions()), rate)
        if memories <= set(HOST_MEMORY) and rate and lane == (0 if traits.both_ways else HEADLINE):
            # Of both directions at once one lane, of the rest the headline.
            nodes = case.source_node, case.target_node
            _raise(self.host_copy, between_hosts(row.pattern, devices, nodes), rate)
        transport = TRANSPORTS.get(row.transport)
        if transport is None or not transport.one_sided:
            return
        if traits.latency_only:
            if row.is_headline:
                self._add_latency(row, devices)
            return
        if not rate:
            return
        ways = traits.host_ways
        if len(ways) == 1 and row.is_headline and len(devices) == 1:
            _raise(self.host, (ways[0], devices[0]), rate)
        elif traits.within_device and row.is_headline:
            _raise(self.local, devices[0], rate)
        elif memories == {"device"}:
            self._add_flows(row.pattern, devices, lane, rate, case.root)

    def _add_latency(self, row: Measured, devices: Sequence[int]) -> None:
        case = row.case
        if row.pattern == "flag_pingpong":
            if case.variant not in UNORDERED_FLAGS:
                _raise(self.latency_ns, frozenset(devices), row.latency_ns, lowest=True)
        elif row.pattern == "pointer_chase":
            load = Load(devices[0], devices[-1], case.source_memory, case.size)
            _raise(self.load_ns, load, row.latency_ns, lowest=True)
        elif row.pattern == "empty_op":
            floor = Floor(case.transport, case.cadence, case.clock, devices[0])
            _raise(self.empty_op_ns, floor, row.latency_ns, lowest=True)

    def _add_flows(self, pattern: str, devices: Sequence[int], lane: int, rate: float, root: int) -> None:
        if len(set(devices)) < len(devices) or len(devices) < 2:
            return
        traits = PATTERNS[pattern]
        if traits.one_way and lane == -1:
            self._flow(devices[0], devices[1], rate)
            if traits.half_round_trip:
                self._flow(devices[1], devices[0], rate)
        elif traits.both_ways and lane in (0, 1):
            self._flow(devices[lane], devices[1 - lane], rate)
        elif lane != -1:
            return
        elif traits.rooted and traits.per_peer:
            _raise(self.out if traits.root == "sends" else self.into, devices[root], rate)
        elif traits.to_each or traits.to_next:
            # The slowest rank sets the time, so every port carried at least this.
            for device in devices:
                _raise(self.out, device, rate)
                _raise(self.into, device, rate)

    def _flow(self, source: int, target: int, rate: float) -> None:
        _raise(self.pair, (source, target), rate)
        _raise(self.out, source, rate)
        _raise(self.into, target, rate)


HostKey = tuple[str, tuple[int, ...], tuple[int, int]]


def between_hosts(pattern: str, devices: Iterable[int], nodes: tuple[int, int]) -> HostKey:
    """Return what copies between host buffers must have alike; pairs' patterns all move from one rank to the other."""
    return "pair" if PATTERNS[pattern].pair else pattern, tuple(devices), nodes


def cores_of(case: Mapping[str, Any]) -> tuple[int, int, int, str]:
    """Return what copies by the host's cores must have alike: the NUMA nodes of cores and ends, and the variant."""
    nodes = (int(case.get(name, -1)) for name in ("cpu_node", "source_node", "target_node"))
    return (*nodes, str(case.get("variant") or ""))  # type: ignore[return-value]


def _raise(table: dict[Any, float], key: Any, value: float, *, lowest: bool = False) -> None:
    known = table.get(key)
    table[key] = value if known is None else min(known, value) if lowest else max(known, value)
