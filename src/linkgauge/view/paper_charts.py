"""A paper's picture from its points: panels as the paper arranges them, one color and mark a series, its values too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.paper_points import PUBLISHED, Drawing, Point
from linkgauge.view.paper_rows import LINKS, SPREAD, size_words

# Okabe and Ito's, and darker ones: for series that one transport's color would not tell apart.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#882255", "#999933", "#7F7F7F")
_DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3])
_STATED = ("#444444", "#8B6F47", "#5B7B9A", "#8A5A83", "#6B8E5A", "#A05A5A")
_LEGEND_LETTERS = 90
_FAR_APART = 20  # a linear axis on which values differ by more has most of them at zero


@dataclasses.dataclass(frozen=True)
class Room:
    """How large a panel is, in pixels, how many are beside each other, and how many letters a legend's line has."""

    width: int
    height: int
    columns: int
    letters: int = _LEGEND_LETTERS


ALONE, BESIDE_ANOTHER, BESIDE_OTHERS = Room(440, 300, 1), Room(300, 220, 2), Room(300, 220, 3)
COLUMN, COLUMN_OF_MANY = Room(250, 165, 1, 44), Room(112, 95, 2, 44)
"""In a column of a paper panels stand below each other; many of them are small, in pairs."""
_MANY = 3


def chart_of(drawing: Drawing, column: bool = False) -> Chart:
    """Return a picture's chart, a panel beside the other; its data hold every value with all digits.

    `column`: as it fits into a column of a paper.
    """
    alt = charts.altair()
    draw: Callable[[Drawing, list[Point], Room], Chart] = {
        "curve": _curve, "bars": _bars, "boxes": _boxes, "matrix": _matrix, "ratio": _ratio,
    }[drawing.picture.form]  # fmt: skip
    names = dict.fromkeys(point.panel for point in drawing.measured)
    several = len(names) > 1
    room = ALONE if not several else BESIDE_ANOTHER if len(names) <= 4 else BESIDE_OTHERS
    if column:
        room = COLUMN if len(names) <= _MANY else COLUMN_OF_MANY
    panels = []
    for name in names:
        points = [point for point in drawing.points if point.panel == name and point.value is not None]
        chart = draw(drawing, points, room)
        panels.append(chart.properties(title=alt.TitleParams(text=name, fontSize=12)) if name else chart)
    if not several:
        return panels[0]
    return alt.concat(*panels, columns=room.columns).resolve_scale(
        color="shared" if drawing.picture.form in ("curve", "bars", "boxes") else "independent",
        shape="shared", strokeDash="shared", xOffset="independent",
    )  # fmt: skip


def _data(drawing: Drawing, points: Sequence[Point]) -> Any:
    return charts.data([
        {"series": point.series, "x": point.x, "place": point.place, "value": point.value,
         **dict(zip(SPREAD, point.spread, strict=False)), "from": str(point.pair[0]), "to": str(point.pair[1]),
         "status": point.status, "source": point.source,
         "text": "" if point.value is None else drawing.shown(point.value)}
        for point in points
    ])  # fmt: skip


def series_of(drawing: Drawing) -> tuple[list[str], list[str]]:
    """Return the names of the series that were measured, and of those that the paper states, in order."""
    mine, stated = ([*dict.fromkeys(one.series for one in of)] for of in (drawing.measured, drawing.published))
    return mine, stated


def _look(drawing: Drawing, room: Room) -> dict[str, Any]:
    """Return color, dash and shape of the series: a transport's own color where it tells them all apart."""
    alt = charts.altair()
    mine, stated = series_of(drawing)
    transport_of = {one.series: charts.transport_of(one.transport) for one in drawing.measured}
    apart = len(set(transport_of.values())) == len(mine)
    colors = [charts.color_of(transport_of[one]) if apart else _COLORS[i % len(_COLORS)] for i, one in enumerate(mine)]
    colors += [_STATED[i % len(_STATED)] for i in range(len(stated))]
    names = [*mine, *stated]
    levels = {f"paper: {one.series}" for one in drawing.figure.published
              if one.level is not None and one.picture == drawing.picture.name}  # fmt: skip
    shapes = ["stroke" if i >= len(mine) and one in levels else charts.SHAPES[i % len(charts.SHAPES)]
              for i, one in enumerate(names)]  # fmt: skip
    dashes = [_DASHES[i // len(_COLORS) % len(_DASHES)] for i in range(len(mine))] + [[4, 3]] * len(stated)
    wide = max(map(len, names), default=0)
    columns = max(1, min(4, room.letters // (wide + 6)))
    legend = alt.Legend(title=None, orient="bottom", columns=columns, labelLimit=460, symbolOpacity=1)
    return {
        "color": alt.Color("series:N", scale=alt.Scale(domain=names, range=colors), legend=legend),
        "shape": alt.Shape("series:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
        "strokeDash": alt.StrokeDash("series:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
    }


def _y(drawing: Drawing, points: Sequence[Point], bars: bool = False) -> Any:
    """Return the vertical axis: the declared scale, but logarithmic where a linear one puts values on zero."""
    alt = charts.altair()
    values = [float(point.value) for point in points if point.value]
    sizes = drawing.picture.x == "size"
    far = not sizes and bool(values) and max(values) > _FAR_APART * min(values)
    if (drawing.picture.scale == "log" and not bars) or far:
        return charts.log_y("value:Q", drawing.quantity, values)
    return alt.Y("value:Q", title=drawing.quantity, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6))


def _places(points: Sequence[Point]) -> list[str]:
    """Return the places of an axis of words: numbers by value, ways as their table has them, others as they come."""
    places = dict.fromkeys(point.place for point in points)
    if set(places) <= set(LINKS):
        return [one for one in LINKS if one in places]
    return sorted(places, key=int) if all(one.isdigit() for one in places) else list(places)


_X_TITLES = {"ranks": "devices", "devices": "devices", "target": "to device", "route": "route", "link": "by way of"}


def _tips(drawing: Drawing) -> list[Any]:
    value = f"{drawing.figure.estimator}, {drawing.quantity}"
    return charts.tips("series:N", {"place:N": drawing.picture.x, "value:Q": value})


def _curve(drawing: Drawing, points: list[Point], room: Room) -> Chart:
    alt = charts.altair()
    look = _look(drawing, room)
    if drawing.picture.x == "size":
        x = charts.size_axis(int(point.x) for point in points)
        x = alt.X("x:Q", **{name: value for name, value in x._kwds.items() if name in ("title", "scale", "axis")})
    else:
        places = _places(points)
        x = alt.X("place:O", title=_X_TITLES[drawing.picture.x], sort=places, axis=alt.Axis(labelAngle=0))
    y = _y(drawing, points)
    layers = []
    for stated in (False, True):
        own = [point for point in points if (point.status == PUBLISHED) == stated]
        if not own:
            continue
        base = alt.Chart(_data(drawing, own)).encode(x=x, color=look["color"])
        if not stated and drawing.figure.estimator != "best" and all(point.spread for point in own):
            band = base.mark_area(opacity=0.18)
            layers.append(band.encode(y=alt.Y("q1:Q", title=drawing.quantity), y2=alt.Y2("q3:Q")))
        layers.append(base.mark_line(strokeWidth=1.4 if stated else 2).encode(y=y, strokeDash=look["strokeDash"]))
        if stated:  # a level is a line without marks
            levels = {one.series for one in drawing.figure.published if one.level is not None}
            own = [point for point in own if point.series.removeprefix("paper: ") not in levels]
            base = alt.Chart(_data(drawing, own)).encode(x=x, color=look["color"])
        mark = base.mark_point(filled=not stated, size=34 if stated else 44, opacity=1)
        layers.append(mark.encode(y=y, shape=look["shape"], tooltip=_tips(drawing)))
    return alt.layer(*layers).properties(width=room.width, height=room.height)


def _bars(drawing: Drawing, points: list[Point], room: Room) -> Chart:
    alt = charts.altair()
    look = _look(drawing, room)
    mine, _ = series_of(drawing)
    places = _places(points)
    step = max(40, 16 * len(mine))
    wide = min(step * len(places), 640 if room.letters > COLUMN.letters else room.width)
    # A letter is about seven pixels wide, an arrow ten.
    straight = all(7 * len(one) + 4 * one.count("→") < wide / len(places) for one in places)
    axis = alt.Axis(labelAngle=0 if straight else -50, labelOverlap=False)
    x = alt.X("place:N", title=_X_TITLES.get(drawing.picture.x), sort=places, axis=axis)
    y = _y(drawing, points, bars=True)
    own = [point for point in points if point.status != PUBLISHED]
    stated = [point for point in points if point.status == PUBLISHED]
    base = alt.Chart(_data(drawing, own)).encode(x=x, xOffset=alt.XOffset("series:N", sort=mine))
    # A bar on a logarithmic axis has no foot: a point does.
    logarithmic = y.to_dict(validate=False).get("scale", {}).get("type") == "log"
    mark = base.mark_point(filled=True, size=70, opacity=1) if logarithmic else base.mark_bar()
    layers = [mark.encode(y=y, color=look["color"], tooltip=_tips(drawing))]
    if stated:
        ticks = alt.Chart(_data(drawing, stated)).mark_tick(thickness=2, size=0.8 * wide / len(places))
        layers.append(ticks.encode(x=x, y=y, color=look["color"], tooltip=_tips(drawing)))
    return alt.layer(*layers).properties(width=wide if room is COLUMN_OF_MANY else max(160, wide), height=room.height)


def _boxes(drawing: Drawing, points: list[Point], room: Room) -> Chart:
    alt = charts.altair()
    look = _look(drawing, room)
    own = [point for point in points if point.status != PUBLISHED]
    stated = [point for point in points if point.status == PUBLISHED]
    names = [*dict.fromkeys(point.series for point in own)]
    x = alt.X(
        "series:N", title=None, sort=names, axis=alt.Axis(labelAngle=0 if len(names) < 3 else -30, labelLimit=260)
    )
    values = [value for point in own for value in (*point.spread, point.value or 0) if value]
    values += [point.value for point in stated if point.value]
    if drawing.picture.scale == "log":
        scale, axis = alt.Scale(type="log", nice=False, padding=16), alt.Axis(format="~g", tickCount=6)
    else:
        scale, axis = alt.Scale(zero=False, padding=16), alt.Axis(tickCount=6)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=drawing.quantity, scale=scale, axis=axis)

    base = alt.Chart(_data(drawing, own)).encode(x=x)
    layers = [
        base.mark_rule(strokeWidth=1.5).encode(y=y("p5"), y2=alt.Y2("p95:Q"), color=look["color"]),
        base.mark_bar(size=36, opacity=0.75).encode(
            y=y("q1"), y2=alt.Y2("q3:Q"), color=look["color"], tooltip=_tips(drawing)
        ),
        base.mark_tick(size=36, thickness=2, color="black").encode(y=y("median")),
        base.mark_point(shape="diamond", filled=True, size=55, color="white", stroke="black", opacity=1).encode(
            y=y("value")
        ),
    ]
    for point in {one.series: one for one in stated}.values():
        level = alt.Chart(_data(drawing, [point]))
        layers.append(level.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(y=y("value"), color=look["color"]))
    return alt.layer(*layers).properties(
        width=min(max(160, 80 * len(names)), 640 if room.letters > COLUMN.letters else room.width), height=room.height
    )


def _matrix(drawing: Drawing, points: list[Point], room: Room) -> Chart:
    alt = charts.altair()
    own = [point for point in points if point.status != PUBLISHED]
    ends = [str(one) for one in sorted({device for point in own for device in point.pair})]
    apart = [point for point in own if point.pair[0] != point.pair[1]] or own
    levels = [float(point.value or 0) for point in apart]
    scale, text_color = charts.level_color(levels, drawing.picture.y in ("latency", "hops"))
    axis = alt.Axis(labelAngle=0, grid=False, domain=False, ticks=False)
    side = 54 if len(ends) <= 4 else 40 if len(ends) <= 8 else 26
    side = min(side, room.width // max(1, len(ends))) if room.letters == COLUMN.letters else side
    base = alt.Chart(_data(drawing, own)).encode(
        x=alt.X("to:O", title="to device", scale=alt.Scale(domain=ends), axis=axis),
        y=alt.Y("from:O", title="from device", scale=alt.Scale(domain=ends), axis=axis),
    )
    legend = charts.gradient_legend(title=drawing.quantity)
    cells = base.mark_rect(stroke="white", strokeWidth=1.5).encode(
        color=alt.Color("value:Q", scale=scale, legend=legend), tooltip=_tips(drawing)
    )
    text = base.mark_text(fontSize=10 if len(ends) <= 8 else 7).encode(text=alt.Text("text:N"), color=text_color)
    return alt.layer(cells, text).properties(width=side * len(ends), height=side * 0.75 * len(ends))


def _ratio(drawing: Drawing, points: list[Point], room: Room) -> Chart:
    alt = charts.altair()
    sizes = [size_words(one) for one in sorted({int(point.x) for point in points})]
    counts = sorted({point.series for point in points}, key=int, reverse=True)
    axis = alt.Axis(labelAngle=-40, grid=False)
    base = alt.Chart(_data(drawing, points)).encode(
        x=alt.X("place:O", title="size", scale=alt.Scale(domain=sizes), axis=axis),
        y=alt.Y("series:O", title="devices", scale=alt.Scale(domain=counts), axis=alt.Axis(labelAngle=0, grid=False)),
    )
    ratios = [point.value for point in points if point.value]
    color, text_color = charts.ratio_color("value", ratios, "goodput of the first / of the second")
    cells = base.mark_rect(stroke="white").encode(color=color, tooltip=_tips(drawing))
    text = base.mark_text(fontSize=10).encode(text=alt.Text("text:N"), color=text_color)
    return alt.layer(cells, text).properties(width=44 * len(sizes), height=max(70, 30 * len(counts)))
