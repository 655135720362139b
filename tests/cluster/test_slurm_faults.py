"""Runs inside a job of Slurm on emulated nodes, by srun: a node that dies, a job that is canceled, steps at once.

What was measured before is kept, statuses say what happened, and a resumed run in another job has all cases.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import MBIT, Layout
from cluster.slurm import Slurm, slurm_why_not
from cluster.test_between_nodes import _begun, large_frames, processes_of
from linkgauge.stats.attempts import counted
from linkgauge.stats.interference import interferences
from linkgauge.store.run import Run, load
from patience import PATIENCE_S
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
    pytest.mark.skipif(bool(slurm_why_not()), reason=slurm_why_not() or "there is one"),
]
NODES = 4
SIZES = "8,64KiB,128KiB"
RUN = ["run", "--no-report", "--nodes", "all", "--mpi", "srun", "--devices", "host:1", "--transport", "mpi",
       "--pattern", "allreduce", "--size", SIZES, "--stop-rule", "duration", "--max-time", "3s"]  # fmt: skip


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    with Cluster(Layout.of(NODES, rate=100 * MBIT)) as cluster, Slurm(cluster) as started:
        yield started


def in_a_job(slurm: Slurm, out: Path, harm: Callable[[Cluster], None]) -> tuple[int, str]:
    """A run in a job of all nodes, whose parent is on the node without ranks, harmed in its second case.

    Its exit status, and all that was said.
    """
    cluster = slurm.cluster
    words = ["salloc", f"-N{NODES}", sys.executable, "-m", "linkgauge", *RUN, "--out", str(out)]
    run = cluster.start("login", words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        env={**slurm.environment, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and not _begun(out, 2):
            time.sleep(0.05)
        assert _begun(out, 2)
        time.sleep(0.5)
        harm(cluster)
        said, _ = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
        run.wait()
    return run.returncode, said.decode(errors="replace")


def completed(slurm: Slurm, out: Path, *more: str) -> Run:
    """The run, resumed in another job of the same nodes."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and set(slurm._states()) != {"idle"}:
        time.sleep(0.2)
    words = ["run", "--resume", str(out), "--no-report", *more]
    command = ["salloc", f"-N{NODES}", sys.executable, "-m", "linkgauge", *words,
               "--hosts", ",".join(slurm.cluster.layout.nodes)]  # fmt: skip
    done = slurm.cluster.run("login", command, timeout_s=PATIENCE_S,
                             env={**slurm.environment, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return load(out)


def signaled(cluster: Cluster, name: str) -> None:
    """Sends a signal to all processes of the step on n1."""
    for program in ("slurmstepd", "linkgauge.run.rank.worker"):
        for process in processes_of(cluster, "n1", program):
            cluster.run("fabric", ["kill", f"-{name}", process])


@thorough("a node that dies in a step is lost in the same way, and steps have tests in run/test_slurm.py")
def test_a_step_that_is_stopped_on_a_node_loses_no_case_before_it_and_a_resumed_run_has_all(slurm: Slurm) -> None:
    """Its node says nothing any more, nor that it is gone: the case ends by its time. No further step starts there."""
    out = slurm.cluster.folder / "run"
    code, said = in_a_job(slurm, out, lambda cluster: signaled(cluster, "STOP"))
    assert code == 4, said
    found = [(str(row.status), row.reason) for row in load(out).rows()]
    statuses = [one for one, _ in found]
    assert len({"hung", "timeout", "crashed"} & {*statuses}) == 1, (found, said)
    assert "ok" in statuses, (found, said)
    assert set(statuses) <= {"ok", "hung", "timeout", "crashed", "failed"}, (found, said)
    signaled(slurm.cluster, "CONT")  # and Slurm can end it
    last = completed(slurm, out, "--retry", "hung,timeout,crashed,failed")
    assert [row.status for rows in counted(last).measured for row in rows] == ["ok"] * 3


@thorough("a node that is lost is in test_between_nodes.py, and steps have tests in run/test_slurm.py")
def test_a_node_that_dies_in_a_step_loses_no_case_before_it_and_a_resumed_run_has_all(slurm: Slurm) -> None:
    """Slurm's own process for the step there goes with its ranks, so that no one tells of their end.

    Slurm 22.05 may start no further step in that job: what is left has then failed, and the next job has it.
    """
    out = slurm.cluster.folder / "run"
    code, said = in_a_job(slurm, out, lambda cluster: signaled(cluster, "KILL"))
    assert code == 4, said
    found = [(str(row.status), row.reason) for row in load(out).rows()]
    statuses = [one for one, _ in found]
    assert statuses.count("crashed") == 1, (found, said)
    (reason,) = [reason for status, reason in found if status == "crashed"]
    assert "rank 1 on n1 (host device 0)" in reason, (found, said)
    assert "ok" in statuses, (found, said)
    assert set(statuses) <= {"ok", "failed", "crashed"}, (found, said)
    last = completed(slurm, out, "--retry", "crashed,failed")
    assert [row.status for rows in counted(last).measured for row in rows] == ["ok"] * 3


@thorough("a node that dies in a step is lost in the same way, and steps have tests in run/test_slurm.py")
def test_a_canceled_job_keeps_what_was_measured_and_a_resumed_run_has_the_rest(slurm: Slurm) -> None:
    out = slurm.cluster.folder / "run"

    def cancel(cluster: Cluster) -> None:
        cluster.run("login", ["scancel", "--state=RUNNING", "--user=root"], env=slurm.environment)

    code, said = in_a_job(slurm, out, cancel)
    assert code == 130, said
    assert "the batch system has ended the job that this run is in" in said
    statuses = [row.status for row in load(out).rows()]
    assert "ok" in statuses, said
    assert statuses.count("ok") < 3, said
    assert set(statuses) <= {"ok", None}, said
    assert [row.status for row in completed(slurm, out).rows() if row.status] == ["ok"] * 3


@thorough("a node that dies in a step is lost in the same way, and steps have tests in run/test_slurm.py")
def test_a_load_that_is_a_step_of_its_own_goes_on_beside_the_measured_one(slurm: Slurm) -> None:
    out = slurm.cluster.folder / "run"
    words = ["run", "--no-report", "--nodes", "all", "--mpi", "srun", "--devices", "host:1", "--transport", "mpi",
             "--pattern", "unidirectional", "--size", "256KiB", "--pairs", "first", "--stop-rule", "count",
             "--stop-samples", "3", "--background", "mpi unidirectional 256KiB on=2,1 mpi=same"]  # fmt: skip
    done = slurm.cluster.run("login", ["salloc", f"-N{NODES}", sys.executable, "-m", "linkgauge", *words, "--out",
                             str(out)], timeout_s=PATIENCE_S,
                             env={**slurm.environment, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = load(out)
    assert [str(row.status) for row in run.rows()] == ["ok"]
    (lost,) = interferences(run)
    assert [rate.number for rate in lost.loads] == [1]  # it was at its rate while the case was measured


@thorough("between hosts of ssh the same, and run/test_first_look.py has steps that are refused")
def test_two_nodes_of_a_job_that_lose_large_packets_between_them_cost_their_own_cases_alone(slurm: Slurm) -> None:
    for node in ("n1", "n2"):
        large_frames(slurm.cluster, node, 9000)
    out = slurm.cluster.folder / "run"
    words = ["run", "--no-report", "--nodes", "all", "--mpi", "srun", "--devices", "host:1", "--transport", "mpi",
             "--pattern", "unidirectional,allreduce", "--pairs", "nodes", "--size", "128KiB", "--stop-rule", "count",
             "--stop-samples", "3", "--warmup", "1", "--max-time", "60s", "--out", str(out)]  # fmt: skip
    done = slurm.cluster.run("login", ["salloc", f"-N{NODES}", sys.executable, "-m", "linkgauge", *words],
                             timeout_s=PATIENCE_S,
                             env={**slurm.environment, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert (done.returncode, "lost between n1 and n2 (MTU 9000 at n1)" in done.stderr) == (4, True), done.stderr
    rows = {(row.case.pattern, row.case.devices): row for row in load(out).rows()}
    lossy = {key for key in rows if {1, 2} <= set(key[1])}
    assert lossy < set(rows)
    assert {key for key, row in rows.items() if row.status == "skipped"} == lossy, done.stderr
    assert {row.status for key, row in rows.items() if key not in lossy} == {"ok"}, done.stderr
