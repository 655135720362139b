"""What commands are made of: click's own, with arguments explained and options in titled groups in their help."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from linkgauge.errors import brief, nearest

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
    """An option that stands under `panel` in the help, with its default where it has one.

    One that is `advanced` stands in `--help-all` alone.
    """

    def __init__(self, *names: Any, panel: str = "Options", advanced: bool = False, **settings: Any) -> None:
        """Click's settings."""
        settings.setdefault("show_default", settings.get("default") not in (None, ""))
        super().__init__(*names, **settings)
        self.panel = panel
        self.advanced = advanced


class _Grouped(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words left over; click's own parser leaves out of its errors whose options these are."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
            raise click.UsageError(
                f"no option '{brief(error.option_name)}'{nearest(error.option_name, known)}", error.ctx or ctx
            ) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: format_options shows them; click 8.5 and newer would once more."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, and `--help-all` where some are left out of `--help`."""
        found = super().get_params(ctx)
        if any(getattr(one, "advanced", False) for one in found):
            found.append(_HELP_ALL)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, then each group of options under its title; the advanced ones in `--help-all` alone."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and (not getattr(parameter, "advanced", False) or ctx.meta.get(EVERY_OPTION)):
                sections.setdefault(getattr(parameter, "panel", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=28)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example, on one line however long, so that it can be copied."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


EVERY_OPTION = "linkgauge.every_option"
"""In a context's `meta`: whether its help shows advanced options too."""


def _show_all_help(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.meta[EVERY_OPTION] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all_help,
    help="Show every option and exit.",
)  # fmt: skip


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


def taken_over(parameters: Iterable[click.Parameter]) -> list[click.Parameter]:
    """Another command's parameters for one that takes them too: in `--help-all` alone."""
    found = [copy.copy(each) for each in parameters]
    for each in found:
        if isinstance(each, Option):
            each.advanced = True
    return found


def run_argument(name: str = "run") -> Callable[[Decorated], Decorated]:
    """A decorator that adds the run folder a command reads, by default the newest in runs/."""
    return argument(
        name, metavar="[RUN]", required=False, type=PATH, callback=_run_folder,
        help="A run folder; the newest in runs/ by default.",
    )  # fmt: skip


def runs_argument(help: str) -> Callable[[Decorated], Decorated]:
    """A decorator that adds the run folders a command reads, by default the newest in runs/ alone."""
    return argument(
        "runs", metavar="[RUN...]", required=False, nargs=-1, type=PATH,
        callback=lambda context, parameter, paths: paths or (_run_folder(context, parameter, None),),
        help=f"{help}; the newest in runs/ by default.",
    )  # fmt: skip


def _run_folder(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path:
    if path is not None:
        return path
    found = [each.parent for each in Path("runs").glob("*/run.json")]
    if not found:
        raise click.UsageError("no run was named, and runs/ has none: name a run folder", context)
    return max(found, key=lambda each: (each.stat().st_mtime_ns, each.name))


def option(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an option; click's settings, and `panel`, the title of its group in the help."""
    return click.option(*names, cls=Option, **settings)


def flag(*names: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an option without a value: True where it is given."""
    return option(*names, is_flag=True, **settings)
