"""What `linkgauge run` prints when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from linkgauge.view.answer import first_answers
from linkgauge.view.applications import application_tables
from linkgauge.view.between import (
    between_lines,
    card_lines,
    class_lines,
    distance_lines,
    gpudirect_lines,
    lost_line,
    places_line,
)
from linkgauge.view.first import FirstLook
from linkgauge.view.judged import findings_of
from linkgauge.view.loads import interference_lines
from linkgauge.view.rounds import rounds_parts
from linkgauge.view.sentence import sentence
from linkgauge.view.tables import counts_line, status_tables
from linkgauge.view.tasks import apart_lines, task_table

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.store.run import Run


def print_summary(run: Run, console: Console, unit: str = "GB/s") -> None:
    """Print the run in one sentence, the best of every task, what was skipped or went wrong, and the cases' count.

    `unit` is one of linkgauge.view.units.RATE_UNITS. Needs neither Altair nor DuckDB.
    """
    look = FirstLook.of(run)
    print_head(look, findings_of(run), console, unit)
    watched = rounds_parts(look.results) if run.info.get("asked", {}).get("every_s") else []
    for table in [
        *interference_lines(look.results),
        *application_tables(look.results),
        *watched,
        *status_tables(look.results),
    ]:
        console.print("", table, sep="\n")
    console.print("", counts_line(look.results), sep="\n")


def print_head(look: FirstLook, findings: Sequence[Any], console: Console, unit: str) -> None:
    """Print a run in one sentence, and the best of every task."""
    console.print(Text(sentence(look, findings, unit), style="bold"), "", sep="\n")
    shown, more = first_answers(look.answers)
    if shown:
        console.print(task_table(shown, unit, console.width))
    if more:
        names = ", ".join(dict.fromkeys(one.fastest.row["pattern"] for one in more))
        console.print(Text(f"{len(more)} more: {names}", style="dim"))
    for line in apart_lines(look.answers, unit):
        console.print(Text(line, style="yellow"))
    places = places_line(look.results.kinds)
    crossings = look.results.crossings.values()
    said = (*between_lines(crossings), *card_lines(look.results), *class_lines(crossings),
            *gpudirect_lines(look.results.run), *distance_lines(look.results, unit))  # fmt: skip
    lost = lost_line(look.results.run.info)
    for line in (*(text for text in (places, lost) if text), *said):
        console.print(Text(line))
