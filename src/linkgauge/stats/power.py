"""What a number of rounds can see, and how many a shift needs: said before measuring, from the noise of a few rounds.

A bet on a block wins on average what its noise and the shift make of it (its growth), and the sum over blocks is
nearly normal. A shift is seen with 95 % in as many blocks as bring the sum's 5 % quantile to the bar.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import scipy

from linkgauge.stats.basics import Floats
from linkgauge.stats.rank_evidence import LEAST_BLOCKS, bets, gain, scores
from linkgauge.stats.sequential import signed_gains
from linkgauge.stats.time_blocks import PART_ROUNDS, PARTS, PILOT

_Z = 1.6449  # the normal distribution's 95 % quantile
_LARGEST = 1.0
_QUANTILES = 2000
_FINE = 3.0  # deviations of a block that a shift counts as where blocks do not vary at all


@dataclasses.dataclass(frozen=True)
class Noise:
    """What is known of a design: the deviation of a block, its rounds, and how many are compared at once.

    `tests` are those that share the level. `round_s` is the time of a round in seconds, 0 where it is not known.
    `siblings`: so many are ranked against each other; 0 for two sides.
    """

    scale: float
    block_rounds: int
    tests: int
    level: float = 0.05
    round_s: float = 0.0
    siblings: int = 0

    def rounds_for(self, shift: float) -> int:
        """Return how many rounds see a shift (log time, above 0) with 95 %, the pilot included."""
        growth, spread = _growth(shift / self.scale if self.scale > 0 else _FINE, self.siblings)
        bar = math.log(2 * self.tests / self.level)  # half of the money is on the shift that is asked for
        if growth <= 0:
            return 1 << 30
        root = (_Z * spread + math.sqrt((_Z * spread) ** 2 + 4 * growth * bar)) / (2 * growth)
        blocks = math.ceil(root * root)
        if self.siblings:
            return self.block_rounds * max(LEAST_BLOCKS, blocks)
        return PILOT + max(PARTS * PART_ROUNDS, self.block_rounds * blocks)

    def seen_in(self, rounds: int) -> float | None:
        """Return the smallest shift (log time) that so many rounds see with 95 %; None where they see none."""
        if self.scale <= 0 or self.rounds_for(_LARGEST) > rounds:
            return None
        low, high = 0.0, _LARGEST
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if middle > 0 and self.rounds_for(middle) <= rounds else (middle, high)
        return high


@functools.cache
def _grown(siblings: int) -> tuple[Floats, Floats, Floats]:
    """By shift in deviations of a block: mean and deviation of the logarithm of what a bet on that shift pays."""
    normal = scipy.special.ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)  # no error from drawing
    shifts = np.geomspace(0.01, 100, 48)
    if siblings:
        every = scores(siblings)
        gains = [gain(bets(one, 1.0)[0], np.clip(normal + one, every[0], every[-1]), siblings) for one in shifts]
    else:
        gains = [signed_gains(normal + one, np.ones(_QUANTILES), float(one))[0] for one in shifts]
    return shifts, np.array([one.mean() for one in gains]), np.array([one.std() for one in gains])


def _growth(deviations: float, siblings: int) -> tuple[float, float]:
    shifts, means, spreads = _grown(siblings)
    if deviations < shifts[0]:  # there the growth goes with the square
        share = deviations / float(shifts[0])
        return float(means[0]) * share**2, float(spreads[0]) * share
    return float(np.interp(deviations, shifts, means)), float(np.interp(deviations, shifts, spreads))
