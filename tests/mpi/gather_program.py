"""One rank of a gathering over MPI, on nodes that are only said to be apart: tests/mpi/test_gathering_over_mpi.py."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import mpi4py

mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402

from linkgauge import _core  # noqa: E402
from linkgauge.run.rank import gathering, session  # noqa: E402


def main() -> None:
    """Gather what the request says, twice, and let rank 0 answer what came."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    gathering.WINDOW_BYTES = asked["window"]
    session.node_name = lambda: f"node {asked['nodes'][rank]}"
    nodes = session.node_numbers(world)
    beside = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    segment = f"{asked['segment']}{nodes[rank]}"
    group = _core.process_group(beside.index(rank), [0] * len(beside), segment)
    ranks = gathering.Ranks(group, session._link_over(world, nodes) if max(nodes) else None)
    word = ranks.tell(b"word" * 1000 if rank == 0 else b"")
    longest = 0
    digests = []
    for sizes in asked["sizes"]:
        digest = hashlib.sha256()

        def take(piece: bytes, digest: hashlib._Hash = digest) -> None:
            nonlocal longest
            longest = max(longest, len(piece))
            digest.update(piece)

        ranks.gather(bytes([rank + 1]) * sizes[rank], take if rank == 0 else None)
        digests.append(digest.hexdigest())
    said = ranks.tell(b"end" if rank == 0 else b"")
    right = world.gather(word == b"word" * 1000 and said == b"end")
    if rank == 0:
        answer = {"nodes": nodes, "digests": digests, "longest": longest, "words": all(right)}
        Path(asked["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
