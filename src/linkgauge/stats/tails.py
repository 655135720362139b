"""Tails: high quantiles, only where the sample supports them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import as_series, binomial_quantile, effective_size


@dataclasses.dataclass(frozen=True)
class Tail:
    """A quantile with its distribution-free 95 % interval, in the unit of the series."""

    quantile: float
    value: float
    low: float
    high: float


def values_needed(quantile: float, confidence: float = 0.95) -> int:
    """Least number of independent values whose largest bounds the quantile from above.

    quantile^n <= (1 - confidence) / 2: 368 for p99, 3688 for p99.9.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {quantile}")
    return math.ceil(math.log((1 - confidence) / 2) / math.log(quantile))


def tail(values: npt.ArrayLike, quantile: float, independent: float | None = None) -> Tail | None:
    """Return a high quantile with its interval, or None where the series is too short to bound it from above.

    The interval lies between order statistics (binomial, distribution-free) of a series whose length counts as its
    effective size: `independent`, computed where it is not given. It says nothing about values rarer than the
    quantile.
    """
    series = np.sort(as_series(values))
    n = series.size
    size = effective_size(values) if independent is None else min(float(n), independent)
    if n == 0 or size < values_needed(quantile):
        return None
    whole = int(size)
    low_rank = binomial_quantile(0.025, whole, quantile) / whole
    high_rank = (binomial_quantile(0.975, whole, quantile) + 1) / whole
    low = series[max(0, min(n - 1, int(low_rank * n) - 1))]
    high = series[max(0, min(n - 1, math.ceil(high_rank * n) - 1))]
    return Tail(quantile, float(np.quantile(series, quantile)), float(low), float(high))
