"""Arrival, wait and transfer; the straggler named only when the data support it."""

from __future__ import annotations

import numpy as np
import pytest

from linkgauge.stats.arrival import find_straggler, slow_transfer, split


def test_the_split_is_what_the_definitions_say() -> None:
    parts = split([[105, 100, 130]], [[95, 100, 80]], [[100, 100, 100]])
    assert parts.arrival_ns.tolist() == [[5, 0, 30]]
    assert parts.transfer_ns.tolist() == [[70, 70, 80]]


def test_a_shape_that_is_not_samples_by_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="samples, ranks"):
        split([1, 2], [1, 2], [0, 0])


def _starts(rng: np.random.Generator, samples: int, ranks: int) -> np.ndarray:
    return (rng.exponential(200, (samples, ranks))).astype(np.int64)


def test_a_late_rank_is_named_with_its_lateness() -> None:
    rng = np.random.default_rng(1)
    for late in range(4):
        starts = _starts(rng, 100, 4)
        starts[:, late] += 5_000
        found = find_straggler(split(starts, np.full_like(starts, 10_000), np.zeros_like(starts)))
        assert found is not None
        assert found.rank == late
        assert found.lateness_ns == pytest.approx(5_000, rel=0.1)


def test_equal_ranks_have_no_straggler() -> None:
    rng = np.random.default_rng(2)
    named = 0
    for _ in range(100):
        starts = _starts(rng, 60, 8)
        named += (
            find_straggler(split(starts, np.full_like(starts, 1_000), np.zeros_like(starts)), least_cost_share=0)
            is not None
        )
    assert named <= 1


def test_clocks_that_do_not_agree_name_nobody() -> None:
    rng = np.random.default_rng(3)
    starts = _starts(rng, 100, 4)
    starts[:, 1] += 5_000
    parts = split(starts, np.full_like(starts, 10_000), np.zeros_like(starts))
    assert find_straggler(parts, uncertainty_ns=4_000) is None
    assert find_straggler(parts, uncertainty_ns=1_000) is not None


def test_too_few_samples_or_a_small_lateness_name_nobody() -> None:
    starts = np.zeros((9, 3), dtype=np.int64)
    starts[:, 2] = 9_000
    assert find_straggler(split(starts, np.full_like(starts, 1_000), np.zeros_like(starts))) is None
    starts = np.zeros((90, 3), dtype=np.int64)
    starts[:, 2] = 9
    assert find_straggler(split(starts, np.full_like(starts, 1_000), np.zeros_like(starts))) is None


def test_a_rank_that_ends_last_is_named() -> None:
    rng = np.random.default_rng(4)
    durations = rng.normal(10_000, 100, (60, 4))
    durations[:, 2] *= 1.2
    zeros = np.zeros_like(durations, dtype=np.int64)
    assert slow_transfer(split(zeros, durations.astype(np.int64), zeros)) == 2
    durations[:, 2] /= 1.2
    assert slow_transfer(split(zeros, durations.astype(np.int64), zeros)) is None
