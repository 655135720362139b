"""mpiexec of MPICH and its relatives."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence

from linkgauge.run.launchers.base import Launcher, LaunchRequest, ssh_unless
from linkgauge.run.launchers.pbsdsh import remote_shell


class Hydra(Launcher):
    """mpiexec of MPICH and its relatives (Intel MPI, MVAPICH)."""

    kind = "hydra"
    word = "mpiexec"
    says = r"hydra|mpich|intel\(r\) mpi"
    starts = ("mpich", "intel", "cray", "mvapich", "unknown")
    host_options = ("-f", "-host", "-hosts", "-hostfile", "-machinefile", "--host", "--hosts", "--hostfile")
    rank_variables = ("PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")
    signal_patterns = (
        r"KILLED BY SIGNAL: (\d+)",
        r"EXIT STRING: .*\(signal (\d+)\)",  # however the status was packed
    )
    status_patterns = (r"EXIT CODE:\s*(\d+)",)
    pid_pattern = r"PID (\d+) RUNNING AT"
    fatal_statuses = (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGSEGV)
    meanings = ((r"assert \(!closed\) failed", "it lost the connection to its part on a node"),)

    def command(self, request: LaunchRequest) -> list[str]:
        """Return mpiexec -n N. Ranks have its own environment, on other nodes too; values in words stand in `ps`."""
        assert self.mpi is not None
        return [
            str(self.mpi.launcher),
            *(["-bind-to", "core"] if request.bind == "core" else []),
            *(["-disable-auto-cleanup"] if request.others_stay and self.mpi.vendor in ("mpich", "intel") else []),
            *_placing(request),
            *request.launcher_args,
            "-genvall",
            "-n",
            str(request.ranks),
            *request.command,
        ]

    @classmethod
    def exporting(cls, environment: Mapping[str, str]) -> str:
        """Return mpiexec with -genv."""
        return " ".join([cls.word, *(f"-genv {name} {shlex.quote(value)}" for name, value in environment.items())])

    def remote_shell(self, launcher_args: Sequence[str]) -> list[str] | None:
        """Return ssh, or what -launcher-exec's variables name."""
        own = ("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP", "HYDRA_RMK", "I_MPI_HYDRA_RMK")
        programs = ("HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC")
        return ssh_unless(launcher_args, ("-launcher", "-bootstrap", "-rmk"), own, programs)

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Return what makes it start ranks where it is told, inside a batch system's job too.

        On this node it forks them. Else it takes the batch system's starter, which waits without end in a container
        that has the job's variables and no way to its controller.
        """
        intel = self.mpi is not None and self.mpi.vendor == "intel"
        if request.hosts:
            return {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "off"} if intel else {}
        if intel:
            return {"I_MPI_HYDRA_BOOTSTRAP": "fork", "I_MPI_HYDRA_RMK": "user"}
        return {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}


def _placing(request: LaunchRequest) -> list[str]:
    if not request.hosts:
        return []
    shell = remote_shell(request.folders)
    by = [] if shell is None else ["-launcher", "ssh", "-launcher-exec", str(shell)]
    # The folder that this process starts it in is this node's alone.
    return ["-hosts", ",".join(request.hosts), "-ppn", str(request.ranks_on_each), "-wdir", "/", *by]
