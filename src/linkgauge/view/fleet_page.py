"""The page of a fleet: which nodes and devices stand apart, at what, and since when. One file, as a run's report is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from linkgauge.files import write_atomically
from linkgauge.judge.check import CheckResult
from linkgauge.judge.fleet import Cell, Moment, cells, moments
from linkgauge.judge.standing import LEAST_SHARE, Standing
from linkgauge.judge.subjects import Subject
from linkgauge.model.quantity import percent
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.page import Page, escape
from linkgauge.view.terminal import verdict_words
from linkgauge.view.units import count_text

_LEAST_REACH = 5.0  # %: colors of a smaller span would paint noise
_MOST_REACH = 30.0  # %: one dead node would leave all others white
_ROW = 18  # pixels
_MOST_ROWS = 100  # two screens: of a thousand nodes the legend would lie five screens below, and most names be left out
_COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MOST_COLORED = len(_COLORS)
# Names of tasks stand aslant above their columns: these are wide enough that the names do not touch. On a narrow page
# the matrix scrolls.
_TASK_ANGLE, _TASK_STEP, _TASK_LABEL, _NODE_LABEL = -40, 24, 200, 130


def task_matrix(cells: Sequence[Cell], names: dict[str, str]) -> Chart:
    """Return nodes by tasks, a cell the share by which the node takes longer; rows as `names` (run to words) has them.

    Orange is slower than the siblings, blue faster, white alike.
    """
    alt = charts.altair()
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    data = [
        {"node": names[cell.run], "task": cell.task, "slower": charts.short(100 * cell.share), "cases": cell.cases}
        for cell in cells
    ]
    reach = min(_MOST_REACH, max(_LEAST_REACH, *(abs(100 * cell.share) for cell in cells)))
    scale = alt.Scale(domain=[-reach, 0, reach], range=["#0072B2", "#F7F7F7", "#D55E00"], clamp=True)
    rows = list(names.values())
    x = alt.Axis(labelAngle=_TASK_ANGLE, orient="top", labelLimit=_TASK_LABEL)
    return (
        alt.Chart(charts.data(data))
        .mark_rect()
        .encode(
            x=alt.X("task:O", title=None, scale=alt.Scale(domain=tasks), axis=x),
            y=alt.Y(
                "node:O",
                title=None,
                scale=alt.Scale(domain=rows),
                axis=alt.Axis(labelOverlap=True, labelLimit=_NODE_LABEL),
            ),
            color=alt.Color("slower:Q", title="slower than siblings (%)", scale=scale, legend=charts.gradient_legend()),
            tooltip=[alt.Tooltip(name) for name in ("node:N", "task:N", "slower:Q", "cases:Q")],
        )
        .properties(
            height=_ROW * len(rows), padding={"left": 5, "right": 40, "top": 5, "bottom": 5}
        )  # room for the last name
    )


def rows_shown(cells: Sequence[Cell], names: Mapping[str, str]) -> dict[str, str]:
    """Return, in the order of `names`, the nodes that the matrix has a row for: those with the slowest tasks."""
    worst: dict[str, float] = {}
    for cell in cells:
        worst[cell.run] = max(cell.share, worst.get(cell.run, cell.share))
    shown = set(sorted(worst, key=lambda run: -worst[run])[:_MOST_ROWS])
    return {run: name for run, name in names.items() if run in shown}


def drift_chart(moments: Sequence[Moment], apart: Sequence[str]) -> Chart:
    """Return each host's runs over time, by how much they take longer than what they are held against.

    The hosts `apart`, MOST_COLORED at most, have a color and a name, the others are gray.
    """
    alt = charts.altair()
    data = [
        {"host": one.host, "shown": one.host if one.host in apart else "others", "start": one.start,
         "slower": charts.short(100 * one.share), "cases": one.cases}
        for one in moments
    ]  # fmt: skip
    names = [host for host in apart if any(one.host == host for one in moments)]
    scale = alt.Scale(domain=[*names, "others"], range=[*_COLORS[: len(names)], "#999999"])
    days = len({one.start[:10] for one in moments})
    ticks = {"interval": "day", "step": -(-days // 6)} if days > 2 else 4
    axis = alt.Axis(format="%b %d" if days > 2 else "%b %d, %H:%M", tickCount=ticks, labelOverlap=True,
                    labelSeparation=8)  # fmt: skip
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("start:T", title="start of the run (UTC)", scale=alt.Scale(type="utc"), axis=axis),
        y=alt.Y("slower:Q", title="slower (%)", scale=alt.Scale(zero=True)),
        color=alt.Color("shown:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=2, labelLimit=130)),
        detail=alt.Detail("host:N"),
        tooltip=[alt.Tooltip("host:N"), alt.Tooltip("start:T"), alt.Tooltip("slower:Q"), alt.Tooltip("cases:Q")],
    )
    return alt.layer(base.mark_line(strokeWidth=1.5, opacity=0.8), base.mark_point(filled=True, size=40, opacity=1))


_MOST_NAMED = 3


def short_names(hosts: Iterable[str]) -> dict[str, str]:
    """Return each host without its domain, where no two become the same by that."""
    known = list(dict.fromkeys(hosts))
    short = {host: host.split(".", 1)[0] or host for host in known}
    return short if len(set(short.values())) == len(known) else {host: host for host in known}


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
    sentence = f"{verdict_words(result.checked)}. {_apart(result)}"
    page.html(f'<p class="dim">{escape(_when(subjects))}</p><p class="sentence">{escape(sentence)}</p>')
    page.html("</header><main>")
    _short(page, result, {one.name: one.host for one in subjects})
    hosts = short_names(one.host for one in subjects)
    _tasks(page, subjects, {one.run: hosts.get(one.name, one.name) for one in nodes})
    _drift(page, moments(subjects, known_ns), nodes, hosts, by_baseline=bool(known_ns))
    _standings(page, result.standings)
    page.html("</main><footer>Made by Linkgauge.</footer>")
    return page.document(title)


def _when(subjects: Sequence[Subject]) -> str:
    starts = sorted(filter(None, map(_start, subjects)))
    days = list(dict.fromkeys(start[:10] for start in (starts[:1] + starts[-1:])))
    return " · ".join(filter(None, (count_text(len(subjects), "run"), " to ".join(days))))


def _apart(result: CheckResult) -> str:
    apart = list({one.name: one for one in reversed(result.standings) if one.outlier}.values())[::-1]
    if not result.standings:
        return "These runs share no case that four of them measured: nothing can be held side by side."
    if not apart:
        return "No node, device or pair stands apart from its siblings."
    named = ", ".join(f"{one.name} by {percent(one.share, 1)}" for one in apart[:_MOST_NAMED])
    more = f" and {len(apart) - _MOST_NAMED} more" if len(apart) > _MOST_NAMED else ""
    return f"Slower than their siblings: {named}{more}."


def _short(page: Page, result: CheckResult, hosts: Mapping[str, str]) -> None:
    page.heading(2, "Failed checks", "fail")
    told = [one for one in result.checked.verdicts if one.outcome != "pass"]
    if not told:
        page.html("<p>None.</p>")
        return
    rows = [(one.host or hosts.get(one.run) or one.run, one.what, one.outcome, one.reason, one.source) for one in told]
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
    shown = rows_shown(found, names)
    page.heading(2, "Nodes by task", "tasks")
    page.note(
        "Each node's last run: how much longer a task's cases take than on the median node. The slowest nodes are on"
        " top."
        + (
            f" Shown are the {len(shown)} of {len(names)} nodes with the slowest task."
            if len(shown) < len(names)
            else ""
        )
    )
    found = [cell for cell in found if cell.run in shown]
    tasks = len({cell.task for cell in found})
    width = _NODE_LABEL + _TASK_STEP * tasks + _TASK_LABEL
    page.chart(task_matrix(found, shown), "nodes by mechanism and pattern", "fleet-tasks", min_width=width)


def _drift(
    page: Page, found: Sequence[Moment], nodes: Sequence[Standing], hosts: Mapping[str, str], *, by_baseline: bool
) -> None:
    if not found:
        return
    page.heading(2, "Over time", "drift")
    against = "the baseline's median" if by_baseline else "each node's own first run here"
    page.note(f"How much longer a run takes, as the median over all cases, than {against}.")
    last = {one.host: one for one in found}
    worst = sorted((host for host in last if abs(last[host].share) >= LEAST_SHARE), key=lambda host: -last[host].share)
    apart = list(dict.fromkeys([*(one.name for one in nodes if one.outlier and one.name in last), *worst]))
    shown = [dataclasses.replace(one, host=hosts.get(one.host, one.host)) for one in found]
    page.chart(
        drift_chart(shown, [hosts.get(one, one) for one in apart[:MOST_COLORED]]),
        "runs over time",
        "fleet-drift",
        height=300,
    )


def _three(value: float) -> float:
    """Return a number with three digits, as tables have them; a number still, by which rows are sorted."""
    return float(f"{value:.3g}")


def _standings(page: Page, standings: Sequence[Standing]) -> None:
    if not standings:
        return
    page.heading(2, "All nodes and devices", "standings")
    columns = [("name", True), ("kind", True), ("slower, %", False), ("deviations", False), ("cases", False),
               ("identity", True), ("run", True)]  # fmt: skip
    rows = [
        (one.name, one.kind, _three(100 * one.share), _three(one.score), one.cases, one.identity, one.run)
        for one in standings
    ]
    page.table(columns, rows)
