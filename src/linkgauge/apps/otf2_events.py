"""What the ranks of MPI do in an OTF2 trace, a line of JSON each: `python otf2_events.py traces.otf2`.

A process of its own without our packages. The first line has the number of ranks. `enter` and `leave` are of MPI's
outermost calls; what is begun by a request is told where that was made, with what its end says of it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

ABSENT, WRONG = 3, 4  # how it ends without the package otf2, and with what is no trace
_MOST_EVENTS = 5_000_000  # each takes a few hundred bytes once it is a step
_MESSAGES = {"MpiSend": "send", "MpiIsend": "send", "MpiRecv": "receive"}
_REQUESTS = {"MpiIrecvRequest": "MpiIrecv", "NonBlockingCollectiveRequest": "NonBlockingCollectiveComplete"}


class _Reader:
    """One trace, read twice: what ends a request says what it was."""

    def __init__(self, otf2: Any, path: str) -> None:
        self._otf2, self._path = otf2, path
        self._members: dict[Any, list[int]] = {}

    def lines(self) -> Iterator[dict[str, Any]]:
        ended: dict[tuple[int, int], list[Any]] = {}
        for _, _, rank, event in self._events():
            if type(event).__name__ in _REQUESTS.values():
                ended.setdefault((rank, event.request_id), []).append(self._told(event))
        depth: dict[int, int] = {}
        first = True
        for count, ns, rank, event in self._events():
            if first:
                yield {"ranks": count}
                first = False
            kind, base = type(event).__name__, {"rank": rank, "ns": ns}
            if kind in ("Enter", "Leave"):
                if event.region.paradigm == self._otf2.Paradigm.MPI:
                    before = depth.get(rank, 0)
                    depth[rank] = before + (1 if kind == "Enter" else -1)
                    if not before or not depth[rank]:
                        yield {**base, "what": kind.lower()}
            elif kind in _REQUESTS:
                if waiting := ended.get((rank, event.request_id)):
                    yield {**base, **waiting.pop(0), "begun": True}
            elif kind in _REQUESTS.values() or kind == "MpiIsendComplete":
                yield {**base, "what": "wait"}
            elif kind in _MESSAGES or kind == "MpiCollectiveEnd":
                yield {**base, **self._told(event), "begun": kind == "MpiIsend"}
        if first:
            raise ValueError("nothing of MPI's ranks in it")

    def _events(self) -> Iterator[tuple[int, int, int, Any]]:
        """How many ranks there are, and of each event of one its time in ns and the rank."""
        otf2 = self._otf2
        with otf2.reader.open(self._path) as trace:
            ranks = {}
            for group in trace.definitions.groups:
                if group.group_type == otf2.GroupType.COMM_LOCATIONS and group.paradigm == otf2.Paradigm.MPI:
                    ranks = {location: rank for rank, location in enumerate(group.members)}
            self._members = {comm: [ranks[one] for one in comm.group.members if one in ranks]
                             for comm in trace.definitions.comms}  # fmt: skip
            to_ns = 1e9 / trace.definitions.clock_properties.timer_resolution
            for number, (location, event) in enumerate(trace.events):
                if number == _MOST_EVENTS:
                    raise ValueError(f"more than {_MOST_EVENTS} events")
                if location in ranks:
                    yield len(ranks), int(event.time * to_ns), ranks[location], event

    def _told(self, event: Any) -> dict[str, Any]:
        members, kind = self._members[event.communicator], type(event).__name__
        if kind in ("MpiSend", "MpiIsend"):
            return {"what": "send", "peer": members[event.receiver], "bytes": event.msg_length}
        if kind in ("MpiRecv", "MpiIrecv"):
            return {"what": "receive", "peer": members[event.sender], "bytes": event.msg_length}
        name = str(event.collective_op).rpartition(".")[2].lower().replace("_", "")
        return {"what": name, "members": members, "root": event.root, "sent": event.size_sent,
                "received": event.size_received}  # fmt: skip


def main() -> None:
    """Print the lines; what is wrong is the last one of standard error."""
    own = sys.path.pop(0)  # this folder: its modules are ours, and none of otf2's
    try:
        otf2 = importlib.import_module("otf2")
    except ImportError:
        sys.exit(ABSENT)
    finally:
        sys.path.insert(0, own)
    try:
        for line in _Reader(otf2, sys.argv[1]).lines():
            print(json.dumps(line))
    except BrokenPipeError:
        pass
    except Exception as error:  # of a C library and a stranger's file: whatever it is, there is no trace
        print(str(error).splitlines()[0] if str(error) else type(error).__name__, file=sys.stderr)
        sys.exit(WRONG)


if __name__ == "__main__":
    main()
