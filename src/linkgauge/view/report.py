"""The report of a run: one HTML file that opens offline and starts with the answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from linkgauge.errors import LinkgaugeError
from linkgauge.store.folder import write_atomically
from linkgauge.view import charts, report_charts
from linkgauge.view.answer import answers, best_ranges
from linkgauge.view.beside import COLUMNS as BESIDE_COLUMNS
from linkgauge.view.beside import NOTE as BESIDE_NOTE
from linkgauge.view.beside import beside_rows
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.chosen import chosen_ranges
from linkgauge.view.derived import BLOCK_COLUMNS, BLOCK_NOTE, RATES, SIZE_COLUMNS, SIZE_NOTE, block_rows, size_rows
from linkgauge.view.judged import by_kind
from linkgauge.view.nodes import NODE_NOTE, node_matrices
from linkgauge.view.page import Page, escape
from linkgauge.view.results import Results, Row, devices_text
from linkgauge.view.tables import case_text, counts_line
from linkgauge.view.units import RATE_UNITS, count_text, digits, rate_text, rate_unit, size_text, time_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_MAX_JSON_TEXT = 100_000


class FindingLike(Protocol):
    """What the report needs of a finding (linkgauge.findings)."""

    @property
    def severity(self) -> str: ...  # noqa: D102
    @property
    def sentence(self) -> str: ...  # noqa: D102
    @property
    def evidence(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def confidence(self) -> float: ...  # noqa: D102
    @property
    def remedy(self) -> str: ...  # noqa: D102


def write_report(
    run: Run, path: str | os.PathLike[str], unit: str = "GB/s", findings: Sequence[FindingLike] | None = None
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


def report_html(run: Run, unit: str = "GB/s", findings: Sequence[FindingLike] | None = None) -> str:
    """Return the report as one HTML text."""
    rate_unit(unit)
    results = Results(run)
    ceilings = Ceilings(run)
    page = Page()
    title = _title(run, results)
    _head(page, run, results, title)
    page.html("<main>")
    _answer(page, results, ceilings, unit)
    _findings(page, _looked_for(run) if findings is None else findings)
    _wrong(page, results)
    _uses(page, results)
    _chosen(page, results)
    _beside(page, run)
    report_charts.patterns(page, results, ceilings, unit)
    _derived(page, results, unit)
    report_charts.pairs(page, results, ceilings, unit)
    _nodes(page, results, unit)
    report_charts.over_devices(page, results, unit)
    report_charts.shares(page, results, ceilings, unit)
    report_charts.spread(page, results)
    _cases(page, results, unit)
    _skipped(page, results)
    _machine(page, run)
    page.html("</main><footer>Made by Linkgauge. GB/s is 10<sup>9</sup> bytes per second, KiB 1024 bytes.</footer>")
    return page.document(title)


def _looked_for(run: Run) -> Sequence[FindingLike]:
    from linkgauge.view.judged import findings_of

    return findings_of(run)


def _title(run: Run, results: Results) -> str:
    hosts: list[str] = []
    names: dict[str, str] = {}
    for launch in run.launches.select(["ranks"]).to_pylist():
        for rank in launch["ranks"] or []:
            if rank["host"]:
                hosts.append(rank["host"])
            if rank["device_name"]:
                names[f"{rank['host']}/{rank['device_uuid'] or rank['device_ordinal']}"] = rank["device_name"]
    where = (
        ", ".join(list(dict.fromkeys(hosts))[:4])
        or _text_of(run.info.get("machine"), "host")
        or run.path.resolve().name
    )
    kinds = [f"{list(names.values()).count(name)} x {name}" for name in dict.fromkeys(names.values())]
    return " · ".join(["Linkgauge", where, *kinds[:3]])


def _text_of(mapping: object, name: str) -> str:
    value = mapping.get(name) if isinstance(mapping, dict) else None
    return str(value) if isinstance(value, str | int | float) else ""


def _head(page: Page, run: Run, results: Results, title: str) -> None:
    origin = run.info.get("origin")
    page.html(f"<header><h1>{escape(title)}</h1>")
    when = " to ".join(filter(None, (_text_of(run.info, "start"), _text_of(run.info, "end"))))
    page.html(f'<p class="dim">{escape(when)}</p>')
    if origin:
        said = origin if isinstance(origin, str) else json.dumps(origin)[:400]
        page.html(f"<p><strong>Imported, not measured by Linkgauge:</strong> {escape(said)}</p>")
    page.html(f'<p class="counts">{escape(counts_line(results).plain)}</p></header><nav><div>')
    sections = {"answer": "Answer", "use": "What to use", "patterns": "Patterns", "pairs": "Pairs", "spread": "Spread"}
    for anchor, name in (sections | {"cases": "All cases", "skipped": "Skipped", "machine": "Machine"}).items():
        page.html(f'<a href="#{anchor}">{name}</a>')
    page.html("</div></nav>")


def _static_table(page: Page, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    head = "".join(f'<th class="{"" if words else "n"}">{escape(name)}</th>' for name, words in columns)
    page.html(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>')
    for row in rows:
        cells = zip(columns, row, strict=True)
        page.html("<tr>" + "".join(f'<td class="{"" if w else "n"}">{escape(v)}</td>' for (_, w), v in cells) + "</tr>")
    page.html("</tbody></table></div>")


def _answer(page: Page, results: Results, ceilings: Ceilings, unit: str) -> None:
    page.heading(2, "What this machine can do", "answer")
    rows = []
    bounded = False
    for answer in answers(results, ceilings):
        wide = answer.widest
        share = ""
        if wide is not None and answer.bound is not None and answer.bound.goodput_bytes_per_s:
            bounded = True
            limit = rate_text(answer.bound.goodput_bytes_per_s, unit)
            part = digits(100 * wide["goodput_bytes_per_s"] / answer.bound.goodput_bytes_per_s)
            share = f"{part} % of {limit} ({answer.bound.rule})"
        rows.append(
            [
                answer.title,
                time_text(answer.fastest["latency_ns"]),
                f"{results.label(answer.fastest)}, {size_text(answer.fastest['size'])}",
                rate_text(wide["goodput_bytes_per_s"], unit) if wide else "",
                f"{results.label(wide)}, {size_text(wide['size'])}" if wide else "",
                share,
            ]
        )
    columns = [("task", True), ("lowest time", False), ("by", True), (f"highest goodput, {unit}", False), ("by", True)]
    if rows:
        keep = 6 if bounded else 5
        _static_table(page, [*columns, ("share of the least bound", True)][:keep], [row[:keep] for row in rows])
        page.note(
            "Times: medians at the smallest size, of a ping-pong half the round trip. Bidirectional: both ways' sum."
        )
    else:
        page.note("No case ended with figures.")
    if ceilings.problem:
        page.note(f"No ceilings: {ceilings.problem}")
    elif ceilings.system is None:
        page.note("No ceilings: the run does not say on what system it was measured.")


def _findings(page: Page, findings: Sequence[FindingLike]) -> None:
    if not findings:
        return
    page.heading(2, "What is odd, and what to do", "findings")
    told = [finding for finding in findings if finding.severity != "note"]
    _told(page, told)
    notes = [finding for finding in findings if finding.severity == "note"]
    if notes:
        opened = "" if told else " open"
        page.html(f"<details{opened}><summary>{escape(count_text(len(notes), 'note'))}</summary>")
        _told(page, notes)
        page.html("</details>")


def _told(page: Page, findings: Sequence[FindingLike]) -> None:
    """One card a rule and severity: its first finding in full, others of the kind folded below."""
    for first, *others in by_kind(findings):
        page.html(f'<div class="finding {escape(first.severity)}"><strong>{escape(first.sentence)}</strong>')
        page.html(f"<p>{escape(first.remedy)}</p>" if first.remedy else "")
        page.html(_evidence(first))
        if others:
            page.html(f"<details><summary>{len(others)} more of this kind</summary>")
            for finding in others:
                page.html(f"<p>{escape(finding.sentence)}</p>{_evidence(finding)}")
            page.html("</details>")
        page.html("</div>")


def _evidence(finding: FindingLike) -> str:
    texts = [item if isinstance(item, str) else getattr(item, "text", "") for item in finding.evidence]
    items = "".join(f"<li>{escape(text)}</li>" for text in texts if text)
    sure = escape(digits(100 * finding.confidence))
    return f"<details><summary>evidence ({sure} % sure)</summary><ul>{items}</ul></details>"


def _wrong(page: Page, results: Results) -> None:
    wrong = [row for row in results.others if row["status"] != "skipped"]
    if wrong:
        page.heading(2, "Cases that did not end well", "wrong")
        rows = [(row["status"], case_text(row), row["launch"], row["reason"] or "") for row in wrong]
        page.table([("status", True), ("case", True), ("launch", False), ("reason", True)], rows)


def _uses(page: Page, results: Results) -> None:
    page.heading(2, "What to use", "use")
    rows = []
    for first, all_rows in results.panels:
        if len({results.label(row) for row in all_rows}) < 2:
            continue
        for place, use in enumerate(best_ranges(results, all_rows)):
            margin = _margin_text(use.margin)
            rows.append([results.title(first) if place == 0 else "", use.sizes, " or ".join(use.labels), margin])
    if rows:
        _static_table(page, [("task", True), ("sizes", True), ("best", True), ("margin", True)], rows)
        page.note("By the median time at the sizes measured; “or” where the 95 % intervals of the medians overlap.")
    else:
        page.note("No task was measured by more than one mechanism.")


def _chosen(page: Page, results: Results) -> None:
    rows = []
    for first, task in results.panels:
        for place, known in enumerate(chosen_ranges(results, task)):
            rows.append([results.title(first) if place == 0 else "", *known])
    if rows:
        page.heading(2, "What the library chose", "chosen")
        _static_table(page, [("task", True), ("library", True), ("sizes", True), ("choice", True)], rows)
        page.note("As its log says of the same cases, done once more in a launch whose times do not count.")


def _beside(page: Page, run: Run) -> None:
    rows = beside_rows(run)
    if rows:
        page.heading(2, "Beside other tools", "beside")
        _static_table(page, [(name, True) for name in BESIDE_COLUMNS], rows)
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
        _static_table(page, columns, rows)
    page.note(NODE_NOTE)


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
            _static_table(page, named, rows)
            page.note(note)


def _margin_text(margin: float | None) -> str:
    if margin is None or margin < 0.01:
        return ""
    if margin < 1:
        return f"next takes at least {digits(100 * margin)} % longer"
    return f"next takes at least {digits(1 + margin)} times as long"


def _cases(page: Page, results: Results, unit: str) -> None:
    page.heading(2, "All cases", "cases")
    scale = RATE_UNITS[unit]

    def number(name: str, factor: float) -> Callable[[Row], float | None]:
        return lambda row: charts.short(row[name], factor)

    numbers: list[tuple[str, Callable[[Row], float | None]]] = [
        ("median, µs", number("median_ns", 1e-3)),
        ("95 % from", number("interval_low_ns", 1e-3)),
        ("to", number("interval_high_ns", 1e-3)),
        ("q1", number("q1_ns", 1e-3)),
        ("q3", number("q3_ns", 1e-3)),
        ("p95", number("p95_ns", 1e-3)),
        ("p99", number("p99_ns", 1e-3)),
        (f"goodput, {unit}", number("goodput_bytes_per_s", 1 / scale)),
        ("bus bandwidth", number("bus_bandwidth_bytes_per_s", 1 / scale)),
        ("max over ranks, µs", number("max_rank_median_ns", 1e-3)),
    ]
    columns = [
        ("mechanism", True),
        ("task", True),
        ("devices", True),
        ("size, B", False),
        *((name, False) for name, _ in numbers),
    ]
    columns += [("samples", False), ("launches", False), ("marks", True), ("key", True)]
    rows = []
    for row in results.rows:
        line: list[Any] = [
            results.label(row),
            results.title(row, devices=False),
            " ".join(map(str, row["devices"])),
            row["size"],
        ]
        line += [value(row) for _, value in numbers]
        line += [row["samples"], row["repeats"], marks_text(row), row["case_key"]]
        rows.append(line)
    page.table(columns, rows)
    page.note("Times are of one iteration, of a ping-pong the whole round trip. p99 only where enough samples bear it.")


def marks_text(row: Row) -> str:
    """Return in words what a reader must know of a case: not converged, coarse, oversubscribed, not verified."""
    words = {
        "converged": (False, "not converged"),
        "coarse": (True, "coarse"),
        "oversubscribed": (True, "oversubscribed"),
    }
    words["verified"] = (False, "not verified")
    return ", ".join(text for name, (value, text) in words.items() if row[name] is value)


def _skipped(page: Page, results: Results) -> None:
    page.heading(2, "Skipped", "skipped")
    skipped = [row for row in results.others if row["status"] == "skipped"]
    if not skipped:
        page.note("Nothing was skipped.")
        return
    rows = [
        (
            row["transport"],
            row["pattern"],
            row["size"],
            devices_text(row["devices"], row["pattern"]),
            row["reason"] or "",
        )
        for row in skipped
    ]
    page.table([("transport", True), ("pattern", True), ("size, B", False), ("devices", True), ("reason", True)], rows)


def _machine(page: Page, run: Run) -> None:
    page.heading(2, "Machine and settings", "machine")
    for section in ("machine", "versions", "settings", "clock", "asked"):
        values = run.info.get(section)
        if isinstance(values, dict):
            page.heading(3, section)
            page.facts(
                (name, value if isinstance(value, str | int | float) else json.dumps(value)[:500])
                for name, value in values.items()
            )
    page.heading(3, "launches")
    columns = [
        ("launch", False),
        ("key", True),
        ("ranks", False),
        ("hosts", True),
        ("MPI", True),
        ("environment", True),
        ("versions", True),
    ]
    rows = []
    for launch in run.launches.to_pylist():
        ranks = launch["ranks"] or []
        hosts = ", ".join(dict.fromkeys(str(rank["host"]) for rank in ranks))
        rows.append(
            (
                launch["launch"],
                launch["launch_key"],
                len(ranks),
                hosts,
                launch["mpi"],
                launch["env"],
                launch["versions"],
            )
        )
    page.table(columns, rows)
    text = json.dumps(run.info, indent=1, default=str)
    more = "\n... cut here" if len(text) > _MAX_JSON_TEXT else ""
    page.html(f"<details><summary>run.json</summary><pre>{escape(text[:_MAX_JSON_TEXT] + more)}</pre></details>")


__all__ = ["FindingLike", "LinkgaugeError", "marks_text", "report_html", "write_report"]
