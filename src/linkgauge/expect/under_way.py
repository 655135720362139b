"""Collectives and stand-in kernels on the devices of all ranks while they are under way, as time goes on.

Collectives of the same ranks go by one communicator, and one after the other, in the order in which they were begun:
that is how a CCL carries them out, on its stream, and how a host thread gets through what it waits for. Collectives of
different ranks go on beside each other; where they have a rank in common, they share its device. A collective is as
slow as on the rank where most is beside it. Stand-in kernels of a rank follow each other.

Time goes on only when every rank waits, to the next moment at which something begins or ends: until then no rank can
begin anything more, so that what was under way is known.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable

from linkgauge.apps.rows import Collective
from linkgauge.expect.slow_downs import Share, SlowDown

ALONE = SlowDown(1.0, 1.0, "")


@dataclasses.dataclass(frozen=True)
class OverlapTime:
    """Of a rank's iteration, ns: how long stand-in kernels and collectives are under way, and how much of that each
    loses to the other. `shared`: what collectives lose to those of other groups on the same devices. `any`: some
    kernels and collectives are under way together. `by`: the measured slow-downs that say what that costs; empty where
    it is taken as free."""

    work: float = 0.0
    work_lost: float = 0.0
    collective: float = 0.0
    collective_lost: float = 0.0
    shared: float = 0.0
    any: bool = False
    by: tuple[SlowDown, ...] = ()


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


@dataclasses.dataclass(eq=False)
class Job:
    """A collective: how many of its ranks are still to come, when the last one came, when it began, and when it was
    over; ns. `straight`: all ranks came straight from another one."""

    wanted: Collective
    slow: SlowDown
    missing: int
    latest: float = 0.0
    straight: bool = True
    began: float = math.inf
    over: float = math.inf
    length: float = 0.0  # alone
    left: float = 0.0  # of that
    lost: float = 0.0  # to stand-in kernels
    shared: float = 0.0  # to other groups' collectives
    beside: set[int] = dataclasses.field(default_factory=set)  # ranks whose stand-in kernels are under way with it

    def come(self, when: float) -> None:
        """One of its ranks comes."""
        self.missing -= 1
        self.latest = max(self.latest, when)

    @property
    def last(self) -> float:
        """When its last rank came; infinite as long as one is missing."""
        return math.inf if self.missing else self.latest


class UnderWay:
    """What is under way on each rank's device. `now`: up to when that is known, ns."""

    def __init__(self, ranks: int, length: Callable[[Job, bool], float], share: Share) -> None:
        """Take the number of ranks; what a collective takes alone, given whether it begins as the one before it on its
        communicator ends; and what collectives on one device cost each other."""
        self.now = 0.0
        self.works: list[collections.deque[Work]] = [collections.deque() for _ in range(ranks)]
        self._length = length
        self._share = share
        self._lines: dict[tuple[int, ...], collections.deque[Job]] = {}  # of a communicator's, those that are not over
        self._free: dict[tuple[int, ...], float] = {}  # when a communicator's last one was over
        self._going: list[Job] = []
        self._open = [0] * ranks  # collectives that a rank has come to and that are not over
        self._kernel_over = [0.0] * ranks  # of the last stand-in kernel that is over
        self._moved = [False] * ranks  # whether stand-in kernels take longer than was known
        self._told = [OverlapTime() for _ in range(ranks)]

    def job(self, wanted: Collective, slow: SlowDown) -> Job:
        """The next collective of its communicator, to which no rank has come yet."""
        made = Job(wanted, slow, len(wanted.ranks))
        self._lines.setdefault(wanted.ranks, collections.deque()).append(made)
        return made

    def come(self, job: Job, rank: int, when: float) -> None:
        """A rank comes to a collective."""
        job.come(when)
        self._open[rank] += 1

    def settled(self, rank: int) -> bool:
        """Whether nothing that the rank has begun can make its stand-in kernels longer."""
        return not self._open[rank] or not self.works[rank]

    def queue_ends(self, rank: int) -> list[tuple[int, float]]:
        """Queues of stand-in kernels whose ends have moved since this was asked, with their ends."""
        if not self._moved[rank]:
            return []
        self._moved[rank] = False
        free = self._kernel_over[rank]
        for work in self.works[rank]:
            work.begin = max(work.begin, free)
            free = work.end
        return [(work.queue, work.end) for work in self.works[rank]]

    def work(self, rank: int, work: Work, now: float) -> None:
        """Adds a stand-in kernel behind the rank's others; `now`: the rank's own time."""
        self._pass(rank, min(now, self.now) if self._open[rank] else now)
        self.works[rank].append(work)

    def end_at_once(self, job: Job) -> bool:
        """Ends a collective in which all of its ranks wait, if nothing can be beside it; whether it was so."""
        ranks = job.wanted.ranks
        begin = max(job.last, self._free.get(ranks, 0.0))
        if any(self._open[rank] > 1 or (self.works[rank] and self.works[rank][-1].end > begin) for rank in ranks):
            return False
        self._begin(job, begin)
        self._end(job, begin + job.length)
        return True

    def step(self, limit: float) -> bool:
        """Goes on to the next moment at which something begins or ends, or to `limit`; False where there is none."""
        ready = [(max(line[0].last, self._free.get(ranks, 0.0)), line[0])
                 for ranks, line in self._lines.items() if line[0].began == math.inf]  # fmt: skip
        until = min([limit, *(when for when, _ in ready)])
        slower: dict[int, list[Job]] = {}
        for job in self._going:
            for rank in job.wanted.ranks:
                slower.setdefault(rank, []).append(job)
        working = {rank for rank in slower if self._working(rank)}
        factors = {job: self._factors(job, slower, working) for job in self._going}
        of_kernels = {rank: max(job.slow.work for job in slower[rank]) for rank in working}
        for job, (share, beside) in factors.items():
            until = min(until, self.now + job.left * share * beside)
        for rank in slower:
            if rank in working:
                until = min(until, self.now + (self.works[rank][0].end - self.now) * of_kernels[rank])
            elif self.works[rank]:
                until = min(until, self.works[rank][0].begin)
        if until == math.inf:
            return False
        self._go_on(max(until, self.now), factors, of_kernels)
        for when, job in ready:
            if when <= self.now:
                self._begin(job, when)
                self._going.append(job)
        return True

    def told(self, rank: int) -> OverlapTime:
        """Of all that was under way on the rank, at its end."""
        self._pass(rank, math.inf)
        return self._told[rank]

    # --- as time goes on

    def _working(self, rank: int) -> bool:
        """Whether a stand-in kernel of the rank is under way now."""
        self._pass(rank, self.now)
        return bool(self.works[rank]) and self.works[rank][0].begin <= self.now

    def _factors(self, job: Job, going: dict[int, list[Job]], working: set[int]) -> tuple[float, float]:
        """How much longer it takes now beside other groups' collectives, and how much beside stand-in kernels."""
        most = max(len(going[rank]) for rank in job.wanted.ranks)
        beside = [rank for rank in job.wanted.ranks if rank in working]
        job.beside.update(beside)
        return self._share.among(most), job.slow.collective if beside else 1.0

    def _go_on(self, until: float, factors: dict[Job, tuple[float, float]], of_kernels: dict[int, float]) -> None:
        passed, self.now = until - self.now, until
        for rank, factor in of_kernels.items():
            lost = passed - passed / factor
            if lost > 0:
                work = self.works[rank][0]
                work.lost, work.length, self._moved[rank] = work.lost + lost, work.length + lost, True
        for job, (share, beside) in factors.items():
            done = passed / share / beside
            job.left -= done
            job.lost += passed - passed / beside
            job.shared += passed / beside - done
            if job.left <= _rounding(job.length, until):
                self._going.remove(job)
                self._end(job, until)

    def _pass(self, rank: int, now: float) -> None:
        """Counts the stand-in kernels that are over."""
        works = self.works[rank]
        while works:
            work = works[0]
            work.begin = max(work.begin, self._kernel_over[rank])
            if work.end - now > _rounding(work.length, now):
                return
            self._kernel_over[rank] = works.popleft().end
            told = self._told[rank]
            self._told[rank] = dataclasses.replace(
                told, work=told.work + work.length, work_lost=told.work_lost + work.lost
            )

    def _begin(self, job: Job, when: float) -> None:
        free = self._free.get(job.wanted.ranks, -1.0)
        job.began = when
        job.length = job.left = self._length(job, free >= job.last)

    def _end(self, job: Job, when: float) -> None:
        job.over, ranks = when, job.wanted.ranks
        self._free[ranks] = when
        line = self._lines[ranks]
        line.popleft()
        if not line:
            del self._lines[ranks]
        for rank in ranks:
            self._open[rank] -= 1
            told = self._told[rank]
            mine = rank in job.beside
            by = told.by if job.slow is ALONE or not mine or job.slow in told.by else (*told.by, job.slow)
            self._told[rank] = dataclasses.replace(
                told, collective=told.collective + when - job.began, collective_lost=told.collective_lost + job.lost,
                shared=told.shared + job.shared, any=told.any or mine, by=by,
            )  # fmt: skip


def _rounding(length: float, now: float) -> float:
    """What is left of something and is none: sums of so many ns are no more exact."""
    return 1e-9 * length + 1e-12 * now
