"""A fleet's history as the table `results` of a DuckDB database, read where it lies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, one_line
from linkgauge.store.history import FORMAT_VERSION, History, Part, schema

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
    """Define the table `results`: a view of the files, and of those of which not all runs count what does."""
    whole = [one for one in parts if not one.left_out]
    pieces = []
    if whole and history.local:
        # To join columns by name opens every file first; those of one version have the same.
        names = ", ".join(f"'{_quoted(one.path)}'" for one in whole)
        pieces.append(
            f"SELECT * FROM read_parquet([{names}], hive_partitioning=true, hive_types_autocast=false, "
            f"union_by_name={str(history.version < FORMAT_VERSION).lower()})"
        )
    elif whole:
        found.register("whole_files", _dataset(history, whole))
        pieces.append("SELECT * FROM whole_files")
    for at, one in enumerate(part for part in parts if part.left_out):
        found.register(f"some_of_{at}", history.read(one))
        pieces.append(f"SELECT *, '{_quoted(one.kind)}' AS kind, '{one.day}' AS day FROM some_of_{at}")
    if not pieces:
        found.register("no_results", schema().empty_table())
        pieces.append("SELECT *, '' AS kind, '' AS day FROM no_results")
    found.execute(f"CREATE OR REPLACE VIEW results AS {_RATES}({' UNION ALL BY NAME '.join(pieces)})")
    if history.local and whole:
        allowed = ", ".join(f"'{_quoted(one.path)}'" for one in whole)
        found.execute(f"SET allowed_paths=[{allowed}]")


def _dataset(history: History, parts: Sequence[Part]) -> Any:
    """Return files of an object store as a dataset of Arrow, which DuckDB asks for columns and rows."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    names = pa.schema([("kind", pa.string()), ("day", pa.string())])
    form = pa.schema([*schema(), *names])
    return ds.FileSystemDataset.from_paths(
        [one.path for one in parts], schema=form, format=ds.ParquetFileFormat(), filesystem=history.files,
        partitions=[(ds.field("kind") == one.kind) & (ds.field("day") == one.day) for one in parts],
    )  # fmt: skip


def _quoted(text: str) -> str:
    return text.replace("'", "''")
