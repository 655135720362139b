"""A way that is really slow: `check` without more names it, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from planted_faults import HAVE_FAULTS, NO_FAULTS
from program import started
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS),
]
PLAN = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = "unidirectional"
size = ["1MiB", "4MiB"]
stop_rule = "count"
stop_samples = 15
max_time = "60s"
"""
HERE = Path(__file__).parent


def checked(
    folder: Path, pairs: list[list[int]], capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any], str]:
    """Measure four host devices, the pairs' copies made 40 times each, and check the run."""
    fault = {"planter": str(HERE / "slow_planter.py"), "pairs": pairs, "times": 40}
    job = {"plan": PLAN, "fault": fault, "devices": "host:4", "hung_after_s": 60}
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    done = started([str(HERE / "run_job.py"), str(folder)], cwd=folder)
    assert done.returncode == 0, done.stderr
    capsys.readouterr()
    status = run_command(["check", str(folder / "run"), "--json"])
    said = json.loads(capsys.readouterr().out)
    run_command(["check", str(folder / "run")])
    return status, said, capsys.readouterr().out


def short_of(
    folder: Path, pairs: list[list[int]], wanted: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str], str]:
    """What fails: of the first of eight runs that names `wanted` alone, since load on the cores may hide it."""
    for attempt in range(8):
        status, said, shown = checked(folder.with_name(f"{folder.name}-{attempt}"), pairs, capsys)
        short = [v["what"] for v in said["verdicts"] if v["outcome"] == "fail"]
        if short == [wanted]:
            break
    return status, short, shown


@thorough("tests of findings name planted slow pairs")
def test_a_slow_pair_is_named_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, short, shown = short_of(tmp_path / "pair", [[1, 2]], "host device 1 - host device 2", capsys)
    assert (status, short) == (1, ["host device 1 - host device 2"]), shown
    assert "host device 1 - host device 2" in shown


@thorough("a slow pair is named by the same rules, and a slow device in tests of findings")
def test_a_device_that_sends_slowly_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, short, shown = short_of(tmp_path / "device", [[3, 0], [3, 1], [3, 2]], "what host device 3 sends", capsys)
    assert (status, short) == (1, ["what host device 3 sends"]), shown


@thorough("tests of findings raise no alarm over recorded clean runs")
def test_nothing_is_named_where_nothing_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for attempt in range(3):  # others' load makes devices that share a core slow, and truly so
        status, _, shown = checked(tmp_path / f"clean-{attempt}", [], capsys)
        if status == 3:  # siblings alone are no PASS
            break
    assert status == 3, shown
    assert "Judged by its own siblings" in shown
