"""Over the number of devices: goodput, the ratio of two mechanisms; and shares of what the links allow."""

from __future__ import annotations

import math
from typing import Any

from linkgauge.view import charts
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import RATE_UNITS, digits, size_text


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

    Colours are symmetric about 1 on a logarithmic scale: blue where `of` is faster, orange where `against` is.
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


def share_of_peak(results: Results, ceilings: Ceilings, unit: str) -> Chart | None:
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
            bound = ceilings.least_bound(row)
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
    x = alt.X("share:Q", title="share of the least bound (%)", scale=alt.Scale(domain=[0, top]))
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
    full = alt.Chart(charts.data([{"at": 100}])).mark_rule(strokeDash=[5, 4], color=charts.CEILING_COLOUR)
    layers: list[Any] = [bars, text, full.encode(x=alt.X("at:Q"))]
    return alt.layer(*layers).properties(height=max(60, 17 * len(data) + 10 * len(tasks)))
