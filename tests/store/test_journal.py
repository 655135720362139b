"""The journal: what is written comes back, and what is torn or damaged is told apart."""

from __future__ import annotations

import json
import os
import resource
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.errors import EnvironmentLackingError, RunFolderError
from linkgauge.store import journal, run
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalDamage, JournalUnwritableError, JournalWriter, read_journal
from synthetic import make_case, make_run
from thorough import thorough


def write_three(path: Path) -> list[int]:
    with JournalWriter(path) as journal:
        return [
            journal.append("launch", {"launch": 0, "host": "ä"}, durable=False),
            journal.append("case", {"n": 1}, {"ns": np.arange(5, dtype=np.int64), "phase": np.zeros(5, np.uint8)}),
            journal.append("end", {"launch": 0}),
        ]


def test_records_come_back(tmp_path: Path) -> None:
    ends = write_three(tmp_path / "j")
    records = list(read_journal(tmp_path / "j"))
    assert [record.kind for record in records] == ["launch", "case", "end"]
    assert [record.end_offset for record in records] == ends
    assert records[0].header == {"launch": 0, "host": "ä"}
    assert records[1].columns["ns"].tolist() == [0, 1, 2, 3, 4]
    assert records[1].columns["phase"].dtype == np.uint8
    assert [record.kind for record in read_journal(tmp_path / "j", ends[0])] == ["case", "end"]


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8),
            st.dictionaries(
                st.text(max_size=5),
                st.integers(-(2**70), 2**70) | st.text(max_size=9) | st.none() | st.booleans(),
                max_size=4,
            ),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
        ),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_records_come_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, dict[str, object], list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    with JournalWriter(path) as journal:
        for kind, header, numbers in records:
            journal.append(kind, header, {"ns": np.array(numbers, np.int64)}, durable=False)
    read = [(record.kind, record.header, record.columns["ns"].tolist()) for record in read_journal(path)]
    assert read == records


def test_every_torn_tail_keeps_the_records_before_it(tmp_path: Path) -> None:
    ends = write_three(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    for length in range(len(content)):
        path = tmp_path / "torn"
        path.write_bytes(content[:length])
        assert len(list(read_journal(path))) == sum(end <= length for end in ends), length


def test_a_tail_of_zeros_or_rubbish_is_torn(tmp_path: Path) -> None:
    ends = write_three(tmp_path / "j")
    content = (tmp_path / "j").read_bytes()
    for tail in (b"\0" * 5000, os.urandom(300), content[ends[1] :][:-1] + b"\0"):
        (tmp_path / "j").write_bytes(content[: ends[1]] + tail)
        assert len(list(read_journal(tmp_path / "j"))) == 2


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    ends = write_three(tmp_path / "j")
    content = (tmp_path / "j").read_bytes()
    whole = [(record.kind, record.header) for record in read_journal(tmp_path / "j")]
    for at in range(ends[1]):
        damaged = bytearray(content)
        damaged[at] ^= 0x40
        (tmp_path / "j").write_bytes(bytes(damaged))
        seen: list[tuple[str, dict[str, object]]] = []
        with pytest.raises(JournalDamage) as caught:
            seen.extend((record.kind, record.header) for record in read_journal(tmp_path / "j"))
        assert seen == whole[: sum(end <= at for end in ends)]
        assert caught.value.offset == (0 if at < ends[0] else ends[0])
        assert "\n" not in str(caught.value)


def test_a_damaged_byte_costs_its_record_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ends = write_three(path)
    content = path.read_bytes()
    whole = [(record.kind, record.end_offset) for record in read_journal(path)]
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :])
        damaged: list[JournalDamage] = []
        found = [(record.kind, record.end_offset) for record in read_journal(path, damaged=damaged)]
        hit = sum(end <= at for end in ends)
        assert found == whole[:hit] + whole[hit + 1 :]
        assert [(one.offset, one.end) for one in damaged] == [([0, *ends][hit], ends[hit])]
        with JournalWriter(path) as journal:
            journal.append("case", {"n": 9})
        kept = whole[:hit] + whole[hit + 1 :]
        assert [record.kind for record in read_journal(path, damaged=[])] == [*(kind for kind, _ in kept), "case"]


def test_what_lies_within_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    write_three(tmp_path / "inner")
    inner = np.frombuffer((tmp_path / "inner").read_bytes(), np.uint8)
    with JournalWriter(tmp_path / "j") as journal:
        first = journal.append("begin", {"n": 0})
        end = journal.append("case", {"n": 1}, {"ns": inner})
        journal.append("end", {"n": 2})
    content = bytearray((tmp_path / "j").read_bytes())
    content[end - 6] ^= 1
    (tmp_path / "j").write_bytes(content)
    damaged: list[JournalDamage] = []
    assert [one.kind for one in read_journal(tmp_path / "j", damaged=damaged)] == ["begin", "end"]
    assert [(one.offset, one.end) for one in damaged] == [(first, end)]


def test_a_record_that_is_being_written_is_no_damage(tmp_path: Path) -> None:
    ends = write_three(tmp_path / "j")
    content = (tmp_path / "j").read_bytes()
    for length in range(len(content)):
        (tmp_path / "j").write_bytes(content[:length])
        damaged: list[JournalDamage] = []
        assert len(list(read_journal(tmp_path / "j", damaged=damaged))) == sum(end <= length for end in ends)
        assert damaged == []


def test_a_journal_is_continued_after_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ends = write_three(path)
    path.write_bytes(path.read_bytes()[:-3])
    with JournalWriter(path) as journal:
        journal.append("case", {"n": 2})
    assert [record.kind for record in read_journal(path)] == ["launch", "case", "case"]
    assert path.stat().st_size > ends[1]


def test_a_reader_follows_a_growing_journal(tmp_path: Path) -> None:
    offset = 0
    seen = []
    with JournalWriter(tmp_path / "j") as journal:
        for number in range(20):
            journal.append("case", {"n": number}, durable=False)
            for record in read_journal(tmp_path / "j", offset):
                seen.append(record.header["n"])
                offset = record.end_offset
    assert seen == list(range(20))


def test_a_full_disk_leaves_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    journal = JournalWriter(path)
    journal.append("case", {"n": 0})
    real = os.write
    room = [10]

    def full(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        written = real(descriptor, bytes(data[: room[0]]))
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(EnvironmentLackingError, match="No space left"):
        journal.append("case", {"n": 1})
    monkeypatch.setattr(os, "write", real)
    journal.append("case", {"n": 2})
    journal.close()
    assert [record.header["n"] for record in read_journal(path)] == [0, 2]


def test_a_record_that_does_not_come_to_its_end_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def stream(journal: JournalWriter, pieces: Iterable[bytes], fault: Exception | None = None) -> None:
        with journal.record("case", {}, [("ns", "<i8", 400_000)]) as write:
            for piece in pieces:
                write(piece)
                assert [record.kind for record in read_journal(path)] == ["launch"]
            if fault is not None:
                raise fault

    with JournalWriter(path) as journal:
        end = journal.append("launch", {})
        with pytest.raises(ZeroDivisionError):
            stream(journal, [bytes(800_000)] * 4, ZeroDivisionError())  # what is more than a megabyte is in the file
        assert path.stat().st_size == end
        for count in (0, 3_199_999, 3_200_001):
            with pytest.raises(ValueError, match="not 3200000"):
                stream(journal, [bytes(count)])
        with pytest.raises(JournalUnwritableError):
            stream(journal, [], OSError(28, "No space left on device"))
        assert path.stat().st_size == end
        journal.append("case", {}, {"ns": np.arange(3)}, listed=("rows", [b'{"a":1}', b"[2]"]))
    kinds = [(record.kind, record.header) for record in read_journal(path)]
    assert kinds == [("launch", {}), ("case", {"rows": [{"a": 1}, [2]]})]


def forged(head: bytes, payload: bytes = b"", version: int = 1) -> bytes:
    prefix = struct.pack("<4sHHIQ", b"LGJ1", version, 0, len(head), len(payload))
    body = prefix + struct.pack("<I", zlib.crc32(prefix)) + head + payload
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize(
    "head",
    [
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"kind":1,"header":{},"columns":[]}',
        b'{"kind":"case","header":[],"columns":[]}',
        b'{"kind":"case","header":{},"columns":[["ns","O",1]]}',
        b'{"kind":"case","header":{},"columns":[["ns","<i8",-1]]}',
        b'{"kind":"case","header":{},"columns":[["ns","<i8",99999999999]]}',
        b'{"kind":"case","header":{},"columns":[["ns","<i8"]]}',
        b'{"kind":"case","header":{},"columns":7}',
        b'{"kind":"case","header":{},"columns":[[["x"],"<i8",1]]}',
        b'{"kind":"case","header":{},"columns":[["ns",["<i8"],1]]}',
        b'{"kind":"case","header":{"n":' + b"9" * 6000 + b'},"columns":[]}',
    ],
)
def test_forged_records_are_refused_in_one_line(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "j").write_bytes(forged(head, b"\0" * 8))
    with pytest.raises(RunFolderError) as caught:
        list(read_journal(tmp_path / "j"))
    assert "\n" not in str(caught.value)


def test_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(forged(json.dumps({"kind": "a", "header": {}, "columns": []}).encode(), version=9))
    with pytest.raises(RunFolderError, match="version 9"):
        list(read_journal(tmp_path / "j"))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    write_three(tmp_path / "j")
    (tmp_path / "link").symlink_to(tmp_path / "j")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        with pytest.raises(RunFolderError):
            list(read_journal(tmp_path / name))


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j") as journal:
        for column in (np.zeros((2, 2)), np.array(["a"]), np.array([object()])):
            with pytest.raises(ValueError, match="column"):
                journal.append("case", {}, {"ns": column})
        with pytest.raises(TypeError):
            journal.append("case", {"x": object()})
    assert list(read_journal(tmp_path / "j")) == []


def head_of(header_bytes: int, payload_bytes: int) -> bytes:
    prefix = struct.pack("<4sHHIQ", b"LGJ1", 1, 0, header_bytes, payload_bytes)
    return prefix + struct.pack("<I", zlib.crc32(prefix))


NO_RECORDS = thorough("bytes that are no records are counted in the same way in smaller journals")


@pytest.mark.parametrize(
    ("repeated", "count", "size", "said"),
    [
        (b"\1" * 4096, 1, 64 << 30, "65536 MiB of which .* KiB are stored: expected no sparse file"),
        (b"", 0, 64 << 30, "65536 MiB of which 0 KiB are stored: expected no sparse file"),
        pytest.param(b"LGJ1", 50 << 20, 200 << 20, "4096 MiB were looked at that are no records", marks=NO_RECORDS),
        pytest.param(
            head_of(100, 150 << 20), 8 << 20, 192 << 20, "4096 MiB were looked at that are no records", marks=NO_RECORDS
        ),
    ],
    ids=["sparse", "one hole", "starts of heads", "heads"],
)
def test_what_is_large_and_no_journal_is_refused_before_it_is_read(
    tmp_path: Path, repeated: bytes, count: int, size: int, said: str
) -> None:
    (tmp_path / "j").write_bytes(repeated * count)
    os.truncate(tmp_path / "j", size)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(RunFolderError, match=said):
        list(read_journal(tmp_path / "j", damaged=[]))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20  # of the processor
    assert after.ru_maxrss - before.ru_maxrss < 700 << 10  # KiB


def test_a_record_beyond_all_records_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MOST_PAYLOAD_BYTES", 1000)
    write_three(tmp_path / "j")
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(head_of(100, 2000) + bytes(2104) + whole)
    damaged: list[JournalDamage] = []
    assert [record.kind for record in read_journal(tmp_path / "j", damaged=damaged)] == ["launch", "case", "end"]
    assert "a record of 2104 bytes: expected at most 1000" in str(damaged[0])
    with JournalWriter(tmp_path / "j") as writer, pytest.raises(ValueError, match="have 2000 bytes, more than 1000"):
        writer.append("case", {}, {"ns": np.zeros(250, dtype=np.int64)})


def test_records_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that repeats a record of 100 bytes takes 60 times its size in memory."""
    write_three(tmp_path / "j")
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() * 3)
    for name, most in (("_MOST_RECORDS", 8), ("_MOST_VALUES", 30)):
        with monkeypatch.context() as less:
            less.setattr(journal, name, most)
            with pytest.raises(RunFolderError, match=r"9 records with .* values|records with 3\d values"):
                list(read_journal(tmp_path / "j", damaged=[]))
    assert len(list(read_journal(tmp_path / "j"))) == 9


def test_more_than_a_reader_can_hold_is_made_tables_of_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(tmp_path / "run", cases=[make_case("staging", "pingpong", 8)], compact=False)
    monkeypatch.setattr(run, "_MOST_HELD_BYTES", 10_000)
    with pytest.raises(RunFolderError, match=f"'linkgauge run --resume {folder}' makes tables of them"):
        run.load(folder).cases  # noqa: B018  # it is read when it is asked for
    whole = RunFolder.open(folder)
    whole.compact(finish=True)
    assert run.load(folder).samples.num_rows
