"""One case under one launch key, its repeats joined: what the rules compute on; and a case that did not end well."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.comparing import MECHANISM, held_apart, values_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Identity, Measured, OfCase, Result
from linkgauge.model.worded import LibrarySettings

DIMENSIONS = held_apart("size", "devices")
"""Dimensions that tell measures apart besides size and devices; stop rules, warm-up and verification do not."""

Settings = tuple[Hashable, ...]
"""What cases must share to be compared: their dimensions' values, in one order."""

LEAST_EFFECTIVE = 6
"""Independent samples below which no interval of a median can be given, and no claim rests on a case."""


@dataclasses.dataclass
class Measure(OfCase):
    """One case under one launch key, its repeats joined: what the rules compute on.

    Times are of one iteration, in ns. `goodput` is in bytes per second at the median, None for latency-only patterns.
    `spread` is the interquartile range over the median, `half_width` that of the median's 95 % interval over the
    median, `fastest_ns` and `slowest_ns` are of all samples.
    """

    case_key: str
    launch_key: str
    case: Case
    time_ns: float
    half_width: float
    spread: float
    tail: float
    samples: int
    effective: float
    goodput: float | None
    identities: tuple[Identity, ...]
    repeats: tuple[float, ...]
    launch_name: str = ""  # what sets its launch apart from others of this transport: a library, variables
    shown_transport: str = ""  # what screens call its transport: `nccl` of ccl
    noun: str = "device"  # what one of its devices is called
    fastest_ns: float = 0.0
    slowest_ns: float = math.inf

    @classmethod
    def of(cls, rows: Sequence[Measured]) -> Measure:
        """Join the repeats of a case under one launch key."""
        first = rows[0]
        goodputs = [row.goodput_bytes_per_s for row in rows if row.goodput_bytes_per_s]
        return cls(
            case_key=first.case_key,
            launch_key=first.launch_key,
            case=first.case,
            time_ns=median(row.median_ns for row in rows),
            half_width=_mean(row.half_width for row in rows),
            spread=_mean(row.spread for row in rows),
            tail=_mean(row.p95_ns / row.median_ns for row in rows),
            samples=sum(row.samples for row in rows),
            effective=sum(row.effective_samples for row in rows),
            goodput=median(goodputs) if goodputs and not PATTERNS[first.pattern].latency_only else None,
            identities=tuple(row.identity for row in rows),
            repeats=tuple(row.median_ns for row in rows),
            fastest_ns=min(row.min_ns for row in rows),
            slowest_ns=max(row.max_ns for row in rows),
        )

    @functools.cached_property
    def dims(self) -> dict[str, Any]:
        """The case's dimensions by name, for what is asked by name: a user's rule, a rule of the system's."""
        return self.case.dimensions()

    @property
    def size_class(self) -> int:
        """Return the size rounded up to a power of two, so that sizes cut into blocks of different counts compare."""
        return 1 << max(0, self.size - 1).bit_length()

    @property
    def bus(self) -> float | None:
        """Bus bandwidth in bytes per second."""
        if self.goodput is None:
            return None
        return self.goodput * float(PATTERNS[self.pattern].bus_factor(self.case.group_ranks))

    def without(self, *names: str) -> Settings:
        """Return the settings less some: equal for measures that differ in nothing else but size and devices.

        KeyError for a name that is neither a dimension nor `launch_key`.
        """
        kept = held_apart("size", "devices", *(name for name in names if name != "launch_key"))
        launch = () if "launch_key" in names else (self.launch_key,)
        return (*values_of(self.case, kept), *launch)

    @functools.cached_property
    def settings(self) -> Settings:
        """All but size and devices: equal for measures of one sweep."""
        return self.without()

    @functools.cached_property
    def task(self) -> Settings:
        """What mechanisms must share to be compared, beside devices and size."""
        return self.without(*MECHANISM, "launch_key")

    @property
    def label(self) -> str:
        """Transport and pattern in words, with the settings that were asked for."""
        launch = f"({self.launch_name})" if self.launch_name else ""
        words = [self.shown_transport or self.transport, launch, self.case.variant, self.pattern]
        words += [f"{name} {getattr(self.case, name)}" for name in ("path", "algorithm") if getattr(self.case, name)]
        if self.case.via >= 0:
            words.append(f"via {self.case.via}")
        return " ".join(word for word in words if word)


@dataclasses.dataclass(frozen=True)
class FailedCase:
    """A case that did not end well, and how."""

    case_key: str
    transport: str
    pattern: str
    devices: tuple[int, ...]
    status: str
    reason: str
    launch_key: str = ""  # empty: its launch never began
    settings: LibrarySettings = dataclasses.field(default=LibrarySettings())  # the library's own during this case
    variables: tuple[tuple[str, str], ...] = ()  # planned for a launch that never began
    out_of_time: bool = False  # as `Result.out_of_time`
    size: int = 0

    @classmethod
    def of(cls, row: Result) -> FailedCase:
        """Read a result of a case that did not end well."""
        return cls(
            case_key=row.case_key,
            transport=row.transport,
            pattern=row.pattern,
            devices=row.devices,
            status=str(row.status),
            reason=row.reason or "no reason given",
            launch_key=row.launch_key,
            settings=row.case.settings,
            out_of_time=row.out_of_time,
            size=row.size,
        )


def large(measures: Iterable[Measure]) -> int:
    """Return the largest size among measures, 0 for none."""
    return max((m.size for m in measures), default=0)


def rate_text(rate: float | None) -> str:
    """Show a rate in GB/s (10^9)."""
    if rate is None or not math.isfinite(rate):
        return "unknown"
    return f"{rate / 1e9:.3g} GB/s" if rate < 1e12 else f"{rate / 1e9:.0f} GB/s"


def keys(measures: Iterable[Measure]) -> tuple[str, ...]:
    """Return the case keys of measures, in their order."""
    return tuple(dict.fromkeys(m.case_key for m in measures))


def median(values: Iterable[float]) -> float:
    """Return the median of some values."""
    return float(np.median(np.fromiter(values, dtype=np.float64)))


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
