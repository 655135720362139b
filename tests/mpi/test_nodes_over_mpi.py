"""Groups across nodes meet over every MPI library of the machine, without the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkgauge.run.machine.installation import MpiInstallation
from mpi.conftest import RunProgram
from thorough import most, thorough

PROGRAM = Path(__file__).with_name("nodes_program.py")
# Messages that come with a meeting's first rounds and such that do not, and some that no library sends at once.
SIZES = [[0] * 5, [1, 248, 0, 249, 7], [3, 1_000_000, 0, 70_000, 5]]
APART = pytest.param([0, 1, 2], marks=thorough("one of five has a node of its own as well"))


@pytest.mark.parametrize("nodes", most([[7, 3, 7, 3, 5], APART], [[7, 3, 7, 3, 5]]))
def test_ranks_of_several_nodes_meet_and_learn_who_failed(
    mpi: MpiInstallation, run_program: RunProgram, nodes: list[int]
) -> None:
    ranks = len(nodes)
    failing = [0, ranks - 1]  # a node's first rank, and one that is alone on its node
    answer = run_program(mpi, ranks, PROGRAM, {"abi": mpi.abi, "nodes": nodes, "sizes": SIZES, "failing": failing})
    exchanged = [[[size, size] for size in sizes[:ranks]] for sizes in SIZES]
    for rank, groups in enumerate(answer):
        for failed, found in zip(failing, groups, strict=True):
            assert found["votes"] == [True] + [False] * ranks
            assert found["largest"] == [ranks - 11, 2**62 + ranks - 1, -(2**63)]
            assert found["exchanged"] == exchanged
            assert found["failure"] == ("" if rank == failed else f"rank {failed} failed: the cable is out")
