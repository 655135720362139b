"""Shifts of pairs against scipy's own test, and their intervals by how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from linkgauge.stats.paired import p_of_less, paired_shift


@pytest.mark.parametrize("pairs", [1, 2, 5, 9, 20, 40, 80])
def test_the_p_value_is_that_of_scipy(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    for shift in (-0.05, 0.0, 0.02):
        ratios = rng.normal(shift, 0.03, pairs)
        method = "exact" if pairs <= 60 else "approx"
        other = stats.wilcoxon(ratios, alternative="less", method=method, correction=method == "approx").pvalue
        assert p_of_less(ratios) == pytest.approx(other, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("pairs", [7, 9, 15])
def test_the_interval_holds_the_truth_as_often_as_it_says(pairs: int) -> None:
    rng = np.random.default_rng(3)
    truth = -0.1
    held = 0
    for _ in range(600):
        found = paired_shift(np.log1p(truth) + rng.standard_t(3, pairs) * 0.02)
        assert found.low <= found.share <= found.high
        held += found.low <= truth <= found.high
    # 95 % or a little more, as ranks are whole; four standard deviations of 600 draws below.
    assert 600 * 0.95 - 4 * np.sqrt(600 * 0.05 * 0.95) <= held < 600


def test_one_pair_has_its_own_ratio_and_a_margin_counts_against() -> None:
    assert paired_shift([np.log(0.5)]).share == pytest.approx(-0.5)
    ratios = np.log(np.full(9, 0.97))
    assert p_of_less(ratios) < 0.003
    assert p_of_less(ratios, margin=0.05) > 0.9
    with pytest.raises(ValueError, match="pair"):
        paired_shift([])
