"""Runs whose parent is killed at a random moment and which are resumed measure what an undisturbed one does.

Whole runs of the command line, with real ranks: 24 by each MPI library (LINKGAUGE_TEST_MPI names others than the
wheel's) and by threads with `./lg test --faults` (LINKGAUGE_FAULTS=all), four with `--all`, else one. The moments are
drawn by a seed: some in the time before the first case is on disk, the others by what has been recorded, so that a
busy machine does not move them all behind the run's end.
"""

from __future__ import annotations

import collections
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from linkgauge import owner
from linkgauge.errors import RunFolderError
from linkgauge.run.machine import processes
from linkgauge.run.machine.private_folder import clean_leftovers
from linkgauge.store.run import load
from patience import PATIENCE_S
from thorough import most, thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
]
ALL = os.environ.get("LINKGAUGE_FAULTS") == "all"
RUNS = 24 if ALL else most(4, 1)
OTHERS = [prefix for prefix in os.environ.get("LINKGAUGE_TEST_MPI", "").split(os.pathsep) if prefix and ALL]
WAYS = [(), *([("--threads",)] if ALL else []), *(("--mpi", prefix) for prefix in OTHERS)]
SAMPLES = 6
PLAN = f"""
repeat = 2
[[case]]
transport = ["mpi", "kernel", "copy_engine", "staging"]
pattern = ["pingpong", "allreduce"]
size = "8:2KiB:x4"
pairs = "first"
stop_rule = "count"
stop_samples = {SAMPLES}
max_time = "60s"
"""
Completed = dict[tuple[str, int], int]  # (case_key, repeat) -> how often it is ok


def linkgauge(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "output.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "linkgauge", "run", *words, "--no-report"], env=environment,
                                stdout=log, stderr=log, cwd=folder)  # fmt: skip


def begin(folder: Path, way: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    (folder / "plan.toml").write_text(PLAN.replace('"mpi", ', "") if "--threads" in way else PLAN)
    return linkgauge(folder, "--devices", "host:2", "--plan", "plan.toml", "--out", "run", *way)


def completed(path: Path) -> Completed:
    return dict(collections.Counter((row.case_key, row.repeat) for row in load(path).rows() if row.status == "ok"))


def recorded_bytes(folder: Path) -> int:
    try:
        return (folder / "run" / "journal" / "statuses.lgj").stat().st_size
    except OSError:
        return 0


class Undisturbed:
    """A run that nobody disturbs: what it completes, and what is seen of it from outside while it goes on."""

    def __init__(self, folder: Path, way: tuple[str, ...]) -> None:
        self.way = way
        self.first_record_s = 0.0
        self.recorded_bytes = 0
        start, process = time.monotonic(), begin(folder, way)
        while process.poll() is None:
            size = recorded_bytes(folder)
            if size and not self.recorded_bytes:
                self.first_record_s = time.monotonic() - start
            self.recorded_bytes = max(self.recorded_bytes, size)
            time.sleep(0.005)
        assert process.returncode == 0, (folder / "output.log").read_text()
        self.completed = completed(folder / "run")

    def moment(self, generator: random.Random, folder: Path) -> Callable[[], bool]:
        """Whether the moment to kill a run in `folder`, which begins now, has come."""
        start, jitter_s = time.monotonic(), generator.uniform(0.0, 0.03)
        if generator.random() < 0.25:
            until = start + generator.uniform(0.0, 1.2) * self.first_record_s
            return lambda: time.monotonic() >= until
        least = generator.random() * self.recorded_bytes
        reached: list[float] = []

        def has_come() -> bool:
            if not reached and recorded_bytes(folder) >= least:
                reached.append(time.monotonic())
            return bool(reached) and time.monotonic() >= reached[0] + jitter_s

        return has_come


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: Path(way[-1]).name.strip("-") if way else "wheel")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Undisturbed:
    found = Undisturbed(tmp_path_factory.mktemp("undisturbed"), request.param)
    assert len(found.completed) == (60 if "--threads" in request.param else 80)
    assert set(found.completed.values()) == {1}
    return found


@thorough("test_killed_at_each_step.py kills at chosen steps what this kills at random")
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_killed_and_resumed_run_completes_what_an_undisturbed_one_does(
    tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    before, generator = shared_memory(), random.Random(seed)
    process = begin(tmp_path, undisturbed.way)
    kills = 0
    wanted = generator.choice((1, 1, 2))  # some are killed a second time while they are resumed
    while kills < wanted:
        has_come = undisturbed.moment(generator, tmp_path)
        while process.poll() is None and not has_come():
            time.sleep(0.002)
        process.kill()
        if process.wait() != -signal.SIGKILL:  # over before the moment came: another run, another moment
            assert process.returncode == 0, (tmp_path / "output.log").read_text()
            shutil.rmtree(tmp_path / "run")
            process, kills = begin(tmp_path, undisturbed.way), 0
            continue
        kills += 1
        done = check_readable(tmp_path / "run")
        print(f"killed with {done} of {len(undisturbed.completed)} cases done")
        process = go_on(tmp_path, undisturbed.way)
    assert process.wait(PATIENCE_S) == 0, (tmp_path / "output.log").read_text()
    assert completed(tmp_path / "run") == undisturbed.completed
    check_whole(tmp_path / "run")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert [path for path in files if path.name.startswith(".") or path.parent.name == "journal"] == []
    clean_leftovers([tmp_path / "tmp", Path("/dev/shm")])
    assert left_behind(tmp_path) == []
    assert new_shared_memory(before) == set()


@pytest.mark.parametrize(
    "which", [pytest.param("launcher", marks=thorough("a rank that stays keeps its launcher")), "rank"]
)
def test_what_is_stopped_does_not_stay_when_the_parent_is_killed(tmp_path: Path, which: str) -> None:
    """A stopped launcher does not hear that its parent has died, and a launcher may wait for a stopped rank."""
    before = shared_memory()
    process = begin(tmp_path)
    mark = f"{process.pid}.{owner.start_time(process.pid)}."
    deadline = time.monotonic() + PATIENCE_S
    # The launcher and its ranks: between two launches, which are short here, there is none.
    while len(of_the_launch := processes.marked(mark)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    stopped = min(of_the_launch) if which == "launcher" else max(of_the_launch)
    os.kill(stopped, signal.SIGSTOP)
    process.kill()
    process.wait()
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert new_shared_memory(before) == set()


def go_on(folder: Path, way: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Resume what is there; a run that was killed before its plan was stored is begun again."""
    again = ("--resume", "run", *(way if "--mpi" in way else ()))  # it is not among those that are found
    if (folder / "run" / "plan.json").exists():
        return linkgauge(folder, *again)
    refused = linkgauge(folder, *again)
    assert refused.wait(PATIENCE_S) == 2, (folder / "output.log").read_text()
    assert "Traceback" not in (folder / "output.log").read_text()
    shutil.rmtree(folder / "run", ignore_errors=True)
    return begin(folder, way)


def check_readable(path: Path) -> int:
    """What a killed run has recorded can be read, whatever the moment; how many cases are done."""
    try:
        run = load(path)
    except RunFolderError:
        assert not (path / "plan.json").exists()
        return 0
    rows = list(run.rows())
    assert {row.status for row in rows} <= {"ok", None}
    with_samples = set(run.samples["case_key"].to_pylist())
    assert {row.case_key for row in rows if row.status == "ok"} <= with_samples
    return sum(row.status == "ok" for row in rows)


def check_whole(path: Path) -> None:
    """Each completed case has its samples, once, and was verified."""
    run = load(path)
    ok = {row.identity for row in run.rows() if row.status == "ok"}
    assert all(row.verified for row in run.rows() if row.status == "ok")
    table = run.samples.select(["case_key", "launch", "repeat", "attempt", "sample", "rank", "lane", "phase"])
    seen = collections.Counter(
        (row["case_key"], row["launch"], row["repeat"], row["attempt"], row["rank"], row["lane"], row["sample"])
        for row in table.to_pylist() if row["phase"] == "sample"
    )  # fmt: skip
    assert set(seen.values()) == {1}
    numbers: dict[tuple[str, int, int, int], set[int]] = {}
    for identity in seen:
        numbers.setdefault(identity[:4], set()).add(identity[6])
    assert {identity: len(numbers[identity]) for identity in ok} == dict.fromkeys(ok, SAMPLES)
