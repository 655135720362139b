"""How cases went over the rounds of a watch: the table of `show`, and what the report draws."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from linkgauge.model.quantity import format_duration
from linkgauge.stats.rounds import OverRounds, SlowRound, core_shares, over_rounds, slow_rounds
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.units import digits, time_text

COLUMNS = ("case", "rounds", "median", "spread", "slowest round", "trend")
NOTE = (
    "Of each round the median. Spread: the rounds' interquartile range over their median. "
    "Trend: from the first to the last round, by Theil and Sen's slope, where its 95 % interval leaves 0 out."
)
_SHOWN = 12
_CASES = 6


def rounds_told(results: Results) -> tuple[list[list[str]], list[str]]:
    """Return the rows of COLUMNS, and a line for each slow round; both empty where no case has enough rounds."""
    cases = over_rounds(results.run)
    names = {case.row["case_key"]: results.words(case.row) for case in cases}
    cases.sort(key=lambda case: names[case.row["case_key"]])
    rows = [[names[case.row["case_key"]], *_figures(case)] for case in cases]
    return rows, [_line(one, names, len(cases)) for one in slow_rounds(cases, core_shares(results.run))]


def rounds_parts(results: Results) -> list[RenderableType]:
    """Return what `linkgauge show` prints of a run with many rounds; nothing of others."""
    rows, lines = rounds_told(results)
    if not rows:
        return []
    table = Table(title="over the rounds", title_justify="left", title_style="bold", box=None, pad_edge=False,
                  header_style="bold")  # fmt: skip
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", overflow="fold", ratio=0 if number else 1)
    for row in rows:
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    if lines:
        more = f"; {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        parts.append(Text("slow rounds: " + "; ".join(lines[:_SHOWN]) + more))
    return parts


def _figures(case: OverRounds) -> list[str]:
    worst = int(case.factors.argmax())
    slope, low, high = case.trend
    moves = low > 0 or high < 0
    return [
        str(len(case.repeats)),
        time_text(case.middle_ns),
        f"{100 * case.spread:.1f} %",
        f"{digits(case.factors[worst])}x, after {format_duration(case.began_ns[worst])}",
        f"{100 * slope:+.1f} %" if moves else "steady",
    ]


def _line(one: SlowRound, names: Mapping[str, str], cases: int) -> str:
    who = one.who or (names[one.cases[0]] if len(one.cases) == 1 else f"{len(one.cases)} of {cases} cases")
    beside = f" ({one.beside})" if one.beside else ""
    return f"after {format_duration(one.began_ns)} {who} {digits(one.factor)}x{beside}"


def time_line(results: Results) -> Chart:
    """Return the rounds of the cases that moved most, each over its own median, by hours."""
    cases = sorted(over_rounds(results.run), key=lambda case: -float(case.factors.max()))[:_CASES]
    alt = charts.altair()
    rows = [
        {"case": results.words(case.row), "hours": round(float(began) / 3.6e12, 5), "factor": round(float(factor), 5)}
        for case in cases
        for began, factor in zip(case.began_ns, case.factors, strict=True)
    ]
    names = list(dict.fromkeys(row["case"] for row in rows))
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=500)
    return (
        alt.Chart(charts.data(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("hours:Q", title="hours since the first sample"),
            y=alt.Y("factor:Q", title="time over the case's median", scale=alt.Scale(zero=False)),
            color=alt.Color("case:N", sort=names, title=None, legend=legend),
            tooltip=["case:N", "hours:Q", "factor:Q"],
        )
    )
