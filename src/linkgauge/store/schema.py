"""The tables of a run folder: names, columns and types (docs/reference/run-folder.md).

pyarrow is imported when a schema is asked for, so that workers can import this module.

FORMAT_VERSION is the version that this Linkgauge writes; `migrate` brings an older run.json up to it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from linkgauge.errors import RunFolderError
from linkgauge.model.case import Case
from linkgauge.model.result import Identity
from linkgauge.store import older

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "linkgauge-run"
FORMAT_VERSION = 4
FIRST_OF_THESE_KEYS = 4  # the format whose cases were first hashed by the present names of their dimensions

TABLES = ("launches", "cases", "samples", "observations")
BY_LAUNCH = ("samples", "observations")  # tables of a file a launch; format 1 had one file of each
IDENTITY = ("case_key", "launch", "repeat", "attempt")
PHASES = ("warmup", "sample", "alone")  # the journal's numbers; alone: while a case's loads rest
CLOCK_NAMES = ("host", "event")
CODED = {"phase": PHASES, "clock": CLOCK_NAMES}
"""Columns of samples that the journal has as numbers: the words, in their order."""


def identity_of(row: Mapping[str, Any]) -> Identity:
    """Return the IDENTITY of a record's header, or of a table's row as a dict."""
    return row["case_key"], row["launch"], row["repeat"], row["attempt"]


def migrate(info: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `info` brought to FORMAT_VERSION. RunFolderError where that is not possible; `where` names the folder.

    The tables stay as they are: store/older.py reads what they called otherwise, and launches that come later lie
    beside those that format 1 wrote whole.
    """
    version = info["format_version"]
    if version > FORMAT_VERSION:
        raise RunFolderError(
            f"{where}: run folder of format {version}, newer than {FORMAT_VERSION}, which this Linkgauge reads: "
            "install a newer Linkgauge"
        )
    migrated = {older.INFO.get(key, key): value for key, value in info.items()} | {"format_version": FORMAT_VERSION}
    if version < FIRST_OF_THESE_KEYS:  # what is written into it later does not change the keys that are there
        migrated.setdefault("keys_of_format", version)
    return migrated


def dimension_types() -> dict[str, str]:
    """Return the dimensions of a case in canonical order, each with the name of its Arrow type."""
    kinds = {str: "string", int: "int64", bool: "bool", float: "float64", list: "list<int32>"}
    return {name: kinds[type(value)] for name, value in Case("", "", 0, 0, (0,)).dimensions().items()}


_ROW = {"case_key": "string", "launch": "int32", "repeat": "int32", "attempt": "int32"}  # a row's identity
_COLUMNS: dict[str, dict[str, str]] = {
    # One row a (case_key, launch, repeat, attempt).
    "cases": {
        **_ROW, "planned_launch": "int32", **dimension_types(), "lanes": "list<string>",
        "bytes_per_peer": "int64", "bytes_total": "int64", "status": "string", "reason": "string", "converged": "bool",
        "coarse": "bool", "oversubscribed": "bool", "verified": "bool", "operations_total": "int64",
        "operations_checked": "int64", "evidence": "json",
    },
    # One row a launch.
    "launches": {
        "launch": "int32", "launch_key": "string", "mpi": "json", "env": "json", "versions": "json", "clock": "json",
        "extra": "json", "ranks": "list<rank>",
    },
    # One row a sample, those of a row identity together, in the order in which rank 0 wrote them. Times are ns on the
    # node's steady clock.
    "samples": {
        **_ROW, "case_key": "word", "rank": "int32", "lane": "int16", "sample": "int32", "phase": "word",
        "scheduled_ns": "int64", "start_ns": "int64", "ns": "int64", "iterations": "int64", "clock": "word",
    },
    # One row an observed value of a link, device or NIC.
    "observations": {
        **_ROW, "rank": "int32", "subject": "string", "moment": "string", "when_ns": "int64", "name": "string",
        "value": "float64", "unit": "string",
    },
}  # fmt: skip
LATER_COLUMNS = ("planned_launch", "operations_checked")  # of cases, which older runs of format 2 do not have
_RANK = {
    "rank": "int32", "host": "string", "pid": "int64", "cores": "list<int32>", "memory_node": "int32",
    **{f"device_{name}": "string" for name in ("uuid", "serial", "pci_address", "vbios", "name", "kind")},
    "device_ordinal": "int32",
}  # fmt: skip


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind.startswith("list<"):
        return pa.list_(_arrow_type(kind[5:-1]))
    if kind == "rank":
        return pa.struct([(name, _arrow_type(one)) for name, one in _RANK.items()])
    return (
        pa.dictionary(pa.int32(), pa.string()) if kind == "word" else pa.type_for_alias(kind.replace("json", "string"))
    )


@functools.cache
def schema(table: str) -> pa.Schema:
    """Return the schema of one of TABLES."""
    import pyarrow as pa

    return pa.schema([(name, _arrow_type(kind)) for name, kind in _COLUMNS[table].items()])
