"""Looks at a node's health take turns on a machine: a prolog's and a HealthCheckProgram's would slow each other.

A lock of one file (flock(2)), which ends with its process. Containers that do not share /run/lock do not see each
other's; what they take of the cores is observed beside each case.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.owner import described

PLACE = Path("/run/lock/linkgauge-health")
_LOOKED_EVERY_S = 0.2
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def one_look(
    until: float, note: Callable[[str], None], place: Path | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[bool]:
    """Give whether this look is the only one; False where another one still ran at `until` of the clock.

    Where no lock can be made, as in a read-only container, each look is taken for the only one.
    """
    try:
        lock = _opened(place or PLACE)
    except OSError:
        yield True
        return
    try:
        yield _locked(lock, until, note, clock, place or PLACE)
    finally:
        os.close(lock)


def holder(place: Path | None = None) -> str:
    """Who holds the lock, as the kernel lists it: any user's program can; `another look` where that cannot be read."""
    with contextlib.suppress(OSError):
        there = os.stat(place or PLACE)
        wanted = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
        for line in kernel_text("/proc/locks").splitlines():
            words = line.split()
            # 1: FLOCK ADVISORY WRITE 1785 00:19:42 0 EOF. Behind an arrow stands who waits; 0 is of another namespace.
            if words[1:2] == ["FLOCK"] and wanted in words and words[4].isdecimal() and words[4] != "0":
                return described(int(words[4]))
    return "another look"


def _opened(place: Path) -> int:
    try:
        return os.open(place, _FLAGS)  # of another user: the kernel may refuse to create it again (protected_regular)
    except FileNotFoundError:
        return os.open(place, _FLAGS | os.O_CREAT, 0o644)


def _locked(lock: int, until: float, note: Callable[[str], None], clock: Callable[[], float], place: Path) -> bool:
    said = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = until - clock()
            if left <= 0:
                return False
            if not said:
                note(f"{holder(place)} holds {place}: waiting at most {left:.0f} s")
                said = True
            time.sleep(min(_LOOKED_EVERY_S, left))
        except OSError:  # a file system without locks
            return True
        else:
            return True
