"""Evidence that may be looked at after each round: e-processes, and the intervals that they give.

An e-process is what a bettor owns who began with 1 and bets on each block against "no shift", where every bet is fair
if there is none. It exceeds 1 / level at any time with a probability of at most `level` (Ville's inequality: Ville
1939, Etude critique de la notion de collectif; Howard, Ramdas, McAuliffe and Sekhon, Time-uniform Chernoff bounds via
nonnegative supermartingales, Probability Surveys 2020, section 2). So one may look after each round, and stop.

All functions take the logarithms of times and return logarithms of e-values. Bets use the past alone: what is known
before a block (`scales`) sets how much is bet on it, as with the predictable plug-in of Waudby-Smith and Ramdas,
Estimating means of bounded random variables by betting, JRSS B 2024 (arXiv 2010.09686, 2023), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.stats.basics import Floats

_FACTORS = np.array([1.0, 2.0, 4.0, 8.0])
"""Shifts that are bet on, by the one that is asked for: a large shift is found soon, too."""
_SHARES = np.array([0.5, 0.25, 0.125, 0.125])
_LARGEST = 3.0
"""Largest bet in deviations of a block: beyond it one odd block would lose what all others won."""
_FAR = 2.5
"""Deviations beyond which a block counts as this far off."""


def signed_evidence(blocks: npt.ArrayLike, scales: npt.ArrayLike, shift: float) -> Floats:
    """Return the logarithm of the e-process of "no higher than 0" after each block: the bets of `signed_gains`."""
    return _mixed(np.cumsum(signed_gains(blocks, scales, shift), axis=1))


def signed_gains(blocks: npt.ArrayLike, scales: npt.ArrayLike, shift: float) -> Floats:
    """Return by size of the bet and block the logarithm of what a bet against "no higher than 0" pays.

    `blocks`: differences in log time by block, or (blocks, members); `scales`: their deviation as it was known before
    each block, 0 where it was not, and then nothing is bet; `shift`: the one to be found, above 0. All in one unit.

    Valid where a block, given those before, is distributed symmetrically about a value of at most 0, whatever its tails
    and its variance: so is a difference of two that are exchangeable. The bet 1 + tanh(shift x / scale^2) then is fair,
    since tanh is odd. It is the likelihood ratio of normal blocks with this shift against both signs at even odds
    (Vovk and Wang, Nonparametric e-tests of symmetry, New England Journal of Statistics in Data Science 2024, section
    3; Ramdas, Ruf, Larsson and Koolen 2020, arXiv 2009.03167, section 6, on symmetry). Blocks far off count as less.
    """
    values = np.asarray(blocks, dtype=np.float64)
    known = np.asarray(scales, dtype=np.float64).reshape(-1, *[1] * (values.ndim - 1))
    usable = (known > 0) & np.isfinite(values)
    scale = np.where(usable, known, 1.0)
    units = np.where(usable, np.clip(np.where(usable, values, 0.0) / scale, -_FAR, _FAR), 0.0)
    bets = np.minimum(np.multiply.outer(shift * _FACTORS, 1 / scale), _LARGEST)
    # log(1 + tanh a) = log 2 - log(1 + exp(-2a)), without a loss of digits for large bets against.
    return np.asarray(np.where(usable, math.log(2) - np.logaddexp(0.0, -2 * bets * units), 0.0), dtype=np.float64)


def _mixed(paths: Floats) -> Floats:
    """The mean of e-processes is one (Howard et al. 2020, section 3.4, mixtures)."""
    weights = np.log(_SHARES).reshape(-1, *[1] * (paths.ndim - 1))
    return np.asarray(scipy.special.logsumexp(paths + weights, axis=0), dtype=np.float64)


def shift_bounds(
    blocks: npt.ArrayLike, scales: npt.ArrayLike, shift: float, level: float = 0.05
) -> tuple[float, float]:
    """Return the confidence sequence of the blocks' center at their end: it holds at all times with 1 - `level`.

    It has the centers against which neither the blocks nor their negatives are evidence of 2 / level (Howard, Ramdas,
    McAuliffe and Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of Statistics 2021,
    section 2; here by inversion of `signed_evidence`). Infinite where it has no end yet.
    """
    values, known = np.asarray(blocks, dtype=np.float64), np.asarray(scales, dtype=np.float64)
    used = (known > 0) & np.isfinite(values)
    if not used.any():
        return -math.inf, math.inf
    bar = math.log(2 / level)
    low, high = (_lowest(sign * values[used], known[used], shift, bar) for sign in (1.0, -1.0))
    return low, -high


def _lowest(values: Floats, scales: Floats, shift: float, bar: float) -> float:
    """The smallest center that blocks are not evidence to exceed: evidence falls as the center rises."""
    low, high = float(values.min()) - 10 * float(scales.max()) - float(np.ptp(values)), float(values.max())
    return lowest_end(
        lambda grid: _mixed(signed_gains(values[:, None] - grid, scales, shift).sum(axis=1)) >= bar, low, high, 4, 65
    )


def lowest_end(
    exceeded: Callable[[Floats], npt.NDArray[np.bool_]], low: float, high: float, grids: int, points: int
) -> float:
    """Return the smallest value from `low` to `high` that blocks are not evidence to exceed; -inf where `low` is not.

    Evidence falls as the value rises. It is searched a grid at a time, each of which costs as much as one value.
    """
    for step in range(grids):
        grid = np.linspace(low, high, points)
        out = exceeded(grid)
        if step == 0 and not out[0]:
            return -math.inf
        last = int(np.flatnonzero(out)[-1]) if out.any() else 0
        low, high = float(grid[last]), float(grid[min(last + 1, grid.size - 1)])
    return low


def discoveries(log_evidence: npt.ArrayLike, level: float = 0.05) -> npt.NDArray[np.bool_]:
    """Return which of many e-values are discoveries: the expected share of false ones among them is at most `level`.

    The rule e-BH (Wang and Ramdas, False discovery rate control with e-values, JRSS B 2022, section 4) holds for every
    dependence and at every moment of stopping. Where nothing is shifted, the probability that any is ever called is at
    most `level`, also when looked at after each round: k calls need a mean of the e-processes of 1 / level.
    """
    values = np.asarray(log_evidence, dtype=np.float64)
    if not values.size:
        return np.zeros(0, dtype=np.bool_)
    order = np.argsort(-values, kind="stable")
    count = np.arange(1, values.size + 1)
    enough = np.flatnonzero(values[order] >= np.log(values.size / (level * count)))
    found = np.zeros(values.size, dtype=np.bool_)
    if enough.size:
        found[order[: enough[-1] + 1]] = True
    return found
