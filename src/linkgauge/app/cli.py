"""The command line: one table of commands, each imported only when it is asked for.

`linkgauge --help` must not cost the import of pyarrow, scipy or mpi4py, so the table below holds each command's name
and one line of help, and only the module of the command that was typed is imported: there `NAME` is `NAME_command`.
"""

from __future__ import annotations

import dataclasses
import errno
import gc
import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from linkgauge import __version__, interrupts
from linkgauge.app import standard_output
from linkgauge.app.command_line import COMPLETE, Group
from linkgauge.app.standard_output import StandardOutputError
from linkgauge.errors import Exit, LinkgaugeError, one_line
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


_MEASURE = "Measure"
_READ = "Read a run"
_JUDGE = "Judge"
_SYSTEM = "Systems"
_SHELL = "Shell"

COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry("run", "linkgauge.app.run", "Measure this machine: a plan, launch by launch, into a run folder.",
                 _MEASURE),
    CommandEntry("apps", "linkgauge.app.applications", "Applications by what they communicate, a sentence each.",
                 _MEASURE),
    CommandEntry("convert", "linkgauge.app.applications", "Traces of a program as an application, to run and predict.",
                 _MEASURE),
    CommandEntry("list", "linkgauge.app.listing", "What is here: devices, transports, patterns, plans, MPI libraries.",
                 _MEASURE),
    CommandEntry("watch", "linkgauge.app.watch", "The same cases again and again over hours, at a low cost.", _MEASURE),
    CommandEntry("doctor", "linkgauge.app.doctor", "What is wrong with this set-up, and the remedy, before a run.",
                 _MEASURE),
    CommandEntry("against", "linkgauge.app.against", "An installed peer and us in turn, by the peer's own estimator.",
                 _MEASURE),
    CommandEntry("tune", "linkgauge.app.tune", "Which settings to export, searched for here, with proof.", _MEASURE),
    CommandEntry("show", "linkgauge.app.show", "A run's results as tables.", _READ),
    CommandEntry("report", "linkgauge.app.show", "A run's report: one HTML file that opens offline.", _READ),
    CommandEntry("plot", "linkgauge.app.show", "One figure of a run, fit to print.", _READ),
    CommandEntry("query", "linkgauge.app.tables", "SQL over a run's tables.", _READ),
    CommandEntry("export", "linkgauge.app.tables", "A run as CSV, JSON or another tool's output.", _READ),
    CommandEntry("import", "linkgauge.app.tables", "Another tool's output as a run folder.", _READ),
    CommandEntry("findings", "linkgauge.app.judging", "What is odd in a run, why, and what to do.", _JUDGE),
    CommandEntry("compare", "linkgauge.app.judging", "What changed between two runs.", _JUDGE),
    CommandEntry("check", "linkgauge.app.judging", "Whether a machine is as fast as it should be; the exit status "
                 "says it.", _JUDGE),
    CommandEntry("baseline", "linkgauge.app.judging", "Make and show baselines from several runs.", _JUDGE),
    CommandEntry("advise", "linkgauge.app.judging", "Which mechanism and settings suit a pattern best.", _JUDGE),
    CommandEntry("reproduce", "linkgauge.app.judging", "A paper's figures, measured here.", _JUDGE),
    CommandEntry("system", "linkgauge.app.system", "Devices, switches and links: discovered, described, drawn.",
                 _SYSTEM),
    CommandEntry("predict", "linkgauge.app.applications", "What an application takes, from a run's curves.", _SYSTEM),
    CommandEntry("expect", "linkgauge.app.expect", "What a system's links allow, by named rules.", _SYSTEM),
    CommandEntry("simulate", "linkgauge.app.simulate", "What a whole cluster would give a pattern, by routing rules.",
                 _SYSTEM),
    CommandEntry("completion", "linkgauge.app.completion", "The script by which a shell completes these commands.",
                 _SHELL),
)  # fmt: skip


class _Commands(Group):
    """The table's commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in COMMANDS:
            if entry.name == cmd_name:
                found: click.Command = getattr(importlib.import_module(entry.module), f"{entry.name}_command")
                interrupts.raise_from_now()
                return found
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: none of the commands is imported for it."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(entry.name, help=entry.help) for entry in COMMANDS if entry.name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for panel, entries in itertools.groupby(COMMANDS, key=lambda entry: entry.panel):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.help) for entry in entries])


ROOT = _Commands(
    "linkgauge",
    help="Measures every path that data can take between GPUs and host memory, and says how much of what the wires "
    "allow each delivers.",
    epilog="Example: linkgauge run --quick",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
click.version_option(__version__, message="linkgauge %(version)s", help="Print the version.")(ROOT)


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


def run_command(arguments: Sequence[str], root: click.Command = ROOT) -> int:
    """Runs one command line (without the program's name) and returns its exit status (docs/definitions.md)."""
    if sys.stdout is None:
        # Descriptor 1 is free, so that the first file to be opened would take what libraries print.
        report_error("standard output is closed: expected it open, if only to /dev/null")
        return Exit.LACKING
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


def _run(arguments: Sequence[str], root: click.Command) -> int:
    try:
        # As click's own main has it; the program's name is not asked, which may be that of a module.
        if root is ROOT and (asked := os.environ.get(COMPLETE)):
            from linkgauge.app.completion import answer

            return answer(root, asked)
        with root.make_context("linkgauge", list(arguments)) as context:
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
        # A name that can be none on this system; what else can happen to a file, its own command says.
        if error.filename is None or error.errno not in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP):
            raise
        report_error(f"'{os.fsdecode(error.filename)}' names no file: {error.strerror}")
        return Exit.BAD_INPUT
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return Exit.BAD_INPUT
    except click.ClickException as error:
        within = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "linkgauge"
        report_error(f"{error.format_message().rstrip('.')}. See '{within} --help'")
        return Exit.BAD_INPUT


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
