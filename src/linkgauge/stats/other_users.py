"""Who else used the devices while a run measured: found from what was observed beside its cases.

What witnesses saw of one medium is joined over time, because a burst between two witnesses hits the case between them.
Pure: from results and observations, no I/O. docs/definitions.md, Other users, states what counts and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from linkgauge.model.result import Identity, Observation, Row
from linkgauge.stats.nic_traffic import NETWORK, busiest, is_used, nic_spans
from linkgauge.stats.recurrence import period_of
from linkgauge.stats.windows import windows_of
from linkgauge.stats.witnesses import (
    HOST,
    LIGHT,
    MEMORY,
    Beside,
    Links,
    Look,
    Seen,
    beside_of,
    link_of,
    memory_witnesses,
    places_of,
    witnesses_of,
)
from linkgauge.system.model import System

_LONG_NS = 150e6  # a witness of bursts that is as long says a mean that is less than they move
_TELLING = 3  # hits: one that a burst met only in part says less than the burst moved
_APART_NS, _APART = 5e9, 5  # a pause longer than this, with so many witnesses that saw nothing, is an end


@dataclasses.dataclass(frozen=True)
class Use:
    """What others did to some devices, from `from_ns` to `to_ns` of the node's clock (infinite: its end was not seen).

    `cases` are those that ran on one of the devices meanwhile, of which so many were `measured`. `hits` of `witnesses`
    showed it. `rate` is what a link carried in those, in bytes per second, `share` that of the link's rate; None where
    not known. `period_s`: bursts that recur. `by`: processes that were seen there outside the run. `unknown`: a GPU
    among them was used, and no process was seen on it. `steady`: no long witness shows a pause, or more than light use.
    """

    devices: tuple[int, ...]
    media: tuple[str, ...]
    cases: frozenset[Identity]
    measured: int
    hits: int
    witnesses: int
    from_ns: float
    to_ns: float
    rate: float | None = None
    share: float | None = None
    period_s: float | None = None
    by: tuple[str, ...] = ()
    unknown: bool = False
    steady: bool = True

    @property
    def is_light(self) -> bool:
        """Whether links are judged all the same."""
        return self.steady and self.share is not None and self.share < LIGHT and self.hits >= _TELLING


@dataclasses.dataclass(frozen=True)
class OtherUsers:
    """All uses by others in a run, of so many measured cases; `began_ns`: when the first of these did.

    `nodes`: by the places of their network cards, from nic_traffic.FIRST down. `stayed`: by GPU the processes that
    were there before the run and after it, of which no witness shows use anywhere.
    """

    uses: tuple[Use, ...] = ()
    measured: int = 0
    began_ns: float = 0.0
    nodes: tuple[str, ...] = ()
    stayed: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def disturbed(self) -> frozenset[Identity]:
        """The cases whose medium others used: they judge nothing."""
        return frozenset().union(*(use.cases for use in self.uses if not use.is_light))

    @property
    def lightly_used(self) -> frozenset[int]:
        """Devices that others used a little."""
        return frozenset(device for use in self.uses if use.is_light for device in use.devices)


def other_users(
    rows: Iterable[Row],
    observations: Iterable[Observation],
    system: System | None = None,
    looks: Sequence[Look] = (),
    models: Mapping[int, str] | None = None,
    nodes: Callable[[Row], Sequence[str]] = lambda row: (),
) -> OtherUsers:
    """Return who else used the devices of a run, or its nodes' network cards.

    `rows` are its results, `system` its machine with ordinals as devices, `looks` what was seen while it used none,
    `models` the name of each device: those of one name are alike. `nodes`: of each rank of a row, of several nodes.
    """
    observed = list(observations)
    known = {row.identity: row for row in rows}
    beside = beside_of(known, observed)
    windows = windows_of(known, observed)
    links = Links(system)
    seen = witnesses_of(beside, windows, links, looks, models or {})
    if in_memory := memory_witnesses(beside, observed):
        seen.setdefault((HOST, MEMORY), []).extend(in_memory)
    spans, names = nic_spans(known, observed, nodes)
    carried = busiest(spans)
    for span in spans:
        hit = is_used(span, carried[span.place])
        one = Seen(span.start_ns, span.end_ns, hit, span.unexplained)
        seen.setdefault((span.place, NETWORK), []).append(one)
        beside.append(Beside(span.row, span.place, span.start_ns, span.end_ns))
    links.rates |= {(place, NETWORK): rate for place, rate in carried.items()}
    used = {key: witnesses for key, witnesses in sorted(seen.items()) if any(one.hit for one in witnesses)}
    # One user's bursts are seen at both ends, which together show what recurs.
    by_link: dict[str, list[Seen]] = {}
    for (_, medium), witnesses in used.items():
        by_link.setdefault(link_of(medium), []).extend(witnesses)
    recurs = {link for link, witnesses in by_link.items() if _period(witnesses) is not None}
    stays = _staying(looks)
    found = [
        part
        for (device, medium), witnesses in used.items()
        for part in _parts(device, medium, witnesses, link_of(medium) in recurs, device in stays)
    ]
    measured = {row.identity for row in known.values() if row.status == "ok"}
    began = min((one.start_ns for one in beside), default=0.0)
    uses = tuple(_use(parts, beside, links, looks) for parts in _together(found))
    in_use = {device for use in uses for device in use.devices}
    named = {who for use in uses for who in use.by}
    rests = {
        device: processes for device, processes in stays.items()
        if device >= 0 and device not in in_use and not named.intersection(processes)
    }  # fmt: skip
    return OtherUsers(uses, len(measured), began, names, rests)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A stretch of time in which a device's medium was used by others."""

    device: int
    medium: str
    from_ns: float
    to_ns: float
    seen: tuple[Seen, ...]

    @property
    def hits(self) -> list[Seen]:
        return [one for one in self.seen if one.hit]


def _staying(looks: Sequence[Look]) -> dict[int, tuple[str, ...]]:
    """Return by device the programs of others that were seen before the first launch and after the last."""
    found = {}
    for device in sorted({look.device for look in looks}):
        seen = sorted((look for look in looks if look.device == device), key=lambda look: look.when_ns)
        both = tuple(one for one in dict.fromkeys(seen[0].processes) if one in seen[-1].processes)
        if len(seen) > 1 and both:
            found[device] = both
    return found


def _parts(device: int, medium: str, witnesses: Iterable[Seen], recurs: bool, stays: bool) -> list[_Part]:
    """Return the stretches from the last witness that saw nothing before to the first one after.

    What recurs is one. What a program did that stays from before the run until after it is the whole run: between two
    of its bursts few cases are witnesses.
    """
    seen = sorted(witnesses, key=lambda one: (one.start_ns, one.end_ns))
    hits = [at for at, one in enumerate(seen) if one.hit]
    if stays:
        return [_Part(device, medium, -math.inf, math.inf, tuple(seen))]
    groups: list[list[int]] = []
    for at in hits:
        before = groups[-1][-1] if groups else at
        pause = seen[at].start_ns - seen[before].end_ns
        if not groups or (not recurs and pause > _APART_NS and at - before > _APART):
            groups.append([])
        groups[-1].append(at)
    found = []
    for group in groups:
        first, last = group[0], group[-1]
        begins = seen[first - 1].end_ns if first else -math.inf
        ends = seen[last + 1].start_ns if last + 1 < len(seen) else math.inf
        found.append(_Part(device, medium, begins, ends, tuple(seen[first : last + 1])))
    return found


def _together(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts that overlap in time together: one user copies between two devices."""
    groups: list[list[_Part]] = []
    ends = -math.inf
    for part in sorted(parts, key=lambda one: one.from_ns):
        if not groups or part.from_ns >= ends:
            groups.append([])
            ends = part.to_ns
        groups[-1].append(part)
        ends = max(ends, part.to_ns)
    return groups


def _use(parts: Sequence[_Part], beside: Sequence[Beside], links: Links, looks: Sequence[Look]) -> Use:
    spans: dict[int, tuple[float, float]] = {}
    for part in parts:
        begins, ends = spans.get(part.device, (math.inf, -math.inf))
        spans[part.device] = min(begins, part.from_ns), max(ends, part.to_ns)
    cases = frozenset(one.row.identity for one in beside if any(
        one.end_ns > spans[place][0] and one.start_ns < spans[place][1] for place in places_of(one) if place in spans
    ))  # fmt: skip
    rates = {(part.device, part.medium): _rate(part) for part in parts}
    shares = [
        1.0 if rate is None else rate / full
        for part in parts
        if (rate := rates[part.device, part.medium]) is None
        or (full := links.rates.get((part.device, link_of(part.medium)), 0.0))
    ]
    most = max(parts, key=lambda part: len(part.hits))
    devices = tuple(sorted(spans))
    return Use(
        devices=devices,
        media=tuple(dict.fromkeys(link_of(part.medium) for part in sorted(parts, key=lambda p: -len(p.hits)))),
        cases=cases,
        measured=len({one.row.identity for one in beside if one.row.identity in cases and one.row.status == "ok"}),
        hits=len(most.hits),
        witnesses=len(most.seen),
        from_ns=min(begins for begins, _ in spans.values()),
        to_ns=max(ends for _, ends in spans.values()),
        rate=rates[most.device, most.medium],
        share=max(shares) if len(shares) == len(parts) else None,
        period_s=_period(one for part in parts for one in part.seen),
        steady=all(
            one.hit
            and (not one.moved or one.rate < LIGHT * links.rates.get((part.device, link_of(part.medium)), math.inf))
            for part in parts
            for one in part.seen
            if one.end_ns - one.start_ns >= _LONG_NS
        ),
        by=tuple(dict.fromkeys(who for look in looks if look.device in spans for who in look.processes)),
        unknown=any(device >= 0 for device in spans.keys() - {look.device for look in looks if look.processes}),
    )


def _rate(part: _Part) -> float | None:
    """Return what others moved while they did, in bytes per second; None of what is not counted in bytes."""
    lasts = sum(one.end_ns - one.start_ns for one in part.hits if one.moved)
    return sum(one.moved for one in part.hits) / lasts * 1e9 if lasts > 0 else None


def _period(seen: Iterable[Seen]) -> float | None:
    """Return the seconds after which bursts recur; None where they do not, or there are none."""
    known = list(seen)
    if all(one.hit for one in known):
        return None
    middles = [(one.start_ns + one.end_ns) / 2e9 for one in known]
    return period_of([at for at, one in zip(middles, known, strict=True) if one.hit], middles)
