"""Modes: a series that lives on two or more levels (two routes, two protocols, a clock that steps)."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.stats.basics import Floats, as_series, effective_size, grain, median

_LEAST_SHARE = 0.05
_LEAST_COUNT = 10
_MOST_MODES = 4


@dataclasses.dataclass(frozen=True)
class Mode:
    """One level: its median and the share of samples nearest to it."""

    center: float
    share: float


@dataclasses.dataclass(frozen=True)
class Modes:
    """The levels of a series, lowest first. `changes` counts how often the series passes from one to another."""

    modes: tuple[Mode, ...]
    changes: int


def find_modes(values: npt.ArrayLike, least_gap: float = 0.03, level: float = 0.0005) -> Modes | None:
    """Return the levels of a series of positive values where it has several, or None for one.

    The logarithms are split in two where that leaves the least variance, each part at least 5 % and 10 samples, and
    each part again. A split stands if a valley lies between the parts: between the medians of two parts of one hill
    the density is nowhere below the lower of the two, so the count in a window at the middle must be under half of
    that in equal windows at the medians, and by a binomial test (counts scaled to the effective size) below `level`.
    Levels nearer than `least_gap` (as a share) or three clock ticks count as one. Fewer than 40 values give None.
    Long tails and skew are no modes.
    """
    series = as_series(values)
    if series.size < 40 or (series <= 0).any():
        return None
    ordered = np.sort(series)
    reach = int(series.size * _LEAST_SHARE / 2)
    if ordered[-1 - reach] < ordered[reach] * (1 + least_gap):
        return None  # no two levels so far apart: the usual case, told without more work
    # It takes longer than all else, and few series have a valley to weigh by it.
    scale = functools.cache(lambda: min(1.0, 4.0 * _memoryless_size(series) / series.size))
    edges = sorted(_splits(np.log(ordered), 0, least_gap, level, scale, 3.0 * grain(series)))
    if not edges:
        return None
    bounds = [0, *edges[: _MOST_MODES - 1], series.size]
    pairs = list(itertools.pairwise(bounds))
    modes = tuple(Mode(_middle(ordered[a:b]), (b - a) / series.size) for a, b in pairs)
    labels = np.searchsorted([ordered[a] for a, _ in pairs[1:]], series, side="right")
    return Modes(modes, int(np.count_nonzero(np.diff(labels))))


def _memoryless_size(series: Floats) -> float:
    """Effective size that does not punish levels that hold: memory within the halves above and below the median."""
    middle = median(series)
    low, high = series[series <= middle], series[series > middle]
    return effective_size(low) + effective_size(high)


def _middle(ordered: Floats) -> float:
    """Median of values in order."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def _splits(
    logs: Floats, offset: int, least_gap: float, level: float, scale: Callable[[], float], least_step: float
) -> list[int]:
    n = logs.size
    least = max(_LEAST_COUNT, int(np.ceil(_LEAST_SHARE * n)))
    if n < 2 * least:
        return []
    clipped = np.clip(logs, np.quantile(logs, 0.01), np.quantile(logs, 0.99))
    sums, counts = np.cumsum(clipped), np.arange(1, n + 1, dtype=np.float64)
    left, k = sums[:-1], counts[:-1]
    between = (left / k - (sums[-1] - left) / (n - k)) ** 2 * k * (n - k)
    allowed = between[least - 1 : n - least]
    cut = int(np.argmax(allowed)) + least
    if not _valley(logs, cut, least_gap, level, scale, least_step):
        return []
    cut = _bottom(logs, cut)
    return [
        offset + cut,
        *_splits(logs[:cut], offset, least_gap, level, scale, least_step),
        *_splits(logs[cut:], offset + cut, least_gap, level, scale, least_step),
    ]


def _valley(
    logs: Floats, cut: int, least_gap: float, level: float, scale: Callable[[], float], least_step: float
) -> bool:
    low, high = _middle(logs[:cut]), _middle(logs[cut:])
    if high - low < np.log1p(least_gap) or np.exp(high) - np.exp(low) < least_step:
        return False
    width = (high - low) / 5

    def count(center: float) -> int:
        return int(np.searchsorted(logs, center + width / 2, "right") - np.searchsorted(logs, center - width / 2))

    peak = min(count(low), count(high))
    valley = min(count(low + (high - low) * place) for place in (0.4, 0.5, 0.6))
    if peak == 0 or valley > peak / 2:
        return False
    scaled_valley, scaled_peak = round(valley * scale()), round(peak * scale())
    return float(scipy.special.bdtr(scaled_valley, scaled_valley + scaled_peak, 0.5)) < level


def _bottom(logs: Floats, cut: int) -> int:
    """Move the cut to the widest gap between the two medians, where the valley is emptiest."""
    low, high = cut // 2, (cut + logs.size) // 2
    return low + 1 + int(np.argmax(np.diff(logs[low : high + 1])))
