"""Figures of curves against curves whose truth is known: Hockney's closed forms, steps, and plain searches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.stats.derived import Curve, CurveFigures, Figure, as_curve, curve_figures, fewest_blocks
from thorough import most

Floats = npt.NDArray[np.float64]


def curve(sizes: Floats, times: Floats, noise: float = 1e-6, payload: float | None = 1.0) -> Curve:
    return Curve(sizes, times, times * (1 - noise), times * (1 + noise), payload)


def hockney(t0_ns: float, rate: float, sizes: Floats) -> Floats:
    return t0_ns + sizes / rate * 1e9


def value(figure: Figure | None) -> float:
    assert figure is not None
    return figure.value


@settings(deadline=None, max_examples=60)
@given(
    t0_ns=st.floats(500, 50_000),
    rate=st.floats(1e9, 1e12),
    factor=st.sampled_from([2, 4, 8, 16]),
    first=st.integers(0, 3),
)
def test_a_curve_of_hockneys_model_gives_its_closed_forms(t0_ns: float, rate: float, factor: int, first: int) -> None:
    """r(m) = m / (t0 + m/r): with peak p at the last size M, share s is at m = s p t0 / (1 - s p / r)."""
    sizes = np.array([2.0**first * factor**k for k in range(40) if 2.0**first * factor**k < 2**36])
    found = curve_figures(curve(sizes, hockney(t0_ns, rate, sizes)))
    t0 = t0_ns / 1e9
    peak = sizes[-1] / (t0 + sizes[-1] / rate)
    for share, figure in ((0.5, found.half), (0.95, found.saturation)):
        truth = share * peak * t0 / (1 - share * peak / rate)
        assert value(figure) == pytest.approx(truth, rel=1e-4)
        assert figure is not None
        assert figure.below <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= figure.above
        assert figure.limit == ""
    flat = 0.10 * (t0 + sizes[0] / rate) * rate + sizes[0]
    assert value(found.flat_up_to) == pytest.approx(flat, rel=1e-4)
    assert found.peak_bytes_per_s == pytest.approx(peak)
    assert found.peak_size == sizes[-1]


def test_half_of_peak_is_hockneys_n_half_where_the_curve_reaches_its_rate() -> None:
    sizes = 2.0 ** np.arange(3, 45, 3)
    found = curve_figures(curve(sizes, hockney(2_000, 50e9, sizes)))
    assert value(found.half) == pytest.approx(2_000e-9 * 50e9, rel=1e-3)  # n1/2 = t0 r_inf
    assert not found.rising


def test_payload_scales_rates_and_moves_no_size() -> None:
    sizes = 2.0 ** np.arange(3, 31)
    times = hockney(3_000, 20e9, sizes)
    one, eight = curve_figures(curve(sizes, times)), curve_figures(curve(sizes, times, payload=8.0))
    assert value(one.half) == pytest.approx(value(eight.half))
    assert eight.peak_bytes_per_s == pytest.approx(8 * (one.peak_bytes_per_s or 0))


def test_a_curve_that_ends_while_it_still_rises_says_so() -> None:
    sizes = 2.0 ** np.arange(3, 12)
    assert curve_figures(curve(sizes, hockney(10_000, 100e9, sizes))).rising


def test_the_ends_of_a_curve_are_limits_not_values() -> None:
    sizes = 2.0 ** np.arange(3, 10)
    flat = curve_figures(curve(sizes, np.full(7, 1000.0)))
    assert flat.flat_up_to == Figure(512.0, 512.0, 512.0, 512.0, 512.0, "at least")
    full = curve_figures(curve(sizes, sizes * 10.0))  # the same rate at every size
    assert full.half is not None
    assert (full.half.value, full.half.limit) == (8.0, "at most")


def test_a_later_fall_of_the_rate_does_not_move_what_was_reached() -> None:
    sizes = 2.0 ** np.arange(3, 31)
    times = hockney(3_000, 20e9, sizes)
    times[-3:] *= 2  # beyond a cache
    found = curve_figures(curve(sizes, times))
    assert found.peak_size == sizes[-4]
    assert value(found.half) < value(found.saturation) < sizes[-4]


def test_one_size_or_none_gives_nothing() -> None:
    nothing = CurveFigures(None, None, None, None, None, False)
    assert curve_figures(as_curve([(8, 1.0, 1.0, 1.0)], 1.0)) == nothing
    assert curve_figures(as_curve([], None)) == nothing


def test_latency_patterns_have_no_rate() -> None:
    sizes = 2.0 ** np.arange(3, 10)
    found = curve_figures(curve(sizes, hockney(1000, 1e9, sizes), payload=None))
    assert (found.half, found.peak_bytes_per_s) == (None, None)
    assert found.flat_up_to is not None


def test_wrong_curves_are_refused() -> None:
    for sizes, times in (([8.0, 8.0], [1.0, 2.0]), ([8.0, 16.0], [1.0, 0.0]), ([8.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="ascending"):
            curve(np.array(sizes), np.array(times))


def test_points_come_in_any_order_and_the_faster_of_a_size_counts() -> None:
    found = as_curve([(64, 9.0, 8, 10), (8, 5.0, 4, 6), (64, 7.0, 6, 8), (0, 1.0, 1, 1)], 1.0)
    assert found.sizes.tolist() == [8, 64]
    assert found.times_ns.tolist() == [5, 7]


@pytest.mark.parametrize("figure", ["half", "flat_up_to", "saturation"])
@pytest.mark.parametrize(("sigma", "step"), most([(0.012, 2), (0.012, 1), (0.004, 3)], [(0.004, 3)]))
def test_the_interval_covers_the_truth_nearly_as_often_as_it_says(figure: str, sigma: float, step: int) -> None:
    """Medians drawn with the very spread that their intervals state: nominal 95 %, of 150 curves at least 85 %."""
    sizes = 2.0 ** np.arange(3, 30, step)
    times = hockney(4_000.0, 25e9, sizes)
    truth = value(getattr(curve_figures(curve(sizes, times)), figure))
    generator = np.random.default_rng(7)
    half = np.exp(1.96 * sigma)
    covered = 0
    for number in range(150):
        seen = times * np.exp(sigma * generator.standard_normal(len(sizes)))
        one = getattr(curve_figures(Curve(sizes, seen, seen / half, seen * half, 1.0), seed=number), figure)
        covered += one.low <= truth <= one.high
    assert covered >= 0.85 * 150


def test_what_the_medians_cannot_tell_is_not_said() -> None:
    sizes = 2.0 ** np.arange(3, 30)
    times = hockney(4_000.0, 25e9, sizes)
    some, few = curve_figures(curve(sizes, times, noise=0.04)), curve_figures(curve(sizes, times, noise=0.06))
    assert some.saturation is None
    assert some.flat_up_to is not None
    assert few.flat_up_to is None
    assert few.half is not None


def test_narrow_medians_give_narrow_intervals() -> None:
    sizes = 2.0 ** np.arange(3, 29, 2)
    times = hockney(4_000, 25e9, sizes)
    narrow, wide = (curve_figures(curve(sizes, times, noise)).half for noise in (0.001, 0.1))
    assert narrow is not None
    assert wide is not None
    assert narrow.high - narrow.low < (wide.high - wide.low) / 20


def blocks_of(rate_of_one: float, most: float, blocks: Floats) -> Floats:
    """Times of 1 GiB by so many blocks, each at a rate of its own until the link is full."""
    return (1 << 30) / np.minimum(rate_of_one * blocks, most) * 1e9


@given(st.floats(1.0, 200.0))
@settings(deadline=None, max_examples=40)
def test_the_fewest_blocks_are_those_of_a_plain_search(needed: float) -> None:
    blocks = np.array([1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 132, 264], float)
    times = blocks_of(400e9 / needed, 400e9, blocks)
    found = fewest_blocks(blocks, times, times * (1 - 1e-9), times * (1 + 1e-9))
    rates = 1 / times
    expected = next(b for b, rate in zip(blocks, rates, strict=True) if rate >= 0.95 * rates.max())
    assert found is not None
    assert found.value == found.low == found.high == expected
    place = blocks.tolist().index(expected)
    assert (found.below, found.limit) == ((blocks[place - 1], "") if place else (blocks[0], "at most"))


def test_noise_at_the_threshold_widens_the_blocks_interval() -> None:
    blocks = np.array([8.0, 16.0, 32.0, 64.0])
    times = np.array([200.0, 100.0 / 0.951, 100.0, 100.0])
    found = fewest_blocks(blocks, times, times * 0.97, times * 1.03)
    assert found is not None
    assert (found.low, found.value, found.high) == (16.0, 16.0, 32.0)
    assert fewest_blocks(blocks[:1], times[:1], times[:1], times[:1]) is None
