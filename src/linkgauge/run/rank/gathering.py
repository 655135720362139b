"""How the ranks of a launch tell each other: rank 0's word down to all, and all ranks' bytes up to rank 0 alone.

On a node by shared memory, where who waits sleeps (core/group/group.h); between nodes by the first rank of each, along
a binomial tree, so that a rank speaks to no more others than the number of nodes has bits. Node i hears of the nodes
i + 1, i + 2, i + 4, ... as far as its lowest bit, each with those behind it: bytes come up in the order of the nodes.
What is on its way is bounded: a message between nodes holds at most WINDOW_BYTES, and waits until it is taken.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

WINDOW_BYTES = 4 << 20
Take = Callable[[bytes], object]
# A rank with nothing to do takes no core from those that are measured: it sleeps for a sixteenth of what it has waited,
# by which what it waits for comes late, and a millisecond at most.
_POLLS_S, _LONGEST_SLEEP_S, _SLEEP_SHARE = 50e-6, 1e-3, 1 / 16
_LENGTH = struct.Struct("<Q")
_MORE, _LAST = 1, 2  # tags


class OnNode(Protocol):
    """The ranks of one node: linkgauge._core.Group, or what stands in for it."""

    @property
    def rank(self) -> int:
        """This rank's place among them."""

    @property
    def size(self) -> int:
        """How many they are."""

    def exchange(self, mine: bytes) -> list[bytes]:
        """Each one's bytes, by place."""

    def gather(self, mine: bytes, take: Take | None) -> None:
        """All bytes to the first, one rank after the other, in pieces."""


class Link(Protocol):
    """Messages between the first ranks of the nodes, in order between any two. A send may wait for its receiver."""

    number: int  # this node's
    count: int  # of nodes

    def send(self, to: int, data: bytes | bytearray | memoryview, last: bool) -> None:
        """Send at most WINDOW_BYTES, and whether they are the last of their stream."""

    def receive(self, source: int) -> tuple[bytes | bytearray, bool]:
        """What was sent."""


def sleep_until(there: Callable[[], bool]) -> None:
    """Wait for another node: by polls for as long as a message takes, then asleep."""
    since = time.monotonic()
    while not there():
        waited = time.monotonic() - since
        if waited > _POLLS_S:
            time.sleep(min(_LONGEST_SLEEP_S, waited * _SLEEP_SHARE))


class MpiLink:
    """Messages by MPI, over a communicator of the nodes' first ranks that is used for nothing else."""

    def __init__(self, communicator: Any, status: Any) -> None:
        """`communicator`: mpi4py's, ranks in the order of the nodes; `status`: a fresh MPI.Status."""
        self._communicator, self._status = communicator, status
        self.number: int = communicator.Get_rank()
        self.count: int = communicator.Get_size()

    def send(self, to: int, data: bytes | bytearray | memoryview, last: bool) -> None:
        """Send, and wait where it is long and not yet asked for."""
        self._communicator.Send(data, to, _LAST if last else _MORE)

    def receive(self, source: int) -> tuple[bytes | bytearray, bool]:
        """Wait for the next message, asleep where it takes long: MPI's own waits would spin."""
        sleep_until(lambda: self._communicator.Iprobe(source, status=self._status))
        data, tag = bytearray(self._status.count), self._status.tag
        self._communicator.Recv(data, source, tag)
        return data, tag == _LAST


class Ranks:
    """One rank's door to the others of its launch. Every call is collective over the launch."""

    def __init__(self, on_node: OnNode, link: Link | None = None) -> None:
        """`link` is the first rank's of each node; None where there is one node only, or this rank is not the first."""
        self._on_node, self._link = on_node, link

    def on_node(self, mine: bytes) -> list[bytes]:
        """Each rank's bytes, of this node's ranks alone."""
        return self._on_node.exchange(mine)

    def tell(self, word: bytes) -> bytes:
        """Rank 0's word, on every rank."""
        link = self._link
        if link is not None:
            if link.number:
                word = bytes(link.receive(parent_of(link.number))[0])
            for child in reversed(children_of(link.number, link.count)):  # the one with the most behind it first
                link.send(child, word, last=True)
        return self._on_node.exchange(word if self._on_node.rank == 0 else b"")[0]

    def gather(self, mine: bytes, take: Take | None = None) -> None:
        """Bring every rank's bytes to rank 0, which alone gives `take`: in order of the nodes, and there of the ranks.

        `take` is called with pieces of at most WINDOW_BYTES, whose bounds mean nothing.
        """
        link = self._link
        if link is None or link.number == 0:
            self._on_node.gather(mine, take)
            if link is not None and take is not None:
                self._take_others(link, take)
            return
        window = _Window(link)
        self._on_node.gather(mine, window.put)
        self._take_others(link, window.put)
        window.end()

    @staticmethod
    def _take_others(link: Link, take: Take) -> None:
        for child in children_of(link.number, link.count):
            last = False
            while not last:
                data, last = link.receive(child)
                take(data)  # type: ignore[arg-type] # a buffer nobody else has


def parent_of(node: int) -> int:
    """Whom a node tells: the one without its lowest bit."""
    return node & (node - 1)


def children_of(node: int, count: int) -> list[int]:
    """Who tells a node, ascending; each comes with the nodes between it and the next."""
    found, step = [], 1
    while node + step < count and not node & step:
        found.append(node + step)
        step *= 2
    return found


class _Window:
    """Collects what goes up from a node into messages as long as may be."""

    def __init__(self, link: Link) -> None:
        self._link, self._to = link, parent_of(link.number)
        self._held = bytearray()

    def put(self, piece: bytes | bytearray) -> None:
        if len(self._held) + len(piece) > WINDOW_BYTES:
            self._link.send(self._to, self._held, last=False)
            self._held = bytearray()
        self._held += piece

    def end(self) -> None:
        self._link.send(self._to, self._held, last=True)


def framed(message: bytes) -> bytes:
    """A message as `Frames` finds it again in a stream."""
    return _LENGTH.pack(len(message)) + message


class Frames:
    """Finds the messages of a stream that comes in pieces."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._held = bytearray()

    def of(self, piece: bytes) -> Iterator[bytes]:
        """The messages that are whole with this piece, in order."""
        self._held += piece
        at = 0
        while len(self._held) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(self._held, at)[0]
            if end > len(self._held):
                break
            yield bytes(self._held[at + _LENGTH.size : end])
            at = end
        del self._held[:at]


def gathered(ranks: Ranks, mine: bytes, *, keep: bool) -> list[bytes]:
    """Each rank's message on the rank that keeps them, rank 0; none on the others. For what is small on every rank."""
    frames = Frames()
    messages: list[bytes] = []

    def take(piece: bytes) -> None:
        messages.extend(frames.of(piece))

    ranks.gather(framed(mine), take if keep else None)
    return messages
