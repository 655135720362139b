"""Drift: a series whose level moves with time, such as a device that warms and slows."""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats, as_series, block_medians, effective_size, median, robust_scale


@dataclasses.dataclass(frozen=True)
class Drift:
    """A change of level over a whole series.

    `share` is (end - start) / start of the fitted line: 0.05 is 5 % slower at the end where the values are times.
    `low` and `high` bound it at 95 %. `p_value` is Kendall's, of block medians against time.
    """

    share: float
    low: float
    high: float
    p_value: float


def find_drift(values: npt.ArrayLike, least_share: float = 0.02, level: float = 0.001) -> Drift | None:
    """Return the drift of a series in the order of time, or None where the data show none.

    Medians of 10 to 40 stretches, each at least four integrated autocorrelation times long, so that memory is not
    taken for drift; Kendall's test of them against time, Theil and Sen's slope with its interval (Sen 1968). A drift
    is named if the test is below `level`, the slope's interval excludes 0 and the change is at least `least_share` of
    the start. Fewer than 40 independent values give None: too few for a claim. It cannot tell a drift from a cycle
    longer than the series, nor from one step near its middle (see `modes`).
    """
    series = as_series(values)
    if series.size < 40:
        return None
    # Most series do not move at all: the ends tell it at once. A line's thirds differ by two thirds of its whole
    # change.
    third = series.size // 3
    first = median(series[:third])
    if abs(median(series[-third:]) - first) < 0.4 * least_share * abs(first):
        return None
    # A drift itself looks like memory: the effective size is taken of what a straight line leaves.
    time = np.arange(series.size, dtype=np.float64)
    rough = block_medians(series, 10)
    slope = median(_slopes(rough, block_medians(time, 10)))
    independent = effective_size(series - slope * time)
    if independent < 40:
        return None
    blocks = int(min(40, independent // 4))
    levels, moments = block_medians(series, blocks), block_medians(time, blocks)
    p_value = trend_p_value(levels)
    slope, low, high = theil_sen(levels, moments)
    start = median(levels) - slope * median(moments)
    if p_value > level or start <= 0 or low * high <= 0:
        return None
    length = float(series.size - 1)
    share = slope * length / start
    if abs(share) < least_share or abs(share) * start < robust_scale(series - slope * time) / np.sqrt(independent):
        return None
    return Drift(share, low * length / start, high * length / start, p_value)


def trend_p_value(levels: Floats) -> float:
    """Two-sided p-value of Kendall's test of a series against its order (Kendall 1970, chapters 4 and 5).

    Exact where no two values are equal, by counting permutations by their inversions; else by the normal approximation
    with the variance for ties. 1 for a constant, or fewer than two values.
    """
    n = levels.size
    before, after = np.triu_indices(n, 1)
    later = int(np.sign(levels[after] - levels[before]).sum())  # concordant pairs less discordant ones
    ties = np.unique(levels, return_counts=True)[1].astype(np.float64)
    if ties.size < 2:
        return 1.0
    pairs = n * (n - 1) // 2
    if ties.size < n:
        variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
        return math.erfc(abs(later) / math.sqrt(2 * variance))
    inversions = np.ones(1)
    for length in range(2, n + 1):
        inversions = np.convolve(inversions, np.full(length, 1.0 / length))
    return float(min(1.0, 2 * inversions[: (pairs - abs(later)) // 2 + 1].sum()))


def theil_sen(levels: Floats, moments: Floats) -> tuple[float, float, float]:
    """Median slope of all pairs of points and its 95 % interval (Sen 1968, section 3), in units of levels a moment.

    `moments` rise. The interval lies between the slopes at the ranks that Kendall's variance gives.
    """
    n = levels.size
    slopes = np.sort(_slopes(levels, moments))
    ties = np.unique(levels, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    reach = statistics.NormalDist().inv_cdf(0.975) * math.sqrt(variance)
    low = max(round((slopes.size - reach) / 2) - 1, 0)
    high = min(round((slopes.size + reach) / 2), slopes.size - 1)
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])


def _slopes(levels: Floats, moments: Floats) -> Floats:
    before, after = np.triu_indices(levels.size, 1)
    return np.asarray((levels[after] - levels[before]) / (moments[after] - moments[before]), dtype=np.float64)
