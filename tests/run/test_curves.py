"""Curves that end by themselves, measured by real launches over a fake core: repeats, crashes, resume, readers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from linkgauge.findings.read import facts_of
from linkgauge.judge.baseline import check_baseline, make_baseline, read_baseline
from linkgauge.judge.compare_runs import compare_runs
from linkgauge.judge.left_out import left_out_keys
from linkgauge.judge.subjects import Subject
from linkgauge.model.result import Row
from linkgauge.run.parent.prepare import known_curves, resumed_pending
from linkgauge.run.parent.prepared import read_launches
from linkgauge.store.run import load
from thorough import thorough

CURVES_ALIKE = thorough("which sizes a curve leaves out is tested of its rule and of one run")

PLAN = """
repeat = {repeat}
[[case]]
transport = ["kernel", "staging"]
pattern = "unidirectional"
size = "1KiB:1GiB:x8"
until_gain = "2%"
until_time = "20ms"
pairs = "first"
[[case]]
transport = ["kernel", "staging"]
pattern = "unidirectional"
size = "full"
pairs = "ordered"
"""
LINK = "8000,10"  # 8 us and 10 GB/s: full at 32 MiB, since 4 MiB has 98.1 % and 32 MiB 99.8 %
KIB, MIB = 1 << 10, 1 << 20
CURVE = [KIB, 8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB]
FULL_AT = 4 * MIB  # takes 53 times as long as 1 KiB; 512 KiB 7 times


def of_curve(path: Path, repeat: int = 0) -> tuple[list[int], dict[int, str], Counter[int]]:
    """Of kernel: the sizes measured on the first pair, those left out with the reason, and those of all other pairs."""
    rows = [row for row in load(path).rows() if row.case.transport == "kernel" and row.repeat == repeat]
    first = [row for row in rows if row.case.devices == (0, 1)]
    measured = sorted(row.case.size for row in first if row.status == "ok")
    left = {row.case.size: str(row.reason) for row in first if row.status == "skipped"}
    return measured, left, Counter(row.case.size for row in rows if row.case.devices != (0, 1))


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKGAUGE_TEST_LINK", LINK)


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize("threads", [False, True])
def test_sizes_beyond_a_full_curve_are_left_out_and_pairs_are_measured_where_it_is_full(
    run_plan: Any, threads: bool
) -> None:
    run = run_plan(PLAN.format(repeat=1), devices=3, threads=threads)
    assert run.status == 0
    measured, left, pairs = of_curve(run.path)
    assert measured == CURVE
    assert left == dict.fromkeys((256 * MIB,), "full at 32MiB: goodput rose by 1.7 % from 4MiB")
    assert pairs == {FULL_AT: 5}
    info = load(run.path).info
    assert info["left"] == 0
    assert info["counts"] == {"ok": 2 * (6 + 5), "skipped": 2}
    evidence = {row.case.size: row.evidence for row in load(run.path).rows()
                if row.case.transport == "kernel"}  # fmt: skip
    assert evidence[256 * MIB]["left_out"]["full_at"] == 32 * MIB
    assert evidence[32 * MIB]["curve"]["id"] == evidence[256 * MIB]["left_out"]["curve"]


@CURVES_ALIKE
@pytest.mark.usefixtures("link")
def test_a_repeat_measures_the_sizes_of_the_first_and_so_does_what_goes_on_after_a_crash(
    run_plan: Any, tmp_path: Path
) -> None:
    fault = {"kind": "exit", "transport": "kernel", "size": 512 * KIB, "once": str(tmp_path / "planted")}
    run = run_plan(PLAN.format(repeat=2), devices=3, fault=fault)
    assert run.status == 4
    first, second = of_curve(run.path), of_curve(run.path, 1)
    assert first[0] == [size for size in CURVE if size != 512 * KIB]
    assert second[0] == CURVE
    assert first[1] == {**second[1], 512 * KIB: ""} or list(first[1]) == list(second[1])
    assert first[2] == second[2] == {FULL_AT: 5}


@CURVES_ALIKE
@pytest.mark.usefixtures("link")
def test_a_case_at_a_full_curve_that_crashes_is_told_with_its_size_and_not_measured_again(
    run_plan: Any, tmp_path: Path
) -> None:
    fault = {"kind": "exit", "transport": "kernel", "size": FULL_AT, "devices": (2, 1), "once": str(tmp_path / "once")}
    run = run_plan(PLAN.format(repeat=1), devices=3, fault=fault)
    rows = [row for row in load(run.path).rows() if row.status == "crashed"]
    assert [(row.case.size, row.case.size_requested, row.case.devices) for row in rows] == [(FULL_AT, FULL_AT, (2, 1))]
    assert of_curve(run.path)[2] == {FULL_AT: 5}
    launches = read_launches(run.path)
    assert resumed_pending(launches, load(run.path), load(run.path).info["relaunched"], frozenset()) == []
    again = resumed_pending(launches, load(run.path), load(run.path).info["relaunched"], frozenset({"crashed"}))
    assert [(entry.attempt, entry.case.devices) for one in again for entry in one.entries.values()] == [(1, (2, 1))]


@thorough("which sizes are left out of a curve that was begun is tested of its rule")
@pytest.mark.usefixtures("link")
def test_what_is_resumed_goes_by_what_was_measured(run_plan: Any) -> None:
    run = run_plan(PLAN.format(repeat=1), devices=3)
    launches = read_launches(run.path)
    whole = list(load(run.path).rows())

    class Part:
        """The run as it would be, had it ended after these rows."""

        def __init__(self, rows: list[Row]) -> None:
            self.kept, self.path = rows, run.path

        def rows(self) -> list[Row]:
            return self.kept

    part: Any = Part([row for row in whole if row.case.devices in ((0, 1), (1, 0))])
    pending = resumed_pending(launches, part, {}, frozenset())
    left = [entry for one in pending for entry in one.entries.values()]
    assert {entry.case.devices for entry in left} == {(0, 2), (2, 0), (1, 2), (2, 1)}
    curves = known_curves(launches, part)[launches[0].settings]
    assert all(entry.step is not None and curves.full_size(entry.step.curve) == FULL_AT for entry in left)


@CURVES_ALIKE
@pytest.mark.usefixtures("link")
def test_what_one_run_left_out_is_not_missed_in_it(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fast = run_plan(PLAN.format(repeat=1), devices=3, name="fast")
    monkeypatch.setenv("LINKGAUGE_TEST_LINK", "8000,1000")
    faster = run_plan(PLAN.format(repeat=1), devices=3, name="faster")
    keys = [{row.case_key for row in load(one.path).rows() if row.status == "ok"} for one in (fast, faster)]
    assert keys[1] - keys[0]
    assert keys[0] - keys[1]  # the matrices, at another size
    left_out = [left_out_keys(load(one.path).rows()) for one in (fast, faster)]
    assert keys[1] - keys[0] <= left_out[0]
    assert keys[0] - keys[1] <= left_out[1]
    assert not left_out[0] & keys[0]
    subjects = [Subject(one.path.name, facts_of(load(one.path))) for one in (fast, faster)]
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(make_baseline([subjects[1]] * 5)))
    verdicts, notes, _ = check_baseline(subjects[0], read_baseline(path))
    assert "unknown" not in {verdict.outcome for verdict in verdicts}
    assert any("whose curves ended before" in note for note in notes)
    compared = compare_runs(load(fast.path), load(faster.path))
    assert compared.only_first == len(keys[0] - keys[1])
    assert any("curves of the second ended before" in note for note in compared.notes)
