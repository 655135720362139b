"""Journals into Parquet: the one place that writes the tables of a run folder."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from linkgauge.errors import UsageError
from linkgauge.files import fsync_folder
from linkgauge.model.case import Case
from linkgauge.model.result import Identity
from linkgauge.store import schema, tables
from linkgauge.store.journal import Record

if TYPE_CHECKING:
    from linkgauge.store.folder import RunFolder

LOST = "what was measured is lost, since a journal of the run is damaged"
_BATCH_BYTES = 64 << 20


def launches_in(records: Iterable[Record]) -> set[int]:
    """Return the launches whose own records these are; a status may be of one that never began."""
    return {record.header["launch"] for record in records if record.kind in ("launch", "case")}


def _launches_with_record(folder: RunFolder, records: Iterable[Record]) -> set[int]:
    """Return the launches of which it is known what they were."""
    own = {record.header["launch"] for record in records if record.kind == "launch"}
    return own | set(tables.read_table(folder.path, "launches")[0]["launch"].to_pylist())


def launches_of(folder: RunFolder, records: Iterable[Record]) -> pa.Table:
    """Return launches.parquet with what the journals' records add to it."""
    table, covered = tables.read_table(folder.path, "launches")
    rows = [tables.launch_row(record) for record in records if record.kind == "launch"]
    new = {row["launch"]: row for row in rows if row["launch"] not in covered}
    return pa.concat_tables([table, tables.table_of("launches", list(new.values()), str(folder.path))])


def cases_of(folder: RunFolder, records: Iterable[Record]) -> pa.Table:
    """Return cases.parquet with what the journals' records add to it.

    That is what rank 0 says of a case, then the parent's statuses, which are the only authority on statuses. What a
    record does not say stays, so that a record that is met twice does no harm.
    """
    table, _ = tables.read_table(folder.path, "cases")
    told = [record for kind in ("case", "status") for record in records if record.kind == kind]
    if not told:
        return table
    rows: dict[Identity, dict[str, Any]] = {schema.identity_of(row): row for row in table.to_pylist()}
    for record in told:
        row = tables.case_row(record.header)
        if record.kind == "case":
            row.pop("status", None)  # the parent's word counts
        known = rows.setdefault(schema.identity_of(row), {})
        known.update((name, value) for name, value in row.items() if value is not None)
    if folder.damages:
        launches = _launches_with_record(folder, records)
        for row in rows.values():
            # What rank 0 said of the case, or what its launch was, is lost: no number can be made of it.
            if row.get("status") == "ok" and (row.get("bytes_total") is None or row["launch"] not in launches):
                row |= {"status": None, "reason": LOST}
    return tables.table_of("cases", list(rows.values()), str(folder.path))


def compact(folder: RunFolder, finish: bool) -> None:
    """Do what RunFolder.compact says."""
    journals = folder.launch_journals()
    if journals or finish:
        folder.settle_format()
    for launch, path in journals.items():
        parent = folder.status_journal()
        told = [record for record in _to_files(folder, launch, path) if record.kind in ("launch", "case")]
        for left, record in zip(reversed(range(len(told))), told, strict=True):
            parent.append(record.kind, record.header, durable=left == 0)
        fsync_folder(folder.path)
        folder.set_aside(path)
    if finish:
        folder.close()
        _finish(folder)


def confirm_unjudged(folder: RunFolder) -> int:
    """Do what RunFolder.confirm_unjudged says."""
    told = list(folder.status_records())
    judged = {schema.identity_of(record.header) for record in told if record.kind == "status"}
    for row in tables.read_table(folder.path, "cases")[0].to_pylist():
        if row["status"] is not None:
            judged.add(schema.identity_of(row))
    count = 0
    for record in itertools.chain(told, *map(folder.launch_records, folder.launch_journals())):
        if record.kind != "case" or (identity := schema.identity_of(record.header)) in judged:
            continue
        judged.add(identity)
        if _is_beside_another_launch(record.header):
            continue
        names = ("case_key", "launch", "repeat", "attempt", "case", "status", "reason", "evidence")
        header = {name: record.header[name] for name in names if name in record.header}
        folder.status_journal().append("status", header)
        count += 1
    return count


def _is_beside_another_launch(header: Mapping[str, Any]) -> bool:
    """Whether a case has a load that is a launch of its own, whose end is no rank's to tell."""
    try:
        return bool(Case.from_dimensions(header["case"]).background.own_launches)
    except (UsageError, KeyError, TypeError, ValueError):
        return False


def _to_files(folder: RunFolder, launch: int, journal: Path) -> list[Record]:
    """Write a launch's samples and observations, where that is not done; return its records without samples."""
    small: list[Record] = []
    batches = _batches(folder.launch_records(launch), small)
    if path := tables.missing_file(folder.path, "samples", launch):
        parts = (tables.samples_table(batch, str(journal)) for batch in batches)
        tables.write_table(path, "samples", [launch], parts)
    else:
        collections.deque(batches, maxlen=0)
    seen = [record for record in small if record.kind == "observations"]
    if seen and (path := tables.missing_file(folder.path, "observations", launch)):
        rows = [row for record in seen for row in tables.observation_rows(record.header)]
        tables.write_table(path, "observations", [launch], [tables.table_of("observations", rows, str(journal))])
    return small


def _batches(records: Iterable[Record], small: list[Record]) -> Iterator[list[Record]]:
    """Yield the records with samples, as many at a time as fit into bounded memory; `small` gets all without them."""
    batch: list[Record] = []
    held = 0
    for record in records:
        small.append(Record(record.kind, record.header, {}, record.end_offset))
        if record.kind != "case" or not record.columns:
            continue
        batch.append(record)
        held += sum(column.nbytes for column in record.columns.values())
        if held >= _BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _finish(folder: RunFolder) -> None:
    """Make the tables of launches and cases, then remove the parent's journal."""
    told = list(folder.status_records())
    for name, table in (("launches", launches_of(folder, told)), ("cases", cases_of(folder, told))):
        covered = tables.covered_launches(folder.path, name) | launches_in(told)
        tables.write_table(folder.path / f"{name}.parquet", name, covered, [table])
    if folder.status_path().exists():
        folder.set_aside(folder.status_path())
