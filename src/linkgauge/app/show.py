"""`linkgauge show`, `linkgauge report` and `linkgauge plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from linkgauge.app.command_line import PATH, command, flag, option, run_argument

unit_option = option("--unit", default="GB/s", help="Unit of rates: GB/s, Gb/s, GiB/s or MB/s.")


@command("show", epilog="Example: linkgauge show runs/2026-01-02 --pattern allreduce")
@run_argument()
@flag("--all", "everything", help="Add every table: sizes by mechanism, pairs as matrices, limits, skipped cases.")
@option("--pattern", help="Show every table of this pattern alone.")
@unit_option
@option("--system", default="", metavar="NAME|FILE", help="Judge by this system's wires, not those of the run.")
@flag("--derived", help="Show what is derived from curves alone: flat latency, n1/2, 95 %, blocks.")
@flag("--json", "as_json", help="Print JSON: one object a case and lane, or with --derived one a curve.")
def show_command(
    run: Path, everything: bool, pattern: str | None, unit: str, system: str, derived: bool, as_json: bool
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
        results.keep_pattern(pattern)
    if as_json:
        _print_json(results, pattern, derived)
        return
    from rich.console import Console

    from linkgauge.view import tables
    from linkgauge.view.answer import FirstLook
    from linkgauge.view.judged import findings_of
    from linkgauge.view.limits import Limits
    from linkgauge.view.summary import print_first_screen

    console = Console()
    if derived:
        console.print(*tables.derived(results, console.width, unit), sep="\n")
        return
    limits = Limits(results.run)
    if pattern is None:
        print_first_screen(FirstLook(results, limits), findings_of(loaded), console, unit)
    if everything or pattern is not None:
        console.print("", tables.everything(results, console.width, unit, limits), sep="\n")
    elif results.rows:
        console.print("", *next_commands(run), sep="\n", markup=False, highlight=False, soft_wrap=True)


def next_commands(run: Path) -> list[str]:
    """Return what to type after a run's first screen, each with what it gives."""
    import shlex

    name = shlex.quote(str(run))
    rows = [
        (f"linkgauge show {name} --all", "every table"),
        (f"linkgauge check {name}", "is this machine as fast as it should be?"),
        (f"linkgauge advise {name}", "which mechanism for which size"),
    ]
    width = max(len(command) for command, _ in rows)
    return ["Next:", *(f"  {command:{width}}  {gives}" for command, gives in rows)]


@command("report", epilog="Example: linkgauge report runs/2026-01-02 -o report.html")
@run_argument()
@option("-o", "--output", type=PATH, help="Where to write it; report.html in the run folder by default.")
@unit_option
def report_command(run: Path, output: Path | None, unit: str) -> None:
    """A run's report: one HTML file that opens offline."""
    from linkgauge.store.run import load
    from linkgauge.view.report import write_report

    loaded = load(run)
    print(write_report(loaded, output or loaded.path / "report.html", unit))


@command("plot", epilog="Example: linkgauge plot runs/2026-01-02 --figure goodput --pattern pingpong -o fig.pdf")
@run_argument()
@option(
    "--figure",
    required=True,
    help="goodput, latency, boxes, distances, matrix, rounds, shifts, topology, devices, ratio, timeline, "
    "distribution, shares; of applications scaling, kinds or ranks.",
)
@option("-o", "--output", type=PATH, help="Ends with .pdf, .svg, .png or .json; FIGURE.pdf by default.")
@option("--pattern", default="", help="Only this pattern.")
@option("--size", help="Only this size, such as 64KiB.")
@option("--transport", multiple=True, help="Only this transport or mechanism; repeatable.")
@option("--on", help="Only these devices, such as 0,1.")
@option("--case", default="", help="Only the case of this key, or of a key that starts so.")
@option("--quantity", default="", help="Of a matrix: goodput, latency, share or hops.")
@unit_option
def plot_command(
    run: Path,
    figure: str,
    output: Path | None,
    pattern: str,
    size: str | None,
    transport: tuple[str, ...],
    on: str | None,
    case: str,
    quantity: str,
    unit: str,
) -> None:
    """One figure of a run, fit to print."""
    from linkgauge.errors import UsageError
    from linkgauge.model.quantity import parse_size
    from linkgauge.store.run import load
    from linkgauge.view.figures import Selection, draw, write_figure
    from linkgauge.view.limits import Limits
    from linkgauge.view.results import Results
    from linkgauge.view.units import rate_unit

    rate_unit(unit)
    words = [word.strip() for word in on.split(",")] if on else []
    if not all(word.isascii() and word.isdecimal() and len(word) <= 18 for word in words):
        raise UsageError(f"'{on}' are not devices: expected ordinals such as 0,1")
    selection = Selection(
        pattern=pattern,
        size_bytes=parse_size(size) if size is not None else None,
        transports=tuple(transport or ()),
        case_key=case,
        devices=tuple(map(int, words)),
        quantity=quantity,
        unit=unit,
    )
    loaded = load(run)
    spec, note = draw(Results(loaded), Limits(loaded), figure, selection)
    path = output or Path(f"{figure}.pdf")
    write_figure(spec, path)
    print(path)
    if note:
        click.echo(f"note: {note}", err=True)


def _print_json(results: Any, pattern: str | None, derived: bool) -> None:
    import json

    if derived:
        from linkgauge.view.derived import derived_figures

        print(json.dumps([one.plain() for one in derived_figures(results)], indent=1, default=str))
        return
    rows = [row for row in results.table.to_pylist() if pattern in (None, row["pattern"])]
    print(json.dumps(rows, indent=1, default=str))
