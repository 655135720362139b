"""The page of a fleet: who stands apart, at what and since when, on runs with planted causes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drawn_texts import measured
from linkgauge.app.cli import run_command
from linkgauge.judge.check import check
from linkgauge.judge.fleet import cells, moments, times_ns
from linkgauge.judge.subjects import Subject, load_subjects
from linkgauge.model.case import Case
from linkgauge.view import fleet_page
from synthetic import Noise, link_model, make_run, usual_cases
from thorough import thorough

IN_A_BROWSER = thorough("a report is drawn by a browser in every run")

HOSTILE = "<script>alert(1)</script>"
NODES, DAYS = 6, 3


def slower(factor: float, transport: str = "") -> Callable[[Case], float]:
    """The usual times, those of a transport (all) longer by a factor."""
    usual = link_model()
    return lambda case: usual(case) * (factor if transport in ("", case.transport) else 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Node 1 is slower at mpi, node 2 by 5 % more each day; node 3's name is a stranger's."""
    root = tmp_path_factory.mktemp("fleet")
    cases = usual_cases(("mpi", "kernel"), ("allreduce", "alltoall"), (1 << 20, 1 << 24))
    found = []
    for day in range(DAYS):
        for node in range(NODES):
            time_ns = slower(1.2, "mpi") if node == 1 else slower(1 + 0.05 * day if node == 2 else 1)
            host = HOSTILE if node == 3 else f"node{node}"
            found.append(
                make_run(root / f"d{day}n{node}", cases=cases, seed=NODES * day + node, samples=20, time_ns=time_ns,
                         noise=Noise(sigma=0.002, launch_sigma=0.001), host=host,
                         info={"start": f"2026-11-{20 + day}T08:00:0{node}+00:00"})
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def subjects(runs: list[Path]) -> list[Subject]:
    return load_subjects(runs)


def test_a_cell_is_a_task_of_a_node_against_its_siblings(subjects: list[Subject]) -> None:
    last = {(cell.run[-4:], cell.task): cell.share for cell in cells(subjects)}
    for task in ("mpi allreduce", "mpi alltoall"):
        assert last["d2n1", task] == pytest.approx(0.2, abs=0.02)
    for task in ("kernel allreduce", "kernel alltoall"):
        assert last["d2n1", task] == pytest.approx(0, abs=0.02)
        assert last["d2n2", task] == pytest.approx(0.1, abs=0.02)
    assert cells(subjects[:3]) == []


def test_a_node_is_held_against_its_own_first_run_or_the_baseline(subjects: list[Subject]) -> None:
    by_host: dict[str, list[float]] = {}
    for one in moments(list(reversed(subjects)), {}):  # whatever the order in which they are given
        by_host.setdefault(one.host, []).append(one.share)
    assert by_host["node2"] == pytest.approx([0, 0.05, 0.1], abs=0.01)
    assert by_host["node1"] == pytest.approx([0, 0, 0], abs=0.01)  # slow from the first day on
    assert moments(subjects[:NODES], {}) == []  # one run of each
    known = times_ns(subjects[0])
    found = {one.run[-4:]: one.share for one in moments(subjects, known)}
    assert len(found) == NODES * DAYS
    assert found["d0n0"] == 0
    assert found["d2n2"] == pytest.approx(0.1, abs=0.01)


def test_the_page_names_what_stands_apart_and_shows_nothing_of_a_strangers_markup(
    subjects: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkgauge.view.page._bundle", lambda: "")
    result = check(subjects, "", with_findings=False)
    html = fleet_page.fleet_html(subjects, result, {})
    sentence = html.partition('class="sentence">')[2].partition("<")[0]
    assert "node1" in sentence
    assert "node2" in sentence
    assert "node0" not in sentence
    assert "<h1>Linkgauge · 6 nodes</h1>" in html
    for heading in ("Failed checks", "Nodes by task", "Over time", "All nodes and devices"):
        assert f">{heading}</h2>" in html
    assert HOSTILE not in html
    alone = subjects[:NODES]
    assert ">Over time</h2>" not in fleet_page.fleet_html(alone, check(alone, "", with_findings=False), {})


def test_of_many_nodes_those_with_the_slowest_task_have_a_row(
    subjects: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkgauge.view.page._bundle", lambda: "")
    last = subjects[-NODES:]
    names = {one.name: one.host for one in last}
    assert fleet_page.rows_shown(cells(last), names) == names
    monkeypatch.setattr(fleet_page, "_MOST_ROWS", 2)
    assert list(fleet_page.rows_shown(cells(last), names).values()) == ["node1", "node2"]
    html = fleet_page.fleet_html(last, check(last, "", with_findings=False), {})
    assert f"Shown are the 2 of {NODES} nodes with the slowest task." in html


def test_a_page_of_too_few_runs_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["check", str(tmp_path / "none"), "--page", str(tmp_path / "f.html")]) == 2
    assert "--page is of a fleet: expected 4 runs or more, 1 given" in capsys.readouterr().err


def test_the_command_writes_it(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "f.html"
    assert run_command(["check", *map(str, runs), "--no-findings", "--page", str(page)]) == 1
    assert page.stat().st_size > 100_000
    capsys.readouterr()


@pytest.mark.parametrize(
    ("hosts", "shown"),
    [
        (["a1.cluster.org", "a2.cluster.org"], ["a1", "a2"]),
        (["a.east.org", "a.west.org"], ["a.east.org", "a.west.org"]),
        (["node7", ".odd"], ["node7", ".odd"]),
    ],
)
def test_a_host_is_shown_without_its_domain_where_that_is_enough(hosts: list[str], shown: list[str]) -> None:
    assert list(fleet_page.short_names(hosts).values()) == shown


@IN_A_BROWSER
@pytest.mark.parametrize("width", [500, pytest.param(1280, marks=thorough("a narrow page is harder to read"))])
def test_every_name_of_the_page_can_be_read(tmp_path: Path, width: int) -> None:
    """Twelve tasks and long names, as real clusters have them."""
    cases = usual_cases(
        ("mpi", "copy_engine", "ccl"), ("allreduce", "alltoall", "unidirectional", "bidirectional"), (1 << 20,)
    )
    runs = []
    for node in range(5):
        host, time_ns = f"gpu-node-{node:03d}.cluster.example.org", slower(1.1 if node == 2 else 1)
        runs.append(make_run(tmp_path / str(node), cases=cases, seed=node, samples=8, time_ns=time_ns, host=host))
    subjects = load_subjects(runs)
    found = measured(fleet_page.fleet_html(subjects, check(subjects, "", with_findings=False), {}), tmp_path, width)
    assert found["overlaps"] == found["outside"] == []
    assert found["width"] <= 0
