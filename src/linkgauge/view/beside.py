"""Other tools beside a run's own cases: what `linkgauge run --with` found, from the run folder's `with/ratios.json`."""

from __future__ import annotations

import json
from typing import Any

from linkgauge.store.run import Run
from linkgauge.view.units import size_text, time_text

_MAX_BYTES = 16 << 20
COLUMNS = ("peer", "test", "ranks", "memory", "size", "ours", "the peer's", "ratio of", "ratio", "95 %", "pairs",
           "verdict")  # fmt: skip
NOTE = (
    "The same cases measured in turn, both by the other tool's own estimator; the ratio is ours over the other's, its "
    "median over pairs of launches. It holds where the median is in range and the interval narrow enough to say so."
)


def beside_rows(run: Run) -> list[list[str]]:
    """Return the rows of the table in words; none where there is no such file, and none of a row that is damaged."""
    path = run.path / "with" / "ratios.json"
    try:
        with path.open("rb") as file:
            stored = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    rows = []
    for one in stored if isinstance(stored, list) else []:
        try:
            rows.append(_row(one))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return rows


def _row(one: dict[str, Any]) -> list[str]:
    memory = " to ".join(dict.fromkeys(str(kind) for kind in one["memory"]))
    times = [time_text(float(one[name])) for name in ("ours_ns", "peer_ns")]
    interval = f"{float(one['low']):.3f} to {float(one['high']):.3f}"
    return [
        str(one["peer"]), str(one["test"]), str(int(one["ranks"])), memory, size_text(int(one["size"])), *times,
        f"{one['figure']}s", f"{float(one['ratio']):.3f}", interval, str(int(one["pairs"])), str(one["verdict"]),
    ]  # fmt: skip
