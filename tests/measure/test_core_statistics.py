"""The core's statistics against numpy, and over many series at once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from linkgauge.errors import UsageError
from measure.core_ranks import core

series = npst.arrays(np.float64, st.integers(1, 300), elements=st.floats(0, 1e12))


@given(series)
@settings(max_examples=60, deadline=None)
def test_median_is_numpys(values: np.ndarray) -> None:
    assert core.median(values) == pytest.approx(np.median(values), rel=1e-12)


@given(series, st.floats(0, 100))
@settings(max_examples=60, deadline=None)
def test_interval_holds_the_median_and_a_tick(values: np.ndarray, tick: float) -> None:
    low, high = core.median_interval(values, tick)
    slack = 1e-9 * (1 + abs(high))
    assert low - slack <= np.median(values) <= high + slack
    assert high - low >= tick * (1 - 1e-9) - slack
    assert 0 <= core.warmup_cut(values) <= len(values) / 2
    assert 1 <= core.effective_size(values) <= len(values)


def test_interval_does_not_depend_on_the_unit() -> None:
    values = np.random.default_rng(1).lognormal(size=200)
    low, high = core.median_interval(values)
    assert core.median_interval(values * 1000) == pytest.approx((1000 * low, 1000 * high))
    assert core.effective_size(values * 1000) == pytest.approx(core.effective_size(values))


def test_empty_series_are_nan() -> None:
    assert np.isnan(core.median(np.array([])))
    assert np.isnan(core.median_interval(np.array([]))).all()


def test_groups_are_summarized_as_numpy_would() -> None:
    random = np.random.default_rng(2)
    counts = [0, 1, 5, 40, 1000, 3]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    values = random.exponential(size=offsets[-1])
    found = core.summarize_groups(values, offsets, np.full(len(counts), 0.001))
    assert (found["count_all"] == counts).all()
    for group, (first, last) in enumerate(itertools.pairwise(offsets)):
        cut = found["warmup_cut"][group]
        kept = values[first + cut : last]
        assert found["count"][group] == len(kept)
        if len(kept) == 0:
            assert np.isnan(found["median"][group])
            continue
        shares = {"p5": 5, "quartile_1": 25, "median": 50, "quartile_3": 75, "p95": 95, "p99": 99}
        for name, share in shares.items():
            assert found[name][group] == pytest.approx(np.percentile(kept, share))
        assert found["mean"][group] == pytest.approx(kept.mean())
        assert (found["min"][group], found["max"][group]) == (kept.min(), kept.max())
        interval = (found["interval_low"][group], found["interval_high"][group])
        assert interval == pytest.approx(core.median_interval(kept, 0.001))


@pytest.mark.parametrize("offsets", [[], [0, 5, 3], [0, 99], [-1, 3]])
def test_wrong_offsets_are_refused(offsets: list[int]) -> None:
    with pytest.raises(UsageError, match="offsets"):
        core.summarize_groups(np.zeros(10), np.array(offsets, dtype=np.int64), np.zeros(max(len(offsets) - 1, 0)))


def test_threads_do_not_change_the_result() -> None:
    values = np.random.default_rng(3).normal(size=20_000)
    offsets = np.arange(0, 20_001, 500, dtype=np.int64)
    one = core.summarize_groups(values, offsets, np.zeros(40), threads=1)
    many = core.summarize_groups(values, offsets, np.zeros(40), threads=7)
    for name, column in one.items():
        np.testing.assert_array_equal(column, many[name])
