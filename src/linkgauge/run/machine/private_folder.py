"""Private folders of a launch, so that nothing of it is left behind, and what a killed parent left is cleaned later.

Communication libraries put files in TMPDIR and in /dev/shm, and leave them there when they are killed. Each launch has
a folder of its own for either, below one that names the parent's process; `clean_leftovers` removes what belongs to
parents that no longer run, ending their processes first. The parent holds a lock on its folder's owner file: that tells
whether it lives where its process id tells nothing, in another PID namespace. What libraries make outside of these
folders is `segments`' matter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path

from linkgauge import owner
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.shape import read_json
from linkgauge.owner import Owner
from linkgauge.run.machine import processes
from linkgauge.run.machine.segments import (
    SHARED_MEMORY,
    default_bases,
    is_ours,
    noted_segments,
    remove_segments,
    unsaid_segments,
)

OWNER = "owner.json"
_SEGMENTS = "segments.json"
_NAMELESS = ".new-"  # in the making, or being removed
_YOUNG_S = 600.0  # whose process cannot be told
_ATTEMPTS = 20
_REMOVALS, _AGAIN_S = 20, 0.25  # of a folder into which others still write
_HYDRA_S = 5.0  # from its proxy's file to the first rank's own start, on a busy node
_OWNER_LATE_S = 1.0  # a node's owner file is written while the first rank is under way


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
        self._owner = Owner.this_process()
        self._roots = [_make_root(base, self._owner) for base in (bases or default_bases())]
        self._noting = threading.Lock()  # of launches beside each other
        self._segments: set[str] = set()  # as noted, also where the file could not be written
        self._began: dict[Path, float] = {}  # launches, by their temporary folder

    @property
    def temporary(self) -> Path:
        """The parent's folder in the temporary folder."""
        return self._roots[0].path

    def launch(self, number: int) -> LaunchFolders:
        """New folders for launch `number`, short enough for the Unix sockets that launchers put there."""
        folders = [root.path / f"{number}" for root in self._roots]
        for folder in folders:
            folder.mkdir(mode=0o700)
        self._began[folders[0]] = folders[0].stat().st_mtime
        return LaunchFolders(folders[0], folders[-1], f"{self._owner.mark}{number}")

    def note_segments(self, paths: list[Path]) -> None:
        """Store which files outside of these folders the launch's ranks have mapped, for a later clean-up."""
        with self._noting:
            new = self._segments | {str(path) for path in paths}
            if new != self._segments:
                self._segments = new
                with contextlib.suppress(OSError):
                    (self.temporary / _SEGMENTS).write_text(json.dumps(sorted(new)))

    def remove_launch(self, folders: LaunchFolders) -> None:
        """Remove a launch's folders, and the segments noted or unsaid that no process has open any more."""
        began = self._began.pop(folders.temporary, time.time())
        for folder in (folders.temporary, folders.segments):
            shutil.rmtree(folder, ignore_errors=True)
        remove_segments(self._segments | unsaid_segments(began))

    def close(self) -> None:
        """Remove everything."""
        remove_segments(self._segments)
        for root in self._roots:
            _remove_root(root)


def remove_elsewhere() -> None:
    """Remove this launch's TMPDIR where it is not the parent's own: what ranks and launchers made on another node.

    And what is empty of the folders above it, and what launches have left there that ended with their node.
    """
    folder = Path(os.environ.get("TMPDIR", ""))
    user = folder.parent.parent
    if not re.fullmatch(r"linkgauge-\d+", user.name) or (folder.parent / OWNER).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
        user.rmdir()
    clean_leftovers([user.parent, SHARED_MEMORY])  # of launches whose node died with them


_NODE_OWNER = "owner-"
_MADE = "made.txt"  # in a launch's TMPDIR on another node: its folder in shared memory there


def node_owner_file(folder: Path, mark: str) -> Path:
    """The file that says whose a launch's folder is on another node than the parent's; beside `folder`, its TMPDIR."""
    return folder.parent / f"{_NODE_OWNER}{mark}.json"


def mark_of_owner(path: Path) -> str:
    """The launch's mark, of such a file; of a parent's own the beginning of those of all its launches."""
    if path.name.startswith(_NODE_OWNER):
        return path.name[len(_NODE_OWNER) : -len(".json")]
    found = _owner(path)
    return "" if found is None else found.mark


def note_made(path: str | Path) -> None:
    """Say in this launch's TMPDIR what was made for it outside on this node, for who clears the node."""
    with contextlib.suppress(OSError, KeyError), (Path(os.environ["TMPDIR"]) / _MADE).open("a") as file:
        file.write(f"{path}\n")


def clear_node(path: Path) -> None:
    """End and remove what a launch has left on this node, by its owner file, which the caller holds.

    And what others left there whose owners have ended, of the same parent's launches and of any.
    """
    _clear_launch(path)
    for other in filter(_has_ended, path.parent.glob(f"{_NODE_OWNER}*.json")):
        _clear_launch(other)
    clean_leftovers()


def _clear_launch(path: Path) -> None:
    mark = mark_of_owner(path)
    processes.end_marked(mark)
    folder = path.parent / mark.rpartition(".")[2]
    remove_segments(_left_segments(folder, path))
    _remove_hydras(path)
    _remove_made(folder)
    # A launcher's daemon has no mark, and may put its files there while it ends, as Open MPI's does.
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(_AGAIN_S)
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()


def _remove_hydras(path: Path) -> None:
    """Remove the file by which a killed proxy of Hydra told ranks of the cores, just before they claimed the node.

    It lies outside of the launch's folders, since ssh passes no TMPDIR on. Ranks read it when they start.
    """
    with contextlib.suppress(OSError):
        claimed = path.stat().st_mtime
        for file in path.parents[2].glob("hydra_hwloc_xmlfile_*"):
            with contextlib.suppress(OSError):
                if is_ours(file) and -_HYDRA_S <= file.lstat().st_mtime - claimed <= _OWNER_LATE_S:
                    file.unlink()


def _remove_made(folder: Path) -> None:
    """Remove what a launch noted: its folder in shared memory."""
    for said in folder.glob(_MADE):
        with contextlib.suppress(OSError):
            for made in map(Path, said.read_text().splitlines()):
                known = made.name.startswith("linkgauge-") and made.parent in default_bases()
                if known and stat.S_ISDIR(made.lstat().st_mode) and made.lstat().st_uid == os.getuid():
                    shutil.rmtree(made, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class _Root:
    """A folder of this process' own; `held` is its owner file, open and locked, or -1."""

    path: Path
    held: int = -1


def _make_root(base: Path, mine: Owner) -> _Root:
    user = base / f"linkgauge-{os.getuid()}"
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
                return _Root(Path(tempfile.mkdtemp(prefix="linkgauge-", dir=base)))
            made = Path(tempfile.mkdtemp(prefix=f"{_NAMELESS}{mine.pid}-", dir=user))
            held = _write_owner(made / OWNER, mine)
            root = user / f"{mine.pid}"
            if root.exists() and not _is_left(root):  # of a process of another PID namespace that has this number too
                root = user / made.name.removeprefix(_NAMELESS)
            shutil.rmtree(root, ignore_errors=True)
            made.rename(root)
            return _Root(root, held)
    raise EnvironmentLackingError(f"'{user}' is removed as often as it is made: what else cleans up there?")


def _write_owner(path: Path, mine: Owner) -> int:
    """Write who owns a folder, and lock that as long as this process lives: the lock before the words."""
    held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: other PID namespaces then leave it alone
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(held, json.dumps(mine.plain()).encode())
    return held


def _remove_root(root: _Root) -> None:
    """Remove a folder that this process made: without its name first, so that nobody finds it half removed."""
    path = root.path
    with contextlib.suppress(OSError):
        path = path.rename(path.with_name(_NAMELESS + path.name))
    shutil.rmtree(path, ignore_errors=True)
    if root.held >= 0:
        os.close(root.held)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


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
        for root in filter(_is_left, roots):
            for path in _owner_files(root):
                if mark := mark_of_owner(path):
                    processes.end_marked(mark)
                remove_segments(_left_segments(root, path))
            for folder in root.glob("*/"):
                _remove_made(folder)
            shutil.rmtree(root, ignore_errors=True)
            removed.append(root)
        with contextlib.suppress(OSError):  # of other runs' folders
            user.rmdir()
    return removed


def _is_left(root: Path) -> bool:
    """Whether the processes that made a folder have ended, as far as that is sure."""
    owners = _owner_files(root)
    return all(map(_has_ended, owners)) if owners else not _is_in_hand(root)


def _owner_files(root: Path) -> list[Path]:
    """Who a folder is of: the parent, or on another node than the parent's those who clear its launches."""
    whole = root / OWNER
    if whole.exists():
        return [whole]
    try:
        return sorted(root.glob(f"{_NODE_OWNER}*.json"))
    except OSError:  # another process removes it
        return []


def _has_ended(path: Path) -> bool:
    maker = _owner(path)
    if maker is None:  # of a rank that has just begun, and holds it
        return (path.name != OWNER and _is_unlocked(path)) or not _is_in_hand(path.parent)
    lives = maker.lives()
    if lives is None and maker.is_of_this_machine():  # of another PID namespace
        return _is_unlocked(path)
    return lives is False


def _is_unlocked(path: Path) -> bool:
    """Whether nobody holds a file's lock; where that cannot be told, somebody may."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _is_in_hand(root: Path) -> bool:
    """Whether a folder without an owner may be one that is just being made or removed, by the process in its name."""
    by = re.match(rf"(?:{re.escape(_NAMELESS)})?(\d{{1,9}})(?:-|$)", root.name)
    if by is not None and processes.state_of(int(by[1])) in ("", "Z"):
        return False
    try:
        return time.time() - root.lstat().st_mtime < _YOUNG_S
    except OSError:  # it was
        return True


def _left_segments(root: Path, owned: Path) -> set[str]:
    """What a dead parent had noted of its ranks' segments, what they said, and what they died too early to say.

    `owned`: its owner file, which is as old as its first.
    """
    found = set(noted_segments(root / _SEGMENTS))
    with contextlib.suppress(OSError):
        found |= unsaid_segments(owned.stat().st_mtime - _OWNER_LATE_S)
    with contextlib.suppress(OSError):  # of a run that is just removing its own folder
        found |= {name for path in root.rglob("evidence/segments-*.json") for name in noted_segments(path)}
    return found


def _owner(path: Path) -> Owner | None:
    try:
        return Owner.of_plain(read_json(path, 1 << 16, "a folder's owner", owner.SHAPE))
    except UsageError:
        return None
