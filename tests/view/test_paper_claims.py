"""A paper's statements judged by a run: ratios with tolerances, a figure's verdict, the page, the exit status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.errors import Exit
from linkgauge.model.case import Case
from linkgauge.plan.papers import Claim, figures
from linkgauge.store.parts import write_parts
from linkgauge.store.run import load
from linkgauge.view.paper_claims import (
    AS_IN_PAPER,
    DIFFERS,
    NOT_JUDGED,
    FigureVerdict,
    Judged,
    judge,
    status_of,
)
from linkgauge.view.paper_page import all_figures
from linkgauge.view.paper_points import drawings
from linkgauge.view.reproduce import chosen
from synthetic import make_case, make_run
from thorough import thorough

SIZES = (8, 1 << 20, 1 << 30)
TIMES = {"staging": 20.0, "copy_engine": 2.0, "ccl": 2.2, "mpi": 2.0}


def run_of(
    path: Path, figure: str, time_of: Callable[[Case], float], transports: tuple[str, ...] = tuple(TIMES), **info: Any
) -> FigureVerdict:
    cases = [make_case(one, "pingpong", size, (0, 1)) for one in transports for size in SIZES]
    run = load(make_run(path, cases=cases, samples=4, warmup=0, time_ns=time_of, info=info))
    (one,) = chosen(figure)
    return judge(run, one, drawings(run, one))


def by_transport(case: Case) -> float:
    return 1000.0 + case.size * TIMES[case.transport] / 100


def test_a_figure_is_as_in_the_paper_where_its_orders_hold(tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", "sc24:3", by_transport)
    assert found.verdict == AS_IN_PAPER
    assert found.why == ""
    assert [one.verdict for one in found.judged] == [AS_IN_PAPER, AS_IN_PAPER]


def test_a_figure_differs_with_the_statement_the_value_and_what_was_expected(tmp_path: Path) -> None:
    found = run_of(
        tmp_path / "run", "sc24:3", lambda case: by_transport(case) / (20 if case.transport == "staging" else 1)
    )
    assert found.verdict == DIFFERS
    assert found.why.startswith("trivial staging is the slowest mechanism: 2")
    assert found.why.endswith("expected at most 1")


def test_what_was_not_measured_is_not_judged_and_named(tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", "sc24:3", by_transport, ("mpi", "copy_engine"))
    assert found.verdict == NOT_JUDGED
    assert found.why == "not measured: transport staging at last; not measured: transport ccl at last"


def test_a_value_of_one_gpu_is_judged_on_it_alone(tmp_path: Path) -> None:
    (figure,) = chosen("infinity-fabric:7")
    cases = [
        make_case("copy_engine", "unidirectional", size, (0, peer)) for size in (256, 1 << 30) for peer in (1, 2, 6)
    ]
    # 50 GB/s by the quad and dual links, 37.5 by the single one.
    rates = {1: 50.0, 6: 50.0, 2: 37.5}
    for name, verdict in (("AMD Instinct MI250X", AS_IN_PAPER), ("NVIDIA H100", NOT_JUDGED)):
        info = {"devices": {"kind": "hip", "ordinals": [0], "infos": [{"name": name}]}}
        run = load(make_run(tmp_path / name, cases=cases, samples=4, warmup=0, info=info,
                            time_ns=lambda case: case.size / rates[case.devices[1]]))  # fmt: skip
        found = judge(run, figure, drawings(run, figure))
        assert found.verdict == verdict
        if verdict == NOT_JUDGED:
            assert found.why == "the paper's value is of MI250X"


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ({"how": "range", "most": 1.5}, DIFFERS),  # from 8 B to 1 GiB goodput rises by more
        ({"at": ("last",), "over_at": ("first",), "least": 100.0}, AS_IN_PAPER),
        ({"at": ("1 GiB",), "over_at": ("1 MiB",), "least": 0.9, "most": 1.2}, AS_IN_PAPER),
        ({"of": {"transport": "mpi"}, "at": ("1 GiB",), "least": 700.0, "most": 900.0}, AS_IN_PAPER),  # Gb/s
        ({"of": {"transport": "mpi"}, "at": ("last",), "published": "LUMI nominal", "least": 0.4, "most": 0.6},
         AS_IN_PAPER),
        ({"of": {"series": "mpi"}, "over": {"series": "staging"}, "at": ("last",), "how": "each", "least": 9,
          "most": 11}, AS_IN_PAPER),
        ({"of": {"transport": "mpi"}, "over": {"transport": ("ccl", "staging")}, "how": "highest", "most": 9.0},
         DIFFERS),
        ({"of": {"transport": "mpi"}, "over": {"transport": ("ccl", "staging")}, "how": "lowest", "most": 1.2},
         AS_IN_PAPER),
        ({"of": {"transport": "nvshmem"}, "most": 1.0}, NOT_JUDGED),
        ({"of": {"transport": "mpi"}, "published": "nobody", "most": 1.0}, NOT_JUDGED),
    ],
)  # fmt: skip
def test_claims_compare_places_series_and_published_values(claim: dict[str, Any], verdict: str, tmp_path: Path) -> None:
    cases = [make_case(one, "pingpong", size, (0, 1)) for one in TIMES for size in SIZES]
    run = load(make_run(tmp_path / "run", cases=cases, samples=4, warmup=0, time_ns=by_transport))
    figure = dataclasses.replace(chosen("sc24:3")[0], claims=(Claim("it is so", "section 0", "goodput", **claim),))
    assert judge(run, figure, drawings(run, figure)).verdict == verdict


def test_every_claim_is_of_a_picture_and_a_series_of_its_figure() -> None:
    for figure in figures():
        pictures = {one.name: one for one in figure.pictures}
        for claim in figure.claims:
            assert claim.picture in pictures, figure.name
            assert claim.says
            assert claim.read
            assert claim.least > 0 or claim.most < float("inf"), claim.says
            stated = {one.series for one in figure.published if one.picture == claim.picture}
            assert claim.published in {"", *stated}, claim.says
            assert claim.published == "" or claim.over is None


def test_the_exit_status_is_by_the_verdicts() -> None:
    (figure,) = chosen("sc24:3")
    claim = figure.claims[0]
    as_in, differs, unknown = (
        FigureVerdict(figure, (Judged(claim, verdict, ""),)) for verdict in (AS_IN_PAPER, DIFFERS, NOT_JUDGED)
    )
    assert status_of([as_in, unknown]) == Exit.DONE
    assert status_of([as_in, differs]) == Exit.FAIL
    assert status_of([unknown]) == Exit.UNKNOWN


@thorough("a figure's claims are judged one by one here")
def test_all_figures_of_a_run_are_judged_and_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of two figures: each has its own cases, a figure without any says so, and the page is whole."""
    pytest.importorskip("vl_convert")
    shared = [make_case(one, "pingpong", 1 << 30, (0, 1)) for one in TIMES]
    only_3 = [make_case(one, "pingpong", 1 << 20, (0, 1)) for one in TIMES]
    only_4 = [make_case(one, "pingpong", 1 << 30, (0, 2)) for one in TIMES]
    folder = make_run(tmp_path / "run", cases=[*shared, *only_3, *only_4], samples=4, warmup=0, time_ns=by_transport)
    write_parts(folder, {
        "sc24:3": [case.case_key for case in (*shared, *only_3)],
        "sc24:4": [case.case_key for case in (*shared, *only_4)],
    })  # fmt: skip
    run = load(folder)
    found = {one.verdict.figure.name: one for one in all_figures(run, figures())}
    goodput = next(one for one in found["sc24:3"].drawings if one.picture.name == "goodput")
    assert {point.place for point in goodput.points} == {"1 MiB", "1 GiB"}
    assert {point.place for point in found["sc24:4"].drawings[0].measured} == {"1", "2"}
    assert found["sc24:9"].verdict.why == "needs 2 nodes, 1 is here"
    assert "'linkgauge reproduce sc24:settings'" in found["sc24:settings"].verdict.why
    assert found["sc24:5"].verdict.why == "this run has no case of it"
    assert run_command(["reproduce", "--all", "--of", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 as in the paper" in said
    page = (folder / "figures.html").read_text(encoding="utf-8")
    for name in ("sc24:3", "tartan:28", "trivial staging is the slowest mechanism", "data:image/svg+xml;base64,"):
        assert name in page
    assert "<script src" not in page
    assert "https://" not in page.split("<body>")[1]


def test_all_refuses_what_it_would_not_heed(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--csv"], "leave out --csv"),
        (["--list"], "--list"),
        (["--column"], "--column"),
        (["--format", "bmp"], "--format 'bmp': expected one of svg, png, pdf, json"),
    ):
        assert run_command(["reproduce", "--all", *words]) == 2
        assert said in capsys.readouterr().err
