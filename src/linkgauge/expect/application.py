"""What an application takes, from curves that were measured or that links allow: every rank followed through its steps,
each as long as step_costs.py says, with what it waits for.

- A rank sends its messages one after the other, each as long after the one before as messages of a window are, and
  receives them so too (LogGP's L and g: Alexandrov et al. 1995). Where a rank sends and receives between two waits,
  both take as much longer as both ways at once do. By ccl on GPUs, messages go in turn, whichever way.
- A collective begins when its last rank has come, and those of the same ranks before it are over (under_way.py).
- A rank comes to one that it begins as it begins it, where its transport has a processor of its own (ccl on GPUs); else
  where it next waits. On host devices a call of ccl is over when it returns, as if it were not begun.
- Collectives of different groups that have a rank in common share its device: as a run has measured, else evenly, so
  that together they take as long as one after the other.
- What is in a queue goes on beside the host thread; copies of one direction, of whichever queues, one after the other.
- A collective and the rank's stand-in kernels cost each other, while both are under way, what a run has measured of
  that (slow_downs.py); where none has, nothing. What else waits in a kernel's queue behind it is not moved.
- What a rank waits for others that have not yet come, or not yet posted, is waiting; the rest is the step's own time.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

from linkgauge.apps.program import Program
from linkgauge.apps.rows import AFTER, COLLECTIVE, COMPUTE, COPY, END, LOOP, SEND, SYNC, WAIT, Collective
from linkgauge.apps.step_file import COPIES
from linkgauge.errors import UsageError
from linkgauge.expect.curves import Curves
from linkgauge.expect.mechanism import Mechanism
from linkgauge.expect.slow_downs import EVEN, Costs, Share
from linkgauge.expect.step_costs import StepCosts
from linkgauge.expect.under_way import ALONE, Job, OverlapTime, UnderWay, Work

MOST_STEPS = 2_000_000  # of all ranks
OWN_PROCESSOR = ("ccl",)  # on GPUs
WAITING = "waiting"


@dataclasses.dataclass(frozen=True)
class Predicted:
    """An iteration: its time in ns on each rank, and how much of that by kind of step (stats/step_times.py), of which
    WAITING is one. `waits_ns`: that by the kind of step in which the rank waits. `share`: what collectives on one
    device were taken to cost each other."""

    ranks_ns: tuple[float, ...]
    kinds_ns: tuple[dict[str, float], ...]
    overlaps: tuple[OverlapTime, ...] = ()  # by rank
    waits_ns: tuple[dict[str, float], ...] = ()
    share: Share = EVEN

    @property
    def time_ns(self) -> float:
        """Of the slowest rank."""
        return max(self.ranks_ns)


class Shared(Protocol):
    """What messages and collectives take where ranks share links (cluster.py), in place of their curves; ns."""

    def messages_ns(self, rank: int, phase: int, amount: float) -> float:
        """Of the messages that end with the wait of a step of the file, -1 the last; `amount`: the rank's own bytes."""

    def collective_ns(self, wanted: Collective) -> float:
        """Of a collective, beside those of other ranks."""


def predict(
    program: Program, curves: Curves, mechanism: Mechanism, shared: Shared | None = None,
    slow: Costs | None = None, share: Share | None = None,
) -> Predicted:  # fmt: skip
    """What one iteration takes. UsageError where a curve is missing, or there are more than MOST_STEPS steps.

    `slow`: what collectives and stand-in kernels cost each other; None: nothing. `share`: what collectives on one
    device do; None: what `slow` has, else EVEN.
    """
    if sum(one.executed for one in program.ranks) > MOST_STEPS:
        raise UsageError(f"{program.file.name}: more than {MOST_STEPS} steps to follow: expected fewer; set less")
    if share is None:
        share = EVEN if slow is None else slow.share(mechanism.collectives)
    return _Following(program, curves, mechanism, shared, slow, share).run()


@dataclasses.dataclass
class _Rank:
    now: float = 0.0
    at: int = 0
    loops: list[list[int]] = dataclasses.field(default_factory=list)
    queues: dict[int, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    engines: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    kinds: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    sends: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (peer, number) since the last wait
    receives: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    begun: list[Job] = dataclasses.field(default_factory=list)  # since the last wait
    to_come: list[Job] = dataclasses.field(default_factory=list)  # those of them that it comes to where it next waits
    stands_at: Job | None = None  # the collective that it waits for at once
    waits_since: float = -1.0  # when it came to a wait that has not ended
    left: float = -1.0  # when it left the last collective that it waited for at once
    waits: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))
    ended: bool = False

    def spend(self, kind: str, until: float) -> None:
        if until > self.now:
            self.kinds[kind] += until - self.now
            self.now = until

    def wait(self, kind: str, until: float) -> None:
        """Waits for other ranks in a step of some kind."""
        if until > self.now:
            self.waits[kind] += until - self.now
            self.spend(WAITING, until)


class _Following:
    def __init__(
        self, program: Program, curves: Curves, mechanism: Mechanism, shared: Shared | None, slow: Costs | None,
        share: Share,
    ) -> None:  # fmt: skip
        self._program = program
        self._shared = shared
        self._costs = StepCosts(program, curves, mechanism, slow)
        count = len(program.ranks)
        self._count = count
        self._ranks = [_Rank() for _ in program.ranks]
        self._posted: dict[tuple[str, int, int], list[tuple[float, int]]] = collections.defaultdict(list)
        self._jobs: dict[tuple[int, ...], list[Job]] = collections.defaultdict(list)
        self._uses: list[dict[tuple[int, ...], int]] = [collections.defaultdict(int) for _ in program.ranks]
        self._share = share
        self._under_way = UnderWay(count, self._collective_ns, share)
        self._ahead = mechanism.collectives in OWN_PROCESSOR and not mechanism.on_host
        self._in_turn = mechanism.in_turn
        self._at_once = mechanism.collectives in OWN_PROCESSOR and mechanism.on_host
        self._rows: list[list[list[int]]] = [one.rows.tolist() for one in program.ranks]

    def run(self) -> Predicted:
        waiting = set(range(self._count))
        while waiting:
            moved = [rank for rank in sorted(waiting) if self._advance(rank)]
            waiting = {rank for rank in waiting if not self._ranks[rank].ended}
            if not moved and waiting and not self._under_way.step(self._first_sync(waiting)):
                raise UsageError(f"{self._program.file.name}: its ranks wait for each other: expected an end")
        return Predicted(
            tuple(one.now for one in self._ranks), tuple(dict(one.kinds) for one in self._ranks),
            tuple(self._under_way.told(rank) for rank in range(self._count)),
            tuple(dict(one.waits) for one in self._ranks), self._share,
        )  # fmt: skip

    def _advance(self, rank: int) -> bool:
        one, rows = self._ranks[rank], self._rows[rank]
        moved = False
        while one.at < len(rows):
            row = rows[one.at]
            if row[0] == LOOP:
                one.loops.append([one.at, row[3]])
            elif row[0] == END:
                one.loops[-1][1] -= 1
                if one.loops[-1][1] > 0:
                    one.at = one.loops[-1][0]
                else:
                    one.loops.pop()
            elif not self._step(rank, row):
                return moved
            one.at += 1
            moved = True
        if not one.ended and self._wait(rank) and self._sync(rank, -1):
            one.ended = moved = True
        return moved

    def _step(self, rank: int, row: Sequence[int]) -> bool:
        """Follows one step; False where it must wait for another rank first."""
        one = self._ranks[rank]
        kind, which, queue, amount, _ = row
        if kind == COMPUTE and queue < 0:
            one.spend("compute", one.now + amount)
        elif kind in (COPY, COMPUTE):
            name = COPIES[which] if kind == COPY else "within_device"
            ns = self._costs.copy_ns(rank, one.at, name, amount)
            if queue < 0:
                one.spend(name, one.now + ns)
            else:
                self._move_queues(rank)
                begin = max(one.queues[queue], one.now, one.engines[name])
                one.queues[queue] = one.engines[name] = begin + ns
                if kind == COMPUTE:
                    self._under_way.work(rank, Work(begin, ns, queue), one.now)
        elif kind == SYNC:
            return self._sync(rank, queue)
        elif kind == AFTER:
            self._move_queues(rank)
            one.queues[queue] = max(one.queues[queue], one.queues[which])
        elif kind == WAIT:
            return self._wait(rank)
        elif kind == COLLECTIVE:
            return self._collective(rank, which)
        elif kind == SEND:
            posted = self._posted["sent", rank, which]
            one.sends.append((which, len(posted)))
            posted.append((one.now, amount))
        else:
            posted = self._posted["received", which, rank]
            one.receives.append((which, len(posted)))
            posted.append((one.now, amount))
        return True

    # --- queues

    def _move_queues(self, rank: int) -> None:
        """Stand-in kernels that take longer than was known move the ends of their queues."""
        one = self._ranks[rank]
        for queue, end in self._under_way.queue_ends(rank):
            one.queues[queue] = max(one.queues[queue], end)
            one.engines["within_device"] = max(one.engines["within_device"], end)

    def _until(self, rank: int, queue: int) -> float:
        self._move_queues(rank)
        queues = self._ranks[rank].queues
        return max(queues.values(), default=0.0) if queue < 0 else queues[queue]

    def _sync(self, rank: int, queue: int) -> bool:
        """Ends a wait for a queue, or all, where its end is known: collectives beside its kernels make them longer."""
        until = self._until(rank, queue)
        if until > self._under_way.now and not self._under_way.settled(rank):
            return False
        self._ranks[rank].spend("sync", until)
        return True

    def _first_sync(self, waiting: set[int]) -> float:
        """When the first of the ranks that wait for their kernels, as far as these are known, has none to wait for."""
        first = math.inf
        for rank in waiting:
            at, rows = self._ranks[rank].at, self._rows[rank]
            if not self._under_way.settled(rank) and (at == len(rows) or rows[at][0] == SYNC):
                until = self._until(rank, rows[at][2] if at < len(rows) else -1)
                first = min(first, until) if until > self._under_way.now else first
        return first

    # --- messages

    def _wait(self, rank: int) -> bool:
        """Ends a wait where all of what it needs is known: the other ends' posts, and when collectives are over."""
        one = self._ranks[rank]
        if one.waits_since < 0:
            one.waits_since = one.now
            self._come(rank)
        for peer, number in one.sends:
            if number >= len(self._posted["received", rank, peer]):
                return False
        for peer, number in one.receives:
            if number >= len(self._posted["sent", peer, rank]):
                return False
        if any(job.over == math.inf for job in one.begun):
            return False
        if one.sends or one.receives:
            over = self._messages_over(rank, math.inf)
            one.wait("message", one.now + over - self._messages_over(rank, one.now))
            one.spend("message", over)
        # The host's thread, where it carries them out, has messages first.
        later = 0.0 if self._ahead else one.now - one.waits_since
        for job in one.begun:
            one.wait("collective", job.last)
            one.spend("collective", job.over + later)
        one.sends, one.receives, one.begun, one.waits_since = [], [], [], -1.0
        return True

    def _come(self, rank: int) -> None:
        """A rank that waits comes to what it has begun and what goes on in waits alone."""
        one = self._ranks[rank]
        for job in one.to_come:
            self._under_way.come(job, rank, one.now)
        one.to_come = []

    def _messages_over(self, rank: int, latest: float) -> float:
        """When a rank's messages are over, if no other end posts its own later than `latest`."""
        one = self._ranks[rank]
        if self._shared is not None:
            posted = [self._posted["sent", rank, peer][number] for peer, number in one.sends]
            posted += [self._posted["sent", peer, rank][number] for peer, number in one.receives]
            others = [self._posted["received", rank, peer][number][0] for peer, number in one.sends]
            if not posted:
                return one.now
            at = one.at
            phase = self._program.ranks[rank].steps.item(at) if at < len(self._rows[rank]) else -1
            begin = max(one.now, *(min(when, latest) for when in (*(when for when, _ in posted), *others)))
            return begin + self._shared.messages_ns(rank, phase, sum(size for _, size in posted))
        both = bool(one.sends) and bool(one.receives)
        over = one.now
        if self._in_turn:
            return self._groups_over(rank, latest)
        for pairs, mine, theirs in (
            (one.sends, "sent", "received"), (one.receives, "received", "sent"),
        ):  # fmt: skip
            free = 0.0
            for peer, number in pairs:
                ends = (rank, peer) if mine == "sent" else (peer, rank)
                when, size = self._posted[mine, ends[0], ends[1]][number]
                other = min(latest, self._posted[theirs, ends[0], ends[1]][number][0])
                alone, gap, slower = self._costs.message_ns(size)
                factor = slower if both else 1.0
                begin = max(when, other, free)
                free = begin + gap * factor
                over = max(over, begin + alone * factor)
        return over

    def _groups_over(self, rank: int, latest: float) -> float:
        """The same where messages go in turn: those that a rank posted at one time are a group, which begins when the
        one before it is over. Right behind that it takes the time of one that a stream goes on to."""
        one = self._ranks[rank]
        groups: dict[float, list[tuple[bool, float, int]]] = collections.defaultdict(list)
        for sends, pairs in ((True, one.sends), (False, one.receives)):
            for peer, number in pairs:
                mine, theirs = ("sent", "received") if sends else ("received", "sent")
                ends = (rank, peer) if sends else (peer, rank)
                when, size = self._posted[mine, ends[0], ends[1]][number]
                groups[when].append((sends, min(latest, self._posted[theirs, ends[0], ends[1]][number][0]), size))
        free = -1.0
        for when, messages in sorted(groups.items()):
            begin = max(when, free, *(other for _, other, _ in messages))
            lengths = {True: 0.0, False: 0.0}
            slower = 1.0
            for sends, _, size in messages:
                alone, gap, both = self._costs.message_ns(size)
                lengths[sends] += gap if lengths[sends] or begin == free else alone
                slower = max(slower, both)
            free = begin + max(lengths.values()) * (slower if all(lengths.values()) else 1.0)
        return max(free, one.now)

    # --- collectives

    def _collective(self, rank: int, number: int) -> bool:
        one = self._ranks[rank]
        wanted = self._program.collectives[number]
        barrier, job = wanted.pattern == "barrier", one.stands_at
        if job is None:
            job = self._job(rank, wanted)
            job.straight = job.straight and one.now == one.left
            if wanted.begun and not self._at_once:
                one.begun.append(job)
                if self._ahead:
                    self._under_way.come(job, rank, one.now)
                else:
                    one.to_come.append(job)
                return True
            self._come(rank)
            one.stands_at = job
            if barrier:
                job.come(one.now)
            else:
                self._under_way.come(job, rank, one.now)
        if job.last == math.inf:
            return False
        if barrier:
            job.over = job.last + self._length(wanted, behind=job.straight)
        elif job.over == math.inf and not self._under_way.end_at_once(job):
            return False
        kind = "barrier" if barrier else "collective"
        one.wait(kind, job.last)
        one.spend(kind, job.over)
        one.stands_at, one.left = None, one.now
        return True

    def _job(self, rank: int, wanted: Collective) -> Job:
        """The collective to which a rank comes next of those of the same ranks."""
        jobs, use = self._jobs[wanted.ranks], self._uses[rank][wanted.ranks]
        self._uses[rank][wanted.ranks] += 1
        if use == len(jobs):
            jobs.append(Job(wanted, ALONE, len(wanted.ranks)) if wanted.pattern == "barrier"
                        else self._under_way.job(wanted, self._costs.slow_down(wanted.pattern)))  # fmt: skip
        return jobs[use]

    def _collective_ns(self, job: Job, next_in_line: bool) -> float:
        """Of a collective alone; `next_in_line`: it begins as the one before it of the same ranks ends."""
        return self._length(job.wanted, behind=job.straight or next_in_line, streamed=next_in_line and self._ahead)

    def _length(self, wanted: Collective, *, behind: bool, streamed: bool = False) -> float:
        if self._shared is not None:
            return self._shared.collective_ns(wanted)
        return self._costs.collective_ns(wanted, behind=behind, streamed=streamed)
