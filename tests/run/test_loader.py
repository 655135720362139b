"""Which libraries the loader would find, without loading them and without a program that looks for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from linkgauge.run.machine import transports


@pytest.fixture(autouse=True)
def no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **_: pytest.fail(f"started {words}"))
    monkeypatch.setattr(transports, "_LOADER_FOLDERS", (tmp_path / "usual",))
    monkeypatch.setattr(transports, "_LOADER_CACHE", tmp_path / "cache")


def test_a_library_is_found_in_the_loaders_cache_by_its_whole_name(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"glibc-ld.so.cache1.1\0/opt/lib/libnccl.so.2\0/usr/lib/libmyucp.so.0\0")
    names = ("libnccl.so.2", "libnccl.so", "libnccl.so.3", "libucp.so.0")
    assert [transports._loads(name) for name in names] == [True, False, False, False]


def test_without_a_cache_it_is_found_where_the_loader_always_looks(tmp_path: Path) -> None:
    assert not transports._loads("libucp.so.0")
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "libucp.so.0").touch()
    assert transports._loads("libucp.so.0")


def test_the_loaders_own_cache_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert transports._loads("libc.so.6")
    assert not transports._loads("libno_such_thing.so.6")
