"""The statistics of groups once more, in numpy, from their definitions: an oracle for the core's."""

from __future__ import annotations

from typing import Any

import numpy as np


def summarise_groups(
    values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], ticks: np.ndarray[Any, Any]
) -> dict[str, Any]:
    out: dict[str, list[float]] = {}
    for start, end, tick in zip(offsets[:-1], offsets[1:], ticks, strict=True):
        v = values[start:end]
        q = np.quantile(v, [0.5, 0.25, 0.75, 0.05, 0.95, 0.99])
        n = len(v)
        s = np.sort(v)
        k = int(np.ceil(0.98 * np.sqrt(n)))
        lo, hi = s[max(0, n // 2 - k)], s[min(n - 1, n // 2 + k)]
        row = dict(zip(["median_ns", "q1_ns", "q3_ns", "p5_ns", "p95_ns", "p99_ns"], q, strict=True))
        row |= {
            "interval_low_ns": min(lo, q[0] - tick / 2),
            "interval_high_ns": max(hi, q[0] + tick / 2),
            "mean_ns": v.mean(),
        }
        row |= {"min_ns": s[0], "max_ns": s[-1], "samples": n, "warmup_cut": 0, "effective_samples": float(n)}
        for name, value in row.items():
            out.setdefault(name, []).append(value)
    return {name: np.array(column) for name, column in out.items()}
