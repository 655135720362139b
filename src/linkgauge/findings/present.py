"""Findings, comparisons, checks and advice on a terminal. Everything from a run folder is shown as plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from linkgauge.findings.advise import Advice
from linkgauge.findings.compare_runs import RunComparison
from linkgauge.findings.facts import rate_text, size_text, time_text
from linkgauge.findings.finding import Finding
from linkgauge.findings.fleet import Standing
from linkgauge.findings.outputs import clean
from linkgauge.findings.reproduce import Figure, LeftOut, Row
from linkgauge.findings.verdicts import Checked, Verdict
from linkgauge.stats.compare import LEAST_REPEATS, Comparison

_STYLES = {
    "fault": "bold red", "loss": "yellow", "note": "dim", "short": "bold red",
    "cannot judge": "yellow", "holds": "green",
    "worse": "bold red", "better": "green", "same": "dim", "cannot tell": "yellow",
}  # fmt: skip


_WORDS = ("why", "verdict", "what", "plan", "use", "over", "or as well", "export", "source", "run", "identity", "kind")
"""Columns that hold words, set left; all others are numbers."""


def console() -> Console:
    """Return a console for tables; wide enough that a pipe gets whole lines."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=max(160, found.width))


def _text(value: str, style: str = "") -> Text:
    return Text(clean(value), style=style)


def print_findings(out: Console, findings: Sequence[Finding], notes: bool = True, evidence: int = 3) -> None:
    """Print findings in their order, with the first few lines of evidence of each."""
    shown = [f for f in findings if notes or f.severity != "note"]
    if not shown:
        out.print(Text("Nothing is out of line." if notes else "No faults or losses were found."))
    for finding in shown:
        head = Text(f"{finding.severity:<5} ", style=_STYLES[finding.severity])
        out.print(
            head + _text(f"{finding.rule} ({finding.confidence:.0%} sure):", "bold") + " " + _text(finding.sentence)
        )
        for item in finding.evidence[:evidence]:
            more = ", ..." if len(item.case_keys) > 3 else ""
            keys = f" [{clean(', '.join(item.case_keys[:3]))}{more}]" if item.case_keys else ""
            out.print(Text("      ") + _text(item.text) + Text(keys, style="dim"))
        if len(finding.evidence) > evidence:
            out.print(Text(f"      and {len(finding.evidence) - evidence} more (--json)", style="dim"))
        out.print(Text("      To do: ") + _text(finding.remedy))
        out.print()


def print_comparison(out: Console, found: RunComparison, names: tuple[str, str], limit: int) -> None:
    """Print what changed: pools first, then cases, the largest shifts first."""
    out.print(_text(f"{names[1]} against {names[0]}: {found.how}. Shifts are of times: + is slower."))
    for note in found.notes:
        out.print(_text(note))
    counts = ", ".join(f"{found.count(v)} {v}" for v in ("worse", "better", "same", "cannot tell"))
    out.print(_text(f"{len(found.cases)} cases: {counts}."))
    if found.only_first or found.only_second:
        out.print(_text(f"Without a partner: {found.only_first} of the first run, {found.only_second} of the second."))
    for words, reason in found.failed:
        out.print(Text("worse ", style=_STYLES["worse"]) + _text(f"{words}: {reason}"))
    pools = [p for p in found.pools if p.comparison.verdict in ("worse", "better") or p.kind == "run"]
    if pools:
        table = _table("pooled", "cases", "verdict", "shift", "95 % interval", "why")
        for pool in pools:
            table.add_row(_text(pool.name), str(pool.cases), *_shift(pool.comparison), _text(pool.comparison.reason))
        out.print(table)
    told = sorted(
        (c for c in found.cases if c.comparison.verdict != "same"),
        key=lambda c: (
            c.comparison.verdict == "cannot tell",
            -abs(c.comparison.shift.share if c.comparison.shift else 0.0),
        ),
    )
    if not told:
        return
    resampled = any(case.bootstrap for case in told)
    reasons = {case.comparison.reason for case in told}
    alike = len(told) > 1 and len(reasons) == 1  # said once
    columns = ["case", "before", "after", "verdict", "shift", "95 % interval"]
    columns += ["bootstrap"] if resampled else []
    table = _table(*columns, *([] if alike else ["why"]))
    for case in told[:limit]:
        a, b = (time_text(v) if math.isfinite(v) else "-" for v in case.comparison.median_ns)
        boot = (
            [f"{case.bootstrap.low:+.1%} to {case.bootstrap.high:+.1%}" if case.bootstrap else ""] if resampled else []
        )
        why = [] if alike else [_text(case.comparison.reason)]
        table.add_row(_text(case.words), a, b, *_shift(case.comparison), *boot, *why)
    out.print(table)
    if alike and (reason := reasons.pop()):
        out.print(_text(f"Each of these: {reason}", "dim"))
    if len(told) > limit:
        out.print(Text(f"and {len(told) - limit} more (--limit, --json)", style="dim"))


def _shift(comparison: Comparison) -> tuple[Text, str, str]:
    verdict = Text(comparison.verdict, style=_STYLES[comparison.verdict])
    if comparison.shift is None:
        return verdict, "-", "-"
    if min(comparison.repeats) < LEAST_REPEATS:  # the range of a few ratios is no interval
        return verdict, f"{comparison.shift.share:+.2%}", "-"
    return verdict, f"{comparison.shift.share:+.2%}", f"{comparison.shift.low:+.1%} to {comparison.shift.high:+.1%}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(
            name,
            overflow="fold",
            no_wrap=False,
            justify="left" if index == 0 or name in _WORDS else "right",
        )
    return table


def print_check(out: Console, checked: Checked, standings: Sequence[Standing], limit: int) -> None:
    """Print a check: the sum, what falls short and what could not be judged, and the fleet where there is one."""
    words = {0: "All hold", 1: "Something falls short", 3: "Could not judge"}[checked.exit_status]
    counts = (
        f"{checked.count('short')} short, {checked.count('cannot judge')} not judged, {checked.count('holds')} hold"
    )
    style = {0: _STYLES["holds"], 1: _STYLES["short"], 3: _STYLES["cannot judge"]}[checked.exit_status]
    tail = f"; {checked.unrequired} cases without a requirement" if checked.unrequired else ""
    out.print(Text(words, style=style) + Text(f": {counts}{tail}."))
    for note in checked.notes:
        out.print(_text(note))
    told = [v for v in checked.verdicts if v.outcome != "holds"]
    if told:
        table = _table("what", "verdict", "measured", "required", "why", "source", "run")
        for verdict in told[:limit]:
            table.add_row(
                _text(verdict.what), Text(verdict.outcome, style=_STYLES[verdict.outcome]),
                _quantity(verdict, verdict.measured),
                _quantity(verdict, verdict.required), _text(verdict.reason),
                _text(verdict.source), _text(verdict.host or verdict.run),
            )  # fmt: skip
        out.print(table)
        if len(told) > limit:
            out.print(Text(f"and {len(told) - limit} more (--limit, --json)", style="dim"))
    if standings:
        print_fleet(out, standings, limit)


def _quantity(verdict: Verdict, value: float | None) -> str:
    if value is None:
        return ""
    if verdict.unit == "B/s":
        return rate_text(value)
    return time_text(value) if verdict.unit == "ns" else f"{value:.3g}"


def print_fleet(out: Console, standings: Sequence[Standing], limit: int) -> None:
    """Print nodes and devices of a fleet, outliers first."""
    outliers = sum(one.outlier for one in standings)
    nodes = sum(one.kind == "node" for one in standings)
    devices = sum(one.kind == "device" for one in standings)
    out.print(Text(f"The fleet: {nodes} nodes, {devices} devices, {outliers} outliers.", style="bold"))
    table = _table("", "kind", "slower", "deviations", "cases", "identity", "run")
    for one in standings[: max(outliers, min(limit, 10))]:
        style = _STYLES["short"] if one.outlier else ""
        table.add_row(
            _text(one.name, style),
            one.kind,
            f"{one.share:+.1%}",
            f"{one.score:.1f}",
            str(one.cases),
            _text(one.identity),
            _text(one.run),
        )
    out.print(table)


def print_advice(out: Console, advice: Sequence[Advice]) -> None:
    """Print advice, one table a task."""
    for task in dict.fromkeys(one.task for one in advice):
        out.print(_text(task, "bold"))
        table = _table("sizes", "use", "margin", "95 % interval", "over", "or as well", "export")
        for one in (a for a in advice if a.task == task):
            margin = "-" if one.margin is None else f"{one.margin:+.0%}"
            if one.margin_at is not None and one.size_from != one.size_to:
                margin += f" at {size_text(one.margin_at)}"
            interval = "" if one.low is None or one.high is None else f"{one.low:+.0%} to {one.high:+.0%}"
            alike = ", ".join(one.alike) if one.alike else ""
            if one.alike and one.margin is None:
                margin = "does not matter"
            exports = " ".join(f"{name}={value}" for name, value in one.exports)
            table.add_row(one.sizes, _text(one.best), margin, interval, _text(one.second), _text(alike), _text(exports))
        out.print(table)
        out.print()


def print_figures(out: Console, figures: Sequence[Figure], left_out: Sequence[LeftOut]) -> None:
    """List the papers' figures with their plans, and those that have none with the reason."""
    for paper in dict.fromkeys(one.paper for one in figures):
        mine = [one for one in figures if one.paper == paper]
        out.print(_text(f"{paper}: {mine[0].title}", "bold"))
        table = _table("figure", "covers", "plan", "nodes", "what")
        for one in mine:
            counts = "; on 2, 3, ... devices" if one.ranks == "each" else ""
            what = _text(f"{one.load().description} {one.estimator} in {one.unit}{counts}")
            table.add_row(one.name, ", ".join(one.covers), one.plan, str(one.nodes), what)
        out.print(table)
        for other in left_out:
            if other.paper == paper:
                out.print(_text(f"  not repeated: {', '.join(other.covers)}: {other.why}"))
        out.print()
    out.print(
        "linkgauge reproduce PAPER:FIGURE measures one here; more nodes need --launcher-args of 'linkgauge run --plan'."
    )


def print_pictures(out: Console, pictures: Sequence[tuple[Path | None, str]]) -> None:
    """Print where the pictures are, and why one is not there."""
    for path, note in pictures:
        if path is None:
            out.print(_text(f"not drawn: {note}"))
        else:
            out.print(_text(f"drawn in {path}" + (f" ({note})" if note else "")))


def print_numbers(out: Console, figure: Figure) -> None:
    """Print a figure's check numbers."""
    out.print(_text(f"{figure.name} ({figure.title}), {figure.estimator} in {figure.unit}; the paper:", "bold"))
    for text in figure.numbers:
        out.print(_text("  " + text))


def print_reproduced(out: Console, figure: Figure, rows: Sequence[Row]) -> None:
    """Print what was measured by the paper's estimator and unit, above the paper's numbers."""
    table = _table("measured", f"{figure.estimator}, {figure.unit}", "why")
    for row in rows:
        value = f"{row.value:.4g}" if row.value is not None else row.status
        table.add_row(_text(row.words), value, _text(row.reason if row.value is None else ""))
    out.print(table)
    print_numbers(out, figure)
