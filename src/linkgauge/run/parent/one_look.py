"""Looks at a node's health take turns on a machine: a prolog's and a HealthCheckProgram's would slow each other.

A lock of one file (flock(2)), which ends with its process. Each user has a file that no other user can open: whoever
can open a file can lock it for ever, and the scheduler's looks would never run. What others' looks take of the cores is
observed beside each case, as is that of containers that do not share the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOKED_EVERY_S = 0.2
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def place_of(user: int) -> Path:
    """Return a user's lock file. Only root writes in /run, so that nobody else can make root's file first."""
    return Path("/run" if user == 0 else "/run/lock", f"linkgauge-health-{user}")


@contextlib.contextmanager
def one_look(
    until: float, note: Callable[[str], None], place: Path | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[bool]:
    """Give whether this look is this user's only one; False where another one still ran at `until` of the clock.

    Where no lock can be made, as in a read-only container, each look is taken for the only one.
    """
    try:
        lock = os.open(place or place_of(os.geteuid()), _FLAGS | os.O_CREAT, 0o600)
    except OSError:
        yield True
        return
    try:
        made_by = os.fstat(lock)
        others = made_by.st_uid != os.geteuid() or made_by.st_mode & 0o077
        yield True if others else _locked(lock, until, note, clock)
    finally:
        os.close(lock)


def _locked(lock: int, until: float, note: Callable[[str], None], clock: Callable[[], float]) -> bool:
    said = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = until - clock()
            if left <= 0:
                return False
            if not said:
                note(f"another look runs on this machine: waiting at most {left:.0f} s")
                said = True
            time.sleep(min(_LOOKED_EVERY_S, left))
        except OSError:  # a file system without locks
            return True
        else:
            return True
