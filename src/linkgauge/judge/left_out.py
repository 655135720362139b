"""Cases that a run has not measured because its curves ended, so that another run's are not missed in it.

A curve ends where it is full (docs/definitions.md, Cases, launches, ranks), which may be one size later in the next
run; the pairs of a matrix are then measured at another size. Neither is a measurement that failed, or one that could
not be judged.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS, restated_size
from linkgauge.model.shape import json_object


def left_out_keys(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """Case keys that a run of these rows has left out on purpose; rows as `Run.cases` holds them.

    Of a case that was measured where its curve is full, those at all other sizes of the curve.
    """
    rows = [(record, json_object(record.get("evidence"))) for record in records]
    sizes: dict[str, set[int]] = defaultdict(set)
    for record, evidence in rows:
        for name, key in (("curve", "id"), ("left_out", "curve")):
            if curve := evidence.get(name, {}).get(key):
                sizes[curve].add(int(record["size_asked"]))
    keys = {str(record["case_key"]) for record, evidence in rows if "left_out" in evidence}
    for record, evidence in rows:
        if "at_full" in evidence:
            case = Case.from_dimensions(dict(record))
            keys |= {_at_size(case, size).case_key for size in sizes[evidence["at_full"]] - {case.size_asked}}
    return keys


def _at_size(case: Case, size: int) -> Case:
    actual, _ = restated_size(PATTERNS[case.pattern], size, max(case.group_ranks, 1), case.datatype)
    return dataclasses.replace(case, size=actual, size_asked=size)
