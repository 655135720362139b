"""Slow-downs by turns: planted factors are found within their intervals, and drift is not taken for a load's doing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from linkgauge.stats.interference import LEAST_WINDOWS, LoadRate, SlowDown, Stretches, load_rate, slow_down

WINDOWS = [0, 1, 3, 7, 12, 17, 22, 27, 32, 38, 45, 54, 64, 76, 91]


def _series(rng: np.random.Generator, factor: float, drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Beside and alone, 110 samples each, taken window after window while the machine drifts to `drift` times."""
    n = 110
    noise = rng.lognormal(0, 0.05, (2, n))
    moment = np.empty((2, n))
    clock = 0
    for turn, (begin, end) in enumerate(zip(WINDOWS, [*WINDOWS[1:], n], strict=True)):
        for kind in (0, 1) if turn % 2 == 0 else (1, 0):
            moment[kind, begin:end] = np.arange(clock, clock + end - begin)
            clock += end - begin
    slow = 1 + (drift - 1) * moment / (2 * n)
    return 1000 * factor * noise[0] * slow[0], 1000 * noise[1] * slow[1]


@pytest.mark.parametrize("factor", [1.0, 1.1, 2.5])
@pytest.mark.parametrize("drift", [1.0, 1.5])
def test_a_planted_factor_is_found(factor: float, drift: float) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(100):
        found, windows = slow_down(*_series(rng, factor, drift), WINDOWS)
        assert windows >= LEAST_WINDOWS
        assert found.interval is not None
        held += found.interval[0] <= factor <= found.interval[1]
        assert found.factor == pytest.approx(factor, rel=0.06)
    assert held >= 90  # of a nominal 95


def test_what_cannot_be_true_is_not_known() -> None:
    assert SlowDown(0.5, 1.06, (0.9, 1.7)).known
    assert not SlowDown(0.5, 1.06, (0.025, 29.0)).known
    assert LoadRate(1, 108.0, 100.0).kept == 1.08
    assert LoadRate(1, 4626.0, 100.0).kept is None


def test_few_windows_give_no_interval() -> None:
    beside, alone = _series(np.random.default_rng(1), 1.0, 1.0)
    found, windows = slow_down(beside[:20], alone[:20], [0, 5, 10, 15])
    assert (found.interval, windows) == (None, 4)
    found, windows = slow_down(beside[:2], alone[:2], [0])
    assert (found.interval, windows) == (None, 1)


def test_windows_that_lack_samples_are_joined() -> None:
    beside, alone = np.full(12, 30.0), np.full(12, 20.0)
    found, windows = slow_down(beside, alone, list(range(12)))
    assert (found.factor, windows) == (1.5, 4)
    found, windows = slow_down(beside, alone[:11], list(range(12)))
    assert windows == 3


@pytest.mark.parametrize("kept", [0.25, 0.5, 1.0])
def test_what_a_load_keeps_is_of_the_time_under_way(kept: float) -> None:
    """A load of 100 ns an operation alone, slower while a measured one is under way, in stretches that meet both."""
    rng = np.random.default_rng(3)
    gaps = rng.uniform(500, 3000, 400)
    lengths = rng.uniform(500, 3000, 400)
    begins = np.cumsum(gaps + lengths) - lengths
    under_way = np.column_stack([begins, begins + lengths])

    def held(begin: float, end: float) -> float:
        """Operations from one moment to another."""
        both = np.clip(np.minimum(under_way[:, 1], end) - np.maximum(under_way[:, 0], begin), 0, None).sum()
        return float((end - begin - both + kept * both) / 100)

    edges = np.linspace(1000, begins[-1] - 1000, 60)
    beside = Stretches(edges[:-1], np.diff(edges), np.array([held(a, b) for a, b in itertools.pairwise(edges)]))
    alone = Stretches(-np.array([9e5, 5e5]), np.array([3e5, 4e5]), np.array([3000.0, 4000.0]))
    rate = load_rate(2, {"alone": alone, "background": beside}, under_way)
    assert rate.alone_ns == pytest.approx(100)
    assert rate.kept == pytest.approx(kept, rel=1e-9)
    assert load_rate(2, {"alone": alone, "background": beside}, under_way[:20]).kept is None  # seldom under way
    assert load_rate(2, {"alone": alone, "background": beside}, None).kept is None
    assert load_rate(2, {"background": beside}, under_way).alone_ns is None
