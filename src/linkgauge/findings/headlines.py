"""A case's samples in order: how long each took by the pattern's timekeeper, and when it ran."""

from __future__ import annotations

import dataclasses

import numpy as np

from linkgauge.findings.collectives import matrix_of
from linkgauge.findings.facts import Facts, Measure
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.basics import Floats


@dataclasses.dataclass(frozen=True)
class Headline:
    """Samples of one row identity in their order: ns of one iteration, when each began and how long it lasted in ns.

    `rising`: each begins after the one before, so that they can be laid out by time.
    """

    times: Floats
    starts_ns: Floats
    lasted_ns: Floats
    rising: bool


def headlines(facts: Facts, measure: Measure) -> list[Headline]:
    """Return the series of a case, one for each of its repeats that has samples. Kept in `facts.kept`: four rules ask.

    They cost 24 bytes for every sample of the keeper's lane.
    """
    key = ("headlines", measure.case_key, measure.launch_key)
    if key not in facts.kept:
        facts.kept[key] = _made(facts, measure)
    found: list[Headline] = facts.kept[key]
    return found


def _made(facts: Facts, measure: Measure) -> list[Headline]:
    result: list[Headline] = []
    for identity in measure.identities:
        held = facts.series(identity)
        if held is None:
            continue
        if PATTERNS[measure.pattern].timekeeper == "slowest" and (matrix := matrix_of(held, measure.ranks)) is not None:
            starts, ns, scheduled = matrix
            by_schedule = held.host_clock and (scheduled > 0).all()
            begun = scheduled[:, 0] if by_schedule else starts.min(axis=1)
            whole = (starts + ns).max(axis=1) - begun if by_schedule else ns.max(axis=1)
            per = float(np.median(held.iterations)) if whole.size else 1.0
            result.append(_headline(whole / per, begun, whole))
            continue
        keeper = measure.case.root if PATTERNS[measure.pattern].timekeeper == "root" else 0
        mine = (held.rank == keeper) & (held.lane == held.lane[held.rank == keeper].min(initial=0))
        if mine.sum() >= 2:
            order = np.argsort(held.sample[mine], kind="stable")
            lasted = held.ns[mine][order]
            result.append(_headline(lasted / held.iterations[mine][order], held.start_ns[mine][order], lasted))
    return result


def _headline(times: Floats, starts: Floats, lasted: Floats) -> Headline:
    times, starts, lasted = (np.asarray(values, dtype=np.float64) for values in (times, starts, lasted))
    return Headline(times, starts, lasted, rising=bool((np.diff(starts) > 0).all()))
