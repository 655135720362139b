"""Private folders stay where other runs of the user start and end at the same moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from linkgauge.errors import EnvironmentLackingError
from linkgauge.files import temporary_folder
from linkgauge.run.machine import private_folder
from linkgauge.run.machine.private_folder import PrivateFolders, clean_leftovers
from linkgauge.run.rank import node_survivor
from patience import PATIENCE_S
from thorough import thorough

BUSY = """
import sys, time
from pathlib import Path
from linkgauge.run.machine.private_folder import PrivateFolders, clean_leftovers
bases = [Path(sys.argv[1])]
until = time.monotonic() + 2.0
while time.monotonic() < until:
    clean_leftovers(bases)
    folders = PrivateFolders(bases)
    assert (folders.launch(0).temporary).is_dir()
    folders.close()
"""


def test_a_folder_in_the_making_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tempfile.mkdtemp
    made = []

    def then_cleaned(*words: Any, **more: Any) -> str:
        made.append(real(*words, **more))
        clean_leftovers([tmp_path])  # another run starts before this one's owner is written
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", then_cleaned)
    folders = PrivateFolders([tmp_path])
    assert made
    assert [path.name for path in folders.temporary.parent.iterdir()] == [str(os.getpid())]
    assert clean_leftovers([tmp_path]) == []
    folders.close()
    assert list(tmp_path.iterdir()) == []


def test_a_node_is_cleared_though_a_launchers_daemon_still_writes_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / f"linkgauge-{os.getuid()}" / "66"
    (root / "0" / "session").mkdir(parents=True)
    owner = private_folder.node_owner_file(root / "0", "nobody.0")
    owner.write_text("")
    real, removed = shutil.rmtree, []

    def and_written_again(folder: Path, **more: Any) -> None:
        real(folder, **more)
        removed.append(folder)
        if len(removed) < 3:
            (folder / "session").mkdir(parents=True)

    monkeypatch.setattr(shutil, "rmtree", and_written_again)
    monkeypatch.setattr(private_folder, "_AGAIN_S", 0.0)
    monkeypatch.setattr(private_folder, "clean_leftovers", list)
    private_folder.clear_node(owner)
    assert removed == [root / "0"] * 3
    assert list(tmp_path.iterdir()) == []


def test_a_process_whose_own_folder_is_gone_finds_where_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A rank that clears a node: its launcher began it in the folder that it removes.
    gone = tmp_path / "launch"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder() == str(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_what_a_process_that_died_was_making_or_removing_is_a_leftover(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    user = tmp_path / f"linkgauge-{os.getuid()}"
    user.mkdir(mode=0o700)
    for name in (".new-{}", ".new-{}-abc", "{}"):
        for pid in (ended.pid, os.getpid()):
            (user / name.format(pid)).mkdir()
    removed = clean_leftovers([tmp_path])
    assert {path.name for path in removed} == {name.format(ended.pid) for name in (".new-{}", ".new-{}-abc", "{}")}
    assert len(list(user.iterdir())) == 3


def test_the_users_folder_may_go_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tempfile.mkdtemp
    calls = []

    def removed(*words: Any, **more: Any) -> str:
        calls.append(1)
        if len(calls) < 4:
            Path(more["dir"]).rmdir()  # another run ended
        return real(*words, **more)

    monkeypatch.setattr(tempfile, "mkdtemp", removed)
    folders = PrivateFolders([tmp_path])
    assert folders.temporary.is_dir()
    folders.close()
    calls.clear()
    monkeypatch.setattr(private_folder, "_ATTEMPTS", 3)
    with pytest.raises(EnvironmentLackingError, match="is removed as often as it is made"):
        PrivateFolders([tmp_path])


def test_what_a_process_left_in_the_making_goes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = PrivateFolders([tmp_path])
    left = folders.temporary.parent / f"{private_folder._NAMELESS}abc"
    left.mkdir()
    assert clean_leftovers([tmp_path]) == []
    monkeypatch.setattr(private_folder, "_YOUNG_S", -1.0)
    assert clean_leftovers([tmp_path]) == [left]
    assert folders.temporary.is_dir()


@thorough("a private folder of one run is tested here")
def test_runs_that_start_and_end_beside_each_other_keep_theirs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    said = [one.communicate(timeout=PATIENCE_S)[1] for one in started]
    assert [one.returncode for one in started] == [0] * 4, said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_launchs_is_not_claimed(tmp_path: Path) -> None:
    """Slurm sets TMPDIR to /tmp on a node that lacks the launch's folder; nothing is written beside it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    node_survivor.claim(folder, "1.2.3.0")
    assert list(tmp_path.iterdir()) == [folder]
    node_survivor.claim(Path("/"), "1.2.3.0")
    assert list(Path("/").glob("owner-1.2.3.0*")) == []
