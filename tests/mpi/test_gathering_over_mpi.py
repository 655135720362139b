"""Bytes come to rank 0 over every MPI library of the machine, in messages of bounded length."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from linkgauge.run.machine.installation import MpiInstallation
from mpi.conftest import RunProgram
from thorough import most, thorough

PROGRAM = Path(__file__).with_name("gather_program.py")
WINDOW = 100_000
APART = pytest.param([0, 1, 2, 3], marks=thorough("one of five has a node of its own as well"))


@pytest.mark.parametrize("nodes", most([[0], [7, 3, 7, 3, 5], APART], [[7, 3, 7, 3, 5]]))
def test_bytes_come_up_in_the_order_of_the_nodes(
    mpi: MpiInstallation, run_program: RunProgram, nodes: list[int]
) -> None:
    ranks = len(nodes)
    sizes = [[0] * ranks, [0, 250_000, 3, 1_000_000, 99_999][:ranks], [150_000] * ranks]
    answer = run_program(mpi, ranks, PROGRAM, {"nodes": nodes, "window": WINDOW, "sizes": sizes})
    numbers = [list(dict.fromkeys(nodes)).index(node) for node in nodes]
    order = sorted(range(ranks), key=lambda rank: (numbers[rank], rank))
    assert answer["nodes"] == numbers
    assert answer["words"]
    assert answer["longest"] <= WINDOW
    for found, of in zip(answer["digests"], sizes, strict=True):
        expected = b"".join(bytes([rank + 1]) * of[rank] for rank in order)
        assert found == hashlib.sha256(expected).hexdigest()
