"""The tables of a run folder: names, columns and types (docs/run-folder.md).

pyarrow is imported when a schema is asked for, so that workers can import this module.

FORMAT_VERSION is the version that this Linkgauge writes; `migrate` brings an older run.json up to it, a step a version.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linkgauge.errors import RunFolderError
from linkgauge.model.case import Case

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "linkgauge-run"
FORMAT_VERSION = 2

TABLES = ("launches", "cases", "samples", "observations")
BY_LAUNCH = ("samples", "observations")  # tables of a file a launch; format 1 had one file of each
IDENTITY = ("case_key", "launch", "repeat", "attempt")
PHASES = ("warmup", "sample")  # the journal's numbers 0 and 1
CLOCK_NAMES = ("host", "event")


def _from_1(info: dict[str, Any]) -> None:
    """Nothing of run.json changes: the tables that format 1 wrote whole stay, and later launches lie beside them."""


# From version N to N + 1: changes the info of run.json in place. A step that has to change a table adds it here too.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], None]] = {1: _from_1}


def migrate(info: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `info` brought to FORMAT_VERSION. RunFolderError where that is not possible; `where` names the folder."""
    version = info.get("format_version")
    if info.get("format") != FORMAT or not isinstance(version, int) or isinstance(version, bool):
        raise RunFolderError(f"{where}: run.json is not that of a Linkgauge run (no format '{FORMAT}')")
    if version > FORMAT_VERSION:
        raise RunFolderError(
            f"{where}: run folder of format {version}, newer than {FORMAT_VERSION}, which this Linkgauge reads: "
            "install a newer Linkgauge"
        )
    migrated = dict(info)
    for step in range(version, FORMAT_VERSION):
        if step not in MIGRATIONS:
            raise RunFolderError(f"{where}: run folder of format {version} cannot be brought to {FORMAT_VERSION}")
        MIGRATIONS[step](migrated)
        migrated["format_version"] = step + 1
    return migrated


def dimension_types() -> dict[str, str]:
    """Return the dimensions of a case in canonical order, each with the name of its Arrow type."""
    kinds = {"str": "string", "int": "int64", "bool": "bool", "float": "float64"}
    types: dict[str, str] = {}
    for field in dataclasses.fields(Case):
        if field.name == "devices":
            types["devices"] = "list<int32>"
        elif field.name != "stop":
            types[field.name] = kinds[str(field.type)]
    types |= {"ranks": "int64", "stop_rule": "string", "stop_samples": "int64"}
    types |= {"stop_relative_half_width": "float64", "stop_time_ns": "int64"}
    return types


def _arrow_type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "list<int32>":
        return pa.list_(pa.int32())
    return pa.type_for_alias(name)


@functools.cache
def cases_schema() -> pa.Schema:
    """Return the schema of cases.parquet: one row per (case_key, launch, repeat, attempt)."""
    import pyarrow as pa

    return pa.schema(
        [("case_key", pa.string()), ("launch", pa.int32()), ("repeat", pa.int32()), ("attempt", pa.int32())]
        + [(name, _arrow_type(kind)) for name, kind in dimension_types().items()]
        + [
            ("lanes", pa.list_(pa.string())),
            ("bytes_per_peer", pa.int64()),
            ("bytes_total", pa.int64()),
            ("status", pa.string()),
            ("reason", pa.string()),
            ("converged", pa.bool_()),
            ("coarse", pa.bool_()),
            ("oversubscribed", pa.bool_()),
            ("verified", pa.bool_()),
            ("operations_total", pa.int64()),
            ("evidence", pa.string()),  # JSON
        ]
    )


@functools.cache
def launches_schema() -> pa.Schema:
    """Return the schema of launches.parquet: one row a launch. mpi, env, versions, clock and extra are JSON texts."""
    import pyarrow as pa

    rank = pa.struct(
        [("rank", pa.int32()), ("host", pa.string()), ("pid", pa.int64()), ("cores", pa.list_(pa.int32()))]
        + [("memory_node", pa.int32())]
        + [(f"device_{name}", pa.string()) for name in ("uuid", "serial", "pci_address", "vbios", "name", "kind")]
        + [("device_ordinal", pa.int32())]
    )
    return pa.schema(
        [
            ("launch", pa.int32()),
            ("launch_key", pa.string()),
            ("mpi", pa.string()),
            ("env", pa.string()),
            ("versions", pa.string()),
            ("clock", pa.string()),
            ("extra", pa.string()),
            ("ranks", pa.list_(rank)),
        ]
    )


@functools.cache
def samples_schema() -> pa.Schema:
    """Return the schema of the samples: one row a sample. Times are ns on the node's steady clock.

    Rows of one row identity lie together, in the order in which rank 0 wrote them.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("case_key", pa.dictionary(pa.int32(), pa.string())),
            ("launch", pa.int32()),
            ("repeat", pa.int32()),
            ("attempt", pa.int32()),
            ("rank", pa.int32()),
            ("lane", pa.int16()),
            ("sample", pa.int32()),
            ("phase", pa.dictionary(pa.int32(), pa.string())),
            ("scheduled_ns", pa.int64()),
            ("start_ns", pa.int64()),
            ("ns", pa.int64()),
            ("iterations", pa.int64()),
            ("clock", pa.dictionary(pa.int32(), pa.string())),
        ]
    )


@functools.cache
def observations_schema() -> pa.Schema:
    """Return the schema of the observations: one row an observed value of a link, device or NIC."""
    import pyarrow as pa

    return pa.schema(
        [
            ("case_key", pa.string()),
            ("launch", pa.int32()),
            ("repeat", pa.int32()),
            ("attempt", pa.int32()),
            ("rank", pa.int32()),
            ("subject", pa.string()),
            ("moment", pa.string()),
            ("when_ns", pa.int64()),
            ("name", pa.string()),
            ("value", pa.float64()),
            ("unit", pa.string()),
        ]
    )


def schema(table: str) -> pa.Schema:
    """Return the schema of one of TABLES."""
    makers = {
        "cases": cases_schema,
        "launches": launches_schema,
        "samples": samples_schema,
        "observations": observations_schema,
    }
    return makers[table]()
