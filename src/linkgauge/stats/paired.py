"""Two sides measured in turn: the shift of their pairs, its interval, and how sure its sign is.

A pair is two launches next to each other in time, so that slow drift of the machine is in both. Shifts are of times as
shares of the first side, as in stats/compare.py: -0.03 is 3 % less time.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats, as_series
from linkgauge.stats.compare import Shift

_EXACT = 60  # pairs up to which the distribution is counted out


@functools.lru_cache(maxsize=_EXACT + 1)
def _rank_sums(pairs: int) -> Floats:
    """The probability of each sum of signed ranks, where either sign is as likely (Wilcoxon 1945)."""
    chances = np.ones(1)
    for rank in range(1, pairs + 1):
        longer = np.zeros(chances.size + rank)
        longer[: chances.size] += chances / 2
        longer[rank:] += chances / 2
        chances = longer
    return chances


def _cumulated(pairs: int) -> Floats:
    """Probability of each sum of ranks or less; beyond _EXACT pairs by the normal distribution."""
    if pairs <= _EXACT:
        return np.asarray(np.cumsum(_rank_sums(pairs)), dtype=np.float64)
    sums = np.arange(pairs * (pairs + 1) // 2 + 1)
    spread = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
    shifted = (sums + 0.5 - pairs * (pairs + 1) / 4) / (spread * math.sqrt(2))
    return np.array([0.5 * math.erfc(-value) for value in shifted])


def paired_shift(log_ratios: npt.ArrayLike, confidence: float = 0.95) -> Shift:
    """The shift of pairs by their log ratios (second over first): the median of the means of all two of them.

    The interval lies between ordered means, at the ranks that the exact distribution of Wilcoxon's statistic gives
    (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, section 3.3), for ratios that scatter alike to both sides.
    With too few pairs for the confidence it is the whole range. ValueError without a pair.
    """
    ratios = as_series(log_ratios)
    if not ratios.size:
        raise ValueError("a shift needs a pair")
    rows, columns = np.triu_indices(ratios.size)
    means = np.sort((ratios[rows] + ratios[columns]) / 2)
    rank = int(np.searchsorted(_cumulated(ratios.size), (1 - confidence) / 2, side="right"))
    rank = max(0, min(rank - 1, (means.size - 1) // 2)) if rank else 0
    low, middle, high = means[rank], np.median(means), means[means.size - 1 - rank]
    return Shift(float(np.expm1(middle)), float(np.expm1(low)), float(np.expm1(high)))


def p_of_less(log_ratios: npt.ArrayLike, margin: float = 0.0) -> float:
    """One-sided p-value that the second side takes less than (1 - margin) of the first's time: Wilcoxon's signed ranks.

    Ratios of exactly the margin count against it. 1 without a pair.
    """
    shifted = as_series(log_ratios) - math.log1p(-margin)
    if not shifted.size:
        return 1.0
    order = np.argsort(np.abs(shifted), kind="stable")
    ranks = np.empty(shifted.size)
    ranks[order] = np.arange(1, shifted.size + 1)
    against = int(ranks[shifted >= 0].sum())
    return float(min(1.0, _cumulated(shifted.size)[against]))
