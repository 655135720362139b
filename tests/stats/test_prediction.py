"""A run against what a further run would be: how often a clean one is called slow, and a slow one is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linkgauge.stats.basics import Floats
from linkgauge.stats.compare import false_discovery_rates
from linkgauge.stats.prediction import LEAST_CASES, Prediction, predict
from thorough import most

CASES, RUNS = 200, 5


class Machine:
    """Runs of a machine: two samples in five lie on a higher level in a tenth of the cases; medians of 31 samples."""

    def __init__(self, seed: int, level: float = 0.0, between: float = 0.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.level, self.between = level, between
        self.noise = np.exp(self.rng.normal(np.log(0.02), 0.8, CASES))
        self.jump = np.where(self.rng.random(CASES) < 0.1, 0.3, 0.0)

    def run(self) -> tuple[Floats, Floats]:
        """Return medians and half-widths of their intervals (order statistics 10 and 22 of 31)."""
        samples = self.rng.normal(size=(CASES, 31)) * self.noise[:, None]
        samples += self.jump[:, None] * (self.rng.random((CASES, 31)) < 0.4)
        samples += self.rng.normal(0, self.level) + self.rng.normal(0, self.between, CASES)[:, None]
        ordered = np.sort(np.exp(samples), axis=1)
        return ordered[:, 15], (ordered[:, 21] - ordered[:, 9]) / 2 / ordered[:, 15]

    def baseline(self) -> tuple[Floats, Floats]:
        runs = [self.run() for _ in range(RUNS)]
        return np.stack([times for times, _ in runs], axis=1), np.stack([widths for _, widths in runs], axis=1)


def slow(found: Prediction) -> Any:
    beyond = found.shift - found.usual_level
    return (false_discovery_rates(found.p_value) <= 0.05) & (np.minimum(found.shift, beyond) >= np.log(1.01))


def too_slow_as_a_whole(found: Prediction) -> bool:
    return found.level > max(found.level_limit, np.log(1.01))


@pytest.mark.parametrize(("level", "between"), most([(0.0, 0.0), (0.1, 0.0), (0.0, 0.03), (0.1, 0.03)], [(0.1, 0.03)]))
def test_few_clean_runs_are_called_slow(level: float, between: float) -> None:
    called = 0
    for seed in range(20):
        machine = Machine(seed, level, between)
        times, widths = machine.baseline()
        for _ in range(5):
            found = predict(times, widths, *machine.run())
            called += bool(slow(found).any()) or too_slow_as_a_whole(found)
    assert called <= 8  # of 100; 5 are promised, and each five share a baseline


@pytest.mark.parametrize("level", [0.0, 0.05])
def test_what_is_slower_is_called_and_nothing_else(level: float) -> None:
    hit = np.arange(CASES) < 12
    called = others = 0
    for seed in range(10):
        machine = Machine(seed, level)
        times, widths = machine.baseline()
        mine, my_widths = machine.run()
        found = predict(times, widths, mine * np.where(hit, 1.3, 1.0), my_widths)
        called += int(slow(found)[hit].sum())
        others += int(slow(found)[~hit].sum())
    assert called >= 60  # of 120
    assert others <= 0.1 * called


def test_a_machine_that_is_slower_everywhere_is_slow_as_a_whole_and_case_by_case() -> None:
    machine = Machine(1)
    times, widths = machine.baseline()
    mine, my_widths = machine.run()
    found = predict(times, widths, mine * 1.15, my_widths)
    assert found.level == pytest.approx(np.log(1.15), abs=0.01)
    assert too_slow_as_a_whole(found)
    assert slow(found).mean() > 0.5


def test_as_much_of_a_level_as_runs_differ_by_is_nobodys_fault() -> None:
    machine = Machine(1, level=0.1)
    times, widths = machine.baseline()
    mine, my_widths = machine.run()
    usual = predict(times, widths, mine, my_widths)
    found = predict(times, widths, mine * 1.05, my_widths)
    assert found.level == pytest.approx(usual.level + np.log(1.05))
    assert not slow(found).any()
    np.testing.assert_allclose(found.p_value, usual.p_value, rtol=1e-6)


def test_a_few_cases_have_no_level() -> None:
    count = LEAST_CASES - 1
    times = np.full((count, RUNS), 100.0) * np.exp(np.random.default_rng(3).normal(0, 0.01, (count, RUNS)))
    found = predict(times, np.full_like(times, 0.01), np.full(count, 120.0), np.full(count, 0.01))
    assert (found.level, found.usual_level, found.level_limit) == (0.0, 0.0, np.inf)
    assert slow(found).all()


def test_runs_that_lack_a_case_and_intervals_that_were_not_kept_do_no_harm() -> None:
    machine = Machine(5)
    times, widths = machine.baseline()
    mine, my_widths = machine.run()
    whole = predict(times, widths, mine, my_widths)
    times[3, 2] = np.nan
    found = predict(times, np.full_like(widths, np.nan), mine, my_widths)
    assert np.isfinite(found.p_value).all()
    assert found.shift[3] == pytest.approx(np.log(mine[3]) - np.nanmean(np.log(times[3])), abs=0.02)
    assert not slow(whole).any()
    assert not slow(found).any()


def test_the_unit_of_time_does_not_matter() -> None:
    machine = Machine(7)
    times, widths = machine.baseline()
    mine, my_widths = machine.run()
    scale = np.exp(machine.rng.normal(0, 5, CASES))
    first = predict(times, widths, mine, my_widths)
    second = predict(times * scale[:, None], widths, mine * scale, my_widths)
    np.testing.assert_allclose(first.p_value, second.p_value, rtol=1e-6)
