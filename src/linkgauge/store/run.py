"""A run as its readers see it: `linkgauge.load(PATH)` returns a Run."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from linkgauge.errors import DamagedRunWarning, RunFolderError
from linkgauge.model.case import Case
from linkgauge.model.result import Answer, Launch, Observation, Rank, Row
from linkgauge.model.shape import json_object
from linkgauge.store import compaction, door, schema, tables
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


_MOST_HELD_BYTES = 8 << 30  # of journals at once; each launch that ends makes tables of its own
_RECORD_BYTES = 4 << 10  # about what a record takes beside its columns


class Run:
    """A run folder that is read: run.json as `info`, and its tables as pyarrow tables, read when first asked for.

    A run in progress can be read too: what its journals hold is included. Every method raises RunFolderError, with
    one line, where the folder holds what no run writes.

    >>> run = load("linkgauge-demo")
    >>> run.samples.column_names[4:]
    ['rank', 'lane', 'sample', 'phase', 'scheduled_ns', 'start_ns', 'ns', 'iterations', 'clock']
    >>> {row.status for row in run.rows()} == {"ok", "skipped"}
    True
    """

    def __init__(self, path: str | os.PathLike[str], launches: Collection[int] | None = None) -> None:
        """Open the run folder `path`; with `launches` only their cases and samples are read."""
        self._folder = RunFolder.open(path)
        self._only = launches
        self.path: Path = self._folder.path
        self.info: dict[str, Any] = self._folder.info

    @functools.cached_property
    def cases(self) -> pa.Table:
        """One row a (case_key, launch, repeat, attempt), as docs/reference/run-folder.md says."""
        found = self._keyed(self._with_planned_launches(self._stored_cases))
        self._tell_damages(found)
        return found if self._only is None else found.filter(pc.field("launch").isin(list(self._only)))

    @functools.cached_property
    def _stored_cases(self) -> pa.Table:
        """The cases, by the keys that the folder has."""
        told = self._told
        found = door.checked("cases", compaction.cases_of(self._folder, told), str(self.path))
        if not found.num_rows:
            said = tables.covered_launches(self.path, "launches")
            self._check_whole("cases", tables.covered_launches(self.path, "cases") | compaction.launches_in(told), said)
        return found

    @functools.cached_property
    def _keys(self) -> dict[str, str]:
        """By a case's key in the folder the key of the present names; empty where they are the same."""
        rows = [] if self._folder.resumable else self._stored_cases.to_pylist()
        return {row["case_key"]: Case.from_dimensions(row).case_key for row in rows}

    def _keyed(self, table: pa.Table) -> pa.Table:
        """Return a table of the folder by the keys of the present names."""
        if not self._keys or "case_key" not in table.column_names:
            return table
        at = table.schema.get_field_index("case_key")
        values = door.mapped(table["case_key"], lambda key: self._keys.get(key, key))
        return table.set_column(at, table.schema.field(at), values)

    @functools.cached_property
    def lost(self) -> int:
        """How many cases of the run have no status since what was measured lay where a journal is damaged."""
        return len(self._lost(self.cases))

    @property
    def damages(self) -> list[str]:
        """What of the run's journals cannot be read any more, a sentence each; empty for a whole run folder."""
        _ = self.cases  # journals are read, and looked at, for these
        return self._folder.damages

    @staticmethod
    def _lost(cases: pa.Table) -> set[tuple[Any, ...]]:
        """Return the cases that were lost and that no later attempt has measured again."""
        if not pc.any(pc.equal(cases["reason"], compaction.LOST)).as_py():
            return set()
        names = ["case_key", "planned_launch", "repeat"]
        known = cases.select([*names, "status", "reason"]).to_pylist()
        lost = {tuple(row[name] for name in names) for row in known if row["reason"] == compaction.LOST}
        return lost - {tuple(row[name] for name in names) for row in known if row["status"] is not None}

    def _tell_damages(self, cases: pa.Table) -> None:
        damages, lost = self._folder.damages, len(self._lost(cases)) if self._folder.damages else 0
        if not lost and damages == self.info.get("damaged", []):
            return  # nothing is, or what was lost has been measured again
        more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
        warnings.warn(
            f"{damages[0]}{more}; what is whole is read, {lost} case{'' if lost == 1 else 's'} lost: "
            f"'linkgauge run --resume {self.path}' measures again what is missing",
            DamagedRunWarning,
            stacklevel=3,
        )

    def _with_planned_launches(self, cases: pa.Table) -> pa.Table:
        """Fill in which planned launch a case belongs to, where an older run's statuses do not say so."""
        if not cases["planned_launch"].null_count:
            return cases
        origin = {int(number): planned for number, planned in self.info.get("relaunched", {}).items()}
        launches, said = cases["launch"].to_pylist(), cases["planned_launch"].to_pylist()
        numbers = [origin.get(one, one) if of is None else of for one, of in zip(launches, said, strict=True)]
        field = cases.schema.field("planned_launch")
        return cases.set_column(cases.schema.get_field_index(field.name), field, pa.array(numbers, field.type))

    @functools.cached_property
    def launches(self) -> pa.Table:
        """One row a launch: its MPI library, environment, versions and ranks."""
        told = self._told
        self._check_whole("launches", tables.covered_launches(self.path, "launches") | compaction.launches_in(told))
        return door.checked("launches", compaction.launches_of(self._folder, told), str(self.path))

    @functools.cached_property
    def samples(self) -> pa.Table:
        """One row a sample: identity, rank, lane, sample, phase, scheduled_ns, start_ns, ns, iterations, clock."""
        return self.sample_columns()

    def sample_columns(self, columns: list[str] | None = None) -> pa.Table:
        """Return the samples with only the named columns (all by default): less to read, for what needs less."""
        names = schema.schema("samples").names if columns is None else columns
        nothing = schema.schema("samples").empty_table().select(names)
        return pa.concat_tables([nothing, *self.sample_groups(names)]).unify_dictionaries()

    def sample_groups(self, columns: list[str]) -> Iterator[pa.Table]:
        """Yield the samples part by part, none of them empty, so that a large run needs little memory.

        A run folder as this Linkgauge writes it has the samples of one row in one part; others may scatter them.
        """
        journals = self._journals  # before the files: what is moved meanwhile is met twice, and left out here
        paths, covered = tables.files_of(self.path, "samples", self._only)
        new = [record for record in _uncovered(journals, covered) if record.kind == "case" and record.columns]
        self._check_whole("samples", covered | compaction.launches_in(journals))
        added = [tables.samples_table(new, str(self.path)).select(columns)] if new else []
        for table in itertools.chain(tables.read_parts(paths, "samples", columns), added):
            if table.num_rows:
                sound = self._keyed(door.checked("samples", table, str(self.path)))
                yield door.of_its_case("samples", sound, self._most, str(self.path))

    @functools.cached_property
    def observations(self) -> pa.Table:
        """One row an observed value of a link, device or NIC, before or after a case."""
        journals = self._journals
        paths, covered = tables.files_of(self.path, "observations")
        seen = [record for record in _uncovered(journals, covered) if record.kind == "observations"]
        rows = [row for record in seen for row in tables.observation_rows(record.header)]
        new = tables.table_of("observations", rows, str(self.path))
        found = pa.concat_tables([*tables.read_parts(paths, "observations"), new])
        sound = self._keyed(door.checked("observations", found, str(self.path)))
        return door.of_its_case("observations", sound, self._most, str(self.path))

    def observed(self, chosen: Callable[[pa.Table], pa.Array] | None = None) -> list[Observation]:
        """Return the rows of `observations`, in their order; with `chosen` those for which its mask is true."""
        table = self.observations
        return list(map(Observation.of, (table if chosen is None else table.filter(chosen(table))).to_pylist()))

    def observed_of(self, subject: str) -> list[Observation]:
        """Return what was observed of one subject."""
        return self.observed(lambda table: pc.equal(table["subject"], subject))

    def rows(self) -> Sequence[Row]:
        """Return the rows of `cases`, in their order."""
        return self._rows

    @functools.cached_property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(map(row_of, self.cases.to_pylist()))

    @functools.cached_property
    def launched(self) -> tuple[Launch, ...]:
        """The rows of `launches`, in their order."""
        return tuple(map(launch_of, self.launches.to_pylist()))

    @functools.cached_property
    def _most(self) -> dict[tuple[Any, ...], tuple[int, int]]:
        return door.most_of(self.cases)

    @functools.cached_property
    def _journals(self) -> list[Record]:
        found: list[Record] = []
        held = 0
        for launch in self._folder.launch_journals():
            for record in self._folder.launch_records(launch):
                found.append(record)
                held += _RECORD_BYTES + sum(column.nbytes for column in record.columns.values())
                if held > _MOST_HELD_BYTES:
                    raise RunFolderError(
                        f"{self.path}: its journals hold more than {_MOST_HELD_BYTES >> 30} GiB: 'linkgauge run "
                        f"--resume {self.path}' makes tables of them"
                    )
        return found

    @functools.cached_property
    def _told(self) -> list[Record]:
        """What the journals say beside samples and observations: the launches' own, then the parent's."""
        return [*self._journals, *self._folder.status_records()]

    def _check_whole(self, name: str, covered: set[int], said: set[int] | None = None) -> None:
        """Refuse a run folder that has lost a file: what is said of a launch's cases is written after the others.

        `said`: the launches that there are; by default those of which cases are known.
        """
        if said is None:
            said = tables.covered_launches(self.path, "cases") | compaction.launches_in(self._told)
        if lost := sorted(said - covered):
            file = f"{name}/launch-{lost[0]:05d}.parquet" if name in schema.BY_LAUNCH else f"{name}.parquet"
            words = f"launch{'es' if len(lost) > 1 else ''} {', '.join(map(str, lost[:5]))}"
            raise RunFolderError(
                f"{self.path}: {file} is missing or not of this run: no {name} of {words}, without which there are no "
                "figures: copy the whole folder again from where it was measured"
            )


_AS_STORED = tuple(
    field.name for field in dataclasses.fields(Row) if field.name not in ("case", "reason", "lanes", "evidence")
)


def row_of(record: Mapping[str, Any]) -> Row:
    """Make a row of a row of the table of cases, as a dict."""
    return Row(
        case=Case.from_dimensions(record),
        reason=record["reason"] or "",
        lanes=tuple(record["lanes"] or ()),
        evidence=json_object(record["evidence"]),
        **{name: record[name] for name in _AS_STORED},
    )


def _rank(record: Mapping[str, Any]) -> Rank:
    """Make a rank of what is stored of it: what is not keeps its default."""
    stored = {name: value for name, value in record.items() if value is not None}
    return Rank(**stored | {"cores": tuple(stored.get("cores", ()))})


def launch_of(record: Mapping[str, Any]) -> Launch:
    """Make a launch of a row of the table of launches, as a dict."""
    extra = json_object(record["extra"])
    ranks = [_rank(rank) for rank in record["ranks"] or ()]
    return Launch(
        record["launch"],
        record["launch_key"] or "",
        json_object(record["mpi"]),
        {name: str(value) for name, value in json_object(record["env"]).items()},
        json_object(record["versions"]),
        json_object(record["clock"]),
        tuple(sorted(ranks, key=lambda rank: rank.rank)),
        tuple(extra.get("places") or ()),
        extra.get("launch_key_contents") or {},
        frozenset(name for names in (extra.get("not_observed") or {}).values() for name in names),
        {name: str(value) for name, value in (extra.get("derived_env") or {}).items()},
        {name: Answer(one["known"], one["by"], one.get("value")) for name, one in (extra.get("answers") or {}).items()},
    )


def _uncovered(records: list[Record], covered: set[int]) -> list[Record]:
    """Return the journals' records that no file holds yet."""
    return [record for record in records if record.header.get("launch") not in covered]


def load(path: str | os.PathLike[str], launches: Collection[int] | None = None) -> Run:
    """Open the run folder `path` for reading. RunFolderError where it is none, or of a version that cannot be read.

    With `launches` only their cases and samples are read: a reader after each of many launches does not read them all.
    """
    return Run(path, launches)
