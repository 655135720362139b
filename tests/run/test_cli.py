"""The command line's shell: lazy commands, one-line errors, exit statuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from linkgauge import __version__, cli
from linkgauge.errors import EnvironmentLackingError, UsageError


def _app_raising(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        pass

    @app.command("go")
    def go() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("no device 'x':\n expected auto"), 2),
        (EnvironmentLackingError("no launcher"), 5),
        (KeyboardInterrupt(), 130),
        (typer.Exit(4), 4),
        (typer.BadParameter("wrong"), 2),
    ],
)
def test_errors_become_an_exit_status_and_at_most_one_line(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["go"], build=lambda _: _app_raising(error)) == status
    assert len(capsys.readouterr().err.splitlines()) <= 1


@pytest.mark.parametrize("arguments", [["--bogus"], ["nope"]])
def test_a_wrong_word_is_named_on_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("linkgauge: error: ")
    assert arguments[0] in error
    assert error.count("\n") == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"linkgauge {__version__}"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from linkgauge.cli import run_command; status = run_command(['--help']);"
        "heavy = {'pyarrow', 'scipy', 'mpi4py', 'numpy', 'networkx', 'altair', 'duckdb'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_that_is_here_is_found_in_its_module() -> None:
    for entry in cli.COMMANDS:
        if cli._module_exists(entry.module):
            command = typer.main.get_command(cli.build_app(entry.name)).commands[entry.name]  # type: ignore[attr-defined]
            assert "not in this build" not in (command.help or ""), entry.name
