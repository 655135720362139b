"""Looks at a node's health take turns: the second waits, at most as long as it may."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

import pytest

from linkgauge.run.parent.one_look import one_look, place_of
from patience import PATIENCE_S


def test_a_second_look_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    place, said = tmp_path / "lock", list[str]()
    first, waiting, got = contextlib.ExitStack(), threading.Event(), list[bool]()
    assert first.enter_context(one_look(0.0, said.append, place, lambda: 1.0))

    def second() -> None:
        def note(text: str) -> None:
            said.append(text)
            waiting.set()

        with one_look(100.0, note, place, lambda: 1.0) as alone:  # its clock stands: only the lock ends the wait
            got.append(alone)

    thread = threading.Thread(target=second)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    assert got == []
    first.close()
    thread.join(PATIENCE_S)
    assert got == [True]
    assert said == ["another look runs on this machine: waiting at most 99 s"]


def test_a_look_that_waited_too_long_is_not_alone(tmp_path: Path) -> None:
    clock = iter([0.0, 20.0, 31.0])
    with one_look(30.0, print, tmp_path / "lock") as alone:
        assert alone
        with one_look(30.0, lambda _: None, tmp_path / "lock", lambda: next(clock)) as other:
            assert not other


def test_where_no_lock_can_be_made_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for place in (tmp_path / "none" / "lock", tmp_path / "link"):
        with one_look(0.0, print, place) as alone:
            assert alone
    assert not (tmp_path / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root")
def test_no_other_user_can_hold_a_users_look(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    lock, theirs = tmp_path / "lock", tmp_path / "theirs"
    theirs.touch(0o600)
    os.chown(theirs, 65534, 65534)
    with contextlib.closing(open(theirs)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with one_look(0.0, print, theirs) as alone:
            assert alone
    with one_look(0.0, print, lock) as alone:
        assert alone
        assert lock.stat().st_mode & 0o777 == 0o600
    assert place_of(0).parent == Path("/run")  # where nobody else makes a file of its name first
    assert place_of(1000) != place_of(1001)


def test_a_file_that_others_can_open_holds_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(0o600)
    lock.chmod(0o644)
    with contextlib.closing(open(lock)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with one_look(0.0, print, lock) as alone:
            assert alone
