"""Files that a command line names: read whole where they are files, written where they are pipes and devices."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import secrets
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from linkgauge.errors import EnvironmentLackingError, UsageError

if TYPE_CHECKING:
    from mmap import mmap

CHART_ADDRESS_SPACE = 128 << 30
"""Bytes that the chart library reserves, and ends its process by a trap where it may not; few of them are ever used."""
_LEAST_FILES, _ENOUGH_FILES = 64, 4096


def allow_open_files() -> None:
    """Let this process and its children open _ENOUGH_FILES files, as far as they may.

    EnvironmentLackingError where fewer than _LEAST_FILES are allowed, with which nothing can be imported and read.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(_ENOUGH_FILES, hard)
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if 0 <= max(soft, wanted) < _LEAST_FILES:
        raise EnvironmentLackingError(
            f"this process may open {max(soft, wanted)} files: expected {_LEAST_FILES} or more: ulimit -n 65536"
        )


def why_nothing_starts(error: BaseException) -> str:
    """What lets threads and processes start, where `error` says that no further one can; empty where it does not."""
    text = str(error)
    no_thread = "can't start new thread" in text or "Failed to launch worker thread" in text  # Python's, Arrow's
    if not no_thread:
        frames = traceback.extract_tb(error.__traceback__)
        # A pipe that would block is EAGAIN as well.
        if not (isinstance(error, OSError) and error.errno == errno.EAGAIN and frames):
            return ""
        if os.path.basename(frames[-1].filename) != "subprocess.py":
            return ""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    allowed = "" if most == resource.RLIM_INFINITY else f", of {most} that this user may have"
    what = "thread" if no_thread else "process"
    return (
        f"no further {what} can be started{allowed}: expected more: ulimit -u 4096, or a larger limit of the container"
    )


def open_regular(
    path: str | os.PathLike[str], what: str, error: type[UsageError] = UsageError, *, links: bool = True
) -> BinaryIO:
    """Open a regular file for reading; `error` naming `path` for anything else, or for a link where `links` is false.

    `what` it should be completes "expected ...". A pipe would be waited for without end and a device may have no end,
    so both are refused before the first byte is asked of them.
    """
    name = os.fspath(path)
    try:
        # Without O_NONBLOCK opening a pipe waits for its writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise error(f"{name}: there is no such file: expected {what}") from None
    except (OSError, ValueError) as fault:  # also a name with a zero byte
        why = f"cannot be read ({getattr(fault, 'strerror', None) or fault})"
        raise error(f"{name}: {'is a symbolic link' if os.path.islink(name) else why}: expected {what}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise error(f"{name}: is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}: expected {what}")
    return open(descriptor, "rb")


def read_file(
    path: str | os.PathLike[str],
    most_bytes: int,
    what: str,
    error: type[UsageError] = UsageError,
    *,
    links: bool = True,
) -> bytes:
    """Return what a regular file of at most `most_bytes` holds; refuses as `open_regular` does."""
    with open_regular(path, what, error, links=links) as file:
        try:
            data = file.read(most_bytes + 1)
        except OSError as fault:
            raise error(f"{os.fspath(path)}: cannot be read ({fault.strerror}): expected {what}") from None
    if len(data) > most_bytes:
        raise error(f"{os.fspath(path)}: more than {most_bytes >> 20} MiB, too large: expected {what}")
    return data


_listening: list[Callable[[str, bytes | None], None]] = []


@contextlib.contextmanager
def listening(hear: Callable[[str, bytes | None], None]) -> Iterator[None]:
    """While it lasts, `hear` gets the path of each file of the kernel's that is looked at, and what was read of it.

    A record of a machine keeps exactly these, so that no second list of files can lag behind what is read.
    """
    _listening.append(hear)
    try:
        yield
    finally:
        _listening.remove(hear)


def looked_at(path: str | os.PathLike[str], content: bytes | None = None) -> None:
    """Say that a file or folder of the kernel's is there, and what it holds where it was read."""
    for hear in _listening:
        hear(os.fspath(path), content)


def kernel_file(path: str | os.PathLike[str], most_bytes: int = 1 << 16) -> bytes | None:
    """What a file of the kernel's holds; None where it cannot be read, or is none, as a pipe. Never an error."""
    try:
        content = read_file(path, most_bytes, "a file of the kernel's")
    except UsageError:
        return None
    looked_at(path, content)
    return content


def kernel_data(path: str | os.PathLike[str], most_bytes: int = 1 << 16) -> bytes:
    """What `kernel_file` has, or nothing."""
    return kernel_file(path, most_bytes) or b""


def kernel_text(path: str | os.PathLike[str], most_bytes: int = 1 << 16) -> str:
    """Its text, stripped; empty where `kernel_data` has nothing."""
    return kernel_data(path, most_bytes).decode(errors="replace").strip()


def temporary_folder() -> str:
    """Where temporary files go: TMPDIR, or what is usual.

    Python's own look makes a file in each place and removes it, which a process that is ended meanwhile leaves there.
    """
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    places = [one for one in (*named, "/tmp", "/var/tmp", "/usr/tmp", os.curdir) if one]
    if tempfile.tempdir is None:
        usable = (one for one in places if os.path.isdir(one) and os.access(one, os.W_OK | os.X_OK))
        # Only then, since a process whose folder is gone has no absolute path of it.
        tempfile.tempdir = next(map(os.path.abspath, usable), None)
    return tempfile.gettempdir()


def write_special(path: str | os.PathLike[str], content: bytes | mmap) -> bool:
    """Write to a device or pipe of that name and return True; False, and nothing done, where it is none.

    Files are made beside their place and renamed into it, which would put a file in the place of `/dev/stdout` and say
    that all was written to `/dev/full`. OSError where it cannot be written, also where no one reads the pipe.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)):
        return False
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(content)
    return True


def write_atomically(path: Path, content: bytes | mmap) -> None:
    """Write a file so that at every moment it is the old or the new one, also after a crash.

    A symbolic link of that name is replaced, not followed; a device or pipe is written to.
    EnvironmentLackingError where it cannot be written.
    """
    temporary = None
    try:
        if write_special(path, content):
            return
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        # Who may read it is left to the user's umask, which tempfile's files ignore.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        temporary = beside
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_folder(path.parent)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise EnvironmentLackingError(f"cannot write {path}: {error.strerror}") from None


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
