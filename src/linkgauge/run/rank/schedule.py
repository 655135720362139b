"""What is measured next in a launch: rank 0's choice before each case, which the other ranks follow.

The order is the parent's. Left out are sizes beyond a full curve, cases of a transport that has failed too often, and,
where time is short, cases that would not be over in time: those that come after them may be.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from linkgauge.plan.curves import FULL, Curves, LeftOut, Point
from linkgauge.plan.pace import Pace
from linkgauge.run.rank.fitting import TELLING, Fitting, in_order, moved
from linkgauge.run.wire.spec import CaseEntry, WorkerSpec

_UNTOLD = 64 << 10  # bytes: what is tried though no rate is known
_MOST_PASSED_OVER = 1000  # for want of time: looking further would take what time is left


class Schedule:
    """The cases of a launch that are still to be measured."""

    def __init__(self, spec: WorkerSpec, clock: Callable[[], float] = time.time) -> None:
        """All of the spec's cases, in its order."""
        self._spec = spec
        self._clock = clock
        self._left = in_order(spec.cases)
        self._fitting = Fitting(spec.cases)
        self._explicit = {entry.case.case_key for entry in spec.cases if entry.case.size_requested != FULL}
        self._curves = Curves(spec.curves)
        self._pace = Pace()
        self._began = 0.0

    def next(
        self,
        exhausted: Callable[[CaseEntry], bool],
        leave_out: Callable[[CaseEntry, LeftOut | None], None],
    ) -> CaseEntry | None:
        """The next case, its size known; None where none is left that can be over in time (`left` says whether any).

        `exhausted`: whether a case's transport is. `leave_out` is told of each case that is not to be measured, and
        why; None: it is another case of the launch.
        """
        self._began = self._clock()
        place = 0
        while place < min(len(self._left), _MOST_PASSED_OVER):
            entry = self._left[place]
            if exhausted(entry):
                del self._left[place]  # the parent says so of all of them
                continue
            if not self._has_time(entry):
                place += 1
                continue
            if entry.fits and (first := self._telling(entry)) is not None:
                place, entry = first
            del self._left[place]
            step = entry.step
            if entry.fits:
                size, why = self._fitting.fitting(entry.case)
                found_at = entry if size == entry.case.size_requested else entry.resolved(size)
                if why is None and (found_at is entry or found_at.case.case_key not in self._explicit):
                    return found_at
                leave_out(entry, why)
                continue
            if step is None:
                return entry
            if step.until is not None:
                found = self._curves.left_out(step, entry.case.size_requested)
                if found is None:
                    return entry
                leave_out(entry, found)
                continue
            found_at = entry.resolved(self._curves.full_size(step.curve) or entry.case.size)
            if found_at.case.case_key not in self._explicit:
                return found_at
            leave_out(entry, None)
        return None

    def _telling(self, entry: CaseEntry) -> tuple[int, CaseEntry] | None:
        """Which case of the transport to measure before a large one, so that its rate is known; None: it is known."""
        case = entry.case
        if moved(case, case.size) <= _UNTOLD or self._fitting.knows(case.transport):
            return None
        able = [(moved(one.case, one.case.size), place) for place, one in enumerate(self._left)
                if one.fits and one.case.transport == case.transport and self._has_time(one)]  # fmt: skip
        telling = min((some for some in able if some[0] >= TELLING), default=None)
        return None if telling is None else (telling[1], self._left[telling[1]])

    @property
    def left(self) -> int:
        """How many cases are left."""
        return len(self._left)

    def ended(self, entry: CaseEntry, point: Point | None) -> None:
        """A case that `next` gave has ended; with the time and goodput that it has, if it has."""
        if self._spec.end_by is not None:
            planned = self._spec.cases[entry.index].case
            self._pace.note(planned, self._spec.estimates_s[entry.index], self._clock() - self._began)
        if entry.fits and point is not None:
            self._fitting.note(entry.case, point)
        if entry.step is None:
            return
        if entry.step.until is None:
            self._curves.note_full(entry.step.curve, entry.case.size_requested)
        elif point is not None:
            self._curves.note(entry.step.curve, entry.case.size_requested, point)

    def _has_time(self, entry: CaseEntry) -> bool:
        if self._spec.end_by is None:
            return True
        estimated_s = self._pace.corrected_s(entry.case, self._spec.estimates_s[entry.index])
        return self._clock() + estimated_s <= self._spec.end_by
