"""A listening socket whose callers first say a token: of others there are few at a time, for a short time.

Who connects without a word costs a descriptor. So beyond `_MOST_STRANGERS` the one that has been silent longest goes,
each has `_STRANGER_S` to say the token, and where no descriptor is left the accepting goes on with one that it closes.
A rank says the token with its first packet, so that it waits among strangers for no longer than that is under way.

A connection begins with a line: the token, a space, and JSON of what else is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hmac
import json
import select
import socket
import time
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.shape import as_it_is, each, parsed

_STRANGER_S = 5.0
_MOST_STRANGERS = 64
_AT_ONCE = 4096  # callers taken at a look: who calls without end does not keep it
_HELLO_BYTES = 512
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OVER = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
_ROOM_COMES_S, _HELLO_COMES_S = 0.1, 0.01
_SAID = each(as_it_is)


def say_hello(link: socket.socket, token: str, *said: Any) -> None:
    """Say the token, and what else the other end is to know."""
    link.sendall(f"{token} {json.dumps(said)}\n".encode())


@dataclasses.dataclass
class Caller:
    """A connection whose token was right, and what else it said. It does not block."""

    link: socket.socket
    said: list[Any]


class Door:
    """The listening end. One thread uses it; `close` may be called by it alone."""

    def __init__(self, server: socket.socket, token: str) -> None:
        """Take over a socket that listens."""
        server.setblocking(False)
        self._server, self._token = server, token.encode()
        self._strangers: dict[socket.socket, float] = {}  # since when, the longest first
        self._full = False

    def wait(self, longest_s: float) -> None:
        """Return once there may be something to look at, or after that time."""
        if self._full:  # there is, but it cannot be taken yet
            time.sleep(_ROOM_COMES_S)
            return
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.poll(1000 * (min(longest_s, _HELLO_COMES_S) if self._strangers else longest_s))

    def look(self) -> list[Caller]:
        """Those that have said the token since the last look. Never waits."""
        admitted = [caller for link in tuple(self._strangers) if (caller := self._heard(link)) is not None]
        self._full = False
        for _ in range(_AT_ONCE):
            try:
                link, _ = self._server.accept()
            except OSError as error:
                if isinstance(error, BlockingIOError) or error.errno in _OVER:
                    break
                self._full = error.errno in _NO_ROOM and not self._forget_oldest()
                if self._full:
                    break
                continue
            link.setblocking(False)
            self._strangers[link] = time.monotonic()
            caller = self._heard(link)
            if caller is not None:
                admitted.append(caller)
            elif len(self._strangers) > _MOST_STRANGERS:
                self._forget_oldest()
        return admitted

    def _heard(self, link: socket.socket) -> Caller | None:
        """The caller, where it has said the token; a stranger that said something else, or too late, is forgotten."""
        try:
            words = link.recv(_HELLO_BYTES, socket.MSG_PEEK)
            to_come = 0 < len(words) < _HELLO_BYTES and b"\n" not in words
        except OSError as error:
            words, to_come = b"", isinstance(error, BlockingIOError)
        if to_come and time.monotonic() - self._strangers[link] < _STRANGER_S:
            return None
        hello, end, _ = words.partition(b"\n")
        token, _, rest = hello.partition(b" ")
        if end and hmac.compare_digest(token, self._token):
            with contextlib.suppress(OSError, UsageError):
                said = parsed(rest, _SAID, "what a rank says")
                link.recv(len(hello) + 1)  # what follows is for who takes the caller
                del self._strangers[link]
                return Caller(link, said)
        self._forget(link)
        return None

    def _forget_oldest(self) -> bool:
        oldest = next(iter(self._strangers), None)
        if oldest is not None:
            self._forget(oldest)
        return oldest is not None

    def _forget(self, link: socket.socket) -> None:
        self._strangers.pop(link, None)
        link.close()

    def close(self) -> None:
        """Close the socket, and forget all strangers."""
        for link in tuple(self._strangers):
            self._forget(link)
        self._server.close()
