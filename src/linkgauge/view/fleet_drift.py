"""One node of a fleet's history on the terminal: its last runs, and each shift with what changed."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from linkgauge.judge.fleet_history import Drift
from linkgauge.model.quantity import change
from linkgauge.view.screen import Table
from linkgauge.view.terminal import text_of
from linkgauge.view.units import count_text


def print_drift(out: Console, found: Drift, limit: int) -> None:
    """Print shifts, the clearest first, then the last runs."""
    words = f"{count_text(len(found.runs), 'run')}, {count_text(len(found.shifts), 'shift')}"
    out.print(text_of(f"{found.node}: {words}.", "bold"))
    for one in found.shifts[:limit]:
        what = f"{one.part} of {found.node}, less the node's own shift" if one.part else found.node
        how = f"{change(one.share, 1)} time from {one.began} on"
        out.print(text_of(f"{what}: {how} ({one.runs_before} runs before, {one.runs_after} after)"))
        if one.changed:
            for changed in one.changed:
                out.print(text_of(f"  changed then: {changed}"))
        else:
            out.print(text_of("  nothing that the history holds changed then"))
    table = Table(box=None, pad_edge=False)
    for name in ("run ended", "against usual", "cases"):
        table.add_column(name)
    for end, share, cases in found.runs[-min(limit, 10) :]:
        table.add_row(Text(end), change(share, 1), str(cases))
    out.print(table)
