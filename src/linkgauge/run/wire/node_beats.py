"""Heartbeats of ranks on other nodes: the first rank of each tells the parent of its node's counters, by TCP.

Not by MPI, which is what may hang. The parent learns from the launch's record that there are ranks whose counters it
does not map, listens only then, and says where in a file beside the journal, which such ranks can read as they read
their spec there. A report is 48 bytes a rank, four times a second, from a thread that is bound to no core and holds
Python's lock for some 5 us a rank; a rank's timed regions need no lock of Python's. The parent answers each report with
one byte: whether the ranks are to end after the case in hand.

A connection begins with the run's token, which ranks have from the launcher's standard input, and the number of ranks
that each report is of (run/wire/door.py). A report holds for each rank its number and what moves, as little-endian
64-bit words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.model.shape import each, label, parsed, table, whole
from linkgauge.run.machine.interfaces import address_of
from linkgauge.run.wire.door import Door, say_hello
from linkgauge.run.wire.heartbeat import CASE, COUNT, CROSSED, PHASE, STATE, HeartbeatFile

REPORT_EVERY_S = 0.25
_CARDS_EVERY = 4  # reports: reading a card's counters takes some 10 us a port, where some drivers ask the card
_RETRY_S = 2.0
_CONNECT_S = 3.0
_BACKLOG = 4096  # nodes that connect at once; kernels allow as many by default
_OTHER_FILES = 256  # strangers at the door among them
_WORDS = (COUNT, PHASE, CASE, STATE, CROSSED)
_REPORT_WORDS = 1 + len(_WORDS)
_ASKED_HOSTS = 2  # by which ways they are reached: a name that does not resolve may take seconds, and all are alike
_STOP, _GO_ON = b"\1", b"\0"
_PLACE = {"addresses": each(label), "port": whole(1, 65535)}  # where the parent listens


def place_of(journal: Path) -> Path:
    """The file that says where the parent listens, of the launch with that journal."""
    return journal.with_suffix(".beats")


@dataclasses.dataclass
class _Node:
    """One connection. `ranks`: those of its last report."""

    link: socket.socket
    report_bytes: int
    held: bytearray = dataclasses.field(default_factory=bytearray)
    said: tuple[int, ...] = ()  # as it came, and which of them the parent does not map itself
    rows: list[int] = dataclasses.field(default_factory=list)
    ranks: tuple[int, ...] = ()


class NodeBeats:
    """The parent's end. Nothing is opened before `listen`; errors of a connection end it and nothing else."""

    def __init__(self, heartbeat: HeartbeatFile, place: Path, token: str) -> None:
        """Take the parent's own heartbeat file, into which reports go, and make `place` (empty, for the owner alone).

        It is there before any rank looks, since shared folders remember for a while what was not there.
        """
        self._heartbeat, self._place, self._token = heartbeat, place, token
        self._unseen: frozenset[int] = frozenset()
        self._nodes: list[_Node] = []
        self.left: dict[int, float] = {}
        """Ranks that were heard and whose node closed the connection since, by when (time.monotonic), until it is back.

        A process that ends closes it, and a reporter that lives comes back within seconds.
        """
        self.first_left: tuple[int, ...] = ()
        """The ranks of the node that closed its connection first; empty where several did between two looks.

        A launcher ends the other ranks within milliseconds: `closings` is to be waited for between looks.
        """
        self.closings = select.epoll()  # readable where a node has closed its connection
        self._door: Door | None = None
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    def listen(self, hosts: Iterable[str]) -> None:
        """Begin to listen, where ranks have not told their process ids by the file that this process maps.

        To be called once all ranks have met; `hosts` are theirs. Where no port can be had, nobody is heard.
        """
        self._unseen = frozenset(range(self._heartbeat.ranks)) - self._heartbeat.known()
        if not self._unseen:
            return
        _make_room(len(self._unseen))
        with contextlib.suppress(OSError):
            server = new_server()
            self._door = Door(server, self._token)
            told = {"addresses": addresses_for(hosts), "port": int(server.getsockname()[1])}
            self._place.write_text(json.dumps(told) + "\n")  # the line's end says that it is whole

    @property
    def unheard(self) -> frozenset[int]:
        """Ranks of whose heartbeats nothing is known now: on other nodes, and not heard of over an open connection."""
        return self._unseen.difference(*(node.ranks for node in self._nodes))

    def look(self) -> None:
        """Take in what has come since the last look; never waits."""
        if self._door is None:
            return
        for caller in self._door.look():
            ranks = caller.said[0] if len(caller.said) == 1 else None
            if type(ranks) is int and 0 < ranks <= self._heartbeat.ranks:
                self._nodes.append(_Node(caller.link, 8 * _REPORT_WORDS * ranks))
                self.closings.register(caller.link, select.EPOLLRDHUP)
            else:
                caller.link.close()
        closed = []
        for node in tuple(self._nodes):
            try:
                alive = self._take(node)
            except OSError:
                alive = False
            if not alive:
                node.link.close()
                self._nodes.remove(node)
                closed.append(node.ranks)
        if len(closed) == 1 and not self.left:
            self.first_left = closed[0]
        self.left |= dict.fromkeys(itertools.chain(*closed), time.monotonic())

    def _take(self, node: _Node) -> bool:
        """Read what has come on a connection; whether it goes on."""
        while True:
            try:
                more = node.link.recv(1 << 16)
            except BlockingIOError:
                return True
            if not more:
                return False
            node.held += more
            whole = len(node.held) // node.report_bytes * node.report_bytes
            if whole:
                last = np.frombuffer(bytes(node.held[whole - node.report_bytes : whole]), dtype="<u8")
                del node.held[:whole]
                self._report(node, last.reshape(-1, _REPORT_WORDS))
                node.link.send(_STOP if self._heartbeat.stop_requested else _GO_ON)

    def _report(self, node: _Node, report: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> None:
        if tuple(report[:, 0].tolist()) != node.said:  # seldom: a node speaks of the same ranks each time
            node.said = tuple(report[:, 0].tolist())
            node.rows = [row for row, rank in enumerate(node.said) if rank in self._unseen]
            node.ranks = tuple(node.said[row] for row in node.rows)
            self.left = {rank: since for rank, since in self.left.items() if rank not in node.ranks}
            self.first_left = () if set(node.ranks) & set(self.first_left) else self.first_left
        if node.ranks:
            self._heartbeat.words()[np.ix_(node.ranks, _WORDS)] = report[node.rows, 1:]

    def close(self) -> None:
        """Close all, and remove the file."""
        for node in self._nodes:
            node.link.close()
        self._nodes.clear()
        self.closings.close()
        if self._door is not None:
            self._door.close()
            self._door = None
        with contextlib.suppress(OSError):  # of a folder that vanished or became read-only
            self._place.unlink(missing_ok=True)


def _make_room(connections: int) -> None:
    """Let this process open so many files more, as far as it may: 1,024 in all, as is usual, are fewer than nodes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def new_server(address: str = "") -> socket.socket:
    """A socket that listens at a port of the kernel's choice, at one of this machine's addresses or at all of them."""
    dual = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)


def addresses_for(hosts: Iterable[str]) -> list[str]:
    """This machine's addresses, those first from which the hosts are reached; loopback only where there is no other."""
    found: list[str] = []
    for host in itertools.islice(dict.fromkeys(hosts), _ASKED_HOSTS):
        with contextlib.suppress(OSError):
            family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as asked:
                asked.connect(address)  # sends nothing: the kernel only chooses the way
                found.append(str(asked.getsockname()[0]))
    found += filter(None, (address_of(name) for _, name in socket.if_nameindex()))
    outward = [address for address in found if not address.startswith(("127.", "::1"))]
    return list(dict.fromkeys(outward or found))


class BeatReporter(threading.Thread):
    """A node's end: tells the parent of its ranks' counters until the process ends. Errors only delay it."""

    def __init__(
        self,
        place: Path,
        heartbeat: HeartbeatFile,
        ranks: Sequence[int],
        token: str,
        crossed: Callable[[], int] = lambda: 0,
    ) -> None:
        """`place` and `token` as the parent made them, `heartbeat` this node's own file, `ranks` those on this node.

        `crossed`: bytes that this node's network cards have sent and received.
        """
        super().__init__(name="heartbeats", daemon=True)
        self._place, self._heartbeat, self._ranks, self._crossed = place, heartbeat, tuple(ranks), crossed
        self._token = token

    def run(self) -> None:
        """Wait until the parent says where it listens, and report; after an error again."""
        while True:
            told = self._told()
            if told:
                with contextlib.suppress(OSError, UsageError):
                    self._report(parsed(told, table(_PLACE, needed=_PLACE), str(self._place)))
            time.sleep(_RETRY_S if told else REPORT_EVERY_S)

    def _told(self) -> str:
        try:
            text = self._place.read_text()
        except OSError:
            return ""
        return text if text.endswith("\n") else ""

    def _report(self, told: dict[str, Any]) -> None:
        with connected(told["addresses"], told["port"]) as link:
            link.settimeout(_CONNECT_S)
            say_hello(link, self._token, len(self._ranks))
            for number in itertools.count():
                if number % _CARDS_EVERY == 0:
                    crossed = self._crossed()
                    for rank in self._ranks:
                        self._heartbeat.set_word(rank, CROSSED, crossed)
                words = [[rank, *(self._heartbeat.word(rank, which) for which in _WORDS)] for rank in self._ranks]
                link.sendall(np.array(words, dtype="<u8").tobytes())
                time.sleep(REPORT_EVERY_S)
                with contextlib.suppress(BlockingIOError):
                    answer = link.recv(64, socket.MSG_DONTWAIT)
                    if not answer:
                        return
                    if _STOP in answer:
                        self._heartbeat.request_stop()


def connected(addresses: Sequence[str], port: int) -> socket.socket:
    """A connection to the first of the parent's addresses that answers; ConnectionRefusedError where none does."""
    for address in addresses:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), timeout=_CONNECT_S)
    raise ConnectionRefusedError(f"no connection to port {port} of {', '.join(addresses)}")
