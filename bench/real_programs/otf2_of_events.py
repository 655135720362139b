"""The events of bench/real_programs/pmpi.c as an OTF2 trace, as Score-P would have written it.

    python otf2_of_events.py FOLDER TRACE

FOLDER has a rank-N.txt of each rank; TRACE is a folder to make, whose anchor file is traces.otf2. Needs `otf2`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Line(NamedTuple):
    """What pmpi.c writes of an event: kind, ns, the call, and numbers that the kind gives meaning.

    E, L: a call begins, ends. G: a member of a communicator, a rank of all. s, v: a message goes, has come; i, c: one
    is begun, is over; q, r: one is expected, has come. k: a collective; n, m: one is begun, is over.
    """

    kind: str
    ns: int
    name: str
    peer: int
    comm: int
    sent: int
    received: int
    request: int


class Rank(NamedTuple):
    """A rank's time from MPI_Init to MPI_Finalize and how much of it in MPI, in ns; its calls; and its events."""

    ns: int
    in_mpi_ns: int
    calls: int
    ranks: int
    lines: Sequence[Line]


def read_rank(path: Path) -> Rank:
    """One rank's file."""
    first, *rest = path.read_text().splitlines()
    begin, end, in_mpi, calls, ranks = map(int, first.split()[1:])
    lines = []
    for text in rest:
        kind, ns, name, *numbers = text.split()
        lines.append(Line(kind, int(ns), name, *map(int, numbers)))
    return Rank(end - begin, in_mpi, calls, ranks, lines)


def read_ranks(folder: Path) -> list[Rank]:
    """Those of a folder, in the order of ranks."""
    count = len(list(folder.glob("rank-*.txt")))
    return [read_rank(folder / f"rank-{number}.txt") for number in range(count)]


def write(ranks: Sequence[Rank], folder: Path) -> Path:
    """Make the trace; its anchor file."""
    otf2, kinds = importlib.import_module("otf2"), importlib.import_module("otf2.enums")
    mpi = {"paradigm": kinds.Paradigm.MPI}
    with otf2.writer.open(str(folder), timer_resolution=1_000_000_000) as archive:
        named = archive.definitions
        tree = named.system_tree_node("node")
        groups = [named.location_group(f"rank {rank}", system_tree_parent=tree) for rank in range(len(ranks))]
        places = [named.location("main", group=group) for group in groups]
        named.group("ranks", group_type=kinds.GroupType.COMM_LOCATIONS, members=places, **mpi)
        regions = {name: named.region(name, **mpi) for rank in ranks for name in {one.name for one in rank.lines}}
        comms: dict[tuple[int, ...], Any] = {}

        def comm_of(members: tuple[int, ...]) -> Any:
            if members not in comms:
                group = named.group(f"group {len(comms)}", group_type=kinds.GroupType.COMM_GROUP,
                                    members=[places[one] for one in members], **mpi)  # fmt: skip
                comms[members] = named.comm(f"comm {len(comms)}", group=group)
            return comms[members]

        for rank, place in zip(ranks, places, strict=True):
            writer = archive.event_writer_from_location(place)
            members: dict[int, list[int]] = {}
            for one in rank.lines:
                if one.kind == "G":
                    members.setdefault(one.comm, []).append(one.peer)
                    continue
                comm = comm_of(tuple(members[one.comm])) if one.kind not in "ELcqn" else None
                message = {"communicator": comm, "msg_tag": 0}
                if one.kind == "E":
                    writer.enter(one.ns, regions[one.name])
                elif one.kind == "L":
                    writer.leave(one.ns, regions[one.name])
                elif one.kind == "s":
                    writer.mpi_send(one.ns, receiver=one.peer, msg_length=one.sent, **message)
                elif one.kind == "v":
                    writer.mpi_recv(one.ns, sender=one.peer, msg_length=one.received, **message)
                elif one.kind == "i":
                    writer.mpi_isend(one.ns, receiver=one.peer, msg_length=one.sent, request_id=one.request, **message)
                elif one.kind == "c":
                    writer.mpi_isend_complete(one.ns, request_id=one.request)
                elif one.kind == "q":
                    writer.mpi_irecv_request(one.ns, request_id=one.request)
                elif one.kind == "r":
                    writer.mpi_irecv(one.ns, sender=one.peer, msg_length=one.received, request_id=one.request,
                                     **message)  # fmt: skip
                elif one.kind == "n":
                    writer.non_blocking_collective_request(one.ns, request_id=one.request)
                else:
                    op = getattr(kinds.CollectiveOp, one.name.removeprefix("MPI_").removeprefix("I").upper())
                    told = {"collective_op": op, "communicator": comm, "root": one.peer, "size_sent": one.sent,
                            "size_received": one.received}  # fmt: skip
                    if one.kind == "k":
                        writer.mpi_collective_begin(one.ns)
                        writer.mpi_collective_end(one.ns, **told)
                    else:
                        writer.non_blocking_collective_complete(one.ns, request_id=one.request, **told)
    return folder / "traces.otf2"


if __name__ == "__main__":
    print(write(read_ranks(Path(sys.argv[1])), Path(sys.argv[2])))
