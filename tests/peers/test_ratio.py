"""The ratio of two tools: its interval's coverage by simulation, and when it holds."""

from __future__ import annotations

import math
import random

import pytest

from linkgauge.peers.request import MAX_PAIRS, MIN_PAIRS, Ratio, ratio_of_pairs, sign_interval_ranks


@pytest.mark.parametrize("n", [6, 9, 15, 31])
def test_interval_covers_the_median_as_often_as_it_says(n: int) -> None:
    low, high = sign_interval_ranks(n)
    # P(low-th <= median <= high-th) of independent values, by the binomial: more than low and at most high below it.
    covered = sum(math.comb(n, k) for k in range(low + 1, high + 1)) / 2**n
    assert covered >= 0.95
    if low + 1 < n - 1 - (low + 1):
        tighter = sum(math.comb(n, k) for k in range(low + 2, high)) / 2**n
        assert tighter < 0.95


def test_interval_covers_a_skewed_ratio() -> None:
    chance = random.Random(7)
    covered = 0
    for _ in range(2000):
        ratio = ratio_of_pairs([chance.lognormvariate(0, 0.3) for _ in range(9)], [1.0] * 9)
        covered += ratio.low <= 1.0 <= ratio.high
    assert covered / 2000 > 0.94


def test_verdicts() -> None:
    assert Ratio(1.0, 0.99, 1.01, MIN_PAIRS - 1).verdict(0.05) == "more pairs"
    assert Ratio(1.04, 1.02, 1.06, MIN_PAIRS).verdict(0.05) == "holds"
    assert Ratio(1.07, 1.05, 1.09, MIN_PAIRS).verdict(0.05) == "differs"
    assert Ratio(1.07, 1.05, 1.09, MIN_PAIRS).verdict(0.05, at_least=True) == "holds"
    assert Ratio(1.0, 0.9, 1.1, MIN_PAIRS).verdict(0.05) == "more pairs"
    assert Ratio(1.0, 0.9, 1.1, MAX_PAIRS).verdict(0.05) == "cannot tell"


def test_pairs_must_match() -> None:
    with pytest.raises(ValueError, match="pairs are needed"):
        ratio_of_pairs([1.0], [])
