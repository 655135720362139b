"""Figures that are derived from a curve over sizes, or over the thread blocks of a kernel; never measured themselves.

A curve is what one case gives over its sizes, all else equal. Between two measured sizes the time is taken to be linear
in the size, as in Hockney's model t(m) = t0 + m / r_inf (R. W. Hockney, The communication challenge for MPP, Parallel
Computing 20, 1994, section 2), in which n1/2 = t0 r_inf is the size that reaches half of the rate. Figures are
therefore exact for a curve of that model, however coarse its sizes; others are known no better than the measured sizes
on both sides, which are given. The rate that half and 95 % are of is the largest that was measured, not an
extrapolation.

Intervals come from redrawing: every median independently from a log-normal whose 95 % interval is the median's own, and
the figure found anew (percentile and basic bootstrap together); they say what the noise of the medians does, not what
lies between the sizes. A threshold that is nearer to its reference than the medians are known, twice over, cannot be
placed: 95 % of the peak needs medians known to 2.5 %, a flat latency to 5 %.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats

FLAT = 1.10
"""A latency is flat up to where it exceeds the smallest size's by this factor."""
HALF, SATURATED = 0.5, 0.95
RISING = 1.02
"""Where the slope of the last two sizes promises a rate higher than the peak by this factor, the peak lies beyond."""
DRAWS = 1000
_Z95 = 1.959964
# What an end of the curve means: a latency that is flat to the last size may be so beyond it; a rate that the first
# size has was reached before it.
_FLAT_ENDS, _RATES = "flat", "rate"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A size in bytes (or a number of blocks) with its 95 % interval, and the measured ones on both sides.

    `limit`: "" for a value; "at least" where the curve ends before it, "at most" where it begins after it: `value` is
    then the curve's last or first size. `below` and `above` are equal where a measured one is the value.
    """

    value: float
    low: float
    high: float
    below: float
    above: float
    limit: str = ""


@dataclasses.dataclass(frozen=True)
class CurveFigures:
    """What a curve over sizes says. Rates in bytes per second, sizes in bytes; None: the curve cannot say."""

    flat_up_to: Figure | None  # largest size with a latency within 10 % of the smallest size's
    half: Figure | None  # n1/2: smallest size with half of the peak
    saturation: Figure | None  # smallest size with 95 % of the peak
    peak_bytes_per_s: float | None
    peak_size: float | None
    rising: bool  # the largest size is the fastest, and larger ones promise more: half and 95 % may lie further on


@dataclasses.dataclass(frozen=True)
class Curve:
    """Times of one case over sizes: ascending sizes in bytes, medians and their 95 % intervals in ns.

    `payload` is goodput's bytes for each byte of size; None for a pattern that has no goodput.
    """

    sizes: Floats
    times_ns: Floats
    low_ns: Floats
    high_ns: Floats
    payload: float | None

    def __post_init__(self) -> None:
        """ValueError for arrays of different lengths, sizes that do not grow, or times that are not positive."""
        lengths = {len(self.sizes), len(self.times_ns), len(self.low_ns), len(self.high_ns)}
        if len(lengths) != 1 or (np.diff(self.sizes) <= 0).any() or (self.times_ns <= 0).any():
            raise ValueError("a curve has one positive time for each of its ascending sizes")


def curve_figures(curve: Curve, seed: int = 1) -> CurveFigures:
    """Return the figures of a curve of two sizes or more; fewer give none. The same seed gives the same intervals."""
    if len(curve.sizes) < 2:
        return CurveFigures(None, None, None, None, None, False)
    drawn = _redrawn(curve.times_ns, curve.low_ns, curve.high_ns, seed)
    sizes = curve.sizes
    half_width = float(np.median((curve.high_ns - curve.low_ns) / curve.times_ns)) / 2
    flat = (
        None
        if half_width > (FLAT - 1) / 2
        else _figure(sizes, _flat_end(sizes, curve.times_ns[None, :])[0], _flat_end(sizes, drawn), _FLAT_ENDS)
    )
    if curve.payload is None:
        return CurveFigures(flat, None, None, None, None, False)
    rates = curve.payload * sizes / curve.times_ns * 1e9
    best = int(np.argmax(rates))
    found = {
        share: _figure(sizes, _reached(sizes, curve.times_ns[None, :], share)[0], _reached(sizes, drawn, share), _RATES)
        for share in (HALF, SATURATED)
        if half_width <= (1 - share) / 2
    }
    slope = (curve.times_ns[-1] - curve.times_ns[-2]) / (sizes[-1] - sizes[-2])  # 1 / r_inf of Hockney's model
    rising = best == len(sizes) - 1 and curve.payload * 1e9 > RISING * rates[best] * slope
    return CurveFigures(
        flat, found.get(HALF), found.get(SATURATED), float(rates[best]), float(sizes[best]), bool(rising)
    )


def fewest_blocks(
    blocks: Floats, times_ns: Floats, low_ns: Floats, high_ns: Floats, share: float = SATURATED, seed: int = 1
) -> Figure | None:
    """Return the fewest thread blocks, of those measured, that reach `share` of the best rate of them all.

    Blocks ascending, all for one size. None for fewer than two. The interval is over the measured counts: a count
    between two of them was not tried.
    """
    if len(blocks) < 2:
        return None
    drawn = _redrawn(times_ns, low_ns, high_ns, seed)

    def fewest(times: Floats) -> Floats:
        enough = times <= times.min(axis=1, keepdims=True) / share
        first: Floats = blocks[np.argmax(enough, axis=1)]
        return first

    value = float(fewest(times_ns[None, :])[0])
    low, high = np.quantile(fewest(drawn), [0.025, 0.975], method="nearest")
    place = int(np.searchsorted(blocks, value))
    limit = "at most" if place == 0 else ""
    below = float(blocks[max(place - 1, 0)])
    return Figure(value, min(float(low), value), max(float(high), value), below, value, limit)


def _redrawn(times: Floats, low: Floats, high: Floats, seed: int) -> Floats:
    """Return DRAWS rows of times, each about its median by as much as its interval is wide."""
    generator = np.random.default_rng(seed)
    width = np.log(np.maximum(high, times)) - np.log(np.minimum(np.maximum(low, 1e-3), times))
    drawn: Floats = times * np.exp(generator.standard_normal((DRAWS, len(times))) * width / (2 * _Z95))
    return drawn


def _flat_end(sizes: Floats, times: Floats) -> Floats:
    """Return for each row the size where the time first leaves FLAT times the first; inf where it never does.

    Times are made to never fall by their running maximum from the small sizes on, so that one slow sample at a middle
    size counts, and what is faster beyond it does not.
    """
    limit = FLAT * times[:, :1]
    return _crossing(sizes, times, np.maximum.accumulate(times, axis=1) > limit, limit, 0.0)


def _reached(sizes: Floats, times: Floats, share: float) -> Floats:
    """Return for each row the size where the rate first reaches `share` of the row's largest."""
    rates = sizes / times
    wanted = share * rates.max(axis=1, keepdims=True)
    return _crossing(sizes, times, rates >= wanted, wanted, 1.0)


def _crossing(sizes: Floats, times: Floats, beyond: npt.NDArray[np.bool_], wanted: Floats, power: float) -> Floats:
    """Return for each row where the time (power 0) or the rate (power 1) is `wanted`, before the first that is beyond.

    With t(m) = a + b m between neighbors: a + b m = wanted, or m / (a + b m) = wanted.
    """
    rows = np.arange(len(times))
    first = np.argmax(beyond, axis=1)
    never = ~beyond[rows, first]
    right = np.maximum(first, 1)
    left = right - 1
    slope = (times[rows, right] - times[rows, left]) / (sizes[right] - sizes[left])
    start = times[rows, left] - slope * sizes[left]
    target = wanted[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (target - start) / slope if power == 0.0 else start * target / (1 - slope * target)
    place = np.where(np.isfinite(place), np.clip(place, sizes[left], sizes[right]), sizes[right])
    result: Floats = np.where(never, np.inf, np.where(first == 0, sizes[0], place))
    return result


def _figure(sizes: Floats, value: float, drawn: Floats, kind: str) -> Figure | None:
    """Return a crossing with its interval; at the ends of the curve, the end with what it is a limit of."""
    last, first = float(sizes[-1]), float(sizes[0])
    held = np.minimum(drawn, last)
    quantiles = np.quantile(held, [0.025, 0.975])
    low, high = (float(edge) for edge in quantiles)
    if np.isfinite(value):
        # The largest of noisy rates is too large, and the largest of redrawn ones once more: the basic bootstrap
        # mirrors the draws at the value (Davison and Hinkley, Bootstrap Methods, section 5.2). Both are covered.
        mirrored = np.clip(value * value / quantiles[::-1], first, last)
        low, high = min(low, float(mirrored[0])), max(high, float(mirrored[1]))
    if not np.isfinite(value):
        return Figure(last, min(low, last), last, last, last, "at least")
    place = int(np.searchsorted(sizes, value))
    above = float(sizes[min(place, len(sizes) - 1)])
    below = above if above == value else float(sizes[place - 1])
    limit = "at most" if value == first and kind == _RATES else ""
    return Figure(float(value), min(low, value), max(high, value), below, above, limit)


def as_curve(points: Sequence[tuple[float, float, float, float]], payload: float | None) -> Curve:
    """Return the curve of (size, median, low, high) in any order; a size that is there twice keeps the faster."""
    by_size: dict[float, tuple[float, float, float, float]] = {}
    for point in sorted(points, key=lambda point: (point[0], -point[1])):
        if point[0] > 0:
            by_size[point[0]] = point
    columns = np.array(list(by_size.values()), np.float64).reshape(-1, 4).T
    return Curve(columns[0], columns[1], columns[2], columns[3], payload)
