"""A candidate measured afresh: launches in pairs with the default, none of which the search has seen before.

What chose the candidate does not count, so having looked at many settings cannot make a gain; at most LOOKS candidates
are confirmed, and each has to be as sure as to be right for all of them together (Bonferroni).
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from linkgauge.model.quantity import change, percent
from linkgauge.stats.checked import checks_for
from linkgauge.stats.compare import Shift
from linkgauge.stats.paired import p_of_less, paired_shift
from linkgauge.tune.factor import Factor, heeded
from linkgauge.tune.record import DEFAULT, Bench, Config, Outcome, Record, SpentError, merged
from linkgauge.tune.search import LEAST_GAIN, LEAST_PAIRS, Search

LOOKS = 2
LEVEL = 0.05 / LOOKS
MOST_PAIRS = 15
_CONTRIBUTION_PAIRS = 6  # further ones, in which each variable is left out in turn
ALLOWED = 0.01
"""By so much other cases may become slower."""
WIDEST = 0.1
"""By so much more than is allowed, but no more than the gain, a case may be slower for all that its interval says."""
RAREST = 0.0002
"""A share of wrong operations that is to be found in each case."""
LEAST_PART = 0.01
"""Of what finds RAREST: a launch that checks less is not repeated for its checks alone."""
CHECKS = math.ceil(checks_for(RAREST) / LEAST_PAIRS)
"""Operations of each case that a confirming launch checks, beside those that every launch does."""


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What fresh pairs say of a candidate. Shifts are of times against the default, but `contributions`.

    `contributions`: by variable how much longer all takes without it alone (and what is of it alone), the others as
    they are. `checked`: by case, of how many operations with it every byte was right. `problem`: why it is not proved;
    empty where its gain holds.
    """

    config: Config
    gain: Shift | None
    by_case: Mapping[str, Shift]
    guards: Mapping[str, Shift]
    contributions: Mapping[str, Shift]
    pairs: int
    p_value: float
    problem: str
    checked: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Found:
    """What came of a search. `confirmed`: those measured afresh, the proved first, of these that of fewer variables.

    `unfinished`: the budget ended it. `untried`: by variable the values that no launch had. `unconfirmed`: the
    candidate that was next, where the budget had no time for it.
    """

    confirmed: Sequence[Confirmed]
    candidates: Sequence[Config]
    record: Record
    survivors: Sequence[str]
    unfinished: bool = False
    untried: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    unconfirmed: Config = DEFAULT

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
    unconfirmed = DEFAULT
    while queue and len(confirmed) < LOOKS:
        config = queue.pop(0)
        if not record.allowed(config):
            continue
        one = confirm(record, config, factors, allowed)
        if one is None:
            unconfirmed = config
            break
        confirmed.append(one)
        if not one.problem:
            simpler = _without_idle(one, factors)
            queue = [simpler] if simpler not in (config, DEFAULT) else []
    confirmed = _checked_enough(record, confirmed)
    untried = _untried(factors, record)
    return Found(confirmed, candidates, record, search.survivors, search.unfinished, untried, unconfirmed)


def _checked_enough(record: Record, confirmed: Sequence[Confirmed]) -> list[Confirmed]:
    """The proved first, the best of them with as many operations checked as find RAREST, as far as the budget goes.

    Where a launch checks less than LEAST_PART of them, more launches would take the whole budget for little. What
    launches of another one, or the last checks, showed to be bad is proved no more.
    """
    while True:
        found = [dataclasses.replace(one, problem=one.problem or record.why_not(one.config)) for one in confirmed]
        found.sort(key=lambda one: (bool(one.problem), len(one.config)))
        best = found[0] if found and not found[0].problem else None
        least = min(best.checked.values(), default=0) if best else 0
        if best is None or least >= checks_for(RAREST) or least < LEAST_PART * checks_for(RAREST) * best.pairs:
            return found
        try:
            more = record.launch(best.config, confirms=True).checked
        except SpentError:
            return found
        checked = {case: known + more.get(case, 0) for case, known in best.checked.items()}
        if min(checked.values()) == least and record.allowed(best.config):
            return found
        confirmed = [dataclasses.replace(best, checked=checked), *found[1:]]


def _untried(factors: Sequence[Factor], record: Record) -> dict[str, list[str]]:
    tried = {item for config in record.tried for item in config}
    left = {factor.name: [value for value in factor.values if (factor.name, value) not in tried] for factor in factors}
    return {name: values for name, values in left.items() if values}


def _without_idle(one: Confirmed, factors: Sequence[Factor]) -> Config:
    """The setting without the variables that seem to give nothing where each is left out alone."""
    idle = {name: None for name, shift in one.contributions.items() if shift.share < LEAST_GAIN / 2}
    return heeded(merged(one.config, idle), {factor.name: factor for factor in factors})


def confirm(record: Record, config: Config, factors: Sequence[Factor], allowed: float = ALLOWED) -> Confirmed | None:
    """Pairs of default and candidate, in turn the one and the other first; None where not one could be measured.

    A variable is left out with those that are of it alone.
    """
    record.bench.foresee(())  # each has a launch of its own
    known = {factor.name: factor for factor in factors}
    pairs: list[tuple[Outcome, Outcome]] = []
    without: dict[str, list[tuple[Outcome, Outcome]]] = {name: [] for name, _ in config if len(config) > 1}
    try:
        for number in range(MOST_PAIRS):
            order = (DEFAULT, config) if number % 2 == 0 else (config, DEFAULT)
            both = {one: record.launch(one, confirms=True) for one in order}
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
    judging = _judging(pairs)
    gain = paired_shift(ratios) if pairs else None
    worse = {case: one for case, one in judging.items() if one.low > allowed}
    widest = allowed + min(WIDEST, -gain.share if gain else 0.0)
    unsure = {case: one for case, one in judging.items() if one.high > widest}
    problem = bad
    if not problem and len(pairs) < LEAST_PAIRS:
        problem = f"{len(pairs)} fresh pairs: at least {LEAST_PAIRS} are needed: give a longer --time-limit"
    if not problem and lost:
        problem = f"{lost[0]} mostly has no time with it"
    if not problem and p_value > LEVEL:
        problem = f"a gain above {percent(LEAST_GAIN)} may be chance (p = {p_value:.2g}, needed {LEVEL:g})"
    if not problem and worse:
        case = max(worse, key=lambda name: worse[name].share)
        problem = f"it makes {case} slower by {percent(worse[case].share, 1)}, {percent(allowed)} is allowed"
    if not problem and unsure:
        case = max(unsure, key=lambda name: unsure[name].high)
        one = unsure[case]
        problem = (
            f"whether {case} becomes slower is not known: {change(one.share, 1)} "
            f"({change(one.low, 1)} to {change(one.high, 1)}), and at most {percent(widest, 1)} "
            "may be left open: give a longer --time-limit, or a quieter machine"
        )
    contributions = {name: paired_shift(_means(some)) for name, some in without.items() if some}
    checked: Counter[str] = Counter()
    for _, outcome in pairs:
        checked.update(outcome.checked)
    return Confirmed(config, gain, by_case, guards, contributions, len(pairs), p_value, problem, checked)


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
