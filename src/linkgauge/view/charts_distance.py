"""Pairs by how far they are from each other: each pair's spread, and that of all pairs of a distance class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linkgauge.model.patterns import PATTERNS
from linkgauge.system.switches import CLASSES, NODE
from linkgauge.view import charts
from linkgauge.view.between import DISTANCES
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import count_text

MOST_PAIRS = 60
"""Of a class, as many pairs are drawn one by one; the box is of them all."""
WORDS = {NODE: "same node", **DISTANCES}


def distances(results: Results, rows: Sequence[Row], unit: str) -> Chart:
    """Return a column a distance class, the nearest first: a line a pair from its 5th to its 95th percentile.

    A dot is a pair's median; left of them the box of all pairs' medians: their quartiles, and their median as a line.
    `rows` are of one pattern, mechanism and size.
    """
    alt = charts.altair()
    lines, boxes = [], []
    for name in (one for one in CLASSES if any(row["distance"] == one for row in rows)):
        found = [row for row in rows if row["distance"] == name]
        data = sorted(charts.chart_rows(results, found, unit), key=lambda item: float(item["median"]))
        words = f"{WORDS[name]} ({count_text(len(data), 'pair')})"
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
    scale, title = alt.Scale(type="log", nice=False, padding=26), f"{PATTERNS[rows[0]['pattern']].latency_words} (µs)"

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=6, labelOverlap=True))

    offset = alt.XOffset("at:Q", scale=alt.Scale(domain=[-1.6, 1.6]))
    colour = charts.colour_of(rows[0]["transport"])
    behind = alt.Chart(charts.data(boxes)).encode(x=x)
    box = behind.mark_bar(opacity=0.18, color="black").encode(y=y("q1"), y2=alt.Y2("q3:Q"))
    middle_line = behind.mark_tick(thickness=2, color="black", opacity=0.7, bandSize=80).encode(y=y("middle"))
    each = alt.Chart(charts.data(lines)).encode(x=x, xOffset=offset)
    tips = [alt.Tooltip(f"{key}:Q", title=f"{words}, µs") for key, words in
            (("median", "median"), ("p5", "5th percentile"), ("p95", "95th percentile"))]  # fmt: skip
    rules = each.mark_rule(color=colour, strokeWidth=1.5, opacity=0.7).encode(y=y("p5"), y2=alt.Y2("p95:Q"))
    dots = each.mark_circle(color=colour, size=26, opacity=1).encode(y=y("median"), tooltip=tips)
    return alt.layer(box, middle_line, rules, dots)
