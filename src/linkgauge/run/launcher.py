"""Launchers: how each family of mpiexec is told to start ranks, as small classes in a registry.

Every launcher gives the same two things: the command line, and the environment that keeps what the MPI library writes
inside the launch's private folders. Our ranks bind themselves to cores (worker), so launchers are told not to; peers'
programs are started by the same words, and bound by the launcher where that is asked.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.private_folder import LaunchFolders
from linkgauge.run.processes import MARK


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """What is to be started: so many ranks of a command, with this environment, in these folders.

    `folders`: None where the library's own places are left as they are. `bind`: `none`, or `core` for a core of its own
    for each rank.
    """

    ranks: int
    command: Sequence[str]
    env: Mapping[str, str]
    folders: LaunchFolders | None = None
    launcher_args: Sequence[str] = ()
    bind: str = "none"  # none | core


class Launcher(abc.ABC):
    """One family of launchers. Registered under `kind`."""

    kind: ClassVar[str]
    registry: ClassVar[dict[str, type[Launcher]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the family."""
        Launcher.registry[cls.kind] = cls

    def __init__(self, mpi: MpiInstallation | None) -> None:
        """Take the installation whose launcher is used; None for a single process without MPI."""
        self.mpi = mpi

    @abc.abstractmethod
    def command(self, request: LaunchRequest) -> list[str]:
        """Return the command line that starts the ranks."""

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Return the variables of this family's own: where its files go, what it refuses without."""
        return {}

    def failed_by_chance(self, output: Sequence[str]) -> bool:
        """Whether the lines of its output tell of a failure that the same start may well not have again."""
        return False


class Single(Launcher):
    """Threads mode: one process, no MPI."""

    kind = "single"

    def command(self, request: LaunchRequest) -> list[str]:
        """Return the worker's command itself."""
        return list(request.command)


class Hydra(Launcher):
    """mpiexec of MPICH and its relatives (Intel MPI, MVAPICH)."""

    kind = "hydra"

    def command(self, request: LaunchRequest) -> list[str]:
        """Return mpiexec -n N with the environment given to each rank."""
        assert self.mpi is not None
        environment = [word for name, value in request.env.items() for word in ("-genv", name, value)]
        return [
            str(self.mpi.launcher),
            *(["-bind-to", "core"] if request.bind == "core" else []),
            *request.launcher_args,
            *environment,
            "-n",
            str(request.ranks),
            *request.command,
        ]


class OpenMpi(Launcher):
    """mpiexec of Open MPI 4 (ORTE) and 5 (PRRTE)."""

    kind = "openmpi"

    def command(self, request: LaunchRequest) -> list[str]:
        """Return mpiexec; unbound, more ranks than cores are allowed, since the plan has said so and stores it."""
        assert self.mpi is not None
        unbound, bound = ["--oversubscribe", "--bind-to", "none"], ["--map-by", "core", "--bind-to", "core"]
        environment = [word for name in request.env for word in ("-x", name)]
        return [
            str(self.mpi.launcher),
            *(bound if request.bind == "core" else unbound),
            *request.launcher_args,
            *environment,
            "-n",
            str(request.ranks),
            *request.command,
        ]

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Return leave to run as root where that is asked, and the folders of sessions and of shared segments."""
        values = {}
        if request.folders is not None:
            segments, temporary = str(request.folders.segments), str(request.folders.temporary)
            values = {
                "OMPI_MCA_btl_vader_backing_directory": segments,
                "OMPI_MCA_btl_sm_backing_directory": segments,
                "OMPI_MCA_osc_sm_backing_directory": segments,
                "OMPI_MCA_osc_rdma_backing_directory": segments,
                "OMPI_MCA_orte_tmpdir_base": temporary,
                "PRTE_MCA_prte_tmpdir_base": temporary,
            }
        if os.geteuid() == 0:
            values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            values |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return values


class Srun(Launcher):
    """Slurm's srun, with the process-management interface that the library speaks."""

    kind = "srun"

    def command(self, request: LaunchRequest) -> list[str]:
        """Return srun -n N; a rank that dies ends the step."""
        assert self.mpi is not None
        interface = "pmix" if self.mpi.abi == "openmpi" else "cray_shasta" if self.mpi.vendor == "cray" else "pmi2"
        return [
            str(self.mpi.launcher),
            f"--mpi={interface}",
            f"--cpu-bind={'cores' if request.bind == 'core' else 'none'}",
            "--kill-on-bad-exit=1",
            "--export=ALL",
            *request.launcher_args,
            "-n",
            str(request.ranks),
            *request.command,
        ]

    def failed_by_chance(self, output: Sequence[str]) -> bool:
        """Whether mpi/pmi2 cut off a request, of which it reads 1024 bytes (Slurm 22.05, handle_pmi1_cmd of pmi1.c).

        MPICH 5.0 puts 4 KB of memory in, whatever lies there, runs of zeros shortened: 780 to 990 bytes a request were
        seen, so that some starts of some programs are beyond.
        """
        return any("mpi/pmi2: value not properly terminated" in line for line in output)


def launcher_for(mpi: MpiInstallation | None) -> Launcher:
    """The launcher of an installation; of a single process for None."""
    return Launcher.registry[mpi.launcher_kind if mpi is not None else "single"](mpi)


# Sonames that mpi4py's variants ask the loader for.
_SONAMES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}


def library_environment(mpi: MpiInstallation, folder: Path) -> dict[str, str]:
    """Make workers load exactly this library: MPI4PY_LIBMPI, and a link of the expected name where it has another.

    Debian's MPICH is libmpich.so.12 where mpi4py's variant wants libmpi.so.12; the link lies in `folder`.
    """
    expected = _SONAMES.get(mpi.abi)
    if expected is None or mpi.library.name == expected:
        return {"MPI4PY_LIBMPI": str(mpi.library)}
    links = folder / "lib"
    links.mkdir(exist_ok=True)
    link = links / expected
    link.symlink_to(mpi.library)
    before = os.environ.get("LD_LIBRARY_PATH", "")
    return {"MPI4PY_LIBMPI": str(link), "LD_LIBRARY_PATH": f"{links}:{before}" if before else str(links)}


def package_environment() -> dict[str, str]:
    """This process' environment, in which a child finds this very linkgauge, also where it is not installed."""
    package = str(Path(__file__).resolve().parents[2])
    before = os.environ.get("PYTHONPATH", "")
    if package in before.split(os.pathsep) or package in (path for path in sys.path if "site-packages" in path):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{before}" if before else package}


def worker_environment(folders: LaunchFolders) -> dict[str, str]:
    """What every worker gets: its private TMPDIR, the launch's mark, no threads of libraries."""
    return {
        "TMPDIR": str(folders.temporary),
        MARK: folders.token,
        "PYTHONUNBUFFERED": "1",
        # A rank's own threads would take cores from other ranks.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
