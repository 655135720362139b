"""SQL over a run or a history with DuckDB: reading only, and no file but theirs can be reached."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.store.history import History
from linkgauge.store.history_sql import LACKS_DUCKDB
from linkgauge.store.history_sql import database as in_place
from linkgauge.store.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("cases", "samples", "observations", "launches", "summary")


MOST_ROWS = 1_000_000
MOST_S = 60.0
MOST_MEMORY = "2GiB"


def query(of: Run | History, sql: str, limited: bool = True) -> pa.Table:
    """Return the rows of one SELECT over TABLES, or over `results` of a history, dates and times as text.

    `limited`: no more than MOST_ROWS rows, MOST_S seconds and MOST_MEMORY of DuckDB's own; UsageError beyond.
    UsageError where the SQL is wrong or does more than read; EnvironmentLackingError where DuckDB is not installed.
    The statement runs in a database of its own in memory whose access to files, extensions and settings is closed
    before it is looked at.
    """
    try:
        import duckdb
    except ImportError:
        raise LACKS_DUCKDB from None
    if sql != sql.encode("utf-8", "replace").decode("utf-8"):
        raise UsageError("SQL: it is not UTF-8: expected a statement in UTF-8")
    names = TABLES if isinstance(of, Run) else ("results",)
    try:
        with _opened(of, sql, duckdb) as database:
            if limited:
                # What does not fit into memory would go to a folder .tmp where the command runs, without a limit.
                database.execute("SET temp_directory=''")
            # Otherwise names in the SQL could stand for this program's own variables.
            database.execute("SET python_enable_replacements=false")
            database.execute("SET enable_external_access=false")
            if limited:
                database.execute(f"SET memory_limit='{MOST_MEMORY}'")
            database.execute("SET lock_configuration=true")
            statements = database.extract_statements(sql)
            allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
            if len(statements) != 1 or statements[0].type not in allowed:
                raise UsageError(f"query takes one SELECT statement over {', '.join(names)}")
            with _Deadline(database, MOST_S) if limited else contextlib.nullcontext():
                found = database.sql(sql)
                if statements[0].type == duckdb.StatementType.SELECT:
                    found = _times_as_text(found)
                # fetch_arrow_reader: the name in older versions, of which newer ones warn.
                batches = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
                return _rows(batches(100_000), MOST_ROWS if limited else None)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        what = f"{MOST_S:.0f} s" if isinstance(error, duckdb.InterruptException) else f"{MOST_MEMORY} of memory"
        raise UsageError(f"SQL: it takes more than {what}: ask for less, or give --no-limit") from None
    except duckdb.Error as error:
        first, *more = str(error).strip().splitlines() or [type(error).__name__]
        first += "".join(f" {line}" for line in more if line.startswith(("Candidate", "Did you mean")))
        raise UsageError(f"SQL: {first}; tables are {', '.join(names)}") from None


@contextlib.contextmanager
def _opened(of: Run | History, sql: str, duckdb: Any) -> Iterator[Any]:
    """Give a database in memory with the tables that the SQL names."""
    if isinstance(of, History):
        with in_place(of) as database:
            yield database
        return
    with duckdb.connect(":memory:") as database:
        for name in _mentioned(sql):
            database.register(name, _table(of, name))
        yield database


def _rows(batches: pa.RecordBatchReader, most: int | None) -> pa.Table:
    import pyarrow as pa

    found, count = [], 0
    for batch in batches:
        found.append(batch)
        count += batch.num_rows
        if most is not None and count > most:
            raise UsageError(f"SQL: it gives more than {most:,} rows: ask for less with LIMIT, or give --no-limit")
    return pa.Table.from_batches(found, batches.schema)


_TEMPORAL = re.compile(r"\b(DATE|TIME|TIMETZ|TIMESTAMP\w*|INTERVAL)\b")


def _times_as_text(found: Any) -> Any:
    """Return a relation whose columns with dates and times are text: Python's end with the year 9999."""
    words = []
    for number, (name, kind) in enumerate(zip(found.columns, found.types, strict=True), 1):
        quoted = name.replace('"', '""')
        column = f"CAST(#{number} AS VARCHAR)" if _TEMPORAL.search(str(kind)) else f"#{number}"
        words.append(f'{column} AS "{quoted}"')
    return found.project(", ".join(words))


class _Deadline:
    """Interrupts a database from `seconds` on, again and again: an interrupt between two operators goes unheard."""

    def __init__(self, database: Any, seconds: float) -> None:
        self._database = database
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(seconds,), daemon=True)

    def _watch(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            self._database.interrupt()
            seconds = 0.1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _mentioned(sql: str) -> list[str]:
    """Return the tables whose name occurs in the SQL: ten million samples are not read for a question about cases."""
    words = set(re.findall(r"[a-z_]+", sql.lower()))
    return [name for name in TABLES if name in words]


def _table(run: Run, name: str) -> pa.Table:
    if name == "summary":
        from linkgauge.stats.summary import summarize

        return summarize(run)
    table: pa.Table = getattr(run, name)
    return table
