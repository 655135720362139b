"""One rank of meetings over MPI, on nodes that are only said to be apart: tests/mpi/test_nodes_over_mpi.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mpi4py

mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402

from linkgauge import _core  # noqa: E402
from linkgauge.run.rank.session import open_mpi  # noqa: E402


def met(group: Any, sizes: list[list[int]]) -> dict[str, Any]:
    """What this rank found at every kind of meeting."""
    rank = group.rank
    for sleep in (False, True):
        for _ in range(20):
            group.barrier(sleep=sleep)
    votes = [group.agree(rank != refuser) for refuser in range(-1, group.size)]
    largest = [group.largest(number) for number in (rank - 10, 2**62 + rank, -(2**63))]
    exchanged = []
    for each in sizes:
        all_bytes = group.exchange(bytes([rank + 1]) * each[rank])
        exchanged.append([[len(one), one.count(bytes([other + 1]))] for other, one in enumerate(all_bytes)])
    return {"votes": votes, "largest": largest, "exchanged": exchanged}


def failed(group: Any, failing: int) -> str:
    """The words with which this rank learns that another has failed."""
    if group.rank == failing:
        group.abort_with("the cable is out")
        return ""
    try:
        group.barrier()
    except _core.PeerError as error:
        return str(error)
    return "nothing"


def main() -> None:
    """Meet as the request says, then let one rank fail; rank 0 answers what all ranks found."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    world = MPI.COMM_WORLD
    mpi = open_mpi(_core, asked["abi"])
    found = []
    for number, failing in enumerate(asked["failing"]):
        group = _core.process_group(world.rank, asked["nodes"], f"{asked['segment']}{number}", mpi)
        found.append({**met(group, asked["sizes"]), "failure": failed(group, failing)})
    everything = world.gather(found)
    if everything is not None:
        Path(asked["answer"]).write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
