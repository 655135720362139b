"""Launches whose MPI library cannot start: the next one found, then threads, said once and stored."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import program
from executables import python_program
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.case import Case
from linkgauge.plan.expand import PlannedCase
from linkgauge.plan.launches import group, with_other_mpi
from linkgauge.plan.model import LaunchTable, Plan
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent import fallback, mpi_library, prepare
from linkgauge.run.parent.fallback import THREADS, Fallback, end_of, taken_of
from linkgauge.run.parent.prepared import TimeLimit
from linkgauge.run.parent.refused import refusal
from linkgauge.store.run import load
from run.conftest import SMALL_PLAN, devices_of, machine_of
from thorough import thorough

NO_CORE = importlib.util.find_spec("linkgauge._core") is None


@pytest.fixture(scope="module")
def good() -> MpiInstallation:
    return mpi_library.default_installation()


@pytest.fixture
def broken(tmp_path: Path, good: MpiInstallation) -> MpiInstallation:
    """A library whose launcher leaves a mark in `started` and ends with an error."""
    lines = ("import sys", f"open({str(tmp_path / 'started')!r}, 'a').write('x')",
             "print('-' * 20, 'cannot open the door', '-' * 20, sep='\\n')", "sys.exit(1)")  # fmt: skip
    launcher = python_program(tmp_path / "broken", "mpiexec", *lines)
    return dataclasses.replace(
        good, name="openmpi-4.9", vendor="openmpi", version="4.9", source="PATH", version_text="Open MPI 4.9",
        launcher=launcher, library=tmp_path / "broken" / "libmpi.so",
    )  # fmt: skip


def found_here(monkeypatch: pytest.MonkeyPatch, *mpis: MpiInstallation) -> None:
    """Let a run find these, in this order."""
    monkeypatch.setattr(prepare, "default_installation", lambda: mpis[0])
    monkeypatch.setattr(fallback, "find_all", lambda: list(mpis))


def starts(tmp_path: Path) -> int:
    """How often the broken launcher was started."""
    return len((tmp_path / "started").read_text())


def fallbacks(path: Path) -> list[tuple[str, str, str]]:
    rows = load(path).info.get(fallback.KEY, [])
    return [(row["mpi"], row["taken"], row["reason"]) for row in rows]


def test_the_next_library_found_takes_the_place_of_one_that_cannot_start(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    broken: MpiInstallation, good: MpiInstallation,
) -> None:  # fmt: skip
    found_here(monkeypatch, broken, good)
    run = run_plan("repeat = 2\n" + SMALL_PLAN)
    assert run.status == 0
    assert Counter(status for _, status in run.statuses()) == {"ok": 16}
    assert starts(tmp_path) == 2  # the second launch does not try it again
    said = [line for line in capsys.readouterr().err.splitlines() if "cannot start" in line]
    assert said == [f"linkgauge: Open MPI 4.9 (PATH) cannot start: cannot open the door; going on with {good.title}"]
    assert fallbacks(run.path) == [("openmpi-4.9", good.name, "cannot open the door")]
    loaded = load(run.path)
    assert good.name in loaded.info["mpi"]
    assert f"MPI {good.name}" in loaded.info["versions"]
    for row in loaded.launches.to_pylist():
        contents = json.loads(row["extra"])["launch_key_contents"]
        assert (json.loads(row["mpi"])["name"], contents["mpi"], contents["mode"]) == (
            good.name,
            good.build,
            "processes",
        )
    monkeypatch.undo()
    alone = run_plan(name="alone")
    assert {row["launch_key"] for row in load(alone.path).launches.to_pylist()} == {
        row["launch_key"] for row in loaded.launches.to_pylist()
    }


def test_where_no_library_can_start_threads_measure_what_they_can(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    broken: MpiInstallation,
) -> None:  # fmt: skip
    other = dataclasses.replace(broken, name="openmpi-4.8", version="4.8", library=tmp_path / "other.so")
    found_here(monkeypatch, broken, other, dataclasses.replace(broken, name="unusable", problem="it is broken"))
    run = run_plan("repeat = 2\n" + SMALL_PLAN)
    assert run.status == 0
    rows = list(load(run.path).rows())
    assert Counter((row.case.transport, row.status) for row in rows) == {("kernel", "ok"): 8, ("mpi", "skipped"): 8}
    (reason,) = {row.reason for row in rows if row.status == "skipped"}
    assert reason == (
        "mpi needs processes, and Open MPI 4.9 (PATH) cannot start: cannot open the door; "
        "Open MPI 4.8 (PATH) cannot start: cannot open the door"
    )
    assert starts(tmp_path) == 4
    said = [line for line in capsys.readouterr().err.splitlines() if "cannot start" in line]
    assert [line.rpartition("; ")[2] for line in said] == [
        "going on with Open MPI 4.8 (PATH)", "going on in threads, without MPI"
    ]  # fmt: skip
    assert [pair[:2] for pair in fallbacks(run.path)] == [("openmpi-4.9", "openmpi-4.8"), ("openmpi-4.8", THREADS)]
    for row in load(run.path).launches.to_pylist():
        assert json.loads(row["extra"])["launch_key_contents"]["mode"] == "threads"


def test_a_launch_of_mpi_alone_has_nothing_to_go_on_with(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: MpiInstallation
) -> None:
    found_here(monkeypatch, broken)
    with pytest.raises(EnvironmentLackingError, match=r"nothing could be measured: [^:]*: cannot open the door$"):
        run_plan(SMALL_PLAN.replace('["kernel", "mpi"]', '"mpi"'))
    assert starts(tmp_path) == 2
    assert {row.status for row in load(tmp_path / "run").rows()} == {"failed"}
    assert fallbacks(tmp_path / "run") == []


@pytest.mark.parametrize("by", ["flag", "plan", "arguments"])
def test_a_library_that_was_asked_for_is_not_replaced(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: MpiInstallation, good: MpiInstallation,
    by: str,
) -> None:  # fmt: skip
    found_here(monkeypatch, broken, *([] if by == "arguments" else [good]))
    monkeypatch.setattr(prepare, "resolve", lambda name: broken)
    launch = '[[launch]]\nmpi = "openmpi-4.9"\n' if by == "plan" else ""
    arguments = ["-hosts", "a,b"] if by == "arguments" else []  # of a launcher, which threads do not have
    with pytest.raises(EnvironmentLackingError, match="nothing could be measured"):
        run_plan(launch + SMALL_PLAN, mpis=[broken] if by == "flag" else [], launcher_args=arguments)
    assert starts(tmp_path) == 2 + len(arguments) // 2  # and a look at the nodes that are named
    assert fallbacks(tmp_path / "run") == []
    assert {row.status for row in load(tmp_path / "run").rows()} == {"failed"}


@thorough("a launch that fails later is a failed case in test_runner.py too")
def test_a_library_that_has_started_is_not_replaced_later(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, good: MpiInstallation
) -> None:
    found_here(monkeypatch, good)
    run = run_plan(env=["LINKGAUGE_TEST_CANNOT_START=0,1"])
    assert run.status == 4
    assert Counter(status for _, status in run.statuses()) == {"ok": 8, "failed": 8}
    assert fallbacks(run.path) == []


def test_neither_a_time_limit_nor_an_interrupt_waits_for_ranks_that_do_not_meet(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: MpiInstallation,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    begun = tmp_path / "begun"
    waits = ("import pathlib, time", f"pathlib.Path({str(begun)!r}).touch()", "time.sleep(3600)")  # no test may
    sleeps = python_program(tmp_path / "sleeps", "mpiexec", *waits)
    found_here(monkeypatch, dataclasses.replace(broken, launcher=sleeps))
    began = time.monotonic()
    assert run_plan(limit=TimeLimit(began + 4, began + 3600), name="limited").status == 6
    assert "the ranks of launch 0 had not met when the time was up" in capsys.readouterr().err
    begun.unlink(missing_ok=True)

    def interrupt() -> None:
        while not begun.exists():  # before that the signal would be the test's own end
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert run_plan(name="interrupted").status == 130
    for name in ("limited", "interrupted"):
        assert {row.status for row in load(tmp_path / name).rows()} <= {None}
        assert load(tmp_path / name).info["left"] == 8
        assert fallbacks(tmp_path / name) == []


def test_each_setting_of_a_library_is_told_to_the_one_that_takes_its_place() -> None:
    machine = machine_of(2)
    case = Case("mpi", "allreduce", 8, 8, (0, 1), algorithm="ring", path="host")
    plan = Plan("test", (), (LaunchTable(mpi="a", mpi_requested=False, env={"X": ("1",)}),))
    ((settings, cases, _),) = group(plan, [PlannedCase(case)], machine, lambda _: "mpich")
    assert dict(settings.derived_env)["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] == "ring"
    moved, reasons = with_other_mpi(settings, cases, "b", "openmpi", machine)
    assert reasons == {}
    assert (moved.mpi, moved.env, moved.mpi_requested, moved.threads) == ("b", (("X", "1"),), False, False)
    assert dict(moved.derived_env)["OMPI_MCA_coll_tuned_allreduce_algorithm"] == "ring"
    assert not any(name.startswith("MPIR") for name, _ in moved.derived_env)
    _, reasons = with_other_mpi(settings, cases, "c", "unheard of", machine)
    assert "no setting of this MPI library is known" in reasons[case.case_key]
    _, reasons = with_other_mpi(settings, cases, "", "", machine)
    assert list(reasons) == [case.case_key]


def test_arguments_of_a_launcher_go_to_one_of_its_family_only(
    monkeypatch: pytest.MonkeyPatch, broken: MpiInstallation, good: MpiInstallation
) -> None:
    other = dataclasses.replace(good, name="other", launcher_kind="openmpi")
    monkeypatch.setattr(fallback, "find_all", lambda: [broken, other, good])
    settings = with_other_mpi(
        group(Plan("test", (), (LaunchTable(mpi=broken.name, mpi_requested=False, launcher_args=("-a",)),)),
              [PlannedCase(Case("kernel", "allreduce", 8, 8, (0, 1)))], machine_of(2), lambda _: "")[0][0],
        [], broken.name, "mpich", machine_of(2))[0]  # fmt: skip
    tried: list[Any] = []
    found = Fallback({broken.name: broken}, {}).go_on(settings, "why", lambda mpi: bool(tried.append(mpi)))
    assert found is None
    assert tried == [good]


def test_what_a_strangers_folder_says_was_taken_leads_to_an_end() -> None:
    for rows in ([], [{}, {"mpi": "a"}]):
        assert taken_of({fallback.KEY: rows}) == {}
    around = taken_of({fallback.KEY: [{"mpi": "a", "taken": "b"}, {"mpi": "b", "taken": "a"}]})
    assert end_of(around, "a") in ("a", "b")
    assert end_of({"a": "b", "b": THREADS}, "a") == THREADS
    assert end_of({}, "a") == "a"


def test_without_any_library_a_run_is_planned_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> MpiInstallation:
        raise EnvironmentLackingError("no usable MPI library (it does not load)")

    monkeypatch.setattr(prepare, "default_installation", none)
    devices = devices_of(2)
    prepared = prepare.prepare(parse_plan(SMALL_PLAN, "test", "test"), devices, [])
    assert prepared.without_mpi == "no usable MPI library (it does not load)"
    (planned,) = prepared.launches
    assert planned.settings.threads
    assert {case.transport for case in planned.cases} == {"kernel"}
    assert {reason for _, reason in planned.skipped} == {prepared.without_mpi}
    alone = parse_plan(SMALL_PLAN.replace('["kernel", "mpi"]', '"mpi"'), "test", "test")
    with pytest.raises(EnvironmentLackingError, match="it does not load"):
        prepare.prepare(alone, devices, [])


def linkgauge(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Exit status and output of a run that finds no MPI library but the wheel's."""
    environment = {"PATH": str(folder / "empty"), **environment}
    done = program.linkgauge("run", *words, "--no-report", cwd=folder, env=environment)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@thorough("a launcher that cannot start is met above, and a run is resumed in test_end_to_end.py")
@pytest.mark.skipif(NO_CORE, reason="the core is not built")
def test_a_real_launcher_that_cannot_start_and_what_a_resumed_run_goes_on_with(
    tmp_path: Path, good: MpiInstallation
) -> None:
    if good.source != "wheel" or good.launcher_kind != "hydra":
        pytest.skip("MPICH's wheel is not installed")
    words = ("--devices", "host:2", "--transport", "kernel,mpi", "--pattern", "pingpong", "--size", "8", "--quick")
    unusable = {"HYDRA_IFACE": "none_such"}
    status, said = linkgauge(tmp_path, *words, "--out", "run", **unusable)
    assert status == 0, said
    assert f"{good.title} cannot start: " in said
    assert "unable to find interface none_such; going on in threads, without MPI" in said
    assert Counter((row.case.transport, row.status) for row in load(tmp_path / "run").rows()) == {
        ("kernel", "ok"): 1, ("mpi", "skipped"): 1
    }  # fmt: skip
    status, said = linkgauge(tmp_path, "--resume", "run", "--retry", "ok", **unusable)
    assert status == 0, said
    assert "going on" not in said
    assert load(tmp_path / "run").launches.num_rows == 2
    # Given again by name, and in order: its cases are measured.
    again = ("--resume", "run", "--retry", "skipped", "--mpi", good.name, "--force")
    status, said = linkgauge(tmp_path, *again)
    assert status == 0, said
    rows = [row for row in load(tmp_path / "run").rows() if row.case.transport == "mpi"]
    assert max(rows, key=lambda row: row.attempt).status == "ok"
    status, said = linkgauge(tmp_path, *words, "--out", "asked", "--mpi", good.name, **unusable)
    assert status == 5
    assert "nothing could be measured: " in said


BOGUS = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=bogus"


@pytest.fixture
def mpich(good: MpiInstallation) -> MpiInstallation:
    if good.vendor != "mpich":
        pytest.skip("another library has other variables")
    return good


@thorough("a launch that fails later is a failed case in test_runner.py too")
def test_a_library_that_refuses_what_was_requested_is_not_replaced(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    mpich: MpiInstallation,
) -> None:  # fmt: skip
    other = tmp_path / "libmpi.so"
    other.touch()
    found_here(monkeypatch, mpich, dataclasses.replace(mpich, name="openmpi-4.9", library=other))
    with pytest.raises(EnvironmentLackingError) as stopped:
        run_plan(env=[BOGUS])
    assert f"{mpich.title} does not start with {BOGUS}: it takes auto, " in str(stopped.value)
    assert "does not start" not in capsys.readouterr().err  # the error says it, once
    assert fallbacks(tmp_path / "run") == []


def test_what_a_library_refuses_is_named_as_it_was_requested(mpich: MpiInstallation) -> None:
    plan = Plan("test", (), (LaunchTable(mpi=mpich.name, env={"X": ("1",), "UCX_TLS": ("bogus",)}),))
    case = PlannedCase(Case("mpi", "allreduce", 8, 8, (0, 1), algorithm="bogus"))
    settings = group(plan, [case], machine_of(2), lambda _: "mpich")[0][0]
    algorithm = dataclasses.replace(settings, env=(("X", "1"),))
    start = f"{mpich.title} does not start with algorithm bogus ({BOGUS}): it takes auto, "
    assert refusal(mpich, algorithm, {"bogus"}).startswith(start)
    plain = dataclasses.replace(algorithm, derived_env=())
    assert refusal(mpich, plain, ()) == ""
    broken = dataclasses.replace(mpich, library=Path("/no/libmpi.so"))
    assert refusal(broken, settings, ()) == ""  # which does not begin without the request either
