"""The page for whoever repairs the machine, and the stored run that needs none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.app.demo import copy_stored
from node_run import node_run
from synthetic import make_case, make_run
from thorough import most, thorough

_COUNTER = {"rank": 0, "subject": "device 1", "name": "pcie_replay_errors", "unit": ""}


def test_a_ticket_names_device_numbers_counters_and_what_was_not_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = [{**_COUNTER, "moment": moment, "when_ns": when, "value": value}
            for moment, when, value in (("before", 1, 3.0), ("after", 9, 5.0))]  # fmt: skip
    path = node_run(tmp_path / "run", "hgx-h200-4", slow={(0, 3): 0.6}, observations=seen)
    assert run_command(["ticket", str(path)]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# FAIL: ")
    assert "slow_link" in page
    assert page.count("Fix: ") >= 1
    assert re.search(r"\| device 1 \| pcie_replay_errors \| 3 \| 5 \|", page)
    assert page.count(" GB/s |") >= 5  # five rates, each with its limit
    assert "not observed: gpu process list, temperature" in page.lower()
    assert len(page.splitlines()) <= 60
    assert run_command(["ticket", str(path), "-o", str(tmp_path / "t.md")]) == 0
    assert (tmp_path / "t.md").read_text() == page


def test_what_a_run_folder_holds_is_no_markup_of_the_ticket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = make_case("mpi", "allreduce", 8)
    reason = "<script>x</script> | `a` **b**"
    path = make_run(tmp_path / "run", cases=[case], samples=10, statuses={case.case_key: ("failed", reason)})
    assert run_command(["ticket", str(path)]) == 0
    assert "\\<script>x\\</script> \\| \\`a\\` \\*\\*b\\*\\*" in capsys.readouterr().out


@thorough("the stored run is read by other tests")
def test_the_demo_is_a_run_like_any_other_and_overwrites_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(most(2, 1)):  # a second time it is shown again
        assert run_command(["demo"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("2x H100")
        assert "report: linkgauge-demo/report.html" in out
        assert "linkgauge advise linkgauge-demo" in out
    assert (tmp_path / "linkgauge-demo" / "report.html").stat().st_size > 100_000
    mine = make_run(tmp_path / "mine", cases=[make_case("mpi", "allreduce", 8)], samples=10)
    before = (mine / "run.json").read_bytes()
    assert run_command(["demo", "-o", "mine"]) == 2
    assert "exists and is not the demo" in capsys.readouterr().err
    assert (mine / "run.json").read_bytes() == before


def test_the_stored_run_is_small_and_names_no_place(tmp_path: Path) -> None:
    copy_stored(tmp_path / "demo")
    files = list((tmp_path / "demo").iterdir())
    assert sum(file.stat().st_size for file in files) < 300_000
    text = (tmp_path / "demo" / "run.json").read_text()
    assert not re.search(r"/(home|root|tmp|opt|users)/", text)
    assert re.search(r'"host": "vm"', text)
