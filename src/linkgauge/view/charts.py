"""What all charts share: colors, axes, texts, and the rows that they draw. Altair is imported when a chart is made.

Each chart is one function in a `charts_*` module, from a Results to an altair chart; the report and `linkgauge plot`
use the same ones. Numbers are in the units of the axis, rounded to five digits so that a report stays small.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.files import CHART_ADDRESS_SPACE
from linkgauge.model.result import Measured
from linkgauge.model.transports import order_of, transport_shown_as
from linkgauge.view.results import Results
from linkgauge.view.units import RATE_UNITS, size_text

# One of altair's chart classes. They are only known once altair is imported, which not every installation has.
Chart: TypeAlias = Any

# Okabe and Ito's colors, which all kinds of color vision tell apart; a transport has the same one everywhere.
TRANSPORT_COLORS = {
    "staging": "#7F7F7F",
    "copy_engine": "#E69F00",
    "kernel": "#009E73",
    "ccl": "#0072B2",
    "mpi": "#D55E00",
    "sycl": "#CC79A7",
    "shmem": "#56B4E9",
    "ucx": "#000000",
    "ofi": "#F0E442",
    "nixl": "#999933",
    "nvshmem": "#882255",
}
_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
LIMIT_COLOR = "#444444"
_LEGEND_WIDTH = 340  # pixels
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

# The label of a size on an axis: the same words as size_text.
SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.4~g') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '.4~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '.4~g') + ' KiB' : format(datum.value, 'd') + ' B'"
)
# A logarithmic axis in plain numbers: decades only, and no exponent where a person would not write one.
DECADE_LABEL = (
    "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) > 1e-6 ? '' : "
    "(datum.value >= 1e-4 && datum.value < 1e6) ? format(datum.value, '~f') : format(datum.value, '.0e')"
)

# Of less than two decades: 1, 2 and 5 of each, since there may be no more than one power of ten.
HALF_DECADE_LABEL = (
    "indexof([1, 2, 5], round(1e6 * datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))) / 1e6) < 0 ? '' : "
    "format(datum.value, '~g')"
)


def altair() -> Any:
    """Import Altair; EnvironmentLackingError that says what to install where it is not there."""
    try:
        import altair
    except ImportError:
        raise EnvironmentLackingError(
            "charts need Altair, which is not installed: pip install 'linkgauge[report]' here, or copy the run"
            " folder to a machine that has it and run 'linkgauge report RUN' there"
        ) from None
    return altair


def converter(draws: bool = True) -> Any:
    """Import vl-convert; EnvironmentLackingError where it is not there, or `draws` and would end the process."""
    try:
        import vl_convert
    except ImportError:
        raise EnvironmentLackingError(
            "figures need vl-convert, which is not installed: pip install 'linkgauge[report]' here, or copy the run"
            " folder to a machine that has it and make the report or figure there"
        ) from None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if draws and 0 <= most < CHART_ADDRESS_SPACE:
        raise EnvironmentLackingError(
            f"this process may have {most >> 30} GiB of address space: figures need {CHART_ADDRESS_SPACE >> 30}, of"
            " which little is used: ulimit -v unlimited"
        )
    return vl_convert


# Values of charts in the making, by the hash of their content. Altair copies and checks a chart many times over, with
# all of its values where they are inline: a hundred times the cost of everything else.
_VALUES: dict[str, list[dict[str, Any]]] = {}


def data(values: Sequence[dict[str, Any]]) -> Any:
    """Return values as a chart's data; `spec_of` puts them into the finished chart."""
    name = "d" + hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()[:16]
    _VALUES[name] = list(values)
    return altair().NamedData(name=name)


def spec_of(chart: Chart, validate: bool = True) -> dict[str, Any]:
    """Return a finished chart as a Vega-Lite specification with its values in `datasets`."""
    spec: dict[str, Any] = chart.to_dict(validate=validate)
    spec["datasets"] = {name: _VALUES[name] for name in sorted(set(_names_in(spec)))}
    return spec


def points_of(spec: dict[str, Any]) -> int:
    """Return how many points a finished chart has: rows of what is drawn, of rules and texts apart."""
    found = 0

    def look(part: dict[str, Any], inherited: str) -> None:
        nonlocal found
        name = part.get("data", {}).get("name", inherited)
        for key in ("layer", "hconcat", "vconcat", "concat"):
            for inner in part.get(key, ()):
                look(inner, name)
        mark = part.get("mark")
        kind = mark.get("type") if isinstance(mark, dict) else mark
        if kind is not None and kind not in ("rule", "text"):
            found = max(found, len(spec["datasets"].get(name, ())))

    look(spec, "")
    return found


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Make charts without the checks of their form, which the tests make, and let their values go at the end.

    And without the deep copies that Altair makes of every layer when it joins them, two thirds of the time of a report:
    no chart here is changed after it became part of another. The specifications are the same (tests/view).
    """
    altair()
    from altair.utils.schemapi import SchemaBase, debug_mode

    deep_copy = SchemaBase.copy

    def copy(self: Any, deep: bool | Iterable[Any] = True, ignore: list[str] | None = None) -> Any:
        return deep_copy(self, False if deep is True else deep, ignore)

    SchemaBase.copy = copy  # type: ignore[method-assign]  # for as long as charts are made
    try:
        with debug_mode(False):
            yield
    finally:
        SchemaBase.copy = deep_copy  # type: ignore[method-assign]
        _VALUES.clear()


def chosen(channel: Any, test: Any, then: Any, otherwise: Any) -> Any:
    """Return a channel (altair's OpacityValue, ColorValue) of one value where `test` holds, else of the other.

    Altair takes plain texts and conditions too, and then looks through all of its classes for the one that is meant,
    50 ms each: channels are given as what they are.
    """
    value = altair().value
    return channel(otherwise, condition=altair().condition(test, value(then), value(otherwise))["condition"])


def _names_in(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        held = part.get("data")
        if isinstance(held, dict) and held.get("name") in _VALUES:
            yield held["name"]
        for value in part.values():
            yield from _names_in(value)
    elif isinstance(part, list):
        for value in part:
            yield from _names_in(value)


def chart_rows(results: Results, rows: Iterable[Measured], unit: str) -> list[dict[str, Any]]:
    """Return the rows as charts draw them: latency in µs, goodput in `unit`, each with quartiles and interval.

    The quartiles of a rate are those of the times, turned over. Rows without goodput have none.
    """
    scale = 1 / RATE_UNITS[unit]
    out = []
    for row in rows:
        half = 1e-3 * row.latency_ns / row.median_ns if row.median_ns else 1e-3
        drawn = {"mechanism": results.label(row), "transport": row.transport, "size": row.size,
                 "size_text": size_text(row.size), "ranks": row.ranks, "samples": row.samples}  # fmt: skip
        drawn |= {name: short(getattr(row, f"{name}_ns"), half) for name in _TIMES}
        drawn |= {"low": short(row.interval_low_ns, half), "high": short(row.interval_high_ns, half)}
        if row.goodput_bytes_per_s is not None:
            drawn |= {name: short(getattr(row, f"{name}_bytes_per_s"), scale) for name in _RATES}
            drawn["bus"] = short(row.busbw_bytes_per_s, scale)
        out.append(drawn)
    return out


_TIMES = ("median", "q1", "q3", "p5", "p95", "mean", "min", "max")
_RATES = ("goodput", "goodput_q1", "goodput_q3")


def short(value: float | None, factor: float = 1.0) -> float | None:
    """Return a number to five digits, as it is drawn; None stays None."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value * factor:.5g}")


def tips(*fields: str | Mapping[str, str]) -> list[Any]:
    """Return what pointing at a mark shows: fields, those of a mapping under titles."""
    alt = altair()
    return [tip for one in fields for tip in (
        [alt.Tooltip(one)] if isinstance(one, str) else [alt.Tooltip(name, title=title) for name, title in one.items()]
    )]  # fmt: skip


def ratio_color(field: str, ratios: Iterable[float], title: str) -> tuple[Any, Any]:
    """Return the color of cells of ratios, and that of the texts on them.

    It is symmetric about 1 on a logarithmic scale: blue above it, orange below.
    """
    alt = altair()
    reach = max([1.25, *(max(ratio, 1 / ratio) for ratio in ratios)])
    scale = alt.Scale(type="log", domain=[1 / reach, 1, reach], range=["#D55E00", "#F7F7F7", "#0072B2"])
    legend = gradient_legend(title=title, format=".3~g", values=[short(1 / reach), 1, short(reach)])
    strong = f"abs(log(datum.{field})) > 0.6 * {math.log(reach)}"
    return alt.Color(f"{field}:Q", scale=scale, legend=legend), chosen(alt.ColorValue, strong, "white", "black")


def level_color(values: Sequence[float], reverse: bool) -> tuple[Any, Any]:
    """Return the scale of cells' colors over these values, and the color of texts on them. `reverse`: less is better.

    Viridis is dark at its low end: white on dark, black on bright.
    """
    alt = altair()
    low, high = (min(values), max(values)) if values else (0, 1)
    middle = (low + high) / 2
    # Colors that span less than a tenth would paint noise.
    domain = [low, high] if high - low > 0.1 * abs(middle) else [0.95 * middle, 1.05 * middle]
    scale = alt.Scale(scheme="viridis", reverse=reverse, domain=domain, clamp=True)
    dark = f"datum.value {'>' if reverse else '<'} {middle}"
    return scale, chosen(alt.ColorValue, dark, "white", "black")


def gradient_legend(**more: Any) -> Any:
    """Return a legend of a color scale that lies below the chart: beside it, it would take the cells' width."""
    return altair().Legend(orient="bottom", direction="horizontal", gradientLength=180, titleLimit=260, **more)


def mechanism_encoding(results: Results, shown: Sequence[str] | None = None, narrow: bool = False) -> dict[str, Any]:
    """Return the color, dash and shape of mechanisms, one legend for the three: the transport gives the color.

    `shown` are the labels of the chart; the color of one never depends on which others are there. `narrow`: names one
    below the other, since the names of the chart's rows take most of its width.
    """
    every = list(results.mechanisms.values())
    return encoding_of(every, [label for label in every if shown is None or label in shown], narrow)


def encoding_of(every: Sequence[str], labels: Sequence[str], narrow: bool = False) -> dict[str, Any]:
    """Return `mechanism_encoding` of these labels, each a transport and more, among all that may be drawn."""
    alt = altair()
    colors, dashes, shapes = [], [], []
    for label in labels:
        transport = transport_of(label)
        place = [one for one in every if transport_of(one) == transport].index(label)
        colors.append(color_of(transport))
        dashes.append(_DASHES[place % len(_DASHES)])
        shapes.append(SHAPES[(order_of(transport) + place) % len(SHAPES)])
    # About seven pixels a letter, and the symbol: what is wider than a chart would be cut.
    widths = [36 + 7 * len(label) for label in labels]
    legend = alt.Legend(
        title=None,
        orient="top",
        columns=1 if narrow else 0 if sum(widths) <= _LEGEND_WIDTH else max(1, _LEGEND_WIDTH // max(widths)),
        labelLimit=120 if narrow else 320,
        symbolOpacity=1,
    )
    field = "mechanism:N"
    return {
        "color": alt.Color(field, scale=alt.Scale(domain=list(labels), range=colors), legend=legend),
        "strokeDash": alt.StrokeDash(field, scale=alt.Scale(domain=list(labels), range=dashes), legend=legend),
        "shape": alt.Shape(field, scale=alt.Scale(domain=list(labels), range=shapes), legend=legend),
    }


def transport_of(label: str) -> str:
    """Return the transport of a mechanism's name."""
    return transport_shown_as(label.split(" ", 1)[0])


def color_of(transport: str) -> str:
    """Return the color that a transport has everywhere."""
    return TRANSPORT_COLORS.get(transport, "#882255")


def size_axis(sizes: Iterable[int]) -> Any:
    """Return a logarithmic axis of sizes, ticks at sizes that were measured, at most about nine."""
    alt = altair()
    known = sorted(set(sizes))
    step = max(1, math.ceil(len(known) / 9))
    ticks = known[::step]
    scale = alt.Scale(type="log", base=2, domain=[known[0], known[-1]], padding=12, nice=False)
    return alt.X(
        "size:Q",
        title="size",
        scale=scale,
        axis=alt.Axis(values=ticks, labelExpr=SIZE_LABEL, labelOverlap=True, labelSeparation=8, grid=True),
    )


def log_y(field: str, title: str, values: Iterable[float], padding: int = 8) -> Any:
    """Return a logarithmic axis for `values`: decades in plain numbers, and what lies between where they are few."""
    alt = altair()
    known = [value for value in values if value > 0]
    decades = math.log10(max(known) / min(known)) if known else 0.0
    label = DECADE_LABEL if decades >= 2 else HALF_DECADE_LABEL if decades >= 0.7 else "format(datum.value, '~g')"
    # Lines at the decades alone, where there are several: those between would be a gray wall behind the curves.
    exponents = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 2) if known else ()
    ticks = {"values": [10.0**one for one in exponents]} if decades >= 2 else {"tickCount": 6}
    axis = alt.Axis(labelExpr=label, labelOverlap=True, labelSeparation=2, **ticks)
    return alt.Y(field, title=title, scale=alt.Scale(type="log", nice=False, padding=padding), axis=axis)


def themed(chart: Chart, title: str = "", subtitle: str | Sequence[str] = "", slide: bool = False) -> Chart:
    """Return a top-level chart with the house's fonts, and the title as text that nothing interprets."""
    alt = altair()
    if title:
        lines = [line for line in ([subtitle] if isinstance(subtitle, str) else list(subtitle)) if line]
        wanted: dict[str, Any] = {"subtitle": lines} if lines else {}
        wanted |= {"fontSize": 13}
        if slide:  # as large as fits in one line, about 0.62 of a letter's height wide
            room = (SLIDE[0] - 40) / 0.62
            sizes = [min(most, room / max(1, len(text))) for most, text in ((17, title), (11, "".join(lines)))]
            wanted |= {"fontSize": round(sizes[0], 1), "subtitleFontSize": round(sizes[1], 1), "offset": 10}
        chart = chart.properties(title=alt.TitleParams(text=title, anchor="start", subtitleColor="#555", **wanted))
    more = 1 if slide else 0
    return (
        chart.configure(font=FONT, background="white")
        .configure_view(stroke="#ddd")
        .configure_axis(
            labelFontSize=11 + more,
            titleFontSize=12 + more,
            titleFontWeight="normal",
            gridColor="#e6e6e6",
            labelColor="#222",
        )
        .configure_legend(labelFontSize=12 + more)
    )


SLIDE = (640, 360)
"""Width and height of a slide, of which a PNG has four times as many pixels."""


def sixteen_by_nine(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a finished chart of SLIDE's size, all of its texts included. UsageError where it is several charts."""
    if any(key in spec for key in ("hconcat", "vconcat", "concat", "facet")):
        raise UsageError(f"'{name}' is several charts, which no slide has room for: leave out --slide")
    autosize = {"type": "fit", "contains": "padding"}
    return {**spec, "width": SLIDE[0], "height": SLIDE[1], "autosize": autosize, "padding": 14}
