"""`-o json|csv|table` and `--json`: one helper for every command that prints a table."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from linkgauge.app.command_line import Decorated, flag, option
from linkgauge.errors import UsageError

TABLE, JSON, CSV = "table", "json", "csv"
_ASKED = "linkgauge.json"


def output_options(of: str = "", *, panel: str = "Options", advanced: bool = False) -> Callable[[Decorated], Decorated]:
    """A decorator that adds `-o` and `--json`; the command gets the form that was asked for as `form`.

    `of`: what the JSON holds, for its line of help.
    """

    def add(function: Decorated) -> Decorated:
        what = f"Print JSON{of}." if of else "Print JSON; short for -o json."
        function = flag(
            "--json", expose_value=False, is_eager=True, callback=_json_asked, panel=panel, advanced=advanced, help=what
        )(function)
        return option(
            "-o", "--format", "form", type=click.Choice((TABLE, JSON, CSV)), metavar="FORM", callback=_form,
            panel=panel, advanced=advanced, help="Format: table (default), json or csv.",
        )(function)  # fmt: skip

    return add


def _json_asked(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[_ASKED] = given


def _form(context: click.Context, _: click.Parameter, form: str | None) -> str:
    if context.meta.get(_ASKED):
        if form not in (None, JSON):
            raise UsageError(f"--json and -o {form} exclude each other: give one of them")
        return JSON
    return form or TABLE


def print_data(
    data: Any, form: str, *, rows: Iterable[Mapping[str, Any]] | None = None, of: type | None = None
) -> None:
    """Print `data` as JSON, or as CSV its rows: `rows`, by default `data` itself, or its one row.

    `of`: the dataclass of a row, whose fields are the columns where there is no row.
    """
    if form == JSON:
        # Not click.echo, which would look for a binary stream beside that whose errors are told apart.
        print(json.dumps(data, indent=1, default=str))
        return
    found = [flat(row) for row in (rows if rows is not None else [data] if isinstance(data, Mapping) else data)]
    columns = list(dict.fromkeys(name for row in found for name in row))
    if not columns and of is not None:
        columns = [field.name for field in dataclasses.fields(of)]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n", restval="")
    if columns:
        writer.writeheader()
    writer.writerows(found)


def flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A row for CSV: a table within it as columns `outer.inner`, plain lists with blanks between, others as JSON."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        column = f"{before}{name}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{column}.")
        elif isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value):
            found[column] = " ".join(map(str, value))
        elif isinstance(value, (list, tuple, Mapping)):
            found[column] = json.dumps(value, default=str) if value else ""
        else:
            found[column] = "" if value is None else value
    return found
