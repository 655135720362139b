"""The form of a journal's records, and the search for the next whole one: a journal may be a stranger's."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

from linkgauge.errors import RunFolderError

MAGIC = b"LGJ1"
PREFIX = struct.Struct("<4sHHIQ")
CRC = struct.Struct("<I")
HEAD_BYTES = PREFIX.size + CRC.size
_MOST_VAIN_BYTES = 4 << 30  # read without finding a record: some 3 s
_VAIN_HEAD_BYTES = 4096  # what looking at a head that is none costs as well, in bytes read
_SPARSE, _SPARSE_FROM_BYTES = 64, 1 << 30  # samples do not compress so well in any file system
_CHECKED_FIRST_BYTES = 64 << 20


def head_fault(head: bytes) -> str:
    """Return why these bytes do not start a record, empty where they do."""
    if head[:4] != MAGIC:
        return "no record starts here"
    if zlib.crc32(head[: PREFIX.size]) != CRC.unpack_from(head, PREFIX.size)[0]:
        return "checksum of the record's start does not hold"
    return ""


def size_of(path: Path, file: BinaryIO) -> int:
    """The size of a journal in bytes. RunFolderError for a sparse file, whose zeros would be read for minutes."""
    status = os.fstat(file.fileno())
    stored = status.st_blocks * 512
    if (
        status.st_size > _SPARSE_FROM_BYTES
        and stored * _SPARSE < status.st_size
        and (stored or not _has_data(file))  # some network file systems say 0 of every file
    ):
        raise RunFolderError(
            f"{path}: {status.st_size >> 20} MiB of which {stored >> 10} KiB are stored: expected no sparse file"
        )
    return status.st_size


def _has_data(file: BinaryIO) -> bool:
    """Whether a file, of which nothing has been read yet, is not one hole; True where that is not known."""
    try:
        os.lseek(file.fileno(), 0, os.SEEK_DATA)
    except OSError as error:
        return error.errno != errno.ENXIO
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    return True


def checked_body(file: BinaryIO, head: bytes, rest: int) -> bytes | None:
    """What follows a record's head; None where the checksum does not hold.

    That of a large one is looked at before memory is taken for it.
    """
    if rest > _CHECKED_FIRST_BYTES:
        start, crc, left = file.tell(), zlib.crc32(head), rest - CRC.size
        while left and (block := file.read(min(left, 1 << 20))):
            crc, left = zlib.crc32(block, crc), left - len(block)
        if left or file.read(CRC.size) != CRC.pack(crc):
            return None
        file.seek(start)
        return file.read(rest)
    body = file.read(rest)
    crc = zlib.crc32(memoryview(body)[: -CRC.size], zlib.crc32(head))
    return body if len(body) == rest and body[-CRC.size :] == CRC.pack(crc) else None


def values_in(body: bytes, header_bytes: int) -> int:
    """At most how many values a header's JSON has, without parsing it."""
    return 1 + sum(body.count(mark, 0, header_bytes) for mark in (b",", b"[", b"{"))


class Search:
    """Finds the next record behind a damaged one. RunFolderError once _MOST_VAIN_BYTES were read in vain."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        """Search in an open journal of that size."""
        self._path, self._file, self._size = path, file, size
        self._vain = 0

    def in_vain(self, count: int) -> None:
        """Count bytes that were read and are no record."""
        self._vain += count
        if self._vain > _MOST_VAIN_BYTES:
            raise RunFolderError(
                f"{self._path}: more than {_MOST_VAIN_BYTES >> 20} MiB were looked at that are no records: expected "
                "the journal of a run"
            )

    def next_record(self, head: bytes, offset: int) -> int | None:
        """Where the next record starts behind a damaged one at `offset`; None where none does.

        Behind a head whose checksum holds it starts where that says, so that nothing within the damaged record is read
        as one; else wherever the next head is.
        """
        if not head_fault(head):
            _, _, _, header_bytes, payload_bytes = PREFIX.unpack_from(head)
            end: int = offset + HEAD_BYTES + header_bytes + payload_bytes + CRC.size
            self._file.seek(end)
            if self._starts(self._file.read(HEAD_BYTES), end):
                return end
        return self._from(offset + 1)

    def _starts(self, head: bytes, at: int) -> bool:
        """Whether these bytes are the head of a record that fits into the file."""
        if len(head) < HEAD_BYTES or head_fault(head):
            return False
        _, _, _, header_bytes, payload_bytes = PREFIX.unpack_from(head)
        return int(at + HEAD_BYTES + header_bytes + payload_bytes + CRC.size) <= self._size

    def _from(self, start: int) -> int | None:
        """The byte from `start` on where such a head lies."""
        step = 1 << 20
        for base in range(start, self._size, step):
            self._file.seek(base)
            block = self._file.read(step + HEAD_BYTES - 1)
            at = block.find(MAGIC)
            while at >= 0:
                if self._starts(block[at : at + HEAD_BYTES], base + at):
                    return base + at
                self.in_vain(_VAIN_HEAD_BYTES)
                at = block.find(MAGIC, at + 1)
            self.in_vain(len(block))
        return None
