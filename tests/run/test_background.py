"""Real runs with loads: each transport beside another, on devices of their own and on shared ones, and failures."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import program
from faults.leftovers import left_behind
from installed_mpi import installed
from linkgauge.run.parent.prepared import read_launches, unsafe_settings
from linkgauge.run.rank import worker
from linkgauge.stats.interference import interferences
from linkgauge.store.run import load
from linkgauge.view.charts_spread import noisiest
from linkgauge.view.results import Results
from planted_faults import HAVE_FAULTS, NO_FAULTS
from run.test_spec import spec_of
from thorough import most, thorough

LOADS_ALIKE = thorough("loads of the same launch are planned, measured and reported alike")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
TESTS = Path(__file__).parents[1]
FEW = ("--stop-rule", "count", "--stop-samples", "8", "--max-time", "20s", "--warmup", "1", "--no-report")


def linkgauge(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return program.linkgauge(*words, cwd=folder)


def measured(folder: Path, *words: str) -> tuple[Any, str]:
    done = linkgauge(folder, "run", "--out", "run", *FEW, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return load(folder / "run"), done.stdout


def phases(run: Any) -> Counter[str]:
    return Counter(run.samples["phase"].to_pylist())


@pytest.mark.parametrize("threads", [pytest.param(False, marks=thorough("threads meet the same loads")), True])
def test_every_transport_goes_on_beside_another(tmp_path: Path, threads: bool) -> None:
    transports = ("copy_engine", "kernel", "staging") if threads else ("copy_engine", "kernel", "staging", "mpi")
    plan = "\n".join(
        f'[[case]]\ntransport = "{first}"\npattern = "pingpong"\nsize = "4KiB"\ndevices = [[0, 1]]\npairs = "first"\n'
        f'background = "{second} alltoall 64KiB; copy_engine local_copy 1MiB on=0"\n'
        for first, second in zip(transports, (*transports[1:], transports[0]), strict=True)
    )
    (tmp_path / "plan.toml").write_text(plan)
    run, said = measured(tmp_path, "--plan", "plan.toml", "--devices", "host:4", *(["--threads"] if threads else []))
    rows = list(run.rows())
    assert [row.status for row in rows] == ["ok"] * len(transports)
    for row in rows:
        assert [one.case.devices for one in row.case.background.each] == [(2, 3), (0,)]
    found = interferences(run)
    assert len(found) == len(transports)
    for one in found:
        assert [rate.number for rate in one.loads] == [1, 2]
        assert all(rate.alone_ns for rate in one.loads)
        assert one.alone_ns > 0 < one.beside_ns
    assert phases(run)["alone"] == phases(run)["sample"] > 0
    lines = said.split("with background load: time over time alone, alternated\n")[1]
    assert lines.count(" alone, ") == lines.count(" with the load: ") == len(transports)


@LOADS_ALIKE
def test_jobs_of_two_service_classes_go_on_side_by_side_and_only_the_cases_own_samples_are_drawn(
    tmp_path: Path,
) -> None:
    done = linkgauge(
        tmp_path, "run", "--out", "run", "--devices", "host:4", "--pattern", "ring_shift", "--ranks", "2",
        "--transport", "mpi", "--size", "64KiB", "--service-class", "3", "--background",
        "mpi ring_shift 64KiB service_class=0", "--class-weights", "0=1,3=3", "--stop-rule", "count",
        "--stop-samples", "40", "--max-time", "20s", "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = load(tmp_path / "run")
    (row,) = run.rows()
    assert (row.status, str(row.case.service_class)) == ("ok", "3")
    (launch,) = run.launches.to_pylist()
    told = [{"devices": [0, 1], "env": {"UCX_IB_SL": "3"}}, {"devices": [2, 3], "env": {"UCX_IB_SL": "0"}}]
    assert json.loads(launch["extra"])["job_env"] == told
    (stored,) = read_launches(tmp_path / "run")  # what --resume goes on with
    assert [{"devices": list(devices), "env": dict(env)} for devices, env in stored.settings.job_env] == told
    assert unsafe_settings(stored, frozenset()) == ""
    assert run.info["requested"]["class_weights"] == {"0": 1.0, "3": 3.0}
    (drawn,) = noisiest(Results(run))
    assert drawn.series.size - drawn.cut == 40 - drawn.row.warmup_cut > 0


@LOADS_ALIKE
def test_streams_of_host_memory_go_on_beside_a_copy_and_their_rates_are_known(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    loads = [f"kernel host_stream 1MiB on=1 variant={work} cpu_cores={core}" for work in ("copy", "triad", "read")]
    began = time.monotonic_ns()
    run, _ = measured(tmp_path, "--devices", "host:2", "--pattern", "local_copy", "--transport", "kernel", "--size",
                      "64KiB", "--ranks", "1", *(word for one in loads for word in ("--background", one)))  # fmt: skip
    took_ns = time.monotonic_ns() - began
    alone = {one.case.background.each[0].case.variant: one.loads[0].alone_ns for one in interferences(run)}
    assert set(alone) == {"copy", "triad", "read"}
    # No core moves 1 MiB in 100 ns, and nothing took longer than the run.
    assert all(100 < ns < took_ns for ns in alone.values() if ns), alone
    (loads_core,) = {row.case.background.each[0].case.cpu_cores for row in run.rows()}
    assert loads_core == str(core)


def test_a_ranks_job_says_what_it_sets_before_it_loads_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dataclasses.replace(spec_of(4, []), job_env=(((0, 2), {"UCX_IB_SL": "3"}), ((1,), {"UCX_IB_SL": "0"})))
    assert [spec.env_of(rank).get("UCX_IB_SL") for rank in range(4)] == ["3", "0", "3", None]
    monkeypatch.setenv("UCX_IB_SL", "7")
    monkeypatch.setenv("PMI_RANK", "1")
    assert worker._set_environment(spec) == 1
    assert os.environ["UCX_IB_SL"] == "0"


def test_a_load_is_on_the_rest_or_the_same_or_on_devices_that_are_there(tmp_path: Path) -> None:
    base = ("--devices", "host:2", "--pattern", "pingpong", "--transport", "copy_engine", "--size", "8", "--pairs",
            "first", "--dry-run", "--json")  # fmt: skip

    def planned(text: str) -> Any:
        return linkgauge(tmp_path, "run", *base, "--background", text)

    same = planned("kernel alltoall 8 on=same")
    assert "on=0,1" in same.stdout, same.stdout + same.stderr
    rest = planned("kernel alltoall 8")
    assert "has no device: the case uses all 2; say on=same" in rest.stdout, rest.stdout + rest.stderr
    absent = planned("kernel alltoall 8 on=0,7")
    assert (absent.returncode, "no device 7: expected 0 to 1" in absent.stderr) == (2, True), absent.stderr
    few = planned("kernel allreduce 8 on=1")
    assert "load 1: allreduce needs at least 2 ranks" in few.stdout, few.stdout + few.stderr
    wrong = planned("kernel alltoall 8MB on=0")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr


@thorough("tests of findings leave out what a load disturbed")
def test_what_loads_leave_is_no_witness_of_the_machine(tmp_path: Path) -> None:
    run, _ = measured(tmp_path, "--devices", "host:4", "--pattern", "unidirectional", "--transport", "copy_engine",
                      "--size", "1MiB", "--pairs", "first", "--background", "copy_engine local_copy 4MiB")  # fmt: skip
    expected = linkgauge(tmp_path, "expect", str(run.path), "--json")
    assert '"kind": "measured"' not in expected.stdout
    shown = linkgauge(tmp_path, "show", "run")
    assert shown.returncode == 0
    assert "background memcpy local_copy 4MiB on=2" in " ".join(shown.stdout.split())
    assert linkgauge(tmp_path, "findings", "run").stdout.startswith("No problems found.\n")


def faulted(folder: Path, loads: list[str], fault: dict[str, Any]) -> tuple[Any, dict[int, tuple[str, str]]]:
    """A run of two cases beside a load each, of 4 and 8 KiB, with a fault; and their statuses and reasons by size."""
    plan = "".join(
        f'[[case]]\ntransport = "copy_engine"\npattern = "pingpong"\nsize = "{size}"\ndevices = [[0, 1]]\n'
        f'pairs = "first"\nstop_rule = "count"\nstop_samples = 6\nmax_time = "60s"\nbackground = "{beside}"\n'
        for size, beside in zip((4096, 8192), loads, strict=True)
    )
    (folder / "job.json").write_text(json.dumps({
        "devices": "host:4", "plan": plan,
        "fault": {"planter": str(TESTS / "faults" / "planter.py"), "folder": str(folder), "faults": [fault]},
    }))  # fmt: skip
    (folder / "tmp").mkdir()
    job = [str(TESTS / "faults" / "run_job.py"), str(folder)]
    done = program.started(job, cwd=folder, env={"TMPDIR": str(folder / "tmp")})
    assert done.returncode == 4, done.stdout + done.stderr
    run = load(folder / "run")
    return run, {row.case.size: (str(row.status), str(row.reason or "")) for row in run.rows()}


@pytest.mark.parametrize(
    ("kind", "phase", "rank", "status"),
    [pytest.param("corrupt", "final_check", 3, "disturbed", marks=thorough("it throws too")),
     pytest.param("throw", "check", 2, "failed", marks=thorough("tests/faults has a rank that throws")),
     pytest.param("kill", "final_check", 3, "disturbed", marks=thorough("it throws too, and is waited for less")),
     pytest.param("corrupt", "final_check", 0, "corrupt", marks=thorough("tests/faults has the measured job's")),
     pytest.param("hang", "final_check", 3, "disturbed", marks=thorough("loads of another launch hang too")),
     pytest.param("kill", "final_check", 1, "crashed", marks=thorough("tests/faults has the measured job's")),
     ("throw", "final_check", 2, "disturbed"),
     pytest.param("segv", "final_check", 2, "disturbed", marks=thorough("it throws too, and is waited for less")),
     pytest.param("stop", "final_check", 3, "disturbed", marks=thorough("loads of another launch hang too")),
     pytest.param("hang", "final_check", 1, "hung", marks=thorough("the measured job is killed too"))],
)  # fmt: skip
@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
def test_what_a_load_does_wrong_is_told_as_the_loads(
    tmp_path: Path, kind: str, phase: str, rank: int, status: str
) -> None:
    load_text = "kernel alltoall 64KiB on=2,3"
    fault = {"size": 4096, "transport": "copy_engine", "kind": kind, "phase": phase, "rank": rank}
    # Of a death it is told whose only where that was seen before the others ended, which a busy machine may miss.
    for attempt in range(5 if kind in ("kill", "segv") and status == "disturbed" else 1):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        run, found = faulted(folder, [load_text, load_text], fault)
        assert found[8192] == ("ok", "")
        if found[4096][0] == status:
            break
    assert found[4096][0] == status, found
    if status == "disturbed":
        assert found[4096][1].startswith(f"load 1 ({load_text}): ")
        assert phases(run)["sample"] >= 12  # what was measured is kept
        assert len(interferences(run)) == 1
    assert sorted(path.name for path in (folder / "run" / "journal").iterdir()) == []
    assert left_behind(folder) == []


@thorough("what loads of another launch may do wrong is reported as of loads in the same launch")
@pytest.mark.parametrize(
    ("kind", "phase", "status", "said"),
    [("hang", "final_check", "disturbed", "heartbeat"),
     pytest.param("kill", "final_check", "disturbed", "SIGKILL", marks=thorough("loads of one launch are killed too")),
     pytest.param("corrupt", "final_check", "disturbed", "wrong bytes", marks=thorough("loads of one launch are too")),
     pytest.param("throw", "final_check", "disturbed", "", marks=thorough("loads of the same launch throw there")),
     pytest.param("throw", "check", "failed", "", marks=thorough("loads of the same launch throw there"))],
)  # fmt: skip
@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
def test_what_a_load_of_another_launch_does_wrong_costs_its_case_alone(
    tmp_path: Path, kind: str, phase: str, status: str, said: str
) -> None:
    texts = [f"kernel alltoall {size}KiB on=2,3 mpi=same" for size in (64, 32)]
    fault = {"size": 64 << 10, "transport": "kernel", "kind": kind, "phase": phase, "rank": 1}
    run, found = faulted(tmp_path, texts, fault)
    assert found[8192] == ("ok", ""), found
    assert found[4096][0] == status, found
    assert found[4096][1].startswith(f"load 1 ({texts[0]}): ")
    assert said in found[4096][1]
    evidence = {row.case.size: row.evidence for row in run.rows()}
    assert [one["load"] for one in evidence[4096]["loads"]] == [1]
    if status == "disturbed":  # what was measured is kept
        assert phases(run)["sample"] >= 12
    assert len(run.launches) == 1  # the measured ranks went on
    assert sorted(path.name for path in (tmp_path / "run" / "journal").iterdir()) == []
    assert left_behind(tmp_path) == []


@LOADS_ALIKE
@pytest.mark.parametrize("threads", [False, pytest.param(True, marks=thorough("processes meet the same load"))])
def test_a_load_may_be_a_launch_of_its_own_of_another_library(tmp_path: Path, threads: bool) -> None:
    names = [one.name for one in installed() if not one.problem]
    other = "same" if len(names) == 1 else names[1]
    if threads and other == "same":
        pytest.skip("a launch of threads names no MPI library, and one alone is here")
    sizes = most(["4KiB", "64KiB"], ["64KiB"])
    run, said = measured(tmp_path, "--devices", "host:4", "--ranks", "2", "--pattern", "pingpong", "--transport",
                         "kernel" if threads else "mpi", "--size", ",".join(sizes), "--pairs", "first", "--background",
                         f"mpi alltoall 64KiB on=2,3 burst=5 mpi={other}; kernel local_copy 1MiB on=2",
                         *(["--threads"] if threads else ["--mpi", names[0]]))  # fmt: skip
    assert [row.status for row in run.rows()] == ["ok"] * len(sizes)
    found = interferences(run)
    assert len(found) == len(sizes)
    for one in found:
        assert [rate.number for rate in one.loads] == [1, 2]
        assert all(rate.alone_ns for rate in one.loads)
    assert phases(run)["alone"] == phases(run)["sample"] > 0
    assert len(run.launches) == 1
    (ranks,) = {len(ranks) for ranks in run.launches["ranks"].to_pylist()}
    assert ranks == 4  # of the load's own launch nothing is stored but what it was
    assert f"mpi={other}" in said


def test_what_no_launch_of_a_load_can_be_is_said_before_the_run(tmp_path: Path) -> None:
    base = ("run", "--dry-run", "--devices", "host:2", "--pattern", "local_copy", "--transport", "kernel", "--size",
            "8", "--ranks", "1")  # fmt: skip
    path = linkgauge(tmp_path, *base, "--background", "mpi alltoall 8 on=0,1 mpi=/usr/bin/mpiexec")
    assert (path.returncode, path.stderr.count("\n")) == (2, 1), path.stderr
    assert "expected a name of 'linkgauge list mpi', or same" in path.stderr
    unknown = linkgauge(tmp_path, *base, "--background", "mpi alltoall 8 on=0,1 mpi=lam")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1), unknown.stderr
    assert "no such MPI library" in unknown.stderr
    same = linkgauge(tmp_path, *base, "--threads", "--background", "mpi alltoall 8 on=0,1 mpi=same")
    assert "threads have no MPI library that a load could be a launch of" in same.stdout + same.stderr
