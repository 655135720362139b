"""Curves that end by themselves: the sizes of one table, in rising order, until more size gives no more goodput.

What a full curve is: docs/definitions.md, Cases, launches, ranks. This module is pure: its callers pass what was
measured, and it says which sizes are left out and at which size a matrix is measured. Workers use it, so that it
imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkgauge.model.case import LATER_DIMENSIONS, Case
from linkgauge.model.comparing import held_apart
from linkgauge.model.quantity import format_duration, format_size, percent

FULL = -1
"""In place of a table's size: the one at which the curve of the same pattern, mechanism and settings is full."""
PAST_BEGINNING = 25
"""So many times what its smallest size takes, an operation must take before a curve may be full: what it costs to begin
is then 4 % at most. Below, goodput that stays the same is a change of protocol, or a cache, and not the links."""


@dataclasses.dataclass(frozen=True)
class Until:
    """When a curve ends; 0: never for that reason."""

    gain: float = 0.0  # goodput that rises by less than this share from one size to the next
    time_ns: int = 0  # an operation that would take longer


@dataclasses.dataclass(frozen=True)
class Step:
    """What a case is to a curve: one of its sizes, with `until`; without, a case at the size where it is full."""

    curve: str  # curve_id
    until: Until | None = None
    no_room: str = ""  # why the size is more than memory holds

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        until = {} if self.until is None else {"gain": self.until.gain, "time_ns": self.until.time_ns}
        return {"curve": self.curve, **until, **({"no_room": self.no_room} if self.no_room else {})}

    def evidence(self, point: Point | None) -> dict[str, Any]:
        """What the row of a measured case says: what its curve's end rested on, or that it was measured where full."""
        if self.until is None:
            return {"at_full": self.curve}
        return {} if point is None else {"curve": {"id": self.curve, **dataclasses.asdict(point)}}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any] | None) -> Step | None:
        """Back from `to_plain`; None of nothing. TypeError or ValueError where it is not what that gives."""
        if plain is None:
            return None
        until = Until(float(plain["gain"]), int(plain["time_ns"])) if "gain" in plain else None
        return cls(str(plain["curve"]), until, str(plain.get("no_room", "")))


@dataclasses.dataclass(frozen=True)
class Point:
    """What was measured at one size of a curve."""

    time_ns: float  # of an operation
    goodput: float  # bytes/s


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Why a size is not measured: `why` is full, time or memory."""

    why: str
    reason: str
    facts: Mapping[str, Any]

    def evidence(self) -> dict[str, Any]:
        """What the case's row says of it."""
        return {"left_out": {"why": self.why, **self.facts}}


def left_out_of(evidence: Mapping[str, Any]) -> str:
    """Why a stored row was left out: full, time or memory; empty where it was not."""
    why: str = evidence.get("left_out", {}).get("why", "")
    return why


def _hash_of(case: Case, names: Iterable[str]) -> str:
    plain = case.dimensions()
    used = {name: plain[name] for name in names if plain[name] != LATER_DIMENSIONS.get(name)}
    text = json.dumps(used, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def curve_id(case: Case) -> str:
    """What all cases of a curve have in common: every dimension but size."""
    return _hash_of(case, set(case.dimensions()) - {"size", "size_requested"})


def family(case: Case) -> str:
    """What a curve has in common with the cases that are measured where it is full: what is done, and how."""
    return _hash_of(case, held_apart("size", "devices", "batch"))


def _expected_ns(known: Mapping[int, Point], below: Sequence[int], size: int) -> float:
    """The time of an operation of `size`: a straight line through the two largest known sizes below it."""
    last = below[-1]
    if len(below) == 1:
        return known[last].time_ns
    before = below[-2]
    slope = max((known[last].time_ns - known[before].time_ns) / (last - before), 0.0)
    return known[last].time_ns + slope * (size - last)


class Curves:
    """The curves of one kind of launch as they are known so far."""

    def __init__(self, plain: Mapping[str, Any] | None = None) -> None:
        """Nothing is known, or what `to_plain` gave."""
        plain = plain or {}
        self._points: dict[str, dict[int, Point]] = {
            curve: {int(size): Point(*point) for size, point in points.items()}
            for curve, points in plain.get("points", {}).items()
        }
        self._full: dict[str, int] = dict(plain.get("full", {}))

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "points": {
                curve: {str(size): [point.time_ns, point.goodput] for size, point in points.items()}
                for curve, points in self._points.items()
            },
            "full": dict(self._full),
        }

    def note(self, curve: str, size: int, point: Point) -> None:
        """A size of a curve was measured. What was known of it stays: a repeat measures the sizes of the first."""
        self._points.setdefault(curve, {}).setdefault(size, point)

    def note_full(self, curve: str, size: int) -> None:
        """A case was measured where the curve is full: the others of its matrix have the same size."""
        self._full.setdefault(curve, size)

    def learn(self, size: int, evidence: Mapping[str, Any]) -> None:
        """Note what the evidence of a measured row says, which is of that size (as asked for)."""
        if "at_full" in evidence:
            self.note_full(evidence["at_full"], size)
        elif "curve" in evidence:
            said = evidence["curve"]
            self.note(said["id"], size, Point(said["time_ns"], said["goodput"]))

    def left_out(self, step: Step, size: int) -> LeftOut | None:
        """Why `size` (as asked for, in bytes) is not to be measured; None where it is.

        By what is known of smaller sizes, in whichever order they were measured.
        """
        assert step.until is not None
        known = self._points.get(step.curve, {})
        below = sorted(other for other in known if other < size)
        for before, after in itertools.pairwise(below):
            rise = known[after].goodput / known[before].goodput - 1
            if rise < step.until.gain and known[after].time_ns >= PAST_BEGINNING * known[below[0]].time_ns:
                return LeftOut(
                    "full",
                    f"full at {format_size(after)}: goodput {'rose' if rise >= 0 else 'fell'} by "
                    f"{percent(abs(rise), 1)} from {format_size(before)}",
                    {"curve": step.curve, "full_at": after, "rise": rise},
                )
        if step.no_room:
            return LeftOut("memory", step.no_room, {"curve": step.curve})
        if below and step.until.time_ns:
            expected_ns = _expected_ns(known, below, size)
            if expected_ns > step.until.time_ns:
                return LeftOut(
                    "time",
                    f"an operation would take more than {format_duration(step.until.time_ns)}: "
                    f"{format_size(below[-1])} took {format_duration(known[below[-1]].time_ns)}",
                    {"curve": step.curve, "expected_ns": expected_ns},
                )
        return None

    def full_size(self, curve: str) -> int | None:
        """The size at which cases of a matrix are measured, as asked for; None where nothing is known of the curve.

        The smallest one whose operation takes PAST_BEGINNING times what the smallest size's does, else the largest.
        """
        if curve in self._full:
            return self._full[curve]
        known = self._points.get(curve, {})
        if not known:
            return None
        beginning_ns = known[min(known)].time_ns
        past = [size for size, point in known.items() if point.time_ns >= PAST_BEGINNING * beginning_ns]
        return min(past, default=max(known))
