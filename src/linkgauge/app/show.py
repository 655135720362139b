"""`linkgauge show`, `linkgauge report` and `linkgauge plot`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linkgauge.app.command_line import PATH, command, flag, option, run_argument
from linkgauge.app.options import offers, repeated, switch, system_to_judge_by, takes, unit_of_rates, value
from linkgauge.app.output import TABLE, output_options, print_data

if TYPE_CHECKING:
    from rich.console import Console


@command("show", epilog="Example: linkgauge show runs/2026-01-02 --pattern allreduce")
@run_argument()
@flag("--all", "everything", help="Add every table: sizes by mechanism, pairs as matrices, limits, skipped cases.")
@option("--pattern", metavar="NAME", help="Show every table of this pattern alone.")
@offers(unit=unit_of_rates())
@offers(system=system_to_judge_by())
@flag("--derived", help="Show what curves alone give: flat latency, n1/2, 95 %, blocks.")
@output_options(": one object a case and lane, or a curve with --derived")
def show_command(
    run: Path, everything: bool, pattern: str | None, unit: str, system: str, derived: bool, form: str
) -> None:
    """Show a run: the verdict, the peaks of each path and collective, and the findings."""
    from linkgauge.store.run import load
    from linkgauge.view.results import Results
    from linkgauge.view.units import rate_unit

    rate_unit(unit)
    loaded = load(run)
    if system:
        from linkgauge.system import catalog
        from linkgauge.system.dump import to_data

        loaded.info["system"] = to_data(catalog.load(system))
    results = Results(loaded)
    if pattern is not None:
        pattern = _pattern_of(pattern)
        results.keep_pattern(pattern)
    if form != TABLE:
        print_data(_rows(results, pattern, derived), form)
        return
    from linkgauge.view import screen, tables
    from linkgauge.view.answer import FirstLook
    from linkgauge.view.judged import findings_of
    from linkgauge.view.limits import Limits
    from linkgauge.view.summary import print_first_screen

    console = screen.console()
    if derived:
        console.print(*tables.derived(results, console.width, unit), sep="\n")
        return
    limits = Limits(results.run)
    if pattern is None:
        print_first_screen(FirstLook(results, limits), findings_of(loaded), console, unit)
    if everything or pattern is not None:
        console.print("", tables.everything(results, console.width, unit, limits), sep="\n")
    elif results.rows:
        print_next(console, run)


def print_next(console: Console, run: Path) -> None:
    """Print what to type after a run's first screen, each with what it gives."""
    import shlex

    from rich.text import Text

    from linkgauge.view.screen import Table

    name = shlex.quote(str(run))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for typed, gives in (
        (f"linkgauge show {name} --all", "every table"),
        (f"linkgauge check {name}", "is this machine as fast as it should be?"),
        (f"linkgauge advise {name}", "which mechanism for which size"),
    ):
        table.add_row(Text(f"  {typed}"), Text(f"  {gives}"))
    console.print("", "Next:", table, sep="\n")


@command("report", epilog="Example: linkgauge report runs/2026-01-02 -o report.html")
@run_argument()
@option("-o", "--output", type=PATH, metavar="FILE", help="File to write; report.html in the run folder by default.")
@offers(unit=unit_of_rates())
def report_command(run: Path, output: Path | None, unit: str) -> None:
    """Make a run's report: one HTML file that opens offline."""
    from linkgauge.store.run import load
    from linkgauge.view.report import write_report

    loaded = load(run)
    print(write_report(loaded, output or loaded.path / "report.html", unit))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What `linkgauge plot` draws, of what, and where to."""

    figure: str = value(
        "NAME",
        "Figure: goodput, busbw, latency, boxes, distances, matrix, rounds, shifts, topology, devices, ratio, "
        "timeline, distribution, shares; of applications scaling, kinds, ranks; the most telling by default.",
        "",
    )
    slide: bool = switch("Slide of 16:9 with a title that says the peak: busbw for collectives, one limit line.")
    output: Path | None = value(
        "FILE", "File to write: .pdf, .svg, .png or .json; FIGURE.pdf by default.", flags="-o --output"
    )
    pattern: str = value("NAME", "Pattern to draw.", "")
    size: str | None = value("SIZE", "Size to draw, such as 64KiB.")
    transport: tuple[str, ...] = repeated("NAME", "Transport or mechanism to draw; repeatable.")
    on: str | None = value("ORDINALS", "Devices to draw, such as 0,1.")
    case: str = value("KEY", "Case to draw, by its key or the beginning of it.", "")
    quantity: str = value("NAME", "Quantity of a matrix: goodput, latency, share or hops.", "")
    unit: str = unit_of_rates()


@command("plot", epilog="Example: linkgauge plot runs/2026-01-02 --slide -o allreduce.png")
@run_argument()
@takes(Drawn)
def plot_command(asked: Drawn, run: Path) -> None:
    """Draw one figure of a run, fit to print."""
    from linkgauge.errors import UsageError
    from linkgauge.model.quantity import parse_size
    from linkgauge.store.run import load
    from linkgauge.view.figure_files import write_figure
    from linkgauge.view.figures import Selection, default_figure, draw
    from linkgauge.view.limits import Limits
    from linkgauge.view.picture_facts import facts_of
    from linkgauge.view.results import Results
    from linkgauge.view.units import rate_unit

    rate_unit(asked.unit)
    words = [word.strip() for word in asked.on.split(",")] if asked.on else []
    if not all(word.isascii() and word.isdecimal() and len(word) <= 18 for word in words):
        raise UsageError(f"'{asked.on}' are not devices: expected ordinals such as 0,1")
    selection = Selection(
        pattern=_pattern_of(asked.pattern) if asked.pattern else "",
        size_bytes=parse_size(asked.size) if asked.size is not None else None,
        transports=asked.transport,
        case_key=asked.case,
        devices=tuple(map(int, words)),
        quantity=asked.quantity,
        unit=asked.unit,
    )
    loaded = load(run)
    results, limits = Results(loaded), Limits(loaded)
    spec, note = draw(results, limits, asked.figure, selection, asked.slide)
    path = asked.output or Path(f"{asked.figure or default_figure(results, limits, selection)}.pdf")
    write_figure(spec, path, facts_of(loaded))
    print(path)
    if note:
        click.echo(f"note: {note}", err=True)


def _pattern_of(word: str) -> str:
    """The pattern by the name that other tools have for it too."""
    from linkgauge.model.case import DIMENSIONS

    return str(DIMENSIONS["pattern"].from_text(word)[0])


def _rows(results: Any, pattern: str | None, derived: bool) -> list[Any]:
    if derived:
        from linkgauge.view.derived import derived_figures

        return [one.plain() for one in derived_figures(results)]
    from linkgauge.stats.moved import moved_words, state_words
    from linkgauge.stats.requested import verdicts_of
    from linkgauge.stats.summary import summarize

    said = {identity: {"moved": moved_words(known), "requests": state_words(verdicts_of(known))}
            for identity, known in results.known.items()}  # fmt: skip
    nothing = {"moved": "", "requests": ""}
    return [row | said.get((row["case_key"], row["launch"], row["repeat"], row["attempt"]), nothing)
            for row in summarize(results.run).to_pylist() if pattern in (None, row["pattern"])]  # fmt: skip
