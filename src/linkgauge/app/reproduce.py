"""`linkgauge reproduce`: a paper's figure measured here, with the paper's numbers beside it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import click

from linkgauge.app.command_line import argument, command
from linkgauge.app.dimension_options import AsNcclTests
from linkgauge.app.options import switch, takes, value
from linkgauge.app.request import EarlierRun, PlanChoice, Presentation, Request, Rounds
from linkgauge.app.run import RUN_EXITS, enter_allocation, refuse_ranks, start
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, LinkgaugeError, UsageError
from linkgauge.plan.papers import Figure

PICTURE_FORMS = ("svg", "png", "pdf", "json")


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """What of a figure is measured or shown."""

    out: Path | None = value("FOLDER", "Run folder to make.")
    of_run: Path | None = value("RUN", "Run to show beside the paper's numbers; measure nothing.", flags="--of")
    dry_run: bool = switch("Print the plan's launches and cases; measure nothing.")
    system: str = value("NAME|FILE", "System to plan for, with --dry-run.", "")
    csv: bool = switch("Print the figure's data of a run (--of) as CSV, in its statistic and unit.")
    every: bool = switch("Measure all figures, or a paper's, into one run; judge each, and exit by it.", flags="--all")
    form: str = value("FORMAT", "Format of the pictures: svg, png, pdf or json.", "svg", flags="--format")
    column: bool = switch("Draw for a column of a paper: 3.3 in wide, the caption in a text file.")
    list_only: bool = switch("List the figures, even where one is named.", flags="--list")


@command(
    "reproduce",
    exits=(Exit.FAIL, Exit.UNKNOWN, *RUN_EXITS),
    help="Measure a paper's figures here; without a figure, list them.",
    epilog="Example: linkgauge reproduce sc24:3 --devices cuda",
)
@argument("figure", metavar="[PAPER[:FIGURE]]", default="", help="Figure, such as sc24, sc24:3, openpower:table2.")
@takes(Reproduction)
@verbosity_options("Print each case as it ends.")
@takes(
    Request,
    of="run",
    without=(
        EarlierRun, Rounds, Presentation, AsNcclTests, "dimensions", "system", "out", "peers", "plan", "quick", "full",
        "pairs", "class_weights", "swap_roles", "concurrent_pairs", "library_choices", "settings", "peer_access",
    ),
)  # fmt: skip
def reproduce_command(asked: Reproduction, request: Request, figure: str) -> int:
    """List the papers' figures, or measure one with the paper's sizes and counts and show both numbers.

    Takes the launch options of 'linkgauge run' (--help-all names them).
    """
    from linkgauge.plan.papers import left_out
    from linkgauge.stats.requested import requests_of
    from linkgauge.view import paper_claims, paper_points, paper_screen, reproduce
    from linkgauge.view.screen import console

    found = reproduce.chosen(figure)
    if asked.form not in PICTURE_FORMS:
        raise UsageError(f"--format '{asked.form}': expected one of {', '.join(PICTURE_FORMS)}")
    if asked.every and (asked.csv or asked.list_only or asked.column or asked.form != "svg"):
        raise UsageError("--all makes one page of every figure: leave out --csv, --list, --format and --column")
    if asked.csv and (asked.of_run is None or len(found) > 1):
        raise UsageError("--csv prints one figure of a run: linkgauge reproduce PAPER:FIGURE --of RUN --csv")
    screen = console()
    if asked.every:
        return _all(found, asked, request)
    if asked.list_only or len(found) > 1:
        paper_screen.print_figures(screen, found, left_out())
        return 0
    one = found[0]
    folder, status = asked.of_run, 0
    if folder is None:
        folder, status = _measured(one, asked, request)
        if asked.dry_run or status not in (Exit.DONE, Exit.SOME_FAILED) or folder is None:
            paper_screen.print_numbers(screen, one)
            return status
    from linkgauge.store.run import load

    loaded = load(folder)
    if one.against:
        if asked.csv:
            raise UsageError(f"{one.name} has no picture: leave out --csv")
        paper_screen.print_effects(screen, one, reproduce.effects(loaded))
        return status
    drawings = paper_points.drawings(loaded, one)
    if asked.csv:
        click.echo(paper_points.as_csv(record for each in drawings for record in each.records()), nl=False)
        return status
    paper_screen.print_reproduced(screen, one, drawings)
    paper_screen.print_verdict(screen, paper_claims.judge(loaded, one, drawings))
    paper_screen.print_requests(screen, requests_of(loaded).values())
    made = reproduce.pictures(loaded, one, drawings, loaded.path, f".{asked.form}", column=asked.column)
    paper_screen.print_pictures(screen, made)
    return status


def _all(found: Sequence[Figure], asked: Reproduction, request: Request) -> int:
    """Measure figures into one run, or take a run; draw and judge each.

    Returns the exit status: by the verdicts, but a run in which cases failed, or that was interrupted or measured
    nothing, ends with its own.
    """
    from linkgauge.plan.joined import NAME, joined, why_alone
    from linkgauge.store.run import load
    from linkgauge.view import paper_page
    from linkgauge.view.screen import console

    folder, status = asked.of_run, 0
    if folder is None:
        nodes = max(1, len(request.allocation.names()))
        here = [one for one in found if not why_alone(one, nodes)]
        if not here:
            raise UsageError(f"{found[0].name} {why_alone(found[0], nodes)}: give more by --hosts A,B or --nodes all")
        choice = dataclasses.replace(request.choice, made=joined(here, _device_count(asked, request)))
        folder, status = _run(NAME, choice, {}, asked, request)
        if asked.dry_run or status not in (Exit.DONE, Exit.SOME_FAILED) or folder is None:
            return status
    loaded = load(folder)
    verdicts = paper_page.all_figures(loaded, found)
    paper_page.print_verdicts(console(), verdicts)
    click.echo(f"page: {paper_page.write_page(loaded, verdicts)}")
    return status or paper_page.status_of([one.verdict for one in verdicts])


def _device_count(asked: Reproduction, request: Request) -> int:
    """Return how many devices there are: of the system that is planned for, or here, on all nodes."""
    from linkgauge.run.parent.devices import find_devices

    if asked.system and asked.dry_run:
        from linkgauge.system import catalog

        return len(catalog.load(asked.system).devices)
    return find_devices(request.machine.devices).count * max(1, len(request.allocation.names()))


def _measured(figure: Figure, asked: Reproduction, request: Request) -> tuple[Path | None, int]:
    """Run a figure's plan; returns its run folder, None for a dry run, and the exit status."""
    from linkgauge.view.reproduce import dimensions_of

    choice = dataclasses.replace(request.choice, plan=figure.plan)
    return _run(figure.plan, choice, dimensions_of(figure, _device_count(asked, request)), asked, request)


def _run(
    name: str, choice: PlanChoice, dimensions: dict[str, list[str]], asked: Reproduction, request: Request
) -> tuple[Path | None, int]:
    """Run a plan; returns its run folder, None for a dry run, and the exit status."""
    from linkgauge.app.cli import report_error
    from linkgauge.run.parent.measure import default_out

    if not asked.dry_run:
        enter_allocation(request.allocation)
    out = asked.out if asked.out is not None or asked.dry_run else default_out(name)
    request = dataclasses.replace(
        request,
        choice=choice,
        machine=dataclasses.replace(request.machine, system=asked.system or None),
        execution=dataclasses.replace(request.execution, out=out),
        shown=Presentation(dry_run=asked.dry_run),
        dimensions=dimensions,
    )
    try:
        refuse_ranks(os.environ)
        return out, start(request)
    except LinkgaugeError as error:
        report_error(str(error))
        return out, error.exit_status
