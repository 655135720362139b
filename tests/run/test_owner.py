"""Runs in PID namespaces that share temporary folders leave each other's live ones alone, and clean dead ones."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from linkgauge import owner
from linkgauge.owner import Owner
from linkgauge.run.machine import private_folder, processes, segments
from linkgauge.run.machine.private_folder import PrivateFolders, clean_leftovers
from patience import PATIENCE_S

HOLDS = """
import os, sys
from pathlib import Path
from linkgauge.run.machine.private_folder import PrivateFolders
folders = PrivateFolders([Path(sys.argv[1])])
print(os.getpid(), folders.temporary, flush=True)
sys.stdin.read()
folders.close()
"""
CLEANS = """
import sys
from pathlib import Path
from linkgauge.run.machine.private_folder import clean_leftovers
print(*clean_leftovers([Path(sys.argv[1])]))
"""
HERE: tuple[str, ...] = ()
INSIDE = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child")
WAYS = {"own /proc": (*INSIDE, "--mount-proc"), "the other's /proc": INSIDE}


def namespaces_may_be_made() -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([*WAYS["own /proc"], "true"], capture_output=True, timeout=PATIENCE_S, check=False)
        return done.returncode == 0
    return False


namespaces = pytest.mark.skipif(not namespaces_may_be_made(), reason="no PID namespaces may be made here")


def command(way: Sequence[str], script: str, base: Path) -> list[str]:
    return [*way, sys.executable, "-c", script, str(base)]


@contextlib.contextmanager
def holder(way: Sequence[str], base: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A parent that holds folders below `base`, its process id as it sees it, and its folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command(way, HOLDS, base), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=environment, start_new_session=True)  # fmt: skip
    try:
        assert process.stdout is not None
        pid, path = process.stdout.readline().split()
        yield process, int(pid), Path(path)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate(timeout=PATIENCE_S)


def cleaned(way: Sequence[str], base: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command(way, CLEANS, base), capture_output=True, text=True, timeout=PATIENCE_S,
                          env=environment,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@namespaces
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_a_live_run_of_another_pid_namespace_keeps_its_folder_and_a_dead_ones_goes(
    tmp_path: Path, way: Sequence[str], inside: bool
) -> None:
    its, other = (way, HERE) if inside else (HERE, way)
    with holder(its, tmp_path) as (process, pid, folder):
        assert cleaned(other, tmp_path) == ""
        assert folder.is_dir()
        stored = Owner.of_plain(json.loads((folder / private_folder.OWNER).read_text()))
        assert stored.pid == pid
        if inside:
            assert stored.lives() is None
        os.killpg(process.pid, 9)
        process.wait(PATIENCE_S)
        end = time.monotonic() + PATIENCE_S
        while not (told := cleaned(other, tmp_path)) and time.monotonic() < end:
            time.sleep(0.1)  # unshare dies before what it has started
        assert told == str(folder)
    assert list(tmp_path.iterdir()) == []


@namespaces
def test_two_parents_of_one_number_have_a_folder_each(tmp_path: Path) -> None:
    with (
        holder(WAYS["own /proc"], tmp_path) as (_, first, one),
        holder(WAYS["own /proc"], tmp_path) as (_, second, two),
    ):
        assert first == second  # of its own namespace each
        assert one != two
        assert one.is_dir()
        assert two.is_dir()
        assert cleaned(WAYS["own /proc"], tmp_path) == ""


def test_no_process_is_looked_for_by_numbers_of_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.getppid() in processes.own_processes()
    monkeypatch.setattr(processes, "sees_itself", lambda: False)
    assert processes.own_processes() == []


def test_what_is_known_of_an_owner() -> None:
    mine = Owner.this_process()
    assert mine.lives()
    assert Owner.of_plain({**mine.plain(), "more": 1}) == mine
    assert Owner(mine.pid, mine.start_time).lives()  # as older versions have stored it
    assert owner.SHAPE({"pid": 1, "start_time": 2}, "") == {"pid": 1, "start_time": 2}
    changed = dataclasses.replace
    for other, lives in (
        (changed(mine, start_time=mine.start_time + 1), False),
        (changed(mine, pid=1 << 22), False),
        (changed(mine, boot="before"), False),
        (changed(mine, boot="there", host="node7"), None),
        (changed(mine, namespace=mine.namespace + 1), None),
    ):
        assert other.lives() is lives
    assert changed(mine, namespace=1).mark != mine.mark


def test_without_proc_no_live_owner_is_taken_for_an_ended_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither by a process that has no /proc, nor of one that had none."""
    mine = Owner.this_process()
    with monkeypatch.context() as without:
        without.setattr(owner, "kernel_data", lambda *_: b"")
        without.setattr(owner, "kernel_text", lambda *_: "")
        without.setattr(owner, "_namespace", lambda: 0)
        without.setattr(owner, "sees_itself", lambda: False)
        blind = Owner.this_process()
        assert blind.lives() is None
        assert mine.lives() is None
        folders = PrivateFolders([tmp_path])
        assert clean_leftovers([tmp_path]) == []
        folders.close()
    assert blind.lives() is None
    assert mine.lives()


def test_a_folder_of_another_machine_is_left_alone_and_one_of_an_earlier_boot_goes(tmp_path: Path) -> None:
    mine = Owner.this_process().plain()
    user = tmp_path / f"linkgauge-{os.getuid()}"
    for number, more in ((1, {"boot": "there", "host": "node7"}), (2, {"boot": "before"}), (3, {"pid": 1 << 22})):
        (user / f"{number}").mkdir(mode=0o700, parents=True)
        (user / f"{number}" / private_folder.OWNER).write_text(json.dumps({**mine, **more}))
    assert sorted(path.name for path in clean_leftovers([tmp_path])) == ["2", "3"]


def segment(word: str) -> Path:
    return Path(f"/dev/shm/mpich_shm_{os.getpid()}_{word}")


def test_segments_go_after_a_launch_that_ended_well_though_nothing_could_be_noted(tmp_path: Path) -> None:
    """As where the temporary folder is full, or where shared memory has no room for what a library makes there."""
    folders = PrivateFolders([tmp_path])
    (folders.temporary / private_folder._SEGMENTS).mkdir()  # cannot be written
    before, noted, unsaid, used = (segment(word) for word in ("before", "noted", "unsaid", "used"))
    before.write_text("x")
    os.utime(before, (0, 0))
    launch = folders.launch(0)
    for path in (noted, unsaid, used):
        path.write_text("x" * 4096)
    os.utime(noted, (0, 0))  # which its library made for all runs
    with used.open("r+b") as file:
        held = mmap.mmap(file.fileno(), 0)
    try:
        folders.note_segments([noted])
        assert not private_folder._is_unlocked(folders.temporary / private_folder.OWNER)
        folders.remove_launch(launch)
        assert [path.exists() for path in (before, noted, unsaid, used)] == [True, False, False, True]
    finally:
        held.close()
        folders.close()
        for path in (before, noted, unsaid, used):
            path.unlink(missing_ok=True)
    assert list(tmp_path.iterdir()) == []


def test_whether_a_segment_is_in_use_is_asked_of_maps_where_the_kernel_gives_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = fcntl.fcntl

    def without(file: int, what: int, *more: int) -> int:
        if what == fcntl.F_SETLEASE:
            raise OSError(22, "no leases")
        return real(file, what, *more)

    monkeypatch.setattr(fcntl, "fcntl", without)
    used, unused = segment("used"), segment("unused")
    # Mapped as soon as it is there: a run of another test removes what nobody uses.
    script = (
        "import mmap, sys; f = open(sys.argv[1], 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 0); "
        "print(1, flush=True); input()"
    )
    user = subprocess.Popen([sys.executable, "-c", script, str(used)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert user.stdout is not None
        user.stdout.readline()
        unused.write_text("x" * 4096)
        segments.remove_segments([str(used), str(unused), "/etc/passwd"])
        assert [path.exists() for path in (used, unused, Path("/etc/passwd"))] == [True, False, True]
    finally:
        user.communicate(b"\n")
        for path in (used, unused):
            path.unlink(missing_ok=True)
