"""Journals into Parquet: the one place that rewrites the tables of a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from linkgauge.store import schema, tables
from linkgauge.store.journal import JournalDamage, Record, fsync_folder

if TYPE_CHECKING:
    from linkgauge.store.folder import RunFolder

_BATCH_BYTES = 64 << 20


def merge_cases(rows: dict[tables.Identity, dict[str, Any]], new: dict[str, Any]) -> None:
    """Add what a record says of a case to what is known of it; what it does not say stays."""
    key = tuple(new[name] for name in ("case_key", "launch", "repeat", "attempt"))
    said = {name: value for name, value in new.items() if value is not None}
    rows.setdefault(key, {}).update(said)


def add_records(rows: dict[tables.Identity, dict[str, Any]], folder: RunFolder, launches: list[Record]) -> None:
    """Merge rank 0's `case` records, then the parent's statuses, which are the only authority on statuses."""
    for record in launches:
        if record.kind == "case":
            row = tables.case_row(record, str(folder.path))
            row.pop("status", None)  # the parent's word counts
            merge_cases(rows, row)
    for record in folder.status_records():
        if record.kind == "status":
            merge_cases(rows, tables.case_row(record, str(folder.status_path())))


def compact(folder: RunFolder, finish: bool) -> list[JournalDamage]:
    """Do what RunFolder.compact says."""
    damaged: list[JournalDamage] = []
    journals: dict[int, Path] = {}
    for launch, path in folder.launch_journals().items():
        try:
            for _ in folder.launch_records(launch):
                pass
            journals[launch] = path
        except JournalDamage as damage:
            damaged.append(damage)
    _compact_samples(folder, journals)
    small = [record for launch in journals for record in _without_samples(folder, launch)]
    for name in ("launches", "observations"):
        _compact_rows(folder, name, journals, small)
    _compact_cases(folder, journals, small)
    fsync_folder(folder.path)
    for path in journals.values():
        path.unlink()
    if finish and not damaged:
        folder.status_path().unlink(missing_ok=True)
    if journals or finish:
        fsync_folder(folder.status_path().parent)
    return damaged


def confirm_unjudged(folder: RunFolder) -> int:
    """Do what RunFolder.confirm_unjudged says."""
    judged = {
        tables.identity_of(record.header, "statuses") for record in folder.status_records() if record.kind == "status"
    }
    table, _ = tables.read_table(folder.path, "cases")
    for row in table.to_pylist():
        if row["status"] is not None:
            judged.add(tables.identity_of(row, "cases"))
    count = 0
    for launch, path in folder.launch_journals().items():
        for record in _without_samples(folder, launch):
            if record.kind != "case" or tables.identity_of(record.header, str(path)) in judged:
                continue
            names = ("case_key", "launch", "repeat", "attempt", "case", "status", "reason", "evidence")
            header = {name: record.header[name] for name in names if name in record.header}
            folder.status_journal().append("status", header)
            count += 1
    return count


def _without_samples(folder: RunFolder, launch: int) -> Iterator[Record]:
    for record in folder.launch_records(launch):
        yield Record(record.kind, record.header, {}, record.end_offset)


def _compact_samples(folder: RunFolder, journals: dict[int, Path]) -> None:
    groups, covered = tables.read_sample_groups(folder.path, schema.schema("samples").names)
    new = {launch: path for launch, path in journals.items() if launch not in covered}
    if not new and (folder.path / "samples.parquet").exists():
        return
    writer = tables.TableWriter(folder.path, "samples", covered | set(new))
    try:
        for group in groups:
            writer.write(group)
        for launch, path in new.items():
            for batch in _batches(folder, launch):
                writer.write(tables.samples_table(batch, str(path)))
    except BaseException:
        writer.discard()
        raise
    writer.commit()


def _batches(folder: RunFolder, launch: int) -> Iterator[list[Record]]:
    """Yield the case records of a journal, as many at a time as fit into bounded memory."""
    batch: list[Record] = []
    held = 0
    for record in folder.launch_records(launch):
        if record.kind != "case" or not record.columns:
            continue
        batch.append(record)
        held += sum(column.nbytes for column in record.columns.values())
        if held >= _BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _compact_rows(folder: RunFolder, name: str, journals: dict[int, Path], records: list[Record]) -> None:
    old, covered = tables.read_table(folder.path, name)
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.header.get("launch") in covered:
            continue
        if name == "launches" and record.kind == "launch":
            rows.append(tables.launch_row(record, str(folder.path)))
        if name == "observations" and record.kind == "observations":
            rows += tables.observation_rows(record, str(folder.path))
    _replace(
        folder, name, pa.concat_tables([old, tables.table_of(name, rows, str(folder.path))]), covered | set(journals)
    )


def _compact_cases(folder: RunFolder, journals: dict[int, Path], records: list[Record]) -> None:
    old, covered = tables.read_table(folder.path, "cases")
    rows: dict[tables.Identity, dict[str, Any]] = {}
    for row in old.to_pylist():
        merge_cases(rows, row)
    add_records(rows, folder, records)
    _replace(folder, "cases", tables.table_of("cases", list(rows.values()), str(folder.path)), covered | set(journals))


def _replace(folder: RunFolder, name: str, table: pa.Table, launches: set[int]) -> None:
    writer = tables.TableWriter(folder.path, name, launches)
    try:
        writer.write(table)
    except BaseException:
        writer.discard()
        raise
    writer.commit()
