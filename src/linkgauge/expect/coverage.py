"""Between which times an application lies in nine of ten cases: by what predictions of others were wrong in one run.

Split conformal prediction (Vovk et al. 2005; Lei et al. 2018, section 2): of n applications whose errors are known, the
ceil(0.9 (n + 1))-th smallest error holds for another one with a probability of at least 0.9, if that is one like them,
whatever the errors' distribution. An error is the ratio of what was measured and predicted of the time in which
anything moves. What a step file states as computing takes nearly that long: a trace has it of one run. Errors of one
application by several mechanisms go together, so that only its largest counts.

A run by its own errors has 24 of 26 applications in their intervals whatever the errors are: only other runs and other
programs show whether nine of ten hold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

from linkgauge.expect.application import Predicted
from linkgauge.expect.mechanism import Mechanism, mechanism_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.model.worded import App

LEVEL = 0.9
FEWEST = 9
"""Applications: of fewer even the largest error may be too small, for 0.9 (n + 1) is more than n."""
USUAL_ON_HOST, USUAL_ON_GPU = 1.92, 1.5
"""Factors where a run has measured too few: on host devices that of docs/results/data/applications-host.jsonl; on GPUs
none of 52 cases on one H100 and one of 52 on two H200 was further off."""
COMPUTING_ON_HOST, COMPUTING_ON_GPU = 0.08, 0.04
"""By what share computing may be shorter or longer than stated. With it six of seven programs of ParRes lie in their
intervals, three without, and 36 of 36 replays of PyTorch's on GPUs, 25 without: it was chosen on these
(docs/results/data/real-programs.jsonl, real-programs-gpu.jsonl)."""
_SAME_NS, _SAME = 0.5, 1e-3  # what is less apart, or less of the time, is rounding
_LEAST = 0.01  # of what was predicted: measured times that are shorter are as wrong as that


@dataclasses.dataclass(frozen=True)
class Miss:
    """By what factor a prediction of an application was too short; 1: right, below 1: too long."""

    app: str
    ranks: int
    mechanism: Mechanism
    factor: float


@dataclasses.dataclass(frozen=True)
class Within:
    """A time lies within this factor of its prediction, either way, in nine of ten cases. `of`: by what that is known,
    for people."""

    factor: float
    of: str


@dataclasses.dataclass(frozen=True)
class Interval:
    """Between which times an iteration lies, in ns, and by what that is known."""

    low_ns: float
    high_ns: float
    within: Within

    def holds(self, ns: float) -> bool:
        """Whether a time lies in it."""
        return self.low_ns <= ns <= self.high_ns


class Misses:
    """How wrong predictions from a run's curves were, of the applications that it measured itself."""

    def __init__(self, misses: Iterable[Miss], *, on_host: bool) -> None:
        """Take what was measured and predicted; `on_host`: on host devices."""
        self._misses, self._on_host = list(misses), on_host

    def within(self, app: str, ranks: int, by: Mechanism) -> Within:
        """Of another application by a mechanism: what it was predicted itself does not count.

        By the same mechanism on as many ranks where that is known of FEWEST applications, else by more; else a factor
        that held elsewhere.
        """
        others = [one for one in self._misses if _name(one.app) != _name(app)]
        alike = [one for one in others if one.ranks == ranks]
        same = [one for one in alike if one.mechanism == by]
        for found, words in ((same, ""), (alike, " by all mechanisms"), (others, " on other numbers of ranks too")):
            worst: dict[str, float] = {}
            for one in found:
                worst[_name(one.app)] = max(worst.get(_name(one.app), 1.0), one.factor, 1 / one.factor)
            if len(worst) >= FEWEST:
                ordered = sorted(worst.values())
                factor = ordered[math.ceil(round(LEVEL * (len(worst) + 1), 6)) - 1]
                return Within(factor, f"the errors of {len(worst)} other applications in the run{words}")
        usual = USUAL_ON_HOST if self._on_host else USUAL_ON_GPU
        devices = "host devices" if self._on_host else "GPUs"
        return Within(usual, f"what held on other {devices}: the run measured fewer than {FEWEST} other applications, "
                      "of which 'linkgauge run --plan applications' has 26")  # fmt: skip

    def interval(self, app: str, ranks: int, by: Mechanism, of: Predicted, may_save_ns: float = 0.0) -> Interval:
        """Of a prediction. `may_save_ns`: how much less than stated its computing may be, besides."""
        within = self.within(app, ranks, by)
        fixed = _computing(of)
        moving = of.time_ns - fixed
        aside = fixed * (COMPUTING_ON_HOST if self._on_host else COMPUTING_ON_GPU)
        least = max(fixed - aside - may_save_ns, 0.0)
        return Interval(least + moving / within.factor, fixed + aside + moving * within.factor, within)


def gain(as_it_is: Predicted, changed: Predicted, factor: float) -> tuple[float, float]:
    """Between what a change saves of the time as it is predicted, in ns, for predictions within `factor`.

    What takes as long with the change as without has no part in it, nor what is computed. Of the kinds of steps that
    change, the error common to both predictions cancels: the ratio of both errors lies within `factor` too. What a
    collective hides behind computing is taken to cost computing between nothing and as much. Both 0: the predicted time
    is the same.
    """
    mine, other = _moving(as_it_is), _moving(changed)
    same = max(_SAME_NS, _SAME * as_it_is.time_ns)
    kinds = [kind for kind in {*mine, *other} if abs(mine.get(kind, 0.0) - other.get(kind, 0.0)) >= same]
    before, after = (sum(of.get(kind, 0.0) for kind in kinds) for of in (mine, other))
    saved = as_it_is.time_ns - changed.time_ns
    if abs(saved) < same:
        return 0.0, 0.0
    no_longer_hidden = _hidden(as_it_is) - _hidden(changed)
    low = saved - max(after * (factor - 1), before * (1 - 1 / factor)) + min(no_longer_hidden, 0.0)
    return low, saved + after * (1 - 1 / factor) + max(no_longer_hidden, 0.0)


def misses_of(
    rows: Sequence[Measured], statistic: str, predicted: Callable[[App, int, Mechanism], Predicted | None],
    *, on_host: bool,
) -> Misses:  # fmt: skip
    """Of the applications among a run's rows. `statistic`: the column that is a row's time; `predicted`: the time of
    an application by the run's curves, None where they lack one."""
    found = []
    for row in rows:
        if not PATTERNS[row.pattern].scripted:
            continue
        by = dataclasses.replace(mechanism_of(row.case), on_host=on_host)
        of = predicted(row.case.app, row.ranks, by)
        if of is not None and of.time_ns > 0:
            found.append(Miss(row.case.app.label, row.ranks, by, factor_of(getattr(row, statistic), of)))
    return Misses(found, on_host=on_host)


def factor_of(measured_ns: float, of: Predicted) -> float:
    """How many times as long as predicted what moves has taken."""
    fixed = _computing(of)
    moving = max(of.time_ns - fixed, _LEAST * of.time_ns)
    return max(measured_ns - fixed, _LEAST * moving) / moving


def _longest(of: Predicted) -> dict[str, float]:
    """Times by kind of step of the rank that takes longest, in ns."""
    return of.kinds_ns[max(range(len(of.ranks_ns)), key=of.ranks_ns.__getitem__)]


def _hidden(of: Predicted) -> float:
    """How long collectives go on behind computing of the rank that takes longest, without a measured slow-down, ns."""
    rank = max(range(len(of.ranks_ns)), key=of.ranks_ns.__getitem__)
    if not of.overlaps or of.overlaps[rank].by:
        return 0.0
    hidden = of.overlaps[rank].collective - of.kinds_ns[rank].get("collective", 0.0)
    return min(max(hidden, 0.0), of.kinds_ns[rank].get("compute", 0.0))


def _computing(of: Predicted) -> float:
    return _longest(of).get("compute", 0.0)


def _moving(of: Predicted) -> dict[str, float]:
    return {kind: ns for kind, ns in _longest(of).items() if kind != "compute"}


def _name(label: str) -> str:
    return label.partition(" ")[0]
