"""Real runs with a time limit: the beginning of the order of value is kept, nothing is lost, and they end in time."""

from __future__ import annotations

import collections
import datetime
import importlib.util
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import program
from linkgauge.store.run import load
from thorough import thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")

TRANSPORTS, PATTERNS = ("mpi", "kernel", "staging"), ("pingpong", "allreduce", "alltoall")
SIZES = {"8": 8, "128": 128, "2KiB": 2048, "32KiB": 32768, "512KiB": 524288}
# As docs/reference/plans.md says: the largest first, then the smallest, then the middle, then the quarters.
LEVELS = {SIZES["512KiB"]: 0, SIZES["8"]: 1, SIZES["2KiB"]: 2, SIZES["128"]: 3, SIZES["32KiB"]: 3}
PLAN = f"""
[[case]]
transport = {list(TRANSPORTS)}
pattern = {list(PATTERNS)}
size = {list(SIZES)}
pairs = "first"
devices = [[0, 1]]
stop_rule = "duration"
max_time = "STOP"
"""
CASES = len(TRANSPORTS) * len(PATTERNS) * len(SIZES)


def linkgauge(folder: Path, *words: str) -> tuple[int, str]:
    """Exit status and output."""
    done = program.linkgauge("run", *words, "--no-report", cwd=folder)
    return done.returncode, done.stdout + done.stderr


def limited(folder: Path, limit_s: int, plan: str) -> tuple[Any, str]:
    """A run of a plan with a time limit, which began no case after it and ended well; and what it said.

    How soon after the last case the run is over is the machine's affair: bench/time_limit.py measures it.
    """
    (folder / "plan.toml").write_text(plan)
    status, said = linkgauge(folder, "--devices", "host:2", "--plan", "plan.toml", "--out", "run", "--time-limit",
                             f"{limit_s}s")  # fmt: skip
    if status == 6 and limit_s < 200:  # a machine so busy that the limit was over before any case had ended
        shutil.rmtree(folder / "run")
        return limited(folder, limit_s * 4, plan.replace('"200ms"', '"800ms"').replace('"10ms"', '"40ms"'))
    assert status == 0, said
    run = load(folder / "run")
    began = datetime.datetime.fromisoformat(run.info["start"])  # the limit counts from a moment before
    began_ns = round(began.timestamp() * 1e9) - time.time_ns() + time.monotonic_ns()
    first_ns: dict[Any, int] = {}
    for sample in run.samples.select(["case_key", "launch", "start_ns"]).to_pylist():
        case = (sample["case_key"], sample["launch"])
        first_ns[case] = min(first_ns.get(case, sample["start_ns"]), sample["start_ns"])
    # One may have begun in time and have its first sample later, on a core that others take.
    assert sum(ns > began_ns + limit_s * 10**9 for ns in first_ns.values()) <= 1
    return run, said


def in_order(run: Any) -> list[tuple[str, int]]:
    """Bucket and size of each measured case, in the order in which they were measured."""
    began: dict[Any, int] = {}
    for sample in run.samples.select(["case_key", "launch", "repeat", "attempt", "start_ns"]).to_pylist():
        identity = (sample["case_key"], sample["launch"], sample["repeat"], sample["attempt"])
        began[identity] = min(began.get(identity, sample["start_ns"]), sample["start_ns"])
    rows = sorted((row for row in run.rows() if row.status == "ok"), key=lambda row: began[row.identity])
    return [(f"{row.case.transport} {row.case.pattern}", row.case.size_requested) for row in rows]


def check_order(measured: list[tuple[str, int]], buckets: int) -> None:
    """Every bucket has had its turn at a level before any has one of the next level."""
    levels = [LEVELS[size] for _, size in measured]
    assert levels == sorted(levels)
    seen: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for bucket, size in measured:
        seen[LEVELS[size]][bucket] += 1
    for level in range(max(seen)):  # complete but for the last
        assert len(seen[level]) == buckets, f"level {level + 1} began before level {level} was over"


@thorough("what is kept is tested of the schedule, and the end in time below")
def test_a_short_limit_keeps_the_beginning_of_the_order_of_value_and_the_rest_is_resumed(tmp_path: Path) -> None:
    run, said = limited(tmp_path, 9, PLAN.replace("STOP", "200ms"))  # it is over after some half of the cases
    measured = in_order(run)
    assert {row.status for row in run.rows()} == {"ok"}  # what was not measured has no status, and no half is kept
    assert 0 < len(measured) < CASES  # how many is the machine's affair: more than round 0 unless it is very busy
    check_order(measured, len(TRANSPORTS) * len(PATTERNS))
    assert run.info["exit_status"] == 0
    assert run.info["left"] == CASES - len(measured)
    assert f"{CASES - len(measured)} cases are not measured" in " ".join(said.split())
    before = {row.identity for row in run.rows()}
    status, said = linkgauge(tmp_path, "--resume", "run")
    after = load(tmp_path / "run")
    rows = list(after.rows())
    statuses = {row.status for row in rows}
    assert statuses <= {"ok", "timeout"}, said  # where others hold a rank's core, an operation may take seconds
    assert status == (4 if "timeout" in statuses else 0), said
    assert len({row.case_key for row in rows}) == len(rows) == CASES
    assert before <= {row.identity for row in rows}
    assert after.info["left"] == 0


@thorough("which cases are left is in tests/plan")
def test_where_cases_take_longer_than_estimated_the_least_telling_are_left(tmp_path: Path) -> None:
    # Samples that a rank comes to late on purpose: no estimate knows of it. Two kinds of launches.
    table = PLAN.replace("STOP", "20s").replace(
        'stop_rule = "duration"', 'stop_rule = "count"\nstop_samples = 16\narrival = "skewed"\nskew = "10ms"'
    )
    launches = '[[launch]]\nname = "near"\n[[launch]]\nname = "free"\nbind = "none"\n'
    run, _ = limited(tmp_path, 12, launches + table)
    kinds = {row["launch"]: json.loads(row["extra"])["launch_key_contents"]["bind"] for row in run.launches.to_pylist()}
    assert set(kinds.values()) <= {"nearest", "none"}
    ok = [row for row in run.rows() if row.status == "ok"]
    assert len(ok) < 2 * CASES
    assert run.info["left"] == 2 * CASES - len(ok)
    assert run.info["ended_by"] == "time limit"
    # Each kind has its first round before any goes on.
    levels = [(LEVELS[row.case.size_requested], kinds[row.launch]) for row in ok]
    if any(level > 0 for level, _ in levels):
        first = collections.Counter(kind for level, kind in levels if level == 0)
        assert first == dict.fromkeys(("nearest", "none"), len(TRANSPORTS) * len(PATTERNS))
