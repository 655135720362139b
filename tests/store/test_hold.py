"""A run folder is measured into by one process, whatever locks its file system has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkgauge.errors import UsageError
from linkgauge.owner import Owner
from linkgauge.store import hold
from linkgauge.store.folder import RunFolder
from patience import PATIENCE_S
from thorough import most

# A file system that refuses: of NFS flock on what is not open for writing, of others every lock; or keeps locks local.
HOLDS = """
import errno, fcntl, os, sys
from linkgauge.store import hold
from linkgauge.store.folder import RunFolder
refuses, number = sys.argv[2], getattr(errno, sys.argv[3])
flock, real = fcntl.flock, fcntl.fcntl
def refused_flock(file, what):
    writes = real(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    if refuses != "read" or not writes:
        raise OSError(number, os.strerror(number))
    return flock(file, what)
def refused_fcntl(file, what, *more):
    if refuses == "all" and what in (fcntl.F_SETLK, fcntl.F_OFD_SETLK):
        raise OSError(number, os.strerror(number))
    return real(file, what, *more)
if refuses == "local":
    hold._locks_are_local = lambda file: True
else:
    fcntl.flock, fcntl.fcntl = refused_flock, refused_fcntl
folder = RunFolder.open(sys.argv[1])
folder.hold()
print("held", flush=True)
sys.stdin.read()
"""
FILE_SYSTEMS = [
    ("read", "EBADF"), ("flock", "ENOLCK"), ("flock", "EOPNOTSUPP"), ("flock", "ENOSYS"), ("all", "ENOLCK"),
    ("all", "EOPNOTSUPP"), ("all", "ENOSYS"), ("all", "EINVAL"), ("local", "ENOLCK"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RunFolder.create(tmp_path / "run", {"seed": 1})
    return tmp_path / "run"


def holds(folder: Path, kind: tuple[str, str]) -> tuple[subprocess.Popen[str], str]:
    """A process that holds a folder on such a file system until its input ends, and what it said: held, or why not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder), *kind], stdin=subprocess.PIPE, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    return process, said or process.communicate(timeout=PATIENCE_S)[1].splitlines()[-1]


@pytest.mark.parametrize("kind", most(FILE_SYSTEMS, FILE_SYSTEMS[:1]), ids=" ".join)
def test_of_two_processes_one_holds_a_folder_and_a_dead_ones_is_free(folder: Path, kind: tuple[str, str]) -> None:
    empty = sorted(path.name for path in folder.iterdir())
    first, said = holds(folder, kind)
    assert said == "held"
    second, refused = holds(folder, kind)
    assert second.returncode != 0
    assert "is being measured by another process" in refused
    assert f"process {first.pid}" in refused
    first.kill()
    first.communicate(timeout=PATIENCE_S)
    third, said = holds(folder, kind)
    assert said == "held"
    third.communicate(timeout=PATIENCE_S)
    assert sorted(path.name for path in folder.iterdir()) == empty


@pytest.mark.parametrize("kinds", most([("all", "read"), ("read", "all")], [("all", "read")]), ids=" ".join)
def test_a_mount_with_locks_and_one_without_see_each_other(folder: Path, kinds: tuple[str, str]) -> None:
    """As two machines may have mounted one file system."""
    first, said = holds(folder, (kinds[0], "ENOSYS"))
    assert said == "held"
    second, refused = holds(folder, (kinds[1], "ENOSYS"))
    assert "is being measured by another process" in refused
    first.communicate(timeout=PATIENCE_S)
    assert second.returncode != 0
    third, said = holds(folder, (kinds[1], "ENOSYS"))
    assert said == "held"
    third.communicate(timeout=PATIENCE_S)


def refuse_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "_locked", lambda file: False)


@pytest.mark.parametrize("where", ["machine", "namespace"])
def test_a_holder_that_cannot_be_seen_is_not_taken_for_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    refuse_locks(monkeypatch)
    mine = Owner.this_process().plain()
    other = {"machine": {"boot": "another", "host": "node7"}, "namespace": {"namespace": 1}}[where]
    path = folder / hold.MADE
    path.write_text(json.dumps({**mine, "pid": 1 << 22, **other}))
    with pytest.raises(UsageError, match=f"once that process has ended, remove {path}") as caught:
        RunFolder.open(folder).hold()
    assert "\n" not in str(caught.value)
    path.unlink()
    held = RunFolder.open(folder)
    held.hold()
    held.hold()


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]"])
def test_a_file_that_is_not_whole_is_somebodys(folder: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    refuse_locks(monkeypatch)
    (folder / hold.MADE).write_text(content)
    with pytest.raises(UsageError, match="held by another process"):
        RunFolder.open(folder).hold()


def test_of_several_that_see_a_holder_dead_one_takes_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_locks(monkeypatch)
    ended = {**Owner.this_process().plain(), "pid": 1 << 22}
    (folder / hold.MADE).write_text(json.dumps(ended))
    (folder / ".held-over").touch()  # another is at it
    with pytest.raises(UsageError, match="is being taken over"):
        RunFolder.open(folder).hold()
    (folder / ".held-over").unlink()
    real = hold._holder
    seen: list[Any] = []

    def another_was_faster(path: Path) -> Owner | None:
        found = real(path)
        if not seen:  # between this one's look and its claim
            (folder / hold.MADE).write_text(json.dumps(Owner.this_process().plain()))
        seen.append(found)
        return found

    monkeypatch.setattr(hold, "_holder", another_was_faster)
    with pytest.raises(UsageError, match="is being measured"):
        RunFolder.open(folder).hold()
    assert len(seen) == 3
