"""What commands are made of: click's own, with arguments explained and options in titled groups in their help."""

from __future__ import annotations

import copy
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from linkgauge.errors import Exit, brief, nearest, renamed
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMON = "Options"
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
COMPLETE = "_LINKGAUGE_COMPLETE"
"""The variable by which a shell asks: `bash_source` for its script, which asks by `bash_complete` for words."""


class FiniteRange(click.FloatRange):
    """A number within a range; click's own lets `inf` and `nan` through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click's error for one that is none."""
        try:
            finite = math.isfinite(float(value))
        except ValueError:
            finite = False
        if not finite:
            self.fail(f"{value!r} is no number: expected {self._describe_range()}", param, ctx)
        number = super().convert(value, param, ctx)
        return number


class _Completed(click.Parameter):
    """A parameter for whose word a shell is offered the names that there are, and run folders."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Those that go on as this one does; click's own where its type or its author knows better."""
        if self._custom_shell_complete is None and not isinstance(self.type, click.Choice):
            from linkgauge.app.completing import words_for

            found = words_for(self, incomplete)
            if found is not None:
                return found
        return super().shell_complete(ctx, incomplete)


class Argument(_Completed, click.Argument):
    """An argument with a line of help."""

    panel = "Arguments"

    def __init__(self, *names: Any, help: str, **settings: Any) -> None:
        """Click's settings."""
        super().__init__(*names, **settings)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """What it is called, and its help."""
        return self.make_metavar(ctx), self.help or ""


class Option(_Completed, click.Option):
    """An option that stands under `panel` in the help, with its default where it has one.

    One that is `advanced` stands in `--help-all` alone.
    """

    def __init__(
        self, *names: Any, panel: str = COMMON, advanced: bool = False, choices: Sequence[str] = (), **settings: Any
    ) -> None:
        """Click's settings; `choices` are offered to a shell."""
        settings.setdefault("show_default", settings.get("default") not in (None, ""))
        super().__init__(*names, **settings)
        self.panel = panel
        self.advanced = advanced
        self.choices = choices
        self.owner = ""
        """The command whose help explains it, where another command takes it over."""
        if self.metavar is None and isinstance(self.type, (click.types.IntParamType, click.types.FloatParamType)):
            self.metavar = "NUMBER"

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Click's own, with a range in words; one without an upper end says nothing that a user would not expect."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        low, high = (getattr(self.type, end, None) for end in ("min", "max"))
        if low is not None and high is not None:
            extra["range"] = f"{low:g} to {high:g}"
        return extra


def _having(ctx: click.Context, option: str) -> list[str]:
    """The commands that have an option. All are imported, which takes half a second, for an error alone."""
    root = ctx.find_root().command
    found: list[str] = []
    if not isinstance(root, click.Group):
        return found
    for name in root.list_commands(ctx):
        command = root.get_command(ctx, name)
        if command is not None and any(option in (*each.opts, *each.secondary_opts) for each in command.params):
            found.append(name)
    return found


class Grouped(click.Command):
    """What our commands and groups have in common: grouped options, exit statuses, the nearest option's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words left over; click's own parser leaves out of its errors whose options these are."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
            # What another command has is no misspelled option of this one.
            word = error.option_name
            begun = any(one.startswith(word) or word.startswith(one) for one in known if one.startswith("--"))
            having = [] if begun or renamed(word, known) else _having(ctx, word)
            instead = f" here: it is of linkgauge {listed(having, 3)}" if having else nearest(word, known)
            raise click.UsageError(f"no option '{brief(word)}'{instead}", error.ctx or ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: format_options shows them; click 8.5 and newer would once more."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, and `--help-all` where some are left out of `--help`."""
        found = super().get_params(ctx)
        layered = any(getattr(one, "advanced", False) for one in found)
        found.append(_HELP_ALL if layered else _HELP_ALL_THE_SAME)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, then each group of options under its title; the advanced ones in `--help-all` alone.

        Options that another command explains are named there, no more.
        """
        every = bool(ctx.meta.get(EVERY_OPTION))
        for title, records in self.sections(ctx, every=every).items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=28)
        for owner, names in self.taken_over(ctx).items() if every else ():
            with formatter.section(f"Options of 'linkgauge {owner} --help-all'"):
                room = formatter.width - formatter.current_indent
                for line in textwrap.wrap(", ".join(names), room, break_on_hyphens=False):
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def sections(self, ctx: click.Context, *, every: bool) -> dict[str, list[tuple[str, str]]]:
        """By title what stands under it: how an argument or option is written, and its help."""
        found: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            shown = not getattr(parameter, "owner", "") and (every or not getattr(parameter, "advanced", False))
            if record is not None and shown:
                found.setdefault(getattr(parameter, "panel", COMMON), []).append(record)
        if COMMON in found:  # what many commands have comes last
            found[COMMON] = found.pop(COMMON)
        return found

    def taken_over(self, ctx: click.Context) -> dict[str, list[str]]:
        """By command the options that it explains and this one takes too."""
        owned = ((getattr(parameter, "owner", ""), parameter.opts[0]) for parameter in self.get_params(ctx))
        return grouped(pair for pair in owned if pair[0])

    exits: tuple[Exit, ...] = ()
    """The exit statuses that it has beside those of every command."""

    @property
    def statuses(self) -> list[Exit]:
        """Every exit status that it has."""
        return sorted({*_USUAL_EXITS, *self.exits})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit statuses, then the example on one line however long, so that it can be copied."""
        formatter.write_paragraph()
        words = "; ".join(f"{status:d} {status.words}" for status in self.statuses)
        formatter.write_text(f"Exit status: {words}.")
        if self.epilog:
            formatter.write(f"{self.epilog}\n")


_USUAL_EXITS = (Exit.DONE, Exit.BAD_INPUT, Exit.LACKING, Exit.INTERRUPTED)


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


# Of a command that shows all of its options anyway: taken, and not shown.
_HELP_ALL_THE_SAME = Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all_help, hidden=True
)


class Command(Grouped):
    """A command whose help shows its options in groups."""


class Group(Grouped, click.Group):
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


def command(name: str, *, exits: tuple[Exit, ...] = (), **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """A decorator that makes the command `name` of a function; what it returns is the exit status, None being 0.

    `exits`: the statuses that it has beside those of every command.
    """

    def made(function: Callable[..., Any]) -> Command:
        found = click.command(name, cls=Command, **settings)(function)
        found.exits = exits
        return found

    return made


def argument(name: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds an argument; click's settings, `help` being required."""
    return click.argument(name, cls=Argument, **settings)


def taken_over(owner: str, parameters: Iterable[click.Parameter]) -> list[click.Parameter]:
    """The parameters of the command `owner` for one that takes them too: named in `--help-all`, explained there."""
    found = [copy.copy(each) for each in parameters]
    for each in found:
        if isinstance(each, Option):
            each.advanced, each.owner = True, owner
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
