"""`linkgauge query`, `linkgauge export` and `linkgauge import`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.app.options import switch, takes, value
from linkgauge.app.output import CSV, JSON, output_options, print_data
from linkgauge.errors import UsageError

_LONGEST_CELL = 300  # characters of a text on the terminal; -o csv and -o json print all
run_argument = argument("run", metavar="RUN", help="Run folder.")


@command(
    "query",
    epilog="Example: linkgauge query RUN \"SELECT transport, size, median_ns FROM summary WHERE pattern = 'pingpong'\"",
)
@argument("run", metavar="RUN", help="Run folder, or the folder or address of a history.")
@argument("sql", metavar="SQL", help="SELECT statement.")
@output_options(": one object a row")
@flag("--no-limit", help="Lift the limits of a million rows, a minute and 2 GiB.")
def query_command(run: str, sql: str, form: str, no_limit: bool) -> None:
    """Query a run's tables by SQL: cases, samples, observations, launches, summary; of a history results."""
    from linkgauge.exchange.query import query
    from linkgauge.store.history import History, is_history
    from linkgauge.store.run import Run, load

    loaded = History.open(run) if is_history(run) else load(run)
    table = query(loaded, sql, limited=not no_limit)
    if form == JSON:
        print_data(table.to_pylist(), form)
    elif form == CSV:  # in batches: it may be a million rows
        import csv
        import sys

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.column_names)
        for batch in table.to_batches():
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    else:
        from rich.text import Text

        from linkgauge.model.shape import clean
        from linkgauge.stats.launches import shown_transports
        from linkgauge.view import screen
        from linkgauge.view.screen import Table

        # To fold 10^3 texts of 10^3 characters takes half a minute.
        def cell(value: object) -> Text:
            text = "" if value is None else clean(str(value))
            return Text(text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 3] + "...")

        called = shown_transports(loaded.launched) if isinstance(loaded, Run) else {}
        shown = Table(box=None, pad_edge=False)
        for name in table.column_names:
            shown.add_column(cell(name), overflow="fold")
        renamed = {}
        for row in table.slice(0, 1000).to_pylist():
            if (transport := row.get("transport")) in called:
                row["transport"] = renamed[transport] = called[transport]
            shown.add_row(*map(cell, row.values()))
        screen.console().print(shown)
        for transport, name in renamed.items():
            print(f"{name} is transport '{transport}' in the tables that SQL reads")
        if table.num_rows > 1000:
            print(f"the first 1000 of {table.num_rows} rows: -o csv or --json prints all")


@command("export", epilog="Example: linkgauge export RUN --tidy -o results.parquet")
@run_argument
@option(
    "--format",
    "form",
    metavar="NAME",
    help="Format: csv, parquet, json, nccl-tests, osu; else by -o's ending.",
)
@flag("--tidy", help="One row a case, 16 columns, in microseconds and GB/s: csv or parquet.")
@flag("--anonymous", help="Leave out hosts, device identities, paths and the command line.")
@option("-o", "--output", type=PATH, metavar="FILE", help="File to write; printed by default.")
def export_command(run: str, form: str | None, tidy: bool, anonymous: bool, output: Path | None) -> None:
    """Export a run as CSV, Parquet, JSON, or the tables that nccl-tests and OSU print."""
    from linkgauge.errors import UsageError
    from linkgauge.exchange.export import FORMATS, export, export_parquet
    from linkgauge.files import write_atomically
    from linkgauge.store.run import load

    ending = output.suffix.lstrip(".") if output is not None else ""
    if form is None and ending and ending not in FORMATS:
        raise UsageError(f"-o {output}: expected a name that ends with one of {', '.join(FORMATS)}, or --format NAME")
    form = form or ending or "csv"
    loaded = load(run)
    table = None
    if tidy:
        from linkgauge.view.limits import Limits
        from linkgauge.view.results import Results
        from linkgauge.view.tidy import tidy as tidy_table

        table = tidy_table(Results(loaded), Limits(loaded))
    if output is None:
        print(export(loaded, form, anonymous, table), end="")
        return
    if form == "parquet":
        write_atomically(output, export_parquet(loaded, anonymous, table))
    else:
        write_atomically(output, export(loaded, form, anonymous, table).encode("utf-8"))
    print(output)


@dataclasses.dataclass(frozen=True)
class Imported:
    """What `linkgauge import` does with logs, and what it is told of them."""

    listed: bool = switch("List the tools whose output is known, and import nothing.", flags="--list")
    explained: bool = switch("Tell which tool each part of the logs is of, and import nothing.", flags="--explain")
    output: Path = value("FOLDER", "Run folder to make.", Path("imported"), flags="-o --out")
    ranks: int | None = value("", "Number of ranks, where the log lacks it.", type=int)
    pattern: str | None = value("NAME", "Pattern, where the log lacks it.")
    transport: str | None = value("NAME", "Transport, where the log lacks it.")
    size: str | None = value("SIZE", "Size, such as 512MiB, where the log lacks it.")
    window: int | None = value("", "Window of OSU, where it was not 64.", type=int)
    system: str | None = value("NAME|FILE", "System that the logs are of: its links are stored with the run.")


@command("import", epilog="Example: linkgauge import all_reduce.log osu_allgather.log --ranks 4 -o runs/imported")
@argument("files", metavar="FILE...", type=PATH, nargs=-1, help="Logs of other tools.")
@takes(Imported)
def import_command(asked: Imported, files: tuple[Path, ...]) -> None:
    """Import other tools' logs, or records of a running job, as a run folder; --list names the tools."""
    from linkgauge.exchange.importers import Hints, explain, import_files, known_tools
    from linkgauge.model.quantity import parse_size

    if asked.listed:
        for tool, form_ in known_tools():
            print(f"{tool}: {form_}")
        return
    if not files:
        raise UsageError("missing FILE: give the logs to import, or --list")
    if asked.explained:
        for file in files:
            print("\n".join(explain(file)))
        return
    hints = Hints(
        asked.ranks,
        asked.pattern,
        asked.transport,
        parse_size(asked.size) if asked.size is not None else None,
        asked.window,
    )
    described = None
    if asked.system is not None:
        from linkgauge.system import catalog
        from linkgauge.system.dump import to_data

        described = to_data(catalog.load(asked.system))
    imported = import_files(files, asked.output, hints, described)
    for line in (*imported.notes, *imported.problems):
        click.echo(f"linkgauge: {line}", err=True)
    from linkgauge.view.units import count_text

    print(f"{count_text(imported.cases, 'case')} imported, {count_text(imported.left_out, 'line')} not: {asked.output}")
