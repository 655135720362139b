"""A fleet's history as the table `results` of a DuckDB database, read where it lies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, one_line
from linkgauge.model.grouped import grouped
from linkgauge.store.history import History
from linkgauge.store.history_form import COLUMNS_SINCE, Part, schema

MOST_MEMORY = "1536MiB"
LACKS_DUCKDB = EnvironmentLackingError("queries need DuckDB, which is not installed: pip install 'linkgauge[report]'")
_ATTEMPTS = 5
_RATES = """SELECT *, goodput_bytes / time_ns * 1e9 AS goodput_bytes_per_s,
busbw_bytes / time_ns * 1e9 AS busbw_bytes_per_s FROM """


@contextlib.contextmanager
def database(
    history: History, kinds: Sequence[str] = (), since: str = "", until: str = "9", spill: Path | None = None
) -> Iterator[Any]:
    """Give a DuckDB database in memory with the table `results`, of these kinds and days alone.

    It can reach the history's files and `spill`, a folder for what does not fit into memory, and nothing else.
    EnvironmentLackingError where DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise LACKS_DUCKDB from None
    with duckdb.connect(":memory:") as found:
        found.execute("SET python_enable_replacements=false")
        found.execute(f"SET memory_limit='{MOST_MEMORY}'")
        found.execute(f"SET temp_directory='{_quoted(str(spill or ''))}'")
        found.execute("SET preserve_insertion_order=false")
        found.execute("SET parquet_metadata_cache=true")  # a year's files are opened by each of several queries
        for attempt in range(_ATTEMPTS):
            try:
                _define(found, history, history.parts(kinds, since, until))
                break
            except (FileNotFoundError, duckdb.IOException):  # a compaction joined files since they were listed
                if attempt == _ATTEMPTS - 1:
                    raise
        try:
            yield found
        except duckdb.IOException as error:
            raise EnvironmentLackingError(
                f"{history.name}: {one_line(str(error))[:200]}: ask again, if a compaction is at it"
            ) from None


def _define(found: Any, history: History, parts: Sequence[Part]) -> None:
    """Define the table `results`: a view of the files, and of those of which not all rows count what does."""
    pieces = []
    groups = grouped(((one.month, one.days, one.left_out), one) for one in parts)
    for at, (some, conditions) in enumerate((some, _conditions(some[0])) for some in groups.values()):
        source = f"files_{at}"
        if history.local:
            # To join columns by name opens every file first; those of one version have the same.
            names = ", ".join(f"'{_quoted(one.path)}'" for one in some)
            source = (
                f"read_parquet([{names}], hive_partitioning=true, hive_types_autocast=false, "
                f"union_by_name={str(history.version < COLUMNS_SINCE).lower()})"
            )
        else:
            found.register(source, _dataset(history, some))
        columns = "* EXCLUDE (month)" if some[0].month and history.local else "*"
        pieces.append(f"SELECT {columns} FROM {source}{conditions}")
    if not pieces:
        found.register("no_results", schema().empty_table())
        pieces.append("SELECT *, '' AS kind, '' AS day FROM no_results")
    found.execute(f"CREATE OR REPLACE VIEW results AS {_RATES}({' UNION ALL BY NAME '.join(pieces)})")
    if history.local and parts:
        allowed = ", ".join(f"'{_quoted(one.path)}'" for one in parts)
        found.execute(f"SET allowed_paths=[{allowed}]")


def _conditions(part: Part) -> str:
    """Return which rows of a file count, as SQL."""
    found = [f"day BETWEEN '{part.days[0]}' AND '{part.days[1]}'"] if part.month else []
    if part.left_out:
        runs = ", ".join(f"'{_quoted(run)}'" for run in part.left_out)
        found.append(f"run NOT IN ({runs})")
    return f" WHERE {' AND '.join(found)}" if found else ""


def _dataset(history: History, parts: Sequence[Part]) -> Any:
    """Return files of an object store as a dataset of Arrow, which DuckDB asks for columns and rows."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = pa.schema([("kind", pa.string()), ("day", pa.string())])
    form = pa.schema([*schema(), *names])
    places = [ds.field("kind") == one.kind for one in parts]
    places = [place if one.month else place & (ds.field("day") == one.day)
              for place, one in zip(places, parts, strict=True)]  # fmt: skip
    return ds.FileSystemDataset.from_paths(
        [one.path for one in parts], schema=form, format=ds.ParquetFileFormat(), filesystem=history.files,
        partitions=places,
    )  # fmt: skip


def _quoted(text: str) -> str:
    return text.replace("'", "''")
