"""Pairs of devices: matrices as heat maps, the topology with what was measured on it, and spread by distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.system.switches import CLASSES, NODE
from linkgauge.view import charts
from linkgauge.view.between import DISTANCES
from linkgauge.view.charts import Chart
from linkgauge.view.limits import NONE, Limits
from linkgauge.view.results import Results, pair_of
from linkgauge.view.units import RATE_UNITS, count_text, digits

if TYPE_CHECKING:
    from linkgauge.system.model import System

_LABELED_ARROWS = 24
_MOST_CELLS = 32  # a side
QUANTITIES = ("latency", "goodput", "share", "hops")


def pair_matrix(
    results: Results, rows: list[Measured], unit: str, quantity: str = "goodput", limits: Limits = NONE
) -> Chart:
    """Return the ordered pairs of one pattern, mechanism and size as a heat map, a row a source.

    `quantity` is one of QUANTITIES: latency in µs, goodput in `unit`, the share of the least bound in %, or hops: the
    links on a shortest path of the described system. Pairs that were not measured stay empty. Of very many devices a
    cell is a switch's by a switch's, or else a block's by a block's, and shows its worst pair, which the middle hides.
    """
    alt = charts.altair()
    value, name = _quantity(quantity, unit, limits)
    reverse = quantity in ("latency", "hops")
    every = sorted({device for row in rows for device in row.devices})
    ends_are, blocks = _blocks(results, every)
    devices: list[int] | list[str] = every if blocks is None else list(dict.fromkeys(blocks.values()))
    if blocks is not None:
        name = f"{name}, the worst pair"
    cells_of: dict[tuple[int | str, int | str], list[tuple[float, str]]] = {}
    for row in rows:
        number = value(row)
        if number is not None:
            source, target = pair_of(row)
            ends = (source, target) if blocks is None else (blocks[source], blocks[target])
            cells_of.setdefault(ends, []).append((number, f"{source} to {target}"))
    data: list[dict[str, Any]] = []
    for (source_words, target_words), numbers in cells_of.items():
        number, pair = (max if reverse else min)(numbers)
        text = str(number) if isinstance(number, int) else digits(number)
        data.append({"from": source_words, "to": target_words, "value": charts.short(number), "text": text,
                     **({"pair": pair, "pairs": len(numbers)} if blocks is not None else {})})  # fmt: skip
    # The diagonal, inside one device, is often far from the rest: it may not take the colors from the pairs.
    pairs = [item["value"] for item in data if item["from"] != item["to"]]
    scale, text_color = charts.level_color(pairs or [item["value"] for item in data], reverse)
    side = cell_width(len(devices))
    axis = alt.Axis(labelAngle=0 if blocks is None else -50, grid=False, domain=False, ticks=False)
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("to:O", title=f"to {ends_are}", scale=alt.Scale(domain=devices), axis=axis),
        y=alt.Y("from:O", title=f"from {ends_are}", scale=alt.Scale(domain=devices), axis=axis),
    )
    of_blocks = {"pair:N": "devices", "pairs:Q": "of pairs"} if blocks is not None else {}
    cells = base.mark_rect(stroke="white", strokeWidth=1.5).encode(
        color=alt.Color("value:Q", title=name, scale=scale, legend=charts.gradient_legend()),
        tooltip=charts.tips({"from:O": "from", "to:O": "to", "value:Q": name, **of_blocks}),
    )
    figures = base.mark_text(fontSize=11 if len(devices) <= 8 else 8).encode(text=alt.Text("text:N"), color=text_color)
    return alt.layer(cells, figures).properties(width=side * len(devices), height=side * 0.75 * len(devices))


def _blocks(results: Results, devices: list[int]) -> tuple[str, dict[int, str] | None]:
    """Return the block that each of very many devices is in, and what blocks are: its first switch, else so many
    neighbors by number. None for as many as a matrix has room for."""
    if len(devices) <= _MOST_CELLS:
        return "device", None
    switches = results.switches
    host_of = {device: rank.host for device, rank in results.kinds.devices.items()}
    above = {device: (switches.above.get(host_of.get(device, ""), ()) if switches else ()) for device in devices}
    if all(above.values()) and 2 <= len({names[0] for names in above.values()}) <= _MOST_CELLS:
        ordered = sorted(devices, key=lambda device: (above[device][::-1], device))
        return "switch", {device: above[device][0] for device in ordered}
    size = -(-len(devices) // _MOST_CELLS)
    parts = [devices[begin : begin + size] for begin in range(0, len(devices), size)]
    return "devices", {device: f"{part[0]} to {part[-1]}" for part in parts for device in part}


def matrix_width(devices: int) -> int:
    """Return how wide the cells of a matrix of so many devices are together, in pixels."""
    return cell_width(devices) * min(devices, _MOST_CELLS)


def cell_width(devices: int) -> int:
    """Return how wide a cell of a matrix of so many devices is, in pixels: its figure must fit in."""
    return 64 if devices <= 4 else 46 if devices <= 8 else 26


def _quantity(quantity: str, unit: str, limits: Limits) -> tuple[Callable[[Measured], float | None], str]:
    if quantity == "latency":
        return lambda row: row.latency_ns / 1e3, "latency (µs)"
    if quantity == "goodput":
        return lambda row: _scaled(row.goodput_bytes_per_s, 1 / RATE_UNITS[unit]), f"goodput ({unit})"
    if quantity == "share":
        return lambda row: _scaled(limits.share_of(row), 100), "% of limit"
    return lambda row: limits.hops.get(pair_of(row)) if limits.on_one_node(row) else None, "hops"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def topology(rows: list[Measured], unit: str, limits: Limits = NONE) -> Chart:
    """Return the devices on a circle, an arrow for each measured ordered pair, colored and labeled by its goodput.

    Where the run's system is described its links are drawn in gray below, with switches and hosts in the middle.
    """
    alt = charts.altair()
    devices = sorted({device for row in rows for device in row.devices})
    place = dict(zip(devices, _circle(len(devices), 1.0), strict=True))
    arrows = _arrows(rows, place, unit)
    wires = _wires(limits.system, place) if all(limits.on_one_node(row) for row in rows) else []
    # Gradients need one mark for each arrow: a line of two points.
    lines = [
        {"pair": item["pair"], "goodput": item["goodput"], "x": x, "y": y, "order": order}
        for item in arrows
        for order, (x, y) in enumerate(item["points"])
    ]
    x, y = _frame()
    rates = [item["goodput"] for item in arrows]
    domain = [min(rates) * 0.98, max(rates) * 1.02] if rates else [0, 1]
    # Few arrows carry their figures, many need a legend. One channel each for lines and heads keeps it one.
    scale = alt.Scale(scheme="viridis", domain=domain)
    legend = (
        None if len(arrows) <= _LABELED_ARROWS else charts.gradient_legend(title=f"goodput ({unit})", type="gradient")
    )
    color = alt.Color("goodput:Q", scale=scale, legend=legend)
    fill = alt.Fill("goodput:Q", scale=scale, legend=None)
    shafts = alt.Chart(charts.data(lines)).mark_line(strokeWidth=3)
    tips = charts.tips("pair:N", "goodput:Q")
    line = shafts.encode(x=x, y=y, detail="pair:N", order="order:Q", color=color, tooltip=tips)
    heads = alt.Chart(charts.data([item["head"] for item in arrows])).mark_point(
        shape="triangle", filled=True, size=130, opacity=1
    )
    head = heads.encode(
        x=x, y=y, fill=fill, angle=alt.Angle("angle:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360]))
    )
    layers = [*wires, line, head]
    if len(arrows) <= _LABELED_ARROWS:
        texts = [{**item["label"], "text": digits(item["goodput"])} for item in arrows]
        base = alt.Chart(charts.data(texts)).encode(x=x, y=y, text=alt.Text("text:N"))
        layers += [base.mark_text(fontSize=10, stroke="white", strokeWidth=4, fill="white"),
                   base.mark_text(fontSize=10, fill="#111")]  # fmt: skip
    nodes = [{"x": px, "y": py, "name": str(device)} for device, (px, py) in place.items()]
    node = alt.Chart(charts.data(nodes)).encode(x=x, y=y)
    layers.append(node.mark_circle(size=900, color="#1b1b3a", opacity=1))
    layers.append(node.mark_text(color="white", fontWeight="bold", fontSize=12).encode(text=alt.Text("name:N")))
    return alt.layer(*layers).properties(width=460, height=440)


def _frame() -> tuple[Any, Any]:
    alt = charts.altair()
    frame = alt.Scale(domain=[-1.45, 1.45])
    return alt.X("x:Q", scale=frame, axis=None), alt.Y("y:Q", scale=frame, axis=None)


def _circle(count: int, radius: float) -> list[tuple[float, float]]:
    turns = [2 * math.pi * i / count for i in range(count)]
    return [(radius * math.sin(turn), radius * math.cos(turn)) for turn in turns]


def _arrows(rows: list[Measured], place: dict[int, tuple[float, float]], unit: str) -> list[dict[str, Any]]:
    """Return each ordered pair as a slightly bent line beside that of the other direction."""
    made = []
    for row in rows:
        source, target = pair_of(row)
        if source == target or row.goodput_bytes_per_s is None:
            continue
        (ax, ay), (bx, by) = place[source], place[target]
        dx, dy = bx - ax, by - ay
        length = math.hypot(dx, dy)
        ux, uy = dx / length, dy / length
        aside = 0.055  # the two directions lie beside each other, each on its right
        ox, oy = uy * aside, -ux * aside
        start = (ax + ux * 0.15 + ox, ay + uy * 0.15 + oy)
        end = (bx - ux * 0.2 + ox, by - uy * 0.2 + oy)
        at = 0.34  # texts near the source, so that those of crossing lines do not meet in the middle
        goodput = charts.short(row.goodput_bytes_per_s, 1 / RATE_UNITS[unit])
        angle = round(math.degrees(math.atan2(ux, uy)) % 360, 1)
        label = {"x": start[0] + (end[0] - start[0]) * at, "y": start[1] + (end[1] - start[1]) * at}
        made.append({"pair": f"{source} to {target}", "goodput": goodput, "points": [start, end], "label": label,
                     "head": {"x": end[0], "y": end[1], "angle": angle, "goodput": goodput}})  # fmt: skip
    return made


def _wires(system: System | None, place: dict[int, tuple[float, float]]) -> list[Any]:
    """Return the described links in gray, and what is no device as small squares inside the circle."""
    if system is None:
        return []
    alt = charts.altair()
    where = {node.name: place[node.ordinal or 0] for node in system.devices if node.ordinal in place}
    inner = [node for node in system.nodes if node.kind in ("switch", "host", "cpu")]
    middles = _circle(len(inner), 0.0 if len(inner) == 1 else 0.38)
    where |= {node.name: at for node, at in zip(inner, middles, strict=True)}
    lines = []
    for number, link in enumerate(system.links):
        if link.a in where and link.b in where:
            name = f"{link.count} x {link.kind}" if link.count > 1 else link.kind
            lines += [{"x": where[end][0], "y": where[end][1], "n": number, "link": name} for end in (link.a, link.b)]
    x, y = _frame()
    wires = alt.Chart(charts.data(lines)).mark_line(color="#cccccc", strokeWidth=5, opacity=0.6)
    points = [{"x": where[node.name][0], "y": where[node.name][1], "name": node.name} for node in inner]
    marks = alt.Chart(charts.data(points)).mark_square(size=260, color="#bbbbbb", opacity=1)
    return [wires.encode(x=x, y=y, detail="n:N", tooltip="link:N"), marks.encode(x=x, y=y, tooltip="name:N")]


MOST_PAIRS = 60
"""Of a class, as many pairs are drawn one by one; the box is of them all."""
DISTANCE_WORDS = {NODE: "same node", **DISTANCES}


def distances(results: Results, rows: Sequence[Measured], unit: str) -> Chart:
    """Return a column a distance class, the nearest first: a line a pair from its 5th to its 95th percentile.

    A dot is a pair's median; left of them the box of all pairs' medians: their quartiles, and their median as a line.
    `rows` are of one pattern, mechanism and size.
    """
    alt = charts.altair()
    lines, boxes = [], []
    for name in (one for one in CLASSES if any(row.distance == one for row in rows)):
        found = [row for row in rows if row.distance == name]
        data = sorted(charts.chart_rows(results, found, unit), key=lambda item: float(item["median"]))
        words = f"{DISTANCE_WORDS[name]} ({count_text(len(data), 'pair')})"
        q1, middle, q3 = np.quantile([item["median"] for item in data], (0.25, 0.5, 0.75))
        boxes.append({"class": words, **{key: charts.short(float(value)) for key, value in
                                         (("q1", q1), ("middle", middle), ("q3", q3))}})  # fmt: skip
        kept = np.unique(np.linspace(0, len(data) - 1, min(MOST_PAIRS, len(data))).astype(int))
        # A pair's place in its column, from -1 to 1: the quickest on the left.
        at = np.linspace(-1, 1, len(kept)) if len(kept) > 1 else np.zeros(1)
        lines += [{"class": words, "at": charts.short(float(place)), **{key: data[i][key] for key in
                   ("p5", "p95", "median", "samples")}} for place, i in zip(at, kept, strict=True)]  # fmt: skip
    order = [box["class"] for box in boxes]
    x = alt.X("class:N", title=None, sort=order, axis=alt.Axis(labelAngle=0, labelLimit=220))
    scale, title = alt.Scale(type="log", nice=False, padding=26), f"{PATTERNS[rows[0].pattern].latency_words} (µs)"

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=6, labelOverlap=True))

    offset = alt.XOffset("at:Q", scale=alt.Scale(domain=[-1.6, 1.6]))
    color = charts.color_of(rows[0].transport)
    behind = alt.Chart(charts.data(boxes)).encode(x=x)
    box = behind.mark_bar(opacity=0.18, color="black").encode(y=y("q1"), y2=alt.Y2("q3:Q"))
    middle_line = behind.mark_tick(thickness=2, color="black", opacity=0.7, bandSize=80).encode(y=y("middle"))
    each = alt.Chart(charts.data(lines)).encode(x=x, xOffset=offset)
    tips = charts.tips({"median:Q": "median, µs", "p5:Q": "5th percentile, µs", "p95:Q": "95th percentile, µs"})
    rules = each.mark_rule(color=color, strokeWidth=1.5, opacity=0.7).encode(y=y("p5"), y2=alt.Y2("p95:Q"))
    dots = each.mark_circle(color=color, size=26, opacity=1).encode(y=y("median"), tooltip=tips)
    return alt.layer(box, middle_line, rules, dots)
