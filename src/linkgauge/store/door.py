"""The door of a run folder's tables: what passed it is well-formed, within limits and safe to show.

Whatever a row's origin, Parquet or a journal: `checked` looks at types that Arrow does not know (dimensions, JSON
texts), at ranges, at what belongs together (ranks, groups, devices, lanes), and at text. It goes by column and by
distinct values, so that 10^5 cases cost a tenth of a second; samples are looked at part by part, as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from linkgauge.errors import RunFolderError, UsageError, one_line
from linkgauge.model.case import DIMENSIONS, LATER_DIMENSIONS, STATUSES, WORDED, Loads
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import CONTROLS, LONGEST_TEXT, MOST_NS, Shape, clean, maybe, one_of, parsed
from linkgauge.model.shape import checked as shape_checked
from linkgauge.model.shape import table as shape_table
from linkgauge.store import schema
from linkgauge.store.shapes import EVIDENCE, LAUNCH_TEXTS

MOST_ROWS = {"cases": 220_000, "launches": 1 << 16, "observations": 20_000_000, "samples": 1 << 31}
_MOST_RANKS = 1 << 20
# (least, most) of the columns of whole numbers whose type alone says too little.
_RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "cases": {
        "launch": (-1, MOST_NS), "repeat": (0, MOST_NS), "attempt": (0, MOST_NS),
        "size_requested": (-1, MOST_NS), "bytes_per_peer": (0, MOST_NS), "bytes_total": (0, MOST_NS),
        "operations_total": (0, MOST_NS), "operations_checked": (0, MOST_NS), "planned_launch": (-1, MOST_NS),
    },
    "launches": {"launch": (-1, MOST_NS)},
    "samples": {
        # Those by which is divided or indexed: each column of 10^7 samples costs a few hundredths of a second.
        "rank": (0, _MOST_RANKS), "lane": (0, MOST_NS), "ns": (0, MOST_NS), "iterations": (1, MOST_NS),
    },
    "observations": {"rank": (0, _MOST_RANKS), "when_ns": (-MOST_NS, MOST_NS)},
}  # fmt: skip
_OF_A_CASE = {name: one.stored for name, one in DIMENSIONS.items()} | {"status": maybe(one_of(STATUSES))}
_ONE_ROW_EACH = {"cases": list(schema.IDENTITY), "launches": ["launch"]}
_MAY_LACK = {  # columns that may be null
    "cases": {"lanes", "bytes_per_peer", "bytes_total", "status", "reason", "converged", "coarse", "oversubscribed",
              "verified", "operations_total", "operations_checked", "evidence", "planned_launch"},
    "launches": {"launch_key", "mpi", "env", "versions", "clock", "extra", "ranks"},
    "observations": {"subject", "moment", "unit"},
    "samples": set(),
}  # fmt: skip


def checked(name: str, table: pa.Table, where: str) -> pa.Table:
    """Return a table, or some columns of one, as its readers may use it. RunFolderError naming column and value."""
    if table.num_rows > MOST_ROWS[name]:
        raise RunFolderError(f"{where}: {table.num_rows} rows of {name}: expected at most {MOST_ROWS[name]}")
    for column in table.column_names:
        if name == "cases" and column in LATER_DIMENSIONS and table[column].null_count:
            # Records of a journal from before its time.
            table = _with(table, column, table[column].fill_null(LATER_DIMENSIONS[column]))
        if table[column].null_count and column not in _MAY_LACK[name]:
            raise RunFolderError(f"{where}: a row of {name} without {column}: expected one")
        if column in _RANGES[name]:
            _in_range(table[column], *_RANGES[name][column], f"{where}: {column} of {name}")
        kind = table.schema.field(column).type
        if pa.types.is_dictionary(kind):
            _known_words(column, table[column], f"{where}: {name}")
        elif pa.types.is_string(kind):
            table = _with(table, column, _texts(table[column], f"{where}: {column} of {name}"))
    if unique := _ONE_ROW_EACH.get(name):
        rows = table.group_by(unique).aggregate([([], "count_all")])
        if rows.num_rows < table.num_rows:
            twice = rows.filter(pc.greater(rows["count_all"], 1)).slice(0, 1).to_pylist()[0]
            raise RunFolderError(
                f"{where}: {unique[0]} {_shown(twice[unique[0]])} has two rows in {name}: expected one"
            )
    relations = {"cases": _cases, "launches": _launches, "observations": _observations}
    return relations[name](table, where) if name in relations else table


def most_of(cases: pa.Table) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Return how many ranks and lanes each case has, by its row identity; of lanes nobody has told, as many as fit."""
    lanes = pc.fill_null(pc.list_value_length(cases["lanes"]), 0).to_pylist()
    identities = zip(*(cases[name].to_pylist() for name in schema.IDENTITY), strict=True)
    counts = ((ranks, count or MOST_NS) for ranks, count in zip(cases["ranks"].to_pylist(), lanes, strict=True))
    return dict(zip(identities, counts, strict=True))


def of_its_case(name: str, table: pa.Table, most: dict[tuple[Any, ...], tuple[int, int]], where: str) -> pa.Table:
    """Return samples or observations of which none is of a rank or lane that its case, by `most_of`, has not.

    RunFolderError for those, and for a sample that is there twice. Rows of cases that are not known are left to their
    readers: a run in progress has them for a moment. Of 10^7 rows in their usual order this takes 0.3 s.
    """
    kinds = [kind for kind in ("rank", "lane") if kind in table.column_names]
    if not table.num_rows or "rank" not in kinds or not set(schema.IDENTITY) <= set(table.column_names):
        return table
    keys = table["case_key"].combine_chunks()
    keys = keys if isinstance(keys, pa.DictionaryArray) else keys.dictionary_encode()
    identity = [keys.indices.to_numpy(), *(table[kind].to_numpy() for kind in schema.IDENTITY[1:])]
    if name == "samples" and set(_OF_A_SAMPLE) <= set(table.column_names):
        _check_once(table, identity, keys, where)
    begins = np.append(True, np.any([column[1:] != column[:-1] for column in identity], axis=0)).nonzero()[0]
    first = pa.table([pa.array(column[begins]) for column in identity], schema.IDENTITY)
    for kind in kinds:
        first = first.append_column(kind, pa.array(np.maximum.reduceat(table[kind].to_numpy(), begins)))
    largest = first.group_by(list(schema.IDENTITY)).aggregate([(kind, "max") for kind in kinds])
    for row in largest.to_pylist():
        key = keys.dictionary[row["case_key"]].as_py()
        known = most.get((key, *(row[kind] for kind in schema.IDENTITY[1:])))
        for kind, limit in zip(kinds, known or (), strict=False):
            if row[f"{kind}_max"] >= limit:
                raise RunFolderError(
                    f"{where}: {kind} of {name} is {row[f'{kind}_max']}: expected below {limit} in case {_shown(key)}"
                )
    return table


_OF_A_SAMPLE = ("rank", "lane", "phase", "sample")


def _check_once(table: pa.Table, identity: list[Any], keys: pa.DictionaryArray, where: str) -> None:
    """RunFolderError where a sample of a case is there twice: each of them would count in its statistics."""
    phases = table["phase"].combine_chunks()
    phases = phases if isinstance(phases, pa.DictionaryArray) else phases.dictionary_encode()
    columns = [*identity, table["rank"].to_numpy(), table["lane"].to_numpy(), phases.indices.to_numpy()]
    columns.append(table["sample"].to_numpy())
    rises, same = _compared(columns)
    if not rises.all() and not same.any():  # no usual order: as the store has never written them
        order = np.lexsort(columns[::-1])
        columns = [column[order] for column in columns]
        _, same = _compared(columns)
    if same.any():
        at = int(same.argmax())
        key = keys.dictionary[int(columns[0][at])].as_py()
        raise RunFolderError(
            f"{where}: sample {columns[-1][at]} of rank {columns[-4][at]} is there twice in case {_shown(key)}"
        )


def _compared(columns: list[Any]) -> tuple[Any, Any]:
    """Of each row but the first, whether it is greater than the one before by its columns, and whether it is equal."""
    rises, same = np.zeros(len(columns[0]) - 1, bool), np.ones(len(columns[0]) - 1, bool)
    for column in columns:
        rises |= same & (column[1:] > column[:-1])
        same &= column[1:] == column[:-1]
    return rises, same


def _with(table: pa.Table, column: str, values: Any) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table if values is table[column] else table.set_column(at, table.schema.field(column), values)


def _in_range(values: pa.ChunkedArray, low: int, high: int, what: str) -> None:
    ends = pc.min_max(values).as_py()
    for end in (ends["min"], ends["max"]):
        if end is not None and not low <= end <= high:
            expected = f"at least {low}" if end < low else f"at most {high}"
            raise RunFolderError(f"{what} is {end}: expected {expected}")


def _known_words(column: str, values: pa.ChunkedArray, what: str) -> None:
    for chunk in values.chunks:
        if chunk.dictionary.null_count:
            raise RunFolderError(f"{what} without {column}: expected one")
        if column in schema.CODED:
            for word in set(chunk.dictionary.to_pylist()) - set(schema.CODED[column]):
                raise RunFolderError(
                    f"{what}: {column} is {_shown(word)}: expected {' or '.join(schema.CODED[column])}"
                )


def _texts(values: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return texts of which each is of bounded length and one line, without control characters."""
    if (pc.max(pc.binary_length(values)).as_py() or 0) > LONGEST_TEXT:
        raise RunFolderError(f"{what} is longer than {LONGEST_TEXT >> 20} MiB: expected a text")
    if not pc.any(pc.match_substring_regex(values, f"[\\n\\t]|{CONTROLS}")).as_py():
        return values
    return mapped(values, _line)


def mapped(values: pa.ChunkedArray, change: Callable[[str], str | None]) -> pa.ChunkedArray:
    """Return the texts changed, each distinct one once; the column itself where none changes."""
    coded = values.combine_chunks()
    plain = not pa.types.is_dictionary(coded.type)
    coded = coded.dictionary_encode() if plain else coded
    before = coded.dictionary.to_pylist()
    after = [change(word) for word in before]
    if after == before:
        return values
    words = pa.array(after, pa.string())
    return pa.chunked_array([words.take(coded.indices) if plain else coded.from_arrays(coded.indices, words)])


def _json(table: pa.Table, column: str, shape: Shape, where: str) -> pa.Table:
    """Return the table with a column's JSON texts of that shape; null for null."""

    def change(text: str) -> str | None:
        found = parsed(text, shape, where, RunFolderError)
        return None if found is None else json.dumps(found)

    return _with(table, column, mapped(table[column], change))


def _cases(table: pa.Table, where: str) -> pa.Table:
    for name in _OF_A_CASE.keys() - {"ranks"}:
        for value in table[name].unique().to_pylist():
            shape_checked({name: value}, shape_table(_OF_A_CASE), where, RunFolderError)
    devices = pa.chunked_array([chunk.flatten() for chunk in table["devices"].chunks], pa.int32())
    if devices.null_count or pc.any(pc.equal(pc.list_value_length(table["devices"]), 0)).as_py():
        raise RunFolderError(f"{where}: a case without devices: expected one for each rank")
    _in_range(devices, 0, _MOST_RANKS - 1, f"{where}: a device of a case")
    for name, kind in WORDED.items():
        for text in table[name].unique().to_pylist():
            try:
                value = kind.of_text(text)
            except UsageError as error:
                raise RunFolderError(f"{where}: {error}") from None
            jobs = [load.case for load in value.each] if isinstance(value, Loads) else []
            if not all(PATTERNS[job.pattern].takes(job.group_ranks) for job in jobs):
                raise RunFolderError(f"{where}: a load on devices that its pattern does not take: {_shown(text)}")
    # Distinct combinations of what belongs together; of what was only planned nothing was done.
    counts = {"devices_": pc.list_value_length(table["devices"]), "lanes_": pc.list_value_length(table["lanes"])}
    names = ["pattern", "ranks", "groups", "root", "status"]
    rows = pa.table({**{name: table[name] for name in names}, **counts})
    for row in rows.group_by(rows.column_names).aggregate([]).to_pylist():
        info = PATTERNS[row["pattern"]]
        ranks, groups = row["devices_"], row["groups"]
        if row["ranks"] != ranks:
            raise RunFolderError(f"{where}: a case of {row['ranks']} ranks with {ranks} devices: expected as many")
        if row["status"] == "skipped":
            continue
        if why := info.why_not(ranks, groups, row["root"]):
            raise RunFolderError(f"{where}: {why}")
        if (row["lanes_"] or 0) > 2 * ranks:
            raise RunFolderError(f"{where}: {row['lanes_']} lanes of {ranks} ranks: expected at most two a rank")
    table = _with(table, "lanes", _inner_texts(table["lanes"], f"{where}: a lane of a case"))
    return _json(table, "evidence", EVIDENCE, f"{where}: evidence of a case")


def _inner_texts(values: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return lists of texts with clean ones."""
    inner = pa.chunked_array([chunk.flatten() for chunk in values.chunks], pa.string())
    if inner.null_count:
        raise RunFolderError(f"{what} is missing: expected a text")
    return values if _texts(inner, what) is inner else _lines(values)


def _launches(table: pa.Table, where: str) -> pa.Table:
    for column, shape in LAUNCH_TEXTS.items():
        table = _json(table, column, shape, f"{where}: {column} of launches")
    # A launch of 10,000 ranks says much of each; what is right stays as Arrow has it.
    ranks = [chunk.flatten() for chunk in table["ranks"].chunks]
    if any(part.null_count for part in ranks):
        raise RunFolderError(f"{where}: a launch with a rank that is missing: expected what is known of it")
    changed = False
    for field in table.schema.field("ranks").type.value_type:
        what = f"{where}: {field.name} of a rank"
        values = pa.chunked_array([pc.struct_field(part, field.name) for part in ranks], field.type)
        if pa.types.is_string(field.type):
            changed |= _texts(values, what) is not values
        elif field.name in ("rank", "device_ordinal", "pid"):
            _in_range(values, 0, _MOST_RANKS if field.name != "pid" else MOST_NS, what)
    return _with(table, "ranks", _lines(table["ranks"])) if changed else table


def _observations(table: pa.Table, where: str) -> pa.Table:
    if not pc.all(pc.is_finite(table["value"])).as_py() and table.num_rows:
        raise RunFolderError(f"{where}: an observation that is not finite: expected a number")
    return table


def _lines(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists of texts, or of objects with some, of which each text is clean and one line."""
    return pa.chunked_array([pa.array(list(map(_all_lines, values.to_pylist())), values.type)])


def _all_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _all_lines(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_all_lines(one) for one in value]
    return _line(value) if isinstance(value, str) else value


def _line(text: str) -> str:
    return clean(text).replace("\n", " ").replace("\t", " ")


def _shown(value: object) -> str:
    return one_line(repr(value)[:80])
