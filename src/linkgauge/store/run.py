"""A run as its readers see it: `linkgauge.load(PATH)` returns a Run."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from linkgauge.errors import RunFolderError
from linkgauge.model.case import LATER_DIMENSIONS, STATUSES, Case
from linkgauge.store import compaction, schema, tables
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import Record

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the cases: a case in one launch. `record` holds every column of cases.parquet by name."""

    case_key: str
    launch: int
    repeat: int
    attempt: int
    case: Case
    status: str | None  # None: the run ended, or has not come, before anything was said of it
    reason: str | None
    record: dict[str, Any]

    @property
    def identity(self) -> tables.Identity:
        """(case_key, launch, repeat, attempt)."""
        return (self.case_key, self.launch, self.repeat, self.attempt)


class Run:
    """A run folder that is read: run.json as `info`, and its tables as pyarrow tables, read when first asked for.

    A run in progress can be read too: what its journals hold is included. Every method raises RunFolderError, with
    one line, where the folder holds what no run writes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the run folder `path`."""
        self._folder = RunFolder.open(path)
        self.path: Path = self._folder.path
        self.info: dict[str, Any] = self._folder.info

    @functools.cached_property
    def cases(self) -> pa.Table:
        """One row a (case_key, launch, repeat, attempt): all dimensions, status, reason (docs/run-folder.md)."""
        table, _ = tables.read_table(self.path, "cases")
        rows: dict[tables.Identity, dict[str, Any]] = {}
        statuses = list(self._folder.status_records())
        if not self._journals and not statuses:
            return self._checked_cases(table)
        for row in table.to_pylist():
            compaction.merge_cases(rows, row)
        compaction.add_records(rows, self._folder, self._journals)
        return self._checked_cases(tables.table_of("cases", list(rows.values()), str(self.path)))

    @functools.cached_property
    def launches(self) -> pa.Table:
        """One row a launch: its MPI library, environment, versions and ranks."""
        table, covered = tables.read_table(self.path, "launches")
        self._check_whole("launches", covered)
        new = [record for record in self._uncovered(covered) if record.kind == "launch"]
        rows = [tables.launch_row(record, str(self.path)) for record in new]
        return pa.concat_tables([table, tables.table_of("launches", rows, str(self.path))])

    @functools.cached_property
    def samples(self) -> pa.Table:
        """One row a sample: identity, rank, lane, sample, phase, scheduled_ns, start_ns, ns, iterations, clock."""
        return self.sample_columns()

    def sample_columns(self, columns: list[str] | None = None) -> pa.Table:
        """Return the samples with only the named columns (all by default): less to read, for what needs less."""
        table, covered = tables.read_table(self.path, "samples", columns)
        self._check_whole("samples", covered)
        new = [record for record in self._uncovered(covered) if record.kind == "case" and record.columns]
        if new:
            added = tables.samples_table(new, str(self.path))
            table = pa.concat_tables([table, added if columns is None else added.select(columns)])
        table = table.unify_dictionaries()
        tables.check_samples(table, str(self.path))
        return table

    def sample_groups(self, columns: list[str]) -> Iterator[pa.Table]:
        """Yield the samples part by part, so that a large run needs little memory.

        A run folder as this Linkgauge writes it has the samples of one row in one part; others may scatter them.
        """
        groups, covered = tables.read_sample_groups(self.path, columns)
        self._check_whole("samples", covered)
        for table in groups:
            tables.check_samples(table, str(self.path))
            yield table
        new = [record for record in self._uncovered(covered) if record.kind == "case" and record.columns]
        if new:
            table = tables.samples_table(new, str(self.path)).select(columns)
            tables.check_samples(table, str(self.path))
            yield table

    @functools.cached_property
    def observations(self) -> pa.Table:
        """One row an observed value of a link, device or NIC, before or after a case."""
        table, covered = tables.read_table(self.path, "observations")
        rows: list[dict[str, Any]] = []
        for record in self._uncovered(covered):
            if record.kind == "observations":
                rows += tables.observation_rows(record, str(self.path))
        return pa.concat_tables([table, tables.table_of("observations", rows, str(self.path))])

    def rows(self) -> Iterator[Row]:
        """Yield the rows of `cases` as Row, in their order."""
        for record in self.cases.to_pylist():
            try:
                case = Case.from_dimensions(record)
            except (TypeError, KeyError) as error:
                raise RunFolderError(f"{self.path}: case {record['case_key']!r} lacks a dimension: {error}") from None
            identity = tables.identity_of(record, str(self.path))
            yield Row(*identity, case, record["status"], record["reason"], record)

    @functools.cached_property
    def _journals(self) -> list[Record]:
        journals = self._folder.launch_journals()
        return [record for launch in journals for record in self._folder.launch_records(launch)]

    def _check_whole(self, name: str, covered: set[int]) -> None:
        """Refuse a run folder that has lost a table: cases.parquet is written last, the others cover as much."""
        lost = sorted(tables.covered_launches(self.path, "cases") - covered)
        if lost:
            words = f"launch{'es' if len(lost) > 1 else ''} {', '.join(map(str, lost[:5]))}"
            raise RunFolderError(f"{self.path}: {name}.parquet is missing or not of this run: it lacks {words}")

    def _uncovered(self, covered: set[int]) -> list[Record]:
        """Return the journals' records that no Parquet table holds yet."""
        return [record for record in self._journals if record.header.get("launch") not in covered]

    def _checked_cases(self, table: pa.Table) -> pa.Table:
        for name in schema.IDENTITY:
            if table[name].null_count:
                raise RunFolderError(f"{self.path}: a case without {name}")
        for status in set(table["status"].to_pylist()) - {*STATUSES, None}:
            raise RunFolderError(f"{self.path}: unknown status {status!r}")
        for name, value in LATER_DIMENSIONS.items():  # records of a journal from before their time
            if table[name].null_count:
                place = table.schema.get_field_index(name)
                table = table.set_column(place, table.schema.field(name), table[name].fill_null(value))
        for name in schema.dimension_types():
            # A case that was recorded without its dimensions cannot be named, shown or matched.
            if table[name].null_count:
                raise RunFolderError(f"{self.path}: a case lacks its dimension '{name}'")
        return table


def load(path: str | os.PathLike[str]) -> Run:
    """Open the run folder `path` for reading. RunFolderError where it is none, or of a version that cannot be read."""
    return Run(path)
