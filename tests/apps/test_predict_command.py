"""`linkgauge predict` and `linkgauge apps` as a user types them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.apps import catalogue

CURVES = """
[[case]]
transport = "copy_engine"
pattern = ["pingpong", "unidirectional", "bidirectional", "allreduce", "broadcast", "gather", "scatter"]
size = ["64", "64KiB", "1MiB"]
pairs = "first"
stop_rule = "count"
stop_samples = 20

[[case]]
transport = "copy_engine"
pattern = ["host_to_device", "device_to_host"]
size = ["64", "64KiB", "1MiB"]
stop_rule = "count"
stop_samples = 20

[[case]]
transport = "copy_engine"
app = ["mam", "llh n=16"]
stop_rule = "count"
stop_samples = 20
"""


def test_apps_has_a_sentence_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["apps", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told] == catalogue.names()
    assert all(len(one["what"]) > 20 for one in told)
    assert run_command(["apps"]) == 0
    assert "halo_stencil" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_predictions_stand_beside_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(CURVES)
    words = ["run", "--plan", str(tmp_path / "plan.toml"), "--devices", "host:2", "--threads", "--no-report"]
    assert run_command([*words, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert run_command(["predict", "mam,pln", "--from", str(tmp_path / "run"), "--json"]) == 0
    mam, pln = json.loads(capsys.readouterr().out)
    assert (mam["app"], mam["ranks"], mam["transport"]) == ("mam", 2, "copy_engine")
    assert mam["predicted_ns"] > 0 < mam["measured_ns"]
    assert mam["error"] == pytest.approx(mam["predicted_ns"] / mam["measured_ns"] - 1)
    assert mam["kinds"][0]["kind"] == "collective"
    assert pln["measured_ns"] is None
    assert "no barrier by copy_engine" in pln["why_not"]
    assert run_command(["predict", "llh", "--set", "n=16", "--from", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 predicted and measured" in said
    assert "llh n=16" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict", "llh"], "--from is missing"),
        (["predict", "lhl", "--from", "nowhere"], "did you mean 'llh'?"),
        (["predict", "llh", "--from", "nowhere"], "nowhere"),
        (["predict", "llh", "--from", "nowhere", "--statistic", "best"], "expected median"),
        (["predict", "llh", "--from", "nowhere", "--set", "n"], "expected NAME=NUMBER"),
        (["run", "--set", "n=1", "--dry-run"], "--set is of an application"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert expected in said
