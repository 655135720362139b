"""Rounds of a run as they end: what shift they can show, and whether further rounds are needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from linkgauge.judge.small_shifts import middle
from linkgauge.model.case import Case
from linkgauge.model.quantity import change, format_duration, percent
from linkgauge.model.result import Measured
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.stats.power import Noise
from linkgauge.stats.small_shifts import ShiftsFound, between_sides

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_ASSUMED = (0.002, 0.005, 0.02)
"""Deviations of a round, by which a run says before it measures what it can show."""
_EVERY = 8
"""Rounds from one look to the next: a look takes a tenth of a second of a processor."""
MOST_ROUNDS = 500
"""Rounds that are planned where --repeat names no number: the plan's file has each case of each round."""


def planned_words(detect: float, round_s: float, limit_ns: int | None) -> list[str]:
    """Return what a shift needs before anything is measured, by some deviations of a round."""
    shift = math.log1p(detect)
    found = []
    for deviation in _ASSUMED:
        noise = Noise(math.sqrt(2) * deviation, 1, 2, round_s=round_s)
        rounds = noise.rounds_for(shift)
        found.append(f"{percent(deviation, 1)}: {rounds} rounds, {format_duration(rounds * round_s * 1e9)}")
    lines = [f"to see {percent(detect, 2)} with 95 %, by the deviation of a round: {'; '.join(found)}"]
    if limit_ns is not None and round_s > 0:
        seen = [(deviation, Noise(math.sqrt(2) * deviation, 1, 2).seen_in(int(limit_ns / 1e9 / round_s)))
                for deviation in _ASSUMED]  # fmt: skip
        words = (f"{percent(one, 1)}: {'no shift' if value is None else percent(math.expm1(value), 2)}"
                 for one, value in seen)  # fmt: skip
        lines.append(f"in the {format_duration(limit_ns)} given: {'; '.join(words)}")
    return lines


class Detecting:
    """A run's rounds, a round being a repeat. Two kinds of launches in each are two sides, measured by turns.

    With two sides the run ends when their shift is known. Else it ends when it has the rounds by which a comparison
    with another such run shows the shift with 95 %.
    """

    def __init__(self, detect: float, say: Callable[[str], object], limit_s: float | None = None) -> None:
        """Take the shift as a share, what prints what the rounds can show, and the time that the run has."""
        self._detect, self._say, self._limit_s = detect, say, limit_s
        self._times: dict[int, dict[tuple[LaunchSettings, str], float]] = {}
        self._began = time.monotonic()
        self._said = False

    def note(self, repeat: int, settings: LaunchSettings, case: Case, time_ns: float) -> None:
        """Take the time of a case in a round."""
        self._times.setdefault(repeat, {})[settings, case.case_key] = math.log(time_ns)

    def learn(self, run: Run, launches: Sequence[PlannedLaunch]) -> None:
        """Take the rounds that a run has already, whose plan has these launches."""
        from linkgauge.stats.summary import results_of

        settings = {launch.number: launch.settings for launch in launches}
        for row in results_of(run):
            if isinstance(row, Measured) and row.is_headline and row.planned_launch in settings:
                self.note(row.repeat, settings[row.planned_launch], row.case, row.median_ns)

    def enough(self) -> bool:
        """Whether the rounds so far are enough; says once what they can show, and at the end what they showed."""
        if len(self._times) % _EVERY:
            return False
        found, sides = self.found()
        if found.noise is None or found.needed is None:
            return False
        if not self._said:
            self._said = True
            self._say(self._power(found.noise, found.needed))
        if sides and found.decided:
            shift = found.members[0]
            self._say(
                f"after {len(self._times)} rounds: the second side is {shift.verdict}, by {change(shift.share, 2)} "
                f"({change(shift.low, 2)} to {change(shift.high, 2)})"
            )
            return True
        if sides or len(self._times) < found.needed:
            return False
        self._say(f"after {len(self._times)} rounds: a comparison shows {percent(self._detect, 2)} with 95 %")
        return True

    def found(self) -> tuple[ShiftsFound, bool]:
        """Return what the rounds show, and whether it is of two sides."""
        rounds = [self._times[repeat] for repeat in sorted(self._times)]
        kinds = list(dict.fromkeys(kind for row in rounds for kind, _ in row))
        sides = len(kinds) == 2
        if sides:
            first, second = kinds
            values = [
                middle([value - row[first, key] for (kind, key), value in row.items()
                         if kind == second and (first, key) in row])
                for row in rounds
            ]  # fmt: skip
            sides = bool(np.isfinite(values).any())
        if not sides:
            levels = [middle([row[key] - rounds[0][key] for key in row.keys() & rounds[0].keys()]) for row in rounds]
            count = len(levels) // 2
            values = [levels[2 * at + 1] - levels[2 * at] for at in range(count)]  # as neighbors of two sides differ
        round_s = (time.monotonic() - self._began) / max(len(rounds), 1)
        return between_sides(np.reshape(values, (len(values), 1)), self._detect, round_s=round_s), sides

    def _power(self, noise: Noise, needed: int) -> str:
        takes = f"{needed} rounds, {format_duration(needed * noise.round_s * 1e9)}"
        words = [f"to see {percent(self._detect, 2)} with 95 % on this machine: {takes}"]
        if self._limit_s is not None and noise.round_s > 0:
            seen = noise.seen_in(int(self._limit_s / noise.round_s))
            shown = "no shift" if seen is None else percent(math.expm1(seen), 2)
            words.append(f"in the {format_duration(self._limit_s * 1e9)} given: {shown}")
        return "; ".join(words)
