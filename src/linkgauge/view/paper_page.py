"""All figures of a run: each drawn and judged, as a table on the terminal and as a page that opens offline."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from linkgauge.files import write_atomically
from linkgauge.plan.joined import why_alone
from linkgauge.plan.papers import Figure
from linkgauge.view.paper_claims import NOT_JUDGED, FigureVerdict, judge, status_of
from linkgauge.view.paper_points import Drawing, drawings
from linkgauge.view.reproduce import covered, pictures
from linkgauge.view.screen import table_of, text_of

if TYPE_CHECKING:
    from linkgauge.store.run import Run

__all__ = ["FigureOfRun", "all_figures", "print_verdicts", "status_of", "write_page"]
PAGE = "figures.html"


@dataclasses.dataclass(frozen=True)
class FigureOfRun:
    """A figure with its verdict, and where its pictures lie, or why they are not drawn."""

    verdict: FigureVerdict
    drawings: tuple[Drawing, ...] = ()
    pictures: tuple[tuple[Path | None, str], ...] = ()


def all_figures(run: Run, figures: Sequence[Figure]) -> list[FigureOfRun]:
    """Draw and judge figures of a run into its folder."""
    nodes = max(1, len({host for launch in run.launched for host in launch.hosts}))
    found = []
    for figure in figures:
        drawn = [] if figure.against else drawings(run, figure)
        if not any(one.measured for one in drawn):
            reasons = dict.fromkeys(line.rstrip(".") for one in drawn for line in one.not_measured)
            why = "; ".join(reasons) or why_alone(figure, nodes) or "this run has no case of it"
            found.append(FigureOfRun(FigureVerdict(figure, (), why), tuple(drawn)))
            continue
        made = pictures(run, figure, drawn, run.path)
        found.append(FigureOfRun(judge(run, figure, drawn), tuple(drawn), tuple(made)))
    return found


def print_verdicts(out: Console, found: Sequence[FigureOfRun]) -> None:
    """Print each figure's verdict and why, and how many there are of each."""
    table = table_of("figure", "covers", "verdict", "why", words=True)
    for one in found:
        verdict = one.verdict
        table.add_row(*map(text_of, (verdict.figure.name, covered(verdict.figure.covers), verdict.verdict,
                                     verdict.why)))  # fmt: skip
    out.print(table)
    out.print(text_of(_counts(found), "bold"))


def _counts(found: Sequence[FigureOfRun]) -> str:
    verdicts = [one.verdict.verdict for one in found]
    return ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(sorted(verdicts)))


def write_page(run: Run, found: Sequence[FigureOfRun]) -> Path:
    """Write the page of all figures into the run folder, and return its path."""
    from linkgauge.view.page import Page, escape

    page = Page()
    page.html("<main>")
    page.heading(1, "The papers' figures on this machine")
    page.note(_counts(found))
    page.static_table(
        [("figure", True), ("verdict", True), ("why", True)],
        [(one.verdict.figure.name, one.verdict.verdict, one.verdict.why) for one in found],
    )
    for one in found:
        figure, verdict = one.verdict.figure, one.verdict
        page.heading(2, f"{figure.name}: {verdict.verdict}", figure.plan)
        page.note(f"{figure.title}, {covered(figure.covers)}")
        if verdict.verdict == NOT_JUDGED:
            page.note(verdict.why)
        if verdict.judged:
            page.static_table(
                [("the paper states", True), ("in", True), ("verdict", True), ("found", True)],
                [(each.claim.says, each.claim.read, each.verdict, each.why) for each in verdict.judged],
            )
        for path, note in one.pictures:
            if path is None:
                page.note(f"not drawn: {note}")
                continue
            content = base64.b64encode(path.read_bytes()).decode()
            page.html(f'<p><img alt="{escape(path.stem)}" src="data:image/svg+xml;base64,{content}"></p>')
        if one.pictures:
            page.note("The paper: " + " ".join(figure.numbers))
    page.html("</main>")
    path = run.path / PAGE
    write_atomically(path, page.document("The papers' figures").encode())
    return path
