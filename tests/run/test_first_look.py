"""The look at nodes by a batch system's steps: what a node answers counts; what none answers is left to the launch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from linkgauge.run.launchers.base import NodeShell
from linkgauge.run.parent import first_look
from linkgauge.run.parent.mpi_library import default_installation

STEP = """#!/bin/sh
case "$1" in
    --nodelist=refused) echo "srun: error: Unable to create step" >&2; exit 1;;
esac
shift
exec "$@"
"""


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is called as srun is, for a job of this machine alone: its nodes do not try to reach others."""
    monkeypatch.setenv("MPIR_CVAR_CH4_OFI_PORT_RANGE", "1:2")
    path = tmp_path / "srun"
    path.write_text(STEP)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("of_job", [True, False])
def test_a_node_whose_step_is_refused_is_left_to_the_launcher_and_one_behind_ssh_is_not(
    step: Path, of_job: bool
) -> None:
    shell = NodeShell((str(step),), "--nodelist", of_job=of_job)
    wanted = first_look.expected(default_installation(), os.environ, None)
    found = first_look.look(shell, ["refused", "answers"], wanted)
    assert found["answers"].problems == []
    assert found["refused"].problems == ([] if of_job else ["srun: error: Unable to create step"])


def test_what_a_node_says_of_itself_counts_in_a_job_too(step: Path) -> None:
    wanted = {**first_look.expected(default_installation(), os.environ, None), "files": ["/nonexistent/libmpi.so"]}
    found = first_look.look(NodeShell((str(step),), "--nodelist", of_job=True), ["answers"], wanted)
    assert found["answers"].problems == ["there is no /nonexistent/libmpi.so"]


def test_starters_of_ranks_are_expected_of_nodes_only_where_they_start_them(tmp_path: Path) -> None:
    mpi = default_installation()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hydra_pmi_proxy").touch()
    for kind, count in (("hydra", 2), ("srun", 1)):
        moved = dataclasses.replace(mpi, launcher=tmp_path / "bin" / "mpiexec", launcher_kind=kind)
        assert len(first_look.expected(moved, os.environ, None)["files"]) == count
