"""The search for the best setting: which launch to ask for next, from what the others gave. It starts nothing itself.

Screening, one variable at a time; a fractional design of all levels of the variables that did something, for those that
only help together; coordinate descent from the best; halving among the best few. Each round has a launch of the
default among its launches, in drawn order. What is found is a candidate, no more: tune/confirm.py measures it afresh.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

from linkgauge.tune.factor import Factor, heeded
from linkgauge.tune.record import DEFAULT, TELLING, Bench, Config, Record, SpentError, merged

LEAST_GAIN = 0.01
"""A gain below this is none: not looked for, not recommended."""
LEAST_PAIRS = 7
"""Fresh pairs that confirm: fewer cannot be sure enough of a sign: 2^-7 is below what is needed, and one odd pair is
allowed for."""
_RESERVE = 0.3  # of the budget, for confirming
_MOST_RESERVE = 0.6
_WITH_GUARDS = 1.4  # times as long as another takes a launch that confirms, for its guard cases
_TO_CONFIRM = 40  # launches' time: 20 launches, of which guard cases and checks make each take twice as long
_SHARED = 0.2  # of a launch, what a measurement takes that shares one with others
_ROUND = 4  # settings beside one default
_FIRST = 4  # launches of the default
_FIRST_ALONE = 2  # of them alone, where it may share one: what a launch takes
_SHORT = 0.02  # of the budget, a launch of a search that takes the table's order: those first that matter most often
_STEADY = 0.03  # noise of a measurement up to which one is enough
_AIMED = 0.02  # else so many together that their median scatters by about this
_MOST_TIMES = 8
_USUALLY = 400  # measurements that a search asks for where one is enough
_HOPELESS = 0.3  # slower than the default by this alone: not tried with others
_MOST_SURVIVORS = 6
_SPREAD = 4  # values of an ordered variable that are screened
_FINALISTS = 6
_ENOUGH = 9  # launches of a finalist
_DESIGN_SHARE = 0.35  # of the launches up to the reserve, for the design
_DRAWS = 40  # rows that are drawn for each row of the design, of which the one with most new pairs is taken
_PAIRS_TRIED = 6


class Search:
    """A search among `factors`; `record` has what was measured."""

    def __init__(self, factors: Sequence[Factor], bench: Bench, seed: int = 0) -> None:
        """Nothing is measured yet. The same outcomes give the same search: `seed` draws the orders."""
        self.bench, self.record = bench, Record(bench)
        self._factors = {factor.name: factor for factor in factors}
        self._random = random.Random(seed)
        self.survivors: tuple[str, ...] = ()
        self.unfinished = False  # the budget ended it

    def explore(self) -> list[Config]:
        """Measure until the best is known or the reserve for confirming is reached; candidates, the best first.

        None where nothing seems to gain LEAST_GAIN, or where the default itself fails.
        """
        try:
            self._begin()
            if not self.record.last_defaults():
                return []
            self._screen()
            self._combine()
            self._descend()
            self._finish()
        except SpentError:
            self.unfinished = True
        for config in self.candidates():
            self.record.rule_out_unread(config)
        return self.candidates()

    def candidates(self) -> list[Config]:
        """Settings that seem to gain, the best first: by their effect less half of what noise may have given them."""
        ranked: list[Config] = sorted(self.record.known(), key=lambda config: (self._cautious(config), config))
        gaining = [config for config in ranked if self._cautious(config) < -LEAST_GAIN]
        simple = [self._simplest(config, gaining) for config in gaining[:1]]
        return list(dict.fromkeys([*simple, *gaining]))

    def _simplest(self, config: Config, known: Sequence[Config]) -> Config:
        """The least part of it that was measured to do as well: a variable that gives nothing may cost elsewhere."""
        slack = max(LEAST_GAIN / 2, self.record.noise() / 4)
        parts = [one for one in known if {*one} < {*config} and self.record.count(one) > 2
                 and self._change(one) <= self._change(config) + slack]  # fmt: skip
        return min(parts, key=lambda one: (len(one), self._change(one)), default=config)

    def _cautious(self, config: Config) -> float:
        found = self.record.effect(config)
        return found.change + self.record.noise() / math.sqrt(max(found.launches, 1))

    def _change(self, config: Config) -> float:
        return self.record.effect(config).change

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, configs: Iterable[Config]) -> None:
        """A launch of each, in rounds with a default among them. SpentError at the reserve."""
        wanted = [config for config in dict.fromkeys(configs) if config != DEFAULT]
        # What shares a launch comes first: a short budget ends in the launches that others need for themselves.
        sharing = [config for config in wanted if self.bench.shares(config)]
        alone = [config for config in wanted if config not in sharing]
        rounds = [
            [DEFAULT, *some[start : start + _ROUND]]
            for some in (sharing, alone)
            for start in range(0, len(some), _ROUND)
        ]
        order: list[tuple[Config, bool]] = []
        times = self._times()
        for part in rounds:
            for turn in range(times):
                self._random.shuffle(part)
                order += [(config, turn > 0) for config in part]
        self.bench.foresee([config for config, _ in order])
        for config, joins in order:
            if self._is_time_to_confirm() and not self.bench.at_hand(config):
                raise SpentError
            if config == DEFAULT or self.record.allowed(config):
                self.record.launch(config, joins=joins)

    def _is_time_to_confirm(self) -> bool:
        """Whether something was found that the rest of the budget can confirm: else the search may have all of it."""
        return self._least_to_confirm() <= self.bench.left() <= self._reserve() and bool(self.candidates())

    def _least_to_confirm(self) -> float:
        return 2 * LEAST_PAIRS * _WITH_GUARDS * self.bench.launch_share()

    def _times(self) -> int:
        """How many measurements make one, for the noise that they have and what the budget allows."""
        noise = self.record.single_noise()
        if noise <= _STEADY:
            return 1
        affordable = self._launches_affordable() / _USUALLY
        return max(1, min(round((noise / _AIMED) ** 2), _MOST_TIMES, int(min(affordable, _MOST_TIMES))))

    def _begin(self) -> None:
        """Some launches of the default, for what noise there is; more where it seems to be much, and time allows."""
        shares = self.bench.shares(DEFAULT)
        alone = _FIRST_ALONE if shares else _FIRST
        for _ in range(alone):
            self.record.launch(DEFAULT)
        short = self._is_short()  # then all are measured once, whatever the noise
        if shares:  # a launch takes seconds, one more in a shared one a fraction
            together = (_FIRST if short else TELLING + 1) - alone
            self.bench.foresee([DEFAULT] * together)
            for _ in range(together):
                self.record.launch(DEFAULT)
        while not short and self.record.noise() > _STEADY and not self.record.single_noise():
            self.record.launch(DEFAULT)

    def _is_short(self) -> bool:
        """Whether the budget is of so few launches that it may end in the screening."""
        return self.bench.launch_share() > _SHORT

    # --- one variable at a time ---------------------------------------------------------------------------------------

    def _screen(self) -> None:
        alone = [factor for factor in self._factors.values() if factor.fits(DEFAULT)]
        spread = next((most for most in (_SPREAD, 3, 2) if self._fits(alone, most)), 2)
        singles = {factor.name: [merged((), {factor.name: value}) for value in factor.spread(spread)]
                   for factor in alone}  # fmt: skip
        everything = list(itertools.chain.from_iterable(singles.values()))
        if self._is_short():
            # Once more what seems to gain, before launches of one setting each take the rest of the time.
            shared = [config for config in everything if self.bench.shares(config)]
            self._ask(shared)
            self._ask([one for one in shared if self.record.count(one) and self._change(one) < -LEAST_GAIN])
        else:  # in the table's order, what disturbs for a while would be in all values of one variable
            shared = []
            self._random.shuffle(everything)
        self._ask([config for config in everything if config not in shared])
        # Once more what may be something: the better half, and what stands out to either side.
        tried = [config for config in everything if self.record.count(config)]
        tried.sort(key=self._change)
        noise = self.record.noise()
        better = tried[: (len(tried) + 1) // 2]
        odd = [config for config in tried if abs(self._change(config)) > 1.5 * noise]
        again = [config for config in dict.fromkeys([*better, *odd]) if self._change(config) < 3 * _HOPELESS]
        self._ask(again)
        again = sorted((config for config in again if self.record.allowed(config)), key=self._change)
        self._ask([config for config in again[: max(len(again) // 2, 2)] if self._change(config) < 1.5 * noise])
        for config in {config for name in self._active(singles) for config in singles[name]}:
            self.record.rule_out_unread(config)
        self.survivors = self._active(singles)

    def _fits(self, factors: Sequence[Factor], most: int) -> bool:
        """Whether a screening of so many values leaves half of what may be spent before the reserve."""
        singles = [merged((), {factor.name: value}) for factor in factors for value in factor.spread(most)]
        launches = sum(_SHARED if self.bench.shares(config) else 1.0 for config in singles)
        return self._launches_affordable() * 0.5 >= launches * (1 + 1 / _ROUND)

    def _launches_affordable(self) -> float:
        spent, done = 1 - self.bench.left(), len(self.record.launched)
        return max(0.0, self.bench.left() - self._reserve()) * done / spent if spent > 0 and done else float("inf")

    def _reserve(self) -> float:
        """The share of the budget that confirming may need, as long as launches have taken so far; 0: more than all."""
        if self._least_to_confirm() > _MOST_RESERVE:
            return 0.0
        return max(_RESERVE, min(_MOST_RESERVE, _TO_CONFIRM * self.bench.launch_share()))

    def _active(self, singles: dict[str, list[Config]]) -> tuple[str, ...]:
        """Variables that did something, to either side, those that help first: two that do harm may help together."""
        noise = self.record.noise()
        found = []
        for name, configs in singles.items():
            sound = [config for config in configs if self.record.count(config) and self.record.allowed(config)]
            effects = [self.record.effect(config) for config in sound]
            sure = [one for one in effects if abs(one.change) > max(2 * noise / one.launches**0.5, LEAST_GAIN / 2)]
            if sure:
                found.append((min(one.change for one in sure), name))
        return tuple(name for _, name in sorted(found)[:_MOST_SURVIVORS])

    # --- several together ---------------------------------------------------------------------------------------------

    def _combine(self) -> None:
        """A design of strength two: of each two variables every two values together in some launch, as far as it fits.

        What a launch takes beyond the sum of its single effects is shared by its pairs; those that seem to gain by it
        are then measured alone (a covering array: Cohen, Dalal, Fredman and Patton 1997, The AETG System).
        """
        levels = {name: [value for value in self._factors[name].values if self._promising(name, value)]
                  for name in self.survivors}  # fmt: skip
        if len([name for name in levels if levels[name]]) < 2:
            return
        affordable = self._launches_affordable() / self._times()
        rows = self._covering(levels, int(min(affordable, 1000) * _DESIGN_SHARE))
        self._ask(rows)
        beyond: dict[Config, list[float]] = {}
        for config in rows:
            if self.record.count(config):
                excess = self._change(config) - self._sum(config)
                for pair in itertools.combinations(config, 2):
                    beyond.setdefault(pair, []).append(excess)
        noise = self.record.noise()
        hopeful = {pair: self._sum(pair) + max(some) for pair, some in beyond.items() if max(some) < -2 * noise}
        self._ask(sorted(hopeful, key=lambda pair: (hopeful[pair], pair))[:_PAIRS_TRIED])
        self._repeat_best(_PAIRS_TRIED, 2)

    def _promising(self, name: str, value: str) -> bool:
        single = merged((), {name: value})
        return bool(self.record.count(single)) and self.record.allowed(single) and self._change(single) < _HOPELESS

    def _sum(self, config: Config) -> float:
        """What its variables change one by one."""
        return sum(self._change((item,)) for item in config)

    def _covering(self, levels: dict[str, list[str]], most: int) -> list[Config]:
        """Settings that have every two values of two variables together; those first that promise most."""
        items = [(name, value) for name, values in levels.items() for value in values]
        left = {tuple(sorted(pair)) for pair in itertools.combinations(items, 2) if pair[0][0] != pair[1][0]}
        rows: list[Config] = []
        while left and len(rows) < most:
            first = min(left, key=lambda pair: (self._sum(pair), pair))
            drawn = []
            for _ in range(_DRAWS):
                row = dict(first)
                for name, values in levels.items():
                    value = self._random.choice([None, *values])
                    if name not in row and value is not None:
                        row[name] = value
                drawn.append(merged((), dict(row)))
            new = [len(left & {*itertools.combinations(row, 2)}) if self._consistent(row) else -1 for row in drawn]
            best = drawn[new.index(max(new))]
            left -= {first, *itertools.combinations(best, 2)}
            if max(new) > 0:
                rows.append(best)
        return rows

    def _consistent(self, config: Config) -> bool:
        return self.record.allowed(config) and heeded(config, self._factors) == config

    def _set(self, config: Config, name: str, value: str | None) -> Config:
        return heeded(merged(config, {name: value}), self._factors)

    def _repeat_best(self, most: int, times: int) -> None:
        """Halving: the best few once more, then the better half of them."""
        for _ in range(times):
            best = sorted(self.record.known(), key=self._change)[:most]
            self._ask(best)
            most = max(most // 2, 1)

    # --- one step at a time -------------------------------------------------------------------------------------------

    def _descend(self) -> None:
        """From the best: each variable's other values, the rest as they are, until nothing is better."""
        best = self._best()
        while True:
            start = best
            for name in self._order(best):
                best = self._along(best, self._factors[name])
            if best == start:
                return

    def _best(self) -> Config:
        known = [config for config in self.record.known() if self.record.count(config) > 1]
        return min([DEFAULT, *known], key=self._change)

    def _order(self, best: Config) -> list[str]:
        mine = [name for name, factor in self._factors.items() if factor.only_with and factor.fits(best)]
        maybe = [name for name, factor in self._factors.items()
                 if any(self._change(((name, value),)) < -LEAST_GAIN / 2 for value in factor.values)]  # fmt: skip
        return list(dict.fromkeys([*self.survivors, *mine, *dict(best), *maybe]))

    def _along(self, best: Config, factor: Factor) -> Config:
        """The best along one variable; a step that gains is followed by the next one."""
        tried: set[Config] = set()
        while True:
            now = dict(best).get(factor.name)
            steps = [self._set(best, factor.name, value) for value in factor.beside(now)]
            steps += [self._set(best, factor.name, None)] if now is not None else []
            steps = [config for config in dict.fromkeys(steps) if config not in (best, DEFAULT)]
            steps = [config for config in steps if config not in tried and self._worth(config, factor.name)]
            if not steps:
                return best
            tried |= {*steps}
            self._ask([config for config in steps if self.record.count(config) < 2])
            for _ in range(2):
                self._ask([config for config in steps if self._belied(config, best, factor.name)])
            steps = [config for config in steps if self.record.count(config) and self.record.allowed(config)]
            if not steps:
                return best
            for _ in range(_ENOUGH // 2):
                near = [config for config in steps if self._may_do(config, best)]
                if not near:
                    break
                self._ask([best, *near] if best != DEFAULT else near)
            steps = [config for config in steps if self.record.allowed(config)]
            step = min(steps, key=self._change, default=best)
            doubt = self.record.noise() * (1 / self.record.count(step) + 1 / max(self.record.count(best), 1)) ** 0.5
            if self._change(step) > self._change(best) - max(LEAST_GAIN / 4, 0.7 * doubt):
                return best
            self.record.rule_out_unread(step)
            best = step if self.record.allowed(step) else best

    def _belied(self, step: Config, best: Config, name: str) -> bool:
        """Whether it was slower than what the variable alone did lets expect, if that was good: disturbed, maybe."""
        hoped = self._change(best) + self._change(merged((), {name: dict(step).get(name)}))
        return (
            0 < self.record.count(step) < 3
            and hoped < self._change(best) - LEAST_GAIN
            and self._change(step) > hoped + 3 * self.record.noise()
        )

    def _worth(self, config: Config, name: str) -> bool:
        value = dict(config).get(name)
        single = merged((), {name: value})
        hopeless = value is not None and self.record.count(single) and self._change(single) > _HOPELESS
        return not hopeless and self._consistent(config)

    def _finish(self) -> None:
        """A race: who may still be the best gets more launches, until one is left or all have enough.

        Then what each variable of the best is for.
        """
        while True:
            racing = [config for config in self._contenders() if self.record.count(config) < _ENOUGH]
            if not racing:
                break
            self._ask(racing)
        self._prune()

    def _contenders(self) -> list[Config]:
        """The best, and those whose effects lie no farther from its than twice what noise explains."""
        known = sorted(self.record.known(), key=lambda config: (self._change(config), config))
        known = [config for config in known if self._change(config) < -LEAST_GAIN / 2]
        if not known:
            return []
        sure = [config for config in known if self.record.count(config) > 1] or known
        best, noise = self.record.effect(sure[0]), self.record.noise()
        limits = {config: best.change + 2 * noise * (1 / best.launches + 1 / self.record.count(config)) ** 0.5
                  for config in known}  # fmt: skip
        return [config for config in known if self._change(config) <= limits[config]][:_FINALISTS]

    def _may_do(self, less: Config, best: Config) -> bool:
        """Whether it is not known yet to be worse."""
        count = self.record.count(less)
        far = 3 * self.record.noise() / max(count, 1) ** 0.5
        return (
            self.record.allowed(less)
            and count < _ENOUGH
            and (count < 2 or self._change(less) < self._change(best) + far)
        )

    def _prune(self) -> None:
        """Leave out of the best what it does as well without."""
        known = sorted(self.record.known(), key=self._cautious)
        best = known[0] if known else DEFAULT
        while len(best) > 1:
            without = [one for name, _ in best if self.record.allowed(one := self._set(best, name, None)) and one]
            for _ in range(_ENOUGH // 2):
                self._ask([config for config in without if self._may_do(config, best)])
            slack = max(LEAST_GAIN / 2, self.record.noise() / 2)
            as_good = [one for one in without if self._change(one) <= self._change(best) + slack]
            if not as_good:
                return
            best = min(as_good, key=self._change)
