"""Disjoint pairs side by side, from the flag to the table: another measurement than each pair alone."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

from linkgauge.findings.read import facts_of
from linkgauge.model.result import Row
from linkgauge.stats.summary import summarize
from linkgauge.store.run import Run, load
from linkgauge.view.results import Results, is_pair
from program import linkgauge
from thorough import thorough

PAIRS_ALIKE = thorough("every pair is measured beside the others below")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built (LINKGAUGE_IN_PLACE)"
)
# Four ranks that are processes spin on a small machine's cores for half a minute.
PROCESSES = pytest.param(False, marks=thorough("threads meet the same pairs, and processes the same patterns alone"))
BOTH = [PROCESSES, True]
PLAN = """
[[case]]
transport = ["copy_engine", "kernel", "staging", "mpi"]
pattern = ["pingpong", "unidirectional", "bidirectional"]
size = "64KiB"
window = 2
pairs = "ordered"
stop_rule = "count"
stop_samples = 5
max_time = "20s"
warmup = 1
"""


def measured(tmp_path: Path, plan: str, threads: bool, *flags: str) -> tuple[Run, list[Row]]:
    """A run of `plan` on four host devices, and what was not skipped: all of it ok and verified."""
    (tmp_path / "plan.toml").write_text(plan)
    words = ["run", "--plan", "plan.toml", "--devices", "host:4", "--no-report", "--out", "run", *flags]
    done = linkgauge(*words, *(["--threads"] if threads else []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    run = load(tmp_path / "run")
    rows = [row for row in run.rows() if row.status != "skipped"]
    assert {row.status for row in rows} == {"ok"}
    assert all(row.verified for row in rows)
    return run, rows


@PAIRS_ALIKE
def test_the_message_rate_of_halves_is_measured_and_shown(tmp_path: Path) -> None:
    plan = PLAN.replace('["pingpong", "unidirectional", "bidirectional"]', '"pairs_unidirectional"').replace(
        '"ordered"', '"halves"'
    )
    run, rows = measured(tmp_path, plan.replace("64KiB", "8").replace("window = 2", "window = 16"), True)
    assert {(row.case.pattern, row.case.devices) for row in rows} == {("pairs_unidirectional", (0, 2, 1, 3))}
    headlines = [row for row in summarize(run).to_pylist() if row["lane"] == -1 and row["status"] == "ok"]
    assert len(headlines) == len(rows) == 3
    for row in headlines:
        assert row["messages_per_s"] == pytest.approx(2 * 16 / row["median_ns"] * 1e9)
    shown = linkgauge("show", "run", "--all", cwd=tmp_path)
    assert "millions of messages a second" in shown.stdout


@pytest.mark.parametrize("threads", BOTH)
def test_every_pair_is_measured_beside_the_others_and_never_mixed_with_single_ones(
    tmp_path: Path, threads: bool
) -> None:
    run, rows = measured(tmp_path, PLAN, threads, "--concurrent-pairs")
    assert {row.case.pattern for row in rows} == {"pairs_pingpong", "pairs_unidirectional", "pairs_bidirectional"}
    transports = {"copy_engine", "kernel", "staging"} | (set() if threads else {"mpi"})
    assert {row.case.transport for row in rows} == transports
    met = [
        pair
        for row in rows
        if (row.case.pattern, row.case.transport) == ("pairs_unidirectional", "kernel")
        for pair in zip(row.case.devices[::2], row.case.devices[1::2], strict=True)
    ]
    assert sorted(met) == sorted(itertools.permutations(range(4), 2))

    summary = summarize(run).to_pylist()
    for row in rows:
        lanes = {one["lane"]: one for one in summary if one["case_key"] == row.case_key}
        window, size = row.case.window, row.case.size
        assert list(row.lanes) == (
            ["0->1", "1->0", "2->3", "3->2"] if row.case.pattern == "pairs_bidirectional" else ["0->1", "2->3"]
        )
        assert set(lanes) == {-1, *range(len(list(row.lanes)))}
        assert lanes[-1]["lane_name"] == "sum"
        # Each lane by its own time, the sum by the slowest of them.
        payload = 2 * size if row.case.pattern == "pairs_pingpong" else window * size
        for lane, one in lanes.items():
            moved = payload * (len(lanes) - 1 if lane == -1 else 1)
            assert one["goodput_bytes_per_s"] == pytest.approx(moved / one["median_ns"] * 1e9)
        assert lanes[-1]["median_ns"] >= max(one["median_ns"] for lane, one in lanes.items() if lane >= 0) * 0.999
        assert row.bytes_total == payload * (len(lanes) - 1)

    assert not any(is_pair(row) for row in Results(run).rows)
    assert not facts_of(run).pair_sets
    shown = linkgauge("show", "run", "--all", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "pairs 0-1, 2-3" in shown.stdout


GROUPS = """
[[case]]
transport = ["copy_engine", "kernel", "staging", "mpi"]
pattern = ["allreduce", "allgather", "alltoall", "one_to_all", "ring_shift"]
size = "60KiB"
groups = [1, 2]
stop_rule = "count"
stop_samples = 5
max_time = "20s"
warmup = 1
"""


@PAIRS_ALIKE
@pytest.mark.parametrize("threads", BOTH)
def test_groups_are_measured_beside_each_other_each_as_a_case_of_its_own(tmp_path: Path, threads: bool) -> None:
    run, rows = measured(tmp_path, GROUPS, threads)
    assert len(rows) == 2 * 5 * (3 if threads else 4)
    facts, summary = facts_of(run), summarize(run).to_pylist()
    for row in rows:
        lanes = {one["lane"]: one for one in summary if one["case_key"] == row.case_key}
        groups, m, pattern = row.case.groups, row.case.size, row.case.pattern
        n = 4 // groups
        assert m % n == 0  # blocks are cut for the ranks of a group
        assert list(row.lanes) == (["0-1", "2-3"] if groups == 2 else ["all"])
        assert set(lanes) == ({-1, 0, 1} if groups == 2 else {-1})
        payload = {"alltoall": (n - 1) * m, "one_to_all": (n - 1) * m}.get(pattern, m)
        bus = {"allreduce": 2 * (n - 1) / n, "allgather": (n - 1) / n}.get(pattern, 1)
        for lane, one in lanes.items():
            moved = payload * (groups if lane == -1 else 1)
            assert one["goodput_bytes_per_s"] == pytest.approx(moved / one["median_ns"] * 1e9)
            assert one["busbw_bytes_per_s"] == pytest.approx(one["goodput_bytes_per_s"] * bus)
        # The case is as slow as its slowest group in each sample, so never faster than a group's own median.
        assert all(lanes[-1]["median_ns"] >= one["median_ns"] * 0.999 for one in lanes.values())
        (measure,) = (m for m in facts.measures if m.case_key == row.case_key)
        assert measure.bus == pytest.approx(lanes[-1]["busbw_bytes_per_s"])
    total = {row.case.groups: row.bytes_total for row in rows if row.case.pattern == "alltoall"}
    assert total == {1: 4 * 3 * 61440, 2: 2 * 2 * 61440}
    shown = linkgauge("show", "run", "--all", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "groups 2" in shown.stdout


def test_what_cannot_be_grouped_is_skipped_with_the_reason(tmp_path: Path) -> None:
    words = ["run", "--transport", "copy_engine", "--pattern", "allreduce,unidirectional,bidirectional", "--size", "8"]
    done = linkgauge(*words, "--groups", "3", "--devices", "host:4", "--no-report", "--out", "run", cwd=tmp_path)
    assert done.returncode == 6, done.stderr
    reasons = {row.case.pattern: row.reason for row in load(tmp_path / "run").rows()}
    assert "4 ranks are not 3 equal groups of 2 or more" in str(reasons["allreduce"])
    assert "of pairs there is pairs_unidirectional" in str(reasons["unidirectional"])


def test_a_plan_without_pairs_has_nothing_to_put_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('[[case]]\npattern = "alltoall"\nsize = "8"\n')
    done = linkgauge("run", "--plan", "plan.toml", "--devices", "host:4", "--concurrent-pairs", cwd=tmp_path)
    assert done.returncode == 2
    assert "--concurrent-pairs" in done.stderr
    assert "unidirectional" in done.stderr
