"""A month of a fleet's history as one file by node: of one node a year is then a dozen places, not 365.

The files of its days lie by node, so they are merged from the front, and each row is decoded once. Words stay numbers
of a dictionary on the way: decoded, the rows of a month of 10,000 nodes would take several GB.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from linkgauge.store.history_form import COLUMNS, ROWS_A_GROUP, WRITING, Part

if TYPE_CHECKING:
    import pyarrow.fs as pafs

ROWS_A_RANGE = 4 * ROWS_A_GROUP
"""Rows of successive nodes that become one group: a larger one is longer to search, more of them to open."""
_WORDS = [name for name, kind in COLUMNS.items() if kind == "string"]


@contextlib.contextmanager
def month_of(files: pafs.FileSystem, parts: Sequence[Part]) -> Iterator[mmap.mmap]:
    """Give the file that joins those of a month, without the runs that each leaves out; it is a temporary file."""
    with tempfile.TemporaryFile(prefix="linkgauge-month-") as made:
        _write(made, files, parts)
        made.flush()
        yield mmap.mmap(made.fileno(), 0, access=mmap.ACCESS_READ)  # closed with its last reader


def _write(made: object, files: pafs.FileSystem, parts: Sequence[Part]) -> None:
    with contextlib.ExitStack() as open_:
        sources = [_Source(open_.enter_context(_opened(files, part)), part) for part in parts]
        writer = None
        for last in _ranges(files, parts):
            pieces = [piece for source in sources for piece in source.until(last) if piece.num_rows]
            if not pieces:
                continue  # all its runs are left out
            rows = _by_node(pa.concat_tables(pieces).unify_dictionaries().combine_chunks())
            if writer is None:
                writing = {**WRITING, "use_dictionary": [*WRITING["use_dictionary"], "day"]}
                writing.pop("row_group_size")
                writer = open_.enter_context(pq.ParquetWriter(made, rows.schema, **writing))
            writer.write_table(rows, row_group_size=rows.num_rows)


def _opened(files: pafs.FileSystem, part: Part) -> pq.ParquetFile:
    with pq.ParquetFile(part.path, filesystem=files) as file:
        holds = file.metadata
    words = [name for name in (*_WORDS, "day") if name in holds.schema.names]
    return pq.ParquetFile(part.path, metadata=holds, filesystem=files, read_dictionary=words)


def _ranges(files: pafs.FileSystem, parts: Sequence[Part]) -> Iterator[str]:
    """Yield the last node of each range; no node is in two."""
    counts: Counter[str] = Counter()
    for part in parts:
        with _opened(files, part) as file:
            for node in file.read(columns=["node"])["node"].chunks:
                found = np.bincount(node.indices.to_numpy(), minlength=len(node.dictionary))
                counts.update(dict(zip(node.dictionary.to_pylist(), found.tolist(), strict=True)))
    rows = 0
    for name in sorted(counts):
        rows += counts[name]
        if rows >= ROWS_A_RANGE:
            yield name
            rows = 0
    if rows:
        yield max(counts)


class _Source:
    """The rows of a file, from the front."""

    def __init__(self, file: pq.ParquetFile, part: Part) -> None:
        self._part = part
        self._rows = (self._complete(file.read_row_group(at)) for at in range(file.num_row_groups))
        self._rest: pa.Table | None = None

    def until(self, last: str) -> Iterator[pa.Table]:
        """Yield what is left of the nodes up to one."""
        while (rows := self._rest or next(self._rows, None)) is not None:
            node = rows["node"].chunk(0) if rows.num_rows else None
            below = None if node is None else _up_to(node, last)
            self._rest = None
            if below is None or below.all():
                yield rows
                continue
            count = int(below.sum())
            if below[:count].all():  # by node, as every writer leaves them: no row is copied
                yield rows[:count]
                self._rest = rows[count:]
            else:
                yield rows.filter(pa.array(below))
                self._rest = rows.filter(pa.array(~below))
            return

    def _complete(self, rows: pa.Table) -> pa.Table:
        """Return rows with every column, their day, and without the runs that are left out, in one piece."""
        if self._part.left_out:
            rows = rows.filter(pc.invert(pc.is_in(rows["run"].cast(pa.string()), pa.array(self._part.left_out))))
        columns = []
        for name, kind in COLUMNS.items():
            form = pa.dictionary(pa.int32(), pa.string()) if kind == "string" else pa.type_for_alias(kind)
            columns.append(rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, form))
        day = rows["day"] if self._part.month else pa.DictionaryArray.from_arrays(
            np.zeros(rows.num_rows, np.int32), pa.array([self._part.day]))  # fmt: skip
        return pa.table([*columns, day], names=[*COLUMNS, "day"]).combine_chunks()


def _up_to(node: pa.DictionaryArray, last: str) -> npt.NDArray[np.bool_]:
    """Return which rows are of nodes up to one."""
    names = np.array([name <= last for name in node.dictionary.to_pylist()], bool)
    return np.asarray(names[node.indices.to_numpy()], bool)


def _by_node(rows: pa.Table) -> pa.Table:
    """Return rows by node, those of one node in the order in which they came."""
    node = rows["node"].chunk(0)
    names = node.dictionary.to_pylist()
    place = np.empty(len(names), np.int32)
    place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    order = np.argsort(place[node.indices.to_numpy()], kind="stable")
    return pa.table([_taken(column.chunk(0), order) for column in rows.columns], rows.column_names)


def _taken(column: pa.Array, order: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column in an order. A dictionary keeps what is used alone, since a group's is read whole."""
    if column.null_count or not pa.types.is_dictionary(column.type):
        return column.take(pa.array(order))
    numbers = column.indices.to_numpy()[order]
    used = np.zeros(len(column.dictionary), bool)
    used[numbers] = True
    renumbered = (np.cumsum(used) - 1).astype(np.int32)[numbers]
    return pa.DictionaryArray.from_arrays(renumbered, column.dictionary.filter(pa.array(used)))
