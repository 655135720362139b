"""`linkgauge plot`: the figures by name, each from a selection of a run's cases to one chart fit to print."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.result import Measured
from linkgauge.stats.step_times import step_spans, step_times
from linkgauge.view import (
    applications,
    charts,
    charts_at_once,
    charts_curves,
    charts_pairs,
    charts_spread,
)
from linkgauge.view.between import DISTANCES, most_pairs, pairs_by_mechanism
from linkgauge.view.charts import Chart
from linkgauge.view.charts_spread import series_of_rows
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results, machine_words
from linkgauge.view.units import RATE_UNITS, digits, size_text


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which cases a figure shows: empty fields choose all. `transports` also takes names of mechanisms."""

    pattern: str = ""
    size_bytes: int | None = None
    transports: tuple[str, ...] = ()
    case_key: str = ""
    devices: tuple[int, ...] = ()
    quantity: str = ""
    unit: str = "GB/s"


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A chart, its title, what it leaves out in one line, and a line below the title."""

    chart: Chart
    title: str
    note: str = ""
    subtitle: str = ""


class _Source:
    """What the figures choose from.

    `slide`: for a slide, on which there is one chart and little text. `telling`: of several tasks the one that
    says most of the machine is shown, in place of the first.
    """

    def __init__(
        self, results: Results, limits: Limits, selection: Selection, *, slide: bool = False, telling: bool = False
    ) -> None:
        self.results, self.limits, self.selection = results, limits, selection
        self.slide, self.telling = slide, telling

    def keeps(self, row: Measured, by_size: bool = True) -> bool:
        """Whether a row belongs to the selection."""
        chosen = self.selection
        return (
            (not chosen.pattern or row.pattern == chosen.pattern)
            and (not chosen.transports or not {row.transport, self.results.label(row)}.isdisjoint(chosen.transports))
            and (not chosen.case_key or row.case_key.startswith(chosen.case_key))
            and (not chosen.devices or row.devices == chosen.devices)
            and (not by_size or chosen.size_bytes is None or chosen.size_bytes in (row.size, row.case.size_requested))
        )

    def panel(
        self, by_size: bool = False, fits: Callable[[Measured], bool] = lambda row: True
    ) -> tuple[list[Measured], str]:
        """Return the rows of the first task of the selection, of those that fit if any does, and a note on others."""
        panels = self.results.panels
        if self.selection.devices and not any(self.keeps(row, by_size) for _, rows in panels for row in rows):
            # Of many pairs only one is a panel, unless another is asked for.
            panels = self.results.only([row for row in self.results.rows if self.keeps(row, False)]).panels
        kept = [[row for row in rows if self.keeps(row, by_size)] for _, rows in panels]
        kept = [rows for rows in kept if rows]
        kept = [rows for rows in kept if fits(rows[0])] or kept
        if not kept:
            raise UsageError(f"no case of this run is in the selection: there are {_there(self.results)}")
        first = max(kept, key=_telling) if self.telling else kept[0]
        rest = sorted({self.results.title(rows[0]) for rows in kept if rows is not first})
        return first, f"others, by --pattern and --on: {'; '.join(rest[:5])}" if rest else ""

    def matrix(self) -> list[Measured]:
        """Return the pairs of one pattern, mechanism and size: the largest size unless one is chosen."""
        kept = [rows for first, rows in self.results.matrices if self.keeps(first)]
        if not kept:
            raise UsageError("no pattern of the selection was measured on three or more pairs of devices")
        smallest = self.selection.quantity == "latency" and self.selection.size_bytes is None
        return (min if smallest else max)(kept, key=lambda rows: rows[0].size)


def _telling(rows: list[Measured]) -> tuple[Any, ...]:
    """Return how much a task says of a machine: that of most devices, then the usual collectives, then most points."""
    asked = ("allreduce", "alltoall", "allgather", "unidirectional", "pingpong")
    place = asked.index(rows[0].pattern) if rows[0].pattern in asked else len(asked)
    sizes = len({row.size for row in rows})
    return min(sizes, 2), rows[0].goodput_bytes_per_s is not None, -place, rows[0].ranks, len(rows)


def _there(results: Results) -> str:
    patterns = ", ".join(dict.fromkeys(row.pattern for row in results.rows))
    return f"patterns {patterns}; mechanisms {', '.join(results.mechanisms.values())}" if patterns else "none"


def _over_size(
    draw: Callable[..., Chart], fits: Callable[[Measured], bool] = lambda row: True
) -> Callable[[_Source], Drawn]:
    def figure(source: _Source) -> Drawn:
        rows, note = source.panel(fits=fits)
        unit, limits = source.selection.unit, source.limits
        if source.slide and draw is not charts_curves.latency_over_size:
            chart = charts_curves.rate_over_size(source.results, rows, unit, limits, plain=True)
            title, subtitle = _message(source, rows)
            return Drawn(chart, title, note, subtitle)
        return Drawn(draw(source.results, rows, unit, limits), source.results.title(rows[0]), note)

    return figure


def _message(source: _Source, rows: list[Measured]) -> tuple[str, str]:
    """Return a slide's title, which says the peak and its share of the limit, and a line on what reached it where."""
    unit = source.selection.unit
    best = max(rows, key=lambda row: row.goodput_bytes_per_s or 0)
    rate = charts_curves.shown_factor(best) * (best.goodput_bytes_per_s or 0) / RATE_UNITS[unit]
    words = f"{digits(rate)} {unit}{' busbw' if charts_curves.has_busbw(best) else ''}"
    if share := source.limits.share_of(best):
        words += f", {100 * share:.0f} % of limit"
    host, devices = machine_words(source.results.run)
    task, *more = source.results.title(best).split(" · ")
    where = more.pop(0) if more else ""
    by = f"{source.results.label(best)} at {size_text(best.size)}"
    return f"{task} · {where}: {words}", " · ".join([*devices, host, *more, f"peak by {by}", "medians and quartiles"])


def _boxes(source: _Source) -> Drawn:
    rows, note = source.panel()
    asked = source.selection.size_bytes
    fitting = (row.size for row in rows if asked in (row.size, row.case.size_requested))
    size = next(fitting, max(row.size for row in rows))
    chart = charts_spread.boxes(source.results, rows, source.selection.unit, size)
    return Drawn(chart, f"{source.results.title(rows[0])} · {size_text(size)}", note)


def _distances(source: _Source) -> Drawn:
    known = [row for row in source.results.rows if row.distance in charts_pairs.DISTANCE_WORDS and source.keeps(row)]
    groups = pairs_by_mechanism(source.results, known)
    groups = {key: rows for key, rows in groups.items() if any(row.distance in DISTANCES for row in rows)}
    if not groups:
        raise UsageError("no pair of the selection lies on two nodes whose distance is known: see --fabric of a run")
    (pattern, mechanism, size), rows = most_pairs(groups)
    chart = charts_pairs.distances(source.results, rows, source.selection.unit)
    most = max(Counter(row.distance for row in rows).values())
    few = f"{charts_pairs.MOST_PAIRS} pairs a class one by one, the boxes of all"
    title = f"{pattern} · {mechanism} · {size_text(size)}"
    return Drawn(chart, title, few if most > charts_pairs.MOST_PAIRS else "")


def _matrix(source: _Source) -> Drawn:
    rows = source.matrix()
    quantity = source.selection.quantity or "goodput"
    if quantity not in charts_pairs.QUANTITIES:
        raise UsageError(f"unknown quantity '{quantity}': expected one of {', '.join(charts_pairs.QUANTITIES)}")
    if quantity in ("share", "hops") and source.limits.system is None:
        raise UsageError(f"quantity '{quantity}' needs the system that the run was measured on, which run.json lacks")
    chart = charts_pairs.pair_matrix(source.results, rows, source.selection.unit, quantity, source.limits)
    return Drawn(chart, _pair_title(source, rows))


def _all_at_once(kind: str) -> Callable[[_Source], Drawn]:
    def figure(source: _Source) -> Drawn:
        sets = [rows for name, rows in charts_at_once.all_at_once(source.results) if name == kind]
        kept = [rows for rows in sets if source.keeps(rows[0])]
        if not kept:
            raise UsageError(f"nothing of the selection was measured in {charts_at_once.WORDS[kind]}")
        rows = max(kept, key=lambda rows: (rows[0].size, len(rows)))
        chart = charts_pairs.pair_matrix(source.results, rows, source.selection.unit)
        label, size = source.results.label(rows[0]), size_text(rows[0].size)
        return Drawn(chart, f"{rows[0].pattern} · {label} · {size}", charts_at_once.WORDS[kind])

    return figure


def _topology(source: _Source) -> Drawn:
    rows = source.matrix()
    unit = source.selection.unit
    chart = charts_pairs.topology(rows, unit, source.limits)
    return Drawn(chart, f"{_pair_title(source, rows)} · {unit}")


def _pair_title(source: _Source, rows: list[Measured]) -> str:
    first = rows[0]
    return f"{source.results.title(first, devices=False)} · {source.results.label(first)} · {size_text(first.size)}"


def _collective_rows(source: _Source) -> list[Measured]:
    rows = [row for row in source.results.rows if source.keeps(row, by_size=False)]
    counts: dict[str, set[int]] = {}
    for row in rows:
        counts.setdefault(row.pattern, set()).add(row.ranks)
    name = max(counts, key=lambda pattern: len(counts[pattern]), default="")
    if not name or len(counts[name]) < 2:
        raise UsageError("no pattern of the selection was measured on two or more numbers of devices")
    return [row for row in rows if row.pattern == name]


def _devices(source: _Source) -> Drawn:
    rows = _collective_rows(source)
    size = source.selection.size_bytes or max(row.case.size_requested for row in rows)
    chart = charts_curves.over_devices(source.results, rows, source.selection.unit, size)
    return Drawn(chart, f"{rows[0].pattern} · {size_text(size)}")


def _ratio(source: _Source) -> Drawn:
    rows = _collective_rows(source)
    labels = list(dict.fromkeys(source.results.label(row) for row in rows))
    asked = [label for name in source.selection.transports for label in labels if name in (label, label.split(" ")[0])]
    chosen = list(dict.fromkeys(asked or labels))
    if len(chosen) < 2:
        raise UsageError(f"the ratio needs two mechanisms, by --transport: there are {', '.join(labels)}")
    chart = charts_curves.ratio_map(source.results, rows, chosen[0], chosen[1])
    return Drawn(chart, f"{rows[0].pattern}: {chosen[0]} against {chosen[1]}")


def _one_each(source: _Source) -> tuple[list[tuple[Measured, str]], str, str]:
    rows, note = source.panel(by_size=True)
    size = source.selection.size_bytes or max(row.size for row in rows)
    rows = [row for row in rows if size in (row.size, row.case.size_requested)]
    named = [(row, f"{source.results.label(row)} · {size_text(row.size)}") for row in rows]
    return named, source.results.title(rows[0]), note


def _timeline(source: _Source) -> Drawn:
    named, title, note = _one_each(source)
    one = series_of_rows(source.results, named[:1])[0]
    chart = charts_spread.time_line(one.row, one.series, one.cut)
    more = f"{len(named) - 1} more by --transport or --case" if len(named) > 1 else note
    return Drawn(chart, f"{title} · {one.name}", more)


def _distribution(source: _Source) -> Drawn:
    named, title, note = _one_each(source)
    shown = series_of_rows(source.results, named)
    lines = [(one.name, one.row.transport, one.series[one.cut :]) for one in shown if one.cut < one.series.size]
    if not lines:
        raise UsageError("no case of the selection has samples beyond its warm-up")
    return Drawn(charts_spread.cumulative(lines), title, note)


_SLIDE_TASKS = 12


def _shares(source: _Source) -> Drawn:
    most = _SLIDE_TASKS if source.slide else 0
    chart = charts_curves.share_of_peak(source.results, source.limits, source.selection.unit, most)
    if chart is None:
        raise UsageError("no limits: run.json does not say on what system the run was measured")
    return Drawn(chart, "Peak goodput as % of limit")


def _applications(source: _Source) -> list[Measured]:
    rows = [row for row in applications.measured(source.results.rows) if source.keeps(row, by_size=False)]
    if not rows:
        raise UsageError("no application of this run is in the selection: 'linkgauge run --app' measures them")
    return rows


def _scaling(source: _Source) -> Drawn:
    rows = _applications(source)
    if len({row.ranks for row in rows}) < 2:
        raise UsageError("the applications of the selection were measured on one number of ranks: expected several")
    return Drawn(applications.over_ranks_of_each(source.results, rows), "time of an iteration over ranks")


def _kinds(source: _Source) -> Drawn:
    chart = applications.kinds_of_steps(source.results, _applications(source), step_times(source.results.run))
    if chart is None:
        raise UsageError("this run does not say where its applications' time went")
    return Drawn(chart, "time of the busiest rank, by kind of step")


def _ranks(source: _Source) -> Drawn:
    spans = step_spans(source.results.run)
    rows = [row for row in _applications(source) if row.identity in spans]
    if not rows:
        raise UsageError("this run has no iteration of an application step by step")
    row = max(rows, key=lambda row: (row.ranks, -row.median_ns))
    chart = applications.ranks_over_time(source.results, row, spans[row.identity])
    title = f"{row.case.app.label} · {applications.way_of(source.results, row)} · one iteration"
    return Drawn(chart, title, f"{len(rows) - 1} more by --case" if len(rows) > 1 else "")


FIGURES: dict[str, tuple[Callable[[_Source], Drawn], str]] = {
    "goodput": (_over_size(charts_curves.goodput_figure), "goodput over size, its limit, small sizes beside it"),
    "busbw": (
        _over_size(charts_curves.busbw_over_size, charts_curves.has_busbw),
        "bus bandwidth of a collective over size, its limit",
    ),
    "latency": (_over_size(charts_curves.latency_over_size), "time over size"),
    "boxes": (_boxes, "notched boxes of one size"),
    "distances": (_distances, "pairs' spread by how far they are apart: same switch, other switch, other group"),
    "matrix": (_matrix, "pairs of devices: --quantity goodput, latency, share or hops"),
    "rounds": (_all_at_once(charts_at_once.ROUNDS), "every pair while all others are busy: disjoint pairs at once"),
    "shifts": (_all_at_once(charts_at_once.SHIFTS), "the same as mpiGraph has it: each to the one 1, 2, ... places on"),
    "topology": (_topology, "devices and links with what was measured on them"),
    "devices": (_devices, "goodput over the number of devices"),
    "ratio": (_ratio, "ratio of two mechanisms over size and number of devices"),
    "timeline": (_timeline, "every sample of a case in order"),
    "distribution": (_distribution, "cumulative distribution of a case's times"),
    "shares": (_shares, "peak goodput of each mechanism as % of limit"),
    "scaling": (_scaling, "applications over the number of ranks"),
    "kinds": (_kinds, "where the time of applications goes, by kind of step"),
    "ranks": (_ranks, "one iteration of an application, rank by rank"),
}
_PIXELS = {
    "busbw": (420, 300), "latency": (420, 300), "boxes": (420, 300), "distances": (420, 300), "devices": (420, 280),
    "timeline": (520, 260), "distribution": (460, 280), "ratio": (460,), "shares": (460,), "kinds": (420,),
    "ranks": (560,),
}  # fmt: skip
"""Width and height of figures where they do not follow from what is in them."""


def default_figure(results: Results, limits: Limits, selection: Selection) -> str:
    """Return the figure that says most of a run's selection: of applications where their time goes, else a curve over
    size, else pairs as a matrix, shares of limits, or what one size's samples are like."""
    source = _Source(results, limits, selection, telling=True)
    kept = [row for row in results.rows if source.keeps(row)]
    if applications.measured(kept):
        return "kinds" if step_times(results.run) else "scaling"
    panels = [[row for row in rows if source.keeps(row)] for _, rows in results.panels]
    first = max(filter(None, panels), key=_telling, default=[])
    if len({row.size for row in first}) > 1:
        rated = any(row.goodput_bytes_per_s is not None for row in first)
        return "latency" if not rated else "busbw" if charts_curves.has_busbw(first[0]) else "goodput"
    if any(source.keeps(one) for one, _ in results.matrices):
        return "matrix"
    if len(kept) > 1 and any(limits.limit_of(row) for row in kept):
        return "shares"
    return "boxes"


def draw(
    results: Results, limits: Limits, name: str, selection: Selection, slide: bool = False
) -> tuple[dict[str, Any], str]:
    """Return a figure as a Vega-Lite specification, and a note on what it leaves out.

    Without a name it is `default_figure`'s. `slide`: 16 by 9, with texts to be read from afar.
    UsageError for an unknown figure, and where the selection holds nothing that it could show.
    """
    if name and name not in FIGURES:
        raise UsageError(f"unknown figure '{name}': expected one of {', '.join(FIGURES)}")
    if not results.rows:
        raise UsageError("this run has no case with figures")
    with charts.drawing():
        source = _Source(results, limits, selection, slide=slide, telling=not name)
        which = name or default_figure(results, limits, selection)
        drawn = FIGURES[which][0](source)
        chart = drawn.chart.properties(**dict(zip(("width", "height"), _PIXELS.get(which, ()), strict=False)))
        spec = charts.spec_of(charts.themed(chart, drawn.title, drawn.subtitle, slide=slide), validate=False)
        return charts.sixteen_by_nine(spec, name) if slide else spec, drawn.note
