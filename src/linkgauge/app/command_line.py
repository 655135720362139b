"""What commands are made of: click's own, with arguments explained and options in titled groups in their help."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
COMPLETE = "_LINKGAUGE_COMPLETE"
"""The variable by which a shell asks: `bash_source` for its script, which asks by `bash_complete` for words."""


class FiniteRange(click.FloatRange):
    """A number within a range; click's own lets `inf` and `nan` through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click's error for one that is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not finite: expected {self._describe_range()}", param, ctx)
        return number


class Argument(click.Argument):
    """An argument with a line of help."""

    panel = "Arguments"

    def __init__(self, *names: Any, help: str, **settings: Any) -> None:
        """Click's settings."""
        super().__init__(*names, **settings)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """What it is called, and its help."""
        return self.make_metavar(ctx), self.help or ""


class Option(click.Option):
    """An option that stands under `panel` in the help, with its default where it has one."""

    def __init__(self, *names: Any, panel: str = "Options", **settings: Any) -> None:
        """Click's settings."""
        settings.setdefault("show_default", settings.get("default") not in (None, ""))
        super().__init__(*names, **settings)
        self.panel = panel


class _Grouped(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words left over; click's own parser leaves out of its errors whose options these are."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: format_options shows them; click 8.5 and newer would once more."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, then each group of options under its title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "panel", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=28)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example, on one line however long, so that it can be copied."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class Command(_Grouped):
    """A command whose help shows its options in groups."""


class Group(_Grouped, click.Group):
    """A command of commands, each with its whole line of help."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group's own options, then its commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, each with the first line of its help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (one.help or "").split("\n\n")[0]) for name, one in self.commands.items()])


def command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """A decorator that makes the command `name` of a function; what it returns is the exit status, None being 0."""
    return click.command(name, cls=Command, **settings)


def argument(name: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an argument; click's settings, `help` being required."""
    return click.argument(name, cls=Argument, **settings)


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an option; click's settings, and `panel`, the title of its group in the help."""
    return click.option(*names, cls=Option, **settings)


def flag(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an option without a value: True where it is given."""
    return option(*names, is_flag=True, **settings)
