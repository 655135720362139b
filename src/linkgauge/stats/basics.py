"""What the other modules need to know of one series: its scale, its memory, its grain, and of counts.

Distributions come from scipy.special: scipy.stats takes a second to import, in every command that judges.

All functions take one-dimensional arrays in the order of time and are exact about what they cannot know: a series too
short for a claim gives the weakest answer, never a guess.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NORMAL_MAD = 1.4826
"""Median absolute deviation of a normal distribution times this is its standard deviation."""


def as_series(values: npt.ArrayLike) -> Floats:
    """Return `values` as a flat array of float64. ValueError for one that holds what is not finite."""
    series = np.asarray(values, dtype=np.float64).reshape(-1)
    if not np.isfinite(series).all():
        raise ValueError("a series holds values that are not finite")
    return series


def binomial_tail(came: int, trials: int, chance: float) -> float:
    """Probability of `came` or more of `trials` where each has `chance`."""
    from scipy import special  # a fleet's history starts without it

    return float(special.bdtrc(came - 1, trials, chance)) if came > 0 else 1.0


def binomial_quantile(share: float, trials: int, chance: float) -> int:
    """Smallest number of successes in `trials` below or at which at least `share` of all outcomes lie."""
    from scipy import special

    # The inverse of the distribution in O(1), which may be one off where `share` lies at a step.
    count = math.ceil(float(special.bdtrik(share, trials, chance)))
    while count < trials and special.bdtr(count, trials, chance) < share:
        count += 1
    while count > 0 and special.bdtr(count - 1, trials, chance) >= share:
        count -= 1
    return count


def sign_interval_ranks(n: int, coverage: float = 0.95) -> tuple[int, int]:
    """Order statistics (from 0, inclusive) that enclose the median of n independent values with `coverage`.

    Exact binomial: the largest k with P(X < k) <= (1 - coverage) / 2, X ~ B(n, 1/2). Below 6 values none does:
    (0, n - 1).
    """
    low = max(binomial_quantile((1 - coverage) / 2, n, 0.5) - 1, 0)
    return low, n - 1 - low


def median(values: npt.NDArray[Any]) -> float:
    """Median of values of which none is nan, of which there is one: numpy's own costs ten times as much for few."""
    middle = values.size // 2
    parted = np.partition(values, middle)
    # Two places at once cost numpy seven times one; the other middle value is the largest below.
    return float(parted[middle] if values.size % 2 else (parted[:middle].max() + parted[middle]) / 2)


def robust_scale(values: npt.ArrayLike) -> float:
    """Standard deviation estimated from the median absolute deviation; 0 for fewer than two values."""
    series = as_series(values)
    if series.size < 2:
        return 0.0
    return NORMAL_MAD * median(np.abs(series - median(series)))


def effective_size(values: npt.ArrayLike) -> float:
    """How many independent values carry as much as this series: n over its integrated autocorrelation time.

    The sum of autocorrelations is cut by Geyer's initial monotone positive sequence (Geyer 1992, Practical Markov chain
    Monte Carlo, section 3.3), taken on ranks so that one far-off value does not hide the memory of the others.
    Between 1 and n. Says nothing about memory longer than the series itself.
    """
    series = as_series(values)
    n = series.size
    if n < 4:
        return float(n)
    _, place, often = np.unique(series, return_inverse=True, return_counts=True)
    order = (np.cumsum(often) - (often - 1) / 2)[place]  # equal values share their mean rank
    centered = order - order.mean()
    size = 1 << int(2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centered, size)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n]
    if covariance[0] <= 0:
        return float(n)
    rho = covariance / covariance[0]
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = pairs[: ends[0]] if ends.size else pairs
    pairs = np.minimum.accumulate(pairs) if pairs.size else pairs
    time = max(1.0, 2.0 * float(pairs.sum()) - 1.0)
    return float(min(n, max(1.0, n / time)))


def grain(values: npt.ArrayLike) -> float:
    """Smallest step between two different values: the clock's tick as far as the series shows it; 0 for a constant."""
    unique = np.unique(as_series(values))
    return float(np.diff(unique).min()) if unique.size > 1 else 0.0


def block_medians(values: npt.ArrayLike, blocks: int) -> Floats:
    """Medians of `blocks` stretches of nearly equal length, in order. ValueError for more blocks than values."""
    series = as_series(values)
    if not 1 <= blocks <= series.size:
        raise ValueError(f"{blocks} blocks of a series of {series.size}")
    return np.array([median(part) for part in np.array_split(series, blocks)])
