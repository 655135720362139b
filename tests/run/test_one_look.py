"""Looks at a node's health take turns: the second waits, at most as long as it may."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from linkgauge.run.parent.one_look import holder, one_look
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
    (line,) = said
    assert line.startswith(f"pid {os.getpid()} (")
    assert line.endswith(f") holds {place}: waiting at most 99 s")
    assert holder(place) == "another look"  # nobody


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
def test_a_users_look_waits_for_that_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    monkeypatch.chdir(tmp_path)  # a user may not enter the folders above
    lock = Path("lock")
    with one_look(0.0, print, lock) as alone:
        assert alone
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            with one_look(0.0, lambda _: None, lock) as other:
                os._exit(0 if not other else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
