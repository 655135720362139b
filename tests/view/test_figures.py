"""Figures without a name and slides: the picture that says most of a run, 16 by 9, with no text on another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from drawn_texts import measured
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.store.run import Run
from linkgauge.view import charts
from linkgauge.view.figures import FIGURES, Selection, default_figure, draw
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from synthetic import make_case, make_run, pair_cases
from thorough import thorough

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

SIZES = (4096, 1 << 20, 1 << 28)


def results_of(path: Path, cases: list[Case], **more: Any) -> tuple[Results, Limits]:
    run = linkgauge.load(make_run(path, cases=cases, samples=20, **more))
    return Results(run), Limits(run)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([make_case("ccl", p, size) for p in ("unidirectional", "allreduce") for size in SIZES], "busbw"),
        ([make_case("ccl", "unidirectional", size) for size in SIZES], "goodput"),
        ([make_case("mpi", "flag_pingpong", size, (0, 1)) for size in (8, 64)], "latency"),
        (pair_cases("unidirectional", 1 << 20), "matrix"),
        ([make_case(name, "unidirectional", 4096) for name in ("ccl", "mpi")], "boxes"),
    ],
)
def test_without_a_name_the_figure_is_what_says_most(tmp_path: Path, cases: list[Case], expected: str) -> None:
    results, limits = results_of(tmp_path / "run", cases)
    assert default_figure(results, limits, Selection()) == expected
    spec, _ = draw(results, limits, "", Selection())
    assert charts.points_of(spec) > 1


def test_the_selection_chooses_among_the_figures(known_machine: Results) -> None:
    limits = Limits(known_machine.run)
    assert default_figure(known_machine, limits, Selection()) == "busbw"
    assert default_figure(known_machine, limits, Selection(pattern="pingpong")) == "goodput"
    spec, note = draw(known_machine, limits, "", Selection())
    assert spec["title"]["text"].startswith("allreduce · 4 GPUs")
    assert "alltoall" in note


def test_plot_needs_no_figure(known_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["plot", str(known_run.path)]) == 0
    assert (tmp_path / "busbw.pdf").read_bytes().startswith(b"%PDF")


def test_a_slide_says_the_peak_and_has_one_limit(known_machine: Results) -> None:
    limits = Limits(known_machine.run)
    spec, _ = draw(known_machine, limits, "", Selection(), slide=True)
    rows = [row for row in known_machine.rows if row.pattern == "allreduce" and row.ranks == 4]
    best = max(rows, key=lambda row: row.busbw_bytes_per_s)
    said = re.fullmatch(r"allreduce · 4 GPUs: (\d+) GB/s busbw, (\d+) % of limit", spec["title"]["text"])
    assert said is not None, spec["title"]["text"]
    assert float(said[1]) == pytest.approx(best.busbw_bytes_per_s / 1e9, rel=5e-3)
    bound = limits.limit_of(best)
    assert bound is not None
    assert bound.goodput_bytes_per_s
    assert float(said[2]) == pytest.approx(100 * best.goodput_bytes_per_s / bound.goodput_bytes_per_s, abs=0.6)
    assert spec["width"] * 9 == spec["height"] * 16


def test_a_figure_of_several_charts_is_no_slide(known_machine: Results) -> None:
    with pytest.raises(UsageError, match="leave out --slide"):
        charts.sixteen_by_nine({"hconcat": []}, "goodput")


@thorough("other figures are laid out by the same lines")
def test_no_text_of_a_slide_lies_on_another(known_machine: Results, tmp_path: Path) -> None:
    import vl_convert

    limits, page, drawn = Limits(known_machine.run), [], []
    for name in ("", *FIGURES):
        try:
            spec, _ = draw(known_machine, limits, name, Selection(), slide=True)
        except UsageError:
            continue  # of another kind of run
        svg = vl_convert.vegalite_to_svg(spec)
        found = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
        assert found is not None
        width, height = map(float, found.groups())
        assert width / height == pytest.approx(16 / 9, rel=0.01), name
        page.append(f"<figure><figcaption>{name or 'default'}</figcaption>{svg}</figure>")
        drawn.append(name)
    assert {"", "goodput", "busbw", "boxes", "matrix", "topology", "shares", "distribution"} <= set(drawn)
    wrong = measured(f"<html><body>{''.join(page)}</body></html>", tmp_path, 1280)
    assert wrong["overlaps"] == wrong["outside"] == wrong["crossed"] == []
    assert max(count for _, count in wrong["limits"]) == 1
