"""Spikes: single values far above the rest, and whether they come at a period (a timer, a daemon, a page scan)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats, as_series, binomial_tail, median, robust_scale


@dataclasses.dataclass(frozen=True)
class Spikes:
    """The spikes of a series.

    `share` is the share of samples that are spikes, `height` their median over the series' median. `period` is in the
    unit of the times given (samples, without times) and None where the gaps fit no period better than chance would.
    """

    count: int
    share: float
    height: float
    period: float | None
    p_value: float | None


def find_spikes(
    values: npt.ArrayLike, times: npt.ArrayLike | None = None, least_height: float = 1.1, level: float = 0.001
) -> Spikes | None:
    """Return the spikes of a series of durations, or None where there are none.

    A spike is above the median by more than eight robust standard deviations and by `least_height`; neighbors
    are one event. `times`: when each value was taken (any unit, rising); without them the period is in samples.
    A period is named when more gaps are near whole multiples of the median gap than independent events would give
    (binomial test below `level`), so at least six events are needed. More than a fifth of the samples is no spike but a
    mode: None.
    """
    series = as_series(values)
    if series.size < 20:
        return None
    center = median(series)
    fence = max(center + 8.0 * robust_scale(series), center * least_height)
    hits = np.flatnonzero(series > fence)
    if hits.size == 0 or hits.size > series.size / 5:
        return None
    starts = hits[np.insert(np.diff(hits) > 1, 0, True)]
    moments = np.arange(series.size, dtype=np.float64) if times is None else as_series(times)
    if moments.size != series.size:
        raise ValueError(f"{moments.size} times for {series.size} values")
    resolution = median(np.diff(moments))
    period, p_value = period_of(moments[starts], resolution, level)
    return Spikes(int(hits.size), hits.size / series.size, median(series[hits]) / center, period, p_value)


def period_of(moments: Floats, resolution: float, level: float) -> tuple[float | None, float | None]:
    """Return the period of events at these rising moments, and the chance of it among independent ones; None: none.

    `resolution` is that of the moments, in their unit; a period's chance is below `level`.
    """
    gaps = np.diff(moments)
    if gaps.size < 5:
        return None, None
    first = median(gaps)
    if first <= 2 * resolution:
        return None, None
    tolerance = min(0.4, max(0.1, resolution / first))
    turns = np.maximum(1.0, np.round(gaps / first))
    fits = np.abs(gaps / first - turns) <= tolerance
    # An independent event falls within the tolerance of a whole multiple with probability 2 tolerance.
    p_value = binomial_tail(int(fits.sum()), gaps.size, 2 * tolerance)
    if p_value > level:
        return None, None
    return median(gaps[fits] / turns[fits]), p_value
