"""What is said of stored runs stays as it is: tables, findings, verdicts, advice (run folders of format 1).

Four are extracts of real ones, on H200 and on host devices; `imported_nccl_tests` is a folder as the last Linkgauge of
that format made it of a log, and its texts are what that one said of it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_extracts import CORPUS, rebuild

from approved import approve, plain
from linkgauge.app.cli import run_command

APPROVED = Path(__file__).parent / "approved"
IMPORTED = Path(__file__).with_name("imported_nccl_tests")
RUNS = ("h200x4-default-1", "h200x4-full-part", "h200x4-matrix", "host2-quick-1", IMPORTED.name)
COMMANDS = {
    "show": ("show",), "show-all": ("show", "--all"), "findings": ("findings", "--notes"), "check": ("check",),
    "advise": ("advise",),
}  # fmt: skip


@pytest.fixture(scope="module", params=RUNS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / str(request.param)
    if request.param == IMPORTED.name:
        shutil.copytree(IMPORTED, path)
        (path / "journal").mkdir()
    else:
        rebuild(CORPUS / f"{request.param}.xz", path)
    assert json.loads((path / "run.json").read_text())["format_version"] == 1
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_said_of_a_run_is_as_approved(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(folder.parent)
    name, *options = COMMANDS[command]
    status = run_command([name, folder.name, *options])
    said = capsys.readouterr()
    assert said.err == ""
    approve(APPROVED / f"{folder.name}.{command}.txt", plain(f"{said.out}exit status {status}"))
