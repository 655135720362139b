"""One process at a time measures into a run folder: a locked file there says which.

The file is opened for writing, since NFS gives no lock for a folder or for a file that is only read. Where a file
system refuses locks, or keeps them to one machine, a second file is the hold: one process alone can make it, and it is
taken over once its owner is seen to have ended, which only the owner's own machine and PID namespace can see. Else the
process is refused, in one line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import weakref
from pathlib import Path

from linkgauge import owner
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.files import kernel_text
from linkgauge.model.shape import read_json
from linkgauge.owner import Owner

LOCKED, MADE, _TAKING_OVER = ".held", ".held-by", ".held-over"
_MOST_BYTES = 1 << 16
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of fcntl(2)
# Mount options by which a network file system's locks hold on one machine only (nfs(5), mount.lustre(8)).
_LOCAL_LOCKS = {"nolock", "localflock", "local_lock=all", "local_lock=flock", "local_lock=posix"}


class Hold:
    """That this process alone measures into a folder, until `release` or its end."""

    def __init__(self, folder: Path) -> None:
        """Take it.

        UsageError where another process has it, or may have it; EnvironmentLackingError where the folder cannot be
        written.
        """
        self._mine = Owner.this_process()
        file, made = -1, False
        try:
            file = _opened(folder)
            if os.path.lexists(folder / MADE):  # by another machine, whose mount of this file system has no locks
                self._free(folder, folder / MADE)
            if file >= 0:
                os.ftruncate(file, 0)
                os.pwrite(file, self._words(), 0)
            elif os.path.lexists(folder / LOCKED):
                self._free(folder, folder / LOCKED)
            if file < 0 or _locks_are_local(file):
                self._make(folder)
                made = True
        except BaseException as error:
            _let_go(self._mine.pid, folder, file, made)
            if isinstance(error, OSError):
                raise EnvironmentLackingError(f"cannot write the run folder {folder}: {error.strerror}") from None
            raise
        self.release = weakref.finalize(self, _let_go, self._mine.pid, folder, file, made)

    def _words(self) -> bytes:
        return json.dumps(self._mine.plain()).encode()

    def _make(self, folder: Path) -> None:
        """Make the file that one process alone can make."""
        while True:
            with contextlib.suppress(FileExistsError):
                file = os.open(folder / MADE, _NEW, 0o600)
                try:
                    os.write(file, self._words())
                    os.fsync(file)
                finally:
                    os.close(file)
                return
            self._free(folder, folder / MADE)

    def _free(self, folder: Path, path: Path) -> None:
        """Remove a file of an owner that has ended: of several processes that see it so, one. UsageError for others."""
        holder = _holder(path)
        lives = None if holder is None else holder.lives()
        if lives:
            raise _held(folder, holder)
        if lives is None:
            who = "another process" if holder is None else holder.words
            raise UsageError(
                f"{folder} is held by {who}, whose end cannot be seen from here, and its file system has no locks "
                f"between machines: once that process has ended, remove {path}"
            )
        claim = folder / _TAKING_OVER
        try:
            os.close(os.open(claim, _NEW, 0o600))
        except FileExistsError:
            raise UsageError(
                f"{folder} is being taken over by another process: try again, and where that stays so remove {claim}"
            ) from None
        try:
            if _holder(path) == holder:
                path.unlink()
        finally:
            claim.unlink()


def _opened(folder: Path) -> int:
    """The file, open and locked; -1 where its file system has no locks. UsageError where another process has it."""
    path = folder / LOCKED
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(file):
                if os.fstat(file).st_size == 0:  # nobody's
                    path.unlink(missing_ok=True)
                os.close(file)
                return -1
        except BlockingIOError:
            os.close(file)
            raise _held(folder, _holder(path)) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.lstat()):
                return file
        os.close(file)  # who held it before has removed it meanwhile


def _locked(file: int) -> bool:
    """Whether the lock was given, by flock or where that is refused by fcntl. BlockingIOError where another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError from None
            return False
    return True


def _locks_are_local(file: int) -> bool:
    """Whether the file's mount keeps locks to this machine."""
    device = os.fstat(file).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in kernel_text("/proc/self/mountinfo", 1 << 22).splitlines():
        fields = line.split()
        if len(fields) > 6 and fields[2] == number:
            return not _LOCAL_LOCKS.isdisjoint({*fields[5].split(","), *fields[-1].split(",")})
    return False


def _holder(path: Path) -> Owner | None:
    """Whom a file names; None where it is not there or was not written whole."""
    try:
        return Owner.of_plain(read_json(path, _MOST_BYTES, "who holds a run folder", owner.SHAPE, links=False))
    except UsageError:
        return None


def _held(folder: Path, holder: Owner | None) -> UsageError:
    who = "another process" + ("" if holder is None else f" ({holder.words})")
    return UsageError(f"{folder} is being measured by {who}: wait until it has ended")


def _let_go(pid: int, folder: Path, file: int, made: bool) -> None:
    """Remove what process `pid` has made, the lock last. A process that was forked from it only has the file open."""
    if pid != os.getpid():
        return
    with contextlib.suppress(OSError):  # of a folder that vanished or became read-only
        if made:
            (folder / MADE).unlink(missing_ok=True)
    if file >= 0:
        with contextlib.suppress(OSError):
            (folder / LOCKED).unlink(missing_ok=True)
        os.close(file)
