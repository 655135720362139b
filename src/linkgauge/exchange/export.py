"""A run in other forms: CSV, Parquet, JSON, and the tables that nccl-tests and OSU print."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.exchange import nccl_form
from linkgauge.exchange.anonymous_run import pseudonyms_of
from linkgauge.exchange.other_names import NCCL_PROGRAMS, OSU_PER_BLOCK, OSU_TESTS, OSU_TYPES
from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.stats.launches import shown_transports

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.store.run import Run

FORMATS = ("csv", "parquet", "json", "nccl-tests", "osu")
TABLE_FORMATS = ("csv", "parquet")
"""The forms that a table has which is not the summary."""
Columns = dict[str, Any]
"""A row of a table as it is written, by the names of its columns."""

# Keys of run.json and of ranks whose values name a machine, a person or a place.
_NAMING = re.compile(
    r"host|uuid|serial|user|home|path|folder|command|library|launcher|pci|pid|job|address", re.IGNORECASE
)


def export(run: Run, form: str, anonymous: bool = False, table: pa.Table | None = None) -> str:
    """Return a run as text in one of FORMATS but parquet, from its summary or from `table`.

    With `anonymous` hosts, device identities, process ids, paths and the command line are left out, and such names are
    replaced wherever else they occur. UsageError for an unknown form, or where nothing in the run has that form.
    """
    from linkgauge.stats.attempts import counted

    if form not in FORMATS:
        raise UsageError(f"unknown format '{form}': expected one of {', '.join(FORMATS)}")
    if table is not None and form not in TABLE_FORMATS:
        raise UsageError(f"--tidy takes --format {' or '.join(TABLE_FORMATS)}, not '{form}'")
    if form == "parquet":
        raise UsageError("parquet is not text: name a file, such as -o results.parquet")
    hide = _Hider(run) if anonymous else None
    if form == "csv":
        return _csv(*_rows(run, hide, table))
    if form == "json":
        rows, _ = _rows(run, hide, table)
        launches = run.launches.to_pylist()
        info = dict(run.info)
        if hide is not None:
            info, launches = hide.tree(info), [hide.tree(launch) for launch in launches]
        return json.dumps({"info": info, "launches": launches, "summary": rows}, indent=1, default=str) + "\n"
    good = [row for row in counted(run).rows if isinstance(row, Measured) and row.is_headline and row.status == "ok"]
    text = "".join(_nccl_tests(run, good, not anonymous) if form == "nccl-tests" else _osu(run, good))
    if not text:
        raise UsageError(f"no case of this run has the form of {form}")
    return text if hide is None else hide.text(text)


def export_parquet(run: Run, anonymous: bool = False, table: pa.Table | None = None) -> bytes:
    """Return the summary, or `table`, as a Parquet file's bytes; `anonymous` as `export` takes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from linkgauge.stats.summary import summarize

    kept = summarize(run) if table is None else table
    if anonymous:
        rows, _ = _rows(run, _Hider(run), kept)
        kept = pa.Table.from_pylist(rows, kept.schema)
    out = pa.BufferOutputStream()
    pq.write_table(kept, out)
    return bytes(out.getvalue())


def _rows(run: Run, hide: _Hider | None, table: pa.Table | None) -> tuple[list[Columns], list[str]]:
    from linkgauge.stats.summary import summarize

    kept = summarize(run) if table is None else table
    rows: list[Columns] = kept.to_pylist()
    return [hide.row(row) for row in rows] if hide is not None else rows, kept.column_names


def _csv(rows: list[Columns], names: list[str]) -> str:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in names])
    return output.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value  # a spreadsheet would run it as a formula
    return value


def _groups(rows: list[Measured], *along: str) -> dict[tuple[Any, ...], list[Measured]]:
    """Group rows by what one table of a peer's output is about: all that tells cases apart, but what is in its rows."""
    names = held_apart(*along)
    return grouped(((*values_of(row.case, names), row.library, row.launch, row.repeat), row) for row in rows)


def _set_apart(rows: list[Measured], first: Measured) -> str:
    """Return the dimensions in which tables of one kind of rows differ, as `, buffer registered`; empty for none."""
    names = held_apart("size", "pattern", "devices", "transport", "cadence", "in_place", "datatype", "op", "root")
    same = ("pattern", "devices", "transport")
    alike = [row.case for row in rows if values_of(row.case, same) == values_of(first.case, same)]
    varying = [name for name in names if len({getattr(case, name) for case in alike}) > 1]
    found = ((name, getattr(first.case, name)) for name in varying)
    return "".join(f", {name} {str(value) or 'default'}" for name, value in found)


def _nccl_tests(run: Run, rows: list[Measured], named: bool) -> Iterator[str]:
    rows = [row for row in rows if row.pattern in NCCL_PROGRAMS]
    groups = _groups(rows, "size", "in_place")
    return nccl_form.tables(run, list(groups.values()), lambda first: _set_apart(rows, first), named)


def _osu(run: Run, rows: list[Measured]) -> Iterator[str]:
    """Yield one table a pattern, as OSU prints them; times are means, bandwidths in MB/s of 10^6 bytes."""
    rows = [row for row in rows if row.pattern in OSU_TESTS]
    shown = shown_transports(run.launched)
    for group in _groups(rows, "size").values():
        first = group[0]
        info = PATTERNS[first.pattern]
        yield f"# OSU MPI {OSU_TESTS[info.name]}\n"
        ranks = first.ranks
        transport = shown.get(first.transport, first.transport)
        yield f"# by Linkgauge, {transport}{_set_apart(rows, first)}, {ranks} ranks, {first.case.cadence}, "
        yield f"window {first.case.window}\n"
        if (first.case.source_memory, first.case.target_memory) != ("pageable", "pageable"):
            source, target = _osu_memory(first.case.source_memory), _osu_memory(first.case.target_memory)
            yield f"# Send Buffer on {source} and Receive Buffer on {target}\n"
        yield f"# Datatype: {OSU_TYPES.get(first.case.datatype, 'MPI_CHAR')}.\n"
        yield f"{'# Size':<10}{'Bandwidth (MB/s)' if info.windowed else 'Avg Latency(us)':>20}\n"
        for row in sorted(group, key=lambda row: row.size):
            size = row.size // (row.ranks if info.name in OSU_PER_BLOCK else 1)
            time_us = row.mean_ns * info.latency_share / 1e3
            value = (row.goodput_mean_bytes_per_s or 0) / 1e6 if info.windowed else time_us
            yield f"{size:<10}{value:>20.2f}\n"
        yield "\n"


def _osu_memory(kind: str) -> str:
    return {"device": "DEVICE (D)", "managed": "MANAGED (M)"}.get(kind, "HOST (H)")


class _Hider:
    """Takes names of machines, devices, persons and places out of values."""

    def __init__(self, run: Run) -> None:
        self.text = pseudonyms_of(run, slots=True).of_run

    def row(self, row: Columns) -> Columns:
        """Return a flat row with its texts hidden."""
        return {name: self.text(value) if isinstance(value, str) else value for name, value in row.items()}

    def tree(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without the entries whose name says that they identify something."""
        if isinstance(value, Mapping):
            kept = {
                key: one
                for key, one in value.items()
                if not _NAMING.search(str(key)) or isinstance(one, Mapping | list)
            }
            return {self.text(str(key)): self.tree(one, str(key)) for key, one in kept.items()}
        if isinstance(value, list):
            return (
                []
                if _NAMING.search(name) and not all(isinstance(one, Mapping) for one in value)
                else [self.tree(one) for one in value]
            )
        if isinstance(value, str):
            return self._json_text(value)
        return value

    def _json_text(self, text: str) -> str:
        """Hide within JSON texts (launches' mpi, env) as within objects."""
        if text[:1] in "{[":
            try:
                return json.dumps(self.tree(json.loads(text)))
            except (ValueError, RecursionError):
                return self.text(text)
        return self.text(text)
