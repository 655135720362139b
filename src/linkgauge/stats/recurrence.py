"""Whether what happens at some moments of a run recurs in seconds.

Rayleigh's test: moments that recur fall together on a circle of one period. Many periods are tried, so that few moments
show none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_LEAST_S = 0.2
_TOGETHER = 0.8  # the mean resultant length R; bursts of a fifth of their period have 0.94
LEVEL = 0.01
"""The chance that one of the periods that are tried shows it without there being any."""
_ONE_S = 0.1  # moments closer than this are of one burst
_LEAST_TURNS = 4.0


def period_of(moments_s: Sequence[float], every_s: Sequence[float], level: float = LEVEL) -> float | None:
    """Return the seconds after which moments recur, the longest such period; None where they do not.

    `every_s`: all moments at which something was looked at, `moments_s` among them. Where looks come at a period by
    themselves, that one says nothing.
    """
    ordered = np.sort(np.asarray(moments_s, dtype=np.float64))
    if ordered.size < 2:
        return None
    bursts = np.array([part.mean() for part in np.split(ordered, np.flatnonzero(np.diff(ordered) > _ONE_S) + 1)])
    span = float(bursts[-1] - bursts[0])
    most = span / _LEAST_S
    if most <= _LEAST_TURNS:
        return None
    # Between two periods that are tried, phases drift by an eighth of a turn over the span.
    turns = np.arange(_LEAST_TURNS, most, 0.125)
    angles = 2j * np.pi * turns / span
    together = np.abs(np.exp(np.outer(angles, bursts)).mean(axis=1))
    looks = np.abs(np.exp(np.outer(angles, np.asarray(every_s))).mean(axis=1))
    sure = bursts.size * together**2 >= math.log(most / level)
    able = sure & (together >= _TOGETHER) & (looks < together / 2)
    if not able.any():
        return None
    best = np.flatnonzero(able & (together >= 0.97 * together[able].max()))[0]
    return float(span / turns[best])
