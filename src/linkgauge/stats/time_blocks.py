"""Rounds joined to blocks of time, so that what neighbors have in common is no evidence; covariates taken out.

All that is chosen for a block (its length, the deviation that is expected of it, what a degree of temperature costs) is
chosen from the rounds before it. So evidence that is gathered block by block stays valid (stats/sequential.py).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import NORMAL_MAD, Floats, median

PILOT = 24
"""Rounds that only tell the noise and its memory: nothing is bet on them. With 8, 9 to 12 of 30
clean fleets with autoregressive noise were accused."""
PARTS, PART_ROUNDS = 6, 16
"""A shift must be there in parts of the time, each of so many rounds: a wander of some rounds is none."""
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_GROWS = 1.15
_RENEWED = 1.2
_FURTHER = 2  # lengths beyond the least where rounds resemble each other: the ends of blocks still do
_LEAST_BLOCKS = 4
_FAR = 4.0  # deviations beyond which a round counts as this far off


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Blocks of one member's rounds: `values`, the center of each; a block's rounds end before its `ends`.

    `scales`: of each block the deviation that the rounds before it tell. `length` and `scale`: of a block to come.
    """

    values: Floats
    ends: npt.NDArray[np.int64]
    scales: Floats
    length: int
    scale: float

    @property
    def last(self) -> int:
        """Rounds in whole blocks."""
        return int(self.ends[-1]) if self.ends.size else 0


def center(rounds: Floats) -> float:
    """Return the Hodges-Lehmann center: the median of the means of all two rounds; nan of none.

    One far-off round moves it little, and it is nearly as sharp as the mean.
    """
    if rounds.size < 2:
        return float(rounds[0]) if rounds.size else math.nan
    first, second = _pairs(rounds.size)
    return median((rounds[first] + rounds[second]) / 2)


@functools.lru_cache(maxsize=64)
def _pairs(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    first, second = np.triu_indices(count)
    return first, second


def adjusted(rounds: npt.ArrayLike, covariate: npt.ArrayLike | None) -> Floats:
    """Return the rounds less what the covariate (a device's temperature, say) explains of how a member varies.

    Both are (rounds, members). What is taken out of a round is the slope that earlier rounds show, times how far the
    covariate is from its member's mean in the pilot: a member that is always hotter keeps its whole shift. A round
    without a covariate, and the pilot, stay as they are.
    """
    values = np.asarray(rounds, dtype=np.float64)
    if covariate is None:
        return values
    known = np.asarray(covariate, dtype=np.float64)
    result = values.copy()
    begun = known[:PILOT]
    begins = np.where(np.isfinite(begun), begun, 0.0).sum(axis=0) / np.maximum(np.isfinite(begun).sum(axis=0), 1)
    begins[~np.isfinite(begun).any(axis=0)] = np.nan
    for at in range(PILOT, values.shape[0]):
        past, causes = values[:at], known[:at]
        both = np.isfinite(past) & np.isfinite(causes)
        count = both.sum(axis=0)
        enough = count >= PILOT // 2
        if not enough.any():
            continue
        mean_cause = np.where(both, causes, 0).sum(axis=0) / np.maximum(count, 1)
        middle = np.where(both, past, 0).sum(axis=0) / np.maximum(count, 1)
        use = both & enough
        x = np.where(use, causes - mean_cause, 0.0)
        y = np.where(use, past - middle, 0.0)
        limit = 3 * NORMAL_MAD * float(np.median(np.abs(y[use])))
        y = np.clip(y, -limit, limit)
        weight = float((x * x).sum())
        if weight <= 0:
            continue
        slope = float((x * y).sum()) / weight
        error = float(np.sqrt(((y - slope * x) ** 2).sum() / max(int(use.sum()) - 1, 1) / weight))
        if abs(slope) < 2 * error:  # what chance explains would only add noise
            continue
        now = np.isfinite(known[at]) & np.isfinite(begins)
        result[at, now] -= slope * (known[at, now] - begins[now])
    return np.asarray(result, dtype=np.float64)


def deviations(rounds: Floats) -> tuple[list[int], Floats]:
    """Return lengths of blocks that the rounds allow, and the deviation of such blocks about their own center.

    The variance of means of b rounds times b grows with b while neighbors resemble each other (batch means; Flegal and
    Jones 2010, Batch means and spectral variance estimators, section 2). At least four blocks. Far-off rounds count as
    less.
    """
    away = rounds - median(rounds)
    limit = _FAR * NORMAL_MAD * median(np.abs(away))
    away = np.clip(away, -limit, limit)
    lengths = [length for length in LENGTHS if length <= max(1, away.size // _LEAST_BLOCKS)]
    parts = [away[away.size % length :].reshape(-1, length).mean(axis=1) for length in lengths]
    return lengths, np.array([float(part.std(ddof=1)) for part in parts])


def block_place(grown: Floats, errors: Floats) -> int:
    """Return the place of the first length from which on longer blocks gain what independent rounds would.

    `grown`: variance of a block times its length, by length; `errors`: how well these are known, as shares.
    """
    for at in range(grown.size - 1):
        if (grown[at + 1 :] <= (_GROWS + errors[at + 1 :]) * grown[at]).all():
            return at
    return int(grown.size) - 1


def in_blocks(rounds: npt.ArrayLike) -> list[Blocks]:
    """Join the rounds (rounds, members) to blocks, those of each member by itself.

    A block is at least as long as all members together need: of one alone the memory is poorly known. Rounds that
    fill no block wait for more; missing ones (nan) are none.
    """
    values = np.asarray(rounds, dtype=np.float64)
    looks: list[int] = []  # after how many rounds the lengths are chosen anew: it is what this costs
    at = float(PILOT)
    while at < values.shape[0]:
        looks.append(int(at))
        at = max(at + 1, at * _RENEWED)
    chosen = [_chosen(values[:look]) for look in (*looks, values.shape[0])]
    return [_joined(values[:, member], member, looks, chosen) for member in range(values.shape[1])]


def _chosen(rounds: Floats) -> list[tuple[int, float]]:
    """Of each member the length of a block and its deviation; (1, 0) where too few rounds are known."""
    series = [column[np.isfinite(column)] for column in rounds.T]
    known = [deviations(one) if one.size >= PILOT else ([1], np.zeros(1)) for one in series]
    grown = [np.array(lengths) * scales**2 for lengths, scales in known]
    errors = [
        np.sqrt(2 / np.maximum(one.size // np.array(of[0]) - 1, 1)) for one, of in zip(series, known, strict=True)
    ]
    usual = 0
    counted = [at for at, one in enumerate(grown) if one.size > 1 and one[0] > 0]
    if counted:
        shared = min(grown[at].size for at in counted)
        pooled = np.mean([grown[at][:shared] / grown[at][0] for at in counted], axis=0)
        error = np.mean([errors[at][:shared] for at in counted], axis=0) / math.sqrt(len(counted))
        usual = block_place(pooled, error)
    found = []
    for own, error, (lengths, scales) in zip(grown, errors, known, strict=True):
        at = max(block_place(own, error), usual)
        at = min(at + _FURTHER if at else 0, len(lengths) - 1)
        found.append((lengths[at], float(scales[at])))
    return found


def _joined(series: Floats, member: int, looks: list[int], chosen: list[list[tuple[int, float]]]) -> Blocks:
    numbers = np.flatnonzero(np.isfinite(series))
    made: list[float] = []
    ends: list[int] = []
    scales: list[float] = []
    at = PILOT
    while at < numbers.size:
        length, scale = chosen[bisect.bisect_right(looks, int(numbers[at - 1]) + 1) - 1][member]
        if at + length > numbers.size:
            break
        made.append(center(series[numbers[at : at + length]]))
        scales.append(scale)
        at += length
        ends.append(int(numbers[at - 1]) + 1)
    return Blocks(np.array(made), np.array(ends, dtype=np.int64), np.array(scales), *chosen[-1][member])
