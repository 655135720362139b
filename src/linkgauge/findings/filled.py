"""Whether a link is what limits a case: only such cases say anything of links.

Where a case reaches a sixth of its port, its time is that of launches, protocols and memory, and a device that is slow
at those looks like a slow port. So a statement about links rests on cases whose healthy pairs reach FILLED_SHARE of the
narrowest limit of the lowest-level transport on their way: the data rate of the narrowest bundle of links, or where
no rate is known (host devices, a run without a system) the most that any transport of this run moved there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.system.remembered import remembered

FILLED_SHARE = 0.6
_HEALTHY = 0.75  # quantile of a class that half of its pairs may be slow below


def one_way(measure: Measure) -> float:
    """Goodput of one direction, in bytes per second."""
    return (measure.goodput or 0.0) / PATTERNS[measure.pattern].ways


def filled(
    facts: Facts, measures: Sequence[Measure], classes: Sequence[Hashable], rates: Sequence[float | None]
) -> list[bool]:
    """Return for each measure whether the links limit those of its class.

    `classes` of measures that ought to be equally fast, `rates` of the narrowest bundle on each one's way in bytes per
    second, one direction, None where it is not known. A class is judged by its upper quartile: its slow ones are what
    is looked for.
    """
    of_class = grouped((label, index) for index, label in enumerate(classes))
    full: set[Hashable] = set()
    for label, members in of_class.items():
        level = float(np.quantile([one_way(measures[i]) for i in members], _HEALTHY, method="higher"))
        known = [rate for i in members if (rate := rates[i]) is not None]
        limit = min(known) if known else max(_most_seen(facts, measures[i]) for i in members)
        if limit > 0 and level >= FILLED_SHARE * limit:
            full.add(label)
    return [label in full for label in classes]


def nic_rate(facts: Facts, devices: Sequence[int]) -> float | None:
    """Return the port rate of the slowest of the devices' NICs in bytes per second, None where it is not known."""
    wiring = facts.wiring
    known = []
    for device in devices if wiring is not None else ():
        assert wiring is not None
        ordinal = facts.devices[device].device_ordinal or 0 if device in facts.devices else device
        name = wiring.nics.get(ordinal)
        port = wiring.system.node(name).port_rate if name else None
        if port is not None:
            known.append(port.value)
    return min(known, default=None)


def _most_seen(facts: Facts, measure: Measure) -> float:
    """The most that any transport moved between these devices one way in this run, both ways at once apart."""
    return _most_by_place(facts).get(_place(measure), 0.0)


@remembered
def _most_by_place(facts: Facts) -> dict[tuple[tuple[int, ...], bool, str], float]:
    best: dict[tuple[tuple[int, ...], bool, str], float] = {}
    for other in facts.measures:
        key = _place(other)
        best[key] = max(best.get(key, 0.0), one_way(other))
    return best


def _place(measure: Measure) -> tuple[tuple[int, ...], bool, str]:
    both = PATTERNS[measure.pattern].ways == 2
    host = measure.pattern if measure.ranks == 1 else f"{measure.case.source_memory} {measure.case.target_memory}"
    return tuple(measure.devices), both, host
