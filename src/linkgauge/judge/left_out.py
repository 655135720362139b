"""Cases that a run has not measured because its curves ended, so that another run's are not missed in it.

A curve ends where it is full (docs/definitions.md, Cases, launches, ranks), which may be one size later in the next
run; the pairs of a matrix are then measured at another size. Neither is a measurement that failed, or one that could
not be judged.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from linkgauge.model.case import Case
from linkgauge.model.elements import restated_size
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Row


def left_out_keys(rows: Sequence[Row]) -> set[str]:
    """Case keys that a run of these rows has left out on purpose.

    Of a case that was measured where its curve is full, those at all other sizes of the curve.
    """
    sizes: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for name, key in (("curve", "id"), ("left_out", "curve")):
            if curve := row.evidence.get(name, {}).get(key):
                sizes[curve].add(row.case.size_requested)
    keys = {row.case_key for row in rows if "left_out" in row.evidence}
    for row in rows:
        if "at_full" in row.evidence:
            others = sizes[row.evidence["at_full"]] - {row.case.size_requested}
            keys |= {_at_size(row.case, size).case_key for size in others}
    return keys


def _at_size(case: Case, size: int) -> Case:
    actual, _ = restated_size(PATTERNS[case.pattern], size, max(case.group_ranks, 1), case.datatype)
    return dataclasses.replace(case, size=actual, size_requested=size)
