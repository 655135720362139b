"""Latency and goodput over size, one line a mechanism with its interquartile band, ceilings dashed."""

from __future__ import annotations

import math
from typing import Any

from linkgauge.model.patterns import PATTERNS
from linkgauge.view import charts
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import RATE_UNITS

SMALL_BYTES = 4096  # the sizes of the panel of small ones


def latency_over_size(results: Results, rows: list[Row], unit: str, ceilings: Ceilings | None = None) -> Chart:
    """Return the median time (pingpong: one way) in µs over size, both axes logarithmic."""
    title = f"{PATTERNS[rows[0]['pattern']].latency_words} (µs)"
    data = charts.chart_rows(results, rows, unit)
    limits = _limits(rows, ceilings, unit, latency=True)
    return _lines(results, data, _y("median", title, data, limits), "q1", "q3", limits)


def goodput_over_size(results: Results, rows: list[Row], unit: str, ceilings: Ceilings | None = None) -> Chart:
    """Return the median goodput in `unit` over size, both axes logarithmic."""
    ways = ", sum of both ways" if rows[0]["pattern"] == "bidirectional" else ""
    data = [row for row in charts.chart_rows(results, rows, unit) if "goodput" in row]
    limits = _limits(rows, ceilings, unit, latency=False)
    y = _y("goodput", f"goodput ({unit}{ways})", data, limits)
    return _lines(results, data, y, "goodput_q3", "goodput_q1", limits)


def _y(field: str, title: str, data: list[dict[str, Any]], limits: list[dict[str, Any]]) -> Any:
    values = [row[field] for row in data if row[field] is not None] + [limit["value"] for limit in limits]
    return charts.log_y(f"{field}:Q", title, values)


def small_sizes(results: Results, rows: list[Row], unit: str) -> Chart:
    """Return the latency of the small sizes on a linear axis from zero: the companion of goodput over size."""
    alt = charts.altair()
    few = [row for row in rows if row["size"] <= SMALL_BYTES]
    half = PATTERNS[rows[0]["pattern"]].half_round_trip
    y = alt.Y("median:Q", title="one-way latency (µs)" if half else "time (µs)", scale=alt.Scale(zero=True))
    return _lines(results, charts.chart_rows(results, few, unit), y, "q1", "q3", [], picking=False)


def goodput_figure(results: Results, rows: list[Row], unit: str, ceilings: Ceilings | None = None) -> Chart:
    """Return goodput over size with the latency of small sizes beside it, as the papers draw it."""
    alt = charts.altair()
    main = goodput_over_size(results, rows, unit, ceilings).properties(width=420, height=300)
    if len({row["size"] for row in rows if row["size"] <= SMALL_BYTES}) < 2:
        return alt.hconcat(main)
    small = small_sizes(results, rows, unit).properties(width=170, height=300)
    return alt.hconcat(main, small)


def _lines(
    results: Results,
    data: list[dict[str, Any]],
    y: Any,
    low: str,
    high: str,
    limits: list[dict[str, Any]],
    picking: bool = True,
) -> Chart:
    alt = charts.altair()
    shown = list(dict.fromkeys(row["mechanism"] for row in data))
    look = charts.mechanism_encoding(results, shown)
    x = charts.size_axis(row["size"] for row in data)
    picked = alt.selection_point(fields=["mechanism"], bind="legend")
    strong = charts.chosen(alt.OpacityValue, picked, 1.0, 0.12) if picking else alt.OpacityValue(1.0)
    faint = charts.chosen(alt.OpacityValue, picked, 0.22, 0.04) if picking else alt.OpacityValue(0.22)
    said = y.to_dict(validate=False)
    field = said["field"]
    base = alt.Chart(charts.data(data)).encode(x=x)
    band = base.mark_area().encode(
        y=alt.Y(f"{low}:Q", title=said.get("title")), y2=alt.Y2(f"{high}:Q"), color=look["color"], opacity=faint
    )
    line = base.mark_line(strokeWidth=2).encode(y=y, color=look["color"], strokeDash=look["strokeDash"], opacity=strong)
    tips = [
        alt.Tooltip("mechanism:N"),
        alt.Tooltip("size_text:N", title="size"),
        alt.Tooltip("median:Q", title="median, µs"),
        alt.Tooltip("low:Q", title="95 % interval from"),
        alt.Tooltip("high:Q", title="to"),
        alt.Tooltip("samples:Q", title="samples"),
    ]
    if field == "goodput":
        tips.insert(2, alt.Tooltip("goodput:Q", title="goodput"))
    points = base.mark_point(filled=True, size=42).encode(
        y=y, color=look["color"], shape=look["shape"], opacity=strong, tooltip=tips
    )
    layers = [band, line, points.add_params(picked) if picking else points]
    if limits:
        # Of no bytes goodput is 0, which an axis of powers has no place for.
        values = [
            value for value in (*(row[field] for row in data), *(limit["value"] for limit in limits)) if value > 0
        ]
        layers = [*_dashed(limits, x, math.log10(max(values) / min(values))), *layers]
    return alt.layer(*layers)


def _limits(rows: list[Row], ceilings: Ceilings | None, unit: str, latency: bool) -> list[dict[str, Any]]:
    """Return the ceilings to draw: of each rule its value at each size, the same for several mechanisms once.

    Of the bounds only the least one binds, and what lies above it is never reached: those are left out.
    """
    if ceilings is None:
        return []
    values: dict[tuple[str, str, float], set[int]] = {}
    for row in rows:
        least = ceilings.least_bound(row)
        top = least.goodput_bytes_per_s if least is not None else None
        for line in ceilings.of(row):
            if not latency and ((line.kind == "bound" and line != least) or _above(line.goodput_bytes_per_s, top)):
                continue
            if latency and line.kind == "bound":  # a least time, orders below the curves: it would only shrink them
                continue
            value = line.latency_ns if latency else line.goodput_bytes_per_s
            drawn = charts.short(value, 1e-3 if latency else 1 / RATE_UNITS[unit])
            if drawn:
                values.setdefault((line.rule, line.kind, drawn), set()).add(row["size"])
    every = sorted({row["size"] for row in rows})
    # A rule that speaks of one size only still gets a line that can be seen.
    return [
        {
            "rule": rule,
            "kind": kind,
            "value": value,
            "from": min(sizes),
            "to": max(sizes) if len(sizes) > 1 else every[-1],
        }
        for (rule, kind, value), sizes in sorted(values.items(), key=lambda item: -item[0][2])
    ]


def _above(value: float | None, top: float | None) -> bool:
    return value is not None and top is not None and value > 1.001 * top


def _dashed(limits: list[dict[str, Any]], x: Any, decades: float) -> list[Any]:
    alt = charts.altair()
    placed: list[dict[str, Any]] = []
    for limit in limits:  # lines closer together than a text is high share one
        near = next((one for one in placed if abs(math.log10(one["value"] / limit["value"])) < 0.05 * decades), None)
        if near is None:
            placed.append(dict(limit, rules=[f"{limit['rule']} ({limit['kind']})"]))
        elif not any(rule.startswith(limit["rule"]) for rule in near["rules"]):
            near["rules"].append(f"{limit['rule']} ({limit['kind']})")
    for one in placed:  # a text as long as the chart is wide would run through the curves
        names = one.pop("rules")
        one["text"] = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    axis = x.to_dict(validate=False)
    at = alt.X("from:Q", scale=alt.Scale(**axis["scale"]), axis=alt.Axis(**axis["axis"]), title=axis["title"])
    rules = alt.Chart(charts.data(limits)).mark_rule(strokeDash=[5, 4], color=charts.CEILING_COLOUR, strokeWidth=1.2)
    rules = rules.encode(
        x=at,
        x2=alt.X2("to:Q"),
        y=alt.Y("value:Q"),
        tooltip=[alt.Tooltip("rule:N"), alt.Tooltip("kind:N"), alt.Tooltip("value:Q")],
    )
    text = alt.Chart(charts.data(placed)).mark_text(
        align="left", baseline="bottom", dx=4, dy=-2, fontSize=10, color=charts.CEILING_COLOUR
    )
    least = axis["scale"]["domain"][0]
    return [
        rules,
        text.transform_calculate(start=str(least)).encode(
            x=alt.X("start:Q"), y=alt.Y("value:Q"), text=alt.Text("text:N")
        ),
    ]
