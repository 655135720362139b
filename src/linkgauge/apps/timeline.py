"""What went on at times on a device and its host, as the steps of a rank: where it computes, begins and waits.

A step file's `wait` is for all that is under way. So where something waits for a collective, later ones of the same
communicator, which could not go on before, begin behind the wait; and the wait stands where that collective ended.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping

from linkgauge.apps.trace_steps import RankSteps, Timed

_WIDEST = 20_000  # steps back in which what is under way is looked for
_WAIT = -1.0
Line = tuple[object, ...]


@dataclasses.dataclass(frozen=True)
class Event:
    """Something on a device; all times in ns. Without `act` it is computing.

    `act`: does it, given whether it is begun and waited for later. `sends`: it is nothing but messages that are sent.
    `launched`: when the host gave it to the device; None: not known. `line`, `place`: what is in one line goes on one
    after the other. `needs`: up to which place of each line it waits for what communicates; None: that is not known,
    and it waits for all that ended before. `ready`: since when it could begin, where it stood in a line. `blocked`:
    when the host itself last waited, before it launched this: its begin and end.
    """

    begin: float
    end: float
    number: int
    act: Callable[[bool], None] | None = None
    sends: bool = False
    launched: float | None = None
    line: Line = ()
    place: int = 0
    needs: Mapping[Line, int] | None = None
    ready: float | None = None
    blocked: tuple[float, float] | None = None

    @property
    def at(self) -> float:
        """When it comes in the order of steps."""
        return self.begin if self.ready is None else min(self.begin, self.ready)

    def on_its_way(self, done: float) -> float:
        """Until when the host had other things to do than to launch this, which waits for what ends at `done`."""
        if self.blocked is not None and self.blocked[0] < done <= self.blocked[1]:
            return self.blocked[0]  # the host itself waited for it
        return self.launched or 0.0

    def waits_for(self, other: Event) -> bool:
        """Whether it begins only when something that communicates is over."""
        if self.needs is None:
            return other.end <= self.begin
        # What stands in one line needs no wait: the library keeps the order.
        same = self.act is not None and self.line == other.line
        return not same and self.needs.get(other.line, -1) >= other.place


@dataclasses.dataclass(eq=False)
class _Item:
    """A step: of an event, else of so many ns of computing, or a wait (_WAIT)."""

    at: float
    event: Event | None = None
    ns: float = 0.0
    begun: bool = True

    @property
    def of(self) -> Event:
        """The event of one that communicates."""
        assert self.event is not None
        return self.event


def follow(rank: RankSteps, events: Iterable[Event]) -> None:
    """Fill a rank with what went on, by its begin."""
    plan = _Plan(rank)
    for event in sorted(events, key=lambda one: (one.at, one.act is None, one.end, one.number)):
        plan.add(event)
        rank.launches += 1
    plan.end()
    rank.busy_ns += plan.busy_ns
    for item in plan.items:
        if item.event is not None and item.event.act is not None:
            rank.at(item.event.number)
            before = len(rank.steps)
            item.event.act(item.begun)
            if len(rank.steps) > before and item.event.end < math.inf:
                length = item.event.end - item.event.begin
                rank.timed.append(Timed(rank.steps[-1], length, *plan.exposed.get(item.event.number, (0.0, 0.0))))
        elif item.ns == _WAIT:
            rank.wait()
        else:
            rank.compute(round(item.ns))


class _Plan:
    def __init__(self, rank: RankSteps) -> None:
        self.items: list[_Item] = []
        self._rank = rank
        self._open: list[_Item] = []  # what communicates and was not waited for
        self._first: dict[Line, int] = {}  # of each line the first place of these
        self._busy: float | None = None  # until when the device computes
        self.busy_ns = 0.0  # in which it does
        # Of what communicates, by number: how long the device waits for it with nothing to compute; and of that, since
        # nothing was computed while it went on.
        self.exposed: dict[int, tuple[float, float]] = {}

    def add(self, event: Event) -> None:
        """The event behind what is there, with what it waits for."""
        needed = [one for one in self._open if event.waits_for(one.of)] if self._may_wait(event) else []
        if self._rank.eager and all(one.of.sends for one in needed):
            self._keep([one for one in self._open if one not in needed])
            needed = []
        self._expose(needed, event)
        before, after = self._idle(event, max((one.of.end for one in needed), default=-math.inf))
        self._compute(self._busy or 0.0, before)
        if needed:
            self._wait(event, needed)
        self._compute(event.at - after, after)
        if event.act is None:
            # What several streams compute at once counts once.
            alone = max(0.0, event.end - max(event.begin, self._busy or 0.0))
            self._compute(event.begin, alone)
            self.busy_ns += alone
            self._busy = max(event.end, self._busy or 0.0)
        else:
            self._open.append(_Item(event.at, event))
            self._first.setdefault(event.line, event.place)
            self.items.append(self._open[-1])
            if event.launched is not None:
                self._busy = max(event.at, self._busy or 0.0)

    def end(self) -> None:
        """The end of the trace, which waits for all."""
        self._expose([one for one in self._open if one.of.end < math.inf])

    def _may_wait(self, event: Event) -> bool:
        """Whether it waits for anything: most do not, and much may be under way."""
        needs = event.needs
        return needs is None or any(needs.get(line, -1) >= place for line, place in self._first.items())

    def _keep(self, under_way: list[_Item]) -> None:
        self._open, self._first = under_way, {}
        for one in under_way:
            self._first.setdefault(one.of.line, one.of.place)

    def _expose(self, needed: list[_Item], event: Event | None = None) -> None:
        """What is waited for while nothing is computed, though the host has said what comes next."""
        done = max((one.of.end for one in needed), default=-math.inf)
        since = max(self._busy or 0.0, 0.0 if event is None else event.on_its_way(done))
        for one in sorted(needed, key=lambda one: one.of.end):
            begin = max(since, one.of.at)
            if begin < one.of.end < math.inf:
                at_once = one.of.at >= (self._busy or 0.0)
                length = one.of.end - begin
                self.exposed[one.of.number] = (length, length if at_once else 0.0)
                since = one.of.end

    def _idle(self, event: Event, done: float) -> tuple[float, float]:
        """How long the device has nothing to do before the event, but for what it waits for, which ends at `done`:
        before that wait, in which the host is on its way, and after it."""
        if event.launched is None or self._busy is None or event.at <= self._busy:
            return 0.0, 0.0
        since = event.on_its_way(done)
        idle = event.at - self._busy
        before = idle if done <= since else min(max(0.0, since - self._busy), idle)
        after = 0.0 if done <= since else max(0.0, event.at - max(done, self._busy, since))
        if event.launched > self._busy:
            self._rank.idle_ns += before + after
        return (before, after) if self._rank.host_time else (0.0, 0.0)

    def _compute(self, at: float, ns: float) -> None:
        if ns > 0:
            self.items.append(_Item(at, None, ns))

    def _wait(self, event: Event, needed: list[_Item]) -> None:
        """A wait for some of what is under way, and for what is before them in their lines."""
        last: dict[Line, int] = {}
        for one in needed:
            last[one.of.line] = max(one.of.place, last.get(one.of.line, -1))
        others = [one for one in self._open if one.of.line not in last and one.of.end > event.begin]
        beside = self._tail({needed[0]}) if others and len(needed) == 1 and not needed[0].of.sends else None
        if beside is not None and all(one.event is not None for one in beside):
            # Nothing is computed beside it: it waits for itself alone.
            needed[0].begun = False
            self.items[-len(beside) :] = [*beside[1:], needed[0]]
            self._keep([one for one in self._open if one is not needed[0]])
            return
        if others:
            self._rank.lost["collectives of one communicator beside a wait for another's: it is for them too"] += 1
        later = [one for one in self._open if one.of.place > last.get(one.of.line, one.of.place)]
        ended = max(one.of.end for one in needed)
        tail = self._tail({*needed, *later})
        if not later or tail is None:
            self.items.append(_Item(event.at, None, _WAIT))
            self._keep([])
            return
        behind = max(tail.index(one) for one in needed) + 1
        while behind < len(tail) and tail[behind].at < ended:
            behind += 1
        moved = [one for one in tail[:behind] if one in later]
        for one in moved:
            one.at = max(one.at, ended)
        kept = [one for one in tail[:behind] if one not in moved]
        self.items[-len(tail) :] = [*kept, _Item(ended, None, _WAIT), *moved, *tail[behind:]]
        self._keep(later)

    def _tail(self, wanted: set[_Item]) -> list[_Item] | None:
        """The last steps, from the first of these on; None where that is too far back."""
        left = len(wanted)
        for count, item in enumerate(itertools.islice(reversed(self.items), _WIDEST), 1):
            left -= item in wanted
            if not left:
                return self.items[-count:]
        return None
