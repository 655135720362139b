"""Times of patterns over sizes, by mechanism and number of ranks: those of a run, and those that links allow."""

from __future__ import annotations

import abc
import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.system.model import System

BEGUN = "nonblocking"  # MPI's collectives that are begun and waited for
BEHIND = "behind"  # collectives that begin as ranks leave a barrier, and not at an agreed time
STREAMED = "streamed"  # what a stream carries out one after the other: without its launch and wait
COPIES_WITHIN = ("host_to_device", "device_to_host", "local_copy")
MOVING = ("message", "collective", "host_to_device", "device_to_host", "within_device")  # kinds of step, with bytes
_LARGE_BYTES = 1 << 26
_VARIANT_OF_CADENCE = {"isolated": "", "barrier": BEHIND, "streaming": STREAMED}
_SETTINGS = ("path", "buffer", "algorithm", "initiator", "host_leg", "chunk", "managed")
_DEFAULTS = tuple(one.default for name in _SETTINGS for one in dataclasses.fields(Case) if one.name == name)


@dataclasses.dataclass(frozen=True)
class Curve:
    """Times in ns at rising sizes in bytes, of one pattern by one mechanism on so many ranks."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]

    def __call__(self, size: int) -> float:
        """The time of a size: between two on a line, below the first as that, beyond the last in proportion."""
        sizes, times = self.sizes, self.times
        if size <= sizes[0]:
            return times[0]
        if size >= sizes[-1]:
            return times[-1] * size / sizes[-1] if sizes[-1] else times[-1]
        high = bisect.bisect_left(sizes, size)
        low = high - 1
        part = (size - sizes[low]) / (sizes[high] - sizes[low])
        return times[low] + part * (times[high] - times[low])

    def faster(self, factor: float) -> Curve:
        """The same latency, and bytes that move so many times as fast."""
        first = self.times[0]
        return Curve(
            self.sizes, tuple(first + (time - first) / factor if time > first else time for time in self.times)
        )

    def as_its_largest(self, least: int) -> Curve:
        """From `least` bytes on, a byte takes as long as at any larger size; below, as it was measured."""
        if self.sizes[-1] <= least:
            return self
        points = {size: time for size, time in zip(self.sizes, self.times, strict=True) if size < least}
        points[least - 1] = self(least - 1)
        larger = sorted({least, *(size for size in self.sizes if size > least)}, reverse=True)
        ns_a_byte = 0.0
        for size in larger:
            ns_a_byte = max(ns_a_byte, self(size) / size)
            points[size] = ns_a_byte * size
        sizes = sorted(points)
        return Curve(tuple(sizes), tuple(points[size] for size in sizes))


class Curves(abc.ABC):
    """Where the times of an application's steps come from."""

    @abc.abstractmethod
    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """The curve of the first of these numbers of ranks that there is one of."""

    def need(self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int]) -> Curve:
        """The same; UsageError saying what would bring it where there is none."""
        found = self.find(pattern, transport, memory, ranks)
        if found is None:
            raise UsageError(self._lacking(pattern, transport, ranks[0]))
        return found

    @abc.abstractmethod
    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        """Why there is no curve, and what would bring it."""


def of_algorithm(algorithm: str) -> str:
    """The variant of curves of collectives by an algorithm that the library was made to take; "": by its own choice."""
    return f"algorithm {algorithm}" if algorithm else ""


def of_blocks(blocks: int) -> str:
    """The variant of curves of kernels of so many thread blocks; 0: of as many as they like, the default."""
    return f"blocks {blocks}" if blocks else ""


class CurvesOfRun(Curves):
    """The curves of a run's headline rows, of default settings but for those that a case names."""

    def __init__(self, rows: Sequence[Measured], statistic: str = "median_ns") -> None:
        """Keep what a curve can be of; `statistic`: which column of the summary is its time."""
        self.algorithms: set[str] = set()
        points: dict[tuple[Any, ...], dict[tuple[Any, ...], dict[int, list[float]]]] = {}
        for row in rows:
            case = row.case
            plain = (
                not case.app and not case.background and case.variant in ("", BEGUN)
                and case.groups == 1 and case.root == 0 and case.distribution == "" and not case.in_place
                and case.cadence in _VARIANT_OF_CADENCE and not case.routed and case.collectives == ""
                and (case.blocks == 0 or case.pattern in COPIES_WITHIN)
            )  # fmt: skip
            if not plain:
                continue
            memory = (case.source_memory, case.target_memory)
            variant = _VARIANT_OF_CADENCE[case.cadence] or case.variant or of_blocks(case.blocks)
            key = (case.pattern, case.transport, memory, case.ranks, case.window, variant)
            settings = tuple(getattr(case, name) for name in _SETTINGS)
            keys = [(key, settings)]
            if case.algorithm and case.variant == "" and case.cadence == "isolated":
                named = of_algorithm(case.algorithm)
                keys.append(((*key[:-1], named), settings))
                self.algorithms.add(case.algorithm)
            for one, by in keys:
                points.setdefault(one, {}).setdefault(by, {}).setdefault(row.size, []).append(getattr(row, statistic))
        self._curves = {}
        for key, of_settings in points.items():
            # By default settings where the run has them, else by those with most sizes: never by a mixture.
            of_size = of_settings.get(_DEFAULTS) or max(of_settings.values(), key=len)
            sizes = sorted(of_size)
            middles = (sorted(of_size[size])[len(of_size[size]) // 2] for size in sizes)
            self._curves[key] = Curve(tuple(sizes), tuple(middles))

    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """The curve of the first of these numbers of ranks that there is one of."""
        for count in ranks:
            if (found := self._curves.get((pattern, transport, memory, count, window, variant))) is not None:
                return found
        return None

    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        return (
            f"the run has no {pattern} by {transport} on {ranks} device{'' if ranks == 1 else 's'}: expected "
            f"its curve, as 'linkgauge run --plan applications' measures it"
        )


class CurvesOfSystem(Curves):
    """The least times that a described system's links allow, and the latencies that somebody states beside them.

    A time is the payload over the lowest bound of `expect` (where no rule bounds it, over what is typical), and never
    less than the stated latency of its kind of step. Barriers, which no figure bounds, take that alone.
    """

    def __init__(self, system: System, latencies_ns: Mapping[str, float], between_nodes: bool) -> None:
        """Take a system, latencies in ns by kind of step, and whether each rank has a node to itself."""
        self._system = system
        self._latencies = dict(latencies_ns)
        self._between = between_nodes
        self._found: dict[tuple[Any, ...], Curve | None] = {}

    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """What the links allow the first number of ranks; None where no figure says."""
        if window > 1 or variant:
            return None
        for count in ranks:
            key = (pattern, transport, memory, count)
            if key not in self._found:
                self._found[key] = self._curve(*key)
            if (found := self._found[key]) is not None:
                return found
        return None

    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        figure = f"no figure of {self._system.name} bounds {pattern} by {transport} on {ranks} ranks"
        return self._lacks_network(pattern) or figure

    def _lacks_network(self, pattern: str) -> str:
        """What the description lacks for what goes between nodes, and how to add it; empty where that is not why."""
        if not self._between or kind_of(pattern) not in ("message", "collective"):
            return ""
        name, nics = self._system.name, list(self._system.of_kind("nic"))
        if nics and all(nic.port_rate is not None for nic in nics):
            return ""
        lacks = "states no port_rate of its NICs" if nics else "describes no NIC"
        missing = "it" if nics else "NICs with a port_rate"
        return (
            f"{name} {lacks}, so nothing bounds {pattern} between nodes: add {missing} to its description "
            f"('linkgauge topology {name} --json > mine.json') and give --system ./mine.json"
        )

    def _curve(self, pattern: str, transport: str, memory: tuple[str, str], count: int) -> Curve | None:
        from linkgauge.expect.of_case import limits

        traits = PATTERNS[pattern]
        latency = self._latencies.get(kind_of(pattern), 0.0) / traits.latency_share
        if traits.latency_only or (count == 1 and traits.collective):
            return Curve((0,), (latency,))
        within = kind_of(pattern) not in ("message", "collective")
        if self._between and traits.side_by_side_of:  # each pair has ports of its own
            return None
        # The matrix of an application's alltoallv is applied to its size.
        asked = traits.spread_of or pattern
        devices = (0,) if self._between else tuple(range(count))
        found = limits(self._system, {"pattern": asked, "transport": transport, "devices": devices,
                                        "nodes": 1 if within or not self._between else count,
                                        "source_memory": memory[0], "target_memory": memory[1],
                                        "size": _LARGE_BYTES})  # fmt: skip
        rates = {kind: [one.value_bytes_per_s for one in found if one.kind == kind and one.value_bytes_per_s]
                 for kind in ("upper bound", "typical")}  # fmt: skip
        if not (known := rates["upper bound"] or rates["typical"]):
            return None
        ranks_there = len(devices) if within else count
        payload = float(PATTERNS[asked].payload_bytes(_LARGE_BYTES, ranks_there, 1, ""))
        rate = min(known)
        return Curve((0, _LARGE_BYTES), (latency, latency + payload / rate * 1e9))


class Faster(Curves):
    """Curves of which some kinds of step move their bytes so many times as fast."""

    def __init__(self, curves: Curves, factors: Mapping[str, float]) -> None:
        """Take curves, and factors by kind of step (MOVING)."""
        self._curves, self._factors = curves, factors

    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """The curve beneath, faster."""
        found = self._curves.find(pattern, transport, memory, ranks, window, variant)
        return None if found is None else found.faster(self._factors.get(kind_of(pattern), 1.0))

    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        return self._curves._lacking(pattern, transport, ranks)


def kind_of(pattern: str) -> str:
    """The kind of step that a pattern's curve is for: one of MOVING, or `barrier`."""
    if pattern == "barrier" or pattern in MOVING:
        return pattern
    if PATTERNS[pattern].within_device:
        return "within_device"
    return "collective" if PATTERNS[pattern].collective else "message"
