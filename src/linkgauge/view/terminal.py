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
from linkgauge.findings.exporters import clean
from linkgauge.findings.facts import rate_text
from linkgauge.findings.finding import SEVERITIES, Finding
from linkgauge.findings.fleet import Standing
from linkgauge.findings.verdicts import Checked, Outcome, Verdict
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.plan.papers import Figure, LeftOut
from linkgauge.stats.alike import members_text
from linkgauge.stats.compare import LEAST_REPEATS, Comparison
from linkgauge.view.reproduce import Effect, Row
from linkgauge.view.units import count_text

_STYLES = {
    "fault": "bold red", "loss": "yellow", "note": "dim", "fail": "bold red",
    "unknown": "yellow", "pass": "green",
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


def print_findings(
    out: Console, findings: Sequence[Finding], notes: bool = False, evidence: int = 3, unjudged: str = ""
) -> None:
    """Print faults and losses in their order, each with its first lines of evidence, and how many notes there are.

    With `notes` these too, those of one rule together. `unjudged`: why no rate was held against a limit.
    """
    alarms = [f for f in findings if f.severity != "note"]
    for finding in alarms:
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
        out.print(Text("      Fix: ") + _text(finding.fix))
        out.print()
    of_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.severity == "note":
            of_rule.setdefault(finding.rule, []).append(finding)
    for rule, told in of_rule.items() if notes else ():
        out.print(Text(f"note  {rule}", style="bold") + Text(f" ({len(told)})" if len(told) > 1 else ""))
        for finding in told:
            out.print(Text("      ") + _text(finding.sentence))
        for fix in dict.fromkeys(finding.fix for finding in told):
            out.print(Text("      Fix: ", style="dim") + _text(fix, "dim"))
        out.print()
    out.print(_text(told_in_sum(findings, hidden="" if notes else " (--notes)", unjudged=unjudged)))


def told_in_sum(findings: Sequence[Finding], hidden: str = "", unjudged: str = "") -> str:
    """Return the line under the findings: `No problems found; 5 notes (--notes).`; `hidden` names how to see notes.

    There is no all-clear where `unjudged` says why no rate was compared with a limit.
    """
    words = {"fault": ("fault", "faults"), "loss": ("loss", "losses"), "note": ("note", "notes")}
    counts = {name: sum(f.severity == name for f in findings) for name in SEVERITIES}
    texts = {name: f"{n} {words[name][n != 1]}" for name, n in counts.items() if n}
    notes = f"; {texts.pop('note')}{hidden}" if "note" in texts else ""
    if unjudged:
        told = ", ".join(texts.values()) or "No finding"
        return f"{told}{notes}. No rate was compared with a limit: {unjudged}."
    return f"{', '.join(texts.values()) or 'No problems found'}{notes}."


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
    """Print a check: the verdict with its counts, what failed and what is unknown, and the fleet where there is one."""
    words = {0: "PASS", 1: "FAIL", 3: "UNKNOWN"}[checked.exit_status]
    outcomes: dict[Outcome, str] = {"fail": "failed", "unknown": "unknown", "pass": "passed"}
    judged = sum(checked.count(name) for name in outcomes)
    if checked.count("pass") == judged and judged:
        counts = f"{judged} of {count_text(judged, 'check')} passed"
    else:
        counts = ", ".join(f"{checked.count(name)} {word}" for name, word in outcomes.items() if checked.count(name))
        counts = f"{count_text(judged, 'check')}: {counts}" if judged else "no case has a requirement"
    style = {0: _STYLES["pass"], 1: _STYLES["fail"], 3: _STYLES["unknown"]}[checked.exit_status]
    tail = f"; no requirement for {count_text(checked.unrequired, 'case')}" if checked.unrequired and judged else ""
    out.print(Text(words, style=style) + Text(f": {counts}{tail}."))
    out.print(_text(" ".join(checked.notes)))
    told = _grouped([v for v in checked.verdicts if v.outcome != "pass"])
    if told:
        rows = [
            {
                "what": _text(_what(group)),
                "verdict": Text(group[0].outcome, style=_STYLES[group[0].outcome]),
                "measured": Text(_quantities(group)),
                "required": Text(_quantity(group[0], group[0].required)),
                "why": _text(group[0].reason),
                "source": _text(group[0].source),
                "run": _text(group[0].host or group[0].run),
            }
            for group in told[:limit]
        ]
        # What is the same of all is said once, and of one run not at all.
        apart = {name for name in rows[0] if len({row[name].plain for row in rows}) > 1}
        one_run = len({verdict.run for verdict in checked.verdicts}) == 1
        filled = {name for name in rows[0] if any(row[name].plain for row in rows)}
        shown = [name for name in rows[0] if name in filled and (name not in ("source", "run") or name in apart)]
        table = _table(*shown)
        for row in rows:
            table.add_row(*(row[name] for name in shown))
        out.print(table)
        if "source" not in shown and len(rows) > 1:
            out.print(Text("each by: ", style="dim") + rows[0]["source"])
        if "run" not in shown and not one_run:
            out.print(Text("each of: ", style="dim") + rows[0]["run"])
        if len(told) > limit:
            out.print(Text(f"and {len(told) - limit} more (--limit, --json)", style="dim"))
    if standings:
        print_fleet(out, standings, limit)


def _grouped(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Join verdicts that differ in their devices only, each where the worst of them stands."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for index, verdict in enumerate(verdicts):
        required = "" if verdict.required is None else f"{verdict.required:.3g}"
        place = (verdict.task, required, verdict.outcome, verdict.source, verdict.run)
        groups.setdefault(place if verdict.task else (str(index),), []).append(verdict)
    return list(groups.values())


def _what(group: Sequence[Verdict]) -> str:
    if len(group) == 1:
        return group[0].what
    return f"{group[0].task} on {members_text(sorted(verdict.devices for verdict in group))}"


def _quantities(group: Sequence[Verdict]) -> str:
    """Show what was measured; of several the range."""
    measured = [verdict.measured for verdict in group if verdict.measured is not None]
    ends = dict.fromkeys(_quantity(group[0], value) for value in (min(measured), max(measured))) if measured else {}
    return " to ".join(ends)


def _quantity(verdict: Verdict, value: float | None) -> str:
    if value is None:
        return ""
    if verdict.unit == "B/s":
        return rate_text(value)
    return time_text(value) if verdict.unit == "ns" else f"{value:.3g}"


def print_fleet(out: Console, standings: Sequence[Standing], limit: int) -> None:
    """Print nodes and devices of a fleet, outliers first."""
    outliers = sum(one.outlier for one in standings)
    nodes, devices = (len({one.name for one in standings if one.kind == kind}) for kind in ("node", "device"))
    out.print(Text(f"The fleet: {nodes} nodes, {devices} devices, {outliers} outliers.", style="bold"))
    table = _table("", "kind", "slower", "deviations", "cases", "identity", "run")
    for one in standings[: max(outliers, min(limit, 10))]:
        style = _STYLES["fail"] if one.outlier else ""
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
    """Print advice, a line a range of sizes, the task named at its first; columns that nothing fills are left out."""
    lines: list[dict[str, Text]] = []
    last = ""
    for one in advice:
        lines.append(
            {
                "task": _text("" if one.task == last else one.task, "bold"),
                "sizes": Text(one.sizes),
                "use": _text(one.best),
                "margin": Text(one.margin_words),
                "95 % interval": Text(one.interval_words),
                "over": _text(one.second),
                "or as well": _text(", ".join(one.alike)),
                "export": _text(" ".join(f"{name}={value}" for name, value in one.exports)),
            }
        )
        last = one.task
    filled = [name for name in lines[0] if any(line[name].plain for line in lines)] if lines else []
    table = _table(*filled)
    for line in lines:
        table.add_row(*(line[name] for name in filled))
    out.print(table)


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
        "linkgauge reproduce PAPER:FIGURE measures one here; of more nodes with --hosts A,B or, in a job, --nodes all."
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


def print_effects(out: Console, figure: Figure, effects: Sequence[Effect]) -> None:
    """Print what each setting gives over the default, above the paper's numbers; what nothing reads in one line."""
    table = _table("setting", "case", "default", "with it", "95 % interval", "verdict")
    for one in effects:
        if one.unread:
            continue
        change = interval = "-"
        if one.shift is not None:
            change = f"{1 / (1 + one.shift.share):.2f}x"
            interval = f"{1 / (1 + one.shift.high):.2f} to {1 / (1 + one.shift.low):.2f}, {one.pairs} pairs"
        table.add_row(one.setting, _text(one.words), time_text(one.default_ns), change, interval, one.verdict)
    if table.row_count:
        out.print(table)
    for why in dict.fromkeys(one.unread for one in effects if one.unread):
        seen = [one for one in effects if one.unread == why and one.verdict not in ("no change seen", "cannot tell")]
        odd = f"; yet {len(seen)} of its cases differ: launches do" if seen else ""
        out.print(_text(f"{why}{odd}"))
    if not effects:
        out.print(_text("no case of these settings could be measured here: 'linkgauge show' says why"))
    out.print(_text(f"{figure.name} ({figure.title}), median over median; the paper:", "bold"))
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
