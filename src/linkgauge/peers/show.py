"""The table of both tools, for `linkgauge against` and for `linkgauge run --with`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.quantity import format_size
from linkgauge.peers.catalogue import peer_tests
from linkgauge.peers.drive import Line
from linkgauge.peers.ratio import MAX_PAIRS, MIN_PAIRS
from linkgauge.store.folder import write_atomically

_FILE = "ratios.json"
_FILE_WIDTH = 160  # of a table that goes to a file


def named_peer(text: str) -> tuple[str, Path]:
    """The peer and its folder that `PEER=FOLDER` names; UsageError for an unknown peer or no such folder."""
    name, _, folder = text.partition("=")
    if not folder or not Path(folder).exists():
        raise UsageError(f"'{text}' names no folder that exists: expected PEER=FOLDER, such as osu=/opt/osu")
    peer_tests(name)
    return name, Path(folder)


def row_of(line: Line) -> dict[str, Any]:
    """One line as plain values; times are in nanoseconds of one operation, spreads shares of them."""
    row = line.row
    return {
        "test": row.test.name,
        "ranks": row.ranks,
        "memory": list(row.memory) if row.test.takes_memory else [],
        "size": row.size,
        "ours_ns": line.ours.median_ns,
        "peer_ns": line.peer.median_ns,
        "ours_spread": line.ours.spread,
        "peer_spread": line.peer.spread,
        "estimator": row.test.estimator,
        "figure": row.test.figure,
        "ratio": line.ratio.median,
        "low": line.ratio.low,
        "high": line.ratio.high,
        "pairs": line.ratio.pairs,
        "tolerance": row.test.tolerance_at(row.size),
        "verdict": line.verdict,
    }


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """`ratios.json` in `folder`, whole or not at all."""
    write_atomically(folder / _FILE, json.dumps(list(rows), indent=1).encode())


def print_rows(rows: Sequence[dict[str, Any]], left_out: Mapping[str, str]) -> None:
    """The table on the terminal, and below it what was left out, a line for each reason."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    names = ("test", "ranks", "memory", "size", "ours, ns", "spread", "peer, ns", "spread", "ratio of", "ratio",
             "95 % interval", "pairs", "verdict")  # fmt: skip
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(
            str(row["test"]), str(row["ranks"]), " to ".join(dict.fromkeys(row["memory"])), format_size(row["size"]),
            f"{row['ours_ns']:.1f}", f"{row['ours_spread']:.1%}", f"{row['peer_ns']:.1f}", f"{row['peer_spread']:.1%}",
            row["figure"] + "s", f"{row['ratio']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}", str(row["pairs"]),
            row["verdict"],
        )  # fmt: skip
    console.print(table)
    by_reason: dict[str, list[str]] = {}
    for key, reason in left_out.items():
        by_reason.setdefault(reason, []).append(key)
    for reason, keys in by_reason.items():
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        console.print(f"left out: {'; '.join(keys[:3])}{more}: {reason}", markup=False, highlight=False, soft_wrap=True)


def untold(rows: Sequence[dict[str, Any]]) -> str:
    """What to change where enough launches could not tell; empty where there is no such row."""
    wide = [row for row in rows if row["verdict"] == "cannot tell" and row["pairs"] >= MIN_PAIRS]
    if not wide:
        return ""
    ours, peers = (max(row[key] for row in wide) for key in ("ours_spread", "peer_spread"))
    return (
        f"{len(wide)} of {len(rows)} rows cannot be told: their launches lie too far apart (spread, between quartiles: "
        f"ours up to {ours:.0%}, the peer's {peers:.0%}); remedy: more --iterations, --pairs up to {MAX_PAIRS}, with "
        "--mpi also --bind core"
    )
