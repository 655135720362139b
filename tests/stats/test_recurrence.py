"""Moments that recur are told with their period; moments at random are not."""

from __future__ import annotations

import numpy as np
import pytest

from linkgauge.stats.recurrence import period_of
from thorough import most


@pytest.mark.parametrize("period", [0.7, 2.0, 5.5])
def test_moments_that_recur_are_told_with_the_longest_period(period: float) -> None:
    rng = np.random.default_rng(1)
    every = np.sort(rng.uniform(0, 40 * period, 400))
    hit = every[every % period < 0.15 * period]
    assert period_of(hit.tolist(), every.tolist()) == pytest.approx(period, rel=0.01)


def test_moments_at_random_do_not_recur() -> None:
    told = 0
    for seed in range(most(200, 40)):
        rng = np.random.default_rng(seed)
        every = rng.uniform(0, 60, 120)
        told += period_of(every[: int(rng.integers(3, 60))].tolist(), every.tolist()) is not None
    assert told <= most(6, 2)  # one of a hundred by chance


def test_looks_that_come_at_a_period_show_none_of_what_they_look_at() -> None:
    every = np.arange(60.0)
    assert period_of(every[::3][:15].tolist(), every.tolist()) == pytest.approx(3.0, rel=0.01)
    assert period_of(every.tolist(), every.tolist()) is None


@pytest.mark.parametrize("moments", [[], [1.0], [1.0, 1.0], [1.0, 1.05, 1.1], [1.0, 3.0, 5.0]])
def test_too_few_moments_show_nothing(moments: list[float]) -> None:
    assert period_of(moments, [*moments, 0.5, 7.0]) is None
