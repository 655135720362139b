"""The samples of a run as rules read them: each case's in order, made once for all rules that ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Identity
from linkgauge.stats.basics import Floats, median


@dataclasses.dataclass(frozen=True)
class RankSeries:
    """All sample-phase rows of one row identity: one entry a row, in the order stored. Times in ns."""

    rank: Floats
    lane: Floats
    sample: Floats
    scheduled_ns: Floats
    start_ns: Floats
    ns: Floats
    iterations: Floats
    host_clock: bool

    def matrix(self, ranks: int) -> tuple[Floats, Floats, Floats] | None:
        """Return start, ns and scheduled as (samples, ranks), None unless every rank has the same samples."""
        if self.rank.size == 0 or self.rank.size % ranks:
            return None
        rank, sample = self.rank.reshape(ranks, -1), self.sample.reshape(ranks, -1)
        start, ns, scheduled = self.start_ns, self.ns, self.scheduled_ns
        if not _in_order(rank, sample):
            order = np.lexsort((self.sample, self.rank))
            rank, sample = self.rank[order].reshape(ranks, -1), self.sample[order].reshape(ranks, -1)
            if not _in_order(rank, sample):
                return None
            start, ns, scheduled = start[order], ns[order], scheduled[order]
        shape = (ranks, -1)
        return start.reshape(shape).T, ns.reshape(shape).T, scheduled.reshape(shape).T


@dataclasses.dataclass(frozen=True)
class Headline:
    """Samples of one row identity in their order: ns of one iteration, when each began and how long it lasted in ns.

    `rising`: each begins after the one before, so that they can be laid out by time.
    """

    times: Floats
    starts_ns: Floats
    lasted_ns: Floats
    rising: bool


class Samples:
    """The samples of a run, and the series of its cases, each made at the first call and kept for the others.

    They cost 24 bytes for every sample of the keeper's lane.
    """

    def __init__(self, read: Callable[[Identity], RankSeries | None] = lambda _: None) -> None:
        """Take what gives the samples of a row identity, None where they are not at hand."""
        self.of = read
        self._headlines: dict[Identity, Headline | None] = {}

    def headlines(self, case: Case, identities: Sequence[Identity]) -> list[Headline]:
        """Return the series of a case, one for each of its repeats that has samples, by the pattern's timekeeper."""
        for identity in identities:
            if identity not in self._headlines:
                held = self.of(identity)
                self._headlines[identity] = None if held is None else _headline(case, held)
        return [found for identity in identities if (found := self._headlines[identity]) is not None]


def _in_order(rank: Floats, sample: Floats) -> bool:
    """Whether each row is one rank's and its samples rise, the ranks rise, and all have the same samples."""
    one_a_row = (rank == rank[:, :1]).all() and (np.diff(rank[:, 0]) > 0).all()
    return bool(one_a_row and (sample == sample[0]).all() and (np.diff(sample[0]) >= 0).all())


def _headline(case: Case, held: RankSeries) -> Headline | None:
    keeper = PATTERNS[case.pattern].timekeeper
    if keeper == "slowest" and (matrix := held.matrix(len(case.devices))) is not None:
        starts, ns, scheduled = matrix
        by_schedule = held.host_clock and (scheduled > 0).all()
        begun = scheduled[:, 0] if by_schedule else starts.min(axis=1)
        whole = (starts + ns).max(axis=1) - begun if by_schedule else ns.max(axis=1)
        return _made(whole / median(held.iterations), begun, whole)
    mine = held.rank == (case.root if keeper == "root" else 0)
    mine &= held.lane == held.lane[mine].min(initial=0)
    if mine.sum() < 2:
        return None
    chosen = np.flatnonzero(mine)
    chosen = chosen[np.argsort(held.sample[chosen], kind="stable")]
    lasted = held.ns[chosen]
    return _made(lasted / held.iterations[chosen], held.start_ns[chosen], lasted)


def _made(times: Floats, starts: Floats, lasted: Floats) -> Headline:
    starts, lasted = np.asarray(starts, np.float64), np.asarray(lasted, np.float64)
    return Headline(np.asarray(times, np.float64), starts, lasted, rising=bool((np.diff(starts) > 0).all()))
