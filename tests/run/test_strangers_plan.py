"""A stored plan is a stranger's: what its launches cannot run is one line, and nothing is measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app import cli
from run.test_bad_input import said

PLAN = """
[[case]]
transport = "staging"
pattern = ["pingpong", "broadcast"]
size = "8"
pairs = "first"
stop_rule = "count"
stop_samples = 3
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three devices whose statuses are gone: all of it is left."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "plan.toml").write_text(PLAN)
    words = ["--plan", str(folder / "plan.toml"), "--devices", "host:3", "--threads", "--no-report"]
    assert cli.run_command(["run", *words, "--out", str(folder / "run")]) == 0
    for name in ("cases.parquet", "launches.parquet", "samples"):
        path = folder / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder / "run"


def cases(**changed: Any) -> dict[str, Any]:
    return {"cases": changed}


def settings(**changed: Any) -> dict[str, Any]:
    return {"settings": changed}


TWO = {"pattern": "pingpong", "ranks": 2}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (cases(**TWO, devices=[0, 99]), "launch 0: a case takes 1 ranks of device 99, its launch has 0"),
        (cases(**TWO, devices=[1, 1]), "launch 0: a case takes 2 ranks of device 1, its launch has 1"),
        (settings(devices=[0, 0, 1]), "of device 2, its launch has 0"),
        (settings(devices=[]), "of device 0, its launch has 0"),
        (cases(**TWO, devices=[0, 1, 2]), "2 ranks on 3 devices"),
        (cases(pattern="pingpong", ranks=3, devices=[0, 1, 2]), "launch 0: a pingpong of 3 ranks"),
        (cases(pattern="broadcast", ranks=3, devices=[0, 1, 2], root=3), "launch 0: root 3 of 3 ranks"),
        (cases(pattern="broadcast", ranks=3, devices=[0, 1, 2], groups=2), "a broadcast of 3 ranks in 2 groups"),
        (cases(**TWO, devices=[0, 1], background="staging pingpong 8 on=2+99"), "device 99"),
        (
            settings(devices=[0, 99, 2]) | cases(**TWO, devices=[0, 99]),
            "run needs device 99, here are 3: see --devices",
        ),
    ],
)
def test_what_a_launch_cannot_run_is_named_before_it_starts(
    measured: Path, tmp_path: Path, changed: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copytree(measured, tmp_path / "run")
    plan = json.loads((path / "plan.json").read_text())
    for launch in plan["launches"]:
        launch["settings"] |= changed.get("settings", {})
        for case in launch["cases"]:
            case |= changed.get("cases", {})
    (path / "plan.json").write_text(json.dumps(plan))
    before = (path / "run.json").read_bytes()
    arguments = ["run", "--resume", str(path), "--force", "--no-report"]
    if "needs device" in words:
        assert cli.run_command(arguments) == 2
        assert words in capsys.readouterr().err.splitlines()[-1]
    else:
        assert words in said(arguments, capsys)
    assert (path / "run.json").read_bytes() == before
