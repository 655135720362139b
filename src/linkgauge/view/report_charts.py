"""The sections of the report that are pictures: first screen, patterns, pairs, numbers of devices, shares, spread."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.stats.step_times import step_spans, step_times
from linkgauge.view import applications, charts_at_once, charts_curves, charts_pairs, charts_spread
from linkgauge.view.answer import FirstLook, TaskAnswer, first_answers
from linkgauge.view.charts_spread import noisiest
from linkgauge.view.limits import Limits
from linkgauge.view.node_picture import STEPS, color_class, node_svg
from linkgauge.view.node_words import summary_text, texts
from linkgauge.view.page import Page, escape
from linkgauge.view.reached import FullPairs
from linkgauge.view.results import Results
from linkgauge.view.task_table import TASK_NOTE, apart_lines, task_columns, task_words
from linkgauge.view.units import count_text, rate_text, size_text

_MOST_CELLS = 16
_MOST_FIGURES = 8


def first_screen(page: Page, look: FirstLook, unit: str) -> None:
    """Add the table of tasks, then the picture of the node beside the pair matrix."""
    _tasks(page, look, unit)
    page.html('<section class="first">')
    _pictures(page, look, unit)
    page.html("</section>")


def _pictures(page: Page, look: FirstLook, unit: str) -> None:
    node, system = look.node, look.limits.system
    drawn = node is not None and any(one.rate is not None for one in node.told)
    pairs = [one for one in (look.one_way, look.both_ways) if one is not None and len(one.rows) > 1]
    if node is not None and system is not None and drawn:
        page.html(f'<figure class="picture"><figcaption>{escape(f"What each link reached, {unit}")}</figcaption>')
        page.html(f'<div class="scroll">{node_svg(system, node, unit)}</div>')
        page.html(f'<p class="hint">{escape(summary_text(node))}</p>')
        rows = "".join(f"<li>{escape(name)}: {escape(said)}</li>" for name, said in texts(node, unit))
        page.html(f"<details><summary>in words</summary><ul>{rows}</ul></details></figure>")
    if pairs:
        page.html('<div class="matrices">')
        for one in pairs:
            _pair_matrix(page, one, unit)
        _legend(page)
        page.html("</div>")
    elif drawn:
        _legend(page)


def _pair_matrix(page: Page, pairs: FullPairs, unit: str) -> None:
    """Add one matrix of goodput: a row a source; colored by shares of what its way carries."""
    ways = "both ways, sum" if PATTERNS[pairs.pattern].both_ways else "one way"
    caption = f"Pairs {ways}, {unit}"
    page.html(f'<figure class="matrix"><figcaption>{escape(caption)}</figcaption><div class="scroll">')
    if len(pairs.devices) > _MOST_CELLS:
        _ranges(page, pairs, unit)
    else:
        _matrix_cells(page, pairs, unit)
    page.html("</div>")
    limits = {round(limit) for limit in pairs.limits.values()}
    if not pairs.shares:
        color = "No color: what the links carry is not known."
    elif not pairs.filled:
        color = f"No color: this fills no link, {100 * max(pairs.shares):.0f} % at most."
    elif len(limits) == 1:
        color = f"Color: share of {rate_text(limits.pop(), unit)}, what the links carry."
    else:
        color = "Color: share of what the narrowest link on the way carries."
    page.note(f"{pairs.label}, {size_text(pairs.size)}. {color}")
    page.html("</figure>")


def _matrix_cells(page: Page, pairs: FullPairs, unit: str) -> None:
    outside = {pair for own in pairs.classes for pair in own.apart}
    figures = len(pairs.devices) <= _MOST_FIGURES
    size = "" if figures else " small"
    head = "".join(f'<th scope="col">{device}</th>' for device in pairs.devices)
    page.html(f'<table class="heat{size}"><thead><tr><th>from \\ to</th>{head}</tr></thead><tbody>')
    for a in pairs.devices:
        line = [f'<tr><th scope="row">{a}</th>']
        for b in pairs.devices:
            if (a, b) not in pairs.rows:
                line.append("<td></td>")
                continue
            share = pairs.share((a, b))
            rate = rate_text(pairs.rows[a, b].goodput, unit)
            told = f"{a} to {b}: {rate} {unit}" + ("" if share is None else f", {100 * share:.0f} %")
            odd = " odd" if (a, b) in outside else ""
            color = color_class(share if pairs.filled else None)
            text = rate if figures else ("!" if odd else "")
            line.append(f'<td class="{color}{odd}" title="{escape(told)}">{escape(text)}</td>')
        page.html("".join([*line, "</tr>"]))
    page.html("</tbody></table>")


def _ranges(page: Page, pairs: FullPairs, unit: str) -> None:
    """Add a line for each class of pairs, where a matrix would have too many cells to look at."""
    page.html("<table><thead><tr><th>alike pairs</th><th>from</th><th>to</th><th>apart</th></tr></thead><tbody>")
    for own in pairs.classes:
        a, b = own.pairs[0]
        apart = ", ".join(f"{x} to {y}" for x, y in own.apart[:6])
        cells = (f"{len(own.pairs)} as {a} to {b}", rate_text(own.low, unit), rate_text(own.high, unit), apart)
        page.html("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    page.html("</tbody></table>")


def _legend(page: Page) -> None:
    ends = [0.0, *STEPS, 1.0]
    steps = "".join(
        f'<span><i class="{color_class(low)}"></i>{100 * low:.0f} to {100 * high:.0f} %</span>'
        for low, high in itertools.pairwise(ends)
    )
    page.html(f'<p class="legend">Share of the rate: {steps}<span><i class="su"></i>unknown</span></p>')


def _tasks(page: Page, look: FirstLook, unit: str) -> None:
    page.heading(2, "What this machine can do", "answer")
    shown, more = first_answers(look.answers)
    if not shown:
        page.note("No case ended with figures.")
    else:
        _task_tables(page, shown, unit)
        for line in apart_lines(look.answers, unit):
            page.html(f'<p class="apart">{escape(line)}</p>')
        if more:
            names = ", ".join(dict.fromkeys(one.fastest.row.pattern for one in more))
            page.html(f"<details><summary>{len(more)} more: {escape(names)}</summary>")
            _task_tables(page, more, unit)
            page.html("</details>")
        page.note(TASK_NOTE)
    if look.limits.problem:
        page.note(f"No limits: {look.limits.problem}")
    elif look.limits.system is None:
        page.note("No limits: the run does not say on what system it was measured.")
    for note in look.limits.notes:
        page.note(note)


def _task_tables(page: Page, tasks: Sequence[TaskAnswer], unit: str) -> None:
    for collective in (False, True):
        chosen = [task for task in tasks if bool(task.algorithm_factor) == collective]
        if not chosen:
            continue
        columns = [(heading, left) for heading, left, _ in task_columns(collective, unit)]
        rows = []
        for task in chosen:
            words = task_words(task, unit)
            rule = f" ({task.bound.rule})" if words.share and task.bound is not None else ""
            rows.append([cell(words) for _, _, cell in task_columns(collective, unit)])
            rows[-1][-1] += rule
        shown = [place for place in range(len(columns)) if any(row[place] for row in rows)]
        cells = [[row[place] for place in shown] for row in rows]
        page.static_table(
            [columns[place] for place in shown], cells, f"tasks {'collectives' if collective else 'paths'}"
        )


_MOST_BARS = 60


def patterns(page: Page, results: Results, limits: Limits, unit: str) -> None:
    """Add each task over sizes, and its spread at a chosen size; what was measured at one size alone is folded."""
    page.heading(2, "Curves", "patterns")
    page.note(
        "Lines are medians, bands quartiles, the dashed line the limit. Click a name to highlight it, point at a dot"
        " for its numbers and its share of the limit. Spread: a box shows the quartiles, its whiskers the 5th and 95th"
        " percentile, its notch the median's 95 % interval, the diamond the mean."
    )
    alone = []
    for first, rows in results.panels:
        if _curved(results, rows):
            _panel(page, results, limits, unit, first, rows)
        elif _comparable(results, rows):
            alone.append((first, rows))
    if alone:
        with page.folded(f"{count_text(len(alone), 'more task')} at one size a mechanism"):
            page.html('<div class="charts">')
            for first, rows in alone:
                sizes = {row.size for row in rows}
                size = f", {size_text(min(sizes))}" if len(sizes) == 1 else ""
                _boxes(page, results, unit, _comparable(results, rows), f"{results.title(first)}{size}")
            page.html("</div>")


def _panel(page: Page, results: Results, limits: Limits, unit: str, first: Measured, rows: list[Measured]) -> None:
    title = results.title(first)
    name = _file_name(title)
    page.heading(3, title)
    page.html('<div class="charts">')
    if any(row.goodput_bytes_per_s is not None for row in rows):
        what = "busbw" if charts_curves.has_busbw(first) else "goodput"
        chart = charts_curves.rate_over_size(results, rows, unit, limits)
        page.chart(chart, f"{what} over size", f"{name}-{what}", height=300)
    chart = charts_curves.latency_over_size(results, rows, unit, limits)
    page.chart(chart, "time over size", f"{name}-time", height=300)
    if len({row.size for row in rows if row.size <= charts_curves.SMALL_BYTES}) > 1:
        small = charts_curves.small_sizes(results, rows, unit)
        page.chart(small, "small sizes, on a straight axis from zero", f"{name}-small", height=300)
    if several := _comparable(results, rows):
        _boxes(page, results, unit, several, "spread")
    page.html("</div>")


def _curved(results: Results, rows: list[Measured]) -> bool:
    """Whether a mechanism was measured at several sizes: else each would be a single point."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(results.label(row), set()).add(row.size)
    return any(len(of_one) > 1 for of_one in sizes.values())


def _file_name(title: str) -> str:
    return title.replace(" · ", "-").replace(" ", "_")


def _comparable(results: Results, rows: list[Measured]) -> list[Measured]:
    """Return the rows of sizes at which two mechanisms or more have samples to spread: one box compares nothing."""
    able = [row for row in rows if row.samples / row.repeats > 1]
    named = {size: {results.label(row) for row in able if row.size == size} for size in {r.size for r in able}}
    return [row for row in able if len(named[row.size]) > 1]


def _boxes(page: Page, results: Results, unit: str, rows: list[Measured], what: str) -> None:
    sizes = {row.size for row in rows}
    chart = charts_spread.boxes(results, rows, unit, None if len(sizes) > 1 else min(sizes))
    width = 160 + 130 * len({results.label(row) for row in rows})
    page.chart(chart, what, f"{_file_name(results.title(rows[0]))}-spread", height=280, max_width=width)


def application_charts(page: Page, results: Results) -> None:
    """Add where applications' time goes, how it changes over ranks, and an iteration of each, rank by rank."""
    rows = applications.measured(results.rows)
    if not rows:
        return
    page.heading(2, "Applications", "applications")
    quickest: dict[str, Measured] = {}
    for row in sorted(rows, key=lambda row: (-row.ranks, row.median_ns)):
        quickest.setdefault(applications.name_of(row), row)
    shown = rows if len(rows) <= _MOST_BARS else list(quickest.values())
    kinds = applications.kinds_of_steps(results, shown, step_times(results.run))
    if kinds is not None:
        whose = "each case" if shown is rows else "the quickest mechanism of each"
        page.chart(kinds, f"time of the busiest rank by kind of step, {whose}", "kinds", max_width=900)
    several = [row for row in rows if len({r.ranks for r in rows if applications.alike(r, row)}) > 1]
    spans = step_spans(results.run)
    page.html('<div class="charts">')
    for name, row in sorted(quickest.items()):
        own = [one for one in several if applications.alike(one, row)]
        if own:
            page.chart(applications.over_ranks(results, own), f"{name}: an iteration over ranks", f"{name}-scaling")
        told = spans.get(row.identity)
        if told:
            which = f"{row.case.app.label} by {applications.way_of(results, row)}"
            caption = f"{which}: the last iteration that was checked"
            page.chart(applications.ranks_over_time(results, row, told), caption, f"{name}-ranks")
    page.html("</div>")


def pairs(page: Page, results: Results, limits: Limits, unit: str) -> None:
    """Add the matrices of pairs, and the devices with what was measured between them."""
    page.heading(2, "Pairs of devices", "pairs")
    families = results.matrix_families()
    if not families:
        page.note("No pattern was measured on three or more pairs.")
    for name, group in families.items():
        page.heading(3, name)
        page.html('<div class="charts">')
        small, large = group[0], group[-1]
        count = len({device for row in large[1] for device in row.devices})
        width = 70 + charts_pairs.matrix_width(count)
        shown = [("latency", small)] if len(group) > 1 or small[0].size < 1 << 16 else []
        if large[0].goodput_bytes_per_s is not None and (len(group) > 1 or not shown):
            shown.append(("goodput", large))
            if any(limits.limit_of(row) for row in large[1]):
                shown.append(("share", large))
        for quantity, (first, rows) in shown:
            chart = charts_pairs.pair_matrix(results, rows, unit, quantity, limits)
            page.chart(chart, f"{quantity}, {size_text(first.size)}", f"{first.pattern}-{quantity}", max_width=width)
        if any(quantity == "goodput" for quantity, _ in shown) and count <= 16:
            chart = charts_pairs.topology(large[1], unit, limits)
            page.chart(
                chart,
                f"goodput of each pair, {unit}, {size_text(large[0].size)}",
                f"{large[0].pattern}-links",
                max_width=400,
                height=340,  # about as high as wide, so that a circle is one
            )
        page.html("</div>")


def all_at_once(page: Page, results: Results, unit: str) -> None:
    """Add every pair while all others are busy, by rounds and by shifts side by side."""
    sets = charts_at_once.all_at_once(results)
    if not sets:
        return
    page.heading(2, "Pairs, all at once", "at-once")
    page.html('<div class="charts">')
    for kind, rows in sets:
        first = rows[0]
        chart = charts_pairs.pair_matrix(results, rows, unit)
        width = 70 + charts_pairs.matrix_width(len({device for row in rows for device in row.devices}))
        caption = f"{results.label(first)} {first.pattern}, {size_text(first.size)}; {charts_at_once.WORDS[kind]}"
        page.chart(chart, caption, f"{first.pattern}-{kind}-{first.transport}", max_width=max(width, 260))
    page.html("</div>")


def over_devices(page: Page, results: Results, unit: str) -> None:
    """Add collectives over the number of devices, where there are several."""
    patterns: dict[str, list[Measured]] = {}
    for _, rows in results.panels:
        if PATTERNS[rows[0].pattern].collective:
            patterns.setdefault(rows[0].pattern, []).extend(rows)
    wide = {name: rows for name, rows in patterns.items() if len({row.ranks for row in rows}) > 1}
    if not wide:
        return
    page.heading(2, "Over the number of devices", "devices")
    for name, rows in wide.items():
        counts = {row.ranks for row in rows}
        common = [
            s
            for s in {row.case.size_requested for row in rows}
            if {r.ranks for r in rows if r.case.size_requested == s} == counts
        ]
        sizes = sorted(common or {row.case.size_requested for row in rows})
        page.heading(3, name)
        page.html('<div class="charts">')
        for size in dict.fromkeys((sizes[0], sizes[-1])):
            chart = charts_curves.over_devices(results, rows, unit, size)
            page.chart(chart, f"goodput, {size_text(size)}", f"{name}-devices-{size}", height=260)
        labels = [label for label, _ in Counter(results.label(row) for row in rows).most_common()]
        if len(labels) > 1:
            chart = charts_curves.ratio_map(results, rows, labels[0], labels[1])
            page.chart(chart, f"{labels[0]} against {labels[1]}", f"{name}-ratio")
        page.html("</div>")


def shares(page: Page, results: Results, limits: Limits, unit: str) -> None:
    """Add the shares of the least bound, where the system is known."""
    chart = charts_curves.share_of_peak(results, limits, unit)
    if chart is not None:
        page.heading(2, "Peaks as % of limit", "shares")
        page.chart(chart, "peak goodput of each mechanism", "share-of-peak", max_width=900)


def spread(page: Page, results: Results) -> None:
    """Add the samples of the cases that spread most."""
    page.heading(2, "Spread", "spread")
    chosen = noisiest(results)
    if not chosen:
        page.note("No case has enough samples to show its spread.")
        return
    page.note("The cases whose times spread most, one a task: every sample in order, and how they are distributed.")
    page.html('<div class="charts">')
    for one in chosen:
        page.chart(charts_spread.time_line(one.row, one.series, one.cut), one.name, "time-line", height=240)
    named = [(one.name, one.row.transport, one.series[one.cut :]) for one in chosen]
    page.chart(charts_spread.cumulative(named), "cumulative distribution, warm-up left out", "distribution", height=260)
    page.html("</div>")
