"""The ratio of two tools over alternated pairs of launches, and when it holds.

docs/definitions.md, Sample, timekeeper, cadence: at least 9 alternated pairs; the ratio holds when its median is in
range and its 95 % interval is no wider than twice the tolerance; a wider one needs more pairs, up to 31, then it is
"cannot tell".
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Literal

MIN_PAIRS = 9
MAX_PAIRS = 31

Verdict = Literal["holds", "differs", "more pairs", "cannot tell"]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Ours over the peer's, of `pairs` alternated pairs: median and distribution-free 95 % interval of it."""

    median: float
    low: float
    high: float
    pairs: int

    def verdict(self, tolerance: float, *, at_least: bool = False) -> Verdict:
        """Whether the ratio is within `tolerance` of 1 (at_least: not below 1 - tolerance; above is welcome)."""
        if self.pairs < MIN_PAIRS:
            return "more pairs"
        if self.high - self.low > 2 * tolerance:
            return "more pairs" if self.pairs < MAX_PAIRS else "cannot tell"
        # A hair of slack, so that 1 - 0.05 and 0.95 are the same number.
        within = self.median >= 1 - tolerance - 1e-12 and (at_least or self.median <= 1 + tolerance + 1e-12)
        return "holds" if within else "differs"


def sign_interval_ranks(n: int, coverage: float = 0.95) -> tuple[int, int]:
    """Order statistics (from 0, inclusive) that enclose the median of n independent values with `coverage`.

    Exact binomial: the largest k with P(X < k) <= (1 - coverage) / 2, X ~ B(n, 1/2). Below 6 values none does:
    (0, n - 1).
    """
    tail = (1 - coverage) / 2
    below = 0.0
    k = 0
    while True:
        below += math.comb(n, k) * 0.5**n
        if below > tail:
            break
        k += 1
    low = max(k - 1, 0)
    return low, n - 1 - low


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Median and interval of ours[i] / theirs[i]. Raises ValueError when the lengths differ or nothing was measured."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs are needed: {len(ours)} of ours, {len(theirs)} of the peer's")
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, high = sign_interval_ranks(len(ratios))
    return Ratio(statistics.median(ratios), ratios[low], ratios[high], len(ratios))
