"""Derived figures from whole run folders whose times follow a known law: tables, report, JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from rich.table import Table

import linkgauge
import program
from linkgauge.model.case import Case
from linkgauge.view.derived import block_rows, derived_figures, derived_tables, figure_text, size_rows
from linkgauge.view.report import report_html
from linkgauge.view.results import Results
from synthetic import Noise, make_case, make_run

T0_NS, RATE = 4_000.0, 40e9
SIZES = [8 * 4**k for k in range(14)]
BLOCKS = [1, 2, 4, 8, 16, 32, 64]
BLOCKS_NEEDED = 12.0  # at a block's own rate the link is full


def law(case: Case) -> float:
    """Hockney's model over sizes; a rate that grows with the blocks until the link is full."""
    share = min(case.blocks / BLOCKS_NEEDED, 1.0) if case.blocks else 1.0
    return T0_NS + case.size / (RATE * share) * 1e9


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = [make_case("copy_engine", "unidirectional", size, (0, 1)) for size in SIZES]
    one = make_case("kernel", "unidirectional", 1 << 30, (0, 1))
    cases += [dataclasses.replace(one, blocks=blocks) for blocks in (0, *BLOCKS)]
    path = tmp_path_factory.mktemp("derived") / "run"
    make_run(path, cases=cases, samples=60, time_ns=law, noise=Noise(sigma=0.004))
    return Results(linkgauge.load(path))


def test_sizes_are_those_of_the_law(results: Results) -> None:
    [found] = [one for one in derived_figures(results) if one.plain()["kind"] == "sizes"]
    figures = found.plain()
    half = figures["half"]
    peak = SIZES[-1] / (T0_NS / 1e9 + SIZES[-1] / RATE)
    truth = 0.5 * peak * T0_NS / 1e9 / (1 - 0.5 * peak / RATE)
    assert half["low"] <= half["value"] <= half["high"]
    assert half["value"] == pytest.approx(truth, rel=0.03)
    assert figures["peak_bytes_per_s"] == pytest.approx(peak, rel=0.02)
    assert figures["flat_up_to"]["value"] == pytest.approx(0.1 * T0_NS / 1e9 * RATE, rel=0.2)
    assert (figures["transport"], figures["sizes"]) == ("copy_engine", len(SIZES))


def test_blocks_are_those_of_the_law(results: Results) -> None:
    [found] = [one for one in derived_figures(results) if one.plain()["kind"] == "blocks"]
    plain = found.plain()
    assert plain["fewest"]["value"] == 16
    assert plain["fewest"]["below"] == 8
    assert plain["tuned_bytes_per_s"] == pytest.approx(plain["best_bytes_per_s"], rel=0.02)
    [row] = block_rows(results, "GB/s")
    assert "16, 8 are too few" in " ".join(row)


def test_each_kernel_has_its_blocks_under_its_own_name(tmp_path: Path) -> None:
    one = make_case("kernel", "unidirectional", 1 << 30, (0, 1))
    cases = [
        dataclasses.replace(one, initiator=initiator, blocks=blocks)
        for initiator in ("sender", "receiver")
        for blocks in BLOCKS
    ]
    make_run(tmp_path / "run", cases=cases, samples=60, time_ns=law, noise=Noise(sigma=0.004))
    results = Results(linkgauge.load(tmp_path / "run"))
    names = ["kernel (initiator receiver)", "kernel (initiator sender)"]
    assert [row[2] for row in block_rows(results, "GB/s")] == names
    for width in (80, 120):  # whole names also where intervals are left out
        tables = [part for part in derived_tables(results, width, "GB/s") if isinstance(part, Table)]
        column = {"task": 2}.get(str(tables[0].columns[0].header), 1)
        assert [str(cell) for table in tables for cell in table.columns[column].cells] == names


def test_tables_and_report_show_them(results: Results) -> None:
    [row] = size_rows(results, "GB/s")
    assert row[1] == "copy_engine"
    page = report_html(results.run)
    for text in (*row[2:5], "Derived from the curves", "16, 8 are too few"):
        assert text in page


def test_the_command_prints_tables_and_json(results: Results) -> None:
    def shown(*words: str) -> str:
        done = program.linkgauge("show", str(results.run.path), *words, cwd=results.run.path, env={"COLUMNS": "200"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "fewest blocks" in shown("--all")
    assert "half of peak" in shown("--derived")
    rows = json.loads(shown("--derived", "--json"))
    assert {row["kind"] for row in rows} == {"sizes", "blocks"}
    assert all(row["pattern"] == "unidirectional" for row in rows)


def test_few_sizes_are_no_curve(tmp_path: Path) -> None:
    cases = [make_case("kernel", "pingpong", size, (0, 1)) for size in SIZES[:3]]
    make_run(tmp_path / "run", cases=cases, samples=30)
    assert derived_figures(Results(linkgauge.load(tmp_path / "run"))) == []


def test_a_figure_that_is_not_known_is_a_dash() -> None:
    assert figure_text(None) == "-"
