"""The rank-sum test of two sets of values (Mann and Whitney 1947), without scipy.stats, which takes 0.8 s to import."""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np

from linkgauge.stats.basics import Floats

MOST_EXACT = 4096
"""Pairs of values, beyond which the exact distribution takes longer than it is worth."""


def rank_sum_p_value(first: Floats, second: Floats, alternative: Literal["two-sided", "less"]) -> float:
    """Return how likely ranks at least so far apart are if both sets are of one distribution.

    `less`: the first's values are the smaller ones. Exact without ties and up to 4096 pairs of values; else by the
    normal distribution, with the correction for ties and for continuity. 1 where an end is empty or all is one value.
    """
    n, m = len(first), len(second)
    if n == 0 or m == 0:
        return 1.0
    _, place, counts = np.unique(np.concatenate([first, second]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = float(ranks[:n].sum()) - n * (n + 1) / 2  # pairs in which the first's value is the larger one
    extreme = max(above, n * m - above) if alternative == "two-sided" else n * m - above
    sides = 2 if alternative == "two-sided" else 1
    if counts.max() == 1 and n * m <= MOST_EXACT:
        orders = rank_sum_orders(n, m)
        return min(1.0, sides * float((orders / orders.sum())[round(extreme) :].sum()))
    ties = float((counts**3 - counts).sum()) / ((n + m) * (n + m - 1))
    spread = math.sqrt(n * m / 12 * ((n + m + 1) - ties))
    if spread == 0:
        return 1.0
    return min(1.0, sides * 0.5 * math.erfc((extreme - n * m / 2 - 0.5) / spread / math.sqrt(2)))


@functools.lru_cache(maxsize=64)
def rank_sum_orders(n: int, m: int) -> Floats:
    """Return how many orders of n and m values have each number of pairs, 0 to n m, in which the first is larger."""
    ways = np.zeros((n + 1, n * m + 1))
    ways[0, 0] = 1.0
    for rank in range(1, n + m + 1):
        for taken in range(min(n, rank), max(0, rank - m - 1), -1):
            more = rank - taken  # values of the other set below this one, m at most
            ways[taken, more:] += ways[taken - 1, : ways.shape[1] - more]
    orders: Floats = ways[n].copy()  # without the rows that led to it
    return orders
