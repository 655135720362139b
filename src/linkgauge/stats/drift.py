"""Drift: a series whose level moves with time, such as a device that warms and slows."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.stats.basics import as_series, block_medians, effective_size, robust_scale


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
    ends = float(np.median(series[-third:])) - float(np.median(series[:third]))
    if abs(ends) < 0.4 * least_share * abs(float(np.median(series[:third]))):
        return None
    # A drift itself looks like memory: the effective size is taken of what a straight line leaves.
    time = np.arange(series.size, dtype=np.float64)
    rough = block_medians(series, 10)
    slope = scipy.stats.theilslopes(rough, block_medians(time, 10)).slope
    independent = effective_size(series - slope * time)
    if independent < 40:
        return None
    blocks = int(min(40, independent // 4))
    levels, moments = block_medians(series, blocks), block_medians(time, blocks)
    p_value = float(scipy.stats.kendalltau(moments, levels).pvalue)
    fit = scipy.stats.theilslopes(levels, moments, alpha=0.95)
    start = float(fit.intercept)
    if not np.isfinite(p_value) or p_value > level or start <= 0 or fit.low_slope * fit.high_slope <= 0:
        return None
    length = float(series.size - 1)
    share = float(fit.slope) * length / start
    if abs(share) < least_share or abs(share) * start < robust_scale(series - fit.slope * time) / np.sqrt(independent):
        return None
    return Drift(share, float(fit.low_slope) * length / start, float(fit.high_slope) * length / start, p_value)
