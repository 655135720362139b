"""Slow-downs by turns: planted factors are found within their intervals, and drift is not taken for a load's doing."""

from __future__ import annotations

import numpy as np
import pytest

from linkgauge.stats.interference import LEAST_WINDOWS, slow_down

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
