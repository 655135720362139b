"""What is planted into a run folder is what a slower part would have done to it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_planting
from run_planting import MS, TICK_EVERY_NS, TICK_NS, late_rank, plant, slow_from, slow_wires, ticks
from run_wires import Wire, Wires

from linkgauge.store.run import Run, load
from synthetic import make_case, make_run

BIG, SMALL = 1 << 28, 1 << 10
CASES = [
    *(make_case("copy_engine", "unidirectional", size, pair) for size in (SMALL, BIG) for pair in ((0, 1), (2, 3))),
    *(make_case("ccl", "allreduce", size) for size in (SMALL, BIG)),
    make_case("copy_engine", "bidirectional", BIG, (0, 1)),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(make_run(tmp_path_factory.mktemp("real") / "run", cases=CASES))


def medians(run: Run) -> dict[tuple[str, tuple[int, ...], int, int], float]:
    """(pattern, devices, size, lane) -> median ns."""
    names = {row["case_key"]: (row["pattern"], tuple(row["devices"]), row["size"]) for row in run.cases.to_pylist()}
    rows: dict[tuple[str, tuple[int, ...], int, int], list[int]] = {}
    for row in run.samples.to_pylist():
        if row["phase"] == "sample":
            rows.setdefault((*names[row["case_key"]], row["lane"]), []).append(row["ns"])
    return {key: float(np.median(values)) for key, values in rows.items()}


def changes(run: Run, out: Path, *what: run_planting.Change) -> dict[tuple[str, tuple[int, ...], int, int], float]:
    """By how much the medians have grown, as a share."""
    plant(run, out, list(what))
    before, after = medians(run), medians(load(out))
    return {key: after[key] / before[key] - 1 for key in before}


def test_nothing_planted_changes_nothing(run: Run, tmp_path: Path) -> None:
    plant(run, tmp_path, [])
    assert load(tmp_path).samples.equals(run.samples)
    assert load(tmp_path).cases.equals(run.cases)


def test_a_slow_port_lengthens_what_it_limits(run: Run, tmp_path: Path) -> None:
    longer = changes(run, tmp_path, slow_wires(Wires(run), {Wire("port", (0,), "out"): 0.1}))
    slower = pytest.approx(1 / 0.9 - 1, rel=0.1)
    assert longer["unidirectional", (0, 1), BIG, 0] == slower
    assert longer["allreduce", (0, 1, 2, 3), BIG, 0] == slower
    assert longer["bidirectional", (0, 1), BIG, 0] == slower
    untouched = {key: share for key, share in longer.items() if key[2] == SMALL or 2 in key[1][:1]}
    assert len(untouched) == 4
    assert set(untouched.values()) == {0.0}
    assert longer["bidirectional", (0, 1), BIG, 1] == 0.0  # the other way


def test_a_slow_pair_is_slow_in_its_direction_only(run: Run, tmp_path: Path) -> None:
    longer = changes(run, tmp_path, slow_wires(Wires(run), {Wire("pair", (2, 3)): 0.2}))
    assert longer["unidirectional", (2, 3), BIG, 0] == pytest.approx(0.25, rel=0.1)
    assert longer["unidirectional", (0, 1), BIG, 0] == 0.0


def test_all_wait_for_a_late_rank(run: Run, tmp_path: Path) -> None:
    plant(run, tmp_path, [late_rank(2)])
    keys = {row["case_key"] for row in run.cases.to_pylist() if row["pattern"] == "allreduce"}
    for old, new in zip(run.samples.to_pylist(), load(tmp_path).samples.to_pylist(), strict=True):
        late = new["start_ns"] - new["scheduled_ns"] - (old["start_ns"] - old["scheduled_ns"])
        end = late + new["ns"] - old["ns"]
        if old["case_key"] in keys:
            assert late == (20_000 if old["rank"] == 2 else 0)
            assert 10_000 < end <= 20_000
        else:
            assert (late, end) == (0, 0)


def test_a_device_slow_from_a_moment_is_as_fast_as_ever_before(run: Run, tmp_path: Path) -> None:
    starts = run.samples["start_ns"].to_numpy()
    moment = int(np.median(starts))
    plant(run, tmp_path, [slow_from(3, moment, 0.2)])
    devices = {row["case_key"]: row["devices"] for row in run.cases.to_pylist()}
    shares = set()
    for old, new in zip(run.samples.to_pylist(), load(tmp_path).samples.to_pylist(), strict=True):
        hit = old["start_ns"] > moment + MS and 3 in devices[old["case_key"]]
        if hit or old["start_ns"] < moment:
            shares.add((hit, round(new["ns"] / old["ns"], 2)))
    assert shares == {(False, 1.0), (True, 1.25)}


def test_a_disturbance_meets_what_lies_on_its_ticks(run: Run, tmp_path: Path) -> None:
    phase = int(run.samples["start_ns"].to_numpy().min()) + 5 * MS
    plant(run, tmp_path, [ticks(None, phase)])
    hits = 0
    for old, new in zip(run.samples.to_pylist(), load(tmp_path).samples.to_pylist(), strict=True):
        first, end = ((at - phase) // TICK_EVERY_NS for at in (new["scheduled_ns"], new["start_ns"] + old["ns"]))
        more = new["ns"] - old["ns"]
        hits += more > 0
        assert more % TICK_NS == 0
        assert more // TICK_NS >= end - first
    assert hits > 20


def test_samples_that_are_drawn_again_are_the_cases_own(run: Run, tmp_path: Path) -> None:
    plant(run, tmp_path, [run_planting.resampled(3)])
    before, after = run.samples.to_pydict(), load(tmp_path).samples.to_pydict()
    for key in set(before["case_key"]):
        old, new = ({ns for k, ns in zip(of["case_key"], of["ns"], strict=True) if k == key} for of in (before, after))
        assert new <= old
        assert 0.3 < len(new) / len(old) < 1


def test_no_sample_begins_before_the_one_before_it_has_ended(run: Run, tmp_path: Path) -> None:
    plant(run, tmp_path, [run_planting.resampled(3), slow_wires(Wires(run), {Wire("port", (0,), "out"): 0.5})])
    rows = sorted(load(tmp_path).samples.to_pylist(), key=lambda row: (row["scheduled_ns"], row["rank"]))
    ends: dict[int, int] = {}
    for row in rows:
        assert row["scheduled_ns"] >= ends.get(row["rank"], 0)
        ends[row["rank"]] = row["start_ns"] + row["ns"]
