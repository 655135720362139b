"""Which rows of a run count, and which are one measurement: for every reader the same.

Of several attempts at a case of one planned launch the last that ended counts. `--retry` and `--resume` measure it in a
fresh launch, so the launch's number does not tell what belongs together. Neither does its key: a launch that never
started has none, and one that goes on with another MPI library has another. The repeats of a case under one launch key
are one measurement (docs/definitions.md, Cases, launches, ranks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from linkgauge.stats.series import HEADLINE

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Row = TypeVar("Row", bound=Mapping[str, Any])


def last_attempts(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, in their order, that no later attempt at the same measurement replaces.

    A row has case_key, planned_launch, repeat, attempt and status; those without a status are left out.
    """
    ended = [row for row in rows if row["status"] is not None]
    last: dict[tuple[str, int, int], int] = {}
    for row in ended:
        last[_tried(row)] = max(last.get(_tried(row), 0), row["attempt"])
    return [row for row in ended if row["attempt"] == last[_tried(row)]]


def _tried(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["case_key"], row["planned_launch"], row["repeat"]


class Counted(Generic[Row]):
    """The rows of a summary that count, sorted out: what every table, finding and comparison starts from.

    `rows`: all of them, in their order. `measured`: the headlines with a median, of each measurement its repeats
    together. `lanes`: the same of single lanes. `others`: headlines of cases that did not end well, repeats apart.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        """Take summary rows; one without a `lane` is a headline."""
        self.rows = last_attempts(rows)
        good = [row for row in self.rows if row["status"] == "ok"]
        self.measured = _repeats(row for row in good if _is_headline(row) and row["median_ns"] is not None)
        self.lanes = _repeats(row for row in good if not _is_headline(row))
        self.others = [row for row in self.rows if row["status"] != "ok" and _is_headline(row)]


def counted(run: Run, columns: Iterable[str] | None = None) -> Counted[dict[str, Any]]:
    """Return the rows of a run's summary that count, with the named columns (all by default)."""
    from linkgauge.stats.summary import summarize

    table = summarize(run)
    return Counted((table if columns is None else table.select(list(columns))).to_pylist())


def _is_headline(row: Mapping[str, Any]) -> bool:
    return bool(row.get("lane", HEADLINE) == HEADLINE)


def _repeats(rows: Iterable[Row]) -> list[list[Row]]:
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["case_key"], row["launch_key"] or "", row.get("lane", HEADLINE)), []).append(row)
    return list(found.values())
