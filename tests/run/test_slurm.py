"""Runs under a real Slurm of two nodes on this machine, where its daemons are installed and root runs the tests.

Nothing of the machine's own Slurm is touched: configuration, ports, keys and folders are the test's.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.slurm import COMMON
from faults.leftovers import left_behind
from linkgauge.store.run import load
from patience import PATIENCE_S
from thorough import thorough

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "sinfo")
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(program, path=PATH) is None for program in PROGRAMS),
        reason="no Slurm to start here as root (Debian: slurmctld, slurmd, slurm-client, munge)",
    ),
]
PLAN = """
[[case]]
transport = ["mpi", "kernel"]
pattern = ["pingpong", "allreduce"]
size = "8:32KiB:x8"
pairs = "first"
devices = [[0, 1]]
stop_rule = "duration"
max_time = "1s"
"""
CASES = 2 * 2 * 5
CONFIGURATION = f"""
ClusterName=here
SlurmctldHost={{host}}(127.0.0.1)
SlurmctldPort={{ports[0]}}
{COMMON}
NodeName=n1 NodeHostname={{host}} NodeAddr=127.0.0.1 Port={{ports[1]}} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={{host}} NodeAddr=127.0.0.1 Port={{ports[2]}} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Slurm:
    """A cluster in a folder; its jobs run linkgauge there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf"),
                            "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip

    def ask(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, text=True, capture_output=True, check=False,
                              timeout=PATIENCE_S)  # fmt: skip
        return done.stdout.strip()

    def submit(self, folder: Path, *words: str) -> str:
        """The number of a job that runs `linkgauge run WORDS` on both nodes, in `folder`."""
        (folder / "tmp").mkdir(exist_ok=True)
        script = folder / "job.sh"
        command = " ".join([sys.executable, "-m", "linkgauge", "run", "--mpi", "srun", "--no-report", *words])
        script.write_text(f"#!/bin/sh\ncd {folder}\nexport TMPDIR={folder}/tmp\nexec {command}\n")
        job = self.ask("sbatch", "--parsable", "-N", "2", "-n", "2", "--chdir", str(folder), "-o", f"{folder}/said",
                       str(script))  # fmt: skip
        assert job.isdecimal(), f"{job}\n{self.logs()}"
        return job

    def wait(self, job: str, patience_s: float = 150) -> None:
        until = time.monotonic() + patience_s
        while self.ask("squeue", "-h", "-j", job) and time.monotonic() < until:
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    cluster = Slurm(folder)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=folder, ports=free_ports(3))
    )
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
              f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
              f"--seed-file={folder}/munged.seed"]  # fmt: skip
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]):
            daemons.append(
                subprocess.Popen(command, env=cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            time.sleep(1)
        until = time.monotonic() + PATIENCE_S
        while cluster.ask("sinfo", "-h", "-N", "-o", "%t").split() != ["idle", "idle"]:
            if time.monotonic() > until:
                pytest.skip(f"Slurm does not come up here: {cluster.logs()[-800:]}")
            time.sleep(0.5)
        yield cluster
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@thorough("tests/cluster asks Slurm for nodes and measures on them")
def test_a_job_is_measured_by_srun_and_one_that_is_canceled_keeps_what_it_measured(
    slurm: Slurm, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    job = slurm.submit(tmp_path, "--devices", "host:2", "--plan", "plan.toml", "--out", "run")
    statuses = tmp_path / "run" / "journal" / "statuses.lgj"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and (not statuses.exists() or statuses.stat().st_size < 4000):
        time.sleep(0.05)
    slurm.ask("scancel", job)
    slurm.wait(job)
    said = (tmp_path / "said").read_text()
    until = time.monotonic() + PATIENCE_S  # the job is over for Slurm when its script has been told to end
    while time.monotonic() < until and not json.loads((tmp_path / "run" / "run.json").read_text()).get("end"):
        time.sleep(0.1)
    run = load(tmp_path / "run")
    done = sum(row.status == "ok" for row in run.rows())
    assert 0 < done < CASES, said
    assert "look at them failed" not in said, said  # both nodes are this machine, which a look there finds
    assert {row.status for row in run.rows()} <= {"ok", None}, said  # no case is blamed for the job's end
    assert (run.info["exit_status"], run.info["ended_by"], run.info["left"]) == (130, "SIGTERM", CASES - done)
    (launch,) = run.launches.to_pylist()
    assert Path(json.loads(launch["mpi"])["launcher"]).name == "srun"

    slurm.wait(slurm.submit(tmp_path, "--resume", "run"))
    after = load(tmp_path / "run")
    said = (tmp_path / "said").read_text()
    assert collections.Counter(row.status for row in after.rows() if row.status) == {"ok": CASES}, said
    assert after.info["exit_status"] == 0
    assert left_behind(tmp_path) == []
