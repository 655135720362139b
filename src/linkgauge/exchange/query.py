"""SQL over a run's tables with DuckDB: reading only, and no file but the run folder can be reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from linkgauge.errors import EnvironmentLackingError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.store.run import Run

TABLES = ("cases", "samples", "observations", "launches", "summary")


def query(run: Run, sql: str) -> pa.Table:
    """Return the rows of one SELECT over TABLES.

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
            database.execute("SET lock_configuration=true")
            statements = database.extract_statements(sql)
            allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
            if len(statements) != 1 or statements[0].type not in allowed:
                raise UsageError(f"query takes one SELECT statement over {', '.join(TABLES)}")
            table: pa.Table = database.sql(sql).to_arrow_table()
            return table
    except duckdb.Error as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"SQL: {first}; tables are {', '.join(TABLES)}") from None


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
