"""The papers' figures on the terminal: the list, a figure's points, what settings give, where the pictures are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from linkgauge.model.quantity import format_duration as time_text
from linkgauge.plan.papers import Figure, LeftOut
from linkgauge.stats.requests import RequestVerdict
from linkgauge.view.paper_claims import DIFFERS, FigureVerdict
from linkgauge.view.paper_points import PUBLISHED, Drawing
from linkgauge.view.reproduce import Effect
from linkgauge.view.requests import request_lines
from linkgauge.view.screen import table_of, text_of
from linkgauge.view.units import unit_text


def print_figures(out: Console, figures: Sequence[Figure], left_out: Sequence[LeftOut]) -> None:
    """List the papers' figures with their plans, and those that have none with the reason."""
    for paper in dict.fromkeys(one.paper for one in figures):
        mine = [one for one in figures if one.paper == paper]
        out.print(text_of(f"{paper}: {mine[0].title}", "bold"))
        table = table_of("figure", "covers", "plan", "nodes", "what")
        for one in mine:
            counts = "; on 2, 3, ... devices" if one.ranks == "each" else ""
            what = text_of(f"{one.load().description} {one.estimator} in {unit_text(one.unit)}{counts}")
            table.add_row(one.name, ", ".join(one.covers), one.plan, str(one.nodes), what)
        out.print(table)
        for other in left_out:
            if other.paper == paper:
                out.print(text_of(f"  not repeated: {', '.join(other.covers)}: {other.why}"))
        out.print()
    out.print(
        "linkgauge reproduce PAPER:FIGURE measures one here; of more nodes with --hosts A,B or, in a job, --nodes all."
    )


def print_pictures(out: Console, pictures: Sequence[tuple[Path | None, str]]) -> None:
    """Print where the pictures are, and why one is not there."""
    for path, note in pictures:
        if path is None:
            out.print(text_of(f"not drawn: {note}"))
        else:
            out.print(text_of(f"drawn in {path}" + (f" ({note})" if note else "")))


def print_verdict(out: Console, verdict: FigureVerdict) -> None:
    """Print what the paper states of a figure beside what the run has of it, and the verdict."""
    if verdict.judged:
        table = table_of("the paper states", "in", "verdict", "found", words=True)
        for one in verdict.judged:
            table.add_row(*map(text_of, (one.claim.says, one.claim.read, one.verdict, one.why)))
        out.print(table)
    why = f": {verdict.why}" if verdict.why and not verdict.judged else ""
    out.print(text_of(f"{verdict.figure.name} is {verdict.verdict}{why}" if verdict.verdict != DIFFERS else
                      f"{verdict.figure.name} differs", "bold"))  # fmt: skip


def print_requests(out: Console, verdicts: Iterable[Sequence[RequestVerdict]]) -> None:
    """Print which of the figure's settings did not hold: its claims are then of something else."""
    for line in request_lines(one for each in verdicts for one in each if one.state == "not_held"):
        out.print(text_of(line, "bold"))


def print_numbers(out: Console, figure: Figure, of: str = "") -> None:
    """Print a figure's check numbers, and of what they are: of its statistic, else as `of` says."""
    of = of or f"{figure.estimator} in {unit_text(figure.unit)}"
    out.print(text_of(f"{figure.name} ({figure.title}), {of}; the paper:", "bold"))
    for text in figure.numbers:
        out.print(text_of("  " + text))


def print_effects(out: Console, figure: Figure, effects: Sequence[Effect]) -> None:
    """Print what each setting gives over the default, above the paper's numbers; what nothing reads in one line."""
    table = table_of("setting", "case", "default", "with it", "95 % interval", "verdict")
    for one in effects:
        if one.unread:
            continue
        change = interval = "-"
        if one.shift is not None:
            change = f"{1 / (1 + one.shift.share):.2f}x"
            interval = f"{1 / (1 + one.shift.high):.2f} to {1 / (1 + one.shift.low):.2f}, {one.pairs} pairs"
        table.add_row(one.setting, text_of(one.words), time_text(one.default_ns), change, interval, one.verdict)
    if table.row_count:
        out.print(table)
    for why in dict.fromkeys(one.unread for one in effects if one.unread):
        seen = [one for one in effects if one.unread == why and one.verdict not in ("no change seen", "cannot tell")]
        odd = f"; yet {len(seen)} of its cases differ: launches do" if seen else ""
        out.print(text_of(f"{why}{odd}"))
    if not effects:
        out.print(text_of("no case of these settings could be measured here: 'linkgauge show' says why"))
    print_numbers(out, figure, "median over median")


def print_reproduced(out: Console, figure: Figure, drawings: Sequence[Drawing]) -> None:
    """Print each picture's points by the paper's estimator and unit, above the paper's numbers."""
    for drawing in drawings:
        points = [point for point in drawing.points if point.status != PUBLISHED]
        if not points:
            continue
        head = f"{figure.estimator} {drawing.quantity}"
        panels = ("panel",) if any(point.panel for point in points) else ()
        table = table_of(*panels, "series", drawing.picture.x, head, "why")
        table.title, table.title_justify = text_of(drawing.picture.name, "bold"), "left"
        for column in table.columns[: len(panels) + 1]:
            column.justify = "left"
        for point in points:
            value = drawing.shown(point.value) if point.value is not None else point.status
            cells = (*((point.panel,) if panels else ()), point.series, point.place)
            table.add_row(*map(text_of, cells), value, text_of(point.reason if point.value is None else ""))
        out.print(table)
        for line in drawing.remarks:
            out.print(text_of(line))
        out.print()
    print_numbers(out, figure)
