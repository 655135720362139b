"""Curves over size and over the number of devices, the ratio of two mechanisms, and shares of what the links allow."""

from __future__ import annotations

import math
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from linkgauge.view.units import RATE_UNITS, Row, digits, size_text

SMALL_BYTES = 4096  # the sizes of the panel of small ones


def latency_over_size(results: Results, rows: list[Row], unit: str, limits: Limits | None = None) -> Chart:
    """Return the median time (pingpong: one way) in µs over size, both axes logarithmic."""
    title = f"{PATTERNS[rows[0]['pattern']].latency_words} (µs)"
    data = charts.chart_rows(results, rows, unit)
    lines = _limits(rows, limits, unit, latency=True)
    return _lines(results, data, _y("median", title, data, lines), "q1", "q3", lines)


def goodput_over_size(results: Results, rows: list[Row], unit: str, limits: Limits | None = None) -> Chart:
    """Return the median goodput in `unit` over size, both axes logarithmic. UsageError for rows that have none."""
    ways = ", sum of both ways" if PATTERNS[rows[0]["pattern"]].both_ways else ""
    data = [row for row in charts.chart_rows(results, rows, unit) if "goodput" in row]
    if not data:
        raise UsageError(f"{rows[0]['pattern']} has no goodput: 'linkgauge plot --figure latency' shows its times")
    lines = _limits(rows, limits, unit, latency=False)
    y = _y("goodput", f"goodput ({unit}{ways})", data, lines)
    return _lines(results, data, y, "goodput_q3", "goodput_q1", lines)


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


def goodput_figure(results: Results, rows: list[Row], unit: str, limits: Limits | None = None) -> Chart:
    """Return goodput over size with the latency of small sizes beside it, as the papers draw it."""
    alt = charts.altair()
    main = goodput_over_size(results, rows, unit, limits).properties(width=420, height=300)
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


def _limits(rows: list[Row], limits: Limits | None, unit: str, latency: bool) -> list[dict[str, Any]]:
    """Return the limits to draw: of each rule its value at each size, the same for several mechanisms once.

    Of the bounds only the least one binds, and what lies above it is never reached: those are left out.
    """
    if limits is None:
        return []
    values: dict[tuple[str, str, float], set[int]] = {}
    for row in rows:
        least = limits.limit_of(row)
        top = least.goodput_bytes_per_s if least is not None else None
        for line in limits.of(row):
            if not latency and (
                (line.kind == "upper bound" and line != least) or _above(line.goodput_bytes_per_s, top)
            ):
                continue
            if (
                latency and line.kind == "upper bound"
            ):  # a least time, orders below the curves: it would only shrink them
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
    rules = alt.Chart(charts.data(limits)).mark_rule(strokeDash=[5, 4], color=charts.LIMIT_COLOR, strokeWidth=1.2)
    rules = rules.encode(
        x=at,
        x2=alt.X2("to:Q"),
        y=alt.Y("value:Q"),
        tooltip=[alt.Tooltip("rule:N"), alt.Tooltip("kind:N"), alt.Tooltip("value:Q")],
    )
    text = alt.Chart(charts.data(placed)).mark_text(
        align="left", baseline="bottom", dx=4, dy=-2, fontSize=10, color=charts.LIMIT_COLOR
    )
    least = axis["scale"]["domain"][0]
    return [
        rules,
        text.transform_calculate(start=str(least)).encode(
            x=alt.X("start:Q"), y=alt.Y("value:Q"), text=alt.Text("text:N")
        ),
    ]


def over_devices(results: Results, rows: list[Row], unit: str, size: int) -> Chart:
    """Return goodput over the number of devices for one pattern and size, a line a mechanism, quartiles as bars."""
    alt = charts.altair()
    data = [
        item
        for item in charts.chart_rows(results, [row for row in rows if row["size_asked"] == size], unit)
        if "goodput" in item
    ]
    look = charts.mechanism_encoding(results, list(dict.fromkeys(item["mechanism"] for item in data)))
    counts = sorted({item["ranks"] for item in data})
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("ranks:O", title="devices", axis=alt.Axis(labelAngle=0, values=counts)), color=look["color"]
    )
    y = alt.Y("goodput:Q", title=f"goodput ({unit})", scale=alt.Scale(zero=True))
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("goodput_q3:Q", title=f"goodput ({unit})"), y2=alt.Y2("goodput_q1:Q")
    )
    line = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=look["strokeDash"])
    points = base.mark_point(filled=True, size=50, opacity=1).encode(
        y=y,
        shape=look["shape"],
        tooltip=[alt.Tooltip("mechanism:N"), alt.Tooltip("ranks:O"), alt.Tooltip("goodput:Q"), alt.Tooltip("bus:Q")],
    )
    return alt.layer(bars, line, points)


def ratio_map(results: Results, rows: list[Row], of: str, against: str) -> Chart:
    """Return how many times faster mechanism `of` is than `against`, over size and number of devices.

    Colors are symmetric about 1 on a logarithmic scale: blue where `of` is faster, orange where `against` is.
    """
    alt = charts.altair()
    times: dict[tuple[int, int, str], float] = {}
    for row in rows:
        times[row["size_asked"], row["ranks"], results.label(row)] = row["median_ns"]
    data: list[dict[str, Any]] = []
    for (size, ranks, label), time in times.items():
        if label == of and (size, ranks, against) in times:
            ratio = times[size, ranks, against] / time
            data.append(
                {
                    "size": size,
                    "size_text": size_text(size),
                    "ranks": ranks,
                    "ratio": charts.short(ratio),
                    "text": digits(ratio),
                }
            )
    sizes = [size_text(size) for size in sorted({item["size"] for item in data})]
    counts = sorted({item["ranks"] for item in data}, reverse=True)
    reach = max([1.25, *(max(item["ratio"], 1 / item["ratio"]) for item in data)])
    scale = alt.Scale(type="log", domain=[1 / reach, 1, reach], range=["#D55E00", "#F7F7F7", "#0072B2"])
    axis = alt.Axis(labelAngle=0, labelOverlap=True, grid=False)
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("size_text:O", title="size", scale=alt.Scale(domain=sizes), axis=axis),
        y=alt.Y("ranks:O", title="devices", scale=alt.Scale(domain=counts), axis=axis),
    )
    legend = charts.gradient_legend(
        title=f"times faster: {of} than {against}",
        format=".3~g",
        values=[charts.short(1 / reach), 1, charts.short(reach)],
    )
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color("ratio:Q", scale=scale, legend=legend),
        tooltip=[alt.Tooltip("size_text:N"), alt.Tooltip("ranks:O"), alt.Tooltip("ratio:Q")],
    )
    strong = f"abs(log(datum.ratio)) > 0.6 * {math.log(reach)}"
    text = base.mark_text(fontSize=11).encode(
        text=alt.Text("text:N"), color=charts.chosen(alt.ColorValue, strong, "white", "black")
    )
    return alt.layer(cells, text).properties(height=max(70, 34 * len(counts)))


def share_of_peak(results: Results, limits: Limits, unit: str) -> Chart | None:
    """Return for each task the best goodput of every mechanism as a share of the least bound that the system gives.

    None where no row has a bound. The text says the rule and its value.
    """
    alt = charts.altair()
    data: list[dict[str, Any]] = []
    for first, rows in results.panels:
        best: dict[str, Row] = {}
        for row in rows:
            rate = row["goodput_bytes_per_s"]
            if rate is not None and rate > (best.get(results.label(row), {}).get("goodput_bytes_per_s") or 0):
                best[results.label(row)] = row
        for label, row in best.items():
            bound = limits.limit_of(row)
            if bound is not None and bound.goodput_bytes_per_s:
                share = 100 * row["goodput_bytes_per_s"] / bound.goodput_bytes_per_s
                limit = f"{digits(bound.goodput_bytes_per_s / RATE_UNITS[unit])} {unit}, {bound.rule}"
                data.append(
                    {
                        "task": results.title(first),
                        "mechanism": label,
                        "share": charts.short(share),
                        "text": f"{digits(share)} %",
                        "bound": limit,
                        "goodput": charts.short(row["goodput_bytes_per_s"], 1 / RATE_UNITS[unit]),
                    }
                )
    if not data:
        return None
    labels = [label for label in results.mechanisms.values() if any(item["mechanism"] == label for item in data)]
    tasks = list(dict.fromkeys(item["task"] for item in data))
    look = charts.mechanism_encoding(results, labels)
    base = alt.Chart(charts.data(data)).encode(
        y=alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("mechanism:N", sort=labels),
    )
    top = max(105.0, *(item["share"] * 1.12 for item in data))
    x = alt.X("share:Q", title="% of limit", scale=alt.Scale(domain=[0, top]))
    bars = base.mark_bar().encode(
        x=x,
        color=look["color"],
        tooltip=[
            alt.Tooltip("task:N"),
            alt.Tooltip("mechanism:N"),
            alt.Tooltip("share:Q"),
            alt.Tooltip("goodput:Q"),
            alt.Tooltip("bound:N"),
        ],
    )
    text = base.mark_text(align="left", dx=3, fontSize=10).encode(x=x, text=alt.Text("text:N"))
    full = alt.Chart(charts.data([{"at": 100}])).mark_rule(strokeDash=[5, 4], color=charts.LIMIT_COLOR)
    layers: list[Any] = [bars, text, full.encode(x=alt.X("at:Q"))]
    return alt.layer(*layers).properties(height=max(60, 17 * len(data) + 10 * len(tasks)))
