"""What `linkgauge run` prints when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkgauge.view.results import Results
from linkgauge.view.tables import counts_line, overview, status_tables

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.store.run import Run


def print_summary(run: Run, console: Console, unit: str = "GB/s") -> None:
    """Print the best latency and goodput of every task, what was skipped or went wrong, and how many cases there were.

    `unit` is one of linkgauge.view.units.RATE_UNITS. Needs neither Altair nor DuckDB.
    """
    results = Results(run)
    if results.rows:
        console.print(overview(results, unit))
    for table in status_tables(results):
        console.print("", table, sep="\n")
    console.print("", counts_line(results), sep="\n")
