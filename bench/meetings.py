"""What ranks on many nodes tell each other at the meetings of a case, and what a meeting costs a rank.

    python bench/meetings.py [--nodes 128] [--ranks 8]

Ranks are threads of this process, in the core's own groups; nodes' first ranks meet in its memory, where what each
node is given is counted: bytes for everyone in an exchange, two numbers however many nodes there are in the rest. The
time is the whole process' processor time over the number of ranks: what a rank of its own core adds to a case at most.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from linkgauge import _core as core  # noqa: E402

ROUNDS = 20
# Of a usual case of mpi between nodes, outside of its samples (session.cpp, buffered_operation.cpp, sampler.cpp).
MEETINGS: dict[str, tuple[int, Callable[[Any], object]]] = {
    "barrier": (9, lambda group: group.barrier(sleep=True)),
    "agree": (8, lambda group: group.agree(True)),
    "largest": (3, lambda group: group.largest(7)),
    "exchange of 16 B": (0, lambda group: group.exchange(bytes(16))),
    # What ucx, ofi and nixl tell each other of their addresses, once a case: some hundred bytes a rank.
    "exchange of 512 B": (0, lambda group: group.exchange(bytes(512))),
}


class Between:
    """The meetings of the nodes' first ranks."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._meeting = nodes, threading.Barrier(nodes)
        self._said: dict[int, Any] = {}
        self.given = 0  # bytes that one node is given, in all

    def _meet(self, rank: int, mine: Any, ranks: list[int]) -> list[Any]:
        self._said[rank] = mine
        self._meeting.wait()
        said = [self._said[one] for one in ranks]
        self._meeting.wait()
        return said

    def of(self, rank: int) -> tuple[Any, Any]:
        def exchange(mine: bytes, ranks: list[int]) -> list[bytes]:
            said = self._meet(rank, mine, ranks)
            if rank == 0:
                self.given += sum(256 * math.ceil((len(one) + 8) / 256) for one in said)  # run/rank/session.py's frames
            return said

        def largest(mine: list[int], ranks: list[int], asleep: bool) -> list[int]:
            if rank == 0:
                self.given += 8 * len(mine) * math.ceil(math.log2(self._nodes))  # along a tree
            return [max(column) for column in zip(*self._meet(rank, mine, ranks), strict=True)]

        return exchange, largest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=8, help="of each node")
    asked = parser.parse_args()
    count = asked.nodes * asked.ranks
    node_of = [rank // asked.ranks for rank in range(count)]
    between = Between(asked.nodes)
    together = threading.Barrier(count + 1)

    def play(rank: int, folder: str) -> None:
        group = core.process_group(rank, node_of, f"{folder}/segment", *between.of(rank))
        for _, meet in MEETINGS.values():
            together.wait()
            for _ in range(ROUNDS):
                meet(group)
            together.wait()

    with tempfile.TemporaryDirectory() as folder:
        threading.stack_size(1 << 18)
        threads = [threading.Thread(target=play, args=(rank, folder)) for rank in range(count)]
        for thread in threads:
            thread.start()
        per_case_ms = per_case_bytes = 0.0
        for name, (times, _) in MEETINGS.items():
            together.wait()
            before, given = time.process_time(), between.given
            together.wait()
            each_ms = 1000 * (time.process_time() - before) / ROUNDS / count
            each_bytes = (between.given - given) / ROUNDS
            per_case_ms += times * each_ms
            per_case_bytes += times * each_bytes
            print(json.dumps({"meeting": name, "ranks": count, "nodes": asked.nodes, "processor_ms_a_rank": each_ms,
                              "bytes_a_node": each_bytes}), flush=True)  # fmt: skip
        for thread in threads:
            thread.join()
    print(json.dumps({"case": "mpi", "ranks": count, "processor_ms_a_rank": per_case_ms,
                      "bytes_a_node": per_case_bytes}))  # fmt: skip


if __name__ == "__main__":
    main()
