"""The report of a run: one HTML file that opens offline and starts with the answer."""

from __future__ import annotations

import datetime
import json
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linkgauge.files import write_atomically
from linkgauge.model.result import Measured
from linkgauge.plan.curves import left_out_of
from linkgauge.stats.moved import state_words
from linkgauge.view import charts, report_charts
from linkgauge.view.answer import FirstLook
from linkgauge.view.by_turns import (
    BESIDE_COLUMNS,
    BESIDE_NOTE,
    ROUND_COLUMNS,
    ROUND_NOTE,
    beside_rows,
    interference_rows,
    rounds_chart,
    rounds_told,
)
from linkgauge.view.derived import (
    BLOCK_COLUMNS,
    BLOCK_NOTE,
    NODE_NOTE,
    RATES,
    SIZE_COLUMNS,
    SIZE_NOTE,
    block_rows,
    chosen_ranges,
    moved_ranges,
    node_matrices,
    size_rows,
)
from linkgauge.view.judged import advice_of, by_kind, findings_of, without_limits
from linkgauge.view.page import Page, escape
from linkgauge.view.report_charts import first_screen
from linkgauge.view.requests import request_lines
from linkgauge.view.results import Results, devices_text, machine_words
from linkgauge.view.summary import sentence, verdict
from linkgauge.view.tables import case_text, counts_line, left_out_text
from linkgauge.view.units import RATE_UNITS, count_text, digits, rate_unit
from linkgauge.view.unseen import unseen_line

if TYPE_CHECKING:
    from linkgauge.findings.finding import Finding
    from linkgauge.store.run import Run

_MAX_JSON_TEXT = 100_000


def write_report(
    run: Run, path: str | os.PathLike[str], unit: str = "GB/s", findings: Sequence[Finding] | None = None
) -> Path:
    """Write the report of a run and return its path.

    `unit` is one of linkgauge.view.units.RATE_UNITS. `findings` are shown at the head in their order; None looks for
    them. Raises EnvironmentLackingError, which says what to do, where Altair or vl-convert is not installed or the
    file cannot be written.
    """
    path = Path(path)
    with charts.drawing():
        text = report_html(run, unit, findings)
    write_atomically(path, text.encode("utf-8"))
    return path


def report_html(run: Run, unit: str = "GB/s", findings: Sequence[Finding] | None = None) -> str:
    """Return the report as one HTML text."""
    rate_unit(unit)
    look = FirstLook.of(run)
    results, limits = look.results, look.limits
    found = findings_of(run) if findings is None else findings
    page = Page()
    where, kinds = machine_words(run)
    title = " · ".join(["Linkgauge", where, *kinds[:3]])
    _head(page, run, title, sentence(look, found, unit), counts_line(results).plain.partition(";")[0])
    page.html("<main>")
    first_screen(page, look, unit)
    _findings(page, found, unseen_line(look), without_limits(run))
    _wrong(page, results)
    _uses(page, run)
    _beside(page, run)
    report_charts.application_charts(page, results)
    report_charts.patterns(page, results, limits, unit)
    _loads(page, results)
    _rounds(page, results)
    _derived(page, results, unit)
    report_charts.pairs(page, results, limits, unit)
    report_charts.all_at_once(page, results, unit)
    _nodes(page, results, unit)
    report_charts.over_devices(page, results, unit)
    report_charts.shares(page, results, limits, unit)
    report_charts.spread(page, results)
    _requests(page, results)
    _of_libraries(page, results)
    _cases(page, results, unit)
    _skipped(page, results)
    _machine(page, run)
    page.html("</main><footer>Made by Linkgauge. GB/s is 10<sup>9</sup> bytes per second, KiB 1024 bytes.</footer>")
    return page.document(title)


def _when(start: str, end: str) -> str:
    """Return when a run was, in whole seconds of UTC, the day once: `2026-01-02 03:04:05 to 03:09:05 UTC`."""
    try:
        times = [datetime.datetime.fromisoformat(text).astimezone(datetime.timezone.utc) for text in (start, end)]
    except (ValueError, OverflowError):
        return " to ".join(filter(None, (start, end)))
    days = [f"{time:%Y-%m-%d}" for time in times]
    return f"{days[0]} {times[0]:%H:%M:%S} to {'' if days[0] == days[1] else f'{days[1]} '}{times[1]:%H:%M:%S} UTC"


def _head(page: Page, run: Run, title: str, said: str, counts: str) -> None:
    origin = run.info.get("origin")
    page.html(f"<header><h1>{escape(title)}</h1>")
    when = _when(run.info.get("start") or "", run.info.get("end") or "")
    page.html(f'<p class="dim">{escape(" · ".join(filter(None, (when, counts))))}</p>')
    if origin:
        source = origin if isinstance(origin, str) else json.dumps(origin)[:400]
        page.html(f"<p><strong>Imported, not measured by Linkgauge:</strong> {escape(source)}</p>")
    page.html(f'<p class="sentence">{escape(said)}</p>')
    _damages(page, run)
    page.html("</header><nav><div>")
    sections = {"answer": "Results", "findings": "Findings", "use": "What to use", "patterns": "Curves"}
    sections |= {"pairs": "Pairs", "spread": "Spread", "cases": "All cases", "skipped": "Skipped", "machine": "Machine"}
    for anchor, name in sections.items():
        page.html(f'<a href="#{anchor}">{name}</a>')
    page.html("</div></nav>")


def _damages(page: Page, run: Run) -> None:
    """Say what of the run folder cannot be read any more: every figure below is of the rest."""
    if not run.damages:
        return
    lost = f"; {count_text(run.lost, 'case')} lost" if run.lost else ""
    page.html(f'<div class="finding fault"><strong>The run folder is damaged{lost}.</strong> What is whole is shown.')
    items = "".join(f"<li>{escape(one)}</li>" for one in run.damages)
    page.html(f"<ul>{items}</ul>")
    if run.lost:
        page.html(f"<p>Measure the lost cases again: linkgauge run --resume {escape(shlex.quote(str(run.path)))}</p>")
    page.html("</div>")


def _findings(page: Page, findings: Sequence[Finding], unseen: str, without: str) -> None:
    page.heading(2, "Findings", "findings")
    told = [finding for finding in findings if finding.severity != "note"]
    _told(page, told)
    notes = [finding for finding in findings if finding.severity == "note"]
    if not told:
        page.html(f"<p>{escape(verdict((), without_limits=without))}.</p>")
    if unseen:
        page.note(unseen)
    if notes:
        page.html(f"<details><summary>{escape(count_text(len(notes), 'note'))}</summary>")
        _told(page, notes)
        page.html("</details>")


def _told(page: Page, findings: Sequence[Finding]) -> None:
    """One card a rule and severity: its first finding in full, others of the kind folded below."""
    for first, *others in by_kind(findings):
        page.html(f'<div class="finding {escape(first.severity)}"><strong>{escape(first.sentence)}</strong>')
        page.html(f"<p>{escape(first.fix)}</p>" if first.fix else "")
        page.html(_evidence(first))
        if others:
            page.html(f"<details><summary>{len(others)} more of this kind</summary>")
            for finding in others:
                page.html(f"<p>{escape(finding.sentence)}</p>{_evidence(finding)}")
            page.html("</details>")
        page.html("</div>")


def _evidence(finding: Finding) -> str:
    items = "".join(f"<li>{escape(item.text)}</li>" for item in finding.evidence)
    sure = escape(digits(100 * finding.confidence))
    return f"<details><summary>evidence ({sure} % sure)</summary><ul>{items}</ul></details>"


def _wrong(page: Page, results: Results) -> None:
    wrong = [row for row in results.others if row.status != "skipped"]
    cut = [row for row in wrong if row.out_of_time]
    for title, place, some in (
        ("Failed cases", "wrong", [row for row in wrong if not row.out_of_time]), ("Not measured", "out-of-time", cut)
    ):  # fmt: skip
        if some:
            page.heading(2, title, place)
            rows = [(row.status, case_text(row, results), row.launch, row.reason) for row in some]
            page.table([("status", True), ("case", True), ("launch", False), ("reason", True)], rows)
    if cut:
        page.note("A larger --max-time gives a case more time.")


def _uses(page: Page, run: Run) -> None:
    page.heading(2, "What to use", "use")
    rows = [[one.task, one.sizes, one.best, one.margin_words, one.second, ", ".join(one.alike)]
            for one in advice_of(run)]  # fmt: skip
    if not rows:
        page.note("No task was measured by more than one mechanism.")
        return
    columns = [("task", True), ("sizes", True), ("use", True), ("margin", True), ("over", True), ("or as well", True)]
    page.static_table(columns, rows)
    page.note("As 'linkgauge advise' says, which adds intervals and settings to export.")


def _of_libraries(page: Page, results: Results) -> None:
    """Add what libraries chose, and which way their bytes moved, each by ranges of sizes."""
    for ranges_of, title, anchor, what, column, note in (
        (chosen_ranges, "What the library chose", "chosen", "algorithms, protocols and kernels of", "choice",
         "As its log says of the same cases, done once more in a launch whose times do not count."),
        (moved_ranges, "Which way bytes moved", "moved", "bytes that NVLinks counted in", "NVLink",
         "Payload is what must go between the GPUs. Protocols with flags move up to twice as much."),
    ):  # fmt: skip
        rows = [[results.title(first), *known] for first, task in results.panels for known in ranges_of(results, task)]
        if rows:
            page.heading(2, title, anchor)
            with page.folded(f"{what} {count_text(len(rows), 'range')} of sizes"):
                page.static_table([("task", True), ("library", True), ("sizes", True), (column, True)], rows)
                page.note(note)


def _requests(page: Page, results: Results) -> None:
    lines = request_lines(one for verdicts in results.requests.values() for one in verdicts)
    if lines:
        page.heading(2, "What was requested, and whether it held", "requested")
        page.static_table([("request", True)], [[line.removeprefix("requested ")] for line in lines])


def _beside(page: Page, run: Run) -> None:
    rows = beside_rows(run)
    if rows:
        page.heading(2, "Beside other tools", "background")
        page.static_table([(name, True) for name in BESIDE_COLUMNS], rows)
        page.note(BESIDE_NOTE)


def _nodes(page: Page, results: Results, unit: str) -> None:
    matrices = node_matrices(results, unit)
    if not matrices:
        return
    page.heading(2, "Cores and memory of NUMA nodes", "nodes")
    for matrix in matrices:
        page.heading(3, matrix.title)
        columns = [("cores \\ memory", True), *((f"node {node}", False) for node in matrix.memory)]
        rows = [[f"node {core}", *cells] for core, cells in zip(matrix.cores, matrix.cells, strict=True)]
        page.static_table(columns, rows)
    page.note(NODE_NOTE)


def _loads(page: Page, results: Results) -> None:
    columns, rows = interference_rows(results)
    if rows:
        page.heading(2, "Beside loads", "loads")
        page.static_table([(name, True) for name in columns], rows)
        page.note("Time over time alone, alternated; which part explains a loss is among the findings.")


def _rounds(page: Page, results: Results) -> None:
    rows, slow = rounds_told(results)
    if not rows:
        return
    page.heading(2, "Over the rounds", "rounds")
    page.static_table([(name, True) for name in ROUND_COLUMNS], rows)
    page.note(ROUND_NOTE + (f" Slow rounds: {'; '.join(slow)}." if slow else ""))
    page.chart(rounds_chart(results), "the cases that moved most", "rounds", height=260)


def _derived(page: Page, results: Results, unit: str) -> None:
    tables = (
        (SIZE_COLUMNS, list(size_rows(results, unit)), SIZE_NOTE),
        (BLOCK_COLUMNS, list(block_rows(results, unit)), BLOCK_NOTE),
    )
    if any(rows for _, rows, _ in tables):
        page.heading(2, "Derived from the curves", "derived")
    for columns, rows, note in tables:
        if rows:
            named = [(f"{name}, {unit}" if name in RATES else name, True) for name in columns]
            page.static_table(named, rows)
            page.note(note)


def _cases(page: Page, results: Results, unit: str) -> None:
    page.heading(2, "All cases", "cases")
    scale = RATE_UNITS[unit]

    numbers: list[tuple[str, Callable[[Measured], float | None], float]] = [
        ("median, µs", lambda row: row.median_ns, 1e-3),
        ("95 % from", lambda row: row.interval_low_ns, 1e-3),
        ("to", lambda row: row.interval_high_ns, 1e-3),
        ("q1", lambda row: row.q1_ns, 1e-3),
        ("q3", lambda row: row.q3_ns, 1e-3),
        ("p95", lambda row: row.p95_ns, 1e-3),
        ("p99", lambda row: row.p99_ns, 1e-3),
        (f"goodput, {unit}", lambda row: row.goodput_bytes_per_s, 1 / scale),
        (f"algbw, {unit}", lambda row: row.algbw_bytes_per_s, 1 / scale),
        (f"busbw, {unit}", lambda row: row.busbw_bytes_per_s, 1 / scale),
        ("max over ranks, µs", lambda row: row.max_rank_median_ns, 1e-3),
    ]
    proofs: list[tuple[str, Callable[[Measured], str]]] = [
        ("how it was moved", results.moved),
        ("requests", lambda row: state_words(results.requests.get(row.identity, ()))),
    ]
    proofs = [(name, text) for name, text in proofs if any(map(text, results.rows))]
    columns = [("mechanism", True), ("task", True), ("devices", True), ("size, B", False),
               *((name, False) for name, _, _ in numbers), ("samples", False), ("launches", False), ("marks", True),
               *((name, True) for name, _ in proofs), ("key", True)]  # fmt: skip
    page.table(columns, [
        [results.label(row), results.title(row, devices=False), " ".join(map(str, row.devices)), row.size,
         *(charts.short(value(row), factor) for _, value, factor in numbers), row.samples, row.repeats,
         marks_text(row), *(text(row) for _, text in proofs), row.case_key]
        for row in results.rows
    ])  # fmt: skip
    page.note("Times are of one iteration, of a ping-pong the whole round trip. p99 only where enough samples bear it.")


def marks_text(row: Measured) -> str:
    """Return in words what a reader must know of a case: not converged, coarse, oversubscribed, not verified."""
    marks = (
        (row.converged is False, "not converged"),
        (row.coarse is True, "coarse"),
        (row.oversubscribed is True, "oversubscribed"),
        (row.verified is False, "not verified"),
    )
    return ", ".join(text for marked, text in marks if marked)


def _skipped(page: Page, results: Results) -> None:
    page.heading(2, "Skipped", "skipped")
    skipped = [row for row in results.others if row.status == "skipped" and not left_out_of(row.evidence)]
    if left_out := left_out_text(results):
        page.note(left_out + ".")
    if not skipped:
        page.note("Nothing was skipped.")
        return
    noun = results.kinds.noun
    rows = [(results.shown(row.transport), row.pattern, row.size,
             devices_text(row.devices, row.pattern, noun), row.reason) for row in skipped]  # fmt: skip
    page.table([("transport", True), ("pattern", True), ("size, B", False), ("devices", True), ("reason", True)], rows)


def _machine(page: Page, run: Run) -> None:
    page.heading(2, "Machine and settings", "machine")
    for section in ("machine", "versions", "settings", "clock", "requested"):
        if values := run.info.get(section):
            page.heading(3, section)
            page.facts(
                (name, value if isinstance(value, str | int | float) else json.dumps(value)[:500])
                for name, value in values.items()
            )
    page.heading(3, "launches")
    columns = [("launch", False), ("key", True), ("ranks", False), ("hosts", True), ("MPI", True),
               ("environment", True), ("versions", True)]  # fmt: skip
    rows = []
    texts = run.launches.select(["mpi", "env", "versions"]).to_pylist()  # as they are stored
    for launch, stored in zip(run.launched, texts, strict=True):
        hosts = ", ".join(launch.hosts)
        rows.append((launch.launch, launch.launch_key, len(launch.ranks), hosts, *stored.values()))
    page.table(columns, rows)
    text = json.dumps(run.info, indent=1, default=str)
    more = "\n... cut here" if len(text) > _MAX_JSON_TEXT else ""
    page.html(f"<details><summary>run.json</summary><pre>{escape(text[:_MAX_JSON_TEXT] + more)}</pre></details>")
