"""Which rows of a run count, and which are one measurement: for every reader the same.

Of several attempts at a case of one planned launch the last that ended counts. `--retry` and `--resume` measure it in a
fresh launch, so the launch's number does not tell what belongs together. Neither does its key: a launch that never
started has none, and one that goes on with another MPI library has another. The repeats of a case under one launch key
are one measurement (docs/definitions.md, Cases, launches, ranks).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from linkgauge.model.grouped import grouped
from linkgauge.model.result import Measured, Result, Row

if TYPE_CHECKING:
    from linkgauge.store.run import Run

AnyRow = TypeVar("AnyRow", bound=Row)


def last_attempts(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Return the rows, in their order, that no later attempt at the same measurement replaces.

    Those without a status are left out.
    """
    ended = [row for row in rows if row.status is not None]
    last: dict[tuple[str, int, int], int] = {}
    for row in ended:
        last[_tried(row)] = max(last.get(_tried(row), 0), row.attempt)
    return [row for row in ended if row.attempt == last[_tried(row)]]


def _tried(row: Row) -> tuple[str, int, int]:
    return row.case_key, row.planned_launch, row.repeat


class Counted:
    """The results of a run that count, sorted out: what every table, finding and comparison starts from.

    `rows`: all of them, in their order. `measured`: the headlines with figures, of each measurement its repeats
    together. `lanes`: the same of single lanes. `others`: headlines of cases that did not end well, repeats apart.
    """

    def __init__(self, rows: Iterable[Result]) -> None:
        """Sort out some results."""
        self.rows = last_attempts(rows)
        good = [row for row in self.rows if row.status == "ok" and isinstance(row, Measured)]
        self.measured = _repeats(row for row in good if row.is_headline)
        self.lanes = _repeats(row for row in good if not row.is_headline)
        self.others = [row for row in self.rows if row.status != "ok" and row.is_headline]


def counted(run: Run) -> Counted:
    """Return the results of a run that count."""
    from linkgauge.stats.summary import results_of

    return Counted(results_of(run))


def _repeats(rows: Iterable[Measured]) -> list[list[Measured]]:
    found = grouped(((row.case_key, row.launch_key, row.lane), row) for row in rows)
    return list(found.values())
