"""Many nodes: what each takes longer at than its siblings, and how each has changed since."""

from __future__ import annotations

from collections.abc import Sequence

from linkgauge.findings.fleet import Cell, Moment
from linkgauge.view import charts
from linkgauge.view.charts import Chart

_LEAST_REACH = 5.0  # %: colours of a smaller span would paint noise
_MOST_REACH = 30.0  # %: one dead node would leave all others white
_ROW = 18  # pixels; of many nodes the matrix is no higher than a screen or two
_LEAST_ROW = 5
_MOST_HEIGHT = 1800
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MOST_COLOURED = len(_COLOURS)


def task_matrix(cells: Sequence[Cell], names: dict[str, str]) -> Chart:
    """Return nodes by tasks, a cell the share by which the node takes longer; rows as `names` (run to words) has them.

    Orange is slower than the siblings, blue faster, white alike.
    """
    alt = charts.altair()
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    data = [
        {"node": names[cell.run], "task": cell.task, "slower": charts.short(100 * cell.share), "cases": cell.cases}
        for cell in cells
    ]
    reach = min(_MOST_REACH, max(_LEAST_REACH, *(abs(100 * cell.share) for cell in cells)))
    scale = alt.Scale(domain=[-reach, 0, reach], range=["#0072B2", "#F7F7F7", "#D55E00"], clamp=True)
    rows = list(names.values())
    height = max(_LEAST_ROW, min(_ROW, _MOST_HEIGHT / len(rows))) * len(rows)
    return (
        alt.Chart(charts.data(data))
        .mark_rect()
        .encode(
            x=alt.X("task:O", title=None, scale=alt.Scale(domain=tasks), axis=alt.Axis(labelAngle=-40, orient="top")),
            y=alt.Y("node:O", title=None, scale=alt.Scale(domain=rows), axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("slower:Q", title="slower than siblings (%)", scale=scale, legend=charts.gradient_legend()),
            tooltip=[alt.Tooltip(name) for name in ("node:N", "task:N", "slower:Q", "cases:Q")],
        )
        .properties(height=height)
    )


def drift(moments: Sequence[Moment], apart: Sequence[str]) -> Chart:
    """Return each host's runs over time, by how much they take longer than what they are held against.

    The hosts `apart`, MOST_COLOURED at most, have a colour and a name, the others are grey.
    """
    alt = charts.altair()
    data = [
        {"host": one.host, "shown": one.host if one.host in apart else "others", "start": one.start,
         "slower": charts.short(100 * one.share), "cases": one.cases}
        for one in moments
    ]  # fmt: skip
    names = [host for host in apart if any(one.host == host for one in moments)]
    scale = alt.Scale(domain=[*names, "others"], range=[*_COLOURS[: len(names)], "#999999"])
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("start:T", title="start of the run (UTC)", scale=alt.Scale(type="utc")),
        y=alt.Y("slower:Q", title="slower (%)", scale=alt.Scale(zero=True)),
        color=alt.Color("shown:N", title=None, scale=scale),
        detail=alt.Detail("host:N"),
        tooltip=[alt.Tooltip("host:N"), alt.Tooltip("start:T"), alt.Tooltip("slower:Q"), alt.Tooltip("cases:Q")],
    )
    return alt.layer(base.mark_line(strokeWidth=1.5, opacity=0.8), base.mark_point(filled=True, size=40, opacity=1))
