"""What is slow again and again, seconds apart: a job of somebody else's, a monitor, a checkpoint.

Cases are laid out by when they ran. Those that stand out of their siblings are hit; where the moments of the hits
recur, across cases of several kinds, it is no link that is slow. Delays within single samples are `periodic_spikes`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import keys
from linkgauge.findings.moments import apart_from_siblings
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.findings.timeline import Timeline, timeline
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.stats.recurrence import period_of
from linkgauge.system.remembered import remembered

Bools = npt.NDArray[np.bool_]

_LEAST_SHARE, _LEAST_SCALES = 0.1, 5.0  # of time added; deviations of the siblings' noise
_LEAST_HITS, _MOST_HITS = 12, 0.5  # the latter of the cases: what is slow most of the time does not recur
_LEAST_KINDS, _LEAST_PLACES = 3, 2  # of cases, and of devices or pairs: one slow pair is no burst
_LEVEL = 1e-4  # each device is asked
_MINE = 0.9  # of all hits: then it is the device


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """A device (None: the node) that is slower every `period_s`, by a share of time added.

    `turns` are those that were slow, of so many that have siblings; `meanwhile` all that ran at such a moment.
    """

    device: int | None
    period_s: float
    share: float
    turns: tuple[int, ...]
    of: int
    meanwhile: tuple[int, ...]


@remembered
def recurrences(facts: Facts) -> list[Recurrence]:
    """Return what is slow again and again; at most one."""
    line = timeline(facts)
    return [] if line is None else _find(line)


def affected(facts: Facts) -> set[int]:
    """Return the ids of measures that ran at a moment at which others were slow, also of those without siblings."""
    line = timeline(facts)
    return set() if line is None else {id(line.turns[i].measure) for one in recurrences(facts) for i in one.meanwhile}


@rule("a device, or the node, that is slower again and again, seconds apart", reads_samples=True)
def slow_at_times(facts: Facts) -> Iterable[Finding]:
    """Devices whose cases are slow again and again, at a period of seconds."""
    line = timeline(facts)
    for one in recurrences(facts):
        assert line is not None
        whom = "The node" if one.device is None else facts.name_of(one.device)
        devices = tuple(facts.devices) if one.device is None else (one.device,)
        hit = [line.turns[i].measure for i in one.turns]
        severity: Severity = "note" if facts.are_cores(devices) else "loss"
        yield Finding(
            "slow_at_times",
            severity,
            whom,
            f"{whom} is slower again and again, about every {time_text(one.period_s * 1e9)}: {len(hit)} of {one.of} "
            f"cases took {percent(one.share)} longer than their siblings. Links are judged without these.",
            (
                *(Evidence(f"{case_words(m)}: {time_text(m.time_ns)}", (m.case_key,)) for m in hit[:3]),
                Evidence("all of them", keys(hit)),
            ),
            0.95,
            "Look for what runs at that period: jobs of others on the same devices, monitoring, checkpoints; measure "
            "again without it.",
            one.share / (1 + one.share),
            () if one.device is None else devices,
        )


def _find(line: Timeline) -> list[Recurrence]:
    known = line.group >= 0
    apart = apart_from_siblings(line)
    hit = known & (apart > np.maximum(math.log1p(_LEAST_SHARE), _LEAST_SCALES * line.scale))
    whole = int(hit.sum())
    if whole < _LEAST_HITS:
        return []
    devices = sorted({device for turn in line.turns for device in turn.measure.devices})
    places: list[tuple[int | None, Bools]] = [(device, line.of(device) & known) for device in devices]
    # Of two devices that share all hits nothing tells which it is.
    mine = [(device, part) for device, part in places if (hit & part).sum() >= _MINE * whole]
    for device, part in mine if len(mine) == 1 else [(None, known)]:
        turns = np.flatnonzero(hit & part)
        if not _is_broad(line, turns) or turns.size > _MOST_HITS * part.sum():
            continue
        middles = np.array([(turn.start_ns + turn.end_ns) / 2e9 for turn in line.turns])
        period = period_of(middles[turns].tolist(), middles[part].tolist(), _LEVEL)
        if period is not None:
            share = math.expm1(float(np.median(apart[turns])))
            takes_part = np.ones(known.size, dtype=bool) if device is None else line.of(device)
            meanwhile = np.flatnonzero(takes_part & _meanwhile(line, turns, period * 1e9))
            return [
                Recurrence(device, period, share, tuple(map(int, turns)), int(part.sum()), tuple(map(int, meanwhile)))
            ]
    return []


def _meanwhile(line: Timeline, turns: npt.NDArray[np.int64], period_ns: float) -> Bools:
    """Return which turns overlap the part of a period in which the hits lie, but those that are far from most."""
    starts = np.array([turn.start_ns for turn in line.turns])
    lasts = np.array([turn.end_ns - turn.start_ns for turn in line.turns])
    angles = 2j * np.pi * (starts[turns] + lasts[turns] / 2) / period_ns
    center = float(np.angle(np.exp(angles).mean())) / (2 * np.pi) * period_ns
    begins = (starts - center + period_ns / 2) % period_ns - period_ns / 2
    ends = begins + lasts
    near = turns[np.abs(begins[turns] + ends[turns]) < period_ns / 2]
    first, last = float(begins[near].min()), float(ends[near].max())
    found: Bools = ((begins < last) & (ends > first)) | (ends > first + period_ns) | (begins < last - period_ns)
    return found


def _is_broad(line: Timeline, turns: npt.NDArray[np.int64]) -> bool:
    places = {line.turns[int(i)].measure.devices for i in turns}
    return (
        turns.size >= _LEAST_HITS and len(places) >= _LEAST_PLACES and np.unique(line.group[turns]).size >= _LEAST_KINDS
    )
