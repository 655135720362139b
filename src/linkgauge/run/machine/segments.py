"""Files that communication libraries make in shared memory under their own names, and leave there when they are killed.

Ranks' memory maps say which there are; those of ranks that died before anybody looked are found by name and age. None
is removed that a process has open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Collection
from pathlib import Path

from linkgauge.errors import UsageError
from linkgauge.files import temporary_folder
from linkgauge.model.shape import each, exact, read_json
from linkgauge.run.machine import processes

SHARED_MEMORY = Path("/dev/shm")
# How MPICH, Intel MPI, UCX and NCCL begin the names of theirs: no setting but UCX's gives them another place.
_LIBRARIES_SEGMENTS = ("mpich_shm_", "Intel_MPI_", "ucx_shm_posix_", "nccl-")


def default_bases() -> list[Path]:
    """The temporary folder, and shared memory where it can be written."""
    bases = [Path(temporary_folder())]
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        bases.append(SHARED_MEMORY)
    return bases


def noted_segments(path: Path) -> list[str]:
    """The files that a list names, none where it was not written whole: its writer may have been killed over it."""
    try:
        return list(read_json(path, 1 << 26, "the files that ranks map", each(exact)))
    except UsageError:
        return []


def remove_segments(names: Collection[str]) -> None:
    """Remove those of these files that still exist, are ours, lie in shared memory or the temporary folder, and that no
    process has open: a name may have been taken by another program since.
    """
    mapped: set[Path] | None = None
    for path in filter(is_ours, map(Path, names)):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                used = _used_elsewhere(file)
                if used is None:
                    mapped = processes.mapped_files(processes.own_processes()) if mapped is None else mapped
                    used = path in mapped
                if not used:
                    path.unlink()
            finally:
                os.close(file)


def _used_elsewhere(file: int) -> bool | None:
    """Whether any process, of whatever PID namespace, has this file open or mapped otherwise; None: not known here.

    The kernel gives a lease to write (fcntl(2)) only to who has a file alone; it ends with the descriptor.
    """
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # to who opens it meanwhile: ignored, where SIGIO ends
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EBUSY) else None
    return False


def is_ours(path: Path) -> bool:
    """Whether a path is a regular file of this user's in the temporary folder or in shared memory."""
    try:
        state = path.lstat()
    except OSError:
        return False
    inside = any(base in path.parents for base in default_bases()) and ".." not in path.parts
    return inside and stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid()


def unsaid_segments(began: float) -> set[str]:
    """Libraries' segments since `began`: of ranks that died while the library made them, where a name lasts from its
    making until all ranks have mapped it, or that had no room. What a process has open stays, noted or not.
    """
    found = set()
    with contextlib.suppress(OSError):
        for path in SHARED_MEMORY.iterdir():
            with contextlib.suppress(OSError):
                if path.name.startswith(_LIBRARIES_SEGMENTS) and path.stat().st_mtime >= began:
                    found.add(str(path))
    return found
