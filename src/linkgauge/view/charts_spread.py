"""The spread of a case: boxes with notches, the time line of its iterations, the cumulative distribution."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.stats import series
from linkgauge.stats.basics import Floats
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.units import size_text, time_text

_LEAST_SAMPLES = 30
_MOST_NOISY = 4


@dataclasses.dataclass(frozen=True)
class Noisy:
    """One case: its row, its name, its series in ns per iteration with the warm-up, and how long that is."""

    row: Measured
    name: str
    series: Floats
    cut: int


def noisiest(results: Results) -> list[Noisy]:
    """Return the cases with the widest quartiles over their median, at most one a task, the widest first."""
    widest: list[tuple[float, Measured, str]] = []
    for first, rows in results.panels:
        able = [row for row in rows if row.samples / row.repeats >= _LEAST_SAMPLES and row.median_ns > 0]
        if able:
            row = max(able, key=lambda row: row.spread)
            widest.append((row.spread, row, results.title(first)))
    widest.sort(key=lambda item: -item[0])
    named = [(row, f"{results.label(row)} · {title} · {size_text(row.size)}") for _, row, title in widest[:_MOST_NOISY]]
    return series_of_rows(results, named)


def series_of_rows(results: Results, named: list[tuple[Measured, str]]) -> list[Noisy]:
    """Return the named rows with their series, in one pass over the samples; of several launches the first."""
    identities = {row.identity: (row, name) for row, name in named}
    nodes = series.one_node(results.run)
    found: dict[str, Noisy] = {}
    for identity, block in series.run_blocks(results.run):
        if identity not in identities:
            continue
        row, name = identities[identity]
        every, measured = (series.headline_of(block.only(kind), row.case, nodes.get(row.launch, True))[0]
                           for kind in (~block.alone, block.measured))  # fmt: skip
        found[name] = Noisy(row, name, every, every.size - measured.size + row.warmup_cut)
        if len(found) == len(identities):
            break
    return [found[name] for _, name in named if name in found]


TIMELINE_POINTS = 4000
_TIME_TITLE = "time of one iteration (µs)"


def boxes(results: Results, rows: list[Measured], unit: str, size: int | None = None) -> Chart:
    """Return a box a mechanism for one size, to be compared within it.

    Quartiles, whiskers from the 5th to the 95th percentile, the notch the median's 95 % interval, a diamond for the
    mean, min and max in words.

    Without `size` the chart has a menu of the sizes, opening with the largest.
    """
    alt = charts.altair()
    data = charts.chart_rows(results, rows if size is None else [row for row in rows if row.size == size], unit)
    for item in data:
        item["least"] = f"min {time_text(1e3 * item['min'])}"
        item["most"] = f"max {time_text(1e3 * item['max'])}"
        # The notch is cut out of the box: where the interval passes the quartiles the box ends there.
        item["notch_low"] = max(item["low"], item["q1"])
        item["notch_high"] = min(item["high"], item["q3"])
    labels = [label for label in results.mechanisms.values() if any(item["mechanism"] == label for item in data)]
    color = alt.Color(
        "mechanism:N",
        scale=alt.Scale(domain=labels, range=[charts.color_of(charts.transport_of(label)) for label in labels]),
        legend=None,
    )
    title = f"{PATTERNS[rows[0].pattern].latency_words} (µs)"
    longest = max(map(len, labels), default=0)
    # Names that do not fit side by side on a phone are slanted; long ones more, since they end where others begin.
    angle = 0 if sum(map(len, labels)) < 26 else -28 if longest < 24 else -50
    x = alt.X(
        "mechanism:N", title=None, sort=labels, axis=alt.Axis(labelAngle=angle, labelLimit=320, labelOverlap=False)
    )
    # Logarithmic: one staging that is twenty times slower would flatten all other boxes.
    scale = alt.Scale(type="log", nice=False, padding=26)
    axis = alt.Axis(format="~g", tickCount=6, labelOverlap=True)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)

    base = alt.Chart(charts.data(data)).encode(x=x)
    if size is None:
        sizes = sorted({row.size for row in rows})
        menu = alt.binding_select(options=sizes, labels=[size_text(one) for one in sizes], name="size ")
        chosen = alt.param(name="box_size", value=sizes[-1], bind=menu)
        base = base.add_params(chosen).transform_filter("datum.size == box_size")
    tips = charts.tips("mechanism:N", {f"{name}:Q": title for name, title in _BOX_TIPS})
    whisker = base.mark_rule(strokeWidth=1.5).encode(y=y("p5"), y2=alt.Y2("p95:Q"), color=color)
    ends = [base.mark_tick(size=16, thickness=1.5).encode(y=y(end), color=color) for end in ("p5", "p95")]
    wide, waist = {"size": 44, "opacity": 0.75}, {"size": 24, "opacity": 0.75}
    box = [
        base.mark_bar(**wide).encode(y=y("q1"), y2=alt.Y2("notch_low:Q"), color=color, tooltip=tips),
        base.mark_bar(**waist).encode(y=y("notch_low"), y2=alt.Y2("notch_high:Q"), color=color, tooltip=tips),
        base.mark_bar(**wide).encode(y=y("notch_high"), y2=alt.Y2("q3:Q"), color=color, tooltip=tips),
    ]
    middle = base.mark_tick(size=24, thickness=2, color="black").encode(y=y("median"))
    mean = base.mark_point(
        shape="diamond", filled=True, size=55, color="white", stroke="black", strokeWidth=1, opacity=1
    )
    words = {"fontSize": 10, "color": "#333"}
    above = base.mark_text(dy=-9, **words).encode(y=y("p95"), text=alt.Text("most:N"))
    below = base.mark_text(dy=11, **words).encode(y=y("p5"), text=alt.Text("least:N"))
    return alt.layer(whisker, *ends, *box, middle, mean.encode(y=y("mean")), above, below)


_BOX_TIPS = (
    ("median", "median, µs"), ("low", "95 % interval from"), ("high", "to"), ("mean", "mean"), ("q1", "quartile 1"),
    ("q3", "quartile 3"), ("p5", "5th percentile"), ("p95", "95th percentile"), ("min", "min"), ("max", "max"),
    ("samples", "samples"),
)  # fmt: skip


def time_line(row: Measured, series: Floats, cut: int) -> Chart:
    """Return every iteration of a case in order: `series` as measured, what is warm-up in gray.

    `series` holds the case's time of each sample in ns per iteration, warm-up phases included, in order; `cut` is how
    many of its leading values are warm-up, by phase or by the rule. Above TIMELINE_POINTS values each stretch of equal
    length is drawn by its least and its largest value, so that no spike is lost.
    """
    alt = charts.altair()
    scale = 1e-3 * (row.latency_ns / row.median_ns if row.median_ns else 1.0)
    places = _stretches(series, TIMELINE_POINTS)
    data = [
        {"sample": int(i), "time": charts.short(float(series[i]), scale), "part": "warm-up" if i < cut else "measured"}
        for i in places
    ]
    color = charts.color_of(row.transport)
    base = alt.Chart(charts.data(data)).encode(x=alt.X("sample:Q", title="sample", scale=alt.Scale(nice=False)))
    parts = alt.Scale(domain=["measured", "warm-up"], range=[color, "#bbbbbb"])
    title = f"{PATTERNS[row.pattern].latency_words} (µs)"
    y = alt.Y("time:Q", title=title, scale=alt.Scale(zero=False))
    shade = alt.Color("part:N", scale=parts, title=None, legend=alt.Legend(orient="top"))
    tips = charts.tips("sample:Q", "time:Q")
    points = base.mark_circle(size=14, opacity=0.7).encode(y=y, color=shade, tooltip=tips)
    middle = alt.Chart(charts.data([{"median": charts.short(row.median_ns, scale)}]))
    return alt.layer(points, middle.mark_rule(color="black", strokeDash=[4, 3]).encode(y=alt.Y("median:Q")))


def _stretches(series: Floats, points: int) -> list[int]:
    """Return which values to draw: all, or the least and the largest of each stretch."""
    if series.size <= points:
        return list(range(series.size))
    edges = np.linspace(0, series.size, points // 2 + 1).astype(int)
    chosen: set[int] = set()
    for start, end in pairwise(edges.tolist()):
        part = series[start:end]
        chosen |= {int(start + part.argmin()), int(start + part.argmax())}
    return sorted(chosen)


def cumulative(named: list[tuple[str, str, Floats]]) -> Chart:
    """Return cumulative distributions of (name, transport, series in ns): the share of samples at most that long."""
    alt = charts.altair()
    shares = np.concatenate([np.linspace(0, 0.9, 91), np.linspace(0.901, 1, 100)])
    data = [
        {"name": name, "share": charts.short(100 * float(share)), "time": charts.short(float(value), 1e-3)}
        for name, _, taken in named
        for share, value in zip(shares, np.quantile(taken, shares), strict=True)
    ]
    names = list(dict.fromkeys(name for name, _, _ in named))
    colors = [charts.color_of(next(t for n, t, _ in named if n == name)) for name in names]
    x = alt.X(
        "time:Q", title=_TIME_TITLE, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=8, format="~g")
    )
    legend = alt.Legend(orient="top", columns=1, labelLimit=250)
    color = alt.Color("name:N", title=None, scale=alt.Scale(domain=names, range=colors), legend=legend)
    dash = alt.StrokeDash("name:N", title=None, legend=legend, scale=alt.Scale(domain=names))
    y = alt.Y("share:Q", title="samples at most this long (%)")
    line = alt.Chart(charts.data(data)).mark_line(interpolate="step-after", strokeWidth=1.8)
    return line.encode(x=x, y=y, color=color, strokeDash=dash, tooltip=charts.tips("name:N", "share:Q", "time:Q"))
