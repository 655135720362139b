"""What a further run of a machine would measure, from several runs of it, and how far one run lies outside of that.

docs/explanation/statistics.md, One run against a baseline.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy

from linkgauge.stats.basics import Floats
from linkgauge.stats.compare import fit_prior

LEAST_CASES = 10
"""Fewer cases do not tell a run's own level from what is odd about some of them."""
_LEVEL_TAIL = 0.005
_NORMAL_95 = 1.959964
_NORMAL_MIDDLE = 0.6744898
_MOST_FREEDOM = 1e3


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A run held against what a further run would be. Arrays have an entry a case; all of logarithms of times.

    `center`: the middle of the runs. `level`: by how much all cases of this run are shifted (their median),
    `usual_level` as much of it as runs differ by anyway, which no case is blamed for. `deviation`: the standard
    deviation of a further run's median, of `freedom` degrees. `p_value`: how likely a further run is as slow.
    `level_limit`: a further run's level is below it 199 times of 200; infinite with fewer than LEAST_CASES cases.
    """

    center: Floats
    shift: Floats
    level: float
    usual_level: float
    level_limit: float
    deviation: Floats
    freedom: Floats
    p_value: Floats


def predict(times: Floats, half_widths: Floats, mine: Floats, my_half_widths: Floats) -> Prediction:
    """Hold a run's medians `mine` (cases,) against `times` (cases, runs) of the same cases; nan where a run lacks one.

    `half_widths` and `my_half_widths` are those of the medians' own 95 % intervals, as shares; nan or 0 where they are
    not known. Each case has two runs or more.

    A median moves between runs by a run's level, which all of its cases share (a busy host, a clock), and by
    itself. The level is the median over cases, taken off as far as the runs' own levels say that it is usual. The
    variance of what is left is drawn towards that of all cases (Smyth 2004), as it is or in the unit of the
    medians' own errors, whichever says more. It is never below what these errors are usually worth, or they
    themselves: five runs may lie close together by chance, most of all where times lie on several levels, and the
    interval of a median knows of both. Where this run's cases scatter more than predicted as a whole (by the
    median deviation), all of its deviations count for more.
    """
    logs = np.log(times)
    known = np.isfinite(logs)
    counts = known.sum(axis=1).astype(np.float64)
    runs = logs.shape[1]
    center = np.nanmean(logs, axis=1)
    levels = np.zeros(runs)
    enough = len(mine) >= LEAST_CASES
    if enough:
        levels = np.array([_middle(logs[known[:, k], k] - center[known[:, k]]) for k in range(runs)])
        logs = logs - levels
        center = np.nanmean(logs, axis=1)
    freedom = counts - 1
    variances = np.maximum(np.nansum((logs - center[:, None]) ** 2, axis=1) / freedom, 1e-12)
    errors = _errors(half_widths, my_half_widths)
    weight, usual = max(
        (_prior(variances, freedom, unit) for unit in (errors, np.ones_like(errors))), key=lambda fitted: fitted[0]
    )
    least = errors * min(1.0, float(np.exp(np.mean(np.log(variances / errors)))))
    pooled = np.maximum((weight * usual + freedom * variances) / (weight + freedom), least)
    deviation = np.sqrt(pooled * (1 + 1 / counts))
    total = weight + freedom
    shift = np.log(mine) - center
    level, usual_level, limit = 0.0, 0.0, np.inf
    if enough:
        level = _middle(shift)
        reach = float(np.std(levels, ddof=1)) * np.sqrt(1 + 1 / runs)
        limit = float(scipy.special.stdtrit(runs - 1, 1 - _LEVEL_TAIL)) * reach
        usual_level = float(np.clip(level, -limit, limit))
        deviation = deviation * max(1.0, _middle(np.abs(shift - level) / deviation) / _NORMAL_MIDDLE)
    p_value = scipy.special.stdtr(total, -(shift - usual_level) / deviation)
    return Prediction(center, shift, level, usual_level, limit, deviation, total, np.asarray(p_value))


def _prior(variances: Floats, freedom: Floats, unit: Floats) -> tuple[float, Floats]:
    """Return the weight, in degrees of freedom, and the variance that all cases together say each has."""
    weight, scale = fit_prior(variances / unit, freedom)
    return min(weight, _MOST_FREEDOM), scale * unit


def _errors(half_widths: Floats, my_half_widths: Floats) -> Floats:
    """Return each case's squared error of a median: the larger of the runs' middle one and this run's."""
    seen = np.where(np.isfinite(half_widths) & (half_widths > 0), half_widths, np.nan)
    theirs = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else 0.0 for row in seen])
    own = np.where(np.isfinite(my_half_widths), my_half_widths, 0.0)
    squared = np.asarray((np.log1p(np.maximum(theirs, own)) / _NORMAL_95) ** 2, dtype=np.float64)
    known = squared[squared > 0]
    if not known.size:
        return np.full_like(squared, 1e-6)
    usual = float(np.median(known))
    return np.maximum(np.where(squared > 0, squared, usual), 0.01 * usual)


def _middle(values: Floats) -> float:
    return float(np.median(values)) if values.size else 0.0
