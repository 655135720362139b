"""The search on stand-in libraries of which the best is known: it is found, by few launches, or nothing is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from linkgauge.tune.confirm import Found, tune
from linkgauge.tune.factor import Factor
from linkgauge.tune.record import Config, Outcome, Record, merged
from thorough import most
from tune.planted import FACTORS, GRID, PlantedBench, Surface, interaction, nothing_helps, one_optimum, optimum

LAUNCHES = 600
SEEDS = most(20, 3)
ALLOWED_MISSES = SEEDS // 20  # 19 of 20
assert LAUNCHES <= GRID / 10


def found_by(surface: Surface, seed: int) -> tuple[Found, PlantedBench]:
    bench = PlantedBench(surface, seed, LAUNCHES)
    return tune(FACTORS, bench, seed), bench


@pytest.mark.parametrize("surface", [one_optimum, interaction])
def test_the_optimum_is_found_within_a_fiftieth(surface: Surface) -> None:
    best, missed = optimum(surface), []
    for seed in range(SEEDS):
        found, bench = found_by(surface, seed)
        assert len(bench.asked) <= LAUNCHES
        config = found.best.config if found.best else ()
        assert not {"FAST", "UNREAD"} & {name for name, _ in config}, seed
        if surface(dict(config)) > 1.02 * best:
            missed.append((seed, config))
    assert len(missed) <= ALLOWED_MISSES, missed


def test_nothing_is_recommended_where_nothing_helps() -> None:
    recommended = [seed for seed in range(SEEDS) if found_by(nothing_helps, seed)[0].best]
    assert len(recommended) <= ALLOWED_MISSES, recommended


def test_what_is_promised_is_what_there_is_and_each_variable_has_its_part() -> None:
    found, _ = found_by(one_optimum, 1)
    best = found.best
    assert best is not None
    assert best.gain is not None
    truth = one_optimum(dict(best.config)) / one_optimum({}) - 1
    assert best.gain.low <= truth <= best.gain.high
    assert {*best.contributions} == {name for name, _ in best.config}
    for name, shift in best.contributions.items():
        without = one_optimum(dict(merged(best.config, {name: None}))) / one_optimum(dict(best.config)) - 1
        assert shift.low - 0.02 <= without <= shift.high + 0.02


def test_the_same_outcomes_ask_for_the_same_launches_which_are_all_legal() -> None:
    (_, first), (_, second) = found_by(interaction, 5), found_by(interaction, 5)
    assert first.asked == second.asked
    legal = {one.name: one for one in FACTORS}
    for config in first.asked:
        for name, value in config:
            assert value in legal[name].values
            assert legal[name].fits(config)


class Fixed:
    """A bench without noise; some settings end badly, guard cases may suffer."""

    def __init__(self, faster: Config, *, guard: float = 1.0, bad: Config = ()) -> None:
        self.faster, self.guard, self.bad, self.count = {*faster}, guard, {*bad}, 0

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        self.count += 1
        if self.bad and self.bad <= {*config}:
            return Outcome({}, bad="hung: no progress within 10 s")
        hit = self.faster <= {*config}
        return Outcome({"8 B": 800.0 if hit else 1000.0 + self.count % 3}, {"big": 5e3 * (self.guard if hit else 1.0)})

    def foresee(self, configs: Sequence[Config]) -> None:
        """Each has a launch of its own."""

    def at_hand(self, config: Config) -> bool:
        return False

    def shares(self, config: Config) -> bool:
        return False

    def launch_share(self) -> float:
        return 1 / 500 if self.count else 0.0

    def left(self) -> float:
        return 1 - self.count / 500

    def unread(self, config: Config) -> frozenset[str]:
        return frozenset()


TWO = (Factor("A", ("1", "2"), conflicts=("B",)), Factor("B", ("1", "2"), conflicts=("A",)))


def test_what_makes_a_guard_case_slower_is_not_proved() -> None:
    found = tune(TWO, Fixed((("A", "2"),), guard=1.2))
    assert found.best is None
    assert "makes big slower by 20.0 %" in found.confirmed[0].problem
    assert tune(TWO, Fixed((("A", "2"),), guard=1.2), allowed=0.25).best is not None


def test_what_hangs_is_asked_once_and_excluding_variables_never_together() -> None:
    bench = Fixed((("A", "1"),), bad=(("B", "1"),))
    found = tune(TWO, bench)
    assert found.best is not None
    assert found.best.config == (("A", "1"),)
    assert found.record.ruled_out == {frozenset({("B", "1")}): "hung: no progress within 10 s"}
    assert all(len(one.config) < 2 for one in found.record.launched)


def test_a_default_that_fails_leaves_nothing_to_find() -> None:
    class Broken(Fixed):
        def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
            return Outcome({}, bad="failed: no such library")

    assert tune(TWO, Broken(())).candidates == []


def test_what_corrupts_while_it_is_confirmed_is_not_proved() -> None:
    class Late(Fixed):
        """Wrong data in the fifth launch with guard cases."""

        guarded = 0

        def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
            self.guarded += confirms and bool(config)
            if confirms and config and self.guarded == 5:
                return Outcome({}, bad="corrupt: 3 wrong bytes")
            return super().measure(config, confirms=confirms)

    found = tune(TWO[:1], Late((("A", "2"),)))
    assert found.best is None
    assert found.confirmed[0].problem == "corrupt: 3 wrong bytes"


class Listed(Fixed):
    """Times of the default and of one setting, in turn as they are listed."""

    def __init__(self, times: dict[Config, list[float]]) -> None:
        super().__init__(())
        self.listed = {config: iter(some) for config, some in times.items()}

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        return Outcome({"8 B": next(self.listed[config])})


def test_measurements_that_are_joined_count_as_one() -> None:
    one: Config = (("A", "1"),)
    record = Record(Listed({(): [100.0, 200.0, 100.0], one: [90.0, 180.0, 500.0]}))
    for joins in (False, True, True):
        record.launch((), joins=joins)
        record.launch(one, joins=joins)
    assert record.count(one) == record.count(()) == 1
    assert record.effect(one).change == pytest.approx(math.log(180 / 100))
    assert len(record.last_defaults()) == 3


@pytest.mark.parametrize(("noise", "least", "most"), [(0.01, 1, 1), (0.08, 2, 8)])
def test_where_measurements_scatter_several_make_one(noise: float, least: int, most: int) -> None:
    bench = PlantedBench(one_optimum, 3, 6 * LAUNCHES, noise)
    record = tune(FACTORS, bench, 3).record
    groups = max(record.count(config) for config in record.known())
    measured = max(bench.asked.count(config) for config in record.known())
    assert least * groups <= measured
    assert (measured > groups) == (most > 1)


class Dear(Fixed):
    """A bench of sixty launches, in which those that share one cost a tenth of it."""

    def __init__(self, shared: bool) -> None:
        super().__init__((("A", "none"),))
        self.shared, self.spent, self.screened = shared, 0.0, set[Config]()

    def foresee(self, configs: Sequence[Config]) -> None:
        self.screened = self.screened or {*configs} - {()}

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        self.spent += 0.1 if config and self.shared else 1.0
        return super().measure(config, confirms=confirms)

    def shares(self, config: Config) -> bool:
        return self.shared

    def left(self) -> float:
        return max(0.0, 1 - self.spent / 60)


@pytest.mark.parametrize(("shared", "values"), [(False, {"0", "7"}), (True, {"0", "2", "5", "7"})])
def test_more_values_are_screened_where_settings_share_launches(shared: bool, values: set[str]) -> None:
    names = [f"V{number}" for number in range(8)]
    bench = Dear(shared)
    tune([Factor(name, tuple(map(str, range(8))), ordered=True) for name in names], bench)
    assert {value for config in bench.screened for _, value in config} == values


class Partly(Fixed):
    """A bench that measures one variable of two in shared launches."""

    def __init__(self) -> None:
        super().__init__((("A", "none"),))
        self.foreseen: list[list[Config]] = []
        self.alone = 0

    def foresee(self, configs: Sequence[Config]) -> None:
        self.foreseen.append(list(configs))

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        self.alone += not self.foreseen
        return super().measure(config, confirms=confirms)

    def shares(self, config: Config) -> bool:
        return all(name == "SHARED" for name, _ in config)


def test_what_shares_a_launch_is_measured_first_and_the_default_too() -> None:
    bench = Partly()
    tune([Factor(name, ("1", "2", "3")) for name in ("ALONE", "SHARED")], bench)
    assert bench.alone == 2
    assert {*bench.foreseen[0]} == {()}
    screened = [name for config in bench.foreseen[1] for name, _ in config]
    assert screened == ["SHARED"] * 3 + ["ALONE"] * 3, "a short budget ends in launches of one setting"


class Short(Partly):
    """A bench of so many launches, where those of SHARED cost a fifth; the default's launches are counted."""

    def __init__(self, launches: int, faster: Config = (("A", "none"),)) -> None:
        super().__init__()
        self.faster, self.most, self.spent = {*faster}, launches, 0.0
        self.asked: list[Config] = []

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        took = 0.2 if self.foreseen and not confirms and self.shares(config) else 1.0
        if self.spent + took > self.most:
            return None
        self.spent += took
        self.asked.append(config)
        return super().measure(config, confirms=confirms)

    def launch_share(self) -> float:
        return 1 / self.most if self.spent else 0.0

    def left(self) -> float:
        return 1 - self.spent / self.most


SEVERAL = [Factor(name, ("1", "2", "3")) for name in ("SHARED", *"CDEFGHIJKLMN")]


@pytest.mark.parametrize("launches", [20, 40])  # of which confirming takes 14: of the first all but nothing is left
def test_a_search_that_finds_nothing_spends_all_it_was_given(launches: int) -> None:
    bench = Short(launches)
    found = tune(SEVERAL, bench)
    assert found.unfinished
    assert bench.left() < 1 / launches
    assert not found.unconfirmed


def test_what_cannot_be_confirmed_in_so_short_a_time_is_named_all_the_same() -> None:
    bench = Short(20, (("D", "2"),))
    found = tune(SEVERAL, bench)
    assert found.best is None
    assert found.unconfirmed == (("D", "2"),)
    longer = Short(40, (("D", "2"),))
    assert tune(SEVERAL, longer).best is not None


def test_a_short_search_takes_settings_in_their_order_and_few_launches_of_the_default() -> None:
    bench = Short(20)
    tune(SEVERAL, bench)
    names = {name for config in bench.asked for name, _ in config}
    assert names == {*["SHARED", *"CDEFGHIJKLMN"][: len(names)]}
    assert bench.asked[:4] == [()] * 4
    assert bench.asked.count(()) <= 4 + len(bench.asked) / 4


def test_a_short_search_repeats_what_gains_in_shared_launches_before_it_launches_one_setting_each() -> None:
    gains: Config = (("SHARED", "2"),)
    bench = Short(20, gains)
    assert tune(SEVERAL, bench).unconfirmed == gains
    alone = next(place for place, config in enumerate(bench.asked) if config and not bench.shares(config))
    assert bench.asked[:alone].count(gains) == 2
