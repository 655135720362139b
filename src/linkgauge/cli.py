"""The command line: one table of commands, each imported only when it is asked for.

`linkgauge --help` must not cost the import of pyarrow, scipy or mpi4py, so the table below holds each command's name
and one line of help, and `build_app` imports the one package whose command was typed. A package's `command.py` holds
`app: typer.Typer` with its commands and groups registered under explicit names.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn, Protocol

import typer

from linkgauge import __version__
from linkgauge.errors import LinkgaugeError, one_line

EXIT_INTERRUPTED = 130
EXIT_BAD_INPUT = 2


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

COMMANDS: tuple[CommandEntry, ...] = (
    CommandEntry("run", "linkgauge.run.command", "Measure this machine: a plan, launch by launch, into a run folder.",
                 _MEASURE),
    CommandEntry("list", "linkgauge.run.command", "What is here: devices, transports, patterns, plans, MPI libraries.",
                 _MEASURE),
    CommandEntry("doctor", "linkgauge.doctor.command", "What is wrong with this set-up, and the remedy, before a run.",
                 _MEASURE),
    CommandEntry("against", "linkgauge.peers.command", "An installed peer and us in turn, by the peer's own estimator.",
                 _MEASURE),
    CommandEntry("show", "linkgauge.view.command", "A run's results as tables.", _READ),
    CommandEntry("report", "linkgauge.view.command", "A run's report: one HTML file that opens offline.", _READ),
    CommandEntry("plot", "linkgauge.view.command", "One figure of a run, fit to print.", _READ),
    CommandEntry("query", "linkgauge.store.command", "SQL over a run's tables.", _READ),
    CommandEntry("export", "linkgauge.store.command", "A run as CSV, JSON or another tool's output.", _READ),
    CommandEntry("import", "linkgauge.store.command", "Another tool's output as a run folder.", _READ),
    CommandEntry("findings", "linkgauge.findings.command", "What is odd in a run, why, and what to do.", _JUDGE),
    CommandEntry("compare", "linkgauge.findings.command", "What changed between two runs.", _JUDGE),
    CommandEntry("check", "linkgauge.findings.command", "A run against a baseline, a system or rules; the exit status "
                 "says it.", _JUDGE),
    CommandEntry("baseline", "linkgauge.findings.command", "Make and show baselines from several runs.", _JUDGE),
    CommandEntry("advise", "linkgauge.findings.command", "Which mechanism and settings suit a pattern best.", _JUDGE),
    CommandEntry("reproduce", "linkgauge.findings.command", "A paper's figures, measured here.", _JUDGE),
    CommandEntry("system", "linkgauge.system.command", "Devices, switches and links: discovered, described, drawn.",
                 _SYSTEM),
    CommandEntry("expect", "linkgauge.expect.command", "What a system's links allow, by named rules.", _SYSTEM),
)  # fmt: skip


def _module_exists(module: str) -> bool:
    # find_spec imports the parent package only, which is a docstring.
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _add_stub(app: typer.Typer, entry: CommandEntry) -> None:
    def never_run() -> None:
        raise AssertionError(f"the stub of '{entry.name}' was run")

    app.command(entry.name, help=entry.help, rich_help_panel=entry.panel)(never_run)


def _add_command(app: typer.Typer, entry: CommandEntry) -> None:
    source: typer.Typer = importlib.import_module(entry.module).app
    for command in source.registered_commands:
        if command.name == entry.name:
            app.registered_commands.append(command)
            return
    for group in source.registered_groups:
        if group.name == entry.name:
            app.registered_groups.append(group)
            return
    _add_stub(app, dataclasses.replace(entry, help=f"{entry.help} (not in this build)"))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"linkgauge {__version__}")
        raise typer.Exit


def build_app(wanted: str | None) -> typer.Typer:
    """The Typer app with the command `wanted` imported and every other one a line of help.

    Commands whose module is not part of this installation are left out.
    """
    app = typer.Typer(
        name="linkgauge",
        help="Measures every path that data can take between GPUs and host memory, and says how much of what the "
        "wires allow each delivers.",
        epilog="Example: linkgauge run --quick",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
        ] = False,
    ) -> None:
        pass

    app.callback()(root)
    for entry in COMMANDS:
        if entry.name == wanted and _module_exists(entry.module):
            _add_command(app, entry)
        elif _module_exists(entry.module):
            _add_stub(app, entry)
    return app


class _ShowsMessage(Protocol):
    def format_message(self) -> str: ...


def _error_base() -> type[Exception]:
    # Typer carries click inside from some version on; the base of its usage errors has no public name in both.
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def report_error(message: str) -> None:
    """Prints `linkgauge: error: ...` as one line on stderr."""
    print(f"linkgauge: error: {one_line(message)}", file=sys.stderr)


def _quietly_closed() -> int:
    # The reader of stdout went away (`linkgauge show RUN | head`): not an error; keep the interpreter's final flush
    # from complaining.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def run_command(arguments: Sequence[str], build: Callable[[str | None], typer.Typer] = build_app) -> int:
    """Runs one command line (without the program's name) and returns its exit status (docs/definitions.md)."""
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    error_base = _error_base()
    try:
        command = typer.main.get_command(build(wanted))
        result = command.main(args=list(arguments), prog_name="linkgauge", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except LinkgaugeError as error:
        report_error(str(error))
        return error.exit_status
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        report_error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _quietly_closed()
    except error_base as error:
        shows: _ShowsMessage = error  # type: ignore[assignment]  # every click error has it
        message = shows.format_message()
        if not message.strip():
            return EXIT_BAD_INPUT  # no arguments: the help was printed
        known = wanted in {entry.name for entry in COMMANDS}
        hint = f"linkgauge {wanted} --help" if known else "linkgauge --help"
        report_error(f"{message.rstrip('.')}. See '{hint}'")
        return EXIT_BAD_INPUT


def main() -> NoReturn:
    """Entry point of the `linkgauge` program."""
    # numpy's BLAS would start a thread for each other core, all of which spin for a while; nothing here multiplies.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays: looking for garbage among it takes a tenth of a short command's time.
    gc.set_threshold(50_000)
    sys.exit(run_command(sys.argv[1:]))
