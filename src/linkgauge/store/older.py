"""What formats 1 to 3 called otherwise: columns, patterns and moments that are renamed as they are read.

Keys of cases become those of the present names in every table that is read (store/run.py), so that runs of all formats
are compared. A run of an older format is read and judged, but not resumed: its journals name the former keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from linkgauge.errors import FORMER_PATTERNS

INFO = {"asked": "requested"}
"""Keys of run.json, in folders of format 3 too."""
COLUMNS = {
    "beside": "background", "stop_relative_half_width": "ci_width", "stop_time_ns": "max_time_ns",
    "size_asked": "size_requested",
}  # fmt: skip
_IN_LOADS = re.compile(rf"(?<= )(?:{'|'.join(FORMER_PATTERNS)})(?= )")  # TRANSPORT PATTERN SIZE
WORDS: dict[str, Callable[[str], str]] = {
    "pattern": lambda word: FORMER_PATTERNS.get(word, word),
    "background": lambda loads: _IN_LOADS.sub(lambda found: FORMER_PATTERNS[found[0]], loads),
    "moment": lambda word: "background" if word == "beside" else word,
}
"""By column how a text that is stored there reads with the present words."""


def stored_names(names: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """By column its name in a file that has the columns `there`."""
    found = {new: old for old, new in COLUMNS.items() if old in set(there)}
    return {name: found.get(name, name) for name in names}


def dimensions(case: Mapping[str, Any]) -> dict[str, Any]:
    """A stored case's dimensions, or an observation, by the present names."""
    named = {COLUMNS.get(name, name): value for name, value in case.items()}
    return {name: WORDS[name](value) if name in WORDS and isinstance(value, str) else value
            for name, value in named.items()}  # fmt: skip
