"""From journal records to the tables of a run folder, and from Parquet files back, nothing taken on trust."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from linkgauge.errors import EnvironmentLackingError, RunFolderError
from linkgauge.files import fsync_folder, why_nothing_starts
from linkgauge.model.case import LATER_DIMENSIONS
from linkgauge.model.shape import each, parsed
from linkgauge.store import older, schema
from linkgauge.store.door import MOST_ROWS, mapped
from linkgauge.store.journal import Record, launch_files, no_link, open_regular
from linkgauge.store.schema import identity_of
from linkgauge.store.shapes import NUMBER_OF_LAUNCH

SAMPLE_COLUMNS = {
    "rank": np.int32, "lane": np.int16, "sample": np.int32, "phase": np.uint8, "scheduled_ns": np.int64,
    "start_ns": np.int64, "ns": np.int64, "iterations": np.int64, "clock": np.uint8,
}  # fmt: skip
_NO_COLUMN = np.array("")
_LAUNCHES_KEY = b"linkgauge_launches"
_ROWS_A_BYTE, _FEW_ROWS = 4, 1 << 16  # a sample of which nothing changes still takes a byte
_MOST_VALUES = 1 << 31
_READ_ERRORS = (pa.ArrowException, OSError, ValueError)
_NUMBERS = each(NUMBER_OF_LAUNCH)


def case_row(header: dict[str, Any]) -> dict[str, Any]:
    """Return the row of cases.parquet that a `case` or `status` record gives; what it does not say is left out."""
    known = set(schema.schema("cases").names)
    row = {name: value for name, value in older.dimensions(header.get("case") or {}).items() if name in known}
    row |= {name: value for name, value in older.dimensions(header).items() if name in known}
    if "lanes" in row:
        row["lanes"] = [lane if isinstance(lane, str) else json.dumps(lane) for lane in row["lanes"] or []]
    if not isinstance(row.get("evidence"), str | None):
        row["evidence"] = json.dumps(row["evidence"])
    return row


def launch_row(record: Record) -> dict[str, Any]:
    """Return the row of launches.parquet of a `launch` record. What has no column goes into `extra` as JSON."""
    header = dict(record.header)
    row: dict[str, Any] = {"launch": header.pop("launch"), "launch_key": header.pop("launch_key", None)}
    for name in ("mpi", "env", "versions", "clock"):
        row[name] = json.dumps(header.pop(name, None))
    ranks = []
    for rank in header.pop("ranks", None) or []:
        device = rank.get("device") or {}
        flat = {name: rank.get(name) for name in ("rank", "host", "pid", "cores", "memory_node")}
        flat |= {f"device_{name}": device.get(name) for name in ("uuid", "serial", "pci_address", "vbios", "name")}
        flat |= {"device_kind": device.get("kind"), "device_ordinal": device.get("ordinal")}
        ranks.append(flat)
    return row | {"ranks": ranks, "extra": json.dumps(header)}


def observation_rows(header: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of observations of an `observations` record, whose header holds them as `rows`."""
    rows = (older.dimensions(row) for row in header.get("rows") or [])
    return [{**row, **{name: header[name] for name in schema.IDENTITY}} for row in rows]


def table_of(name: str, rows: Sequence[dict[str, Any]], where: str) -> pa.Table:
    """Return a table of rows; RunFolderError where a value is not of its column's type."""
    try:
        return pa.Table.from_pylist(list(rows), schema=schema.schema(name))
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunFolderError(f"{where}: a value that does not fit {name}: {_first_line(error)}") from None


def samples_table(records: Sequence[Record], where: str) -> pa.Table:
    """Return the samples of `case` records as one table, in their order."""
    kept = [record for record in records if record.columns]
    columns: dict[str, np.ndarray[Any, Any]] = {}
    for name, dtype in SAMPLE_COLUMNS.items():
        parts = []
        for record in kept:
            column = record.columns.get(name, _NO_COLUMN)
            if not np.can_cast(column.dtype, dtype, "same_kind") or len(column) != len(record.columns.get("ns", "")):
                raise RunFolderError(f"{where}: a case's samples lack {name}, or it is of another kind or length")
            parts.append(column)
        columns[name] = np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)
    counts = [len(record.columns["ns"]) for record in kept]
    if any(columns[name].size and int(columns[name].max()) >= len(words) for name, words in schema.CODED.items()):
        raise RunFolderError(f"{where}: a sample of an unknown phase or clock")
    identities = [identity_of(record.header) for record in kept]
    keys = list(dict.fromkeys(identity[0] for identity in identities))
    codes = {key: code for code, key in enumerate(keys)}
    arrays: dict[str, pa.Array] = {"case_key": _coded(np.repeat([codes[i[0]] for i in identities], counts), keys)}
    for place, name in enumerate(schema.IDENTITY[1:], start=1):
        arrays[name] = pa.array(np.repeat(np.array([i[place] for i in identities], np.int32), counts), pa.int32())
    for name, values in columns.items():
        words = schema.CODED.get(name)
        arrays[name] = pa.array(values) if words is None else _coded(values, list(words[: _known(values)]))
    return pa.table(arrays, schema=schema.schema("samples"))


def _known(codes: np.ndarray[Any, Any]) -> int:
    """How many of the words a table has: two, which every version knows, but where a later one is used."""
    return max(2, int(codes.max()) + 1 if codes.size else 0)


def _coded(codes: np.ndarray[Any, Any], words: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words, pa.string()))


def read_table(folder: Path, name: str) -> tuple[pa.Table, set[int]]:
    """Return a table that is one file, cases or launches, and the numbers of the launches that it covers.

    Where the file is not there yet the table is empty. RunFolderError where it is truncated, has a column of
    another type, or holds values that no measurement gives.
    """
    path = folder / f"{name}.parquet"
    wanted = schema.schema(name)
    if not os.path.lexists(path):
        return wanted.empty_table(), set()
    with _opened(path) as file:
        known_later = {**LATER_DIMENSIONS, **dict.fromkeys(schema.LATER_COLUMNS)}
        later = {word: value for word, value in known_later.items() if word in wanted.names}
        names = file.schema_arrow.names  # read from the file's end each time
        stored = older.stored_names(wanted.names, names)
        for column in wanted.names:
            if stored[column] in names:
                later.pop(column, None)  # an older run lacks those that are left: it has the default, or no value
        there = pa.schema([field.with_name(stored[field.name]) for field in wanted if field.name not in later])
        _check_columns(path, file, there, name)
        table = _renamed(file.read(columns=there.names), [one.name for one in wanted if one.name not in later])
        for column, value in later.items():
            filled = pa.array([value] * table.num_rows, wanted.field(column).type)
            table = table.append_column(wanted.field(column), filled)
        table.validate(full=True)
        return table.select(wanted.names).replace_schema_metadata(None), _covered(path, file)


def covered_launches(folder: Path, name: str) -> set[int]:
    """Return the numbers of the launches that a table's one file covers; none where it is not there.

    RunFolderError where the file is truncated or no regular one.
    """
    path = folder / f"{name}.parquet"
    if not os.path.lexists(path):
        return set()
    with _opened(path) as file:
        return _covered(path, file)


def missing_file(folder: Path, name: str, launch: int) -> Path | None:
    """Return where the rows of a launch belong, of a table of a file a launch; None where the folder has them."""
    path = no_link(folder / name) / f"launch-{launch:05d}.parquet"
    return None if os.path.lexists(path) or launch in covered_launches(folder, name) else path


def files_of(folder: Path, name: str, only: Collection[int] | None = None) -> tuple[list[Path], set[int]]:
    """Return the files of a table of a file a launch, and the numbers of the launches that they cover.

    The file of a run that format 1 began comes first; what it covers is read from nowhere else. With `only` the files
    of other launches are left out, which count as covered.
    """
    whole = folder / f"{name}.parquet"
    covered = covered_launches(folder, name)
    parts = launch_files(folder / name, "parquet")
    paths = [path for launch, path in parts.items() if launch not in covered and (only is None or launch in only)]
    return [whole, *paths] if os.path.lexists(whole) else paths, covered | set(parts)


def read_parts(paths: Iterable[Path], name: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a table's files one by one, with the named columns (all by default).

    The next one is read while the caller works on the one before. Raises and refuses as `read_table` does.
    """
    wanted = schema.schema(name)
    if columns is not None:
        wanted = pa.schema([wanted.field(column) for column in columns])

    def valid(table: pa.Table) -> pa.Table:
        table.validate(full=name != "samples")
        return _renamed(table.select(wanted.names), wanted.names).replace_schema_metadata(None)

    def groups() -> Iterator[pa.Table]:
        for path in paths:
            with _opened(path) as file:
                _check_columns(path, file, wanted, name)
                for number in range(file.num_row_groups):
                    yield valid(file.read_row_group(number, wanted.names))  # no name keeps it while the next is read

    found = groups()
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(next, found, None)
        while (table := ahead.result()) is not None:
            ahead = pool.submit(next, found, None)
            yield table


def _renamed(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the table by the present names of its columns and words, which older formats wrote otherwise."""
    table = table.rename_columns(names)
    for at, name in enumerate(names):
        if name in older.WORDS:
            table = table.set_column(at, table.schema.field(at), mapped(table[name], older.WORDS[name]))
    return table


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a table whose pages' checksums, where it has them, are looked at: a changed bit is no other time."""
    open_regular(path).close()  # refuses links and devices
    try:
        # Not a context manager as it is made: close() is what releases the file also when the footer is damaged.
        file = pq.ParquetFile(path, filesystem=LocalFileSystem(), memory_map=False, page_checksum_verification=True)
        with file:
            yield file
    except MemoryError:  # Arrow's is one of the others too
        raise
    except _READ_ERRORS as error:
        if why := why_nothing_starts(error):
            raise EnvironmentLackingError(f"{path}: cannot be read: {why}") from None
        raise RunFolderError(
            f"{path}: truncated or damaged ({_first_line(error)}): copy it again from where it was measured"
        ) from None


def _check_columns(path: Path, file: pq.ParquetFile, wanted: pa.Schema, name: str) -> None:
    """Refuse what would not fit, before any of it is read: Parquet packs 10^8 rows that are alike into a few bytes."""
    in_groups = sum(abs(file.metadata.row_group(number).num_rows) for number in range(file.num_row_groups))
    rows, size = max(file.metadata.num_rows, in_groups), path.stat().st_size
    if rows > min(MOST_ROWS[name], _ROWS_A_BYTE * size + _FEW_ROWS):
        raise RunFolderError(
            f"{path}: {rows} rows in {size} bytes: expected what a run writes, at most {MOST_ROWS[name]}"
        )
    found = file.schema_arrow
    for field in wanted:
        types = [found.field(at).type for at in found.get_all_field_indices(field.name)]
        if len(types) != 1:
            there = "is missing" if not types else f"is there {len(types)} times"
            raise RunFolderError(f"{path}: column '{field.name}' {there}: expected it once")
        if types[0] != field.type:
            raise RunFolderError(f"{path}: column '{field.name}' is {types[0]}: expected {field.type}")
    if (values := _values_in_lists(file, wanted)) > _MOST_VALUES:
        raise RunFolderError(f"{path}: {values} values: expected what a run writes")


def _values_in_lists(file: pq.ParquetFile, wanted: pa.Schema) -> int:
    """How many values the columns have whose rows are lists. Of others Arrow reads no more than the groups have rows.

    Where the footer contradicts itself Arrow raises as it reads a column, and ends the process as it is asked for what
    the footer says of one. So a row is read first.
    """
    lists = [field.name for field in wanted if pa.types.is_nested(field.type)]
    places = [at for at in range(len(file.schema)) if file.schema.column(at).path.split(".")[0] in lists]
    values = 0
    for number in range(file.num_row_groups) if lists else ():
        next(file.iter_batches(1, [number], lists), None)
        group = file.metadata.row_group(number)
        values += sum(group.column(at).num_values for at in places)
    return values


def write_table(path: Path, name: str, launches: Iterable[int], parts: Iterable[pa.Table]) -> None:
    """Write a table so that at every moment it is the whole one or, after a crash too, the one before or none.

    Each part becomes a row group, so that a row identity's samples lie in one. `launches` are those that it covers.
    """
    temporary = path.with_name(f".{path.name}.new")
    path.parent.mkdir(exist_ok=True)
    temporary.unlink(missing_ok=True)
    covered = json.dumps(sorted(launches)).encode()
    wanted = schema.schema(name).with_metadata({_LAUNCHES_KEY: covered})
    # Start times rise by little: their differences pack into a few bits. zstd of level 1 costs less than it saves.
    packed = {"samples": ["sample", "scheduled_ns", "start_ns"], "observations": ["when_ns"]}.get(name, [])
    options: dict[str, Any] = {}
    if packed:
        options["use_dictionary"] = [column for column in wanted.names if column not in (*packed, "ns")]
        options["column_encoding"] = dict.fromkeys(packed, "DELTA_BINARY_PACKED")
    try:
        with pq.ParquetWriter(
            temporary,
            wanted,
            filesystem=LocalFileSystem(),  # without it Arrow takes what stands before a colon for another one's name
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            **options,
        ) as writer:
            for part in parts:
                if part.num_rows:
                    writer.write_table(part, row_group_size=part.num_rows)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def _covered(path: Path, file: pq.ParquetFile) -> set[int]:
    said = (file.schema_arrow.metadata or {}).get(_LAUNCHES_KEY, b"[]")
    return set(parsed(said, _NUMBERS, f"{path}: its list of launches", RunFolderError))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
