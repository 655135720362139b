"""Processes by their ids, read from /proc: which belong to a launch, what they map, how they are ended.

A launch is ended by the ids of its processes first, then by their process groups, never by name: others run the same
programs. A process belongs to a launch when its environment carries the launch's mark.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from linkgauge.owner import sees_itself, stat_fields

MARK = "LINKGAUGE_LAUNCH"
_PROC = Path("/proc")
_BLIND_WAIT_S = 0.05


class EndOf(contextlib.AbstractContextManager["EndOf"]):
    """The end of a child process, to be waited for without looks in between; a descriptor is closed at the end."""

    def __init__(self, pid: int, *others: int) -> None:
        """`pid` is of a child that was not waited for yet; `others`: descriptors whose news ends a wait, too."""
        self._poll = select.poll()
        for other in others:
            self._poll.register(other, select.POLLIN)
        try:
            self._fd = os.pidfd_open(pid)  # Linux 5.3; containers may forbid it
        except OSError:
            self._fd = -1
        else:
            self._poll.register(self._fd, select.POLLIN)

    def __exit__(self, *_: object) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def wait(self, longest_s: float) -> None:
        """Return when the process has ended, at the latest after `longest_s`; without pidfd_open after some of it."""
        if self._fd >= 0:
            self._poll.poll(1000 * longest_s)
        else:
            time.sleep(min(longest_s, _BLIND_WAIT_S))


def own_processes() -> list[int]:
    """Ids of all processes of this user that can be looked into, this one left out.

    Empty where /proc is another PID namespace's: its numbers are here those of other processes, or of none.
    """
    if not sees_itself():
        return []
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == os.getuid():
                    found.append(int(entry.name))
    return found


def state_of(pid: int) -> str:
    """R, S, D, T, Z, ...; empty where there is no such process."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


_PF_EXITING = 4  # Linux, sched.h


def is_exiting(pid: int) -> bool:
    """Whether a process has ended or is about to: its last thread, or it got a signal that ends it, is on its way."""
    fields = stat_fields(pid)
    return len(fields) <= 6 or fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)


def mark_of(pid: int) -> str:
    """The launch's mark in a process' environment as it was started; empty where there is none."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    key = MARK.encode() + b"="
    for variable in environment.split(b"\0"):
        if variable.startswith(key):
            return variable[len(key) :].decode(errors="replace")
    return ""


def marked(prefix: str) -> list[int]:
    """Ids of the processes whose mark is `prefix`, or begins with it where it ends in a dot. Zombies are left out."""
    found = []
    for pid in own_processes():
        mark = mark_of(pid)
        if mark and (mark == prefix or (prefix.endswith(".") and mark.startswith(prefix))) and state_of(pid) != "Z":
            found.append(pid)
    return found


def mapped_files(pids: Iterable[int], *, shared: bool = False) -> set[Path]:
    """Files in shared memory or temporary folders that any of the processes maps and that are not deleted.

    `shared`: only those that a process writes to for others to see, which a segment is and a library is not.
    """
    found = set()
    for pid in pids:
        try:
            lines = (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            parts = line.split(None, 5)
            if len(parts) == 6 and parts[5].startswith(("/dev/shm/", "/tmp/", "/var/tmp/")):
                if shared and not (parts[1].startswith("rw") and parts[1].endswith("s")):
                    continue
                name = parts[5]
                if not name.endswith(" (deleted)"):
                    found.add(Path(name))
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def end_marked(prefix: str, patience_s: float = 2.0) -> list[int]:
    """End all processes of a mark: SIGKILL by their ids, then their process groups, until none is left.

    A stopped process ends too. Returns ids that were still there when patience ran out (in an uninterruptible wait).
    """
    deadline = time.monotonic() + patience_s
    groups: set[int] = set()
    own_group = os.getpgrp()
    while True:
        pids = marked(prefix)
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                groups.add(os.getpgid(pid))
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for group in groups - {own_group, 0, 1}:
        # Only groups all of whose members are the launch's: a launcher makes its own, but srun may share one.
        if all(mark_of(pid).startswith(prefix) for pid in _members(group)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
    return marked(prefix)


def _members(group: int) -> list[int]:
    found = []
    for pid in own_processes():
        fields = stat_fields(pid)
        if len(fields) > 2 and int(fields[2]) == group and fields[0] != "Z":
            found.append(pid)
    return found
