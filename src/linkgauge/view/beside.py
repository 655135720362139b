"""Other tools beside a run's own cases: what `linkgauge run --with` found, from the run folder's `with/ratios.json`."""

from __future__ import annotations

import contextlib
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.shape import as_it_is, checked, each, number, read_json, table, text, whole
from linkgauge.store.run import Run
from linkgauge.view.units import size_text, time_text

_MAX_BYTES = 16 << 20
COLUMNS = ("peer", "test", "ranks", "memory", "size", "ours", "the peer's", "ratio of", "ratio", "95 %", "pairs",
           "verdict")  # fmt: skip
NOTE = (
    "The same cases measured in turn, both by the other tool's own estimator; the ratio is ours over the other's, its "
    "median over pairs of launches. It holds where the median is in range and the interval narrow enough to say so."
)

_ROW_SHAPES = {
    **dict.fromkeys(("peer", "test", "figure", "verdict"), text), **dict.fromkeys(("ranks", "size", "pairs"), whole()),
    **dict.fromkeys(("ours_ns", "peer_ns", "ratio", "low", "high"), number()), "memory": each(text),
}  # fmt: skip
_ROW = table(_ROW_SHAPES, needed=_ROW_SHAPES)


def beside_rows(run: Run) -> list[list[str]]:
    """Return the rows of the table in words; none where there is no such file, and none of a row that is damaged."""
    path = run.path / "with" / "ratios.json"
    if not path.exists():
        return []
    rows = []
    with contextlib.suppress(UsageError):
        for one in read_json(path, _MAX_BYTES, "the table of ratios", each(as_it_is)):
            with contextlib.suppress(UsageError):
                rows.append(_cells(checked(one, _ROW, str(path))))
    return rows


def _cells(one: dict[str, Any]) -> list[str]:
    return [
        one["peer"], one["test"], str(one["ranks"]), " to ".join(dict.fromkeys(one["memory"])), size_text(one["size"]),
        time_text(one["ours_ns"]), time_text(one["peer_ns"]), f"{one['figure']}s", f"{one['ratio']:.3f}",
        f"{one['low']:.3f} to {one['high']:.3f}", str(one["pairs"]), one["verdict"],
    ]  # fmt: skip
