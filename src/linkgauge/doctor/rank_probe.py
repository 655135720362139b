"""Two ranks started under an MPI library, and what they see of each other: the doctor's one real launch."""

from __future__ import annotations

import re
import subprocess
import sys

from linkgauge.run import processes
from linkgauge.run.evidence import last_words
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import LaunchRequest, library_environment, package_environment, worker_environment
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.private_folder import PrivateFolders

_PROGRAM = (
    "import json, mpi4py; mpi4py.rc.thread_level = 'funneled'\n"
    "from mpi4py import MPI\n"
    "print('LINKGAUGE ' + json.dumps([MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()]), flush=True)\n"
)
_TIMEOUT_S = 30


def probe_ranks(mpi: MpiInstallation, ranks: int = 2) -> list[tuple[int, int]] | str:
    """(rank, size) of each rank, or in one sentence why they could not be started."""
    folders = PrivateFolders()
    launch = folders.launch(0)
    try:
        request = LaunchRequest(
            ranks=ranks,
            command=[sys.executable, "-c", _PROGRAM],
            env={**worker_environment(launch), **library_environment(mpi, launch.temporary)},
            folders=launch,
        )
        launcher = launcher_for(mpi)
        environment = {**package_environment(), **launcher.environment(request), **request.env}
        try:
            done = subprocess.run(launcher.command(request), capture_output=True, text=True, errors="replace",
                                  timeout=_TIMEOUT_S, check=False, env=environment, stdin=subprocess.DEVNULL,
                                  cwd=launch.temporary, start_new_session=True)  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{ranks} ranks did not come together within {_TIMEOUT_S} s under {mpi.name}"
        except OSError as error:
            return f"{mpi.launcher} cannot be started: {error.strerror}"
        # A launcher may put the ranks' output into one line.
        seen = re.findall(r"LINKGAUGE \[(\d+), (\d+)\]", done.stdout)
        if done.returncode != 0 or not seen:
            said = last_words((done.stderr or done.stdout).splitlines())
            return f"{mpi.launcher} ended with {done.returncode}: {said or 'it said nothing'}"
        return sorted((int(rank), int(size)) for rank, size in seen)
    finally:
        processes.end_marked(launch.token)
        folders.close()
