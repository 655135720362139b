"""The ratio of two tools over alternated pairs of launches, and when it holds.

docs/definitions.md, Sample, timekeeper, cadence: at least 9 alternated pairs; the ratio holds when its median is in
range and its 95 % interval is no wider than twice the tolerance; a wider one needs more pairs, up to 31, then it is
"cannot tell".
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Literal

from linkgauge.stats.basics import sign_interval_ranks

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


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Median and interval of ours[i] / theirs[i]. Raises ValueError when the lengths differ or nothing was measured."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs are needed: {len(ours)} of ours, {len(theirs)} of the peer's")
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, high = sign_interval_ranks(len(ratios))
    return Ratio(statistics.median(ratios), ratios[low], ratios[high], len(ratios))
