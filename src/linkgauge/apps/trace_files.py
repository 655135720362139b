"""Traces as files: plain, packed by gzip or zstd, in a tar archive, or a folder of them."""

from __future__ import annotations

import dataclasses
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from linkgauge.apps import nsight
from linkgauge.apps.otf2_trace import SUFFIX
from linkgauge.apps.trace_steps import MOST_RANKS
from linkgauge.errors import UsageError
from linkgauge.files import open_regular, read_file

MOST_BYTES = 1 << 30  # of a trace, or of all in an archive, unpacked
# Real traces unpack to some 30 times their size. A small file that unpacks to more would take gigabytes to parse.
_FREE_BYTES, _MOST_RATIO = 16 << 20, 100
_USTAR = slice(257, 262)  # where tar says what it is
_PEEKED = 1 << 18  # more than a block of zstd
_MOST_MEMBERS = 4 * MOST_RANKS
_NAME = re.compile(r"\.(?:json|et)(?:\.gz|\.zst)?$")
_EXPECTED = "a trace: PARAM's or PyTorch's JSON, or Chakra's protobuf"


@dataclasses.dataclass(frozen=True)
class TraceFile:
    """A trace: its name for messages, where it is, and what it holds where it is of an archive."""

    name: str
    path: Path
    content: bytes | None = None

    def read(self) -> bytes:
        """What it holds, unpacked. UsageError where it cannot be read, or is too large."""
        content = read_file(self.path, MOST_BYTES, _EXPECTED) if self.content is None else self.content
        return _unpacked(content, self.name)


def trace_files(paths: Sequence[Path]) -> list[TraceFile]:
    """The traces that these paths are, or hold. UsageError for a folder or an archive that has none."""
    found = [one for path in paths for one in _files_of(path)]
    if len(found) > MOST_RANKS:
        raise UsageError(f"{len(found)} traces: expected at most {MOST_RANKS}")
    return found


def _files_of(path: Path) -> Iterator[TraceFile]:
    if path.is_dir():
        for one in _in_folder(path):
            yield TraceFile(str(one), one)
    elif path.suffix == SUFFIX or nsight.is_one(path):
        yield TraceFile(str(path), path)
    elif _is_archive(path):
        yield from _of_archive(TraceFile(str(path), path).read(), path)
    else:
        yield TraceFile(str(path), path)


def _is_archive(path: Path) -> bool:
    """Whether it is a tar archive, packed or not: of its beginning, for a trace is read when its turn comes."""
    with open_regular(path, _EXPECTED) as file:
        content = file.read(_PEEKED)
    try:
        kind = _kind_of(content)
        return (kind.unpack(content, _USTAR.stop) if kind else content)[_USTAR] == b"ustar"
    except (zlib.error, OSError, ValueError):
        return False  # `read` says what is wrong with it


def _in_folder(path: Path) -> list[Path]:
    """The traces in a folder, as profilers write one for each rank."""
    try:
        found = sorted(one for one in path.iterdir() if one.is_file() and _NAME.search(one.name))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if not found:
        raise UsageError(
            f"{path}: no trace in this folder: expected files that end in .json, .json.gz, .json.zst or .et"
        )
    return found


def _of_archive(content: bytes, path: Path) -> Iterator[TraceFile]:
    """The traces in an archive. Nothing of it is written to a disk, so that no name in it leads anywhere."""
    found, total = [], 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for number, member in enumerate(archive):
                if number == _MOST_MEMBERS:
                    raise UsageError(f"{path}: more than {_MOST_MEMBERS} files in it: expected a file for each rank")
                name = member.name.rpartition("/")[2]
                # macOS' tar adds a file of attributes, ._NAME, to each.
                # A sparse file is as large as it says, whatever the archive holds of it.
                if not member.isreg() or member.issparse() or not _NAME.search(name) or name.startswith("._"):
                    continue
                file = archive.extractfile(member)
                where = f"{path}: {member.name[:200]}"
                one = _unpacked(b"" if file is None else file.read(), where)
                total += len(one)
                if total > MOST_BYTES:
                    raise UsageError(f"{path}: more than {MOST_BYTES >> 20} MiB unpacked: expected fewer iterations")
                found.append(TraceFile(where, path, one))
    except (tarfile.TarError, EOFError, OSError, ValueError):
        raise UsageError(f"{path}: a damaged tar archive: expected traces in it") from None
    if not found:
        raise UsageError(
            f"{path}: no trace in this archive: expected files that end in .json, .json.gz, .json.zst or .et"
        )
    yield from sorted(found, key=lambda one: one.name)


class _Kind(NamedTuple):
    name: str
    command: str
    unpack: Callable[[bytes, int], bytes]  # at most so many bytes


def _kind_of(content: bytes) -> _Kind | None:
    """How it is packed; None where it is not."""
    if content[:2] == b"\x1f\x8b":
        return _Kind("gzip", "gunzip", _of_gzip)
    return _Kind("zstd", "unzstd", _of_zstd) if content[:4] == b"\x28\xb5\x2f\xfd" else None


def _unpacked(content: bytes, name: str) -> bytes:
    kind = _kind_of(content)
    if kind is None:
        return content
    most = min(MOST_BYTES, max(_FREE_BYTES, _MOST_RATIO * len(content)))
    try:
        found = kind.unpack(content, most + 1)
    except (zlib.error, OSError, ValueError):  # pyarrow's are of these
        raise UsageError(f"{name}: a damaged {kind.name} file: expected a trace") from None
    if len(found) > most:
        raise UsageError(
            f"{name}: more than {most >> 20} MiB unpacked, of {len(content) >> 10} KiB packed: expected a trace; "
            f"{kind.command} one that is so repetitive"
        )
    return found


def _of_gzip(content: bytes, most: int) -> bytes:
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content, most)


def _of_zstd(content: bytes, most: int) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        return bytes(stream.read(most))
