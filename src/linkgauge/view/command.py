"""`linkgauge show`, `linkgauge report` and `linkgauge plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(pretty_exceptions_enable=False)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
UnitOption = Annotated[str, typer.Option("--unit", help="Unit of rates: GB/s, Gb/s, GiB/s or MB/s.")]


@app.command("show", epilog="Example: linkgauge show runs/2026-01-02 --pattern allreduce")
def show_command(
    run: RunArgument,
    pattern: Annotated[str | None, typer.Option("--pattern", help="Only this pattern.")] = None,
    unit: UnitOption = "GB/s",
    derived: Annotated[
        bool, typer.Option("--derived", help="Only what is derived from curves: flat latency, n1/2, 95 %, blocks.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON: one object a case and lane, or with --derived one a curve.")
    ] = False,
) -> None:
    """A run's results as tables: findings, sizes by mechanism, pairs as matrices, and what did not end well."""
    from linkgauge.store.run import load
    from linkgauge.view.results import Results
    from linkgauge.view.units import rate_unit

    rate_unit(unit)
    loaded = load(run)
    results = Results(loaded)
    if pattern is not None:
        results.keep_pattern(pattern)
    if as_json:
        _print_json(results, pattern, derived)
        return
    from rich.console import Console

    from linkgauge.view import tables
    from linkgauge.view.ceilings import Ceilings
    from linkgauge.view.judged import findings_of

    console = Console()
    if derived:
        console.print(*tables.derived(results, console.width, unit), sep="\n")
        return
    findings = findings_of(loaded)
    if findings and pattern is None:
        console.print(tables.findings_table(findings))
    console.print(tables.everything(results, console.width, unit, Ceilings(results.run)))


@app.command("report", epilog="Example: linkgauge report runs/2026-01-02 -o report.html")
def report_command(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it; report.html in the run folder by default.")
    ] = None,
    unit: UnitOption = "GB/s",
) -> None:
    """A run's report: one HTML file that opens offline."""
    from linkgauge.store.run import load
    from linkgauge.view.report import write_report

    loaded = load(run)
    print(write_report(loaded, output or loaded.path / "report.html", unit))


@app.command("plot", epilog="Example: linkgauge plot runs/2026-01-02 --figure goodput --pattern pingpong -o fig.pdf")
def plot_command(
    run: RunArgument,
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            help="goodput, latency, boxes, matrix, topology, devices, ratio, timeline, distribution or shares.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Ends with .pdf, .svg, .png or .json; FIGURE.pdf by default.")
    ] = None,
    pattern: Annotated[str, typer.Option("--pattern", help="Only this pattern.")] = "",
    size: Annotated[str | None, typer.Option("--size", help="Only this size, such as 64KiB.")] = None,
    transport: Annotated[
        list[str] | None, typer.Option("--transport", help="Only this transport or mechanism; repeatable.")
    ] = None,
    on: Annotated[str | None, typer.Option("--on", help="Only these devices, such as 0,1.")] = None,
    case: Annotated[str, typer.Option("--case", help="Only the case of this key, or of a key that starts so.")] = "",
    quantity: Annotated[str, typer.Option("--quantity", help="Of a matrix: goodput, latency, share or hops.")] = "",
    unit: UnitOption = "GB/s",
) -> None:
    """One figure of a run, fit to print."""
    from linkgauge.errors import UsageError
    from linkgauge.plan.quantity import parse_size
    from linkgauge.store.run import load
    from linkgauge.view.ceilings import Ceilings
    from linkgauge.view.figures import Selection, draw, write_figure
    from linkgauge.view.results import Results
    from linkgauge.view.units import rate_unit

    rate_unit(unit)
    words = [word.strip() for word in on.split(",")] if on else []
    if not all(word.isdecimal() for word in words):
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
    spec, note = draw(Results(loaded), Ceilings(loaded), figure, selection)
    path = output or Path(f"{figure}.pdf")
    write_figure(spec, path)
    print(path)
    if note:
        typer.echo(f"note: {note}", err=True)


def _print_json(results: Any, pattern: str | None, derived: bool) -> None:
    import json

    if derived:
        from linkgauge.view.derived import derived_figures

        print(json.dumps([one.plain() for one in derived_figures(results)], indent=1, default=str))
        return
    rows = [row for row in results.table.to_pylist() if pattern in (None, row["pattern"])]
    print(json.dumps(rows, indent=1, default=str))
