"""A run whose folder vanishes, or can no longer be written, under way: it ends soon, in one line, leaving nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from faults.test_killed_runs import begin, check_readable, linkgauge, recorded_bytes

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.timeout(300),
]


def wait_for_records(folder: Path) -> None:
    deadline = time.monotonic() + 100
    while recorded_bytes(folder) < 5000 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert recorded_bytes(folder)


def check_the_end(folder: Path, status: int, before: set[str]) -> None:
    said = (folder / "output.log").read_text()
    assert status == 5, said
    assert "Traceback" not in said
    assert said.strip().splitlines()[-1].startswith("linkgauge: error: "), said
    assert left_behind(folder) == []
    assert new_shared_memory(before) == set()


def test_a_vanished_folder_ends_the_run(tmp_path: Path) -> None:
    before, process = shared_memory(), begin(tmp_path)
    wait_for_records(tmp_path)
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    check_the_end(tmp_path, process.wait(100), before)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where nobody may")
def test_a_folder_that_became_read_only_ends_the_run_and_can_be_resumed(tmp_path: Path) -> None:
    before, process = shared_memory(), begin(tmp_path)
    wait_for_records(tmp_path)
    for path in (tmp_path / "run", tmp_path / "run" / "journal"):
        path.chmod(0o500)
    check_the_end(tmp_path, process.wait(100), before)
    for path in (tmp_path / "run", tmp_path / "run" / "journal"):
        path.chmod(0o700)
    assert check_readable(tmp_path / "run") > 0
    assert linkgauge(tmp_path, "--resume", "run").wait(200) == 0
