"""The table of `show` of collectives that go on while their ranks compute."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from linkgauge.stats.overlap import overlaps
from linkgauge.store.schema import IDENTITY
from linkgauge.view.results import Results
from linkgauge.view.units import time_text

_COLUMNS = ("case", "alone", "computing", "together", "overlap")


def overlap_tables(results: Results) -> list[RenderableType]:
    """Return a row for each such case, in the order of their names; none where the run has none."""
    known = overlaps(results.run) if any(row["variant"] == "overlapped" for row in results.rows) else {}
    titles = {tuple(row[name] for name in IDENTITY): results.words(row) for row in results.rows}
    rows = sorted(
        ((titles[identity], one) for identity, one in known.items() if identity in titles), key=lambda row: row[0]
    )
    if not rows:
        return []
    table = Table(title="collectives beside computation: which part of them cost no time", title_justify="left",
                  title_style="bold", box=None, pad_edge=False, header_style="bold")  # fmt: skip
    for name in _COLUMNS:
        table.add_column(name, overflow="fold", justify="left" if name == "case" else "right")
    for title, one in rows:
        times = (time_text(ns) for ns in (one.alone_ns, one.compute_ns, one.together_ns))
        table.add_row(Text(title), *times, f"{100 * one.share:.0f} %")
    return [table]
