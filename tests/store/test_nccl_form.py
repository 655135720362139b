"""What is exported in nccl-tests' form is printed as nccl-tests prints it, and comes back whole."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linkgauge
from linkgauge.exchange.export import export
from linkgauge.exchange.importers import Hints, import_files
from linkgauge.exchange.nccl_form import printed
from linkgauge.exchange.other_names import NCCL_PROGRAMS
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.summary import summarize
from linkgauge.store.run import Run
from synthetic import Noise, make_case, make_run
from thorough import most

TOLD = ("pattern", "transport", "ranks", "size", "in_place", "datatype", "op", "root")


def figures(run: Run) -> dict[tuple[Any, ...], tuple[float, float, float]]:
    """Of each collective by what a table tells of it: µs by the mean, algbw and busbw by it in GB/s."""
    found = {}
    for row in summarize(run).to_pylist():
        if row["lane"] == -1 and row["status"] == "ok" and row["pattern"] in NCCL_PROGRAMS:
            by_mean = row["median_ns"] / row["mean_ns"] / 1e9
            rates = (row["algbw_bytes_per_s"] * by_mean, row["busbw_bytes_per_s"] * by_mean)
            found[tuple(row[name] for name in TOLD)] = (row["mean_ns"] / 1e3, *rates)
    return found


def there_and_back(run: Run, folder: Path) -> Run:
    (folder / "log.txt").write_text(export(run, "nccl-tests"))
    result = import_files([folder / "log.txt"], folder / "back", Hints())
    assert result.problems == []
    assert result.left_out == 0
    return linkgauge.load(folder / "back")


def assert_same(before: Run, after: Run) -> None:
    ours, theirs = figures(before), figures(after)
    assert theirs.keys() == ours.keys()
    for key, (time, algbw, busbw) in ours.items():
        back_time, back_algbw, back_busbw = theirs[key]
        last = 10.0 ** math.ceil(math.log10(0.05 * time)) if len(f"{time:.0f}") > 7 else 10.0 ** -_decimals(time, 7)
        assert abs(back_time - time) <= 0.51 * last, key
        # Rates are worked out from the printed time again, so that they are as near as that.
        assert back_algbw == pytest.approx(algbw, rel=0.51 * last / time + 1e-3), key
        assert back_busbw == pytest.approx(busbw, rel=0.51 * last / time + 1e-3), key


def _decimals(value: float, width: int) -> int:
    return len(printed(value, width).partition(".")[2])


@st.composite
def collectives(draw: st.DrawFn) -> Case:
    pattern = draw(st.sampled_from(sorted(NCCL_PROGRAMS)))
    info = PATTERNS[pattern]
    ranks = draw(st.sampled_from((2, 3, 4, 8)))
    settings: dict[str, Any] = {"in_place": draw(st.booleans())}
    settings["datatype"] = draw(st.sampled_from(("float32", "float64", "int8", "bfloat16")))
    if info.reduces:
        settings["op"] = draw(st.sampled_from(("sum", "max", "prod")))
    if info.rooted:
        settings["root"] = draw(st.integers(0, ranks - 1))
    transport = draw(st.sampled_from(("ccl", "kernel", "mpi")))
    size = 64 * ranks * draw(st.integers(1, 1 << 20))  # blocks of whole elements
    return make_case(transport, pattern, size, range(ranks), **settings)


@settings(max_examples=most(12, 3), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(collectives(), min_size=1, max_size=8, unique_by=lambda case: case.case_key), st.integers(0, 99))
def test_any_collectives_come_back_whole(
    tmp_path_factory: pytest.TempPathFactory, cases: list[Case], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("back")
    scale = 10.0 ** (seed % 7)  # from some µs to ten seconds
    run = make_run(
        folder / "run", cases=cases, samples=6, warmup=2, seed=seed, noise=Noise(sigma=0.05),
        time_ns=lambda case: 3e3 * scale + case.size / 300,
    )  # fmt: skip
    assert_same(linkgauge.load(run), there_and_back(linkgauge.load(run), folder))


def test_what_is_moved_as_bytes_is_printed_as_bytes(tmp_path: Path) -> None:
    case = make_case("mpi", "allgather", 60, range(3), datatype="float64")  # blocks of 20 bytes
    text = export(linkgauge.load(make_run(tmp_path / "run", cases=[case], samples=5)), "nccl-tests")
    (row,) = [line.split() for line in text.splitlines() if re.match(r"\s+\d", line)]
    assert row[:3] == ["60", "20", "int8"]


def test_every_rank_is_listed_where_devices_have_several(tmp_path: Path) -> None:
    case = dataclasses.replace(make_case("mpi", "allreduce", 4096), devices=(0, 0, 1, 1), ranks_per_device=2)
    back = there_and_back(linkgauge.load(make_run(tmp_path / "run", cases=[case], samples=5)), tmp_path)
    assert {row["ranks"] for row in summarize(back).to_pylist()} == {4}


def test_groups_are_told_apart(tmp_path: Path) -> None:
    case = make_case("ccl", "allreduce", 4096, groups=2)
    text = export(linkgauge.load(make_run(tmp_path / "run", cases=[case], samples=5)), "nccl-tests")
    assert re.findall(r"^#  Rank +\d+ Group +(\d+)", text, re.MULTILINE) == ["0", "0", "1", "1"]


def test_tables_are_printed_as_nccl_tests_prints_them(tmp_path: Path) -> None:
    cases = [make_case("ccl", name, size, in_place=side) for name in ("broadcast", "allreduce")
             for size in (1 << 20, 8, 4096) for side in (False, True)]  # fmt: skip
    text = export(linkgauge.load(make_run(tmp_path / "run", cases=cases, samples=5, seed=3)), "nccl-tests")
    programs = re.findall(r"^# Collective test (starting|concluded): (\w+)$", text, re.MULTILINE)
    order = [(word, name) for name in ("all_reduce_perf", "broadcast_perf") for word in ("starting", "concluded")]
    assert programs == order
    for table in text.split("# Collective test starting")[1:]:
        rows = [line.split() for line in table.splitlines() if re.match(r"\s+\d", line)]
        assert [int(row[0]) for row in rows] == [8, 4096, 1 << 20]
        assert {len(line) for line in table.splitlines() if re.match(r"\s+\d", line)} == {118}
        (said,) = re.findall(r"^# Avg bus bandwidth    : (\S+) $", table, re.MULTILINE)
        buses = [float(row[place]) for row in rows for place in (7, 11)]
        assert float(said) == pytest.approx(np.mean(buses), abs=0.01)
        assert re.search(r"^# Out of bounds values : 0 OK$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [(17.523, 7, "  17.52"), (10352.384, 7, "10352.4"), (12345678.0, 7, "1.2e+07"), (1234567.0, 7, "1234567"),
     (0.004, 6, "  0.00"), (1234.56, 6, "1234.6"), (1e7, 6, " 1e+07")],
)  # fmt: skip
def test_numbers_have_the_digits_that_fit(value: float, width: int, text: str) -> None:
    assert printed(value, width) == text


def test_a_table_comes_back_as_the_transport_that_it_is_of(tmp_path: Path) -> None:
    cases = [make_case(name, "allreduce", 4096) for name in ("ccl", "kernel")]
    back = there_and_back(linkgauge.load(make_run(tmp_path / "run", cases=cases, samples=5)), tmp_path)
    assert sorted({row["transport"] for row in summarize(back).to_pylist()}) == ["ccl", "kernel"]
