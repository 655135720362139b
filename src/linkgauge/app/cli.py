"""The command line: one table of commands, each imported only when it is asked for.

`linkgauge --help` must not cost the import of pyarrow, scipy or mpi4py, so the table below holds each command's name
and one line of help, and only the module of the command that was typed is imported: there `NAME` is `NAME_command`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import importlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from linkgauge import __version__, interrupts
from linkgauge.app import standard_output
from linkgauge.app.command_line import COMPLETE, Group
from linkgauge.app.standard_output import StandardOutputError
from linkgauge.errors import DamagedRunWarning, Exit, LinkgaugeError, UsageError, brief, nearest, one_line
from linkgauge.files import allow_open_files

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclasses.dataclass(frozen=True)
class CommandEntry:
    """Where a command lives, and the line that `linkgauge --help` shows for it."""

    name: str
    module: str
    help: str
    panel: str


_PANELS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Measure": (
        ("run", "run", "Measure this machine into a run folder."),
        ("apps", "applications", "List the applications that can be run and predicted."),
        ("convert", "convert", "Convert a program's traces to an application."),
        ("list", "listing", "List devices, transports, patterns, plans, MPI libraries and systems."),
        ("watch", "watch", "Measure the same cases again and again over hours."),
        ("doctor", "doctor", "Find what is wrong with this set-up before a run, with the fix."),
        ("record", "record", "Record this machine as one file, without identities."),
        ("crosscheck", "crosscheck", "Alternate with an installed benchmark, by its own estimator."),
        ("health", "health", "Check this node's paths in a minute: one line and an exit status for a scheduler."),
        ("isolate", "isolate", "Find the slow node of many: rounds of halves or pairs, about log2 N of them."),
        ("tune", "tune", "Find which settings to export, by measurement, with proof."),
    ),
    "Read a run": (
        ("demo", "demo", "Show a stored run of two H100: what a run looks like."),
        ("show", "show", "Show a run: verdict, peaks, findings."),
        ("report", "show", "Make a run's report: one HTML file that opens offline."),
        ("plot", "show", "Draw one figure of a run, fit to print."),
        ("query", "tables", "Query a run's tables by SQL."),
        ("export", "tables", "Export a run as CSV, Parquet, JSON or another tool's output."),
        ("metrics", "metrics", "Write runs as OpenMetrics, to a file or by HTTP."),
        ("import", "tables", "Import another tool's output as a run folder."),
        ("cite", "cite", "Print what to cite for a run: the program and papers."),
    ),
    "Judge": (
        ("findings", "judging", "Report faults and performance losses, each with evidence and a fix."),
        ("ticket", "ticket", "Write a page of Markdown for whoever repairs the machine."),
        ("bundle", "bundle", "Pack a run, its report and this node's state into one archive for a vendor."),
        ("compare", "judging", "Compare two runs: what became better, worse or stayed the same."),
        ("check", "judging", "Judge whether a machine is as fast as it should be: PASS, FAIL, UNKNOWN."),
        ("baseline", "judging", "Make a baseline of five runs or more."),
        ("history", "fleet", "Add runs to a fleet's history; compact it, remove old days."),
        ("fleet", "fleet", "Compare a fleet's nodes and links; show how one node changed."),
        ("bars", "bars", "Judge other people's thresholds: impossible, toothless or about right."),
        ("advise", "judging", "Recommend the mechanism and settings for each pattern and size."),
        ("reproduce", "reproduce", "Measure a paper's figures here."),
    ),
    "Systems": (
        ("topology", "topology", "Discover, describe and draw devices, switches and links."),
        ("predict", "applications", "Predict an application's time from a run's curves."),
        ("expect", "expect", "Compute what a system's links allow, by named rules."),
        ("simulate", "simulate", "Simulate a whole cluster's bandwidth by placement and routing."),
    ),
    "Shell": (("completion", "completion", "Print the script by which a shell completes these commands."),),
}
COMMANDS: tuple[CommandEntry, ...] = tuple(
    CommandEntry(name, f"linkgauge.app.{module}", help, panel)
    for panel, entries in _PANELS.items()
    for name, module, help in entries
)


class Commands(Group):
    """The table's commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the table's order."""
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        for entry in COMMANDS:
            if entry.name == cmd_name:
                found: click.Command = getattr(importlib.import_module(entry.module), f"{entry.name}_command")
                interrupts.raise_from_now()
                return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; UsageError with the nearest one where there is none of that name."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            raise click.UsageError(f"no command '{brief(name)}'{nearest(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: none of the commands is imported for it."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(entry.name, help=entry.help) for entry in COMMANDS if entry.name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def panels(self) -> list[tuple[str, list[CommandEntry]]]:
        """The commands under their titles."""
        return [(panel, [*entries]) for panel, entries in itertools.groupby(COMMANDS, key=lambda entry: entry.panel)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands under their titles, each with its line of help."""
        for panel, entries in self.panels():
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.help) for entry in entries])

    @property
    def statuses(self) -> list[Exit]:
        """Every status there is: what each command's own help has a part of."""
        return [*Exit]


ROOT = Commands(
    "linkgauge",
    help="Measure every path that data can take between GPUs and host memory, as a share of what the links allow.",
    epilog="Colors: none with NO_COLOR=1 or without a terminal; progress then comes as lines on standard error.\n"
    "Example: linkgauge run --quick",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
click.version_option(__version__, "-V", "--version", message="linkgauge %(version)s", help="Print the version.")(ROOT)


def report_error(message: str) -> None:
    """Prints `linkgauge: error: ...` as one line on stderr."""
    print(f"linkgauge: error: {one_line(message)}", file=sys.stderr)


def _not_printed(error: StandardOutputError, status: int = 0) -> int:
    """The status of a command whose output could not be printed, said in a line unless another was said before."""
    standard_output.silence()
    if status in (Exit.INTERRUPTED, Exit.BAD_INPUT, Exit.LACKING):
        return status
    report_error(f"standard output cannot be written: {error.strerror}")
    return Exit.LACKING


_LEAST_COLUMNS = 40


def run_command(arguments: Sequence[str], root: click.Command = ROOT) -> int:
    """Runs one command line (without the program's name) and returns its exit status (docs/definitions.md)."""
    if sys.stdout is None:
        # Descriptor 1 is free, so that the first file to be opened would take what libraries print.
        report_error("standard output is closed: expected it open, if only to /dev/null")
        return Exit.LACKING
    if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns) < _LEAST_COLUMNS:
        del os.environ["COLUMNS"]  # as some shells export it: at no width nothing would be printed
    try:
        status = _run(arguments, root)
    except Exception as error:
        from linkgauge.app.unforeseen import told

        line, status = told(error, arguments)
        report_error(line)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        standard_output.silence()
    except StandardOutputError as error:
        return _not_printed(error, status)
    return status


def _flags_for_words(arguments: Sequence[str]) -> list[str]:
    """`version` as `--version`, `help COMMAND` as `COMMAND --help`: what people type."""
    if list(arguments) == ["version"]:
        return ["--version"]
    if arguments and arguments[0] == "help":
        return [*arguments[1:], "--help"]
    return list(arguments)


def _check_encoding(arguments: Sequence[str]) -> None:
    """UsageError for a word that is not UTF-8: that libraries refuse such a name is found out after measuring, else."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(word).decode(errors="backslashreplace")
            raise UsageError(f"'{shown}' is not UTF-8: rename it to a UTF-8 name (mv)") from None


@contextlib.contextmanager
def _damages_in_one_line() -> Iterator[None]:
    """Print what is damaged of a run folder that is read as one line; other warnings are as Python has them."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, DamagedRunWarning):
                print(f"linkgauge: warning: {one_line(str(message))}", file=sys.stderr)
            else:
                usual(message, category, *place, **more)

        warnings.simplefilter("always", DamagedRunWarning)
        warnings.showwarning = show
        yield


def _run(arguments: Sequence[str], root: click.Command) -> int:
    arguments = _flags_for_words(arguments)
    try:
        # As click's own main has it; the program's name is not asked, which may be that of a module.
        if root is ROOT and (asked := os.environ.get(COMPLETE)):
            from linkgauge.app.completion import answer

            return answer(root, asked)
        _check_encoding(arguments)
        with _damages_in_one_line(), root.make_context("linkgauge", list(arguments)) as context:
            result = root.invoke(context)
        return result if isinstance(result, int) else 0
    except LinkgaugeError as error:
        report_error(str(error))
        return error.exit_status
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        report_error(str(error) or "interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader went away (`linkgauge show RUN | head`): not an error
        standard_output.silence()
        return 0
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich's end where the reader went away
            return 0
        raise
    except StandardOutputError as error:
        return _not_printed(error)
    except OSError as error:
        # What can happen to every name; what else can happen to a file, its own command says.
        if error.filename is None or error.errno not in _OF_ANY_NAME:
            raise
        status, said = _OF_ANY_NAME[error.errno]
        report_error(f"'{os.fsdecode(error.filename)}' {said.format(error.strerror)}")
        return status
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return Exit.BAD_INPUT
    except click.ClickException as error:
        within = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "linkgauge"
        report_error(f"{error.format_message().rstrip('.')}. See '{within} --help'")
        return Exit.BAD_INPUT


_NO_NAME = (Exit.BAD_INPUT, "names no file: {}")
_NO_ACCESS = (Exit.LACKING, "cannot be used: {}: ask its owner for access, or name another")
_OF_ANY_NAME = {
    errno.ENAMETOOLONG: _NO_NAME, errno.ENOTDIR: _NO_NAME, errno.ELOOP: _NO_NAME, errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS, errno.EROFS: _NO_ACCESS,
    errno.ENOSPC: (Exit.LACKING, "cannot be written: {}: free some space, or name another"),
}  # fmt: skip


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    # numpy's BLAS would start a thread for each other core, all of which spin for a while; nothing here multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays: looking for garbage among it takes a tenth of a short command's time.
    gc.set_threshold(50_000)
    standard_output.told_apart()
    try:
        allow_open_files()
    except LinkgaugeError as error:
        report_error(str(error))
        sys.exit(error.exit_status)
    status = run_command(sys.argv[1:])
    interrupts.ignore()
    if status == Exit.INTERRUPTED:
        interrupts.leave()
    sys.exit(status)
