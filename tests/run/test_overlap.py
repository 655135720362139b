"""Computation beside communication: the matrix product as a case and as a load, and the plan that measures both."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from linkgauge.expect.sharing import taken
from linkgauge.model.case import DIMENSIONS, Case
from linkgauge.plan.memory import memory_need
from linkgauge.stats.interference import interferences
from linkgauge.store.run import load
from linkgauge.system import catalog
from run.test_background import linkgauge, phases
from thorough import thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
QUICK = ("--stop-rule", "count", "--stop-samples", "8", "--max-time", "20s", "--no-report", "--out", "run")


@thorough("which cases the plan has is in tests/plan, and what cannot be below")
def test_the_plan_measures_each_mechanism_beside_computation_and_computation_beside_it(tmp_path: Path) -> None:
    done = linkgauge(tmp_path, "run", "--plan", "overlap", "--devices", "host:2", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    run = load(tmp_path / "run")
    rows = list(run.rows())
    assert {str(row.status) for row in rows} == {"ok"}
    assert all(row.verified for row in rows)
    measured = {(row.case.transport, row.case.pattern) for row in rows}
    assert measured == {("copy_engine", "unidirectional"), ("kernel", "unidirectional"), ("kernel", "allreduce"),
                        ("kernel", "gemm"), ("kernel", "local_copy")}  # fmt: skip
    assert phases(run)["alone"] > 0
    found = interferences(run)
    assert len(found) == len(rows)
    assert all(one.alone_ns > 0 < one.beside_ns and all(rate.alone_ns for rate in one.loads) for one in found)
    assert "with background load: time over time alone" in done.stdout


def test_it_is_measured_where_it_is_named_takes_no_link_and_three_matrices() -> None:
    assert "gemm" not in DIMENSIONS["pattern"].from_text("all")
    case = Case("kernel", "gemm", 1 << 20, 1 << 20, (0,))
    of_memory = taken(catalog.load("hgx-h200-4"), case)
    assert of_memory is not None
    assert set(of_memory) == {("gpu0", "")}
    assert math.isnan(of_memory["gpu0", ""])  # what its caches do not hold
    assert memory_need(case).device_bytes >= 3 << 20


SAID_ALIKE = thorough("another is said in the same way")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        pytest.param(
            ("--transport", "copy_engine", "--size", "64KiB"),
            "gemm is a kernel's; its transport is kernel",
            marks=SAID_ALIKE,
        ),
        pytest.param(
            ("--transport", "kernel", "--size", "8KiB"), "a matrix of gemm takes 16384 bytes or more", marks=SAID_ALIKE
        ),
        (("--transport", "kernel", "--size", "64KiB", "--source-memory", "pinned"), "leave the memory kinds out"),
    ],
)
def test_what_it_cannot_be_is_said(tmp_path: Path, words: tuple[str, ...], part: str) -> None:
    linkgauge(tmp_path, "run", "--pattern", "gemm", "--devices", "host:1", "--threads", *words, *QUICK)
    (row,) = load(tmp_path / "run").rows()
    assert str(row.status) == "skipped"
    assert part in row.reason
