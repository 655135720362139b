"""The page of a fleet: which nodes and devices stand apart, at what, and since when. One file, as a run's report is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from linkgauge.findings.check import CheckResult
from linkgauge.findings.fleet import LEAST_SHARE, Moment, Standing, cells, moments
from linkgauge.findings.subjects import Subject
from linkgauge.store.folder import write_atomically
from linkgauge.view import charts, charts_fleet
from linkgauge.view.page import Page, escape
from linkgauge.view.units import count_text

_MOST_NAMED = 3


def write_fleet(
    path: Path, subjects: Sequence[Subject], result: CheckResult, known_ns: Mapping[tuple[str, str], float]
) -> None:
    """Write the page of runs that `check` has judged. `known_ns`: a baseline's times, as `fleet.moments` takes them.

    Raises EnvironmentLackingError where Altair or vl-convert is not installed or the file cannot be written.
    """
    with charts.drawing():
        text = fleet_html(subjects, result, known_ns)
    write_atomically(path, text.encode("utf-8"))


def fleet_html(subjects: Sequence[Subject], result: CheckResult, known_ns: Mapping[tuple[str, str], float]) -> str:
    """Return the page as one HTML text."""
    page = Page()
    latest = _latest(subjects)
    nodes = [one for one in result.standings if one.kind == "node" and one.run in latest]
    title = f"Linkgauge · {count_text(len(latest), 'node')}"
    page.html(f"<header><h1>{escape(title)}</h1>")
    page.html(f'<p class="dim">{escape(_when(subjects))}</p><p class="sentence">{escape(_sentence(result))}</p>')
    page.html("</header><main>")
    _short(page, result)
    _tasks(page, subjects, {one.run: one.name for one in nodes})
    _drift(page, moments(subjects, known_ns), nodes, by_baseline=bool(known_ns))
    _standings(page, result.standings)
    page.html("</main><footer>Made by Linkgauge.</footer>")
    return page.document(title)


def _when(subjects: Sequence[Subject]) -> str:
    starts = sorted(filter(None, map(_start, subjects)))
    days = list(dict.fromkeys(start[:10] for start in (starts[:1] + starts[-1:])))
    return " · ".join(filter(None, (count_text(len(subjects), "run"), " to ".join(days))))


def _sentence(result: CheckResult) -> str:
    apart = list({one.name: one for one in reversed(result.standings) if one.outlier}.values())[::-1]
    if not result.standings:
        return "These runs share no case that four of them measured: nothing can be held side by side."
    if not apart:
        return "No node, device or pair stands apart from its siblings."
    named = ", ".join(f"{one.name} by {one.share:.1%}" for one in apart[:_MOST_NAMED])
    more = f" and {len(apart) - _MOST_NAMED} more" if len(apart) > _MOST_NAMED else ""
    return f"Slower than their siblings: {named}{more}."


def _short(page: Page, result: CheckResult) -> None:
    page.heading(2, "What falls short", "short")
    told = [one for one in result.checked.verdicts if one.outcome != "holds"]
    if not told:
        page.html("<p>Nothing.</p>")
        return
    rows = [(one.host or one.run, one.what, one.outcome, one.reason, one.source) for one in told]
    page.table([("node", True), ("what", True), ("verdict", True), ("reason", True), ("source", True)], rows)


def _latest(subjects: Sequence[Subject]) -> set[str]:
    """Each host's last run, by name."""
    last: dict[str, Subject] = {}
    for one in subjects:
        before = last.get(one.host)
        if before is None or _start(one) >= _start(before):
            last[one.host] = one
    return {one.name for one in last.values()}


def _start(subject: Subject) -> str:
    return str(subject.facts.info.get("start") or "")


def _tasks(page: Page, subjects: Sequence[Subject], names: dict[str, str]) -> None:
    """`names`: of each node's last run what the node is called."""
    found = [cell for cell in cells(subjects) if cell.run in names]
    if not found:
        return
    page.heading(2, "At what", "tasks")
    page.note(
        "Each node's last run: the median over a task's cases, against the middle of all. The slowest are on top."
    )
    page.chart(charts_fleet.task_matrix(found, names), "nodes by mechanism and pattern", "fleet-tasks")


def _drift(page: Page, found: Sequence[Moment], nodes: Sequence[Standing], *, by_baseline: bool) -> None:
    if not found:
        return
    page.heading(2, "Since when", "drift")
    against = "the baseline's middle" if by_baseline else "each node's own first run here"
    page.note(f"A run's median over all cases, against {against}.")
    last = {one.host: one for one in found}
    worst = sorted((host for host in last if abs(last[host].share) >= LEAST_SHARE), key=lambda host: -last[host].share)
    apart = list(dict.fromkeys([*(one.name for one in nodes if one.outlier and one.name in last), *worst]))
    page.chart(
        charts_fleet.drift(found, apart[: charts_fleet.MOST_COLOURED]), "runs over time", "fleet-drift", height=300
    )


def _standings(page: Page, standings: Sequence[Standing]) -> None:
    if not standings:
        return
    page.heading(2, "All standings", "standings")
    columns = [("", True), ("kind", True), ("slower, %", False), ("deviations", False), ("cases", False),
               ("identity", True), ("run", True)]  # fmt: skip
    rows = [
        (one.name, one.kind, charts.short(100 * one.share), charts.short(one.score), one.cases, one.identity, one.run)
        for one in standings
    ]
    page.table(columns, rows)
