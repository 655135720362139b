"""The journal: checksummed records appended while a run is in progress (docs/reference/run-folder.md, Journal).

Workers write it, so it needs numpy and the standard library only. A record is

    magic "LGJ1" | version u16 | 0 u16 | header bytes u32 | payload bytes u64 | CRC32 of these 20 bytes
    header (JSON: kind, header, columns) | payload (columns, one after the other) | CRC32 of everything before

all little-endian. The short first checksum tells a torn tail, which is normal after a crash, from a damaged
middle, which is not: only the latter is followed by a further record. A damaged record costs itself alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from linkgauge import files
from linkgauge.errors import EnvironmentLackingError, RunFolderError
from linkgauge.files import fsync_folder
from linkgauge.store.record_form import (
    CRC,
    HEAD_BYTES,
    MAGIC,
    PREFIX,
    Search,
    checked_body,
    head_fault,
    size_of,
    values_in,
)

JOURNAL_VERSION = 1
_MAX_HEADER_BYTES = 64 << 20
# Of one journal, each more than any run writes; a journal may be a stranger's.
_MOST_PAYLOAD_BYTES = 16 << 30  # of a record: 35,000 samples from each of 10,000 ranks
_MOST_RECORDS = 1 << 20  # four a case
_MOST_VALUES = 1 << 25  # in the headers' JSON: each takes up to 64 bytes of memory
_MOST_DAMAGES = 1000  # what a disk does is a few
_LAUNCH_FILE = re.compile(r"launch-(\d{5,9})\.(\w+)")
_DTYPES = frozenset(f"<{letter}{width}" for letter in "iu" for width in (2, 4, 8)) | {"|i1", "|u1", "<f4", "<f8"}


class JournalDamage(RunFolderError):  # noqa: N818 - it names a state of the file, and the contract names it so
    """A record in the middle of a journal is damaged: its checksum fails, and readable records follow it.

    `offset` is the byte where the damaged record starts, `end` the one where the next whole record does.
    """

    def __init__(self, path: Path, offset: int, end: int, cause: str) -> None:
        """Say which journal, from which byte to which it is damaged, and what is wrong there."""
        super().__init__(f"{path}: bytes {offset} to {end} are damaged: {cause}")
        self.offset = offset
        self.end = end


class JournalUnwritableError(EnvironmentLackingError):
    """A journal that cannot be written (a full disk): no case can be measured any more, and the run ends."""


@dataclasses.dataclass(frozen=True)
class Record:
    """One record. `columns` are read-only, one-dimensional; `end_offset` is the byte where the next record starts."""

    kind: str
    header: dict[str, Any]
    columns: dict[str, np.ndarray[Any, Any]]
    end_offset: int


class JournalWriter(contextlib.AbstractContextManager["JournalWriter"]):
    """Appends records to one journal. An existing journal is continued after its last whole record."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create `path`. A torn tail is cut off; what is damaged before a whole record stays."""
        self.path = Path(path)
        end = 0
        if self.path.exists():
            for record in read_journal(self.path, damaged=[]):
                end = record.end_offset
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._file, end)
            self._end = os.lseek(self._file, end, os.SEEK_SET)
            fsync_folder(self.path.parent)
        except OSError as error:
            raise JournalUnwritableError(f"cannot write the journal {self.path}: {error.strerror}") from None

    def append(
        self,
        kind: str,
        header: dict[str, Any],
        columns: dict[str, np.ndarray[Any, Any]] | None = None,
        durable: bool = True,
        listed: tuple[str, Sequence[bytes]] | None = None,
    ) -> int:
        """Append one record and return the offset in bytes after it.

        `columns` are one-dimensional arrays of integers or floats, of any lengths; `listed` is a further key of the
        header with a list of what is JSON already. With `durable` the record is on the disk (fsync) when this returns.
        Raises JournalUnwritableError where it cannot be written (a full disk); the journal then ends with the record
        before.
        """
        arrays = {name: _storable(name, array) for name, array in (columns or {}).items()}
        described = [(name, array.dtype.str, int(array.size)) for name, array in arrays.items()]
        with self.record(kind, header, described, durable, listed) as write:
            for array in arrays.values():
                if array.size:
                    write(array.data.cast("B"))
        return self._end

    @contextlib.contextmanager
    def record(
        self,
        kind: str,
        header: dict[str, Any],
        columns: Sequence[tuple[str, str, int]],
        durable: bool = True,
        listed: tuple[str, Sequence[bytes]] | None = None,
    ) -> Iterator[Callable[[bytes | bytearray | memoryview], None]]:
        """Append one record whose columns come bit by bit: what the context gives writes the next bytes of them.

        `columns` are name, dtype and length, in the order in which their bytes follow each other. Nothing of the record
        is kept in memory, and nothing of it stays in the journal where the block ends by an error, or with fewer or
        more bytes than were said.
        """
        text = _header_text(kind, header, columns, listed)
        if len(text) > _MAX_HEADER_BYTES:
            raise ValueError(f"header of a '{kind}' record has {len(text)} bytes, more than {_MAX_HEADER_BYTES}")
        expected = sum(length * np.dtype(dtype).itemsize for _, dtype, length in columns)
        if expected > _MOST_PAYLOAD_BYTES:
            raise ValueError(f"columns of a '{kind}' record have {expected} bytes, more than {_MOST_PAYLOAD_BYTES}")
        prefix = PREFIX.pack(MAGIC, JOURNAL_VERSION, 0, len(text), expected)
        tail = _Tail(self._file)
        try:
            tail.write(prefix + CRC.pack(zlib.crc32(prefix)) + text)
            head_bytes = tail.written
            yield tail.write
            if tail.written - head_bytes != expected:
                raise ValueError(f"a '{kind}' record got {tail.written - head_bytes} bytes, not {expected}")
            tail.write(CRC.pack(tail.crc))
            tail.flush()
            if durable:
                os.fsync(self._file)
        except BaseException as error:
            # What is left of a record that did not fit would hide the records that a resumed run appends.
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
            if isinstance(error, OSError):
                raise JournalUnwritableError(f"cannot write the journal {self.path}: {error.strerror}") from None
            raise
        self._end += tail.written

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def __del__(self) -> None:
        """Close the file of a writer that was forgotten."""
        if getattr(self, "_file", -1) >= 0:
            self.close()


def read_journal(
    path: str | os.PathLike[str], offset: int = 0, damaged: list[JournalDamage] | None = None
) -> Iterator[Record]:
    """Yield the whole records from byte `offset` on, in the order written.

    Stops quietly at a torn tail, so that a reader can come back with the last `end_offset` while the journal still
    grows. Where a record in the middle is damaged, `damaged` gets to know and the next whole one comes; without it
    JournalDamage is raised. Raises RunFolderError where `path` is no regular file, was written by another version, or
    is larger in any way than what a run writes.
    """
    found: list[JournalDamage] = []
    path = Path(path)
    records = values = 0
    with open_regular(path) as file:
        size = size_of(path, file)
        search = Search(path, file, size)
        while size - offset >= HEAD_BYTES:
            file.seek(offset)
            head = file.read(HEAD_BYTES)
            cause = head_fault(head)
            if not cause:
                _, version, _, header_bytes, payload_bytes = PREFIX.unpack_from(head)
                if version != JOURNAL_VERSION:
                    raise RunFolderError(
                        f"{path}: journal of version {version}, this Linkgauge reads {JOURNAL_VERSION}: read it by the "
                        "Linkgauge that measured it, or measure anew"
                    )
                rest = header_bytes + payload_bytes + CRC.size
                if size - offset - HEAD_BYTES < rest:
                    return
                if header_bytes > _MAX_HEADER_BYTES or payload_bytes > _MOST_PAYLOAD_BYTES:
                    cause = f"a record of {rest} bytes: expected at most {_MOST_PAYLOAD_BYTES}"
                elif (body := checked_body(file, head, rest)) is not None:
                    offset += HEAD_BYTES + rest
                    records += 1
                    values += values_in(body, header_bytes)
                    if records > _MOST_RECORDS or values > _MOST_VALUES:
                        raise RunFolderError(
                            f"{path}: {records} records with {values} values: expected at most {_MOST_RECORDS} with "
                            f"{_MOST_VALUES}, as a run writes"
                        )
                    yield _parse(path, offset, body, header_bytes, payload_bytes)
                    continue
                else:
                    search.in_vain(rest)
                    cause = "checksum of the record does not hold"
            end = search.next_record(head, offset)
            if end is None:
                if damaged is not None:  # a record that is being written has its whole start, and lacks its end
                    damaged.append(JournalDamage(path, offset, size, cause))
                return
            found.append(JournalDamage(path, offset, end, cause))
            if damaged is None or len(found) > _MOST_DAMAGES:
                raise found[-1]
            damaged.append(found[-1])
            offset = end


def open_regular(path: Path) -> BinaryIO:
    """Open a file of a run folder for reading. RunFolderError unless it is a regular file (no link, pipe or device)."""
    return files.open_regular(path, "a file that a run writes", RunFolderError, links=False)


def launch_files(folder: Path, suffix: str) -> dict[int, Path]:
    """Return the files `launch-NNNNN.suffix` of a folder of a run folder by the number of their launch, in order.

    None where the folder is not there. RunFolderError where it is a symbolic link. A folder of such a name is none.
    """
    if not no_link(folder).is_dir():
        return {}
    named = ((_LAUNCH_FILE.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    return {int(match[1]): path for match, path in named if match and match[2] == suffix and not is_folder(path)}


def is_folder(path: Path) -> bool:
    """Whether there is a folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def no_link(path: Path) -> Path:
    """Return the path of a part of a run folder. RunFolderError where it is a symbolic link."""
    if path.is_symlink():
        raise RunFolderError(f"{path}: is a symbolic link, which a run folder never holds")
    return path


_FLUSH_BYTES = 1 << 20


class _Tail:
    """What is being written at the end of a journal: few calls of the system, and a checksum as it goes."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._held = bytearray()
        self.written = 0  # or held
        self.crc = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.crc = zlib.crc32(data, self.crc)
        self.written += len(data)
        if len(self._held) + len(data) <= _FLUSH_BYTES:
            self._held += data
            return
        self.flush()
        _write_all(self._file, data)

    def flush(self) -> None:
        _write_all(self._file, self._held)
        self._held = bytearray()


def _header_text(
    kind: str,
    header: dict[str, Any],
    columns: Sequence[tuple[str, str, int]],
    listed: tuple[str, Sequence[bytes]] | None,
) -> bytes:
    def encoded(value: object) -> bytes:
        return json.dumps(value, separators=(",", ":"), default=_plain).encode()

    inner = encoded(header)
    if listed is not None:
        name, items = listed
        comma = b"," if header else b""
        inner = b"".join([inner[:-1], comma, encoded(name), b":[", b",".join(items), b"]}"])
    return b"".join([b'{"kind":', encoded(kind), b',"header":', inner, b',"columns":', encoded(list(columns)), b"}"])


def _storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = np.asarray(array)
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if array.ndim != 1 or array.dtype.str not in _DTYPES:
        raise ValueError(
            f"column '{name}' is {array.ndim}-dimensional {array.dtype}: expected one dimension of numbers"
        )
    return array


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"cannot store a {type(value).__name__} in the journal")


def _write_all(descriptor: int, body: bytes | bytearray | memoryview) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(descriptor, view) :]


def _parse(path: Path, end: int, body: bytes, header_bytes: int, payload_bytes: int) -> Record:
    """Make a Record of bytes whose checksum holds. A stranger's journal may still hold nonsense."""
    start = end - HEAD_BYTES - len(body)
    try:
        head = json.loads(body[:header_bytes])
        kind, header, described = head["kind"], head["header"], head["columns"]
        if not isinstance(kind, str) or not isinstance(header, dict):
            raise TypeError
        columns = {}
        at = header_bytes
        for name, dtype, length in described:
            if dtype not in _DTYPES or not isinstance(name, str) or not isinstance(length, int) or length < 0:
                raise TypeError
            columns[name] = np.frombuffer(body, dtype=np.dtype(dtype), count=length, offset=at)
            at += length * np.dtype(dtype).itemsize
        if at != header_bytes + payload_bytes:
            raise ValueError
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise JournalDamage(
            path, start, end, "the record's header is not as docs/reference/run-folder.md says"
        ) from None
    return Record(kind, header, columns, end)
