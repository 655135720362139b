"""The sections of the report that are charts: patterns, pairs, numbers of devices, shares, spread."""

from __future__ import annotations

from linkgauge.apps import catalogue
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.step_times import step_spans, step_times
from linkgauge.view import charts_apps, charts_at_once, charts_pairs, charts_scale, charts_size, charts_spread
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.noisy import noisiest
from linkgauge.view.page import Page
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text

_MOST_BARS = 60


def patterns(page: Page, results: Results, ceilings: Ceilings, unit: str) -> None:
    """Add each task over sizes, and its spread at a chosen size."""
    page.heading(2, "Patterns", "patterns")
    page.note(
        "Lines are medians, bands the quartiles, dashed lines ceilings by the named rule. Click a name to bring it out."
    )
    for first, rows in results.panels:
        title = results.title(first)
        name = title.replace(" · ", "-").replace(" ", "_")
        page.heading(3, title)
        page.html('<div class="charts">')
        sizes = {row["size"] for row in rows}
        if len(sizes) > 1:
            page.chart(
                charts_size.latency_over_size(results, rows, unit, ceilings),
                "time over size",
                f"{name}-time",
                height=300,
            )
            if any(row["goodput_bytes_per_s"] is not None for row in rows):
                chart = charts_size.goodput_over_size(results, rows, unit, ceilings)
                page.chart(chart, "goodput over size", f"{name}-goodput", height=300)
            if len({row["size"] for row in rows if row["size"] <= charts_size.SMALL_BYTES}) > 1:
                small = charts_size.small_sizes(results, rows, unit)
                page.chart(small, "small sizes, on a straight axis from zero", f"{name}-small", height=300)
        box = charts_spread.boxes(results, rows, unit, None if len(sizes) > 1 else sizes.pop())
        caption = "spread: quartiles, 5th to 95th percentile, notch: 95 % interval of the median, diamond: mean"
        page.chart(
            box, caption, f"{name}-spread", height=280, max_width=160 + 130 * len({results.label(row) for row in rows})
        )
        page.html("</div>")


def applications(page: Page, results: Results) -> None:
    """Add where applications' time goes, how it changes over ranks, and an iteration of each, rank by rank."""
    rows = charts_apps.measured(results.rows)
    if not rows:
        return
    page.heading(2, "Applications", "applications")
    quickest: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (-len(row["devices"]), row["median_ns"])):
        quickest.setdefault(charts_apps.name_of(row), row)
    shown = rows if len(rows) <= _MOST_BARS else list(quickest.values())
    kinds = charts_apps.kinds_of_steps(results, shown, step_times(results.run))
    if kinds is not None:
        whose = "each case" if shown is rows else "the quickest mechanism of each"
        page.chart(kinds, f"time of the busiest rank by kind of step, {whose}", "kinds", max_width=900)
    several = [row for row in rows if len({len(r["devices"]) for r in rows if charts_apps.alike(r, row)}) > 1]
    spans = step_spans(results.run)
    page.html('<div class="charts">')
    for name, row in sorted(quickest.items()):
        own = [one for one in several if charts_apps.alike(one, row)]
        if own:
            page.chart(charts_apps.over_ranks(results, own), f"{name}: an iteration over ranks", f"{name}-scaling")
        told = spans.get(charts_apps.identity_of(row))
        if told:
            which = f"{catalogue.label(row['app'])} by {charts_apps.way_of(results, row)}"
            caption = f"{which}: the last iteration that was checked"
            page.chart(charts_apps.ranks_over_time(results, row, told), caption, f"{name}-ranks")
    page.html("</div>")


def pairs(page: Page, results: Results, ceilings: Ceilings, unit: str) -> None:
    """Add the matrices of pairs, and the devices with what was measured between them."""
    page.heading(2, "Pairs of devices", "pairs")
    families: dict[tuple[str, str], list[tuple[Row, list[Row]]]] = {}
    for first, rows in results.matrices:
        families.setdefault((results.title(first, devices=False), results.label(first)), []).append((first, rows))
    if not families:
        page.note("No pattern was measured on three or more pairs.")
    for (title, label), group in families.items():
        group.sort(key=lambda pair: pair[0]["size"])
        page.heading(3, f"{title} · {label}")
        page.html('<div class="charts">')
        small, large = group[0], group[-1]
        count = len({device for row in large[1] for device in row["devices"]})
        width = 70 + charts_pairs.matrix_width(count)
        shown = [("latency", small)] if len(group) > 1 or small[0]["size"] < 1 << 16 else []
        if large[0]["goodput_bytes_per_s"] is not None and (len(group) > 1 or not shown):
            shown.append(("goodput", large))
            if any(ceilings.least_bound(row) for row in large[1]):
                shown.append(("share", large))
        for quantity, (first, rows) in shown:
            chart = charts_pairs.pair_matrix(results, rows, unit, quantity, ceilings)
            page.chart(
                chart, f"{quantity}, {size_text(first['size'])}", f"{first['pattern']}-{quantity}", max_width=width
            )
        if any(quantity == "goodput" for quantity, _ in shown) and count <= 16:
            chart = charts_pairs.topology(large[1], unit, ceilings)
            page.chart(
                chart,
                f"goodput of each pair, {unit}, {size_text(large[0]['size'])}",
                f"{large[0]['pattern']}-links",
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
        width = 70 + charts_pairs.matrix_width(len({device for row in rows for device in row["devices"]}))
        caption = f"{results.label(first)} {first['pattern']}, {size_text(first['size'])}; {charts_at_once.WORDS[kind]}"
        page.chart(chart, caption, f"{first['pattern']}-{kind}-{first['transport']}", max_width=max(width, 260))
    page.html("</div>")


def over_devices(page: Page, results: Results, unit: str) -> None:
    """Add collectives over the number of devices, where there are several."""
    patterns: dict[str, list[Row]] = {}
    for _, rows in results.panels:
        if PATTERNS[rows[0]["pattern"]].collective:
            patterns.setdefault(rows[0]["pattern"], []).extend(rows)
    wide = {name: rows for name, rows in patterns.items() if len({row["ranks"] for row in rows}) > 1}
    if not wide:
        return
    page.heading(2, "Over the number of devices", "devices")
    for name, rows in wide.items():
        counts = {row["ranks"] for row in rows}
        common = [
            s
            for s in {row["size_asked"] for row in rows}
            if {r["ranks"] for r in rows if r["size_asked"] == s} == counts
        ]
        sizes = sorted(common or {row["size_asked"] for row in rows})
        page.heading(3, name)
        page.html('<div class="charts">')
        for size in dict.fromkeys((sizes[0], sizes[-1])):
            chart = charts_scale.over_devices(results, rows, unit, size)
            page.chart(chart, f"goodput, {size_text(size)}", f"{name}-devices-{size}", height=260)
        labels = sorted(
            {results.label(row) for row in rows}, key=lambda label: -sum(results.label(r) == label for r in rows)
        )
        if len(labels) > 1:
            chart = charts_scale.ratio_map(results, rows, labels[0], labels[1])
            page.chart(chart, f"{labels[0]} against {labels[1]}", f"{name}-ratio")
        page.html("</div>")


def shares(page: Page, results: Results, ceilings: Ceilings, unit: str) -> None:
    """Add the shares of the least bound, where the system is known."""
    chart = charts_scale.share_of_peak(results, ceilings, unit)
    if chart is not None:
        page.heading(2, "Shares of what the links allow", "shares")
        page.chart(chart, "best goodput of each mechanism over the least bound", "share-of-peak", max_width=900)


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
    named = [(one.name, one.row["transport"], one.series[one.cut :]) for one in chosen]
    page.chart(charts_spread.cumulative(named), "cumulative distribution, warm-up left out", "distribution", height=260)
    page.html("</div>")
