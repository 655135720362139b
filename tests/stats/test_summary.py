"""Summaries against definitions.md, recomputed from the samples with numpy: who keeps the time, and what follows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import linkgauge
from linkgauge.errors import RunFolderError
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import FIGURES, HEADLINE
from linkgauge.stats.summary import summarize, summary_schema
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter
from synthetic import Noise, make_case, make_run

# docs/definitions.md's table once more, by hand: goodput's numerator in bytes, bus factor.
GOODPUT = {
    "pingpong": lambda m, n, w: 2 * m,
    "unidirectional": lambda m, n, w: w * m,
    "bidirectional": lambda m, n, w: 2 * w * m,  # the headline is the sum
    "ring_shift": lambda m, n, w: m,
    "one_to_all": lambda m, n, w: (n - 1) * m,
    "alltoall": lambda m, n, w: (n - 1) * m,
    "allreduce": lambda m, n, w: m,
    "allgather": lambda m, n, w: m,
    "broadcast": lambda m, n, w: m,
    "gather": lambda m, n, w: m,
}
BUS = {"allreduce": lambda n: Fraction(2 * (n - 1), n), "allgather": lambda n: Fraction(n - 1, n)}
BUS["gather"] = BUS["allgather"]


def write(
    path: Path, case: Case, columns: dict[str, Any], hosts: tuple[str, ...] = ("a",), **extra: Any
) -> dict[str, Any]:
    """Write one case with the given samples and return its headline row."""
    return next(row for row in write_all(path, case, columns, hosts, **extra) if row["lane"] == HEADLINE)


def write_all(
    path: Path, case: Case, columns: dict[str, Any], hosts: tuple[str, ...], **extra: Any
) -> list[dict[str, Any]]:
    folder = RunFolder.create(path, {})
    count = len(columns["ns"])
    defaults = {"lane": 0, "phase": 1, "scheduled_ns": 0, "start_ns": 0, "iterations": 1, "clock": 0}
    kinds = {"rank": np.int32, "lane": np.int16, "sample": np.int32, "phase": np.uint8, "clock": np.uint8}
    arrays = {}
    for name in ("rank", "lane", "sample", "phase", "scheduled_ns", "start_ns", "ns", "iterations", "clock"):
        values = columns.get(name, defaults.get(name))
        arrays[name] = np.broadcast_to(np.asarray(values, kinds.get(name, np.int64)), (count,)).copy()
    identity = {"case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0}
    told = identity | {"case": case.dimensions(), "status": "ok"} | extra
    ranks = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
    with JournalWriter(folder.journal_path(0)) as journal:
        journal.append("launch", {"launch": 0, "launch_key": "k", "clock": {"resolution_ns": 1.0}, "ranks": ranks})
        journal.append("case", told, arrays)
    folder.status_journal().append("status", told)
    folder.close()
    return list(summarize(linkgauge.load(path)).to_pylist())


def steady(rng: np.random.Generator, count: int, level: float = 10_000) -> np.ndarray[Any, Any]:
    return np.rint(level * np.exp(0.02 * rng.standard_normal(count))).astype(np.int64)


@pytest.mark.parametrize("pattern", list(GOODPUT))
def test_goodput_and_bus_bandwidth_are_the_definitions(tmp_path: Path, pattern: str) -> None:
    case = make_case("ccl", pattern, 1 << 20, window=3 if pattern in ("unidirectional", "bidirectional") else 1)
    path = make_run(tmp_path / "run", cases=[case], samples=80)
    run = linkgauge.load(path)
    row = next(row for row in summarize(run).to_pylist() if row["lane"] == HEADLINE)
    payload = GOODPUT[pattern](case.size, case.ranks, case.window)
    assert row["goodput_bytes_per_s"] == pytest.approx(payload / row["median_ns"] * 1e9, rel=1e-12)
    assert row["goodput_mean_bytes_per_s"] == pytest.approx(payload / row["mean_ns"] * 1e9, rel=1e-12)
    assert row["goodput_low_bytes_per_s"] <= row["goodput_bytes_per_s"] <= row["goodput_high_bytes_per_s"]
    factor = float(BUS[pattern](case.ranks)) if pattern in BUS else 1.0
    assert row["busbw_bytes_per_s"] == pytest.approx(row["goodput_bytes_per_s"] * factor)
    assert row["latency_ns"] == row["median_ns"] / (2 if pattern == "pingpong" else 1)


@pytest.mark.parametrize(("pattern", "messages"), [
    ("unidirectional", 16), ("bidirectional", 32), ("pingpong", None), ("halo", None), ("alltoall", None),
    ("barrier", None),
])  # fmt: skip
def test_messages_a_second_are_those_of_all_windows(tmp_path: Path, pattern: str, messages: int | None) -> None:
    case = make_case("mpi", pattern, 8, window=16 if PATTERNS[pattern].windowed else 1)
    run = linkgauge.load(make_run(tmp_path / "run", cases=[case], samples=80))
    row = next(row for row in summarize(run).to_pylist() if row["lane"] == HEADLINE)
    wanted = None if messages is None else pytest.approx(messages / row["median_ns"] * 1e9, rel=1e-12)
    assert row["messages_per_s"] == wanted


def test_statistics_are_numpys_after_the_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    ns = steady(rng, 500)
    ns[:40] *= 3  # warm-up that the phase did not cover: the stop rule's cut finds it
    case = make_case("mpi", "pingpong", 8)
    row = write(tmp_path / "run", case, {"rank": 0, "sample": np.arange(500), "ns": ns})
    assert 35 <= row["warmup_cut"] <= 60
    kept = ns[row["warmup_cut"] :]
    assert row["samples"] == kept.size
    shares = {"median_ns": 50, "q1_ns": 25, "q3_ns": 75, "p5_ns": 5, "p95_ns": 95, "min_ns": 0, "max_ns": 100}
    for name, share in shares.items():
        assert row[name] == pytest.approx(np.percentile(kept, share)), name
    assert row["mean_ns"] == pytest.approx(kept.mean())
    assert row["interval_low_ns"] <= row["median_ns"] <= row["interval_high_ns"]
    assert row["p99_ns"] is None or row["effective_samples"] >= 368


def test_warm_up_phases_never_count(tmp_path: Path) -> None:
    ns = np.array([10**9] * 5 + [100] * 30)
    phase = np.array([0] * 5 + [1] * 30)
    row = write(
        tmp_path / "run",
        make_case("mpi", "pingpong", 8),
        {"rank": 0, "sample": np.arange(35), "ns": ns, "phase": phase},
    )
    assert (row["max_ns"], row["samples"]) == (100, 30)


def test_a_sample_over_many_iterations_is_divided_only_here(tmp_path: Path) -> None:
    case = make_case("mpi", "pingpong", 8, cadence="streaming")
    row = write(tmp_path / "run", case, {"rank": 0, "sample": np.arange(30), "ns": np.full(30, 1010), "iterations": 20})
    assert row["median_ns"] == 50.5


@pytest.mark.parametrize(
    ("pattern", "root", "keeper"), [("pingpong", 0, 0), ("unidirectional", 0, 0), ("one_to_all", 2, 2)]
)
def test_one_rank_keeps_the_time(tmp_path: Path, pattern: str, root: int, keeper: int) -> None:
    case = make_case("mpi", pattern, 64, root=root)
    rank = np.repeat(np.arange(case.ranks), 30)
    columns = {"rank": rank, "sample": np.tile(np.arange(30), case.ranks), "ns": 100 * (rank + 1)}
    assert write(tmp_path / "run", case, columns)["median_ns"] == 100 * (keeper + 1)


def four_ranks(rng: np.random.Generator, count: int = 60) -> dict[str, Any]:
    rank = np.repeat(np.arange(4), count)
    scheduled = np.tile(np.arange(count) * 10**6 + 5, 4)
    start = scheduled + rng.integers(0, 500, 4 * count)
    return {
        "rank": rank,
        "sample": np.tile(np.arange(count), 4),
        "scheduled_ns": scheduled,
        "start_ns": start,
        "ns": steady(rng, 4 * count),
    }


def slowest(columns: dict[str, Any], host_schedule: bool) -> float:
    by_sample = []
    for number in np.unique(columns["sample"]):
        mine = columns["sample"] == number
        end = (columns["start_ns"] + columns["ns"])[mine].max() - columns["scheduled_ns"][mine][0]
        by_sample.append(end if host_schedule else columns["ns"][mine].max())
    return float(np.median(by_sample))


@pytest.mark.parametrize(
    ("hosts", "clock", "scheduled", "host_schedule"),
    [
        (("a",) * 4, 0, True, True),
        (("a", "a", "b", "b"), 0, True, False),
        (("a",) * 4, 1, True, False),
        (("a",) * 4, 0, False, False),
    ],
)
def test_the_slowest_rank(
    tmp_path: Path, hosts: tuple[str, ...], clock: int, scheduled: bool, host_schedule: bool
) -> None:
    columns = four_ranks(np.random.default_rng(7)) | {"clock": clock}
    if not scheduled:
        columns["scheduled_ns"] = np.zeros_like(columns["scheduled_ns"])
    case = make_case("ccl", "allreduce", 4096, clock="event" if clock else "host")
    row = write(tmp_path / "run", case, columns, hosts)
    assert row["median_ns"] == slowest(columns, host_schedule)
    assert row["max_rank_median_ns"] == slowest(columns, False)


@pytest.mark.parametrize("order", ["sample first", "shuffled"])
def test_the_order_of_the_rows_does_not_matter(tmp_path: Path, order: str) -> None:
    rng = np.random.default_rng(8)
    columns = four_ranks(rng)
    places = np.lexsort((columns["rank"], columns["sample"])) if order == "sample first" else rng.permutation(240)
    mixed = {name: values[places] for name, values in columns.items()}
    case = make_case("ccl", "allreduce", 4096)
    assert write(tmp_path / "run", case, mixed, ("a",) * 4)["median_ns"] == slowest(columns, True)


def test_samples_that_a_rank_lacks_are_left_out(tmp_path: Path) -> None:
    columns = four_ranks(np.random.default_rng(9))
    lost = ~((columns["rank"] == 2) & (columns["sample"] >= 50))
    case = make_case("ccl", "allreduce", 4096)
    row = write(tmp_path / "run", case, {name: values[lost] for name, values in columns.items()}, ("a",) * 4)
    whole = {name: values[columns["sample"] < 50] for name, values in columns.items()}
    assert (row["median_ns"], row["samples"] + row["warmup_cut"]) == (slowest(whole, True), 50)


def test_a_rank_without_samples_gives_no_number(tmp_path: Path) -> None:
    columns = four_ranks(np.random.default_rng(9))
    kept = columns["rank"] != 3
    case = make_case("ccl", "allreduce", 4096)
    row = write(tmp_path / "run", case, {name: values[kept] for name, values in columns.items()}, ("a",) * 4)
    assert all(row[name] is None for name in FIGURES)


def test_lanes_and_their_sum(tmp_path: Path) -> None:
    case = make_case("copy_engine", "bidirectional", 1 << 20)
    rank = np.repeat([0, 1], 40)
    ns = np.where(rank == 0, 1000, 4000)
    columns = {"rank": rank, "lane": rank, "sample": np.tile(np.arange(40), 2), "ns": ns}
    rows = {row["lane_name"]: row for row in write_all(tmp_path / "run", case, columns, ("a",), lanes=["0->1", "1->0"])}
    assert rows["0->1"]["goodput_bytes_per_s"] == pytest.approx((1 << 20) / 1000 * 1e9)
    assert rows["1->0"]["goodput_bytes_per_s"] == pytest.approx((1 << 20) / 4000 * 1e9)
    assert rows["sum"]["goodput_bytes_per_s"] == pytest.approx(2 * (1 << 20) / 4000 * 1e9)
    assert rows["sum"]["lane"] == HEADLINE


def test_no_number_where_there_is_none(tmp_path: Path) -> None:
    """Corrupt, skipped and unjudged cases, latencies, and times of 0: missing, never 0 or infinite."""
    cases = [make_case("mpi", "pingpong", size) for size in (8, 64, 512)]
    path = make_run(
        tmp_path / "run",
        cases=cases,
        samples=20,
        skipped=[(make_case("ccl", "allreduce", 8), "none")],
        statuses={cases[0].case_key: ("corrupt", "byte 3"), cases[1].case_key: ("timeout", "")},
    )
    rows = {row["status"]: row for row in summarize(linkgauge.load(path)).to_pylist()}
    assert rows["corrupt"]["median_ns"] is None
    assert rows["skipped"]["goodput_bytes_per_s"] is None
    assert rows["timeout"]["median_ns"] > 0  # kept
    row = write(
        tmp_path / "zero", make_case("kernel", "pingpong", 8), {"rank": 0, "sample": np.arange(9), "ns": np.zeros(9)}
    )
    assert row["median_ns"] is None
    assert row["goodput_bytes_per_s"] is None
    row = write(
        tmp_path / "pointer_chase",
        make_case("kernel", "pointer_chase", 4096),
        {"rank": 0, "sample": np.arange(9), "ns": np.full(9, 700)},
    )
    assert (row["latency_ns"], row["goodput_bytes_per_s"]) == (700, None)


def test_an_unjudged_case_has_no_figures(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {})
    case = make_case("mpi", "pingpong", 8)
    told = {
        "case_key": case.case_key,
        "launch": 0,
        "repeat": 0,
        "attempt": 0,
        "case": case.dimensions(),
        "status": "ok",
    }
    samples = {
        name: np.ones(9, np.int64) for name in ("rank", "sample", "scheduled_ns", "start_ns", "ns", "iterations")
    }
    samples |= {"rank": np.zeros(9, np.int32), "sample": np.arange(9, dtype=np.int32), "lane": np.zeros(9, np.int16)}
    samples |= {"phase": np.ones(9, np.uint8), "clock": np.zeros(9, np.uint8)}
    with JournalWriter(folder.journal_path(0)) as journal:
        journal.append("case", told, samples)
    (row,) = summarize(linkgauge.load(tmp_path / "run")).to_pylist()
    assert (row["status"], row["median_ns"]) == (None, None)


def test_the_summary_is_the_same_before_and_after_compaction(tmp_path: Path) -> None:
    cases = [make_case(t, p, 4096) for t in ("mpi", "ccl") for p in PATTERNS if p not in ("empty_op", "pointer_chase")]
    kept = {}
    for compact in (False, True):
        path = make_run(tmp_path / f"run{compact}", cases=cases, samples=30, compact=compact, noise=Noise(rho=0.4))
        table = summarize(linkgauge.load(path))
        assert table.schema.equals(summary_schema())
        kept[compact] = sorted(table.to_pylist(), key=lambda row: (row["case_key"], row["lane"]))
    assert kept[False] == kept[True]


def test_an_unknown_pattern_is_named(tmp_path: Path) -> None:
    import dataclasses

    case = dataclasses.replace(make_case("mpi", "pingpong", 8), pattern="teleport")
    with pytest.raises(RunFolderError, match="teleport"):
        write(tmp_path / "run", case, {"rank": 0, "sample": np.arange(9), "ns": np.ones(9)})


def test_scattered_samples_are_refused_not_summarized_twice(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = make_run(tmp_path / "run", cases=[make_case("mpi", "pingpong", 8)], samples=40)
    file = path / "samples" / "launch-00000.parquet"
    table = pq.ParquetFile(file).read()
    pq.write_table(pa.concat_tables([table, table]), file, row_group_size=table.num_rows)
    with pytest.raises(RunFolderError, match="several parts"):
        summarize(linkgauge.load(path))
