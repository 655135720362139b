"""Lines between a measured launch and loads that are launches of their own, by TCP over the parent.

Not by MPI: they are two libraries. The first rank of the measured job has a line to each such load, and the load's
first rank has its end of it. Both connect to the parent, which passes on what either says: numbers of 8 bytes,
little-endian, as core/measure/load.h has them, and after a load's `OVER` how it went on, as JSON, to the connection's
end. When an end is gone, the parent says `OVER` in its place. The core speaks by the socket itself; nothing here runs
beside it.

A connection begins with the run's token, the case_key, the load's number and the end (run/wire/door.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.model.shape import each, label, number, parsed, table
from linkgauge.run.wire.door import Door, say_hello
from linkgauge.run.wire.node_beats import addresses_for, connected, new_server
from linkgauge.run.wire.spec import WorkerSpec, job_ranks

OVER = (1 << 63) - 1
MEASURED, LOAD = 0, 1  # the ends
_NUMBER = struct.Struct("<q")
_REST_S = 60.0  # a load has said how it went on by then, or it is ended
_PIECE = 1 << 16
_ROWS = each(table({"subject": label, "value": number()}, needed=("subject", "value")))
_LOOPBACK = "127.0.0.1"
Key = tuple[str, int]  # of a line: case_key, number of the load


@dataclasses.dataclass
class _Line:
    """What is known of a line at the parent: both ends, and the last number that each has said."""

    ends: list[socket.socket | None] = dataclasses.field(default_factory=lambda: [None, None])
    said: list[int] = dataclasses.field(default_factory=lambda: [-1, -1])
    whole: threading.Event = dataclasses.field(default_factory=threading.Event)  # both ends are there


class LoadLines:
    """The parent's part. Opened before the launches start; `close` ends all connections."""

    def __init__(self, hosts: Iterable[str], token: str) -> None:
        """Listen, for ranks on this machine or on `hosts`. OSError where no port can be had."""
        named = list(hosts)
        self._server = server = new_server("" if named else _LOOPBACK)
        self.place: dict[str, Any] = {
            "addresses": addresses_for(named) if named else [_LOOPBACK],
            "port": int(server.getsockname()[1]),
        }
        self._closed = False
        self._lock = threading.Lock()
        self._lines: dict[Key, _Line] = {}
        threading.Thread(target=self._accept, args=(Door(server, token),), name="load lines", daemon=True).start()

    def waits_for_load(self, key: Key) -> bool:
        """Whether the measured job is there and the load is not, or has not answered yet what it was told."""
        line = self._line(key)
        return line.said[LOAD] < line.said[MEASURED] or (line.ends[MEASURED] is not None and line.ends[LOAD] is None)

    def may_rest(self, key: Key) -> bool:
        """Whether nothing is asked of the load now: not yet anything, or that it rests."""
        said = self._line(key).said
        return said[MEASURED] < 0 or (said[MEASURED] % 2 == 1 and said[LOAD] >= said[MEASURED] != OVER)

    def end(self, key: Key, end: int) -> None:
        """The launch of that end is over: if it never connected, that is said for it."""
        ours, gone = socket.socketpair()
        gone.close()
        threading.Thread(target=self._serve_end, args=(key, end, ours), name="load line", daemon=True).start()

    def close(self) -> None:
        """End everything."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        with self._lock:
            for line in self._lines.values():
                for link in line.ends:
                    if link is not None:
                        with contextlib.suppress(OSError):
                            link.shutdown(socket.SHUT_RDWR)
                line.whole.set()

    def _line(self, key: Key) -> _Line:
        with self._lock:
            return self._lines.setdefault(key, _Line())

    def _accept(self, door: Door) -> None:
        while not self._closed:
            door.wait(_REST_S)
            for caller in door.look():
                key, end = _said_end(caller.said)
                try:
                    threading.Thread(
                        target=self._serve, args=(key, end, caller.link), name="load line", daemon=True
                    ).start()
                except RuntimeError:  # no thread can be had
                    caller.link.close()
        door.close()

    def _serve(self, key: Key, end: int, link: socket.socket) -> None:
        link.setblocking(True)
        _undelayed(link)
        self._serve_end(key, end, link)

    def _serve_end(self, key: Key, end: int, link: socket.socket) -> None:
        """Make a connection the end of its line, which has none yet, and pass on what it says; then it is closed."""
        with link:
            line = self._line(key)
            with self._lock:
                if line.ends[end] is not None:
                    return
                line.ends[end] = link
                if None not in line.ends:
                    line.whole.set()
            _pass_on(line, end)


def _said_end(said: Sequence[Any]) -> tuple[Key, int]:
    """Which end a rank says to be: one that no line has, where another version says it otherwise."""
    key, number, end = said if len(said) == 3 else ("", 0, MEASURED)
    return (str(key), number if type(number) is int else 0), LOAD if end == LOAD else MEASURED


def _pass_on(line: _Line, end: int) -> None:
    """Pass on what an end says until it is gone."""
    line.whole.wait()
    link, other = line.ends[end], line.ends[1 - end]
    if link is None or other is None:
        return  # closed before both had come
    held = b""
    while True:
        try:
            piece = link.recv(_PIECE)
        except OSError:
            piece = b""
        if not piece:
            break
        if line.said[end] != OVER:
            held += piece
            while len(held) >= _NUMBER.size and line.said[end] != OVER:
                line.said[end] = _NUMBER.unpack_from(held)[0]
                held = held[_NUMBER.size :]
        with contextlib.suppress(OSError):  # of an end that is gone: what it has said is passed on all the same
            other.sendall(piece)
    with contextlib.suppress(OSError):
        if line.said[end] != OVER:
            line.said[end] = OVER
            other.sendall(_NUMBER.pack(OVER))
        other.shutdown(socket.SHUT_WR)


class Lines:
    """A rank's part of a case: its ends of the lines, as the core takes them. A job's first rank alone has some."""

    def __init__(self, spec: WorkerSpec, case: Case, rank: int) -> None:
        """Connect where this rank is one to do so. A load waits here until the measured job wants it."""
        self._sockets: list[socket.socket] = []
        self._numbers: list[int] = []
        self._pace: dict[str, Any] = {}
        if spec.load:
            self._pace, self._numbers, key, end = spec.load["pace"], [spec.load["number"]], spec.load["case_key"], LOAD
        else:
            self._numbers, key, end = [number for number, _ in case.background.own_launches], case.case_key, MEASURED
        if self._numbers and rank == job_ranks(case, spec.devices)[0][0]:
            self._sockets = [_connected(spec.lines, spec.token, key, number, end) for number in self._numbers]
            if self._pace:
                self._sockets[0].recv(_NUMBER.size, socket.MSG_PEEK | socket.MSG_WAITALL)

    def fields(self) -> dict[str, Any]:
        """What of the lines the core's case has."""
        if not self._numbers:
            return {}
        ends = [link.fileno() for link in self._sockets] or [-1] * len(self._numbers)
        return {"lines": ends, **({"pace": self._pace} if self._pace else {})}

    def tell(self, rows: Sequence[dict[str, Any]]) -> None:
        """A load's last words: how it went on, as observations."""
        for link in self._sockets:
            with contextlib.suppress(OSError):
                link.sendall(_NUMBER.pack(OVER) + json.dumps(rows).encode())

    def told(self) -> list[dict[str, Any]]:
        """What loads say at last, as observations; waits for it. None of one that is gone."""
        rows: list[dict[str, Any]] = []
        for link in self._sockets:
            link.settimeout(_REST_S)
            with contextlib.suppress(OSError, UsageError):
                rows += parsed(_last_words(link), _ROWS, "a load's last words")
        return rows

    def close(self) -> None:
        """Close the connections."""
        for link in self._sockets:
            link.close()


def _last_words(link: socket.socket) -> bytes:
    """What comes after the load's `OVER`, to the end; of what came before the core has read some."""
    said = bytearray()
    while piece := link.recv(_PIECE):
        said += piece
    for at in range(0, len(said) - _NUMBER.size + 1, _NUMBER.size):
        if _NUMBER.unpack_from(said, at)[0] == OVER:
            return bytes(said[at + _NUMBER.size :])
    return b"[]"


def _connected(place: dict[str, Any], token: str, key: str, number: int, end: int) -> socket.socket:
    """A connection to the parent; where none is to be had one whose other end is gone, which ends the case in words."""
    try:
        link = connected(place["addresses"], place["port"])
        link.settimeout(None)
        _undelayed(link)
        say_hello(link, token, key, number, end)
    except OSError:
        link, gone = socket.socketpair()
        gone.close()
    return link


def _undelayed(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
