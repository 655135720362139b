"""Tables for the terminal. Each function returns Rich renderables that fit the width they are given."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from linkgauge.expect.rules import KINDS
from linkgauge.model.background import beside_text
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured, Result
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.curves import left_out_of
from linkgauge.view.alike import Kinds, Members, Rate, together
from linkgauge.view.applications import application_tables
from linkgauge.view.by_turns import interference_lines, rounds_parts
from linkgauge.view.derived import chosen_ranges, derived_tables, moved_ranges, node_tables, overlap_tables
from linkgauge.view.judged import by_kind
from linkgauge.view.limits import NONE, Limits
from linkgauge.view.results import Results, best_of, devices_text, pair_of
from linkgauge.view.screen import Table
from linkgauge.view.units import count_text, digits, range_text, rate_text, size_text

BEST, NEAR = "*", "≈"
_MANY_MESSAGES = 16
_SMALL_MESSAGE = 8 << 10


def panel_tables(results: Results, width: int, unit: str, limits: Limits) -> Iterator[RenderableType]:
    """Yield for each task the time and the rates of every mechanism at every size, the best one marked.

    `*` marks the best of a size, `≈` those whose interval overlaps with the best one's. Below a goodput stand the
    limits of its largest size.
    """
    kinds = Kinds(results.run, limits.system)
    for panels in _alike_panels(results, kinds):
        first, rows = panels[0]
        members = Members([row for _, own in panels for row in own], results.label, results.kinds.noun)
        kind = PATTERNS[first.pattern].latency_words
        yield Text(_panel_title(results, panels), style="bold")
        shown = members.middle
        yield from _split(results, shown, width, f"{kind}, median", members.times)
        if any(row.goodput_bytes_per_s is not None for row in rows):
            for name, rate in _rate_columns(first.pattern):
                text = functools.partial(members.rates, unit=unit, rate=rate)
                yield from _split(results, shown, width, f"{name}, {unit}", text)
            yield from _limits_line(rows, unit, limits)
        if counted := [row for row in shown if _counts_messages(row)]:
            yield from _split(results, counted, width, "millions of messages a second", members.message_rates)
        yield from (Text(f"differs from its siblings: {line}", style="bold") for line in members.odd)
        how = (("chosen", chosen_ranges(results, rows)), ("moved", moved_ranges(results, rows)))
        if lines := [f"{word} by {label}, {sizes}: {text}" for word, known in how for label, sizes, text in known]:
            yield Text("\n".join(lines), style="dim")


def _rate_columns(pattern: str) -> list[tuple[str, Rate]]:
    """Return the rates that a pattern's tables show."""
    if PATTERNS[pattern].algorithm_factor is not None:
        return [("algbw", lambda row: row.algbw_bytes_per_s), ("busbw", lambda row: row.busbw_bytes_per_s)]
    both = " (sum of both ways)" if PATTERNS[pattern].both_ways else ""
    return [(f"goodput{both}", lambda row: row.goodput_bytes_per_s)]


def _counts_messages(row: Measured) -> bool:
    """Whether a row says how many messages a second there can be: of many in flight, whose bytes are few."""
    known = PATTERNS[row.pattern].counts_messages and row.messages_per_s is not None
    return known and row.case.window >= _MANY_MESSAGES and row.size <= _SMALL_MESSAGE


def _alike_panels(results: Results, kinds: Kinds) -> list[list[tuple[Measured, list[Measured]]]]:
    """Return the panels, those of single devices of one class together, where the first of them stands."""
    groups = grouped(
        ((results.title(first, devices=False), kinds.key(first)) if first.ranks == 1 else id(first), (first, rows))
        for first, rows in results.device_panels
    )
    return list(groups.values())


def _panel_title(results: Results, panels: list[tuple[Measured, list[Measured]]]) -> str:
    first = panels[0][0]
    if len(panels) == 1:
        return results.title(first)
    where = together((one.devices for one, _ in panels), noun=results.kinds.noun)
    return results.title(first, devices_words=where)


def _limits_line(rows: list[Measured], unit: str, limits: Limits) -> Iterator[Text]:
    """Yield the limits of the largest size by rule and kind, the surest first; of several mechanisms from to.

    Of nccl-tests' collectives they are in the terms of busbw.
    """
    values: dict[tuple[int, str, str], set[float]] = {}
    largest = max(row.size for row in rows)
    traits = PATTERNS[rows[0].pattern]
    for row in (row for row in rows if row.size == largest):
        factor = traits.shown_factor(row.case.group_ranks)
        least = limits.limit_of(row)
        for line in limits.of(row):
            if line.goodput_bytes_per_s and (not line.binds or line == least):
                place = (KINDS.index(line.kind), line.rule, line.kind)
                values.setdefault(place, set()).add(line.goodput_bytes_per_s * factor)
    words = [f"{rule} ({kind}) {range_text(rate_text(min(rates), unit), rate_text(max(rates), unit))}"
             for (_, rule, kind), rates in sorted(values.items())]  # fmt: skip
    if words:
        of = "limits" if traits.algorithm_factor is None else "busbw limits"
        yield Text(f"{of} at {size_text(largest)}, {unit}: {'; '.join(words)}", style="dim")


def _split(
    results: Results, rows: list[Measured], width: int, caption: str, text: Callable[[Measured], str]
) -> list[Group]:
    """Return one table, or several of fewer columns where the terminal is too narrow.

    A row is a size, or a mechanism where that takes fewer tables, as with one size of many mechanisms.
    """
    labels = sorted({results.label(row) for row in rows}, key=list(results.mechanisms.values()).index)
    sizes = sorted({row.size for row in rows})
    cells: dict[tuple[int, str], Text] = {}
    for size in sizes:
        of_size = [row for row in rows if row.size == size]
        best, near = best_of(of_size) if len(of_size) > 1 else (None, [])  # alone is no best
        for row in of_size:
            # Before the figure, so that figures with and without one stand below each other.
            mark = f"{BEST} " if row is best else f"{NEAR} " if any(row is one for one in near) else ""
            style = "bold green" if row is best else ""
            cells[size, results.label(row)] = Text(mark + text(row), style=style)
    missing = Text("-", style="dim")
    of_sizes = [[cells.get((size, label), missing) for label in labels] for size in sizes]
    of_labels = [list(column) for column in zip(*of_sizes, strict=True)]
    names = [size_text(size) for size in sizes]
    over_labels = list(_parts(max(4, *map(len, names)), _widths(labels, of_sizes), width))
    over_sizes = list(_parts(min(max(map(len, labels)), width // 2), _widths(names, of_labels), width))
    if len(over_labels) <= len(over_sizes):
        return [_grid(caption, "size", names, labels, of_sizes, part) for part in over_labels]
    return [_grid(caption, "mechanism", labels, names, of_labels, part) for part in over_sizes]


def _grid(
    caption: str, corner: str, lines: list[str], columns: list[str], cells: list[list[Text]], part: slice
) -> Group:
    """Return some columns of the cells, a line a size or a mechanism.

    Sizes are never folded. A mechanism's name wider than the terminal is, and never cut.
    """
    sizes = corner == "size"
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column(corner, justify="right" if sizes else "left", no_wrap=sizes, overflow="fold")
    for name in columns[part]:
        table.add_column(Text(name), justify="right", no_wrap=not sizes, overflow="fold")
    for line, row in zip(lines, cells, strict=True):
        table.add_row(Text(line), *row[part])
    return Group(Text(caption, style="dim"), table)


def _widths(names: list[str], cells: list[list[Text]]) -> list[int]:
    """Return the columns' widths: each one's name or widest cell."""
    return [max(len(name), *map(len, column)) for name, column in zip(names, zip(*cells, strict=True), strict=True)]


def _parts(first_width: int, widths: list[int], width: int) -> Iterator[slice]:
    """Yield the columns that fit into `width` beside a first one of `first_width`, part by part, at least one each."""
    start = 0
    while start < len(widths):
        end, used = start, first_width + 2
        while end < len(widths) and (end == start or used + widths[end] + 2 <= width):
            used += widths[end] + 2
            end += 1
        yield slice(start, end)
        start = end


def matrix_tables(results: Results, unit: str, limits: Limits) -> Iterator[RenderableType]:
    """Yield the pairs as matrices, a row a source: latency at the smallest size, goodput at the largest.

    Beside a goodput stands its share of the limit, where the run's system gives one.
    """

    def rate_and_share(row: Measured) -> str:
        share = limits.share_of(row)
        return rate_text(row.goodput_bytes_per_s, unit) + (f" {100 * share:.0f}" if share else "")

    for family, group in results.matrix_families().items():
        latency = (group[0], "latency, µs", lambda row: digits(row.latency_ns / 1e3))
        bounded = any(limits.limit_of(row) for row in group[-1][1])
        goodput = (group[-1], f"goodput, {unit}" + (" and % of limit" if bounded else ""), rate_and_share)
        shown = [latency, goodput] if len(group) > 1 else [goodput if group[0][0].size >= 1 << 16 else latency]
        for (first, rows), name, text in shown:
            yield _matrix(f"{family} · {size_text(first.size)} · {name}", rows, text)


def _matrix(title: str, rows: list[Measured], text: Callable[[Measured], str]) -> Group:
    devices = sorted({device for row in rows for device in row.devices})
    cells = {pair_of(row): text(row) for row in rows}
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("from \\ to", justify="right", no_wrap=True)
    for device in devices:
        table.add_column(str(device), justify="right", no_wrap=True)
    for source in devices:
        table.add_row(str(source), *(cells.get((source, target), "-") for target in devices))
    return Group(Text(title, style="bold"), table)


def status_tables(results: Results) -> Iterator[RenderableType]:
    """Yield what did not end well, case by case, and what was skipped, by reason."""
    wrong = [row for row in results.others if row.status != "skipped" and not row.out_of_time]
    if wrong:
        words = [f"{row.status}: {case_text(row, results)}: {row.reason or 'no reason was given'}" for row in wrong]
        yield Group(Text("failed", style="bold red"), *map(_indented, words))
    if cut := [row for row in results.others if row.out_of_time]:
        words = [f"{case_text(row, results)}: {row.reason}" for row in cut]
        yield Group(Text("not measured: a larger --max-time gives a case more time", style="bold"),
                    *map(_indented, words))  # fmt: skip
    skipped = [row for row in results.others if row.status == "skipped" and not left_out_of(row.evidence)]
    if skipped:
        words = [f"{count_text(count, 'case')} by {', '.join(map(results.shown, transports))}: {reason}"
                 for count, transports, reason in skip_reasons(skipped)]  # fmt: skip
        yield Group(Text("skipped", style="bold"), *map(_indented, words))


def skip_reasons(skipped: Sequence[Result]) -> list[tuple[int, list[str], str]]:
    """Return how many cases of which transports were skipped for which reason, the most frequent first.

    A reason that begins with its case's pattern is told once for all patterns that it holds of.
    """
    groups = grouped((_reason(row), row) for row in skipped)
    result = []
    for (of_pattern, reason), rows in groups.items():
        patterns = list(dict.fromkeys(row.pattern for row in rows))
        if of_pattern:
            verb = reason.replace(" needs ", " need ", 1) if len(patterns) > 1 else reason
            reason = f"{', '.join(patterns)}{verb}"
        result.append((len(rows), list(dict.fromkeys(row.transport for row in rows)), reason))
    return sorted(result, key=lambda item: -item[0])


def _reason(row: Result) -> tuple[bool, str]:
    """Return whether a row's reason begins with its pattern, and the reason without that."""
    reason = row.reason or "no reason was given"
    of_pattern = reason.startswith(f"{row.pattern} ")
    return of_pattern, reason[len(row.pattern) :] if of_pattern else reason


_LEFT_OUT = {
    "full": "beyond the size where goodput rises no more",
    "time": "whose operation would take too long",
    "memory": "too large for memory",
}


def left_out_text(results: Results) -> str:
    """Return how many sizes of curves were left out, and why; empty where none was."""
    counts = Counter(left_out_of(row.evidence) for row in results.others)
    del counts[""]
    if not counts:
        return ""
    parts = [f"{count} {_LEFT_OUT.get(why, why)}" for why, count in counts.most_common()]
    return f"{count_text(counts.total(), 'size')} of curves left out: {', '.join(parts)}"


def case_text(row: Result, results: Results) -> str:
    """Return a case in a few words: `nccl allreduce 1 MiB, 4 GPUs`; of one on an MPI library, of which."""
    library = row.library if TRANSPORTS[row.transport].by_mpi else ""
    parts = ", ".join(filter(None, (row.case.variant, library)))
    noun = results.kinds.noun
    name = results.shown(row.transport) + (f" ({parts})" if parts else "")
    if PATTERNS[row.pattern].scripted:
        return f"{name} {row.case.app.label}, {devices_text(row.devices, noun=noun)}"
    where = devices_text(row.devices, row.pattern, noun)
    pattern = " ".join(filter(None, (row.pattern, row.case.distribution)))
    return (
        f"{name} {pattern} {size_text(row.size)}, {where}{beside_text(row.case.background.text, results.shown_names)}"
    )


def counts_line(results: Results) -> Text:
    """Return how many cases ended how: `30 cases: 28 ok, 2 skipped`; sizes that curves left out are told apart."""
    left_out = left_out_text(results)
    counts = Counter(
        "not measured" if row.out_of_time else row.status for row in results.others if not left_out_of(row.evidence)
    )
    ok = len(results.rows)
    parts = [f"{ok} ok", *(f"{count} {status}" for status, count in sorted(counts.items()))]
    repeats = max((row.repeats for row in results.rows), default=1)
    more = f" (medians over {repeats} launches)"
    counted = f"{count_text(ok + sum(counts.values()), 'case')}: {', '.join(parts)}{more if repeats > 1 else ''}"
    parts = [counted, left_out, _unfinished(results)]
    return Text("; ".join(part for part in parts if part))


def _unfinished(results: Results) -> str:
    """Return what a run that did not reach its end lacks; empty where it did."""
    info = results.run.info
    if info.get("origin") or not info.get("start"):  # of another tool, or made by hand
        return ""
    how = f"linkgauge run --resume {results.run.path}"
    if not info.get("end"):
        return f"the run is not finished: {how}"
    return f"{count_text(info['left'], 'planned case')} not measured: {how}" if info.get("left") else ""


def findings_table(findings: Sequence[Any]) -> Group:
    """Return the findings, each with its fix and its first figures."""
    styles = {"disturbed": "bold yellow", "fault": "bold red", "loss": "bold yellow"}
    parts: list[RenderableType] = []
    notes = sum(finding.severity == "note" for finding in findings)
    for first, *others in by_kind([finding for finding in findings if finding.severity != "note"]):
        parts.append(Text(f"{first.severity}: {first.sentence}", style=styles.get(first.severity, "bold")))
        for item in list(first.evidence)[:3]:
            parts.append(_indented(f"Evidence: {getattr(item, 'text', str(item))}"))
        if first.fix:
            parts.append(_indented(f"Fix: {first.fix}"))
        if others:
            parts.append(_indented(f"{len(others)} more of this kind: linkgauge findings", style="dim"))
    if notes:
        noun = "more note" if parts else "note"
        parts.append(Text(f"{count_text(notes, noun)}: linkgauge findings --notes", style="dim"))
    return Group(*parts)


def _indented(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2), expand=False)


def derived(results: Results, width: int, unit: str) -> list[RenderableType]:
    """Return what `linkgauge show --derived` prints: the tables, or one line where there is no curve."""
    few = Text("no curve: fewer than 4 sizes of a case, and fewer than 3 numbers of blocks of a kernel, were measured")
    return list(derived_tables(results, width, unit)) or [few]


def everything(results: Results, width: int, unit: str, limits: Limits = NONE) -> Group:
    """Return all of `linkgauge show`; with `limits` each task's, and the shares of pairs."""
    parts: list[RenderableType] = []
    for part in (
        *panel_tables(results, width, unit, limits), *matrix_tables(results, unit, limits), *node_tables(results, unit),
        *interference_lines(results), *rounds_parts(results), *application_tables(results), *overlap_tables(results),
        *derived_tables(results, width, unit), *status_tables(results),
    ):  # fmt: skip
        parts += [part, Text("")]
    if results.rows:
        marks = f"{BEST} best of its size   {NEAR} equal to the best within the intervals   - not measured"
        parts.append(Text(marks, style="dim"))
    return Group(*parts, counts_line(results), *map(Text, observing_lines(results.run.info)))


def observing_lines(info: Mapping[str, Any]) -> list[str]:
    """Return what reading the devices beside the cases took of the launches' time, where the run has it."""
    known = (info.get("observing") or {}).values()
    seconds, whole = (sum(one.get(name, 0.0) for one in known) for name in ("seconds", "of_seconds"))
    return [f"Observing devices took {100 * seconds / whole:.2f} % of the launches' {whole:.1f} s."] if whole else []
