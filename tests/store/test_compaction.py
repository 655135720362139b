"""A compaction that is killed at any step, or finds the disk full, loses no row and doubles none; format 1 goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linkgauge
from linkgauge.errors import DamagedRunWarning, EnvironmentLackingError, RunFolderError
from linkgauge.store import schema
from linkgauge.store.compaction import LOST
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter, read_journal
from store.test_folder import OBSERVED, SKIPPED, content
from synthetic import make_case, make_run
from thorough import most, thorough

CASES = [make_case("mpi", "pingpong", 8), make_case("staging", "allreduce", 4096)]
FORMAT_1 = Path(__file__).parent / "format_1"
"""Written by a store of format 1, whose parent was killed: launch 0 is compacted, of launch 1 the samples alone, and
launch 2 is in its journal."""
STEPS = (
    "replace",
    "unlink",
    "fsync",
    "write",
    "mkdir",
    "ftruncate",
)  # of os: all that changes a disk but Arrow's writes


class Killed(BaseException):
    """The process is gone: nothing that it would still have done is done."""


@contextlib.contextmanager
def interrupted(at: int, how: str) -> Iterator[list[int]]:
    """Stop the process at its step `at`: `killed` before it, in the midst of it (`torn`), or the disk is `full` once.

    Gives a list whose one number counts the steps that are left until then.
    """
    left = [at]

    def stopping(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **keywords: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0 or (how == "full" and left[0] < -1):
                return real(*arguments, **keywords)
            if how == "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if how == "torn" and left[0] == -1 and name == "write":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            raise Killed

        return step

    with contextlib.ExitStack() as stack:
        for name in STEPS:
            stack.enter_context(mock.patch.object(os, name, stopping(name, getattr(os, name))))
        yield left


def compacted(path: Path, finish: bool, at: int, how: str) -> bool:
    """Compact a folder, interrupted at a step; whether it came to its end."""
    folder = RunFolder.open(path)
    with interrupted(at, how):
        try:
            folder.compact(finish)
        except (Killed, EnvironmentLackingError):
            return False
        finally:
            with contextlib.suppress(Killed):
                folder.close()
    return True


def check_files(path: Path) -> None:
    """After the end: no file but those of the format, and in them, read by another program, each sample once."""
    ended = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    ended -= {name for name in ended if name.startswith(".run.json.")}  # a killed writer of run.json leaves one
    launches = {f"{name}/launch-{launch:05d}.parquet" for name in schema.BY_LAUNCH for launch in range(3)}
    known = {"run.json", "cases.parquet", "launches.parquet", *(f"{name}.parquet" for name in schema.BY_LAUNCH)}
    assert ended <= launches | known
    files = [*(path / "samples").glob("*.parquet"), *path.glob("samples.parquet")]
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    names = (*schema.IDENTITY, "rank", "lane", "sample", "phase")
    assert len({tuple(row[name] for name in names) for row in rows}) == len(rows)
    assert len(rows) == linkgauge.load(path).samples.num_rows


@pytest.fixture(scope="module", autouse=True)
def no_waits_for_the_disk() -> Iterator[None]:
    """What a process leaves that is killed does not depend on them, and they take most of these tests' time."""
    with mock.patch.object(os, "fsync", return_value=None):
        yield


@pytest.fixture(scope="module")
def in_progress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in_progress") / "run"
    return make_run(path, cases=CASES, samples=6, repeats=2, skipped=SKIPPED, observations=OBSERVED, compact=False)


@pytest.mark.parametrize("format_1", [False, pytest.param(True, marks=thorough("the same steps of an older format"))])
def test_a_compaction_may_be_killed_before_each_of_its_steps(in_progress: Path, tmp_path: Path, format_1: bool) -> None:
    source = FORMAT_1 if format_1 else in_progress
    whole = content(source)
    for at in range(0, 1000, most(1, 3)):
        path = tmp_path / f"killed{at}"
        shutil.copytree(source, path)
        ended = compacted(path, True, at, "killed")
        assert content(path) == whole, at
        RunFolder.open(path).compact(finish=True)
        assert content(path) == whole, at
        check_files(path)
        shutil.rmtree(path)
        if ended:
            break
    assert at > 20


@thorough("one is stopped before each of its steps below")
@settings(deadline=None, max_examples=most(150, 25))
@given(
    st.booleans(),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 45), st.sampled_from(["killed", "torn", "full"])),
        min_size=1,
        max_size=4,
    ),
)
def test_of_compactions_stopped_again_and_again_all_rows_are_there_once(
    in_progress: Path, format_1: bool, stops: list[tuple[bool, int, str]]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "run"
        shutil.copytree(FORMAT_1 if format_1 else in_progress, path)
        whole = content(path)
        for finish, at, how in stops:
            compacted(path, finish, at, how)
            assert content(path) == whole
        RunFolder.open(path).compact(finish=True)
        assert content(path) == whole
        check_files(path)


def test_a_file_of_a_launch_is_never_written_again(in_progress: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(in_progress, path)
    later = (path / "journal" / "launch-00001.lgj").read_bytes()
    (path / "journal" / "launch-00001.lgj").unlink()
    folder = RunFolder.open(path)
    folder.compact()
    assert not (path / "cases.parquet").exists()
    first = {file: file.stat() for file in path.rglob("launch-*")}
    assert {file.parent.name for file in first} == set(schema.BY_LAUNCH)
    lost = tmp_path / "lost"
    shutil.copytree(path, lost)
    (lost / "samples" / "launch-00000.parquet").unlink()
    fix = "copy the whole folder again"
    with pytest.raises(RunFolderError, match=rf"samples/launch-00000\.parquet is missing or not of this run.*{fix}"):
        _ = linkgauge.load(lost).samples
    (path / "journal" / "launch-00001.lgj").write_bytes(later)
    folder.compact(finish=True)
    assert {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in first} == {
        file: (before.st_ino, before.st_mtime_ns) for file, before in first.items()
    }
    assert content(path) == content(in_progress)


def test_of_a_damaged_journal_what_is_whole_is_moved_and_the_rest_stays_beside_it(
    in_progress: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(in_progress, path)
    journal = path / "journal" / "launch-00000.lgj"
    records = list(read_journal(journal))
    at = next(before.end_offset for before, record in pairwise(records) if record.kind == "case") + 30
    journal.write_bytes(flipped(journal.read_bytes(), at))
    RunFolder.open(path).compact(finish=True)
    assert sorted(file.name for file in (path / "samples").iterdir()) == [
        "launch-00000.parquet",
        "launch-00001.parquet",
    ]
    assert {file.name for file in (path / "journal").iterdir()} == {"launch-00000.damaged"}
    (said,) = json.loads((path / "run.json").read_text())["damaged"]
    assert str(journal) in said
    RunFolder.open(path).clear_unfinished()
    assert (path / "journal" / "launch-00000.damaged").exists()
    before = content(in_progress)
    with pytest.warns(DamagedRunWarning, match="1 case lost"):
        after = content(path)
    assert len(after["cases"]) == len(before["cases"])
    (lost,) = [row for row in after["cases"] if row["reason"] == LOST]
    identity = [lost[name] for name in schema.IDENTITY]
    others = [row for row in before["samples"] if [row[name] for name in schema.IDENTITY] != identity]
    assert after["samples"] == others


def flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_a_folder_of_format_1_is_read_and_goes_on_beside_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(FORMAT_1, path)
    before = content(path)
    assert [len(before[name]) for name in schema.TABLES] == [3, 7, 216, 6]
    assert sum(row["ns"] for row in before["samples"]) == 7_643_139
    old = {name: (path / f"{name}.parquet").read_bytes() for name in schema.BY_LAUNCH}
    folder = RunFolder.open(path)
    assert json.loads((path / "run.json").read_text())["format_version"] == 1  # reading changes nothing
    case = CASES[0]
    told = {"case_key": case.case_key, "launch": 3, "repeat": 3, "attempt": 0, "case": case.dimensions()}
    with JournalWriter(folder.journal_path(3)) as journal:
        journal.append("launch", {"launch": 3, "launch_key": "k"})
        journal.append("case", told)
        journal.append("observations", told | {"rows": OBSERVED})
    folder.status_journal().append("status", told | {"status": "ok"})
    folder.compact(finish=True)
    assert json.loads((path / "run.json").read_text())["format_version"] == schema.FORMAT_VERSION
    assert {name: (path / f"{name}.parquet").read_bytes() for name in old} == old
    # Launch 1's samples were in the old file, its observations were not.
    assert {name: sorted(file.name for file in (path / name).iterdir()) for name in old} == {
        "samples": ["launch-00002.parquet", "launch-00003.parquet"],
        "observations": [f"launch-{launch:05d}.parquet" for launch in (1, 2, 3)],
    }
    after = content(path)
    assert after["samples"] == before["samples"]
    assert [len(after[name]) for name in schema.TABLES] == [4, 8, 216, 7]


def test_a_linkgauge_that_writes_format_1_refuses_what_was_begun_with_this_one(
    in_progress: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "FORMAT_VERSION", 1)
    with pytest.raises(
        RunFolderError,
        match="format 4, newer than 1, which this Linkgauge reads: install a newer",
    ):
        linkgauge.load(in_progress)
