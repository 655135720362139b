"""The output of a program that is started only to be read: bounded in bytes and in time, whoever wrote the program.

It needs the standard library only: `peers/both_ends.py` runs without the packages of the environment.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence

MOST_OUTPUT_BYTES = 64 << 20
"""Of one program. The longest known is one line of JSON from each node of 10,000, some 50 MB."""
_READ_BYTES = 1 << 16


class NoAnswerError(Exception):
    """A program that cannot be started, does not end in time, or prints too much: the predicate of a sentence."""


def output_of(
    command: Sequence[str],
    timeout_s: float | None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    start_new_session: bool = False,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program without input and return its exit status and what it printed; `together`: stderr in stdout.

    NoAnswerError where it cannot be started, has not ended after `timeout_s`, or prints more than MOST_OUTPUT_BYTES. It
    is then killed; what it started itself is left to the caller.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=start_new_session,
        )
    except OSError as error:
        raise NoAnswerError(f"cannot be started: {error.strerror}") from None
    try:
        printed = _read(process, timeout_s)
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"did not end within {timeout_s:g} s") from None
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    stdout, stderr = (_text(printed[pipe]) if pipe is not None else "" for pipe in (process.stdout, process.stderr))
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def why_too_long(printed_bytes: int, most_bytes: int = MOST_OUTPUT_BYTES) -> str:
    """Why a program is ended that has printed so much, as a predicate; empty where it may go on."""
    return f"printed more than {most_bytes >> 20} MiB" if printed_bytes > most_bytes else ""


def _read(process: subprocess.Popen[bytes], timeout_s: float | None) -> dict[object, bytearray]:
    """Read both outputs to their ends, then wait for the program. TimeoutExpired, NoAnswerError."""
    last = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s() -> float | None:
        if last is None:
            return None
        if (left := last - time.monotonic()) <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout_s or 0)
        return left

    printed: dict[object, bytearray] = {}
    with selectors.DefaultSelector() as pipes:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                printed[pipe] = bytearray()
                pipes.register(pipe, selectors.EVENT_READ)
        while pipes.get_map():
            for key, _ in pipes.select(left_s()):
                part = os.read(key.fd, _READ_BYTES)
                printed[key.fileobj] += part
                if not part:
                    pipes.unregister(key.fileobj)
            if why := why_too_long(sum(map(len, printed.values()))):
                raise NoAnswerError(why)
    process.wait(left_s())
    return printed


def _text(printed: bytearray) -> str:
    return printed.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
