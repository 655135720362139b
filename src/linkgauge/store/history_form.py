"""What the files of a fleet's history hold, and how they are encoded."""

from __future__ import annotations

import calendar
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_SINCE = 1
"""Since which version files have the same columns."""
ROWS_A_GROUP = 131_072
"""Rows of a group: of a node about a hundred a day are asked for, which a larger group would not find sooner."""

COLUMNS: dict[str, str] = {
    "run": "string", "run_end_ms": "int64", "node": "string", "machine": "string", "others": "string",
    "part": "string", "rail": "string",
    "switch": "string", "uuids": "string", "case_key": "string", "launch_key": "string", "task": "string",
    "pattern": "string", "transport": "string", "size": "int64", "devices": "string", "time_ns": "double",
    "goodput_bytes": "double", "busbw_bytes": "double", "driver": "string", "firmware": "string", "bios": "string",
    "kernel": "string", "libraries": "string", "program": "string", "temperature": "double",
}  # fmt: skip
"""The columns of a file, in their order; the folders' names add `kind` and `day`. docs/definitions.md has each."""

WRITING: dict[str, Any] = {
    "compression": "zstd",
    "row_group_size": ROWS_A_GROUP,
    "store_schema": False,
    "use_dictionary": [name for name in COLUMNS if name not in ("time_ns", "run_end_ms")],
    "column_encoding": {"time_ns": "BYTE_STREAM_SPLIT", "run_end_ms": "DELTA_BINARY_PACKED"},
}
"""How files are encoded: words by dictionaries, ends by differences, the bytes of times each by its place."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A file of the history. `left_out`: runs of it that another file has, of the same end or a later one."""

    path: str
    kind: str
    day: str  # or a month, which `month` says
    run: str  # empty: it joins several
    end_ms: int
    size: int
    left_out: tuple[str, ...] = ()
    month: bool = False
    days: tuple[str, str] = ("", "9")
    """Of a month: the first and the last day of which rows count."""

    @property
    def last_day(self) -> str:
        """The last day that it can hold."""
        if not self.month:
            return self.day
        year, month = map(int, self.day.split("-"))
        return f"{self.day}-{calendar.monthrange(year, month)[1]:02}"


def schema() -> pa.Schema:
    """Return the schema of a file."""
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, {"double": "float64"}.get(kind, kind))()) for name, kind in COLUMNS.items()])


def day_field() -> pa.Field:
    """Return the column that a month has besides: a day's is its folder's name."""
    import pyarrow as pa

    return pa.field("day", pa.string())
