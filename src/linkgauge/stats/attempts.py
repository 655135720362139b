"""Which rows of a run count: of several attempts at one measurement the last that ended.

`--retry` and `--resume` measure a case again in a fresh launch, so the launch's number says nothing of what belongs
together: a measurement is a case under one launch key in one repeat (docs/definitions.md, Cases, launches, ranks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Row = TypeVar("Row", bound=Mapping[str, Any])


def last_attempts(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, in their order, that no later attempt at the same measurement replaces.

    A row has case_key, launch_key (empty or None where its launch never started), repeat, attempt and status; those
    without a status are left out. What a launch that never started left is replaced by a later attempt under any key.
    """
    ended = [row for row in rows if row["status"] is not None]
    last: dict[tuple[str, str, int], int] = {}
    for row in ended:
        for launch_key in {row["launch_key"] or "", ""}:
            key = (row["case_key"], launch_key, row["repeat"])
            last[key] = max(last.get(key, 0), row["attempt"])
    return [row for row in ended if row["attempt"] == last[(row["case_key"], row["launch_key"] or "", row["repeat"])]]
