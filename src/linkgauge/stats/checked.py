"""How rare a fault can be that checked operations would have missed, and what is said of how many were checked."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkgauge.store.run import Run

MISSED = 0.05
"""The probability with which a fault of the stated rate is missed (docs/definitions.md, Verification)."""


def missed_rate(checked: int) -> float:
    """The share of wrong operations that so many checked ones, all of them right, miss with probability MISSED."""
    return float(-math.expm1(math.log(MISSED) / checked)) if checked > 0 else 1.0


def checks_for(rate: float) -> int:
    """How many operations find faults of that rate but with probability MISSED."""
    return math.ceil(math.log(MISSED) / math.log1p(-rate))


def operations_checked(run: Run) -> Counter[str]:
    """Of a run's cases that are ok how many operations were `checked`, and how many there were in `all`.

    Cases from before they were counted are left out.
    """
    found: Counter[str] = Counter()
    for row in run.rows():
        if row.status == "ok" and row.operations_checked is not None:
            found.update(checked=row.operations_checked, all=row.operations_total or 0)
    return found


def checked_words(found: Counter[str]) -> str:
    """`data checked in 24 of 4,310 operations`, as `check` and `against` say it; empty where it is not known."""
    return f"data checked in {found['checked']:,} of {found['all']:,} operations" if found["checked"] else ""
