"""What a child process or a rank gets of this process's environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from linkgauge.run.machine.private_folder import LaunchFolders
from linkgauge.run.machine.processes import MARK

# A batch system's variables, and the programs of which one starts ranks on its job's nodes. A container in a job has
# the variables and often none of the programs: MPICH's launcher then waits for srun for ever, and others find no host.
_BATCH_SYSTEMS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("SLURM_",), ("srun",)),
    (("PBS_",), ("pbsdsh", "ssh")),
    (("LSB_", "LSF_"), ("blaunch",)),
    (("SGE_", "PE_"), ("qrsh",)),
    (("FLUX_",), ("flux",)),
)
_HOST_FILES = {"PBS_": "PBS_NODEFILE", "SGE_": "PE_HOSTFILE"}  # without it the job's nodes are not known either


def usable_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without the variables of batch systems that cannot start anything from here."""
    gone: tuple[str, ...] = ()
    for prefixes, programs in _BATCH_SYSTEMS:
        if any(name.startswith(prefixes) for name in environment):
            hosts = environment.get(_HOST_FILES.get(prefixes[0], ""))
            lost = hosts is not None and not os.access(hosts, os.R_OK)
            if lost or not any(shutil.which(program, path=environment.get("PATH")) for program in programs):
                gone += prefixes
    return {name: value for name, value in environment.items() if not (gone and name.startswith(gone))}


def package_environment() -> dict[str, str]:
    """What children of this process get: they find this very linkgauge, also where it is not installed.

    As `usable_environment`: launchers start ranks on this node where a batch system cannot start them.
    """
    inherited = usable_environment()
    package = str(Path(__file__).resolve().parents[3])
    before = os.environ.get("PYTHONPATH", "")
    if package in before.split(os.pathsep) or package in (path for path in sys.path if "site-packages" in path):
        return inherited
    return {**inherited, "PYTHONPATH": f"{package}{os.pathsep}{before}" if before else package}


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
