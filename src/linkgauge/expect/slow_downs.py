"""What collectives and stand-in kernels cost each other while both are under way, as a run has measured it.

A case of a collective beside copies within its devices (`--background`, plan `overlap`), or of such a copy beside a
collective, tells both: what the measured job takes longer, and which share of its rate the load keeps. So does a
collective beside another on the same devices, by a communicator of its own.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from linkgauge.model.patterns import PATTERNS

if TYPE_CHECKING:
    from linkgauge.model.case import Case
    from linkgauge.stats.interference import Interference

_WORK = ("local_copy", "stream_copy")  # what a stand-in kernel does
_PRODUCT = ("gemm",)


@dataclasses.dataclass(frozen=True)
class SlowDown:
    """Times under way together over times alone, each at least 1. `of`: the measured cases that tell, for people."""

    collective: float
    work: float
    of: str


@dataclasses.dataclass(frozen=True)
class Share:
    """What each of two collectives takes longer on one device, at least 1; each further one adds as much.

    By default they share the device evenly: together they take as long as one after the other. `of`: the measured
    cases that tell, for people; empty: none.
    """

    factor: float = 2.0
    of: str = ""

    def among(self, count: int) -> float:
        """How much longer each of so many takes."""
        return 1 + (self.factor - 1) * (count - 1)


EVEN = Share()
FREE = Share(1.0)


class Costs(Protocol):
    """What collectives, and these and stand-in kernels, cost each other."""

    def find(self, pattern: str, transport: str, copies: str, blocks: int) -> SlowDown | None:
        """Of a collective and stand-in kernels; None where that is not known."""

    def share(self, transport: str) -> Share:
        """Of collectives on one device."""


class _InTurns:
    """As if a device went on with one after the other."""

    def find(self, pattern: str, transport: str, copies: str, blocks: int) -> SlowDown | None:
        return SlowDown(2.0, 2.0, "")

    def share(self, transport: str) -> Share:
        return EVEN


IN_TURNS: Costs = _InTurns()


@dataclasses.dataclass(frozen=True)
class _Seen:
    transport: str  # of the collective
    pattern: str
    copies: str  # by what the stand-in kernel copies
    blocks: int
    collective: float | None
    work: float | None


@dataclasses.dataclass(frozen=True)
class _SeenShare:
    transport: str
    pattern: str
    other: str
    measured: float
    load: float | None


class SlowDowns:
    """Slow-downs by mechanism: that of the collective, and that of the stand-in kernel with its thread blocks."""

    def __init__(self, seen: Iterable[Interference]) -> None:
        """Take what cases lost beside loads, and these beside them (stats/interference.py)."""
        seen = list(seen)
        self._seen = [pair for one in seen for pair in _pairs(one, _WORK)]
        self._products = [pair for one in seen for pair in _pairs(one, _PRODUCT)]
        self._shares = [share for one in seen for share in _shares(one)]

    def find(self, pattern: str, transport: str, copies: str, blocks: int) -> SlowDown | None:
        """Of a collective by `transport` and stand-in kernels by `copies` of so many blocks, 0: as many as it likes.

        None where the run has none by both mechanisms and of as many blocks. Of the same pattern where the run has
        that, else of all collectives; several cases (sizes) tell by their median. A side that was not told (too little
        of the load's time was beside) is taken as 1.
        """
        known = [one for one in self._seen if (one.transport, one.copies, one.blocks) == (transport, copies, blocks)]
        words = f"by {transport} beside local_copy by {copies}{f' of {blocks} blocks' if blocks else ''}"
        return _in_the_middle(known, pattern, words)

    def beside_computing(self, pattern: str) -> SlowDown | None:
        """Of a collective by the vendor's library and products of matrices on all of a GPU's multiprocessors, in the
        middle of the run's cases; None where it has none."""
        known = [one for one in self._products if one.transport == "ccl" and not one.blocks]
        return _in_the_middle(known, pattern, "by ccl beside gemm", both=True)

    def share(self, transport: str) -> Share:
        """Of collectives by `transport` on one device: the median of what was measured of them, else EVEN."""
        known = [one for one in self._shares if one.transport == transport]
        if not known:
            return EVEN
        factors = [factor for one in known for factor in (one.measured, one.load) if factor is not None]
        patterns = ", ".join(dict.fromkeys(f"{one.pattern} beside {one.other}" for one in known))
        return Share(_middle(factors), f"{patterns} by {transport}")


def _in_the_middle(known: Sequence[_Seen], pattern: str, words: str, *, both: bool = False) -> SlowDown | None:
    """Return the median of those of a pattern, else of all; None where no side is known, or with `both` not each."""
    known = [one for one in known if one.pattern == pattern] or known
    collectives = [one.collective for one in known if one.collective is not None]
    works = [one.work for one in known if one.work is not None]
    if not (collectives and works if both else collectives or works):
        return None
    patterns = ", ".join(dict.fromkeys(one.pattern for one in known))
    return SlowDown(_middle(collectives), _middle(works), f"{patterns} {words}")


def _middle(factors: list[float]) -> float:
    return max(1.0, statistics.median(factors)) if factors else 1.0


def _pairs(one: Interference, patterns: Sequence[str]) -> list[_Seen]:
    """What a case tells of a collective and work of these patterns that is alike; nothing where more is under way."""
    jobs = _jobs(one)
    works = [job for job in jobs if job.pattern in patterns]
    collectives = [job for job in jobs if PATTERNS[job.pattern].collective]
    alike = {(job.transport, job.blocks, job.size) for job in works}
    if len(collectives) != 1 or len(alike) != 1 or len(works) + 1 != len(jobs):
        return []
    of, work = collectives[0], works[0]
    longer = _longer(one)
    if one.case is of:
        of_works = statistics.median(longer.values()) if longer else None
        return [_Seen(of.transport, of.pattern, work.transport, work.blocks, one.slow_downs[0].factor, of_works)]
    of_collective = longer.get(jobs.index(of))  # loads are counted from 1
    return [_Seen(of.transport, of.pattern, work.transport, work.blocks, of_collective, one.slow_downs[0].factor)]


def _shares(one: Interference) -> list[_SeenShare]:
    """What a case tells of two collectives by one mechanism on the same devices."""
    jobs = _jobs(one)
    if len(jobs) != 2 or not all(PATTERNS[job.pattern].collective for job in jobs):
        return []
    of, load = jobs
    if of.transport != load.transport or set(of.devices) != set(load.devices):
        return []
    return [_SeenShare(of.transport, of.pattern, load.pattern, one.slow_downs[0].factor, _longer(one).get(1))]


def _jobs(one: Interference) -> list[Case]:
    """The measured job and its loads; none where a load is not under way all the time."""
    loads = one.case.background.each
    if any(each.pace.duty < 1 or each.pace.burst for each in loads):
        return []
    return [one.case, *(each.case for each in loads)]


def _longer(one: Interference) -> dict[int, float]:
    """How much longer each load takes beside the measured job, by its number, where that is known."""
    return {rate.number: 1 / rate.kept for rate in one.loads if rate.kept}
