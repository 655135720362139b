"""Runs the `linkgauge` program for tests, in a process of its own each time.

    done = linkgauge("run", "--devices", "host:2", cwd=tmp_path)

A start by exec costs about a second of imports, more than most commands take; so a process that has them
(tests/program_server.py) forks each one: one for each set of libraries that the loader is told of. What a test of the
start itself needs, as of signals within imports, it starts by subprocess.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from patience import PATIENCE_S

# What the loader reads when a program starts: with other values another server.
LOADERS = ("LD_LIBRARY_PATH", "LD_PRELOAD")
MOST_SERVERS = 3  # of some 150 MB each
CLOSED = -1
SERVER = Path(__file__).with_name("program_server.py")

_servers: dict[tuple[str | None, ...], Server] = {}
_met: set[tuple[str | None, ...]] = set()
_used_s = 0.0
_lock = threading.Lock()  # tests may start programs side by side


def children_seconds() -> float:
    """The processor time of all that servers have started for this process so far."""
    return _used_s


class Server:
    """One process that forks programs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        loaders = {name: environment[name] for name in LOADERS if name in environment}
        # Each message arrives whole.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                # Not what is one program's own, as its folder for temporary files.
                env={**os.environ, "PYTHONPATH": environment["PYTHONPATH"], **loaders},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(self, request: dict[str, object], streams: list[int], timeout_s: float) -> int | None:
        """The status of one program as subprocess tells it; None where it was killed because it took too long."""
        global _used_s
        answers, theirs = socket.socketpair()
        with answers:
            with theirs:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, theirs.fileno()])
            with answers.makefile("r") as told:
                child, late = int(told.readline()), False
                if not select.select([answers], [], [], timeout_s)[0]:
                    os.kill(child, signal.SIGKILL)
                    late = True
                status, used = told.readline().split()
        _used_s += float(used)
        return None if late else os.waitstatus_to_exitcode(int(status))

    def end(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait()


def _server(environment: Mapping[str, str], at_once: bool) -> Server | None:
    """The server for these libraries; None for the first program of new ones, unless it is wanted at once.

    A server costs as much to start as a program, and some tests have libraries of their own.
    """
    key = tuple(environment.get(name) for name in LOADERS)
    with _lock:
        found = _servers.pop(key, None)
        if found is None:
            first = key not in _met and key != tuple(os.environ.get(name) for name in LOADERS)
            _met.add(key)
            if first and not at_once:
                return None
            if len(_servers) >= MOST_SERVERS:
                _servers.pop(next(iter(_servers))).end()  # what it has begun goes on
            found = Server(environment)
        _servers[key] = found  # the last in the order is the last that was used
    return found


@atexit.register
def _end_servers() -> None:
    while _servers:
        _servers.popitem()[1].end()


def linkgauge(
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
    stdout: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """`linkgauge WORDS` in `cwd`; `env` beside this process's own environment. Raises `TimeoutExpired`.

    Its standard output is returned, or goes to the descriptor `stdout`, or is closed (`CLOSED`).
    """
    return started(["linkgauge", *words], cwd=cwd, env=env, timeout_s=timeout_s, stdout=stdout)


def started(
    words: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
    stdout: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same of any Python program: `words` are its file and arguments, or `linkgauge` and its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {})}
    request = {"words": words, "cwd": os.fspath(cwd), "env": environment, "closed": stdout == CLOSED}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull, "rb") as nothing:
        told = output.fileno() if stdout in (None, CLOSED) else stdout
        server = _server(environment, at_once=stdout is not None)
        if server is None:
            own = [sys.executable, str(SERVER), "once", *words]
            return subprocess.run(own, cwd=cwd, env=environment, stdin=nothing, capture_output=True, check=False,
                                  text=True, errors="surrogateescape", timeout=timeout_s)  # fmt: skip
        status = server.run(request, [nothing.fileno(), told, errors.fileno()], timeout_s)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    if status is None:
        raise subprocess.TimeoutExpired(words, timeout_s, *texts)
    return subprocess.CompletedProcess(words, status, *texts)
