"""What a meeting of ranks on several nodes costs, and how that compares with the same call by mpi4py.

    mpiexec -n 4 python bench/meetings.py --mpi PREFIX [--ranks 1] [--rounds 20]

Each `--ranks` ranks pretend to be a node. Blocks of meetings alternate with blocks of what each node's first rank would
call by mpi4py for one barrier between nodes. The ratio is that of the medians of the blocks, with all blocks as JSON.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

import mpi4py  # noqa: E402

from linkgauge import _core as core  # noqa: E402
from linkgauge.run.parent.mpi_library import resolve  # noqa: E402
from linkgauge.run.rank.session import open_mpi  # noqa: E402

MEETINGS: dict[str, Callable[[Any], object]] = {
    "barrier": lambda group: group.barrier(),
    "agree": lambda group: group.agree(True),
    "exchange of 16 B": lambda group: group.exchange(bytes(16)),
    # What ucx, ofi and nixl tell each other of their addresses, once a case: some hundred bytes a rank.
    "exchange of 512 B": lambda group: group.exchange(bytes(512)),
}


def block_us(call: Callable[[], object], times: int) -> float:
    """What one call takes in a block of so many."""
    begin = time.perf_counter_ns()
    for _ in range(times):
        call()
    return (time.perf_counter_ns() - begin) / times / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mpi", required=True, help="prefix of the MPI installation whose mpiexec starts this")
    parser.add_argument("--ranks", type=int, default=1, help="of each node")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--times", type=int, default=200, help="meetings of a block")
    asked = parser.parse_args()
    installation = resolve(asked.mpi)
    os.environ["MPI4PY_LIBMPI"] = str(installation.library)
    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    node_of = [rank // asked.ranks for rank in range(world.size)]
    folder = world.bcast(tempfile.mkdtemp(prefix="linkgauge-bench-") if world.rank == 0 else None)
    group = core.process_group(world.rank, node_of, f"{folder}/segment", open_mpi(core, installation.abi))
    leads = world.rank % asked.ranks == 0
    leaders = world.Split(0 if leads else MPI.UNDEFINED, world.rank)

    def by_mpi4py() -> None:
        found = array.array("q", [0, 0])
        leaders.Iallreduce(MPI.IN_PLACE, found, MPI.MAX).Wait()

    for name, meet in MEETINGS.items():
        blocks: dict[str, list[float]] = {"core": [], "mpi4py": []}
        for _ in range(asked.rounds):
            world.Barrier()
            blocks["core"].append(block_us(lambda meet=meet: meet(group), asked.times))  # type: ignore[misc]
            world.Barrier()
            if leads:
                blocks["mpi4py"].append(block_us(by_mpi4py, asked.times))
        if world.rank == 0:
            medians = {by: statistics.median(each) for by, each in blocks.items()}
            facts = {"meeting": name, "ranks": world.size, "nodes": node_of[-1] + 1, "mpi": installation.name}
            ratio = medians["core"] / medians["mpi4py"]
            print(json.dumps({**facts, "median_us": medians, "ratio": ratio, "blocks_us": blocks}), flush=True)
    world.Barrier()
    if world.rank == 0:
        Path(folder).rmdir()


if __name__ == "__main__":
    main()
