"""How long a case's ranks waited for a core: what it may have lost to programs that are no part of the run.

Pure: from results and observations. docs/definitions.md, A node's health, has the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from linkgauge.model.result import Identity, Measured, Observation
from linkgauge.run.rank.node_counters import ALL, CORES, STOLEN, WAITED

_OF_MEDIAN = 2.0  # half of the operations wait at most twice the mean (Markov's inequality)


def shares_lost(rows: Iterable[object], observations: Iterable[Observation]) -> dict[Identity, float]:
    """Return by which share of its median time each measured case may be shorter without waits; at most 1.

    Waits of several ranks add up. They are observed from before a case is prepared, but counted as if all of them were
    in its measured time. Cases without such observations are left out.
    """
    grown: dict[tuple[Identity, int], defaultdict[str, float]] = {}
    for one in observations:
        if one.subject == CORES and one.name in (ALL, STOLEN, WAITED):
            sign = 1.0 if one.moment == "after" else -1.0
            grown.setdefault((one.identity, one.rank), defaultdict(float))[one.name] += sign * one.value
    measured = {row.identity: row.median_ns * (row.operations_total or 1) for row in rows
                if isinstance(row, Measured) and row.is_headline}  # fmt: skip
    found: dict[Identity, float] = {}
    for (identity, _), counts in grown.items():
        if identity in measured:
            lost = _share(counts, measured[identity]) * _OF_MEDIAN
            found[identity] = min(1.0, found.get(identity, 0.0) + lost)
    return found


def _share(counts: Mapping[str, float], measured_ns: float) -> float:
    """Of a rank; of the one that reads its node's cores with what a hypervisor took of each."""
    stolen = counts[STOLEN] / counts[ALL] if counts.get(ALL, 0.0) > 0 else 0.0
    return max(0.0, counts.get(WAITED, 0.0)) / max(1.0, measured_ns) + max(0.0, stolen)
