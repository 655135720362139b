"""What an application takes, from curves that were measured or that links allow: every rank followed through its steps,
each as long as its curve says, with what it waits for.

- A message takes the half round trip of its size; a rank sends its messages one after the other, each as long after the
  one before as messages of a window are, and receives them so too (LogGP's L and g: Alexandrov et al. 1995). Where a
  rank sends and receives between two waits, both take as much longer as both ways at once do.
- Of four ranks or more, messages' curves are those of pairs side by side, where the run has them: that is how ranks
  share what lies between them. Copies that several ranks have at one step are as long as those of all devices at once;
  those within a device as long as alone. None takes less than its share of a copy as large as all that go its way in
  turn, whose curve knows whether a cache holds them.
- A collective begins when its last rank has come, and takes its curve's time: where it is begun and waited for later,
  that of such a one, if the run has it (MPI libraries take other algorithms there). Where all ranks come straight from
  another collective, it takes what one behind a barrier does, if the run has that: at an agreed time ranks come with
  cold caches and up to a microsecond apart, of which small ones take as much. One that was begun goes on beside
  what follows where its transport has a processor of its own (ccl), else within the wait.
- What is in a queue goes on beside the host thread; copies of one direction, of whichever queues, one after the other.
- A collective and the rank's stand-in kernels cost each other, while both are under way, what a run has measured of
  that (slow_downs.py); where none has, nothing. What else waits in a kernel's queue behind it is not moved.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from linkgauge.apps.program import AFTER, COLLECTIVE, COMPUTE, COPY, END, LOOP, SEND, SYNC, WAIT, Collective, Program
from linkgauge.apps.step_file import COPIES
from linkgauge.errors import UsageError
from linkgauge.expect.curves import BEGUN, BEHIND, Curve, Curves, Row, of_blocks
from linkgauge.expect.slow_downs import SlowDown, SlowDowns, Work, together
from linkgauge.model.patterns import PATTERNS, sent_and_received
from linkgauge.model.transports import TRANSPORTS

MOST_STEPS = 2_000_000  # of all ranks
OWN_PROCESSOR = ("ccl",)
_COPY_CURVES = {"host_to_device": "host_to_device", "device_to_host": "device_to_host", "within_device": "local_copy"}
_FIRST_WINDOW = 16


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """By what an application's steps are carried out."""

    transport: str
    collectives: str
    memory: tuple[str, str] = ("device", "device")
    copies: str = ""  # kernel; "" the copy engine
    blocks: int = 0  # that a stand-in kernel by kernel may take; 0: all that it likes
    name: str = dataclasses.field(default="", compare=False)  # where published curves have one for it

    @property
    def words(self) -> str:
        """What people are shown."""
        words = [self.transport]
        words += [f"collectives by {self.collectives}"] * (self.collectives != self.transport)
        words += [f"copies by {self.copies}{f' of {self.blocks} blocks' if self.blocks else ''}"] * bool(self.copies)
        return self.name or ", ".join(words)


@dataclasses.dataclass(frozen=True)
class OverlapTime:
    """Of a rank's iteration, ns: how long stand-in kernels and collectives are under way, and how much of that each
    loses to the other. `any`: some are under way together. `by`: the measured slow-downs that say what that costs;
    empty where it is taken as free."""

    work: float = 0.0
    work_lost: float = 0.0
    collective: float = 0.0
    collective_lost: float = 0.0
    any: bool = False
    by: tuple[SlowDown, ...] = ()


@dataclasses.dataclass(frozen=True)
class Predicted:
    """An iteration: its time in ns on each rank, and how much of that by kind of step (stats/step_times.py)."""

    ranks_ns: tuple[float, ...]
    kinds_ns: tuple[dict[str, float], ...]
    overlaps: tuple[OverlapTime, ...] = ()  # by rank

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
    program: Program, curves: Curves, mechanism: Mechanism, shared: Shared | None = None, slow: SlowDowns | None = None
) -> Predicted:
    """What one iteration takes. UsageError where a curve is missing, or there are more than MOST_STEPS steps.

    `slow`: what collectives and stand-in kernels cost each other; None: nothing.
    """
    if sum(one.executed for one in program.ranks) > MOST_STEPS:
        raise UsageError(f"{program.file.name}: more than {MOST_STEPS} steps to follow: expected fewer; set less")
    return _Following(program, curves, mechanism, shared, slow).run()


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
    begun: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (collective's group use, number)
    works: list[Work] = dataclasses.field(default_factory=list)  # stand-in kernels that may not have ended yet
    begun_over: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)  # ends of those of `begun`
    overlap: OverlapTime = OverlapTime()
    came: bool = False  # to the collective that it stands at
    left: float = -1.0  # when it left the last collective that it waited for at once
    ended: bool = False

    def spend(self, kind: str, until: float) -> None:
        if until > self.now:
            self.kinds[kind] += until - self.now
            self.now = until


class _Following:
    def __init__(
        self, program: Program, curves: Curves, mechanism: Mechanism, shared: Shared | None, slow: SlowDowns | None
    ) -> None:
        self._slow = slow
        self._program = program
        self._shared = shared
        self._curves = curves
        self._by = mechanism
        count = len(program.ranks)
        self._count = count
        self._ranks = [_Rank() for _ in program.ranks]
        self._posted: dict[tuple[str, int, int], list[tuple[float, int]]] = collections.defaultdict(list)
        self._met: dict[tuple[int, ...], list[dict[int, float]]] = collections.defaultdict(list)
        self._uses: list[dict[tuple[int, ...], int]] = [collections.defaultdict(int) for _ in program.ranks]
        self._message_cache: dict[int, tuple[float, float, float]] = {}
        self._copies: dict[tuple[str, bool], Curve] = {}
        self._collectives: dict[tuple[str, int, str], Curve | None] = {}
        self._apart: set[tuple[tuple[int, ...], int]] = set()  # collectives to which a rank came from something else
        # How many ranks have the copies of a step of the file.
        self._sharers: dict[int, set[int]] = collections.defaultdict(set)
        for rank, one in enumerate(program.ranks):
            for step in one.steps[np.isin(one.rows[:, 0], (COPY, COMPUTE))].tolist():
                self._sharers[step].add(rank)
        self._rows: list[list[list[int]]] = [one.rows.tolist() for one in program.ranks]

    def run(self) -> Predicted:
        waiting = set(range(self._count))
        while waiting:
            moved = [rank for rank in sorted(waiting) if self._advance(rank)]
            waiting = {rank for rank in waiting if not self._ranks[rank].ended}
            if not moved and waiting:
                raise UsageError(f"{self._program.file.name}: its ranks wait for each other: expected an end")
        for one in self._ranks:
            self._forget(one, math.inf)
        return Predicted(
            tuple(one.now for one in self._ranks), tuple(dict(one.kinds) for one in self._ranks),
            tuple(one.overlap for one in self._ranks),
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
        if self._wait(rank) and not one.ended:
            one.spend("sync", max(one.queues.values(), default=0.0))
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
            ns = self._copy(rank, name, amount)
            if queue < 0:
                one.spend(name, one.now + ns)
            else:
                begin = max(one.queues[queue], one.now, one.engines[name])
                one.queues[queue] = one.engines[name] = begin + ns
                if kind == COMPUTE:
                    self._forget(one, one.now)
                    one.works.append(Work(begin, ns, queue))
        elif kind == SYNC:
            self._end_begun(one)
            until = max(one.queues.values(), default=0.0) if queue < 0 else one.queues[queue]
            one.spend("sync", until)
        elif kind == AFTER:
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

    def _copy(self, rank: int, name: str, size: int) -> float:
        together = len(self._sharers[self._program.ranks[rank].steps.item(self._ranks[rank].at)]) > 1
        key = (name, together)
        if key not in self._copies:
            counts = (self._count, 1) if together else (1, self._count)
            # The host's ends are pageable where the messages' buffers are (core/operation/application.cpp).
            hosts = ("pageable", "pinned") if self._by.memory[0] == "pageable" else ("pinned",)
            memories = [("device", "device")]
            if name != "within_device":
                memories = [(host, "device") if name == "host_to_device" else ("device", host) for host in hosts]
            pattern = _COPY_CURVES[name]
            by = self._by.copies or "copy_engine"
            # Of as many thread blocks where the run has them, else of what the kernel likes.
            of = [*dict.fromkeys((of_blocks(self._by.blocks), ""))]
            found = (self._curves.find(pattern, by, memory, counts, variant=one) for one in of for memory in memories)
            self._copies[key] = next(filter(None, found), None) or self._curves.need(pattern, by, memories[-1], counts)
        curve, through = self._copies[key], max(size, self._program.ranks[rank].copied[COPIES.index(name)])
        return max(curve(size), size * curve(through) / through)

    # --- messages

    def _message(self, size: int) -> tuple[float, float, float]:
        """Of a message: its time alone, that from one to the next, and how much longer they are both ways at once."""
        if size not in self._message_cache:
            curves, by = self._curves, (self._by.transport, self._by.memory)
            several = self._count >= 4
            alone = self._curve("pingpong", several)(size) / 2
            one_way = self._curve("unidirectional", several)(size)
            both = self._curve("bidirectional", several)(size)
            windowed = curves.find("unidirectional", *by, (2,), _FIRST_WINDOW)
            gap = one_way if windowed is None else min(one_way, windowed(size) / _FIRST_WINDOW)
            self._message_cache[size] = alone, gap, max(1.0, both / one_way)
        return self._message_cache[size]

    def _curve(self, pattern: str, several: bool) -> Curve:
        by = (self._by.transport, self._by.memory)
        side_by_side = self._curves.find(f"pairs_{pattern}", *by, (self._count,)) if several else None
        return side_by_side or self._curves.need(pattern, *by, (2,))

    def _wait(self, rank: int) -> bool:
        """Ends a wait where all of what it needs is known: the other ends' posts, and who comes to collectives."""
        one = self._ranks[rank]
        for peer, number in one.sends:
            if number >= len(self._posted["received", rank, peer]):
                return False
        for peer, number in one.receives:
            if number >= len(self._posted["sent", peer, rank]):
                return False
        for number, use in one.begun:
            ranks = self._program.collectives[number].ranks
            if len(self._met[ranks][use]) < len(ranks):
                return False
        one.spend("message", self._messages_over(rank))
        for number, use in one.begun:
            one.spend("collective", one.begun_over.get((number, use)) or self._begun_over(one, number, use))
        one.sends, one.receives, one.begun, one.begun_over = [], [], [], {}
        return True

    def _begun_over(self, one: _Rank, number: int, use: int) -> float:
        wanted = self._program.collectives[number]
        begin = max(self._met[wanted.ranks][use].values())
        ahead = self._by.collectives in OWN_PROCESSOR
        return self._beside_works(one, begin if ahead else max(begin, one.now), wanted)

    def _end_begun(self, one: _Rank) -> None:
        """Before a wait for kernels: collectives that went ahead beside them have made them longer. Those to which a
        rank is not known to have come begin as if it had."""
        if self._by.collectives not in OWN_PROCESSOR or not one.begun or not one.works:
            return
        if self._slow is None:
            one.overlap = dataclasses.replace(one.overlap, any=True)
            return
        for number, use in one.begun:
            if (number, use) not in one.begun_over:
                one.begun_over[number, use] = self._begun_over(one, number, use)

    def _beside_works(self, one: _Rank, begin: float, wanted: Collective, behind: bool = False) -> float:
        """When a collective of the rank ends that begins then; its stand-in kernels that are under way end later."""
        length = self._collective_ns(wanted, behind)
        over, told, slow = begin + length, one.overlap, None
        beside = any(work.end > begin for work in one.works)
        if self._slow is not None and beside:
            slow = self._slow.find(wanted.pattern, self._by.collectives, self._by.copies or "copy_engine",
                                   self._by.blocks)  # fmt: skip
        if slow is not None:
            over = together(begin, length, one.works, slow)
            for work in one.works:
                one.queues[work.queue] = max(one.queues[work.queue], work.end)
            one.engines["within_device"] = max(one.engines["within_device"], one.works[-1].end)
        one.overlap = dataclasses.replace(
            told, collective=told.collective + over - begin, any=told.any or beside,
            collective_lost=told.collective_lost + over - begin - length,
            by=told.by if slow is None or slow in told.by else (*told.by, slow),
        )  # fmt: skip
        return over

    @staticmethod
    def _forget(one: _Rank, now: float) -> None:
        """Counts the stand-in kernels that have ended."""
        while one.works and one.works[0].end <= now:
            work, told = one.works.pop(0), one.overlap
            one.overlap = dataclasses.replace(told, work=told.work + work.length, work_lost=told.work_lost + work.lost)

    def _messages_over(self, rank: int) -> float:
        one = self._ranks[rank]
        if self._shared is not None:
            posted = [self._posted["sent", rank, peer][number] for peer, number in one.sends]
            posted += [self._posted["sent", peer, rank][number] for peer, number in one.receives]
            others = [self._posted["received", rank, peer][number][0] for peer, number in one.sends]
            if not posted:
                return one.now
            at = one.at
            phase = self._program.ranks[rank].steps.item(at) if at < len(self._rows[rank]) else -1
            begin = max(one.now, *(when for when, _ in posted), *others)
            return begin + self._shared.messages_ns(rank, phase, sum(size for _, size in posted))
        both = bool(one.sends) and bool(one.receives)
        over = one.now
        for pairs, mine, theirs in (
            (one.sends, "sent", "received"), (one.receives, "received", "sent"),
        ):  # fmt: skip
            free = 0.0
            for peer, number in pairs:
                ends = (rank, peer) if mine == "sent" else (peer, rank)
                when, size = self._posted[mine, ends[0], ends[1]][number]
                other, _ = self._posted[theirs, ends[0], ends[1]][number]
                alone, gap, slower = self._message(size)
                factor = slower if both else 1.0
                begin = max(when, other, free)
                free = begin + gap * factor
                over = max(over, begin + alone * factor)
        return over

    # --- collectives

    def _collective(self, rank: int, number: int) -> bool:
        one = self._ranks[rank]
        wanted = self._program.collectives[number]
        met = self._met[wanted.ranks]
        if not one.came:
            use = self._uses[rank][wanted.ranks]
            self._uses[rank][wanted.ranks] += 1
            if use == len(met):
                met.append({})
            met[use][rank] = one.now
            if one.now != one.left:
                self._apart.add((wanted.ranks, use))
            if wanted.begun:
                one.begun.append((number, use))
                return True
            one.came = True
        use = self._uses[rank][wanted.ranks] - 1
        if len(met[use]) < len(wanted.ranks):
            return False
        one.came = False
        begin, barrier = max(met[use].values()), wanted.pattern == "barrier"
        kind = "barrier" if barrier else "collective"
        behind = (wanted.ranks, use) not in self._apart
        one.spend(
            kind,
            begin + self._collective_ns(wanted, behind) if barrier else self._beside_works(one, begin, wanted, behind),
        )
        one.left = one.now
        return True

    def _collective_ns(self, wanted: Collective, behind: bool = False) -> float:
        if self._shared is not None:
            return self._shared.collective_ns(wanted)
        size = wanted.size
        if wanted.distribution and PATTERNS[wanted.pattern].distributed:
            ranks = len(wanted.ranks)
            sent, received = sent_and_received(wanted.pattern, ranks, size, wanted.distribution)
            even, _ = sent_and_received(wanted.pattern, ranks, size, "")
            size = round(size * max(*sent, *received) / max(even))
        found = self._collective_curve(wanted, BEHIND) if behind else None
        if found is None or size > found.sizes[-1]:  # large ones are alike, and not measured twice
            found = self._collective_curve(wanted, BEGUN if wanted.begun else "")
        assert found is not None
        return found(size)

    def _collective_curve(self, wanted: Collective, variant: str) -> Curve | None:
        key = (wanted.pattern, len(wanted.ranks), variant)
        if key not in self._collectives:
            of = (wanted.pattern, self._by.collectives, self._by.memory, (len(wanted.ranks),))
            found = self._curves.find(*of, variant=variant) if variant else None
            self._collectives[key] = found if found is not None or variant == BEHIND else self._curves.need(*of)
        return self._collectives[key]


def mechanism_of(row: Row) -> Mechanism:
    """The mechanism of a measured application's row."""
    memory = (row["source_memory"], row["target_memory"])
    copies, collectives = row.get("copies", ""), row["collectives"] or row["transport"]
    return Mechanism(row["transport"], collectives, memory, copies, row.get("blocks", 0) if copies else 0)


def known_transports(rows: Sequence[Row]) -> list[str]:
    """The transports that a run has messages' curves of, of a run without any collectives', in the order of tables."""
    measured = [row for row in rows if row["median_ns"] is not None]
    found = {row["transport"] for row in measured if row["pattern"] == "pingpong"}
    found = found or {row["transport"] for row in measured if PATTERNS[row["pattern"]].collective}
    return [name for name in TRANSPORTS if name in found]
