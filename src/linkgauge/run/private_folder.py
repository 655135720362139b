"""Private folders of a launch, so that nothing of it is left behind, and what a killed parent left is cleaned later.

Communication libraries put files in TMPDIR and in /dev/shm, and leave them there when they are killed. Each launch has
a folder of its own for either, below one that names the parent's process; `clean_leftovers` removes what belongs to
parents that no longer run, ending their processes first. Files that a library makes in /dev/shm under its own name
(MPICH does) are found in the ranks' memory maps, and removed once the ranks are gone; those of ranks that died with
their parent before anybody looked, by that name and their age.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.shape import each, exact, read_json, table, whole
from linkgauge.run import processes

SHARED_MEMORY = Path("/dev/shm")
OWNER = "owner.json"
_SEGMENTS = "segments.json"
_NAMELESS = ".new-"  # in the making, or being removed
_YOUNG_S = 600.0  # whose process cannot be told
_ATTEMPTS = 20
# How MPICH, Intel MPI, UCX and NCCL begin the names of theirs: no setting but UCX's gives them another place.
_LIBRARIES_SEGMENTS = ("mpich_shm_", "Intel_MPI_", "ucx_shm_posix_", "nccl-")


@dataclasses.dataclass(frozen=True)
class LaunchFolders:
    """The folders of one launch. `temporary` is its TMPDIR, `segments` lies in shared memory where there is some."""

    temporary: Path
    segments: Path
    token: str  # in every process' environment as LINKGAUGE_LAUNCH: what is left of the launch is found by it


class PrivateFolders:
    """All private folders of one parent process; `close` removes them."""

    def __init__(self, bases: list[Path] | None = None) -> None:
        """Make the parent's folders in the temporary folder and in shared memory (or in `bases`)."""
        self._roots = [_make_root(base) for base in (bases or default_bases())]
        self._noting = threading.Lock()  # of launches beside each other

    @property
    def temporary(self) -> Path:
        """The parent's folder in the temporary folder."""
        return self._roots[0]

    def launch(self, number: int) -> LaunchFolders:
        """New folders for launch `number`, short enough for the Unix sockets that launchers put there."""
        token = f"{os.getpid()}.{processes.start_time(os.getpid())}.{number}"
        folders = [root / f"{number}" for root in self._roots]
        for folder in folders:
            folder.mkdir(mode=0o700)
        return LaunchFolders(folders[0], folders[-1], token)

    def note_segments(self, paths: list[Path]) -> None:
        """Store which files outside of these folders the launch's ranks have mapped, for a later clean-up."""
        with self._noting:
            known = told_segments(self._roots[0] / _SEGMENTS)
            new = sorted({*known, *(str(path) for path in paths)})
            if new != known:
                with contextlib.suppress(OSError):
                    (self._roots[0] / _SEGMENTS).write_text(json.dumps(new))

    def remove_launch(self, folders: LaunchFolders) -> None:
        """Remove a launch's folders, and the segments noted that no process maps any more."""
        for folder in (folders.temporary, folders.segments):
            shutil.rmtree(folder, ignore_errors=True)
        _remove_segments(self._roots[0])

    def close(self) -> None:
        """Remove everything."""
        _remove_segments(self._roots[0])
        for root in self._roots:
            _remove_root(root)


def remove_elsewhere() -> None:
    """Remove this launch's TMPDIR where it is not the parent's own: what ranks and launchers made on another node.

    And what is empty of the folders above it.
    """
    folder = Path(os.environ.get("TMPDIR", ""))
    user = folder.parent.parent
    if not re.fullmatch(r"linkgauge-\d+", user.name) or (folder.parent / OWNER).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
        user.rmdir()


def default_bases() -> list[Path]:
    """The temporary folder, and shared memory where it can be written."""
    bases = [Path(tempfile.gettempdir())]
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        bases.append(SHARED_MEMORY)
    return bases


def _make_root(base: Path) -> Path:
    user = base / f"linkgauge-{os.getuid()}"
    pid = os.getpid()
    owner = json.dumps({"pid": pid, "start_time": processes.start_time(pid)})
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            user.mkdir(mode=0o700)
        # A run that ends removes the user's folder where it is empty, and one that starts what has no owner: the folder
        # gets its name once its owner is in it.
        with contextlib.suppress(FileNotFoundError):
            state = user.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
                # Somebody else made a folder of that name: take one that cannot be guessed, which no later start will
                # clean.
                return Path(tempfile.mkdtemp(prefix="linkgauge-", dir=base))
            made = Path(tempfile.mkdtemp(prefix=f"{_NAMELESS}{pid}-", dir=user))
            (made / OWNER).write_text(owner)
            root = user / f"{pid}"
            shutil.rmtree(root, ignore_errors=True)  # of a dead process that had this number
            made.rename(root)
            return root
    raise EnvironmentLackingError(f"'{user}' is removed as often as it is made: what else cleans up there?")


def _remove_root(root: Path) -> None:
    """Remove a folder that this process made: without its name first, so that nobody finds it half removed."""
    with contextlib.suppress(OSError):
        root = root.rename(root.with_name(_NAMELESS + root.name))
    shutil.rmtree(root, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.parent.rmdir()


def told_segments(path: Path) -> list[str]:
    """The files that a list names, none where it was not written whole: its writer may have been killed over it."""
    try:
        return list(read_json(path, 1 << 26, "the files that ranks map", each(exact)))
    except UsageError:
        return []


def _remove_segments(root: Path) -> None:
    """Remove the noted files that still exist, are ours, lie in shared memory or the temporary folder, and that no
    process maps: a name may have been taken by another program since.
    """
    listed = [Path(path) for path in told_segments(root / _SEGMENTS)]
    present = [path for path in listed if _is_ours(path)]
    if not present:
        return
    mapped = processes.mapped_files(processes.own_processes())
    for path in present:
        if path not in mapped:
            with contextlib.suppress(OSError):
                path.unlink()


def _is_ours(path: Path) -> bool:
    try:
        state = path.lstat()
    except OSError:
        return False
    inside = any(base in path.parents for base in default_bases()) and ".." not in path.parts
    return inside and stat.S_ISREG(state.st_mode) and state.st_uid == os.getuid()


def clean_leftovers(bases: list[Path] | None = None) -> list[Path]:
    """End the processes and remove the folders and segments of parents that no longer run. Returns what was removed."""
    removed = []
    for base in bases or default_bases():
        user = base / f"linkgauge-{os.getuid()}"
        try:
            state = user.lstat()
            roots = list(user.iterdir()) if stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() else []
        except OSError:
            continue
        for root in roots:
            owner = _owner(root)
            if processes.is_running(*owner) if owner is not None else _is_in_hand(root):
                continue
            if owner is not None:
                processes.end_marked(f"{owner[0]}.{owner[1]}.")
            _take_over_segments(root)
            _remove_segments(root)
            shutil.rmtree(root, ignore_errors=True)
            removed.append(root)
        with contextlib.suppress(OSError):  # of other runs' folders
            user.rmdir()
    return removed


def _is_in_hand(root: Path) -> bool:
    """Whether a folder without an owner may be one that is just being made or removed, by the process in its name."""
    by = re.match(rf"(?:{re.escape(_NAMELESS)})?(\d{{1,9}})(?:-|$)", root.name)
    if by is not None and processes.state_of(int(by[1])) in ("", "Z"):
        return False
    try:
        return time.time() - root.lstat().st_mtime < _YOUNG_S
    except OSError:  # it was
        return True


def _take_over_segments(root: Path) -> None:
    """What ranks said of their segments, or died too early to say, when their parent could not note it any more."""
    found = set(told_segments(root / _SEGMENTS)) | _unsaid_segments(root)
    with contextlib.suppress(OSError):  # of a run that is just removing its own folder
        found |= {name for path in root.glob("*/evidence/segments-*.json") for name in told_segments(path)}
    if found:
        with contextlib.suppress(OSError):
            (root / _SEGMENTS).write_text(json.dumps(sorted(found)))


def _unsaid_segments(root: Path) -> set[str]:
    """Libraries' segments since the dead parent began: of ranks that were killed while the library made them, where a
    name lasts from its making until all ranks have mapped it. What a process maps is left alone, noted or not.
    """
    found = set()
    with contextlib.suppress(OSError):
        began = (root / OWNER).stat().st_mtime
        for path in SHARED_MEMORY.iterdir():
            with contextlib.suppress(OSError):
                if path.name.startswith(_LIBRARIES_SEGMENTS) and path.stat().st_mtime >= began:
                    found.add(str(path))
    return found


def _owner(root: Path) -> tuple[int, int] | None:
    try:
        shape = table({"pid": whole(), "start_time": whole()}, needed=("pid", "start_time"))
        owner = read_json(root / OWNER, 1 << 16, "a folder's owner", shape)
        return owner["pid"], owner["start_time"]
    except UsageError:
        return None
