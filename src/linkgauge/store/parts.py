"""Which cases of a run are of which figure, where a run measured several: the file figures.json of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from linkgauge.files import write_atomically
from linkgauge.model.shape import each, mapping, one_of, only, read_json, text, whole

FILE = "figures.json"
_FORMAT, _VERSION = "linkgauge-figures", 1
_MOST_BYTES = 1 << 28
_SHAPE = only({"format": one_of((_FORMAT,)), "version": whole(1), "figures": mapping(each(text, 1 << 20))},
              ("figures",))  # fmt: skip


def write_parts(folder: Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Store the keys of each figure's cases; atomic."""
    said = {"format": _FORMAT, "version": _VERSION, "figures": parts}
    write_atomically(folder / FILE, json.dumps(said, separators=(",", ":")).encode())


def read_parts(folder: Path) -> dict[str, frozenset[str]] | None:
    """Return the keys of each figure's cases; None where the run is of one plan. UsageError for another form."""
    path = folder / FILE
    if not path.exists():
        return None
    stored = read_json(path, _MOST_BYTES, "a run's figures", _SHAPE)
    return {name: frozenset(keys) for name, keys in stored["figures"].items()}
