"""A run whose folder vanishes, or can no longer be written, under way: it ends soon, in one line, leaving nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from faults.test_killed_runs import begin, check_readable, linkgauge, recorded_bytes
from patience import PATIENCE_S
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
]


def wait_for_records(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
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
    check_the_end(tmp_path, process.wait(PATIENCE_S), before)


ANOTHER_USER = "61234"  # nobody's: neither passwd nor any package gives it out
# For whom modes hold, the better first: another user where the interpreter and the checkout are his to read, else root
# without the rights to pass by them.
FOR_WHOM_MODES_HOLD = (
    ("setpriv", f"--reuid={ANOTHER_USER}", f"--regid={ANOTHER_USER}", "--clear-groups"),
    ("setpriv", "--bounding-set=-dac_override,-dac_read_search"),
)


def passes_by_modes() -> bool:
    """Whether this process may write where modes forbid it (CAP_DAC_OVERRIDE, bit 1 of capability.h)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return bool(int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16) & 2)


def as_one_for_whom_modes_hold(test: str) -> None:
    """Run one test of this file again, by a process that is not almighty."""
    folder = Path(tempfile.mkdtemp(prefix="modes-hold-"))
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    # The process itself may start where what it starts may not: setpriv is almighty still when it becomes the process.
    try_it = (
        f"import linkgauge._core, pytest, subprocess, sys; open({__file__!r}); "
        "subprocess.run([sys.executable, '-c', 'import numpy'], check=True)"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "tests"),
               f"{__file__}::{test}"]  # fmt: skip

    def run(prefix: tuple[str, ...], words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*prefix, *words], env=environment, cwd=Path(__file__).parents[2], text=True,
                              capture_output=True, check=False, timeout=PATIENCE_S)  # fmt: skip

    try:
        for prefix in FOR_WHOM_MODES_HOLD:
            if ANOTHER_USER in prefix[1]:
                os.chown(folder, int(ANOTHER_USER), int(ANOTHER_USER))
            else:
                os.chown(folder, 0, 0)
            if run(prefix, [sys.executable, "-c", try_it]).returncode == 0:
                break
        else:
            pytest.skip("root writes where nobody may, and no setpriv here gives that right up")
        done = run(prefix, command)
        print(f"as {' '.join(prefix)}: {done.stdout}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout
    finally:
        shutil.rmtree(folder)


@thorough("a folder that vanished ends the run by the same way")
def test_a_folder_that_became_read_only_ends_the_run_and_can_be_resumed(tmp_path: Path) -> None:
    if passes_by_modes():  # as root does
        as_one_for_whom_modes_hold("test_a_folder_that_became_read_only_ends_the_run_and_can_be_resumed")
        return
    before, process = shared_memory(), begin(tmp_path)
    wait_for_records(tmp_path)
    for path in (tmp_path / "run", tmp_path / "run" / "journal"):
        path.chmod(0o500)
    check_the_end(tmp_path, process.wait(PATIENCE_S), before)
    for path in (tmp_path / "run", tmp_path / "run" / "journal"):
        path.chmod(0o700)
    assert check_readable(tmp_path / "run") > 0
    assert linkgauge(tmp_path, "--resume", "run").wait(PATIENCE_S) == 0
