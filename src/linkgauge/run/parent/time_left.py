"""How long a run still takes: the estimates of the cases left, each corrected by what such cases have really taken.

One ratio for all would be wrong where links are slow: small messages then take what was estimated, and large ones,
which may come last, a hundred times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from linkgauge.model.case import Case
from linkgauge.plan.estimate import case_s
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.pace import Pace

_AGAIN = 50  # asked again only after so many times what the last answer took: 10,000 cases take some 50 ms


class TimeLeft:
    """The time left of a run, in seconds; cheap to ask often."""

    def __init__(
        self, left: Callable[[], Iterable[Case]], machine: PlanMachine, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take who says which cases are left."""
        self._left = left
        self._machine = machine
        self._clock = clock
        self._pace = Pace()
        self._began = 0.0
        self._answer = 0.0
        self._asked_until = 0.0

    def begin(self) -> None:
        """A case begins."""
        self._began = self._clock()

    def ended(self, case: Case) -> None:
        """The case that began last has ended: measured, or given up."""
        if self._began:
            self._pace.note(case, case_s(case, self._machine), self._clock() - self._began)
        self._began = 0.0

    def __call__(self) -> float:
        """Seconds."""
        now = self._clock()
        if now >= self._asked_until:
            self._answer = sum(self._pace.corrected_s(case, case_s(case, self._machine)) for case in self._left())
            self._asked_until = now + _AGAIN * (self._clock() - now)
        return self._answer
