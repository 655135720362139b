"""A candidate measured afresh: launches in pairs with the default, none of which the search has seen before.

What chose the candidate does not count, so having looked at many settings cannot make a gain; at most LOOKS candidates
are confirmed, and each has to be as sure as to be right for all of them together (Bonferroni).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from linkgauge.stats.compare import Shift
from linkgauge.stats.paired import p_of_less, paired_shift
from linkgauge.tune.record import DEFAULT, Bench, Config, Outcome, Record, SpentError, merged
from linkgauge.tune.search import LEAST_GAIN, Factor, Search, heeded

LOOKS = 2
LEVEL = 0.05 / LOOKS
MOST_PAIRS = 15
LEAST_PAIRS = 7
"""Fewer cannot be sure enough of a sign: 2^-7 is below LEVEL, and one odd pair is allowed for."""
_CONTRIBUTION_PAIRS = 6  # further ones, in which each variable is left out in turn
ALLOWED = 0.01
"""By so much other cases may become slower."""


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What fresh pairs say of a candidate. Shifts are of times against the default, but `contributions`.

    `contributions`: by variable how much longer all takes without it alone (and what is of it alone), the others as
    they are. `problem`: why it is not proved; empty where its gain holds.
    """

    config: Config
    gain: Shift | None
    by_case: Mapping[str, Shift]
    guards: Mapping[str, Shift]
    contributions: Mapping[str, Shift]
    pairs: int
    p_value: float
    problem: str


@dataclasses.dataclass(frozen=True)
class Found:
    """What came of a search. `confirmed`: those measured afresh, the proved first, of these that of fewer variables."""

    confirmed: Sequence[Confirmed]
    candidates: Sequence[Config]
    record: Record
    survivors: Sequence[str]

    @property
    def best(self) -> Confirmed | None:
        """The proved one."""
        return next((one for one in self.confirmed if not one.problem), None)


def tune(factors: Sequence[Factor], bench: Bench, seed: int = 0, allowed: float = ALLOWED) -> Found:
    """Search, and confirm candidates until one holds; that one once more without variables that it does not need.

    The same outcomes ask for the same launches.
    """
    search = Search(factors, bench, seed)
    record = search.record
    candidates = search.explore()
    confirmed: list[Confirmed] = []
    queue = list(candidates)
    while queue and len(confirmed) < LOOKS:
        config = queue.pop(0)
        if not record.allowed(config):
            continue
        one = confirm(record, config, factors, allowed)
        if one is None:
            break
        confirmed.append(one)
        if not one.problem:
            simpler = _without_idle(one, factors)
            queue = [simpler] if simpler not in (config, DEFAULT) else []
    confirmed.sort(key=lambda one: (bool(one.problem), len(one.config)))
    return Found(confirmed, candidates, record, search.survivors)


def _without_idle(one: Confirmed, factors: Sequence[Factor]) -> Config:
    """The setting without the variables that seem to give nothing where each is left out alone."""
    idle = {name: None for name, shift in one.contributions.items() if shift.share < LEAST_GAIN / 2}
    return heeded(merged(one.config, idle), {factor.name: factor for factor in factors})


def confirm(record: Record, config: Config, factors: Sequence[Factor], allowed: float = ALLOWED) -> Confirmed | None:
    """Pairs of default and candidate, in turn the one and the other first; None where not one could be measured.

    A variable is left out with those that are of it alone.
    """
    record.foresee(())  # each has a launch of its own
    known = {factor.name: factor for factor in factors}
    pairs: list[tuple[Outcome, Outcome]] = []
    without: dict[str, list[tuple[Outcome, Outcome]]] = {name: [] for name, _ in config if len(config) > 1}
    try:
        for number in range(MOST_PAIRS):
            order = (DEFAULT, config) if number % 2 == 0 else (config, DEFAULT)
            both = {one: record.launch(one, guards=True) for one in order}
            if not record.allowed(config):
                break
            if any(one.bad for one in both.values()):  # what is no fault of the candidate's: no pair
                continue
            pairs.append((both[DEFAULT], both[config]))
            if 0 <= number + 1 - LEAST_PAIRS < _CONTRIBUTION_PAIRS:
                for name in without:
                    less = record.launch(heeded(merged(config, {name: None}), known))
                    if not less.bad:
                        without[name].append((both[config], less))
    except SpentError:
        pass
    bad = record.why_not(config)
    return _judged(config, pairs, without, allowed, bad) if pairs or bad else None


def _judged(
    config: Config,
    pairs: Sequence[tuple[Outcome, Outcome]],
    without: Mapping[str, Sequence[tuple[Outcome, Outcome]]],
    allowed: float,
    bad: str,
) -> Confirmed:
    ratios = _means(pairs)
    cases = sorted(pairs[0][0].times) if pairs else []
    by_case = {case: paired_shift([np.log(b.times[case] / a.times[case]) for a, b in pairs]) for case in cases}
    with_guards = {case: [(a, b) for a, b in pairs if case in a.guards and case in b.guards]
                   for case in sorted({case for a, _ in pairs for case in a.guards})}  # fmt: skip
    guards = {case: paired_shift([np.log(b.guards[case] / a.guards[case]) for a, b in some])
              for case, some in with_guards.items() if some}  # fmt: skip
    lost = [case for case, some in with_guards.items() if 2 * len(some) < sum(case in a.guards for a, _ in pairs)]
    p_value = p_of_less(ratios, LEAST_GAIN)
    worse = {case: one for case, one in _judging(pairs).items() if one.low > allowed}
    problem = bad
    if not problem and len(pairs) < LEAST_PAIRS:
        problem = f"{len(pairs)} fresh pairs: at least {LEAST_PAIRS} are needed, give it a larger budget"
    if not problem and lost:
        problem = f"{lost[0]} mostly has no time with it"
    if not problem and p_value > LEVEL:
        problem = f"a gain above {LEAST_GAIN:.0%} may be chance (p = {p_value:.2g}, needed {LEVEL:g})"
    if not problem and worse:
        case = max(worse, key=lambda name: worse[name].share)
        problem = f"it makes {case} slower by {worse[case].share:.1%}, {allowed:.0%} is allowed"
    contributions = {name: paired_shift(_means(some)) for name, some in without.items() if some}
    gain = paired_shift(ratios) if pairs else None
    return Confirmed(config, gain, by_case, guards, contributions, len(pairs), p_value, problem)


def _means(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[float]:
    return [float(np.mean([np.log(b.times[case] / a.times[case]) for case in sorted(a.times)])) for a, b in pairs]


def _judging(pairs: Sequence[tuple[Outcome, Outcome]]) -> dict[str, Shift]:
    """Each case's shift with an interval that is right for all of them together."""
    if not pairs:
        return {}
    both = [({**a.guards, **a.times}, {**b.guards, **b.times}) for a, b in pairs]
    ratios = {case: [float(np.log(b[case] / a[case])) for a, b in both if case in a and case in b]
              for case in {case: None for a, _ in both for case in a}}  # fmt: skip
    sure = 1 - 0.05 / max(len(ratios), 1)
    return {case: paired_shift(some, sure) for case, some in ratios.items() if some}
