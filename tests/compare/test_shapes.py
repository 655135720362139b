"""Drift, spikes, modes, tails: found where they are planted, not found where they are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from linkgauge.stats.basics import binomial_quantile, binomial_tail, effective_size, grain, median
from linkgauge.stats.drift import find_drift, theil_sen, trend_p_value
from linkgauge.stats.modes import find_modes
from linkgauge.stats.rank_sum import rank_sum_p_value
from linkgauge.stats.spikes import find_spikes
from linkgauge.stats.tails import tail, values_needed


def autoregressive(rng: np.random.Generator, n: int, rho: float, scale: float) -> np.ndarray:
    noise = rng.normal(size=n + 200) * scale * math.sqrt(1 - rho * rho)
    from scipy import signal  # a second of imports, which every worker would spend while it collects

    return signal.lfilter([1.0], [1.0, -rho], noise)[200:]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_size_is_that_of_an_autoregressive_process(rho: float) -> None:
    rng = np.random.default_rng(1)
    sizes = [effective_size(autoregressive(rng, 4000, rho, 1.0)) for _ in range(10)]
    assert np.median(sizes) == pytest.approx(4000 * (1 - rho) / (1 + rho), rel=0.2)


def test_effective_size_of_a_constant_and_of_alternation_is_all_of_it() -> None:
    assert effective_size(np.ones(50)) == 50
    assert effective_size(np.tile([1.0, 2.0], 50)) == 100


@pytest.mark.parametrize("count", [1, 2, 3, 4, 101, 1000])
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_the_median_is_numpys_to_the_last_bit(count: int, kind: type) -> None:
    values = (1e6 * np.random.default_rng(count).lognormal(size=count)).astype(kind)
    assert median(values) == np.median(values)


def test_the_grain_is_the_clocks_tick() -> None:
    assert grain([100.0, 125, 150, 125, 300]) == 25
    assert grain([3.0, 3.0]) == 0


HILLS = {
    "normal": lambda rng, n: 100 + 3 * rng.normal(size=n),
    "lognormal": lambda rng, n: 100 * np.exp(0.3 * rng.normal(size=n)),
    "exponential": lambda rng, n: 100 + 20 * rng.exponential(size=n),
    "pareto": lambda rng, n: 100 + 5 * rng.pareto(1.5, size=n),
    "uniform": lambda rng, n: 100 + 20 * rng.random(n),
    "ticks": lambda rng, n: np.round(100 + 2 * rng.normal(size=n)),
    "memory": lambda rng, n: 100 * np.exp(autoregressive(rng, n, 0.9, 0.05)),
}


@pytest.mark.parametrize("kind", HILLS)
def test_one_hill_has_no_modes_no_drift_and_no_period(kind: str) -> None:
    rng = np.random.default_rng(2)
    false = 0
    for n in (60, 300, 1000):
        for _ in range(20):
            series = HILLS[kind](rng, n)
            spikes = find_spikes(series)
            false += find_modes(series) is not None
            false += find_drift(series) is not None
            false += spikes is not None and spikes.period is not None
    assert false <= 2  # of 180


@pytest.mark.parametrize(("gap", "share"), [(0.1, 0.3), (0.3, 0.1), (0.3, 0.5)])
def test_two_levels_are_found_with_their_shares(gap: float, share: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        high = rng.random(400) < share
        series = 100 * np.exp(0.01 * rng.normal(size=400)) * np.where(high, 1 + gap, 1)
        modes = find_modes(series)
        assert modes is not None
        assert [m.center for m in modes.modes] == [
            pytest.approx(100, rel=0.02),
            pytest.approx(100 * (1 + gap), rel=0.02),
        ]
        assert modes.modes[1].share == pytest.approx(high.mean(), abs=0.02)
        assert modes.changes == np.count_nonzero(np.diff(high.astype(int)))


def test_three_levels_are_found() -> None:
    rng = np.random.default_rng(4)
    series = rng.choice([100.0, 130, 180], 600) * np.exp(0.01 * rng.normal(size=600))
    modes = find_modes(series)
    assert modes is not None
    assert [round(m.center, -1) for m in modes.modes] == [100, 130, 180]


def test_a_level_that_moves_once_counts_one_change() -> None:
    rng = np.random.default_rng(5)
    series = np.where(np.arange(400) < 150, 100, 120) * np.exp(0.01 * rng.normal(size=400))
    modes = find_modes(series)
    assert modes is not None
    assert modes.changes == 1


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("share", [0.05, -0.05])
def test_a_drift_is_found_with_its_size(rho: float, share: float) -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(20):
        line = 1 + share * np.arange(800) / 800
        drift = find_drift(100 * np.exp(autoregressive(rng, 800, rho, 0.01)) * line)
        assert drift is not None
        covered += drift.low <= share <= drift.high
    assert covered >= 16


def test_periodic_spikes_are_found_with_period_and_share_even_if_some_are_missing() -> None:
    rng = np.random.default_rng(7)
    for period in (20, 50, 100):
        series = 100 * np.exp(autoregressive(rng, 1000, 0.5, 0.02))
        hit = (np.arange(1000) % period == 7) & (rng.random(1000) < 0.9)
        series[hit] *= 1.5
        spikes = find_spikes(series)
        assert spikes is not None
        assert spikes.count == hit.sum()
        assert spikes.period == pytest.approx(period, abs=1)
        assert spikes.height == pytest.approx(1.5, rel=0.05)


def test_the_period_is_in_the_unit_of_the_times() -> None:
    rng = np.random.default_rng(8)
    times = np.cumsum(rng.uniform(0.5e6, 1.5e6, 3000))  # about 1 ms apart
    series = 100 * np.exp(0.01 * rng.normal(size=3000))
    beats = np.arange(100e6, times[-1], 100e6)  # ten a second
    series[np.searchsorted(times, beats)] *= 2
    spikes = find_spikes(series, times)
    assert spikes is not None
    assert spikes.period == pytest.approx(100e6, rel=0.01)


def test_spikes_at_random_have_no_period() -> None:
    rng = np.random.default_rng(9)
    named = 0
    for _ in range(100):
        series = 100 * np.exp(0.01 * rng.normal(size=1000))
        series[rng.choice(1000, 15, replace=False)] *= 2
        spikes = find_spikes(series)
        assert spikes is not None
        named += spikes.period is not None
    assert named <= 1


def test_tails_need_their_numbers() -> None:
    assert values_needed(0.99) == 368
    assert values_needed(0.999) == 3688
    rng = np.random.default_rng(10)
    assert tail(rng.random(367), 0.99, independent=367) is None
    assert tail(rng.random(400), 0.999) is None
    # Memory makes a long series short.
    assert tail(autoregressive(rng, 1000, 0.9, 1.0), 0.99) is None


def test_a_tails_interval_covers_the_true_quantile() -> None:
    rng = np.random.default_rng(11)
    truth = float(stats.expon.ppf(0.99))
    covered = 0
    for _ in range(300):
        found = tail(rng.exponential(size=600), 0.99, independent=600)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert covered >= 273  # 95 % less three standard errors


def test_what_scipy_stats_would_say_is_said_without_its_import() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        count = int(rng.integers(10, 41))
        moments = np.arange(count) * 3.0 + 1
        levels = rng.normal(size=count) + rng.uniform(-0.1, 0.1) * moments
        levels = np.round(levels) if rng.random() < 0.5 else levels
        method = "exact" if np.unique(levels).size == count else "asymptotic"
        assert trend_p_value(levels) == pytest.approx(stats.kendalltau(moments, levels, method=method).pvalue)
        fit = stats.theilslopes(levels, moments, alpha=0.95)
        assert theil_sen(levels, moments) == pytest.approx((fit.slope, fit.low_slope, fit.high_slope))
        trials = int(rng.integers(1, 200))
        came, chance = int(rng.integers(0, trials + 1)), rng.uniform(0.01, 0.99)
        assert binomial_tail(came, trials, chance) == pytest.approx(
            stats.binomtest(came, trials, chance, alternative="greater").pvalue
        )
        for share in (0.025, 0.975):
            assert binomial_quantile(share, trials, chance) == stats.binom.ppf(share, trials, chance)
    assert trend_p_value(np.ones(20)) == 1.0


def test_the_rank_sum_test_is_that_of_scipy() -> None:
    rng = np.random.default_rng(2)
    for turn in range(80):
        a, b = (rng.normal(rng.uniform(-1, 1), size=int(rng.integers(1, 30))) for _ in range(2))
        if turn % 3 == 0:
            a, b = np.round(a), np.round(b)  # ties
        tied = np.unique([*a, *b]).size < a.size + b.size
        for alternative in ("two-sided", "less"):
            oracle = stats.mannwhitneyu(a, b, alternative=alternative, method="asymptotic" if tied else "exact").pvalue
            expected = 1.0 if np.isnan(oracle) else oracle
            assert rank_sum_p_value(a, b, alternative) == pytest.approx(expected, rel=1e-9), (a, b, alternative)
    large = rng.normal(size=90), rng.normal(0.3, size=80)
    assert rank_sum_p_value(*large, "two-sided") == pytest.approx(
        stats.mannwhitneyu(*large, method="asymptotic").pvalue
    )
    assert rank_sum_p_value(np.array([]), np.ones(3), "less") == 1.0
