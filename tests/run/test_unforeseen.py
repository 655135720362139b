"""What no command foresaw, memory that does not suffice, and reports whose libraries end their process."""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from linkgauge.app import cli, presenting
from linkgauge.app.unforeseen import told
from linkgauge.errors import Exit
from linkgauge.run.parent.reporter import Reporter
from patience import PATIENCE_S
from synthetic import make_case, make_run
from thorough import thorough


def root(error: Exception) -> click.Command:
    @click.command("linkgauge")
    def command() -> None:
        raise error

    return command


def test_what_nobody_foresaw_is_one_line_and_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.run_command([], root(KeyError("odd\nname"))) == 70
    error = capsys.readouterr().err
    (kept,) = tmp_path.iterdir()
    assert error.count("\n") == 1
    assert f"KeyError ('odd\\nname'): please report it with {kept}" in error
    assert "Traceback" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("library", "fix"),
    [
        ("libstdc++.so.6", ", which numpy needs: apt-get install libstdc++6, or dnf install libstdc++"),
        ("libz.so.1", ": install the package of your system that has it"),
    ],
)
def test_a_missing_library_of_the_system_is_named(library: str, fix: str) -> None:
    """As numpy 2.5 words it on an Ubuntu that has nothing but Python: the cause is the last of many lines."""
    error = ImportError(f"\n\nIMPORTANT\n\nOriginal error was: {library}: cannot open shared object file: No such file")
    assert told(error, ["run"]) == (f"{library} is missing{fix}", Exit.LACKING)


def test_a_traceback_that_cannot_be_kept_is_no_second_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert cli.run_command([], root(ZeroDivisionError())) == 70
    assert "ZeroDivisionError: please report it; no file" in capsys.readouterr().err


def test_memory_that_does_not_suffice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command([], root(MemoryError("Unable to allocate 6 GiB"))) == 5
    error = capsys.readouterr().err
    assert error.startswith("linkgauge: error: memory does not suffice (Unable to allocate 6 GiB): ")
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("reported") / "run", cases=[make_case("mpi", "pingpong", 8)], samples=20)


@thorough("what ends that process is below, and reports are tested without it")
def test_the_report_is_made_by_a_process_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    presenting.present(folder, Reporter(), report=True)
    assert capsys.readouterr().out.endswith(f"run folder: {folder}\nreport: {folder}/report.html\n")
    assert (folder / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGTRAP)", "its process was ended by SIGTRAP"),
        ("import os; os.abort()", "its process was ended by SIGABRT"),
        ("import sys; sys.exit('x\\nlinkgauge: error: memory does not suffice')", "memory does not suffice"),
        ("import sys; sys.exit(7)", "its process ended with status 7"),
    ],
)
def test_whatever_ends_that_process_the_run_says_why_there_is_no_report(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    began = subprocess.Popen
    monkeypatch.setattr(
        presenting.subprocess, "Popen", lambda command, **settings: began([sys.executable, "-c", program], **settings)
    )
    presenting.present(folder, Reporter(), report=True)
    said = capsys.readouterr()
    assert "report:" not in said.out
    assert f"linkgauge: no report: {why}" in said.err
    assert said.err.count("\n") == 1
    assert f"'linkgauge report {folder}'" in said.err


@thorough("other commands end in one line where memory does not suffice")
def test_a_report_for_which_memory_does_not_suffice_ends_in_one_line(folder: Path, tmp_path: Path) -> None:
    """The chart library reserves gigabytes of address space and ends by a trap where it cannot have them."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    program = (
        "from pathlib import Path; from linkgauge.app.presenting import present; "
        "from linkgauge.run.parent.reporter import Reporter; "
        f"present(Path({str(folder)!r}), Reporter(), report=True); print('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, preexec_fn=bounded,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("over\n")
    assert "no report: " in done.stderr or "report: " in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("limit", "most", "words", "said"),
    [
        (
            resource.RLIMIT_AS,
            6 << 30,
            ["plot", "{run}", "--figure", "goodput", "-o", "{out}/x.svg"],
            "6 GiB of address space",
        ),
        (resource.RLIMIT_NOFILE, 8, ["show", "{run}"], "may open 8 files: expected 64"),
    ],
)
def test_limits_are_found_before_they_are_met(
    folder: Path, tmp_path: Path, limit: int, most: int, words: list[str], said: str
) -> None:
    words = [word.format(run=folder, out=tmp_path) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", "from linkgauge.app.cli import main; main()", *words],
        capture_output=True, text=True, check=False, preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert said in done.stderr
    assert "ulimit" in done.stderr
    assert done.stderr.count("\n") == 1
