"""Small shifts over rounds: found where the noise allows, and false alarms at any look at most at the level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import signal

from linkgauge.stats.power import Noise
from linkgauge.stats.rank_evidence import memories_of, rank_bounds, rank_evidence
from linkgauge.stats.sequential import discoveries, shift_bounds, signed_evidence
from linkgauge.stats.small_shifts import against_others, among_siblings, between_sides
from linkgauge.stats.time_blocks import PILOT, adjusted, in_blocks
from thorough import most

SHIFT = math.log1p(0.003)


def correlated(rng: np.random.Generator, rounds: int, members: int, rho: float, share: float = 0.005) -> np.ndarray:
    """Autoregressive noise with heavy tails and deviation `share`."""
    drawn = rng.standard_t(5, (rounds + 50, members)) / math.sqrt(5 / 3)
    return share * signal.lfilter([math.sqrt(1 - rho * rho)], [1, -rho], drawn, axis=0)[50:]


def test_evidence_against_a_true_null_rarely_exceeds_the_bar_at_any_look() -> None:
    rng = np.random.default_rng(1)
    draws = 2000
    for tails in (1.5, 3.0, 30.0):  # no variance, no third moment, nearly normal
        values = rng.standard_t(tails, (60, draws))
        path = signed_evidence(values, np.full(60, 1.0), 0.5)
        assert (path.max(axis=0) >= math.log(20)).sum() <= 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)


def test_a_bet_is_fair_for_every_symmetric_pair_of_values() -> None:
    for value in (0.001, 0.3, 2.0, 50.0):
        one, other = (np.exp(signed_evidence([sign * value], [1.0], 0.4)[0]) for sign in (1, -1))
        assert (one + other) / 2 == pytest.approx(1.0)


def test_the_bounds_hold_the_center_and_what_evidence_refuses_lies_outside() -> None:
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(40):
        values = rng.normal(SHIFT, 0.005, 80)
        low, high = shift_bounds(values, np.full(80, 0.005), SHIFT)
        missed += not low <= SHIFT <= high
        assert signed_evidence(values - low - 1e-4, np.full(80, 0.005), SHIFT)[-1] < math.log(40)
        assert signed_evidence(values - low + 1e-4, np.full(80, 0.005), SHIFT)[-1] >= math.log(40) - 0.1
    assert missed <= 5


def test_more_members_need_more_evidence_and_calls_help_each_other() -> None:
    assert discoveries([math.log(200)] + [0.0] * 9).tolist() == [True] + [False] * 9
    assert not discoveries([math.log(199)] + [0.0] * 9).any()
    assert discoveries([math.log(100), math.log(100)] + [0.0] * 8).sum() == 2
    assert discoveries([]).size == 0


def fleet(seed: list[int], rounds: int, memories: list[float] | float, share: float = 0.004) -> np.ndarray:
    """24 nodes whose noise is skewed, as that of stored samples is, each with its own memory."""
    rng = np.random.default_rng(seed)
    rho = np.broadcast_to(memories, 24)
    made = [correlated(rng, rounds, 1, float(one), share)[:, 0] for one in rho]
    skewed = np.expm1(np.stack(made, axis=1) / share) * share  # a long tail to the slow side
    return skewed - np.median(skewed)


@pytest.mark.parametrize("rho", most([0.0, 0.4], [0.4]))
def test_the_slow_one_of_many_is_named_and_nobody_else(rho: float) -> None:
    named = others = clean = 0
    for seed in range(3):
        values = fleet([3, seed], 240, rho)
        clean += any(one.since for one in among_siblings(values).members)
        values[:, 5] += math.log1p(0.005)
        found = among_siblings(values)
        named += found.members[5].verdict == "slower"
        others += any(one.since for at, one in enumerate(found.members) if at != 5)
    assert named >= 2
    assert (clean, others) == (0, 0)


def test_skew_a_wander_and_a_noisy_node_accuse_nobody_at_any_look() -> None:
    accused = 0
    for seed in range(6):
        values = fleet([10, seed], 180, [0.97, 0.9, *[0.0] * 22])
        values[:, 7] *= 4
        accused += any(one.since for one in among_siblings(values).members)
    assert accused <= 1


def test_each_rank_is_paid_fairly_and_a_missing_value_costs_nothing() -> None:
    blocks = np.random.default_rng(11).normal(size=(1, 9))
    paid = rank_evidence(blocks, np.full(9, 0.5))
    assert np.exp(paid).mean() == pytest.approx(1.0, abs=1e-3)
    assert np.exp(paid).mean() <= 1.0
    assert np.argmax(paid) == np.argmax(blocks[0])
    blocks[0, 3] = np.nan
    assert rank_evidence(blocks, np.full(9, 0.5))[3] == pytest.approx(0.0)


def test_the_bounds_of_a_node_hold_its_shift_and_shrink() -> None:
    rng = np.random.default_rng(12)
    blocks = rng.normal(0, 0.001, (24, 10))
    blocks[:, 4] += SHIFT
    shifts = np.full(10, SHIFT)
    low, high = rank_bounds(blocks, shifts)
    assert low[4] < SHIFT < high[4]
    assert low[4] > 0
    assert rank_bounds(blocks[:6], shifts)[0][4] < low[4]
    moved = rank_bounds(blocks + 0.7, shifts)
    assert np.allclose(moved[0], low, atol=1e-5)


def test_memory_is_that_of_the_rounds() -> None:
    rng = np.random.default_rng(13)
    for rho in (0.0, 0.5, 0.8):
        whole, own = memories_of(correlated(rng, 400, 12, rho))
        assert whole == pytest.approx((1 + rho) / (1 - rho), rel=0.3)
        assert (own >= whole).all()


def test_two_sides_without_a_difference_are_rarely_called_at_any_look() -> None:
    called = found = 0
    for seed in range(40):
        values = correlated(np.random.default_rng([4, seed]), 240, 1, 0.3)
        called += bool(between_sides(values).members[0].since)
        found += between_sides(values - math.log1p(0.006), 0.006).members[0].verdict == "faster"
    assert called <= 4
    assert found >= 34


def test_what_is_common_to_all_and_each_levels_unit_change_nothing() -> None:
    rng = np.random.default_rng(5)
    values = correlated(rng, 100, 10, 0.2)
    drift = np.cumsum(rng.normal(0, 0.01, (100, 1)), axis=0)
    one, other = among_siblings(values), among_siblings(values + drift + 7.0)
    for a, b in zip(one.members, other.members, strict=True):
        assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-6)
        assert a.verdict == b.verdict


def test_later_rounds_do_not_change_earlier_bets() -> None:
    values = correlated(np.random.default_rng(6), 120, 5, 0.4)
    whole, part = in_blocks(values), in_blocks(values[:70])
    for long, short in zip(whole, part, strict=True):
        count = short.values.size
        assert count
        assert np.array_equal(long.values[:count], short.values)
        assert np.array_equal(long.scales[:count], short.scales)


def test_temperature_is_taken_out_but_not_a_lasting_difference() -> None:
    rng = np.random.default_rng(7)
    degrees = 60 + np.cumsum(rng.normal(0, 0.5, (200, 6)), axis=0)
    degrees[:, 2] += 10
    values = rng.normal(0, 0.0005, (200, 6)) + 0.001 * (degrees - degrees.mean(axis=0))
    values[:, 2] += 0.01
    cleaned = adjusted(values, degrees)
    assert cleaned[60:].std(axis=0).max() < 0.5 * values[60:].std(axis=0).max()
    assert cleaned[60:, 2].mean() == pytest.approx(0.01, abs=0.004)
    assert np.array_equal(adjusted(values, degrees)[:PILOT], values[:PILOT])
    assert np.allclose(adjusted(values, degrees + 100), cleaned)


def test_members_against_the_median_of_the_others() -> None:
    rng = np.random.default_rng(8)
    for count in (2, 3, 6, 9):
        values = rng.normal(size=(4, count))
        expected = [[row[k] - np.median(np.delete(row, k)) for k in range(count)] for row in values]
        assert np.allclose(against_others(values), expected)
    values[1, 2] = np.nan
    assert np.isnan(against_others(values)[1, 2])
    assert np.isfinite(against_others(values)[1, 0])


def test_the_power_that_is_said_is_what_is_found() -> None:
    noise = Noise(0.01, 1, 2)
    rounds = noise.rounds_for(SHIFT)
    assert noise.seen_in(rounds) == pytest.approx(SHIFT, rel=0.02)
    assert noise.rounds_for(2 * SHIFT) < rounds < Noise(0.02, 1, 2).rounds_for(SHIFT)
    assert noise.seen_in(3) is None
    rng = np.random.default_rng(9)
    scales = np.full(rounds - PILOT, 0.01)
    found = sum(
        bool((signed_evidence(rng.normal(SHIFT, 0.01, scales.size), scales, SHIFT) >= math.log(2 / 0.05)).any())
        for _ in range(200)
    )
    assert found >= 184  # 95 %, less three deviations of the draw


def test_too_little_says_so() -> None:
    for values in (np.zeros((0, 3)), np.zeros((3, 3)), np.full((20, 3), np.nan), np.zeros((20, 1))):
        assert all(one.verdict == "cannot tell" for one in among_siblings(values).members)
