"""The run's machinery end to end over a fake core: launches, statuses, what goes wrong and what goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from linkgauge import owner
from linkgauge.errors import EnvironmentLackingError
from linkgauge.run.machine import processes
from linkgauge.run.parent import mpi_library
from linkgauge.run.parent.prepared import TimeLimit
from linkgauge.store.run import load
from thorough import thorough

OF_RULES = thorough("tests beside have the rule by which it goes")

OTHER_MPIS = [path for path in ("/usr/bin/mpirun.openmpi", "/usr/bin/mpirun.mpich") if os.path.exists(path)]


HUNG = thorough("tests/faults has a rank that is stopped and one that hangs")
VERDICTS = thorough("tests below have runs of which all cases, or all of a transport, are this")


def left_behind(tmp_path: Path) -> list[str]:
    """Processes, shared memory and temporary files of this test's runs."""
    found = [f"process {pid}" for pid in processes.marked(f"{os.getpid()}.{owner.start_time(os.getpid())}.")]
    found += [str(path) for path in (tmp_path / "tmp").rglob("*")]
    found += [str(path) for path in Path(f"/dev/shm/linkgauge-{os.getuid()}/{os.getpid()}").rglob("*")]
    return found


@pytest.mark.parametrize("threads", [False, True])
def test_every_case_of_a_plan_gets_its_status(run_plan: Any, threads: bool, tmp_path: Path) -> None:
    run = run_plan(threads=threads)
    assert run.status == 0
    counts = Counter(status for _, status in run.statuses())
    assert counts == ({"ok": 4, "skipped": 4} if threads else {"ok": 8})
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "status", "evidence"),
    [
        ("sigkill", "crashed", {"signal": 9}),
        pytest.param("sigsegv", "crashed", {"signal": 11}, marks=thorough("another signal is told of as well")),
        *(pytest.param(one, "hung", {}, marks=HUNG) for one in ("sigstop", "hang")),
        pytest.param("exit", "crashed", {"exit_status": 3}, marks=thorough("with noise another status is told of")),
        pytest.param("early", "crashed", {}, marks=thorough("a rank that is killed ends early")),
        pytest.param(
            "noise",
            "crashed",
            {"exit_status": 9},
            marks=thorough("other output of a launch is read in the tests beside"),
        ),
        pytest.param("chatter", "crashed", {}, marks=thorough("with noise more is printed too")),
        pytest.param("raise", "crashed", {}, marks=thorough("a rank that is killed crashes alike")),
        ("launcher", "crashed", {}),
        *(pytest.param(one, one, {}, marks=VERDICTS) for one in ("corrupt", "skipped")),
        ("failed", "failed", {}),
    ],
)
def test_a_fault_costs_its_case_only(
    run_plan: Any, tmp_path: Path, kind: str, status: str, evidence: dict[str, Any]
) -> None:
    marker = tmp_path / "planted"
    fault = {"kind": kind, "transport": "mpi", "pattern": "allreduce", "size": 8, "once": str(marker)}
    run = run_plan(fault=fault, hung_after_s=8.0 if status == "hung" else 60.0)
    assert marker.exists()
    rows = {(row.case.transport, row.case.pattern, row.case.size): row for row in load(run.path).rows()}
    bad = rows.pop(("mpi", "allreduce", 8))
    assert bad.status == status
    assert [row.status for row in rows.values()] == ["ok"] * 7
    assert run.status == (0 if status == "skipped" else 4)
    stored = json.dumps(bad.evidence)
    if kind in ("exit", "noise") and bad.evidence.get("told_rank") == 0:
        # On a busy machine hydra may tell of the rank that it ended itself: 5 of 270 times with six of these at once.
        evidence = {"signal": 9}
        assert "was ended by the launcher" in str(bad.reason)
    if kind == "noise" and "its launcher went on" in str(bad.reason):
        evidence = {}  # hydra has missed an end: once in some thousand, on a busy machine
    for name, value in evidence.items():
        assert f'"{name}": {value}' in stored or f'"{name}":{value}' in stored, stored
    if kind == "chatter":
        assert "the launch printed more than 64 MiB" in str(bad.reason)
    if kind == "hang":
        assert "_fault" in stored, "the stack of the waiting rank is missing"
    if kind == "sigstop":
        assert "stopped" in stored
    if kind == "noise":
        assert "planted last words" in stored
    if kind == "raise":
        assert "planted by the test" in str(bad.reason)
    assert left_behind(tmp_path) == []


@OF_RULES
def test_ranks_that_end_between_two_cases_are_told_of_and_cost_none(
    run_plan: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_plan(fault={"kind": "between", "index": 3, "once": str(tmp_path / "planted")})
    assert (tmp_path / "planted").exists()
    assert run.status == 0
    assert Counter(status for _, status in run.statuses()) == {"ok": 8}
    assert "linkgauge: the ranks ended between two cases, " in capsys.readouterr().err
    assert left_behind(tmp_path) == []


def test_after_so_many_failures_the_rest_of_a_transport_is_skipped(run_plan: Any) -> None:
    run = run_plan(fault={"kind": "corrupt", "transport": "mpi"}, max_failures=2)
    counts = Counter((row.case.transport, row.status) for row in load(run.path).rows())
    assert counts == {("kernel", "ok"): 4, ("mpi", "corrupt"): 2, ("mpi", "skipped"): 2}
    reasons = {row.reason for row in load(run.path).rows() if row.status == "skipped"}
    assert reasons == {"skipped after 2 failures of mpi (--max-failures 2)"}


@pytest.mark.parametrize("threads", [pytest.param(False, marks=thorough("launches fail alike")), True])
def test_a_launch_that_cannot_start_says_nothing_of_the_next(run_plan: Any, threads: bool, tmp_path: Path) -> None:
    run = run_plan(env=["LINKGAUGE_TEST_CANNOT_START=1,0"], threads=threads, max_failures=1)
    rows = [row for row in load(run.path).rows() if not (threads and row.case.transport == "mpi")]
    by_launch = {
        launch: {row.status for row in rows if row.launch == launch} for launch in {row.launch for row in rows}
    }
    failed = [row for row in rows if row.status == "failed"]
    assert sorted(by_launch.values(), key=str) == [{"failed"}, {"ok"}]
    assert len(failed) == len(rows) // 2
    assert all(row.reason.startswith("its launch could not be run: ") for row in failed)
    assert all(row.reason.endswith("a library that this launch asks for is not here") for row in failed)
    assert run.status == 4
    assert left_behind(tmp_path) == []


@OF_RULES
@pytest.mark.parametrize("bad_starts", [4, pytest.param(7, marks=thorough("the same, to its end"))])
def test_a_start_that_slurm_failed_by_chance_is_tried_until_it_is_no_chance(
    run_plan: Any, bad_starts: int, tmp_path: Path
) -> None:
    mpi = mpi_library.default_installation()
    starts = tmp_path / "starts"
    srun = tmp_path / "srun"
    srun.write_text(f"""#!/bin/sh
echo start >>{starts}
if [ "$(wc -l <{starts})" -le {bad_starts} ]; then
  echo "slurmstepd-n1: error: mpi/pmi2: value not properly terminated in client request"
  echo "srun: error: n1: task 0: Aborted"
  exit 134
fi
while [ "$1" != -n ]; do shift; done
exec {mpi.launcher} "$@"
""")
    srun.chmod(0o755)
    mpis = [dataclasses.replace(mpi, launcher=srun, launcher_kind="srun")]
    if bad_starts == 4:
        assert Counter(status for _, status in run_plan(mpis=mpis).statuses()) == {"ok": 8}
    else:
        with pytest.raises(EnvironmentLackingError, match="value not properly terminated"):
            run_plan(mpis=mpis)
    assert len(starts.read_text().split()) == (5 if bad_starts == 4 else 6)
    assert left_behind(tmp_path) == []


@thorough("a case of each status is in the tests beside")
def test_a_run_of_which_no_case_was_measured_is_no_success(run_plan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    over = TimeLimit.of(0.001, time.monotonic() - 60)
    assert run_plan(limit=over, threads=True, name="late").status == 6
    assert "nothing was measured: the time limit was over before any of 4 cases had ended" in capsys.readouterr().err
    assert run_plan(fault={"kind": "skipped"}, name="skipped").status == 6
    assert "nothing was measured: all 8 cases were skipped, the first since " in capsys.readouterr().err
    some = run_plan(fault={"kind": "skipped", "transport": "mpi"}, name="some")
    assert some.status == 0
    assert Counter(status for _, status in some.statuses()) == {"ok": 4, "skipped": 4}


@pytest.mark.skipif(not OTHER_MPIS, reason="no other MPI library installed")
def test_several_mpi_libraries_land_in_one_run_folder(run_plan: Any, tmp_path: Path) -> None:
    mpis = [mpi_library.default_installation(), *(mpi_library.resolve(path) for path in OTHER_MPIS)]
    run = run_plan(mpis=mpis)
    assert run.status == 0
    loaded = load(run.path)
    names = {str(row["mpi"]) for row in loaded.launches.to_pylist()}
    assert len(names) == len(mpis)
    by_launch = Counter(row.launch for row in loaded.rows())
    # Transports that do not use the library are measured under the first one only.
    assert sorted(by_launch.values()) == [4] * (len(mpis) - 1) + [8]
    assert left_behind(tmp_path) == []


def test_env_products_are_launches_of_their_own(run_plan: Any) -> None:
    run = run_plan(threads=True, env=["NCCL_A=1,2", "NCCL_B=x"])
    launches = load(run.path).launches.to_pylist()
    assert len(launches) == 2
    assert len({row["launch_key"] for row in launches}) == 2
