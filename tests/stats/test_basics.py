"""Counts of many windows and repeats: exact binomials as whole numbers are the oracle, at any number of trials."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from linkgauge.stats.basics import binomial_quantile, sign_interval_ranks
from linkgauge.stats.compare import least_p_value, p_values


def exact_quantile(share: Fraction, trials: int) -> int:
    """The smallest count at or below which `share` of 2**trials outcomes lie."""
    below, term = 0, 1
    for count in range(trials + 1):
        below += term
        if below >= share * 2**trials:
            return count
        term = term * (trials - count) // (count + 1)
    raise AssertionError("shares are below 1")


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 31, 200, 1029, 1030, 1261, 4999, 20_000])
def test_the_intervals_ranks_are_those_of_the_exact_binomial(n: int) -> None:
    low, high = sign_interval_ranks(n)
    assert low == max(exact_quantile(Fraction(1, 40), n) - 1, 0)
    assert high == n - 1 - low


def test_a_quantile_is_the_smallest_count_that_reaches_its_share() -> None:
    chance = random.Random(3)
    for _ in range(300):
        trials, share, p = chance.randint(1, 60), chance.uniform(0.001, 0.999), chance.uniform(0.01, 0.99)
        below, count = 0.0, -1
        while below < share:
            count += 1
            below += math.comb(trials, count) * p**count * (1 - p) ** (trials - count)
        assert binomial_quantile(share, trials, p) == count
    assert abs(binomial_quantile(0.5, 10**9, 0.5) - 5 * 10**8) <= 1


def test_two_long_watches_are_compared_where_their_orders_are_beyond_any_float() -> None:
    assert least_p_value(5, 5) == pytest.approx(2 / 252)
    assert least_p_value(515, 515) < 1e-300
    assert least_p_value(10_000, 10_000) == 0.0
    draws = np.random.default_rng(1)
    first, second = (100 + draws.random(600) for _ in range(2))
    (same,), _ = p_values([first], [second])
    (apart,), _ = p_values([first], [2 * second])
    assert apart < 1e-6 < same
