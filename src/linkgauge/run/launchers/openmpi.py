"""mpiexec of Open MPI."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence

from linkgauge.run.launchers.base import Launcher, LaunchRequest, ssh_unless
from linkgauge.run.launchers.pbsdsh import remote_shell

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Open MPI refuses root without these."""


class OpenMpi(Launcher):
    """mpiexec of Open MPI 4 (ORTE) and 5 (PRRTE)."""

    kind = "openmpi"
    word = "mpirun"
    says = r"open mpi|openrte|open-mpi|prrte|prte"
    starts = ("openmpi",)
    host_options = ("-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile")
    rank_variables = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")
    rank_pattern = r"process rank (\d+) with PID \d+ on node"
    node_pattern = r"Remote daemon:.* on node (\S+)"
    meanings = (
        ("unable to reliably start one or more daemons", "it could not start its part on a node, or lost it"),
        ("due to either a failure of the TCP network", "it lost the connection to its part on a node"),
    )
    signal_patterns = (r"exited on signal (\d+)",)
    status_patterns = (r"Exit code:\s*(\d+)", r"[Ee]xited with (?:non-zero )?(?:status|exit code)\s*:?\s*(\d+)")

    def command(self, request: LaunchRequest) -> list[str]:
        """Return mpiexec; unbound, more ranks than cores are allowed, since the plan has said so and stores it."""
        assert self.mpi is not None
        unbound, bound = ["--oversubscribe", "--bind-to", "none"], ["--map-by", "core", "--bind-to", "core"]
        # Other nodes' ranks get what is named and nothing else; the package may be found by PYTHONPATH alone.
        names = dict.fromkeys([*request.env, *(["PYTHONPATH"] if request.hosts else [])])
        environment = [word for name in names for word in ("-x", name)]
        return [
            str(self.mpi.launcher),
            *(bound if request.bind == "core" else unbound),
            *_placing(request),
            *request.launcher_args,
            *environment,
            "-n",
            str(request.ranks),
            *request.command,
        ]

    @classmethod
    def exporting(cls, environment: Mapping[str, str]) -> str:
        """Return mpirun with -x."""
        return " ".join([cls.word, *(f"-x {name}={shlex.quote(value)}" for name, value in environment.items())])

    def remote_shell(self, launcher_args: Sequence[str]) -> list[str] | None:
        """Return ssh, or the agent that a variable names."""
        agents = ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_ssh_agent")
        return ssh_unless(launcher_args, ("plm",), ("OMPI_MCA_plm", "PRTE_MCA_plm"), agents)

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Return leave to run as root where that is asked, and the folders of sessions and of shared segments.

        And how other nodes are reached where that is not by its own ways.
        """
        values: dict[str, str] = {}
        if request.hosts and (shell := remote_shell(request.folders)) is not None:
            values |= {"OMPI_MCA_plm_rsh_agent": str(shell), "PRTE_MCA_plm_ssh_agent": str(shell)}
        if request.folders is not None:
            segments, temporary = str(request.folders.segments), str(request.folders.temporary)
            values |= {
                "OMPI_MCA_btl_vader_backing_directory": segments,
                "OMPI_MCA_btl_sm_backing_directory": segments,
                "OMPI_MCA_osc_sm_backing_directory": segments,
                "OMPI_MCA_osc_rdma_backing_directory": segments,
                "OMPI_MCA_orte_tmpdir_base": temporary,
                "PRTE_MCA_prte_tmpdir_base": temporary,
            }
        remote = any(shutil.which(program) for program in ("ssh", "rsh"))
        chosen = any(name.startswith("OMPI_MCA_plm") for name in os.environ)
        if not (remote or chosen or self.may_leave(request.launcher_args) or request.hosts):
            values |= {"OMPI_MCA_plm": "isolated"}  # Open MPI 4 refuses even this node without a remote shell
        if os.geteuid() == 0:
            values |= AS_ROOT
            values |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return values


def _placing(request: LaunchRequest) -> list[str]:
    if not request.hosts:
        return []
    each = request.ranks_on_each
    return ["--host", ",".join(f"{host}:{each}" for host in request.hosts), "--map-by", f"ppr:{each}:node"]
