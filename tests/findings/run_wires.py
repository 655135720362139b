"""Which wires a real run's cases keep busy, for how long, and what a slower one would cost each of them.

Shares no code with the rules: it reads a run folder's tables and knows who sends what to whom from the table of
docs/definitions.md. Time is modeled as overhead + bytes / rate. The rate is the curve's own: the steepest
rise of bytes over time up to its largest size, and where there is one size only all of its time is the wire's.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from linkgauge.store.run import Run

ALL_LANES = -1
Identity = tuple[str, int, int, int]
Record = Mapping[str, Any]

_IDLE, _BUSY = 0.2, 0.3
"""Shares of its time that a case keeps a wire busy: below the first something else sets its pace (a library's protocol,
the host's memory, a launch), and a slower wire costs it nothing; from the second on what its bytes take longer."""
_FULL = 0.85
"""From this share of the best rate on a wire on, a mechanism is what the wire lets through, and slows with it."""


@dataclasses.dataclass(frozen=True)
class Wire:
    """One direction of a device's port to its switch or neighbors, of its host link, or of one pair's way.

    `kind`: port, host or pair; `ends`: the device, or (source, target); `way`: out (from the device) or in, empty for a
    pair.
    """

    kind: str
    ends: tuple[int, ...]
    way: str = ""


@dataclasses.dataclass(frozen=True)
class Leg:
    """A part of a case's iteration in which its bytes cross wires at once.

    `lane`: whose samples it lengthens. `part`: of that time, 1/2 for each way of a ping-pong.
    """

    lane: int
    part: float
    bytes_of: Mapping[Wire, float]


def flows_of(case: Record) -> list[tuple[int, float, list[tuple[int, int, float]]]]:
    """Return for each leg its lane, its part of the time, and (source rank, target rank, bytes) of one iteration."""
    name, n, m, root = case["pattern"], len(case["devices"]), float(case["size"]), int(case["root"])
    message = m * max(1, int(case["window"]))
    others = [rank for rank in range(n) if rank != root]
    around = [(rank, (rank + 1) % n) for rank in range(n)]
    ring = case["transport"] == "ccl"
    if name == "pingpong":
        return [(ALL_LANES, 0.5, [(0, 1 % n, m)]), (ALL_LANES, 0.5, [(1 % n, 0, m)])]
    if name == "unidirectional":
        return [(ALL_LANES, 1.0, [(0, 1 % n, message)])]
    if name == "bidirectional":
        return [(0, 1.0, [(0, 1 % n, message)]), (1, 1.0, [(1 % n, 0, message)])]
    if name == "pairs_unidirectional":
        return [(i, 1.0, [(2 * i, 2 * i + 1, message)]) for i in range(n // 2)]
    if name == "pairs_bidirectional":
        return [(i, 1.0, [(i, i ^ 1, message)]) for i in range(n)]
    if name == "allreduce" and not ring:  # to the first rank, and from it to all
        return [(ALL_LANES, 0.5, [(a, 0, m) for a in range(1, n)]), (ALL_LANES, 0.5, [(0, b, m) for b in range(1, n)])]
    sent = {
        "ring_shift": [(a, b, m) for a, b in around],
        "one_to_all": [(root, b, m) for b in others],
        "all_to_one": [(a, root, m) for a in others],
        "alltoall": [(a, b, m) for a, b in itertools.permutations(range(n), 2)],
        "gather": [(a, root, m / n) for a in others],
        "scatter": [(root, b, m / n) for b in others],
    }
    ringed = {
        "allreduce": [(a, b, 2 * m * (n - 1) / n) for a, b in around],
        "allgather": [(a, b, m * (n - 1) / n) for a, b in around],
        "reduce_scatter": [(a, b, m * (n - 1) / n) for a, b in around],
        "broadcast": [((root + i) % n, (root + i + 1) % n, m) for i in range(n - 1)],
        "reduce": [((root + i + 1) % n, (root + i + 2) % n, m) for i in range(n - 1)],
    }
    direct = {
        "allgather": [(a, b, m / n) for a, b in itertools.permutations(range(n), 2)],
        "reduce_scatter": [(a, b, m / n) for a, b in itertools.permutations(range(n), 2)],
        "broadcast": [(root, b, m) for b in others],
        "reduce": [(a, root, m) for a in others],
    }
    found = sent.get(name) or (ringed if ring else direct).get(name)
    return [(ALL_LANES, 1.0, found)] if found else []


def legs_of(case: Record) -> list[Leg]:
    """Return what a case moves over wires; nothing for what stays inside a device, or whose ways are not known."""
    devices = [int(device) for device in case["devices"]]
    lanes = list(case["lanes"] or [])
    host = {"host_to_device": "in", "device_to_host": "out"}.get(case["pattern"])
    if host is not None:
        return [
            Leg(lane, 1.0, {Wire("host", (device,), host): float(case["size"])})
            for lane, device in enumerate(devices[: max(1, len(lanes))])
        ]
    if case["via"] >= 0 or case["ranks_per_device"] != 1 or case["groups"] != 1 or len(set(devices)) < len(devices):
        return []
    if "device" not in (case["source_memory"], case["target_memory"]):
        return []
    over_host = case["transport"] == "staging" or case["path"] in ("host", "shm", "staged")
    legs = []
    for lane, part, flows in flows_of(case):
        bytes_of: dict[Wire, float] = {}
        for source, target, count in flows:
            a, b = devices[source], devices[target]
            if a == b:
                continue
            kind = "host" if over_host else "port"
            wires = [Wire(kind, (a,), "out"), Wire(kind, (b,), "in")]
            for wire in wires if over_host else [*wires, Wire("pair", (a, b))]:
                bytes_of[wire] = bytes_of.get(wire, 0.0) + count
        if bytes_of:
            legs.append(Leg(lane if len(lanes) > 1 else ALL_LANES, part, bytes_of))
    return legs


def lane_times(run: Run) -> dict[Identity, dict[int, float]]:
    """Return for each row with samples the median ns an iteration of each lane, and of all rows under ALL_LANES."""
    table = run.samples
    names = ("case_key", "launch", "repeat", "attempt")
    columns = [table[name].to_pylist() for name in names]
    phase = np.asarray(table["phase"].to_pylist())
    times = table["ns"].to_numpy() / table["iterations"].to_numpy()
    lanes = table["lane"].to_numpy()
    rows: dict[Identity, list[int]] = {}
    for row, identity in enumerate(zip(*columns, strict=True)):
        if phase[row] == "sample":
            rows.setdefault(identity, []).append(row)
    found: dict[Identity, dict[int, float]] = {}
    for identity, mine in rows.items():
        chosen = np.asarray(mine)
        medians = {int(lane): float(np.median(times[chosen][lanes[chosen] == lane])) for lane in set(lanes[chosen])}
        found[identity] = {**medians, ALL_LANES: max(medians.values())}
    return found


class Wires:
    """The wires of one run: how fast they were seen to carry, and what a slower one costs each case."""

    def __init__(self, run: Run) -> None:
        """Read the run's cases and samples."""
        self.records: dict[Identity, Record] = {}
        for record in run.cases.to_pylist():
            identity = (record["case_key"], record["launch"], record["repeat"], record["attempt"])
            if record["status"] in ("ok", "timeout"):
                self.records[identity] = record
        self._times = {key: times for key, times in lane_times(run).items() if key in self.records}
        self._legs = {key: legs_of(self.records[key]) for key in self._times}
        nominal = _nominal(run.info.get("system"))
        steepest = _steepest(self._points())
        self._best: dict[str, float] = {}
        for curve, rate in steepest.items():
            alone = curve[3] in ("unidirectional", "bidirectional") or curve[-1] == 1
            if alone or not any(other[0] == curve[0] and other[3] == "unidirectional" for other in steepest):
                self._best[curve[0]] = max(self._best.get(curve[0], 0.0), min(rate, nominal.get(curve[0], math.inf)))
        self._rates = {key: min(rate, self._best[key[0]]) for key, rate in steepest.items()}

    def known(self, kind: str) -> list[Wire]:
        """Return the wires of a kind that any case crosses, in order."""
        found = {wire for legs in self._legs.values() for leg in legs for wire in leg.bytes_of if wire.kind == kind}
        return sorted(found, key=lambda wire: (wire.ends, wire.way))

    def share(self, identity: Identity, wire: Wire) -> float:
        """Return the share of a case's time for which it keeps a wire busy."""
        shares = [
            leg.bytes_of[wire] / (self._times[identity][leg.lane] * leg.part * self._best[_kind(wire)])
            for leg in self._legs.get(identity, [])
            if wire in leg.bytes_of and leg.lane in self._times[identity]
        ]
        return max(shares, default=0.0)

    def longer(self, identity: Identity, slow: Mapping[Wire, float]) -> dict[int, float]:
        """Return by lane the share by which each sample of a row takes longer.

        `slow`: wires, and the share of their rate that they lack.
        """
        found: dict[int, float] = {}
        for leg in self._legs.get(identity, []):
            time = self._times[identity].get(leg.lane)
            hit = [wire for wire in leg.bytes_of if slow.get(wire)]
            if time is None or not hit:
                continue
            kind = _kind(hit[0])
            rate, best = self._rates[self._curve(identity, leg)], self._best[kind]
            usual = max(leg.bytes_of.values()) / rate
            later = max(leg.bytes_of[wire] / _slowed(rate, best, slow[wire]) for wire in hit)
            busy = max(leg.bytes_of[wire] for wire in hit) / (time * leg.part * best)
            weight = min(1.0, max(0.0, (busy - _IDLE) / (_BUSY - _IDLE)))
            found[leg.lane] = found.get(leg.lane, 0.0) + weight * max(0.0, later - usual) / time
        return found

    def _points(self) -> Iterator[tuple[tuple[Any, ...], float, float]]:
        for identity, legs in self._legs.items():
            for leg in legs:
                if leg.lane in self._times[identity]:
                    yield (
                        self._curve(identity, leg),
                        max(leg.bytes_of.values()),
                        self._times[identity][leg.lane] * leg.part,
                    )

    def _curve(self, identity: Identity, leg: Leg) -> tuple[Any, ...]:
        """What a curve over sizes has alike: everything but size, devices and how long it was measured."""
        record = self.records[identity]
        names = ("transport", "variant", "pattern", "path", "algorithm", "cadence", "source_memory", "target_memory")
        own = [record[name] for name in (*names, "root", "initiator", "host_leg", "buffer", "blocks")]
        return (_kind(next(iter(leg.bytes_of))), *own, len(record["devices"]))


def _kind(wire: Wire) -> str:
    """A pair's way carries what a port carries."""
    return "port" if wire.kind == "pair" else wire.kind


def _slowed(rate: float, best: float, lacks: float) -> float:
    return rate * (1 - lacks) if rate >= _FULL * best else min(rate, best * (1 - lacks))


def _steepest(points: Iterable[tuple[tuple[Any, ...], float, float]]) -> dict[tuple[Any, ...], float]:
    """Return for each curve its rate up to the top, bytes per ns: rises of less than a third of the time are noise."""
    curves: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    for curve, count, time in points:
        curves.setdefault(curve, {}).setdefault(count, []).append(time)
    found = {}
    for curve, sizes in curves.items():
        line = sorted((count, float(np.median(times))) for count, times in sizes.items())
        top, longest = line[-1]
        rises = [(top - count) / (longest - time) for count, time in line if longest > 1.5 * time]
        found[curve] = max([top / longest, *rises])
    return found


def _nominal(system: Any) -> dict[str, float]:
    """Return the data rate of a port and of a host link in bytes per ns, as far as the run's own system says it."""
    found: dict[str, float] = {}
    if not isinstance(system, Mapping):
        return found
    hosts = {host["name"] for host in system.get("host", [])}
    for link in system.get("link", []):
        if isinstance(link.get("data_rate"), (int, float, Mapping)):
            figure = link["data_rate"]
            rate = float(figure["value"] if isinstance(figure, Mapping) else figure) * link.get("count", 1) / 1e9
            kind = "host" if {link["a"], link["b"]} & hosts else "port"
            found[kind] = max(found.get(kind, 0.0), rate)
    return found
