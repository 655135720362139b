"""What is said of stored real runs stays as it is: tables, findings, verdicts, advice (run folders of format 1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_extracts import CORPUS, rebuild

from approved import approve, plain
from linkgauge.app.cli import run_command

APPROVED = Path(__file__).parent / "approved"
RUNS = ("h200x4-default-1", "h200x4-full-part", "h200x4-matrix", "host2-quick-1")
COMMANDS = {"show": (), "findings": ("--notes",), "check": (), "advise": ()}


@pytest.fixture(scope="module", params=RUNS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / str(request.param)
    rebuild(CORPUS / f"{request.param}.xz", path)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_said_of_a_run_is_as_approved(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(folder.parent)
    status = run_command([command, folder.name, *COMMANDS[command]])
    said = capsys.readouterr()
    assert said.err == ""
    approve(APPROVED / f"{folder.name}.{command}.txt", plain(f"{said.out}exit status {status}"))
