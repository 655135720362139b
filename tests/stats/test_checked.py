"""Of how many operations the data were checked, as `check` and `against` say it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import synthetic
from linkgauge.app import cli
from linkgauge.peers.ours import checked_so_far
from linkgauge.stats.checked import operations_checked
from linkgauge.store.run import load


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in which each case checked its first and its last operation."""
    facts = synthetic._facts
    monkeypatch.setattr(synthetic, "_facts", lambda *case: {**facts(*case), "operations_checked": 2})
    return synthetic.make_run(tmp_path / "run", samples=20)


def test_it_is_counted_and_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in load(run).rows() if row.status == "ok"]
    found = operations_checked(load(run))
    assert found == {"checked": 2 * len(rows), "all": sum(row.operations_total or 0 for row in rows)}
    words = f"ata checked in {found['checked']:,} of {found['all']:,} operations"
    cli.run_command(["check", str(run)])
    assert f"D{words}; --verify N checks N more of each case" in " ".join(capsys.readouterr().out.split())
    for number in range(2):
        shutil.copytree(run, tmp_path / "out" / f"ours-0{number}")
    (tmp_path / "out" / "ours-02").mkdir()  # of a round that was ended
    (tmp_path / "out" / "ours-00.txt").touch()
    assert checked_so_far(tmp_path / "out") == (
        f"data checked in {2 * found['checked']:,} of {2 * found['all']:,} operations"
    )


def test_of_runs_from_before_it_was_counted_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = synthetic.make_run(tmp_path / "old", samples=20)
    assert not operations_checked(load(old))
    cli.run_command(["check", str(old)])
    assert "checked in" not in capsys.readouterr().out
    assert not checked_so_far(tmp_path)
