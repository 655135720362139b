"""Comparison: against brute force, and by how often it is right on noise with a known truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.stats import compare
from thorough import most, thorough


def test_the_interval_of_a_shift_leaves_out_what_counting_all_orders_leaves_out() -> None:
    n, m = 5, 6
    a = np.exp(np.linspace(0, 0.03, n))
    b = np.exp(np.linspace(0.011, 0.052, m))
    shift = compare.hodges_lehmann(a, b)
    # Brute force: the distribution of the rank statistic over all ways to choose which values are the first side's.
    statistics = [
        sum(1 for i in chosen for j in range(n + m) if j not in chosen and j < i)
        for chosen in itertools.combinations(range(n + m), n)
    ]
    total = len(statistics)
    cut = max(u for u in range(n * m) if sum(s < u for s in statistics) / total <= 0.025)
    ratios = sorted(math.log(y / x) for x in a for y in b)
    assert shift.low == pytest.approx(math.expm1(ratios[cut - 1]))
    assert shift.high == pytest.approx(math.expm1(ratios[n * m - cut]))
    assert shift.share == pytest.approx(math.expm1(np.median(ratios)))


@given(
    st.lists(st.floats(1, 1e9), min_size=1, max_size=9),
    st.lists(st.floats(1, 1e9), min_size=1, max_size=9),
    st.floats(1e-3, 1e3),
)
def test_a_shift_holds_its_center_and_does_not_depend_on_the_unit(a: list[float], b: list[float], unit: float) -> None:
    shift = compare.hodges_lehmann(a, b)
    assert shift.low <= shift.share <= shift.high
    scaled = compare.hodges_lehmann(np.array(a) * unit, np.array(b) * unit)
    assert scaled.share == pytest.approx(shift.share, rel=1e-6, abs=1e-9)
    back = compare.hodges_lehmann(b, a)
    assert (1 + back.share) * (1 + shift.share) == pytest.approx(1, rel=1e-6)


def test_intervals_cover_the_true_shift_under_heavy_tails() -> None:
    rng = np.random.default_rng(40)
    for n in (5, 8):
        covered = 0
        for _ in range(600):
            a, b = np.exp(0.01 * rng.standard_t(3, (2, n)))
            shift = compare.hodges_lehmann(a, b * 1.03)
            covered += shift.low <= 0.03 <= shift.high
        assert covered / 600 >= 0.925  # 95 % less three standard errors of 600 draws


@thorough("its intervals are tested in tests/stats")
def test_the_bootstrap_covers_spread_between_and_within_repeats() -> None:
    rng = np.random.default_rng(41)
    covered = 0
    for _ in range(100):
        sides = [
            [level * np.exp(0.02 * rng.normal() + 0.05 * rng.normal(size=60)) for _ in range(8)]
            for level in (1.0, 1.05)
        ]
        shift = compare.hierarchical_bootstrap(sides[0], sides[1], resamples=400)
        covered += shift.low <= 0.05 <= shift.high
    assert covered >= 85  # about 93 % at eight repeats, less three standard errors
    again = compare.hierarchical_bootstrap(sides[0], sides[1], resamples=400)
    assert again == shift


def test_a_side_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="times above 0"):
        compare.hodges_lehmann([], [1.0])
    with pytest.raises(ValueError, match="repeats with samples"):
        compare.hierarchical_bootstrap([[]], [[1.0]])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.001, 0.5))
def test_false_discovery_rates_call_what_the_step_up_rule_calls(p: list[float], level: float) -> None:
    q = compare.false_discovery_rates(p)
    ordered = sorted(p)
    passing = [k for k in range(1, len(p) + 1) if ordered[k - 1] <= level * k / len(p)]
    threshold = ordered[max(passing) - 1] if passing else -1.0
    near = [abs(ordered[k - 1] - level * k / len(p)) < 1e-12 for k in range(1, len(p) + 1)]
    if not any(near):
        assert [value <= level for value in q] == [value <= threshold for value in p]
    strict = compare.false_discovery_rates(p, "any")
    assert (strict >= q).all()


def test_below_five_repeats_the_answer_is_cannot_tell() -> None:
    verdict = compare.compare_repeats([[100.0, 101, 100, 99]], [[200.0] * 9])[0]
    assert verdict.verdict == "cannot tell"
    assert verdict.shift is not None
    assert "at least 5" in verdict.reason
    empty = compare.compare_repeats([[]], [[1.0]])[0]
    assert (empty.verdict, empty.shift) == ("cannot tell", None)


def test_verdicts_say_better_worse_and_same() -> None:
    rng = np.random.default_rng(42)
    base = [100 * np.exp(0.001 * rng.normal(size=8)) for _ in range(3)]
    other = [base[0] * 1.05, base[1] * 0.95, base[2] * np.exp(0.0005 * rng.normal(size=8))]
    assert [c.verdict for c in compare.compare_repeats(base, other)] == ["worse", "better", "same"]


def _sides(rng: np.random.Generator, cases: int, repeats: int, shifted: int, shift: float) -> list[list[np.ndarray]]:
    spread = rng.uniform(0.002, 0.01, cases)  # repeat-to-repeat spread, up to 1 %
    level = rng.uniform(1e3, 1e7, cases)
    first = [level[i] * np.exp(spread[i] * rng.normal(size=repeats)) for i in range(cases)]
    second = [level[i] * np.exp(spread[i] * rng.normal(size=repeats)) for i in range(cases)]
    for i in range(shifted):
        second[i] = second[i] * (1 + shift)
    return [first, second]


@pytest.mark.parametrize("seed", range(900, most(910, 903)))
def test_twenty_of_two_hundred_shifted_by_three_percent_are_found(seed: int) -> None:
    first, second = _sides(np.random.default_rng(seed), 200, 8, 20, 0.03)
    verdicts = [c.verdict for c in compare.compare_repeats(first, second)]
    assert verdicts[:20].count("worse") >= 19
    assert sum(v in ("worse", "better") for v in verdicts[20:]) <= 4


@pytest.mark.parametrize("repeats", [5, pytest.param(8, marks=thorough("of five repeats the same rates hold"))])
def test_a_run_measured_again_is_seldom_called_different(repeats: int) -> None:
    called = total = 0
    for seed in range(950, 960):
        rng = np.random.default_rng(seed)
        first, second = _sides(rng, 200, repeats, 0, 0.0)
        verdicts = [c.verdict for c in compare.compare_repeats(first, second)]
        called += sum(v in ("worse", "better") for v in verdicts)
        total += len(verdicts)
    assert called / total <= 0.05


def test_few_repeats_and_many_cases_use_a_test_that_can_call_one() -> None:
    rng = np.random.default_rng(43)
    first, second = _sides(rng, 200, 5, 1, 0.1)
    assert compare.least_p_value(5, 5) > 0.05 / 200
    verdicts = [c.verdict for c in compare.compare_repeats(first, second)]
    assert verdicts[0] == "worse"
    assert compare.p_values(first, second)[1] == "moderated t"
    assert compare.p_values(first[:2], second[:2])[1] == "rank"


def test_variance_prior_recovers_what_it_was_drawn_from() -> None:
    rng = np.random.default_rng(44)
    freedom, prior_freedom, prior = 8.0, 6.0, 4.0
    true = prior * prior_freedom / rng.chisquare(prior_freedom, 4000)
    variances = true * rng.chisquare(freedom, 4000) / freedom
    fitted, scale = compare.fit_prior(variances, np.full(4000, freedom))
    assert fitted == pytest.approx(prior_freedom, rel=0.2)
    assert scale == pytest.approx(prior, rel=0.1)


def test_a_link_slower_by_less_than_one_case_shows_is_found_by_its_pool() -> None:
    rng = np.random.default_rng(45)
    pools = {link: list(range(link * 40, link * 40 + 40)) for link in range(4)}

    def side(slow: float) -> list[dict[int, float]]:
        return [
            {r: 1e5 * (slow if i in pools[2] else 1.0) * math.exp(0.01 * rng.normal()) for r in range(6)}
            for i in range(160)
        ]

    first, second = side(1.0), side(1.008)
    singles = compare.compare_repeats(
        [list(a.values()) for a in first], [list(b.values()) for b in second], margin=0.002
    )
    assert sum(c.verdict == "worse" for c in singles) <= 8
    sides = [compare.pool_repeats(first, second, members) for members in pools.values()]
    pooled = compare.compare_repeats([a for a, _ in sides], [b for _, b in sides], margin=0.004)
    assert [c.verdict == "worse" for c in pooled] == [False, False, True, False]
    assert pooled[2].repeats == (6, 6)
