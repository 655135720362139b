"""The command line's shell: lazy commands, one-line errors, exit statuses."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
import typer

from linkgauge import __version__, cli
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.plan.patterns import PATTERNS


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


def planned_devices(*words: str, capsys: pytest.CaptureFixture[str]) -> set[tuple[int, ...]]:
    common = ("--dry-run", "--json", "--devices", "host:4", "--threads", "--size", "64KiB")
    assert cli.run_command(["run", *common, *words]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    return {tuple(case["devices"]) for launch in launches for case in launch["cases"]}


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_flags_choose_pairs_and_devices_in_place_of_the_plans_tables(capsys: pytest.CaptureFixture[str]) -> None:
    pingpong = ("--transport", "copy_engine", "--pattern", "pingpong")
    assert planned_devices(*pingpong, "--pairs", "root", capsys=capsys) == {(0, 1), (0, 2), (0, 3)}
    assert planned_devices(*pingpong, "--pairs", "diagonal", capsys=capsys) == {(0,), (1,), (2,), (3,)}
    shift = ("--transport", "copy_engine", "--pattern", "ring_shift", "--ranks", "2")
    assert planned_devices(*shift, "--choose", "spread", capsys=capsys) == {(0, 2)}
    assert planned_devices(*shift, "--choose", "both", capsys=capsys) == {(0, 1), (0, 2)}


def test_lists_fold_no_name_and_leave_out_empty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run_command(["list", "patterns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(" ")[0] for line in lines[2:]} - {""} == set(PATTERNS)
    assert max(map(len, lines)) <= 80
    assert cli.run_command(["list", "devices", "--devices", "host:2"]) == 0
    shown = capsys.readouterr().out
    assert "host-device-1" in shown
    assert "pci" not in shown
    assert cli.run_command(["list", "transports", "--devices", "host:2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ccl no NCCL and RCCL need" in shown
    assert cli.run_command(["list", "transports", "--devices", "host:2", "--json"]) == 0
    (ccl,) = [row for row in json.loads(capsys.readouterr().out) if row["transport"] == "ccl"]
    assert (ccl["here"], ccl["library"], "GPUs" in ccl["reason"]) == ("no", "", True)
