"""Who connects and does not say the token costs a listening parent little, and keeps no rank out."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from linkgauge.run.wire import door
from linkgauge.run.wire.door import Caller, Door, say_hello
from linkgauge.run.wire.node_beats import new_server
from patience import PATIENCE_S

TOKEN = "0123456789abcdef"
LOOPBACK = "127.0.0.1"


@pytest.fixture
def ours() -> Iterator[tuple[Door, int]]:
    server = new_server(LOOPBACK)
    opened = Door(server, TOKEN)
    yield opened, server.getsockname()[1]
    opened.close()


def calls(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)


def admitted(opened: Door, count: int = 1) -> list[Caller]:
    found: list[Caller] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < end
        opened.wait(1.0)
        found += opened.look()
    return found


def is_closed(link: socket.socket, look: Callable[[], Any]) -> bool:
    link.settimeout(0.01)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        look()
        try:
            return link.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionResetError:
            return True
    return False


def test_silent_strangers_are_few_and_a_rank_comes_in_between(ours: tuple[Door, int]) -> None:
    opened, port = ours
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(calls(port)) for _ in range(200)]
        before = len(os.listdir("/proc/self/fd"))
        rank = stack.enter_context(calls(port))
        say_hello(rank, TOKEN, "a", 1)
        rank.sendall(b"what follows")
        (caller,) = admitted(opened)
        assert caller.said == ["a", 1]
        assert caller.link.recv(100) == b"what follows"
        assert len(os.listdir("/proc/self/fd")) - before <= door._MOST_STRANGERS + 2
        assert is_closed(silent[0], opened.look)  # who was silent longest
        silent[-1].settimeout(0.01)
        with pytest.raises(TimeoutError):
            silent[-1].recv(1)
        say_hello(silent[-1], TOKEN)  # in its time
        (late,) = admitted(opened)
        for one in (caller, late):
            one.link.close()


def test_time_for_the_token_does_not_begin_anew_with_each_byte(
    ours: tuple[Door, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, port = ours
    with calls(port) as link:
        link.sendall(TOKEN[:3].encode())
        opened.wait(PATIENCE_S)
        assert opened.look() == []
        monkeypatch.setattr(door, "_STRANGER_S", 0.0)
        link.sendall(TOKEN[3:].encode())
        assert is_closed(link, opened.look)


AFTER_THE_TOKEN = (b"\n", b" nothing\n", b" {}\n", b" " + b"[" * 400 + b"\n")
OTHER_WORDS = [b"\n", b" \n", b"x" * 600, b"wrong []\n", *(TOKEN.encode() + rest for rest in AFTER_THE_TOKEN)]


@pytest.mark.parametrize("words", OTHER_WORDS)
def test_who_says_something_else_goes_at_once(ours: tuple[Door, int], words: bytes) -> None:
    opened, port = ours
    with calls(port) as link:
        link.sendall(words)
        assert is_closed(link, lambda: None if not opened.look() else pytest.fail("admitted"))


OUT_OF_DESCRIPTORS = """
import os, resource, socket, struct, sys
from linkgauge.run.wire.load_lines import LOAD, MEASURED, LoadLines
from linkgauge.run.wire.door import say_hello
lines = LoadLines([], "token")
calls = lambda: socket.create_connection(("127.0.0.1", lines.place["port"]), timeout=600)
came, come = os.pipe()
full, fill = os.pipe()
if os.fork() == 0:  # with descriptors of its own
    strangers = [calls() for _ in range(400)]
    os.write(come, b"x")
    os.read(full, 1)
    ends = [calls() for _ in (MEASURED, LOAD)]
    for end, link in enumerate(ends):
        say_hello(link, "token", "key", 1, end)
    ends[MEASURED].sendall(struct.pack("<q", 7))
    print(struct.unpack("<q", ends[LOAD].recv(8, socket.MSG_WAITALL))[0], flush=True)
    os._exit(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 2048))
os.read(came, 1)
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    os.write(fill, b"x")
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_without_descriptors_the_accepting_goes_on() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", OUT_OF_DESCRIPTORS], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=environment)  # fmt: skip
    assert done.stdout == "7\n", done.stderr
