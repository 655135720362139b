"""Slurm on an emulated cluster: its controller on the node `login`, a daemon on every other, topology and all.

Nothing of the machine's own Slurm is touched: configuration, key, sockets and folders lie in the cluster's folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

from .cluster import Cluster, ClusterError

_PROGRAMS = ("munged", "slurmctld", "slurmd", "salloc", "srun", "sinfo", "scontrol")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_PATIENCE_S = 60.0
COMMON = """
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
"""
"""What a Slurm of tests has in its configuration whatever its nodes; all of it lies in a folder."""
_CONFIGURATION = f"""
ClusterName=emulated
SlurmctldHost=login
{COMMON}
TopologyPlugin=topology/tree
SlurmdTimeout=30
{{nodes}}
PartitionName=all Nodes={{names}} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


def slurm_why_not() -> str:
    """Why no Slurm can be started; empty where one can."""
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    return f"no {missing[0]} here (Debian: slurmctld, slurmd, slurm-client, munge)" if missing else ""


class Slurm:
    """Slurm's daemons while it is entered; commands of its clients are run by the cluster with `environment`."""

    def __init__(self, cluster: Cluster, cpus: int = 2, more: str = "") -> None:
        """Take the cluster, how many CPUs each node says that it has, and more lines of slurm.conf."""
        self.cluster = cluster
        folder, names = cluster.folder, cluster.layout.nodes
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={cluster.layout.address(name)} CPUs={cpus} State=UNKNOWN" for name in names
        )
        text = _CONFIGURATION.format(folder=folder, nodes=nodes, names=",".join(names))
        (folder / "slurm.conf").write_text(text + more)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "topology.conf").write_text(cluster.layout.topology_conf())
        (folder / "state").mkdir(exist_ok=True)
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands are run with."""
        return {**self.cluster.environment, "SLURM_CONF": str(self.cluster.folder / "slurm.conf")}

    def __enter__(self) -> Slurm:
        """Start the daemons and wait until all nodes are idle, or drained by what checks them."""
        folder = self.cluster.folder
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
                  f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
                  f"--seed-file={folder}/munged.seed"]  # fmt: skip
        try:
            self._start("login", munged)
            self._wait(lambda: (folder / "munge.socket").exists(), "munged does not come up")
            self._start("login", ["slurmctld", "-D"])
            for name in self.cluster.layout.nodes:
                self._start(name, ["slurmd", "-D", "-N", name])
            # A program that checks them at once may have drained one before the last one is idle.
            up = {"idle", "drng", "drain"}
            self._wait(lambda: set() < set(self._states()) <= up, "Slurm's nodes do not come up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the daemons."""
        for daemon in reversed(self._daemons):
            daemon.kill()  # its starter outside; what it started dies with it (setpriv --pdeathsig)
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)

    def _start(self, node: str, words: Sequence[str]) -> None:
        self._daemons.append(
            self.cluster.start(node, words, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def _states(self) -> list[str]:
        done = self.cluster.run("login", ["sinfo", "-h", "-N", "-o", "%t"], env=self.environment)
        return done.stdout.split()

    def _wait(self, ready: Callable[[], bool], problem: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not ready():
            if time.monotonic() > until:
                logs = (path.read_text(errors="replace")[-600:] for path in sorted(self.cluster.folder.glob("*.log")))
                raise ClusterError(f"{problem}: {' | '.join(' '.join(text.split()) for text in logs)}")
            time.sleep(0.2)
