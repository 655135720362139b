"""What begins at a moment: a device, or the whole node, that is slower from some time of the run on, or for a while.

Cases are laid out by when they ran (`timeline`). For each device, and for all of them, the stretch of time in which
its cases most stand out of their siblings is sought. It is told where it explains the times better than parts that are
always equally slow do, each pair of devices having its own slowness: a device that is slow from the middle on is
slow in the late half of its cases and in no early one, whichever pairs these are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.findings.timeline import Timeline, timeline
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.stats.basics import Floats
from linkgauge.system.remembered import remembered

Bools = npt.NDArray[np.bool_]

_LEAST_SHARE = 0.03
_LEAST_TURNS = 5
_LEAST_GAIN = 10.0  # deviations, in sum over the cases
_CUTS = 64  # moments tried for each device
_FAR = 8.0  # deviations: how far one case counts
_MOST = 3  # moments that are told of a run
_PRICE = 2.0  # of a pair's own slowness, in deviations, and of each part of a moment


@dataclasses.dataclass(frozen=True)
class Moment:
    """A stretch of time in which a device (None: the node) was slower, by a share of time added.

    From `from_ns` to `to_ns` of the node's clock; `to_ns` is infinite where it lasted to the end of the run. `gain` is
    by how many deviations, summed over cases, it explains more than what is always slow; `turns` number its cases.
    """

    device: int | None
    from_ns: float
    to_ns: float
    share: float
    gain: float
    turns: tuple[int, ...]


@remembered
def moments(facts: Facts) -> list[Moment]:
    """Return what became slow at a moment, what explains most first."""
    line = timeline(facts)
    return [] if line is None else _find(line)


def affected(facts: Facts) -> set[int]:
    """Return the ids of measures that ran while a device of theirs was slower than before or after."""
    line = timeline(facts)
    hit: set[int] = set()
    for moment in moments(facts):
        assert line is not None
        for turn in line.turns:
            mine = moment.device is None or moment.device in turn.measure.devices
            if mine and turn.end_ns > moment.from_ns and turn.start_ns < moment.to_ns:
                hit.add(id(turn.measure))
    return hit


@rule(
    "a device, or the node, that is slower from a moment of the run on, or for a while",
    reads_samples=True,
    faults=True,
    whole=True,
)
def slow_from(facts: Facts) -> Iterable[Finding]:
    """Devices that are slower from a moment on, or for a while, than before and than their siblings."""
    line = timeline(facts)
    for moment in moments(facts):
        assert line is not None
        whom = "the node" if moment.device is None else facts.name_of(moment.device)
        identity = "" if moment.device is None else facts.identity_of(moment.device)
        mine = [line.turns[i].measure for i in moment.turns]
        since = f"from {_at(line, moment.from_ns)} after the run's first sample on"
        if math.isfinite(moment.to_ns):
            since = f"from {_at(line, moment.from_ns)} to {_at(line, moment.to_ns)} after the run's first sample"
        severity: Severity = "fault"
        sentence = (
            f"{whom}{identity} took {percent(moment.share)} longer {since}, in {len(mine)} cases against their "
            f"siblings; otherwise its cases are as fast as others. Links are judged without what it took part in "
            "meanwhile."
        )
        devices = tuple(facts.devices) if moment.device is None else (moment.device,)
        if facts.are_cores(devices):
            severity = "note"
            sentence += " Host devices are cores, which other programs share: it need not be the machine's."
        yield Finding(
            "slow_from",
            severity,
            whom,
            sentence,
            (*_evidence(mine), Evidence("all of them", keys(mine))),
            0.9 + 0.09 * (1 - math.exp(-moment.gain / 200)),
            "Look at what happened then: clocks, power and temperature (nvidia-smi -q -d PERFORMANCE), another user's "
            "processes, the system's log; measure again, and look whether it comes back.",
            moment.share / (1 + moment.share),
            () if moment.device is None else devices,
        )


def _at(line: Timeline, moment_ns: float) -> str:
    return time_text(max(1.0, moment_ns - line.first_ns))


def _evidence(measures: Sequence[Measure]) -> list[Evidence]:
    return [Evidence(f"{case_words(m)}: {time_text(m.time_ns)}", (m.case_key,)) for m in measures[:3]]


def _find(line: Timeline) -> list[Moment]:
    devices = sorted({device for turn in line.turns for device in turn.measure.devices})
    known = line.group >= 0
    takes_part: list[tuple[int | None, Bools]] = [(device, line.of(device) & known) for device in devices]
    takes_part.append((None, known))
    out = np.zeros(known.size, dtype=bool)  # turns that a moment explains
    found: list[Moment] = []
    while len(found) < _MOST:
        candidates = [
            moment for device, mine in takes_part if (moment := _stretch(line, device, mine & ~out, known & ~out))
        ]
        if not candidates:
            break
        best = max(candidates, key=lambda moment: moment.gain)
        found.append(best)
        out[list(best.turns)] = True
    return found


def _stretch(line: Timeline, device: int | None, mine: Bools, known: Bools) -> Moment | None:
    """Return the stretch that best explains a device's slow turns, None where none does."""
    at = np.flatnonzero(mine)
    if at.size < 2 * _LEAST_TURNS:
        return None
    apart = np.clip(_residuals(line, known, np.zeros(mine.size, dtype=bool))[at] / line.scale[at], -_FAR, _FAR)
    ends = _best_stretch(apart)
    if ends is None:
        return None
    told = _explained_by(line, device, mine, known, at, ends)
    # To the run's end, unless it is far surer that it ended before.
    whole = _explained_by(line, device, mine, known, at, (ends[0], at.size)) if ends[1] < at.size else None
    if told is None or (whole is not None and whole.gain >= 0.8 * told.gain):
        told = whole
    return told


def _explained_by(
    line: Timeline, device: int | None, mine: Bools, known: Bools, at: npt.NDArray[np.int64], ends: tuple[int, int]
) -> Moment | None:
    """Return what the stretch of turns `at[ends[0]:ends[1]]` explains, None where that is not enough."""
    inside = np.zeros(mine.size, dtype=bool)
    inside[at[ends[0] : ends[1]]] = True
    rest = _residuals(line, known, inside)  # against what siblings took at other times, or without the device
    share = float(np.median(rest[inside]))
    if share < math.log1p(_LEAST_SHARE):
        return None
    outside = mine & ~inside
    if not outside.any() or np.mean(rest[inside] > share / 2) < 0.75 or np.mean(rest[outside] < share / 2) < 0.75:
        return None
    gain = _gain(line, rest, mine, inside, share)
    if gain < _LEAST_GAIN:
        return None
    turns = np.flatnonzero(inside)
    before, after = at[: ends[0]], at[ends[1] :]
    begins = line.turns[int(before[-1])].end_ns if before.size else line.first_ns
    until = line.turns[int(turns[-1])].end_ns if after.size else math.inf
    return Moment(device, begins, until, math.expm1(share), gain, tuple(int(i) for i in turns))


def _best_stretch(apart: Floats) -> tuple[int, int] | None:
    """Return [first, end) of the turns whose mean is furthest above that of the others, by Student's measure."""
    count = apart.size
    cuts = np.unique(np.linspace(0, count, min(count, _CUTS) + 1).astype(int))
    sums = np.concatenate([[0.0], np.cumsum(apart)])
    first, end = np.meshgrid(cuts, cuts, indexing="ij")
    size = end - first
    able = (size >= _LEAST_TURNS) & (count - size >= _LEAST_TURNS)
    if not able.any():
        return None
    inside = sums[end] - sums[first]
    with np.errstate(divide="ignore", invalid="ignore"):
        above = (inside / size - (sums[-1] - inside) / (count - size)) / np.sqrt(1 / size + 1 / (count - size))
    best = np.unravel_index(int(np.argmax(np.where(able, above, -np.inf))), able.shape)
    return (int(first[best]), int(end[best])) if above[best] > 0 else None


def _residuals(line: Timeline, known: Bools, inside: Bools) -> Floats:
    """Return the logarithms less their group's level, which is the median of the group's turns that are not `inside`.

    0 where a group has no other turn: it says nothing.
    """
    found = np.zeros(line.logs.size)
    chosen = np.flatnonzero(known)
    order = chosen[np.argsort(line.group[chosen], kind="stable")]
    edges = np.flatnonzero(np.diff(line.group[order])) + 1
    for members in np.split(order, edges):
        others = members[~inside[members]]
        if others.size:
            found[members] = line.logs[members] - np.median(line.logs[others])
    return found


def apart_from_siblings(line: Timeline) -> Floats:
    """Return the logarithms of the turns' times less the median of their siblings'; 0 where a turn has none."""
    return _residuals(line, line.group >= 0, np.zeros(line.logs.size, dtype=bool))


def _gain(line: Timeline, rest: Floats, mine: Bools, inside: Bools, share: float) -> float:
    """By how many deviations the stretch explains the turns better than parts that are always slow.

    Only turns whose group has some inside and some outside count: of cases that ran before and others that ran
    after, one kind may be slow by itself. What is always slow may be any slowness of each tuple of devices, at a price.
    """
    both = mine & np.isin(line.group, list(set(line.group[inside]) & set(line.group[mine & ~inside])))
    if (both & inside).sum() < 3:
        return 0.0
    index = np.flatnonzero(both)
    scale = line.scale[index]
    by_moment = float(_cost((rest[index] - share * inside[index]) / scale).sum()) + 3 * _PRICE
    always = 0.0
    tuples = grouped((line.turns[turn].measure.devices, place) for place, turn in enumerate(index.tolist()))
    for places in tuples.values():
        own, wide = rest[index[places]], scale[places]
        plain = float(_cost(own / wide).sum())
        slow = float(_cost((own - max(0.0, float(np.median(own)))) / wide).sum()) + _PRICE
        always += min(plain, slow)
    return always - by_moment


def _cost(apart: Floats) -> Floats:
    found: Floats = np.minimum(np.abs(apart), _FAR)
    return found
