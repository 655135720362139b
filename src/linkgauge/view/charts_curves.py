"""Curves over size and over the number of devices, the ratio of two mechanisms, and shares of what the links allow."""

from __future__ import annotations

from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.limits import NONE, Limits
from linkgauge.view.results import Results
from linkgauge.view.units import RATE_UNITS, digits, size_text

SMALL_BYTES = 4096  # the sizes of the panel of small ones


def latency_over_size(results: Results, rows: list[Measured], unit: str, limits: Limits = NONE) -> Chart:
    """Return the median time (pingpong: one way) in µs over size, both axes logarithmic."""
    title = f"{PATTERNS[rows[0].pattern].latency_words} (µs)"
    data = charts.chart_rows(results, rows, unit)
    limit = _least_time(rows, limits)
    return _lines(results, data, _y("median", title, data, limit), "q1", "q3", limit)


def goodput_over_size(results: Results, rows: list[Measured], unit: str, limits: Limits = NONE) -> Chart:
    """Return the median goodput in `unit` over size, both axes logarithmic. UsageError for rows that have none."""
    ways = ", sum of both ways" if PATTERNS[rows[0].pattern].both_ways else ""
    return _rate_lines(results, rows, unit, limits, 1.0, f"goodput ({unit}{ways})")


def busbw_over_size(results: Results, rows: list[Measured], unit: str, limits: Limits = NONE) -> Chart:
    """Return the bus bandwidth of one of nccl-tests' collectives over size. UsageError for other rows."""
    if not has_busbw(rows[0]):
        raise UsageError(f"{rows[0].pattern} has no busbw: 'linkgauge plot --figure goodput' shows its goodput")
    return _rate_lines(results, rows, unit, limits, shown_factor(rows[0]), f"busbw ({unit})")


def has_busbw(row: Measured) -> bool:
    """Whether nccl-tests has a row's pattern, and so a bus bandwidth of it."""
    return PATTERNS[row.pattern].algorithm_factor is not None


def shown_factor(row: Measured) -> float:
    """Return what a row's goodput is multiplied by to be shown: to busbw where nccl-tests has one, else 1."""
    return PATTERNS[row.pattern].shown_factor(row.case.group_ranks)


def rate_over_size(
    results: Results, rows: list[Measured], unit: str, limits: Limits = NONE, plain: bool = False
) -> Chart:
    """Return busbw over size of nccl-tests' collectives, goodput of all else, on a logarithmic axis.

    `plain`: on a straight axis from zero, on which the share of the limit can be read off: for a slide.
    """
    if not plain:
        return (busbw_over_size if has_busbw(rows[0]) else goodput_over_size)(results, rows, unit, limits)
    title = f"{'busbw' if has_busbw(rows[0]) else 'goodput'} ({unit})"
    return _rate_lines(results, rows, unit, limits, shown_factor(rows[0]), title, plain=True)


def _rate_lines(
    results: Results, rows: list[Measured], unit: str, limits: Limits, factor: float, title: str, plain: bool = False
) -> Chart:
    data, limit = _rates(results, rows, unit, limits, factor), drawn_limit(rows, limits, unit, factor)
    y = _y("goodput", title, data, limit)
    if plain:
        alt = charts.altair()
        top = 1.12 * max([row["goodput_q1"] for row in data] + ([limit["value"]] if limit else []))
        y = alt.Y("goodput:Q", title=title, scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=6))
    return _lines(results, data, y, "goodput_q3", "goodput_q1", limit, picking=not plain)


def _rates(results: Results, rows: list[Measured], unit: str, limits: Limits, factor: float) -> list[dict[str, Any]]:
    """Return the rows as they are drawn, goodput times `factor`, each with its own limit for who points at it."""
    data = []
    for row, drawn in zip(rows, charts.chart_rows(results, rows, unit), strict=True):
        if "goodput" not in drawn:
            continue
        for name in ("goodput", "goodput_q1", "goodput_q3"):
            drawn[name] = charts.short(drawn[name], factor)
        drawn["limit"] = _limit_words(row, limits, unit, factor)
        data.append(drawn)
    if not data:
        raise UsageError(f"{rows[0].pattern} has no goodput: 'linkgauge plot --figure latency' shows its times")
    return data


def _limit_words(row: Measured, limits: Limits, unit: str, factor: float) -> str:
    """Return a row's share of its own limit: `87 % of 450 GB/s (max_flow)`; empty where it has none."""
    bound = limits.limit_of(row)
    if bound is None:
        return ""
    share = digits(100 * row.goodput / bound.rate)
    return f"{share} % of {digits(factor * bound.rate / RATE_UNITS[unit])} {unit} ({bound.rule})"


def _y(field: str, title: str, data: list[dict[str, Any]], limit: dict[str, Any] | None) -> Any:
    values = [row[field] for row in data if row[field] is not None] + ([limit["value"]] if limit else [])
    # A limit's name stands on its outer side, where no curve is: the axis leaves room for it.
    return charts.log_y(f"{field}:Q", title, values, padding=22 if limit else 8)


def small_sizes(results: Results, rows: list[Measured], unit: str) -> Chart:
    """Return the latency of the small sizes on a linear axis from zero: the companion of goodput over size."""
    alt = charts.altair()
    few = [row for row in rows if row.size <= SMALL_BYTES]
    half = PATTERNS[rows[0].pattern].half_round_trip
    y = alt.Y("median:Q", title="one-way latency (µs)" if half else "time (µs)", scale=alt.Scale(zero=True))
    return _lines(results, charts.chart_rows(results, few, unit), y, "q1", "q3", None, picking=False)


def goodput_figure(results: Results, rows: list[Measured], unit: str, limits: Limits) -> Chart:
    """Return goodput over size with the latency of small sizes beside it, as the papers draw it."""
    alt = charts.altair()
    main = goodput_over_size(results, rows, unit, limits).properties(width=420, height=300)
    if len({row.size for row in rows if row.size <= SMALL_BYTES}) < 2:
        return alt.hconcat(main)
    small = small_sizes(results, rows, unit).properties(width=170, height=300)
    return alt.hconcat(main, small)


def _lines(
    results: Results,
    data: list[dict[str, Any]],
    y: Any,
    low: str,
    high: str,
    limit: dict[str, Any] | None,
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
    rate = {"goodput:Q": said["title"], "limit:N": "% of limit"} if field == "goodput" else {}
    tips = charts.tips("mechanism:N", {"size_text:N": "size", **rate, "median:Q": "median, µs",
                       "low:Q": "95 % interval from", "high:Q": "to", "samples:Q": "samples"})  # fmt: skip
    points = base.mark_point(filled=True, size=42).encode(
        y=y, color=look["color"], shape=look["shape"], opacity=strong, tooltip=tips
    )
    layers = [band, line, points.add_params(picked) if picking else points]
    if limit:
        layers = [*_limit_line(limit, x, below=field != "goodput"), *layers]
    return alt.layer(*layers)


def drawn_limit(rows: list[Measured], limits: Limits, unit: str, factor: float) -> dict[str, Any] | None:
    """Return the one limit that a chart draws: the least upper bound of the mechanism that may reach most.

    What other mechanisms may reach, and what other rules say, is in the texts that pointing at a line or point shows.
    """
    bounds = [found for row in rows if (found := limits.limit_of(row)) is not None]
    drawn = max(bounds, key=lambda line: line.rate, default=None)
    if drawn is None:
        return None
    scale = factor / RATE_UNITS[unit]
    others: dict[str, float] = {}
    for row in rows:
        for line in limits.of(row):
            if line.goodput_bytes_per_s and 0 < line.goodput_bytes_per_s < 0.999 * drawn.rate:
                others.setdefault(f"{line.rule} ({line.kind})", line.goodput_bytes_per_s)
    said = sorted(others.items(), key=lambda item: -item[1])[:_MOST_OTHERS]
    return {
        "value": charts.short(drawn.rate, scale),
        "text": f"limit: {digits(drawn.rate * scale)} {unit} ({drawn.rule})",
        "others": "; ".join(f"{name} {digits(value * scale)}" for name, value in said),
    }


def _least_time(rows: list[Measured], limits: Limits) -> dict[str, Any] | None:
    """Return the least time that was measured or is typical of the lowest layer; None where no rule tells of one.

    A bound's least time lies orders of magnitude below the curves, and would only shrink them.
    """
    told = [line for row in rows for line in limits.of(row) if line.latency_ns and not line.binds]
    least = min(told, key=lambda line: line.latency_ns or 0.0, default=None)
    if least is None or not least.latency_ns:
        return None
    words = f"limit: {digits(least.latency_ns / 1e3)} µs ({least.rule})"
    return {"value": charts.short(least.latency_ns, 1e-3), "text": words, "others": least.basis}


_MOST_OTHERS = 8
_LEAST_SHARE = 1.0  # %


def _limit_line(limit: dict[str, Any], x: Any, below: bool) -> list[Any]:
    """Return the dashed line over the whole width, its name at the left, and what pointing at it shows."""
    alt = charts.altair()
    data = charts.data([limit])
    tips = charts.tips({"text:N": "drawn", **({"others:N": "others"} if limit["others"] else {})})
    y = alt.Y("value:Q")
    rule = alt.Chart(data).mark_rule(strokeDash=[5, 4], color=charts.LIMIT_COLOR, strokeWidth=1.4)
    # A line of one pixel is hard to point at.
    wide = alt.Chart(data).mark_rule(strokeWidth=13, opacity=0.001)
    start = x.to_dict(validate=False)["scale"]["domain"][0]
    text = alt.Chart(data).mark_text(
        align="left", baseline="top" if below else "bottom", dy=4 if below else -3, fontSize=11,
        color=charts.LIMIT_COLOR,
    )  # fmt: skip
    at = alt.X("start:Q")
    return [
        rule.encode(y=y),
        wide.encode(y=y, tooltip=tips),
        text.transform_calculate(start=str(start)).encode(x=at, y=y, text=alt.Text("text:N")),
    ]


def over_devices(results: Results, rows: list[Measured], unit: str, size: int) -> Chart:
    """Return goodput over the number of devices for one pattern and size, a line a mechanism, quartiles as bars."""
    alt = charts.altair()
    own = [row for row in rows if row.case.size_requested == size and row.goodput_bytes_per_s is not None]
    data = charts.chart_rows(results, own, unit)
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
    tips = charts.tips("mechanism:N", "ranks:O", "goodput:Q", "bus:Q")
    points = base.mark_point(filled=True, size=50, opacity=1).encode(y=y, shape=look["shape"], tooltip=tips)
    return alt.layer(bars, line, points)


def ratio_map(results: Results, rows: list[Measured], of: str, against: str) -> Chart:
    """Return how many times faster mechanism `of` is than `against`, over size and number of devices.

    Colors are symmetric about 1 on a logarithmic scale: blue where `of` is faster, orange where `against` is.
    """
    alt = charts.altair()
    times = {(row.case.size_requested, row.ranks, results.label(row)): row.median_ns for row in rows}
    ratios = {
        (size, ranks): times[size, ranks, against] / time
        for (size, ranks, label), time in times.items()
        if label == of and (size, ranks, against) in times
    }
    data = [
        {"size": size, "size_text": size_text(size), "ranks": ranks, "ratio": charts.short(ratio),
         "text": digits(ratio)}
        for (size, ranks), ratio in ratios.items()
    ]  # fmt: skip
    sizes = [size_text(size) for size in sorted({size for size, _ in ratios})]
    counts = sorted({ranks for _, ranks in ratios}, reverse=True)
    axis = alt.Axis(labelAngle=0, labelOverlap=True, grid=False)
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("size_text:O", title="size", scale=alt.Scale(domain=sizes), axis=axis),
        y=alt.Y("ranks:O", title="devices", scale=alt.Scale(domain=counts), axis=axis),
    )
    color, strong = charts.ratio_color(
        "ratio", [charts.short(one) or 1.0 for one in ratios.values()], f"times faster: {of} than {against}"
    )
    cells = base.mark_rect(stroke="white").encode(color=color, tooltip=charts.tips("size_text:N", "ranks:O", "ratio:Q"))
    text = base.mark_text(fontSize=11).encode(text=alt.Text("text:N"), color=strong)
    return alt.layer(cells, text).properties(height=max(70, 34 * len(counts)))


def share_of_peak(results: Results, limits: Limits, unit: str, most_tasks: int = 0) -> Chart | None:
    """Return for each task the peak of every mechanism as a share of the least bound that the system gives.

    None where no row has a bound. With `most_tasks` there are no more tasks than that, each with its best mechanism
    alone. The text says the rule and its value.
    """
    alt = charts.altair()
    data: list[dict[str, Any]] = []
    for first, rows in results.panels:
        best: dict[str, Measured] = {}
        for row in rows:
            label = results.label(row)
            if row.goodput_bytes_per_s and (label not in best or row.goodput > best[label].goodput):
                best[label] = row
        own: list[dict[str, Any]] = []
        for label, row in best.items():
            bound = limits.limit_of(row)
            if bound is not None:
                share = 100 * row.goodput / bound.rate
                factor = shown_factor(row) / RATE_UNITS[unit]
                own.append(
                    {"task": results.title(first), "mechanism": label, "share": charts.short(share),
                     "text": f"{share:.0f} %", "bound": f"{digits(factor * bound.rate)} {unit}, {bound.rule}",
                     "goodput": charts.short(row.goodput, factor)}
                )  # fmt: skip
        best_share = sorted(own, key=lambda item: -item["share"])[:1]
        # A task of small sizes alone has no peak to show.
        data += [item for item in best_share if item["share"] >= _LEAST_SHARE] if most_tasks else own
        if most_tasks and len(data) == most_tasks:
            break
    if not data:
        return None
    labels = [label for label in results.mechanisms.values() if any(item["mechanism"] == label for item in data)]
    tasks = list(dict.fromkeys(item["task"] for item in data))
    look = charts.mechanism_encoding(results, labels, narrow=not most_tasks)
    base = alt.Chart(charts.data(data)).encode(
        y=alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(labelLimit=210)),
    )
    if not most_tasks:
        base = base.encode(yOffset=alt.YOffset("mechanism:N", sort=labels))
    top = max(105.0, *(item["share"] * 1.12 for item in data))
    x = alt.X("share:Q", title="% of limit", scale=alt.Scale(domain=[0, top]))
    said = {"share:Q": "% of limit", "goodput:Q": f"peak {unit}", "bound:N": "limit"}
    bars = base.mark_bar().encode(x=x, color=look["color"], tooltip=charts.tips("task:N", "mechanism:N", said))
    text = base.mark_text(align="left", dx=3, fontSize=10).encode(x=x, text=alt.Text("text:N"))
    full = alt.Chart(charts.data([{"at": 100}])).mark_rule(strokeDash=[5, 4], color=charts.LIMIT_COLOR)
    layers = alt.layer(bars, text, full.encode(x=alt.X("at:Q")))
    return layers.properties(height=max(60, 17 * len(data) + 10 * len(tasks)))
