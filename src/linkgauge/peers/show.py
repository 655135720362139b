"""The table of both tools, for `linkgauge against` and for `linkgauge run --with`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.peers.catalogue import peer_tests
from linkgauge.peers.drive import Line
from linkgauge.plan.quantity import format_size


def named_peer(text: str) -> tuple[str, Path]:
    """The peer and its folder that `PEER=FOLDER` names; UsageError for an unknown peer or no such folder."""
    name, _, folder = text.partition("=")
    if not folder or not Path(folder).exists():
        raise UsageError(f"'{text}' names no folder that exists: expected PEER=FOLDER, such as osu=/opt/osu")
    peer_tests(name)
    return name, Path(folder)


def row_of(line: Line) -> dict[str, Any]:
    """One line as plain values; times are in nanoseconds of one operation."""
    return {
        "test": line.test.name,
        "size": line.size,
        "ours_ns": line.ours_ns,
        "peer_ns": line.peer_ns,
        "estimator": line.test.estimator,
        "figure": line.test.figure,
        "ratio": line.ratio.median,
        "low": line.ratio.low,
        "high": line.ratio.high,
        "pairs": line.ratio.pairs,
        "tolerance": line.test.tolerance_at(line.size),
        "verdict": line.verdict,
    }


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """`ratios.json` in `folder`."""
    (folder / "ratios.json").write_text(json.dumps(list(rows), indent=1))


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    names = ("test", "size", "ours, ns", "peer, ns", "ratio of", "ratio", "95 % interval", "pairs", "verdict")
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(
            str(row["test"]), format_size(row["size"]), f"{row['ours_ns']:.1f}", f"{row['peer_ns']:.1f}",
            row["figure"] + "s", f"{row['ratio']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}", str(row["pairs"]),
            row["verdict"],
        )  # fmt: skip
    Console().print(table)
