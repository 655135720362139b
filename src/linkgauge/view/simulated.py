"""A simulated cluster as text, chart and page. The chart and the page are made where Altair is there (charts.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.model.quantity import change, percent
from linkgauge.simulate.answer import Answer
from linkgauge.simulate.study import LIMITS, Study, WhatIf
from linkgauge.view import charts
from linkgauge.view.units import RATE_UNITS, size_text

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.simulate.papers import Curves
    from linkgauge.view.page import Page

_RULE_COLORS = {
    "minimal": "#0072B2", "third_group": "#D55E00", "best": "#009E73", "static": "#CC79A7", "mixed": "#E69F00",
    "reached": "#009E73",
}  # fmt: skip


def _rate(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value / RATE_UNITS[unit]:.4g}"


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} µs"


def title_of(found: Study) -> str:
    """What was simulated, in a line."""
    r = found.request
    algorithm = f" by {r.algorithm}" if r.algorithm else ""
    return f"{found.fabric.name}: {r.pattern}{algorithm} of {size_text(r.size)}, placed {found.placement}"


def remarks(found: Study) -> list[str]:
    """What is unknown, assumed, and left out: a line each."""
    f = found.fabric
    lines = []
    if f.unknown:
        lines.append(f"Not known: {', '.join(f.unknown)}: only the nodes' own ports bound anything.")
    if f.assumed:
        lines.append(f"Assumed by you: {', '.join(f.assumed)}.")
    if f.domain_rate is not None:
        lines.append("Inside a node or NVLink domain each GPU gives at most what its links carry together.")
    if not f.latency_ns:
        lines.append("No latency is stated for this fabric: times are of bytes alone.")
    if found.factor is not None:
        lines.append(f"The library's factor {found.factor.factor:.3f}, apart from the fabric: {found.factor.words}.")
    if any(one.bound for row in found.curves for one in row):
        lines.append(
            "Where it says at least, unlike flows were not played out: the time is the fullest link's, a bound."
        )
    return [*lines, *LIMITS]


def _binding(one: Answer) -> str:
    if not one.bindings:
        return ""
    first = one.bindings[0]
    kind = first.name.split()[0]
    level = [other.name for other in one.bindings[1:] if other.share > 0.995 and not other.name.startswith(kind)]
    return first.where + (f"; {', '.join(level)} as full" if level else "")


def print_study(console: Console, found: Study, unit: str) -> None:
    """Print curves, what binds, other placements, one more link, and the limits."""
    from linkgauge.view.screen import Table

    console.print(title_of(found))
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in ("GPUs", "nodes"):
        table.add_column(name, justify="right")
    table.add_column("rule", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column(f"{unit} a GPU", justify="right", no_wrap=True)
    if found.factor is not None:
        table.add_column("with library", justify="right", no_wrap=True)
    table.add_column("fullest", overflow="fold")
    for row in found.curves:
        for one in row:
            goodput = _rate(one.goodput, unit)
            if one.quantiles is not None and one.quantiles[0] < one.quantiles[1] * 0.9995:
                goodput += f" ({_rate(one.quantiles[0], unit)} to {_rate(one.quantiles[1], unit)})"
            if one.reached is not None and one.reached < one.goodput * 0.995:
                goodput = f"at most {goodput}, found {_rate(one.reached, unit)}"
            elif one.bound:
                goodput = f"at most {goodput}"
            took = f"at least {_time(one.seconds)}" if one.bound else _time(one.seconds)
            library = [] if found.factor is None else [_rate(one.with_library, unit)]
            table.add_row(str(one.gpus), str(one.nodes), one.rule, took, goodput, *library, _binding(one))
    console.print(table)
    most = found.curves[-1]
    if len(most[0].bindings) > 1 or len(most) > 1:
        console.print(f"Links at {most[0].gpus} GPUs, the fullest of each class, as a share of the time:")
        for one in most:
            shares = ", ".join(f"{b.name} {percent(b.share)}" for b in one.bindings)
            console.print(f"  {one.rule}: {shares}")
    for words, listed in (("Elsewhere placed", found.placements), ("One more link of a kind, everywhere", found.links)):
        if listed:
            console.print(f"{words}, at {most[0].gpus} GPUs ({unit} a GPU):")
            for asked in listed:
                console.print(f"  {asked.change}: {_changed(asked, most, unit)}")
    for line in beside_words(found, unit):
        console.print(line)
    for line in remarks(found):
        console.print(line)


def beside_words(found: Study, unit: str) -> list[str]:
    """The job's fair shares beside others: a line, and one for each rule."""
    if not found.shares:
        return []
    lines = [f"Beside {found.beside}, at {found.curves[-1][0].gpus} GPUs ({unit} a GPU):"]
    for one in found.shares:
        now = f"{_rate(one.beside, unit)} of {_rate(one.alone, unit)} alone ({percent(one.beside / one.alone)})"
        if one.quantiles is not None:
            low, _, high = one.quantiles
            now += f"; 5th to 95th percentile of draws {_rate(low, unit)} to {_rate(high, unit)}"
        lines.append(f"  {one.rule}: {now}" + (", jobs paced as a whole" if one.how == "paced" else ""))
    return lines


def _changed(asked: WhatIf, now: Sequence[Answer], unit: str) -> str:
    before = {one.rule: one.goodput for one in now}
    parts = []
    for rule, value in asked.goodput.items():
        ratio = value / before[rule] - 1
        parts.append(f"{rule} {_rate(value, unit)}" + ("" if abs(ratio) < 5e-4 else f" ({change(ratio, 1)})"))
    return ", ".join(parts)


def curve(found: Study, unit: str, statements: Sequence[tuple[str, float]] = ()) -> charts.Chart:
    """Goodput a GPU over counts of GPUs, a line a rule; `statements` are a paper's figures (words, bytes per second).

    Of `best` a dashed line shows what a found way reaches where it is less; of `static` a band the quantiles.
    """
    alt = charts.altair()
    scale = 1 / RATE_UNITS[unit]
    lines: list[dict[str, Any]] = []
    for row in found.curves:
        for one in row:
            shown = {"gpus": one.gpus, "rule": one.rule, "goodput": charts.short(one.goodput, scale)}
            if one.quantiles is not None:
                shown["low"], shown["high"] = (charts.short(value, scale) for value in one.quantiles)
            shown["fullest"] = _binding(one)
            lines.append(shown)
            if one.reached is not None and one.reached < one.goodput * 0.995:
                lines.append({**shown, "rule": "best, found", "goodput": charts.short(one.reached, scale)})
            if one.with_library is not None:
                name = f"{one.rule}, with the library's factor"
                lines.append({**shown, "rule": name, "goodput": charts.short(one.with_library, scale)})
    rules = list(dict.fromkeys(line["rule"] for line in lines))
    colors = [_RULE_COLORS.get(rule.split(",")[0].split(":")[0], "#56B4E9") for rule in rules]
    dashes = [[5, 3] if "found" in rule else [2, 2] if "library" in rule else [1, 0] for rule in rules]
    # Rules often give the same: the later ones are thinner, so that those below stay to be seen.
    widths = [2 + 2 * (len(rules) - 1 - place) for place in range(len(rules))]
    legend = alt.Legend(title=None, orient="top", labelLimit=320, columns=0, symbolOpacity=1)
    counts = sorted({line["gpus"] for line in lines})
    x = alt.X(
        "gpus:Q", title="GPUs", scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=counts, labelExpr="format(datum.value, ',d')", labelOverlap=True),
    )  # fmt: skip
    y = alt.Y("goodput:Q", title=f"goodput a GPU ({unit})", scale=alt.Scale(zero=True))
    color = alt.Color("rule:N", scale=alt.Scale(domain=rules, range=colors), legend=legend)
    dash = alt.StrokeDash("rule:N", scale=alt.Scale(domain=rules, range=dashes), legend=legend)
    base = alt.Chart(charts.data(lines)).encode(x=x, color=color)
    tip = [alt.Tooltip("rule:N"), alt.Tooltip("gpus:Q"), alt.Tooltip("goodput:Q"), alt.Tooltip("fullest:N")]
    parts = [
        alt.Chart(charts.data([line for line in lines if line["rule"] == rule]))
        .mark_line(strokeWidth=width)
        .encode(x=x, y=y, color=color, strokeDash=dash)
        for rule, width in zip(rules, widths, strict=True)
    ]
    parts.append(base.mark_point(filled=True, size=30, opacity=1).encode(y=y, tooltip=tip))
    if any("low" in line for line in lines):
        band = alt.Chart(charts.data([line for line in lines if "low" in line])).encode(x=x, color=color)
        parts.insert(0, band.mark_area(opacity=0.2, line=False).encode(y=alt.Y("low:Q", title=""), y2="high:Q"))
    if statements:
        said = [
            {"gpus": counts[-1], "goodput": charts.short(value, scale), "words": text} for text, value in statements
        ]
        ruled = alt.Chart(charts.data(said))
        parts.append(ruled.mark_rule(color=charts.LIMIT_COLOR, strokeDash=[6, 4]).encode(y="goodput:Q"))
        parts.append(
            ruled.mark_text(align="right", dy=10, dx=-4, color=charts.LIMIT_COLOR, fontSize=11).encode(
                x=x, y="goodput:Q", text="words:N"
            )
        )
    return alt.layer(*parts)


def write_chart(
    found: Study, unit: str, path: Path, statements: Sequence[tuple[str, float]] = (), prose: Sequence[str] = ()
) -> None:
    """Write the curves as a figure, with what is said of them; its form is that of the name's ending (FORMATS)."""
    from linkgauge.view.figure_files import write_figure

    with charts.drawing():
        chart = curve(found, unit, statements).properties(width=460, height=280)
        spec = charts.spec_of(charts.themed(chart, title_of(found), [*prose, LIMITS[0]]), validate=False)
    write_figure(spec, path)


def page(found: Sequence[Curves], title: str, unit: str) -> str:
    """One HTML file that opens offline: curves, what binds, what would change it, sources and limits."""
    from linkgauge.view.page import Page

    made = Page()
    with charts.drawing():
        made.html("<main>")
        made.heading(1, title)
        for number, one in enumerate(found):
            _section(made, one, unit, number, len(found) > 1)
        made.html("</main>")
        return made.document(title)


def _section(made: Page, curves: Curves, unit: str, number: int, several: bool) -> None:
    found = curves.study
    if several:
        made.heading(2, title_of(found))
    for line in (*curves.prose, *remarks(found)):
        made.note(line)
    caption = f"Goodput a GPU by routing rule, {unit}"
    made.chart(curve(found, unit, curves.statements), caption, f"curves{number}", 760, 300)
    made.heading(3, "What binds")
    made.static_table(
        [("GPUs", False), ("rule", True), ("time", False), (f"{unit} a GPU", False), ("fullest links", True),
         ("shares of the time by class", True)],
        [
            (str(one.gpus), one.rule, _time(one.seconds), _rate(one.goodput, unit), _binding(one),
             ", ".join(f"{b.name} {percent(b.share)}" for b in one.bindings))
            for row in found.curves
            for one in row
        ],
    )  # fmt: skip
    for words, listed in (("Elsewhere placed", found.placements), ("One more link of a kind", found.links)):
        if listed:
            made.heading(3, words)
            rules = list(listed[0].goodput)
            made.static_table(
                [("", True), *((f"{rule}, {unit}", False) for rule in rules)],
                [(one.change, *(_rate(one.goodput[rule], unit) for rule in rules)) for one in listed],
            )
    if found.shares:
        made.heading(3, "Beside other jobs")
        for line in beside_words(found, unit):
            made.note(line)
    made.heading(3, "Where the figures come from")
    made.facts([(name, source) for name, source in found.fabric.sources.items()])
