"""Links that take their time: what comes out of one interface goes into another after a while, and back alike.

`python -m cluster.relay SECONDS A B [SECONDS A B ...]`, as root, in the namespace where A and B are. There is no netem
on many kernels, and shapers delay nothing that they let through. A frame goes as it came, checksums still to be made
and segments still to be cut included (PACKET_VNET_HDR). Some thousand frames a second are its most.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import sys
import time
from collections.abc import Sequence

_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
_LARGEST = 1 << 17  # a frame of segments to be cut, and its header
_OUTGOING = 4


def opened(interface: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    end.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    end.bind((interface, _ALL_PROTOCOLS))
    end.setblocking(False)
    return end


def relay(links: Sequence[tuple[float, str, str]]) -> None:
    other: dict[int, tuple[socket.socket, socket.socket, float]] = {}  # by an end's file its socket, where to, how late
    for seconds, a, b in links:
        ends = opened(a), opened(b)
        for one, far in (ends, ends[::-1]):
            other[one.fileno()] = one, far, seconds
    ready = select.poll()
    for file in other:
        ready.register(file, select.POLLIN)
    waiting: list[tuple[float, int, socket.socket, bytes]] = []  # when, in which order, where to, what
    order = itertools.count()
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) * 1000 if waiting else None
        for file, _ in ready.poll(patience):
            one, far, seconds = other[file]
            frame, address = one.recvfrom(_LARGEST)
            if address[2] != _OUTGOING:  # what goes in here is seen too
                heapq.heappush(waiting, (time.monotonic() + seconds, next(order), far, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, far, frame = heapq.heappop(waiting)
            try:
                far.send(frame)
            except OSError:
                continue  # its other side is not up, or has no room: lost, as on a wire


if __name__ == "__main__":
    words = sys.argv[1:]
    relay([(float(words[at]), words[at + 1], words[at + 2]) for at in range(0, len(words), 3)])
