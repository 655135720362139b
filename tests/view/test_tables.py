"""The terminal's tables: approved baselines at three widths, marks of the best, nothing a terminal would obey."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import linkgauge
from approved import approve, plain
from linkgauge.app.cli import run_command
from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.store.run import Run
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from linkgauge.view import tables
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from linkgauge.view.summary import print_summary
from results import result_of
from synthetic import Noise, make_case, make_run, usual_cases

APPROVED = Path(__file__).parent / "approved"


def printed(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(tables.everything(results, width, "GB/s"))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return plain(output)


@pytest.mark.parametrize("width", [44, 80, 120])
def test_show_is_as_approved(rich: Results, width: int) -> None:
    text = printed(rich, width)
    assert max(map(len, text.splitlines())) <= width
    approve(APPROVED / f"show-{width}.txt", text)


def test_summary_is_as_approved(rich_run: Run) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None, legacy_windows=False)
    print_summary(rich_run, console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    approve(APPROVED / "summary-100.txt", plain(output))


def test_the_best_of_each_size_is_marked_once(rich: Results) -> None:
    for _, rows in rich.panels:
        for size in {row.size for row in rows}:
            of_size = [row for row in rows if row.size == size]
            best, near = tables.best_of(of_size)
            assert best is not None
            assert best.median_ns == min(row.median_ns for row in of_size)
            assert all(row.interval_low_ns <= best.interval_high_ns for row in near)
            assert best not in near


def test_an_interval_beyond_all_samples_makes_nothing_alike() -> None:
    names = ("median_ns", "interval_low_ns", "interval_high_ns", "min_ns", "max_ns")
    best = result_of(dict(zip(names, (619.0, 609.0, 629.0, 519.0, 709.0), strict=True)))
    burst = result_of(dict(zip(names, (16_407.0, -88_305.0, 661_039.0, 13_497.0, 559_237.0), strict=True)))
    near = result_of(dict(zip(names, (640.0, 500.0, 700.0, 620.0, 660.0), strict=True)))
    assert tables.best_of([burst, near, best]) == (best, [near])


@pytest.mark.parametrize("width", [60, 80])
def test_many_mechanisms_of_one_size_are_lines_of_one_table(tmp_path: Path, width: int) -> None:
    counts = (0, 8, 16, 132)
    cases = [
        make_case("kernel", "alltoall", 1 << 20, (0, 1, 2, 3), initiator=initiator, blocks=blocks)
        for initiator in ("sender", "receiver")
        for blocks in counts
    ]
    make_run(tmp_path / "run", cases=cases, samples=30)
    results = Results(linkgauge.load(tmp_path / "run"))
    text = printed(results, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("time of one iteration") == 1
    labels = [
        f"kernel (initiator {initiator}{f', blocks {blocks}' if blocks else ''})"
        for initiator in ("receiver", "sender")
        for blocks in counts
    ]
    times = text[text.index("time of one") : text.index("algbw")].splitlines()
    assert times[1].split() == ["mechanism", "1", "MiB"]
    assert [line[: len(label)] for label, line in zip(labels, times[2:], strict=False)] == labels
    # Marked or not, figures end below each other.
    assert len({len(line) for line in times[1 : 2 + len(labels)]}) == 1
    assert sum("*" in line for line in times) == 1


def test_a_mechanism_alone_is_not_the_best(tmp_path: Path) -> None:
    cases = [*usual_cases(("mpi",), ("pingpong",), (8, 64)), *usual_cases(("kernel",), ("pingpong",), (64,))]
    make_run(tmp_path / "run", cases=cases, samples=20)
    lines = [line for line in printed(Results(linkgauge.load(tmp_path / "run")), 80).splitlines() if " B " in line]
    assert not any("*" in line for line in lines if line.strip().startswith("8 B"))
    assert all("*" in line for line in lines if line.strip().startswith("64 B"))


def test_sizes_are_lines_where_that_takes_no_more_tables(tmp_path: Path) -> None:
    cases = usual_cases(transports=("mpi", "kernel"), patterns=("pingpong",), sizes=(8, 64))
    make_run(tmp_path / "run", cases=cases, samples=20)
    text = printed(Results(linkgauge.load(tmp_path / "run")), 80)
    assert "mechanism" not in text
    assert " size  " in text


def test_what_a_plan_measures_twice_stands_once(tmp_path: Path) -> None:
    """A size of a curve that is also one of all pairs' sizes: the one of more samples stands for both."""
    pairs = [(0, 1), (1, 0), (0, 2)]
    few = [make_case("kernel", "pingpong", 8, pair, stop=StopRule("count", 10)) for pair in pairs]
    many = [make_case("kernel", "pingpong", size, (0, 1)) for size in (8, 64, 512)]
    make_run(tmp_path / "run", cases=[*few, *many], samples=20, time_ns=lambda case: 1e3 if case in few else 2e3)
    results = Results(linkgauge.load(tmp_path / "run"))
    assert len(results.rows) == 6
    results.rows = [
        dataclasses.replace(row, effective_samples=5.0 if row.case.stop.rule == "count" else 20.0)
        for row in results.rows
    ]
    ((_, rows),) = results.panels
    assert [(row.size, row.case.stop.rule == "count") for row in rows] == [(8, False), (64, False), (512, False)]
    ((_, cells),) = results.matrices
    assert [(row.devices, row.case.stop.rule == "count") for row in cells] == [
        ((0, 1), False), ((0, 2), True), ((1, 0), True)
    ]  # fmt: skip


def test_terminal_escapes_are_inert(tmp_path: Path) -> None:
    case = make_case("mpi", "pingpong", 8, variant="\x1b[2J\x1b]0;owned\x07")
    skipped = make_case("kernel", "pingpong", 8)
    make_run(tmp_path / "run", cases=[case], skipped=[(skipped, "because \x1b[31m[bold]of\u202e this")])
    text = printed(Results(linkgauge.load(tmp_path / "run")), 100)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
    assert "\u202e" not in text
    assert "[bold]of" in text  # shown as it is, not as markup


def test_what_is_skipped_for_one_reason_is_told_once(tmp_path: Path) -> None:
    needs = "needs at least 2 ranks, here is 1 device"
    kinds = [(t, p) for t in ("kernel", "ccl") for p in ("alltoall", "allreduce", "broadcast")]
    skipped = [(make_case(t, p, 1024), f"{p} {needs}") for t, p in kinds]
    skipped += [
        (make_case("mpi", "alltoall", 1024), "no library is here"),
        (make_case("mpi", "gather", 8), f"gather {needs}"),
    ]
    make_run(tmp_path / "run", cases=[make_case("kernel", "local_copy", 8)], skipped=skipped)
    rows = tables.skip_reasons(Results(linkgauge.load(tmp_path / "run")).others)
    assert [(count, transports) for count, transports, _ in rows] == [(7, ["kernel", "ccl", "mpi"]), (1, ["mpi"])]
    assert rows[0][2] == "alltoall, allreduce, broadcast, gather need at least 2 ranks, here is 1 device"
    assert rows[1][2] == "no library is here"


def test_mechanisms_of_one_transport_are_told_apart(tmp_path: Path) -> None:
    launches = (
        {"launch_key": "aaaa", "mpi": {"name": "MPICH", "version": "5.0.2"}, "env": {"UCX_TLS": "shm"}},
        {"launch_key": "bbbb", "mpi": {"name": "MPICH", "version": "5.0.2"}},
        {"launch_key": "cccc", "mpi": {"name": "Open MPI", "version": "5.0.11"}},
    )
    cases = usual_cases(transports=("mpi", "kernel"), patterns=("pingpong",), sizes=(8,))
    make_run(tmp_path / "run", cases=cases, launches=launches, samples=20)
    labels = set(Results(linkgauge.load(tmp_path / "run")).mechanisms.values())
    assert "mpi (Open MPI 5.0.11)" in labels
    assert "mpi (MPICH 5.0.2, UCX_TLS=shm)" in labels
    assert "mpi (MPICH 5.0.2, default settings)" in labels


def test_a_run_without_figures_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path / "run", cases=[], skipped=[(make_case("ccl", "allreduce", 8), "libnccl.so.2 was not found")])
    text = printed(Results(linkgauge.load(tmp_path / "run")), 80)
    assert "libnccl.so.2 was not found" in text
    assert "1 case: 0 ok, 1 skipped" in text


def test_alike_devices_are_one_table_from_which_one_stands_out(tmp_path: Path) -> None:
    cases = [
        make_case("copy_engine", "host_to_device", size, (device,), source_memory="pinned")
        for device in range(4)
        for size in (1 << 20, 1 << 26)
    ]
    rates = {0: 53.6, 1: 53.8, 2: 40.0, 3: 54.0}  # GB/s; device 2 falls behind at the large size alone

    def time_ns(case: Case) -> float:
        return case.size / (rates[case.devices[0]] if case.size > 1 << 20 else 30.0)

    info = {"system": json.loads(to_json(catalog.load("hgx-h200-4")))}
    quiet = Noise(sigma=0.001, launch_sigma=0.0)
    run = linkgauge.load(make_run(tmp_path / "r", cases=cases, time_ns=time_ns, info=info, noise=quiet, samples=60))
    results = Results(run)
    console = Console(file=io.StringIO(), width=100, color_system=None, legacy_windows=False)
    console.print(tables.everything(results, 100, "GB/s", Limits(run)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("host_to_device ·") == 1
    assert "host_to_device · each of GPUs 0-3 · pinned to device memory" in shown
    assert "53.6 to 54.0" in shown
    assert "differs from its siblings: GPU 2, copy_engine at 64 MiB: -26 % in speed" in shown
    assert shown.count("differs from its siblings") == 1


def test_a_failed_case_says_under_which_mpi_library_on_every_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = make_case("mpi", "allreduce", 8)
    statuses = {case.case_key: ("hung", "no heartbeat")}
    path = make_run(tmp_path / "run", cases=[case, make_case("ccl", "allreduce", 8)], samples=20, statuses=statuses)
    assert run_command(["show", str(path)]) == 0
    assert "mpi (MPICH 5.0.2) allreduce 8 B, 4 GPUs" in " ".join(capsys.readouterr().out.split())
    assert run_command(["check", str(path)]) == 1
    told = capsys.readouterr().out
    assert "FAIL  mpi (MPICH) allreduce on GPUs 0-3" in told
    assert "No faults" not in told  # the failed case is one


def test_the_newest_run_is_checked_where_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["check"]) == 2
    assert "no run was named" in capsys.readouterr().err
    make_run(tmp_path / "runs" / "first", cases=[make_case("ccl", "allreduce", 8)], samples=20)
    assert run_command(["check"]) == 3
    assert "UNKNOWN" in capsys.readouterr().out
