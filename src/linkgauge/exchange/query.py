"""SQL over a run's tables with DuckDB: reading only, and no file but the run folder can be reached."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from linkgauge.errors import EnvironmentLackingError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.store.run import Run

TABLES = ("cases", "samples", "observations", "launches", "summary")


MOST_ROWS = 1_000_000
MOST_S = 60.0
MOST_MEMORY = "2GiB"


def query(run: Run, sql: str, limited: bool = True) -> pa.Table:
    """Return the rows of one SELECT over TABLES; times that are finer than Python's as text.

    `limited`: no more than MOST_ROWS rows, MOST_S seconds and MOST_MEMORY of DuckDB's own; UsageError beyond.
    UsageError where the SQL is wrong or does more than read; EnvironmentLackingError where DuckDB is not installed.
    The statement runs in a database of its own in memory whose access to files, extensions and settings is closed
    before it is looked at.
    """
    try:
        import duckdb
    except ImportError:
        raise EnvironmentLackingError(
            "queries need DuckDB, which is not installed: pip install 'linkgauge[report]'"
        ) from None
    try:
        with duckdb.connect(":memory:") as database:
            for name in _mentioned(sql):
                database.register(name, _table(run, name))
            # Otherwise names in the SQL could stand for this program's own variables.
            database.execute("SET python_enable_replacements=false")
            database.execute("SET enable_external_access=false")
            if limited:
                database.execute(f"SET memory_limit='{MOST_MEMORY}'")
            database.execute("SET lock_configuration=true")
            statements = database.extract_statements(sql)
            allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
            if len(statements) != 1 or statements[0].type not in allowed:
                raise UsageError(f"query takes one SELECT statement over {', '.join(TABLES)}")
            late = threading.Timer(MOST_S, database.interrupt)
            late.daemon = True
            if limited:
                late.start()
            try:
                found = database.sql(sql)
                # fetch_arrow_reader: the name in older versions, of which newer ones warn.
                batches = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
                return _plain(_rows(batches(100_000), MOST_ROWS if limited else None))
            finally:
                late.cancel()
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        what = f"{MOST_S:.0f} s" if isinstance(error, duckdb.InterruptException) else f"{MOST_MEMORY} of memory"
        raise UsageError(f"SQL: it takes more than {what}: ask for less, or give --no-limit") from None
    except duckdb.Error as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"SQL: {first}; tables are {', '.join(TABLES)}") from None


def _rows(batches: pa.RecordBatchReader, most: int | None) -> pa.Table:
    import pyarrow as pa

    found, count = [], 0
    for batch in batches:
        found.append(batch)
        count += batch.num_rows
        if most is not None and count > most:
            raise UsageError(f"SQL: it gives more than {most:,} rows: ask for less with LIMIT, or give --no-limit")
    return pa.Table.from_batches(found, batches.schema)


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with times of nanoseconds as text, in lists and structures too: Python has none so fine."""
    import pyarrow as pa

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns":
            return pa.string()
        if pa.types.is_list(kind):
            return pa.list_(plain(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([(field.name, plain(field.type)) for field in kind])
        return kind

    for place, field in enumerate(table.schema):
        kind = plain(field.type)
        if kind != field.type:
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def _mentioned(sql: str) -> list[str]:
    """Return the tables whose name occurs in the SQL: ten million samples are not read for a question about cases."""
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    return [name for name in TABLES if name in words]


def _table(run: Run, name: str) -> pa.Table:
    if name == "summary":
        from linkgauge.stats.summary import summarise

        return summarise(run)
    table: pa.Table = getattr(run, name)
    return table
