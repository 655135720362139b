"""`linkgauge watch`: rounds at their times in one folder, ended by a signal, gone on with by --resume at its pace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from linkgauge.app import cli
from linkgauge.stats.attempts import counted
from linkgauge.stats.series import run_blocks
from linkgauge.store.run import Run, load
from patience import PATIENCE_S
from program import linkgauge

WORDS = ["--devices", "host:2", "--threads", "--transport", "kernel", "--pattern", "local_copy", "--ranks", "1",
         "--size", "64", "--stop-rule", "count", "--stop-samples", "3"]  # fmt: skip


def began_s(run: Run) -> list[float]:
    """When each round's first sample began, in s, in the order of rounds."""
    first: dict[int, int] = {}
    for (_, _, repeat, _), block in run_blocks(run):
        first[repeat] = min(first.get(repeat, 1 << 62), int(block.start_ns.min()))
    return [first[repeat] / 1e9 for repeat in sorted(first)]


def watching(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "linkgauge", "watch", *words, "--out", str(folder), *WORDS]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_rounds_begin_at_their_times_and_a_watch_that_was_ended_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "watch"
    process = watching(folder, "--every", "3s", "--for", "6s")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        statuses = folder / "samples" / "launch-00000.parquet"
        if statuses.exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert json.loads((folder / "run.json").read_text())["requested"]["every_s"] == 3
    measured = len(began_s(load(folder)))
    assert 1 <= measured < 3
    resumed = linkgauge("run", "--resume", str(folder), "--no-report", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    run = load(folder)
    assert {len(group) for group in counted(run).measured} == {3}
    gaps = np.diff(began_s(run))
    # Never sooner than asked; how much later is the machine's affair. From the last before the signal to the next it is
    # the user's.
    assert (np.delete(gaps, measured - 1) > 2.5).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--every 10s --for 5s", "2 to 10000 rounds"),
        ("--every 10ms --for 1s", "at least a second"),
        ("--every 1s --for 100h", "2 to 10000 rounds"),
        ("--every 1parsec", "parsec"),
        ("--resume x", "--resume"),
    ],
)
def test_what_is_no_watch_is_told(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["watch", *words.split()]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert told in error
