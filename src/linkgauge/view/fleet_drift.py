"""A fleet's history on the terminal: standings; a node's last runs, and each shift with what changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from linkgauge.model.quantity import change
from linkgauge.view.screen import Table, table_of, text_of
from linkgauge.view.units import count_text

if TYPE_CHECKING:
    from linkgauge.judge.fleet_history import Drift
    from linkgauge.judge.standing import Standing

_OUTLIER = "bold red"


def print_fleet(out: Console, standings: Sequence[Standing], limit: int) -> None:
    """Print nodes and devices of a fleet, outliers first."""
    outliers = sum(one.outlier for one in standings)
    nodes, devices = (len({one.name for one in standings if one.kind == kind}) for kind in ("node", "device"))
    counts = ((nodes, "node"), *(((devices, "device"),) if devices else ()), (outliers, "outlier"))
    words = ", ".join(count_text(count, word) for count, word in counts)
    out.print(Text(f"The fleet: {words}.", style="bold"))
    table = table_of("", "kind", "slower", "deviations", "cases", "run", "identity")
    for one in standings[:limit]:
        style = _OUTLIER if one.outlier else ""
        table.add_row(
            text_of(one.name, style),
            one.kind,
            change(one.share, 1),
            f"{one.score:.1f}",
            str(one.cases),
            text_of(one.run),
            text_of(one.identity),
        )
    out.print(table)
    _print_left_out(out, len(standings) - limit, "row", f", {count_text(max(outliers - limit, 0), 'outlier')} of them")


def _print_left_out(out: Console, count: int, what: str, of_them: str = "") -> None:
    if count > 0:
        out.print(Text(f"and {count_text(count, what)} more{of_them} (--limit, --json)", style="dim"))


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
    _print_left_out(out, len(found.shifts) - limit, "shift")
    table = Table(box=None, pad_edge=False)
    for name in ("run ended", "against usual", "cases"):
        table.add_column(name)
    for end, share, cases in found.runs[-limit:]:
        table.add_row(Text(end), change(share, 1), str(cases))
    out.print(table)
    _print_left_out(out, len(found.runs) - limit, "earlier run")
