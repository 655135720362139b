"""host_stream as matrices of NUMA nodes, from a run folder of known rates."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import linkgauge
from linkgauge.model.case import Case
from linkgauge.view.derived import NodeMatrix, node_matrices, node_tables
from linkgauge.view.report import report_html
from linkgauge.view.results import Results
from synthetic import Noise, make_case, make_run

LOCAL, REMOTE = 20e9, 5e9


def law(case: Case) -> float:
    return case.size / (LOCAL if case.cpu_node == case.source_node else REMOTE) * 1e9


def run_of(folder: Path) -> Results:
    one = dataclasses.replace(
        make_case("kernel", "host_stream", 256 << 20, (0,)), source_memory="pageable", target_memory="pageable"
    )
    cases = [
        dataclasses.replace(one, variant=work, cpu_node=core, source_node=node, target_node=node)
        for work in ("copy", "read") for core in (0, 1) for node in (0, 1) if (core, node) != (1, 0)
    ]  # fmt: skip
    crossing = dataclasses.replace(one, variant="copy", cpu_node=0, source_node=0, target_node=1)
    make_run(folder, cases=[*cases, crossing], samples=30, time_ns=law, noise=Noise(sigma=0.0001))
    return Results(linkgauge.load(folder))


def rates(matrix: NodeMatrix) -> list[list[float]]:
    """Every number of each row: the goodput, and for a copy what STREAM counts."""
    return [[float(number) for cell in cells for number in re.findall(r"[0-9.]+", cell)] for cells in matrix.cells]


def test_rows_are_cores_and_columns_memory(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run")
    copy, read = node_matrices(results, "GB/s")
    assert copy.title == "host_stream · copy · 256 MiB · goodput, GB/s"
    assert (copy.cores, copy.memory) == ((0, 1), (0, 1))
    assert rates(copy) == [pytest.approx([20, 40, 5, 10], rel=0.01), pytest.approx([20, 40], rel=0.01)]
    assert rates(read) == [pytest.approx([20, 5], rel=0.01), pytest.approx([20], rel=0.01)]
    assert copy.cells[1][0] == read.cells[1][0] == "-"


def test_terminal_and_report_show_them(tmp_path: Path) -> None:
    results = run_of(tmp_path / "run")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(*node_tables(results, "GB/s"))
    text = console.export_text()
    matrix = node_matrices(results, "GB/s")[0]
    assert all(cell in text for cells in matrix.cells for cell in cells)
    assert "node 1" in text
    page = report_html(results.run)
    assert "Cores and memory of NUMA nodes" in page
    assert matrix.cells[0][0] in page
