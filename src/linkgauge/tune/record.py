"""What a search has measured: launches in their order, how each setting compares with the default, what is ruled out.

A launch has one number a case: its median time. Effects are means over cases of logarithms of time, against the default
launches that lie nearest in time: -0.1 is a tenth less time.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Config = tuple[tuple[str, str], ...]
"""Variables and values, sorted by name; empty: the default, nothing is set."""
DEFAULT: Config = ()
NOT_READ = "the library does not read it"
_NEAREST = 3  # default launches that make a reference: one that was disturbed is not heeded
_USUAL_NOISE = 0.02  # until there are launches enough to tell
_LEAST_NOISE = 0.002
TELLING = 8  # gaps between measurements of one setting, for what noise one has
_OFTEN = 2  # launches with too few samples in their time, which a busy machine may make: then it is ruled out
_DISTURBED = 4.0  # noises that two launches lie apart, for the slower to be taken as disturbed


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A launch's medians in ns by case, of the objective and of guard cases; or why it does not count.

    `checked`: by case, of how many operations every byte was looked at.
    """

    times: Mapping[str, float]
    guards: Mapping[str, float] = dataclasses.field(default_factory=dict)
    bad: str = ""  # corrupt, hung, ...: one sentence
    checked: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Bench(Protocol):
    """Who measures. The search knows nothing of processes."""

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        """A fresh launch of the cases; None where the budget does not allow another.

        `confirms`: with the guard cases, and as many operations of each case checked as a confirming launch checks.
        """

    def foresee(self, configs: Sequence[Config]) -> None:
        """Hear what is asked for next, in this order: what needs no launch of its own may share one."""

    def at_hand(self, config: Config) -> bool:
        """Whether what was foreseen of it has been measured already, so that asking costs nothing."""

    def shares(self, config: Config) -> bool:
        """Whether what is foreseen of it may share a launch with others."""

    def launch_share(self) -> float:
        """The share of the budget that a launch of its own takes, by those so far; 0 before."""

    def left(self) -> float:
        """The share of the budget that is left, from 1 to 0."""

    def unread(self, config: Config) -> frozenset[str]:
        """Which of its variables the library does not read, as far as it tells."""


class SpentError(Exception):
    """The budget is spent."""


@dataclasses.dataclass(frozen=True)
class Launched:
    """A launch that was measured; `logs`: logarithms of its times, a number a case, in the cases' order."""

    config: Config
    outcome: Outcome
    logs: npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Effect:
    """How a setting compares with the default, over `launches` of it."""

    change: float
    launches: int


def merged(config: Config, changes: Mapping[str, str | None]) -> Config:
    """The setting with some variables set, or unset by None."""
    found: dict[str, str | None] = {**dict(config), **changes}
    return tuple(sorted((name, value) for name, value in found.items() if value is not None))


class Record:
    """Launches so far, and the door to more of them."""

    def __init__(self, bench: Bench) -> None:
        """Nothing is measured yet."""
        self.bench = bench
        self.launched: list[Launched] = []
        self.ruled_out: dict[frozenset[tuple[str, str]], str] = {}
        self.default_bad = ""  # what the default's last launch that does not count went wrong by
        self.tried: set[Config] = set()  # settings that were measured, also those that do not count
        self._cases: tuple[str, ...] = ()
        self._late: dict[Config, int] = {}
        self._of: dict[Config, list[list[int]]] = {}  # places in `launched`, those together that count as one
        self._effects: dict[Config, Effect] = {}  # as of the launches so far
        self._noise: float | None = None
        self._gaps: list[float] = []  # between single measurements of one setting

    def launch(self, config: Config, *, confirms: bool = False, joins: bool = False) -> Outcome:
        """Measure a setting once; `joins`: it and the last one of the setting count as one.

        SpentError where the budget is spent; a bad outcome rules it out, and what has it.
        """
        outcome = self.bench.measure(config, confirms=confirms)
        if outcome is None:
            raise SpentError
        self.tried.add(config)
        if not self._cases and outcome.times:
            self._cases = tuple(sorted(outcome.times))
        missing = [case for case in self._cases if case not in outcome.times]
        late = bool(missing) and not outcome.bad
        if late:
            outcome = dataclasses.replace(outcome, bad=f"{missing[0]} has no time")
            self._late[config] = self._late.get(config, 0) + 1
        if outcome.bad:
            if config != DEFAULT and not (late and self._late[config] < _OFTEN):
                self.ruled_out.setdefault(frozenset(config), outcome.bad)
            self.default_bad = self.default_bad if config else outcome.bad
            return outcome
        self._effects, self._noise = {}, None
        logs = np.log([outcome.times[case] for case in self._cases])
        groups = self._of.setdefault(config, [])
        if groups:
            self._gaps.append(abs(float(np.mean(logs - self.launched[groups[-1][-1]].logs))))
        if joins and groups:
            groups[-1].append(len(self.launched))
        else:
            groups.append([len(self.launched)])
        self.launched.append(Launched(config, outcome, logs))
        return outcome

    def rule_out_unread(self, config: Config) -> None:
        """Rule out each variable of it, at the value that it has there, that the library does not read."""
        for name in self.bench.unread(config):
            self.ruled_out.setdefault(frozenset({(name, dict(config)[name])}), NOT_READ)

    def rule_out(self, config: Config, why: str) -> None:
        """Rule out a setting, and what has it, for what went wrong outside of the search."""
        self.ruled_out.setdefault(frozenset(config), why)

    def allowed(self, config: Config) -> bool:
        """Whether neither it nor a part of it was bad."""
        return not self.why_not(config)

    def why_not(self, config: Config) -> str:
        """What was bad with it or a part of it; empty where nothing was."""
        items = frozenset(config)
        return next((why for bad, why in self.ruled_out.items() if bad <= items), "")

    def known(self) -> list[Config]:
        """Settings that were measured, but the default, that are not ruled out."""
        return [config for config in self._of if config and self.allowed(config)]

    def count(self, config: Config) -> int:
        """Launches of it that count, those that were joined as one."""
        return len(self._of.get(config, ()))

    def effect(self, config: Config) -> Effect:
        """Its median over its launches, of the mean over cases, against the nearest default launches."""
        if config not in self._effects:
            groups = self._of.get(config, ())
            changes = sorted(statistics.median(map(self._against_default, group)) for group in groups)
            apart = len(changes) == 2 and changes[1] - changes[0] > _DISTURBED * self.noise()
            middle = changes[0] if apart else statistics.median(changes or [0.0])
            self._effects[config] = Effect(middle, len(changes))
        return self._effects[config]

    def _against_default(self, index: int) -> float:
        defaults = self._places(DEFAULT)
        if not defaults:
            return 0.0
        near = sorted(defaults, key=lambda other: (abs(other - index), other))[:_NEAREST]
        reference = np.median([self.launched[other].logs for other in near], axis=0)
        return float(np.mean(self.launched[index].logs - reference))

    def _places(self, config: Config) -> list[int]:
        return [*itertools.chain.from_iterable(self._of.get(config, ()))]

    def noise(self) -> float:
        """Standard deviation of one launch's effect, or of those that are joined as one, robustly."""
        if self._noise is None:
            self._noise = self._robust_noise()
        return self._noise

    def _robust_noise(self) -> float:
        gaps: list[float] = []
        for groups in self._of.values():
            means = [np.median([self.launched[place].logs for place in group], axis=0) for group in groups]
            gaps += [abs(float(np.mean(a - b))) for a, b in itertools.pairwise(means)]
        if len(gaps) < 3:
            return _USUAL_NOISE
        return max(1.4826 * statistics.median(gaps) / 2**0.5, _LEAST_NOISE)

    def single_noise(self) -> float:
        """The same of one measurement; 0 until there are enough to tell."""
        if len(self._gaps) < TELLING:
            return 0.0
        return 1.4826 * statistics.median(self._gaps) / 2**0.5

    def last_defaults(self) -> Sequence[Launched]:
        """The default's launches."""
        return [self.launched[index] for index in self._places(DEFAULT)]
