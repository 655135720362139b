"""Hockney and LogGP parameters of a run: a fit for every sweep over sizes that differs in nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from linkgauge.expect.fit import Fit, LogGP, Parameter, hockney, loggp
from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured, Result
from linkgauge.model.worded import plain as text_or_number

# What a sweep holds fixed: everything that is a dimension and neither a size nor a stop rule.
_FIXED = held_apart("size")
_LEAST_SIZES = 4


@dataclass(frozen=True)
class Sweep:
    """One sweep's fixed dimensions, its fit (times of one message, or of one collective), and what that identifies."""

    dimensions: Mapping[str, Any]
    fit: Fit
    loggp: LogGP | None


def sweeps_of(rows: Iterable[Result]) -> list[Sweep]:
    """Return a fit for each sweep of four sizes or more among a run's results.

    Times are medians in ns: of a ping-pong half a round trip, of windowed messages the time of one of them, of a
    collective its own. Results that are not `ok` or have no figures are left out.
    """
    groups: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
    for row in rows:
        info = PATTERNS[row.pattern]
        if info.latency_only or row.status != "ok" or not row.is_headline or not isinstance(row, Measured):
            continue
        time = row.median_ns
        if info.pair:
            time /= 2 if info.half_round_trip else max(row.case.window, 1)
        groups.setdefault((*values_of(row.case, _FIXED), row.launch_key or None), []).append((row.size, time))
    result = []
    for key, points in groups.items():
        if len({size for size, _ in points}) < _LEAST_SIZES:
            continue
        dimensions = dict(zip((*_FIXED, "launch_key"), key, strict=True))
        fit = hockney([size for size, _ in points], [time for _, time in points])
        of_messages = loggp(fit, dimensions["pattern"], dimensions["cadence"], dimensions["window"] or 1)
        result.append(Sweep(dimensions, fit, of_messages))
    return result


def as_data(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as plain JSON values; an infinite end of an interval is None."""

    def plain(parameter: Parameter | None) -> dict[str, Any] | None:
        if parameter is None:
            return None
        ends = (parameter.value, parameter.low, parameter.high)
        value, low, high = (end if math.isfinite(end) else None for end in ends)
        return {"value": value, "low": low, "high": high, "unit": parameter.unit}

    data: dict[str, Any] = {
        "dimensions": {name: text_or_number(value) for name, value in sweep.dimensions.items()},
        "residual": sweep.fit.residual,
        "breakpoints_bytes": [list(pair) for pair in sweep.fit.breakpoints],
        "pieces": [
            {
                "first_bytes": piece.first_bytes,
                "last_bytes": piece.last_bytes,
                "points": piece.points,
                "latency": plain(piece.latency),
                "rate": plain(piece.rate),
            }
            for piece in sweep.fit.pieces
        ],
    }
    if sweep.loggp is not None:
        data["loggp"] = {
            "L + 2o": plain(sweep.loggp.latency_and_overheads),
            "G": plain(sweep.loggp.gap_per_byte),
            "max(g, o)": plain(sweep.loggp.gap),
            "missing": sweep.loggp.missing,
        }
    return data
