"""What was measured by turns: beside loads, beside other tools, and over the rounds of a watch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from linkgauge.errors import UsageError
from linkgauge.expect.network import Network
from linkgauge.expect.sharing import FairShare, part_words, share_of
from linkgauge.findings.read import system_of
from linkgauge.model.quantity import format_duration
from linkgauge.model.shape import as_it_is, checked, each, number, read_json, table, text, whole
from linkgauge.stats.interference import LEAST_WINDOWS, interferences
from linkgauge.stats.rounds import OverRounds, SlowRound, core_shares, over_rounds, slow_rounds
from linkgauge.store.run import Run
from linkgauge.view import charts
from linkgauge.view.charts import Chart
from linkgauge.view.results import Results
from linkgauge.view.screen import titled_table
from linkgauge.view.units import digits, range_text, size_text, time_text


def interference_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the columns and a row for each case with loads: its slow-downs, and what fair shares explain of them.

    Both are empty where no case has any.
    """
    titles = {row.identity: results.words(row) for row in results.rows if row.case.background}
    found = [one for one in interferences(results.run) if one.identity in titles] if titles else []
    if not found:
        return [], []
    system, network = system_of(results.run), Network.of_run(results.run)
    fair = {one.identity: _fair(share_of(system, one, network)) for one in found}
    tails = sorted({one.quantile for each in found for one in each.slow_downs[1:]})
    columns = ["case", "alone", "background", "slow-down", "95 % interval", "mean", *(f"p{q * 100:.0f}" for q in tails),
               "load keeps", *(["fair shares predict"] if any(fair.values()) else [])]  # fmt: skip
    rows = []
    for one in sorted(found, key=lambda one: titles[one.identity]):
        middle = one.slow_downs[0]
        at = {slow.quantile: slow for slow in one.slow_downs}
        kept = [f"{100 * load.kept:.0f} %" for load in one.loads if load.kept is not None]
        interval = "" if middle.interval is None else " to ".join(map(digits, middle.interval))
        rows.append([
            titles[one.identity], time_text(one.alone_ns), time_text(one.beside_ns),
            _factor(middle.factor) if middle.known else "unknown",
            interval or f"{one.windows} of {LEAST_WINDOWS} windows",
            _factor(one.of_means) if middle.known else "-",
            *(_factor(at[q].factor) if q in at and middle.known else "-" for q in tails),
            ", ".join(kept) or "-", *([fair[one.identity] or "not known"] if any(fair.values()) else []),
        ])  # fmt: skip
    return columns, rows


def interference_lines(results: Results) -> list[RenderableType]:
    """Return what cases lose beside their loads, a case and its figures below it; none where no case has any.

    A case with its loads is too long for a column beside so many figures.
    """
    columns, rows = interference_rows(results)
    if not rows:
        return []
    lines = [Text("with background load: time over time alone, alternated", style="bold")]
    for case, alone, beside, factor, interval, *others in rows:
        rest = ", ".join(f"{name} {value}" for name, value in zip(columns[5:], others, strict=True) if value != "-")
        figures = f"{alone} alone, {beside} with the load: {factor} ({interval})"
        lines += [Text(case), Text("  " + "; ".join(filter(None, (figures, rest))))]
    return [Group(*lines)]


def _fair(share: FairShare | None) -> str:
    """Return the slow-down that sharing a link or a memory explains, and which; empty where it is not known."""
    if share is None:
        return ""
    ends = range_text(_factor(share.low), _factor(share.high))
    unknown = f" (rate of {part_words(share.unknown)} unknown)" if share.unknown else ""
    return f"{ends}{f' on {share.words}{share.by_weights}' if share.part else ''}{unknown}"


def _factor(value: float) -> str:
    return f"{digits(value)}x"


_MAX_BYTES = 16 << 20
BESIDE_COLUMNS = ("peer", "test", "ranks", "memory", "size", "ours", "the peer's", "ratio of", "ratio", "95 %", "pairs",
           "verdict")  # fmt: skip
BESIDE_NOTE = (
    "The same cases measured in turn, both by the other tool's own estimator; the ratio is ours over the other's, its "
    "median over pairs of launches. It holds where the median is in range and the interval narrow enough to say so."
)

_ROW_SHAPES = {
    **dict.fromkeys(("peer", "test", "figure", "verdict"), text), **dict.fromkeys(("ranks", "size", "pairs"), whole()),
    **dict.fromkeys(("ours_ns", "peer_ns", "ratio", "low", "high"), number()), "memory": each(text),
}  # fmt: skip
_ROW = table(_ROW_SHAPES, needed=_ROW_SHAPES)


def beside_rows(run: Run) -> list[list[str]]:
    """Return the rows of the table in words; none where there is no such file, and none of a row that is damaged."""
    path = run.path / "with" / "ratios.json"
    if not path.exists():
        return []
    rows = []
    with contextlib.suppress(UsageError):
        for one in read_json(path, _MAX_BYTES, "the table of ratios", each(as_it_is)):
            with contextlib.suppress(UsageError):
                rows.append(_cells(checked(one, _ROW, str(path))))
    return rows


def _cells(one: dict[str, Any]) -> list[str]:
    return [
        one["peer"], one["test"], str(one["ranks"]), " to ".join(dict.fromkeys(one["memory"])), size_text(one["size"]),
        time_text(one["ours_ns"]), time_text(one["peer_ns"]), f"{one['figure']}s", f"{one['ratio']:.3f}",
        f"{one['low']:.3f} to {one['high']:.3f}", str(one["pairs"]), one["verdict"],
    ]  # fmt: skip


ROUND_COLUMNS = ("case", "rounds", "median", "spread", "slowest round", "trend")
ROUND_NOTE = (
    "Of each round the median. Spread: the rounds' interquartile range over their median. "
    "Trend: from the first to the last round, by Theil and Sen's slope, where its 95 % interval leaves 0 out."
)
_SHOWN = 12
_CASES = 6


def rounds_told(results: Results) -> tuple[list[list[str]], list[str]]:
    """Return the rows of ROUND_COLUMNS, and a line for each slow round; both empty where no case has enough rounds."""
    cases = over_rounds(results.run)
    names = {case.row.case_key: results.words(case.row) for case in cases}
    cases.sort(key=lambda case: names[case.row.case_key])
    rows = [[names[case.row.case_key], *_figures(case)] for case in cases]
    return rows, [_line(one, names, len(cases)) for one in slow_rounds(cases, core_shares(results.run))]


def rounds_parts(results: Results) -> list[RenderableType]:
    """Return what `linkgauge show` prints of a run with many rounds; nothing of others."""
    rows, lines = rounds_told(results)
    if not rows:
        return []
    table = titled_table("over the rounds", ROUND_COLUMNS, ROUND_COLUMNS[1:])
    for column in table.columns:
        column.ratio = 1 if column is table.columns[0] else 0
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


def rounds_chart(results: Results) -> Chart:
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
