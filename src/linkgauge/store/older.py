"""What formats 1 and 2 called otherwise: columns, patterns and moments that are renamed as they are read.

Keys of cases become those of the present names in every table that is read, so that runs of all formats are compared.
A run of an older format is read and judged, but not resumed: its journals go on naming the former keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {"beside": "background", "stop_relative_half_width": "ci_width", "stop_time_ns": "max_time_ns"}
PATTERNS = {
    "chase": "pointer_chase", "floor": "empty_op", "cpu_stream": "host_stream",
    "host_device_both": "host_device_bidirectional", "host_to_device_beside": "host_to_device_contended",
    "device_to_host_beside": "device_to_host_contended",
}  # fmt: skip
_MOMENTS = {"beside": "background"}
_IN_LOADS = re.compile(rf"(?<= )(?:{'|'.join(PATTERNS)})(?= )")  # TRANSPORT PATTERN SIZE


def stored_names(names: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """By column its name in a file that has the columns `there`."""
    found = {new: old for old, new in COLUMNS.items() if old in set(there)}
    return {name: found.get(name, name) for name in names}


def dimensions(case: Mapping[str, Any]) -> dict[str, Any]:
    """A stored case's dimensions by the present names."""
    return {new: _value(new, value) for name, value in case.items() for new in (COLUMNS.get(name, name),)}


def column(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of texts with the present words; the very same one where nothing is to be changed."""
    import pyarrow as pa

    if name not in ("pattern", "background", "moment"):
        return values
    coded = values.combine_chunks().dictionary_encode()
    words = coded.dictionary.to_pylist()
    changed = [_value(name, word) for word in words]
    return values if changed == words else pa.chunked_array([pa.array(changed, pa.string()).take(coded.indices)])


def keyed(table: pa.Table, keys: Mapping[str, str]) -> pa.Table:
    """A table with each stored key of a case as `keys` has it; the table itself where that has none."""
    import pyarrow as pa

    if not keys or "case_key" not in table.column_names:
        return table
    at = table.schema.get_field_index("case_key")
    field = table.schema.field(at)
    coded = table["case_key"].combine_chunks()
    coded = coded if pa.types.is_dictionary(field.type) else coded.dictionary_encode()
    words = pa.array([keys.get(word, word) for word in coded.dictionary.to_pylist()], pa.string())
    values = pa.DictionaryArray.from_arrays(coded.indices, words) if pa.types.is_dictionary(field.type) else None
    return table.set_column(at, field, pa.chunked_array([words.take(coded.indices) if values is None else values]))


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "background":
        return _IN_LOADS.sub(lambda found: PATTERNS[found[0]], value)
    return {"pattern": PATTERNS, "moment": _MOMENTS}.get(name, {}).get(value, value)
