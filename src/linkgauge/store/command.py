"""`linkgauge query`, `linkgauge export` and `linkgauge import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(pretty_exceptions_enable=False)

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]


@app.command(
    "query",
    epilog="Example: linkgauge query RUN \"SELECT transport, size, median_ns FROM summary WHERE pattern = 'pingpong'\"",
)
def query_command(
    run: RunArgument,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT statement.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one object a row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV.")] = False,
) -> None:
    """SQL over a run's tables: cases, samples, observations, launches, summary."""
    from linkgauge.store.query import query
    from linkgauge.store.run import load

    table = query(load(run), sql)
    if as_json:
        import json

        print(json.dumps(table.to_pylist(), indent=1, default=str))
    elif as_csv:
        import csv
        import sys

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.column_names)
        for batch in table.to_batches():
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        from linkgauge.view.results import inert

        shown = Table(box=None, pad_edge=False)
        for name in table.column_names:
            shown.add_column(Text(inert(name)), overflow="fold")
        for row in table.slice(0, 1000).to_pylist():
            shown.add_row(*(Text("" if value is None else inert(str(value))) for value in row.values()))
        Console().print(shown)
        if table.num_rows > 1000:
            print(f"the first 1000 of {table.num_rows} rows: --csv or --json prints all")


@app.command("export", epilog="Example: linkgauge export RUN --format csv -o results.csv")
def export_command(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help="csv, json, nccl-tests or osu.")] = "csv",
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Without hosts, device identities, paths and the command line.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file; by default it is printed.")] = None,
) -> None:
    """A run as CSV, JSON, or the tables that nccl-tests and OSU print."""
    from linkgauge.store.export import export
    from linkgauge.store.folder import write_atomically
    from linkgauge.store.run import load

    text = export(load(run), form, anonymous)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text.encode("utf-8"))
        print(output)


@app.command("import", epilog="Example: linkgauge import all_reduce.log osu_allgather.log --ranks 4 -o runs/imported")
def import_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs of other tools.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")] = Path("imported"),
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="How many ranks took part, where the log lacks it.")
    ] = None,
    pattern: Annotated[str | None, typer.Option("--pattern", help="The pattern, where the log lacks it.")] = None,
    transport: Annotated[str | None, typer.Option("--transport", help="The transport, where the log lacks it.")] = None,
    size: Annotated[
        str | None, typer.Option("--size", help="The size, such as 512MiB, where the log lacks it.")
    ] = None,
    window: Annotated[int | None, typer.Option("--window", help="OSU's window, where it was not 64.")] = None,
) -> None:
    """Logs of nccl-tests, rccl-tests, OSU, nvbandwidth and blink as a run folder, marked with their origin."""
    from linkgauge.plan.quantity import parse_size
    from linkgauge.store.importers import Hints, import_files

    hints = Hints(ranks, pattern, transport, parse_size(size) if size is not None else None, window)
    imported = import_files(files, output, hints)
    for problem in imported.problems:
        typer.echo(f"linkgauge: {problem}", err=True)
    print(f"{imported.cases} cases imported, {len(imported.problems)} lines not: {output}")
