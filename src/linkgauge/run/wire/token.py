"""The word by which a run's ranks show the parent that they are its own, and how it comes to them.

It is on no disk and in no command line. The parent writes it to the launcher's standard input, which every launcher
passes on to the first rank; that one tells the others by MPI, or is all of them as threads.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import time
from typing import IO, Any

_BYTES = 16
_PATIENCE_S = 20.0  # of the first rank: the word was there before it was
_MOST = 256


def new_token() -> str:
    """A word that nobody guesses."""
    return secrets.token_hex(_BYTES)


def give(token: str, standard_input: IO[bytes] | None) -> None:
    """Write it where the launcher reads, and close that. One that has ended hears nothing."""
    if standard_input is not None:
        with contextlib.suppress(OSError), standard_input:
            standard_input.write(f"{token}\n".encode())


def heard(world: Any = None) -> str:
    """The word, by this process' standard input or, collectively over `world`, by rank 0's; empty: none came."""
    if world is None:
        return _read(0)
    told: str = world.bcast(_read(0) if world.Get_rank() == 0 else "")
    return told


def _read(descriptor: int) -> str:
    """The first line of what comes; nothing where none is whole in time."""
    said = b""
    end = time.monotonic() + _PATIENCE_S
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while b"\n" not in said and len(said) < _MOST:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(1000 * left):
            return ""
        try:
            more = os.read(descriptor, _MOST)
        except OSError:
            return ""
        if not more:
            return ""
        said += more
    return said.partition(b"\n")[0].decode("ascii", errors="replace")
