"""Applications: where their time goes by kind of step, over ranks, and an iteration on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Identity, Measured
from linkgauge.stats.launches import Places
from linkgauge.stats.step_times import KINDS, RankSteps, Span, busiest, step_times
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.screen import titled_table
from linkgauge.view.units import size_text, time_text

KIND_WORDS = {"host_to_device": "to device", "device_to_host": "to host", "within_device": "within device"}
_COLORS = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#F0E442")
_ROW_PIXELS = 15
# 1, 2 and 5 of each decade of microseconds, in the unit that people say.
_TIME_LABEL = (
    f"({charts.HALF_DECADE_LABEL}) == '' ? '' : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' s' : "
    "datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' ms' : format(datum.value, '~g') + ' µs'"
)


def measured(rows: Sequence[Measured]) -> list[Measured]:
    """Return the rows of applications that have a time."""
    return [row for row in rows if PATTERNS[row.pattern].scripted]


def name_of(row: Measured) -> str:
    """Return an application's name without its parameters, which differ over ranks where it scales weakly."""
    return row.case.app.label.partition(" ")[0]


def way_of(results: Results, row: Measured) -> str:
    """Return by which mechanism a row's messages go, and from which memory where that is not the device's."""
    transport, _, more = results.label(row).partition(" ")
    memories = [one for one in dict.fromkeys((row.case.source_memory, row.case.target_memory)) if one != "device"]
    return " ".join(filter(None, [transport, *memories, more]))


def alike(one: Measured, other: Measured) -> bool:
    """Whether two rows are of the same application, on whatever ranks and with whatever parameters."""
    return name_of(one) == name_of(other)


def over_ranks(results: Results, rows: Sequence[Measured]) -> Chart:
    """Return the time of an application over its ranks, a line a mechanism, logarithmic.

    Not a speed-up over one rank: a step file has what is communicated, of which one rank may have nothing. Of several
    cases of a mechanism on as many ranks the quickest counts.
    """
    alt = charts.altair()
    quickest = {(row.ranks, way_of(results, row)): row for row in sorted(rows, key=lambda row: -row.median_ns)}
    data = [
        {"ranks": ranks, "mechanism": mechanism, "us": charts.short(row.median_ns, 1e-3),
         "application": row.case.app.label}
        for (ranks, mechanism), row in sorted(quickest.items())
    ]  # fmt: skip
    ways = sorted({way_of(results, row) for row in measured(results.rows)})
    look = charts.encoding_of(ways, [way for way in ways if any(item["mechanism"] == way for item in data)])
    axis = alt.Axis(labelExpr=_TIME_LABEL, tickCount=6, grid=False, labelOverlap=True)
    base = alt.Chart(charts.data(data)).encode(
        x=alt.X("ranks:O", title="ranks", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("us:Q", title=None, scale=alt.Scale(type="log", nice=False, padding=8), axis=axis),
        color=look["color"],
    )
    tips = charts.tips("application:N", "mechanism:N", "ranks:O", "us:Q")
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=look["strokeDash"])
    points = base.mark_point(filled=True, size=45, opacity=1).encode(shape=look["shape"], tooltip=tips)
    return alt.layer(lines, points)


def over_ranks_of_each(results: Results, rows: Sequence[Measured]) -> Chart:
    """Return `over_ranks` of each application of `rows`, four side by side."""
    alt = charts.altair()
    own = grouped((name_of(row), row) for row in rows)
    panels = [over_ranks(results, own[name]).properties(width=150, height=120, title=name) for name in sorted(own)]
    return alt.concat(*panels, columns=4)


def kinds_of_steps(results: Results, rows: Sequence[Measured], told: dict[Identity, list[RankSteps]]) -> Chart | None:
    """Return in which kinds of steps the busiest rank of each case of `rows` spent its time, a bar a case.

    Of the time of the slowest that does the same on as many ranks (Tartan, Figs. 32 to 35). None without such times.
    """
    alt = charts.altair()
    busy: list[tuple[Measured, RankSteps]] = []
    slowest: dict[tuple[str, int], float] = {}
    for row in sorted(rows, key=lambda row: (name_of(row), row.ranks, row.median_ns)):
        one = busiest(told.get(row.identity, []))
        if one is not None and one.total_ns:
            busy.append((row, one))
            group = name_of(row), row.ranks
            slowest[group] = max(one.total_ns, slowest.get(group, 0.0))
    if not busy:
        return None
    names = [f"{row.case.app.label} · {row.ranks} · {way_of(results, row)}" for row, _ in busy]
    data = [
        {"case": name, "kind": KIND_WORDS.get(kind, kind), "order": KINDS.index(kind),
         "share": charts.short(100 * ns / slowest[name_of(row), row.ranks]), "us": charts.short(ns, 1e-3)}
        for name, (row, one) in zip(names, busy, strict=True) for kind, ns in one.ns.items()
    ]  # fmt: skip
    tips = charts.tips("case:N", "kind:N", "share:Q", "us:Q")
    return (
        alt.Chart(charts.data(data))
        .mark_bar()
        .encode(
            y=alt.Y("case:N", sort=names, title=None, axis=alt.Axis(labelLimit=420)),
            x=alt.X("share:Q", title="of the slowest on as many ranks (%)", scale=alt.Scale(domain=[0, 100])),
            color=_kind_color(),
            order=alt.Order("order:Q"),
            tooltip=tips,
        )
        .properties(height=max(60, _ROW_PIXELS * len(names)))
    )


def ranks_over_time(results: Results, row: Measured, spans: Sequence[Span]) -> Chart:
    """Return an iteration of a case on every rank: what its host's thread was at, over time.

    Clocks are a node's own: time is counted from the first step of each node's ranks.
    """
    alt = charts.altair()
    places = Places(results.run.launched).of(row.launch, row.devices)
    host_of = dict(enumerate(place.node for place in places))
    first: dict[str | None, int] = {}
    for one in spans:
        host = host_of.get(one.rank)
        first[host] = min(one.begin_ns, first.get(host, one.begin_ns))
    data = [
        {"rank": one.rank, "kind": KIND_WORDS.get(one.kind, one.kind),
         "begin": charts.short(one.begin_ns - zero, 1e-3), "end": charts.short(one.end_ns - zero, 1e-3),
         "us": charts.short(one.end_ns - one.begin_ns, 1e-3)}
        for one in spans for zero in (first[host_of.get(one.rank)],)
    ]  # fmt: skip
    tips = charts.tips("rank:O", "kind:N", "begin:Q", "us:Q")
    return (
        alt.Chart(charts.data(data))
        .mark_bar(height={"band": 0.85})
        .encode(
            x=alt.X("begin:Q", title="µs since the iteration began", scale=alt.Scale(nice=False)),
            x2=alt.X2("end:Q"),
            y=alt.Y("rank:O", title="rank", axis=alt.Axis(tickSize=0)),
            color=_kind_color(),
            tooltip=tips,
        )
        .properties(height=max(60, 24 * len({one.rank for one in spans})))
    )


def _kind_color() -> Any:
    alt = charts.altair()
    words = [KIND_WORDS.get(kind, kind) for kind in KINDS]
    legend = alt.Legend(title=None, orient="top", columns=4, symbolType="square")
    return alt.Color("kind:N", scale=alt.Scale(domain=words, range=list(_COLORS)), legend=legend)


_NAMED = 3


def application_tables(results: Results) -> list[RenderableType]:
    """Return the table of applications, a row a case: its time, and of the rank that waits least for others how much of
    it went into which kind of step. None where the run has no application."""
    rows = measured(results.rows)
    if not rows:
        return []
    told = step_times(results.run)
    table = titled_table("applications: an iteration, and where its busiest rank's time went",
                         ("application", "ranks", "by", "time", "a rank sends", "where"), ("ranks", "time"),
                         no_wrap=True)  # fmt: skip
    for row in sorted(rows, key=lambda row: (row.case.app.label, row.ranks, row.median_ns)):
        ranks = told.get(row.identity, [])
        one = busiest(ranks)
        where = "" if one is None else _kinds_text(one)
        table.add_row(Text(row.case.app.label), str(row.ranks), Text(way_of(results, row)),
                      time_text(row.median_ns), _sent(ranks), where)  # fmt: skip
    return [table]


def applications_told(results: Results) -> list[str]:
    """Return the applications of a run in words, each by what was quickest; of more than a few how many there are."""
    quickest: dict[tuple[str, int], Measured] = {}
    for row in measured(results.rows):
        key = row.case.app.label, row.ranks
        if key not in quickest or row.median_ns < quickest[key].median_ns:
            quickest[key] = row
    if not 0 < len(quickest) <= _NAMED:
        return [f"{len(quickest)} applications measured"] if quickest else []
    told = [f"{name} {time_text(row.median_ns)} by {way_of(results, row)}" for (name, _), row in quickest.items()]
    return [", ".join(told)]


def _kinds_text(one: RankSteps) -> str:
    """Return the kinds with a percent of the time or more, the longest first."""
    total = one.total_ns
    kinds = sorted((kind for kind in KINDS if one.ns.get(kind, 0) >= total / 100 > 0), key=lambda kind: -one.ns[kind])
    return ", ".join(f"{KIND_WORDS.get(kind, kind)} {100 * one.ns[kind] / total:.0f} %" for kind in kinds)


def _sent(ranks: list[RankSteps]) -> str:
    """Return messages and bytes of the rank that sends most."""
    most = max(ranks, key=lambda one: one.bytes.get("sent", 0), default=None)
    if most is None or not most.counts.get("sent"):
        return "-"
    return f"{most.counts['sent']} of {size_text(most.bytes['sent'] // most.counts['sent'])}"
