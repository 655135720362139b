"""A container in a batch system's job has the job's variables and often no program that starts ranks by them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from linkgauge.run.machine.environment import usable_environment
from linkgauge.run.parent import mpi_library
from linkgauge.run.parent.rank_words import words_of_ranks
from patience import PATIENCE_S
from thorough import most

JOBS: list[tuple[dict[str, str], str]] = [
    ({"SLURM_JOB_ID": "12", "SLURM_NNODES": "1", "SLURM_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "8"}, "srun"),
    ({"PBS_JOBID": "7", "PBS_NODEFILE": "NODES"}, "pbsdsh"),
    ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n1 8", "LSF_ENVDIR": "/etc"}, "blaunch"),
    ({"PE_HOSTFILE": "NODES", "SGE_TASK_ID": "1"}, "qrsh"),
    ({"FLUX_URI": "local:///x"}, "flux"),
]


@pytest.mark.parametrize(("variables", "program"), JOBS)
def test_a_jobs_variables_are_kept_from_launchers_where_nothing_here_starts_ranks_by_them(
    variables: dict[str, str], program: str, tmp_path: Path
) -> None:
    (tmp_path / "nodes").write_text("n1\n")
    of_job = {name: value.replace("NODES", str(tmp_path / "nodes")) for name, value in variables.items()}
    others = {"PATH": str(tmp_path), "HOME": "/root", "OMP_NUM_THREADS": "2"}
    assert usable_environment({**others, **of_job}) == others
    (tmp_path / program).write_text("#!/bin/sh\n")
    (tmp_path / program).chmod(0o755)
    assert usable_environment({**others, **of_job}) == {**others, **of_job}
    (tmp_path / "nodes").unlink()  # a container sees no folder of the batch system's
    kept = {} if "NODES" in variables.values() else of_job
    assert usable_environment({**others, **of_job}) == {**others, **kept}


@pytest.mark.parametrize("variables", [variables for variables, _ in most(JOBS, JOBS[:1])])
def test_ranks_start_on_this_node_where_only_a_jobs_variables_are(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under every MPI library that is here, without any batch system's program: none waits for one."""
    mpis = [one for one in mpi_library.find_all() if not one.problem]
    for program in ("python3", "sh", "cat", "ldd"):
        (tmp_path / program).symlink_to(shutil.which(program) or "/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("NODES", str(tmp_path / "nodes")))
    command = [sys.executable, "-c", "from linkgauge.run.parent.rank_words import say; say(1)"]
    for mpi in mpis:
        assert words_of_ranks(mpi, 2, command, timeout_s=PATIENCE_S) == [1, 1], mpi.name
