"""What collectives and stand-in kernels cost each other while both are under way, as a run has measured it.

A case of a collective beside copies within its devices (`--beside`, plan `overlap`), or of such a copy beside a
collective, tells both: what the measured job takes longer, and which share of its rate the load keeps.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from linkgauge.model.beside import loads_of
from linkgauge.model.patterns import PATTERNS

if TYPE_CHECKING:
    from linkgauge.stats.interference import Interference

_WORK = ("local_copy", "stream_copy")  # what a stand-in kernel does


@dataclasses.dataclass(frozen=True)
class SlowDown:
    """Times under way together over times alone, each at least 1. `of`: the measured cases that tell, for people."""

    collective: float
    work: float
    of: str


@dataclasses.dataclass(frozen=True)
class _Seen:
    transport: str  # of the collective
    pattern: str
    copies: str  # by what the stand-in kernel copies
    blocks: int
    collective: float | None
    work: float | None


class SlowDowns:
    """Slow-downs by mechanism: that of the collective, and that of the stand-in kernel with its thread blocks."""

    def __init__(self, seen: Iterable[Interference]) -> None:
        """Take what cases lost beside loads, and these beside them (stats/interference.py)."""
        self._seen = [pair for one in seen for pair in _pairs(one)]

    def find(self, pattern: str, transport: str, copies: str, blocks: int) -> SlowDown | None:
        """Of a collective by `transport` and stand-in kernels by `copies` of so many blocks, 0: as many as it likes.

        None where the run has none by both mechanisms and of as many blocks. Of the same pattern where the run has
        that, else of all collectives; several cases (sizes) tell by their median. A side that was not told (too little
        of the load's time was beside) is taken as 1.
        """
        known = [one for one in self._seen if (one.transport, one.copies, one.blocks) == (transport, copies, blocks)]
        known = [one for one in known if one.pattern == pattern] or known
        collectives = [one.collective for one in known if one.collective is not None]
        works = [one.work for one in known if one.work is not None]
        if not collectives and not works:
            return None
        patterns = ", ".join(dict.fromkeys(one.pattern for one in known))
        return SlowDown(_middle(collectives), _middle(works), f"{patterns} by {transport} beside local_copy by {copies}"
                        f"{f' of {blocks} blocks' if blocks else ''}")  # fmt: skip


@dataclasses.dataclass
class Work:
    """A stand-in kernel in a queue: when it begins, how long it takes, and how much of that others cost it; ns."""

    begin: float
    length: float
    queue: int
    lost: float = 0.0

    @property
    def end(self) -> float:
        """When it ends, ns."""
        return self.begin + self.length


def together(begin: float, length: float, works: Iterable[Work], slow: SlowDown) -> float:
    """When a collective ends that takes `length` ns alone, beside stand-in kernels that follow each other.

    `works`, rising, are moved and made longer: while both are under way each goes on at its share of its rate, alone
    at all of it.
    """
    now, left, free = begin, length, 0.0
    for work in works:
        work.begin = max(work.begin, free)
        rest = work.end - max(now, work.begin)
        if work.begin > now:  # the collective alone until then
            alone = min(left, work.begin - now)
            now, left = now + alone, left - alone
        if rest > 0 and left > 0:
            both = min(left * slow.collective, rest * slow.work)
            work.lost += both - both / slow.work
            work.length += both - both / slow.work
            now, left = now + both, left - both / slow.collective
            left = 0.0 if left < 1e-9 * length else left
        free = work.end
    return now + left


def _middle(factors: list[float]) -> float:
    return max(1.0, statistics.median(factors)) if factors else 1.0


def _pairs(one: Interference) -> list[_Seen]:
    """What a case tells of a collective and stand-in kernels that are alike; nothing where more is under way."""
    loads = loads_of(one.case.beside)
    jobs = [one.case, *(each.case for each in loads)]
    works = [job for job in jobs if job.pattern in _WORK]
    collectives = [job for job in jobs if PATTERNS[job.pattern].collective]
    alike = {(job.transport, job.blocks, job.size) for job in works}
    if len(collectives) != 1 or len(alike) != 1 or len(works) + 1 != len(jobs):
        return []
    if any(each.pace.duty < 1 or each.pace.burst for each in loads):
        return []
    of, work = collectives[0], works[0]
    longer = {number: 1 / kept for number, kept in ((rate.number, rate.kept) for rate in one.loads) if kept}
    if one.case is of:
        of_works = statistics.median(longer.values()) if longer else None
        return [_Seen(of.transport, of.pattern, work.transport, work.blocks, one.slow_downs[0].factor, of_works)]
    of_collective = longer.get(jobs.index(of))  # loads are counted from 1
    return [_Seen(of.transport, of.pattern, work.transport, work.blocks, of_collective, one.slow_downs[0].factor)]
