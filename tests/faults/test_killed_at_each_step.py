"""A run whose parent is killed before any of its steps that change a folder, and that is resumed, is as undisturbed.

Its set of cases, its files, and nothing else anywhere. All steps of a small run, by threads and by MPI, are taken with
`./lg test --faults` (LINKGAUGE_FAULTS=all; a step takes some three seconds), else some, spread evenly.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from linkgauge.store.run import load
from thorough import most

ALL = os.environ.get("LINKGAUGE_FAULTS") == "all"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.timeout(3600 if ALL else 1800),
]
PLAN = """
[[launch]]
name = "one"
[[launch]]
name = "two"
peer_access = false
[[case]]
transport = ["kernel", "staging"]
pattern = "pingpong"
size = "8"
pairs = "first"
stop_rule = "count"
stop_samples = 3
max_time = "60s"
"""


class Killer:
    """Command lines in a folder, each killed before a step or not; `killed_at.py` runs them."""

    def __init__(self, folder: Path) -> None:
        (folder / "tmp").mkdir()
        (folder / "plan.toml").write_text(PLAN)
        self.folder = folder
        environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killed_at.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
        )  # fmt: skip

    def run(self, *words: str, step: int = -1) -> tuple[int, int]:
        """The exit status and how many steps there were."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"step": step, "words": ["run", *words, "--no-report"]}) + "\n")
        self.process.stdin.flush()
        status, steps = self.process.stdout.readline().split()
        return int(status), int(steps)


@contextlib.contextmanager
def killer(folder: Path) -> Iterator[Killer]:
    found = Killer(folder)
    try:
        yield found
    finally:
        found.process.communicate()


def completed(path: Path) -> dict[tuple[str, int, str], int]:
    names = {row["launch"]: row["launch_key"] for row in load(path).launches.to_pylist()}
    rows = [row for row in load(path).rows() if row.status == "ok"]
    return dict(collections.Counter((row.case_key, row.repeat, names[row.launch]) for row in rows))


def files(path: Path) -> set[str]:
    """Names of all files; a run that was disturbed has launches of other numbers."""
    there = [str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()]
    return {re.sub(r"launch-\d{5}", "launch", name) for name in there}


@pytest.mark.parametrize("threads", most([True, False], [True]), ids=lambda threads: "threads" if threads else "mpi")
def test_a_parent_killed_before_any_step_leaves_what_can_be_resumed_to_the_same(tmp_path: Path, threads: bool) -> None:
    before = shared_memory()
    words = ["--devices", "host:2", "--plan", "plan.toml", "--out", "run", *(["--threads"] if threads else [])]
    run = tmp_path / "run"
    with killer(tmp_path) as runs:
        status, steps = runs.run(*words)
        assert status == 0, (tmp_path / "output.log").read_text()
        wanted, there = completed(run), files(run)
        assert len(wanted) == 4
        assert set(wanted.values()) == {1}
        assert steps > 40
        every = 1 if ALL else most(4 if threads else 12, steps)
        for step in range(every // 2, steps, every):
            shutil.rmtree(run, ignore_errors=True)
            status, _ = runs.run(*words, step=step)
            if status == 0:
                continue  # fewer steps this time
            assert status == -signal.SIGKILL, (tmp_path / "output.log").read_text()
            if (run / "plan.json").exists():
                status, _ = runs.run("--resume", "run")
            else:  # killed before there was anything to resume, which is said
                if run.exists():
                    assert runs.run("--resume", "run")[0] == 2
                shutil.rmtree(run, ignore_errors=True)
                status, _ = runs.run(*words)
            assert status == 0, f"step {step}: " + (tmp_path / "output.log").read_text()
            assert completed(run) == wanted, step
            assert files(run) == there, step
            assert list((tmp_path / "tmp").glob("linkgauge-*/*")) == [], step
    assert left_behind(tmp_path) == []
    assert [str(path) for path in (tmp_path / "tmp").iterdir()] == []
    assert new_shared_memory(before) == set()
