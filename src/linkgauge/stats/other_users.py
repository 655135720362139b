"""Who else used the devices while a run measured: found from what was observed beside its cases.

A case that uses no link of a kind is a witness of it: what its counters moved was somebody else's. So is a reading of
the power of a device that has done next to nothing. Evidence of one medium is joined over time, because a burst between
two witnesses hits the case between them. Pure: from results and observations, no I/O. docs/definitions.md, Other users,
states what counts and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.model.transports import over_host
from linkgauge.system.model import System, is_fabric

NVLINK, PCIE, COMPUTE, PROCESSES = "NVLink", "PCIe", "processors", "contexts"
_SENT, _RECEIVED = f"{NVLINK} sent", f"{NVLINK} received"  # each way has its own witnesses
_LINK = {_SENT: NVLINK, _RECEIVED: NVLINK}
CORES = "cores"
HOST = -1
"""In place of a device: the node's cores and memory, which host copies and libraries over the host need."""
LIGHT = 0.1
"""The share of a link below which another user leaves links judged: it explains no more than that of a loss, and rules
tell a slow link from a larger one."""
_NVLINK_RATE = 1e9  # B/s: NCCL's acknowledgments come to 0.1 GB/s, an NVLink 4 port carries 450
_ACKNOWLEDGED = 1e-3  # of the bytes the other way
_PCIE_RATE = 2e9  # B/s: polled flags and launches were seen to move up to 0.4
_LEAST_BYTES = 8 << 20  # of a few milliseconds a rate says little
_WRAPS = 1 << 32  # NVML counts PCIe's bytes in 32 bits
_UNWRAPPED_NS = 60e6  # at 64 GB/s they take longer to come round
_POWER = 2.0  # times what alike devices take when idle: free ones were seen at up to 1.3 times
_HELD = 0.01  # of a quiet case's time: clocks held down for power
_AFTER_NS = 250_000_000  # power is a mean over some 100 ms
_HEAVY = 1 << 20  # bytes: operations from here on warm a device up
_LEAST_READINGS = 5
_BUSY_CORES, _BUSY_SHARE = 2.0, 0.05  # of cores: a node's own daemons keep fewer busy
_APART_NS, _APART = 5e9, 5  # a pause longer than this, with so many witnesses that saw nothing, is an end
_PERIODIC = 0.8  # Rayleigh's R; bursts of a fifth of their period have 0.94


@dataclasses.dataclass(frozen=True)
class Look:
    """What was seen of a device while the run itself used none: before its first launch, or after its last.

    `rates` are of NVLINK and PCIE in bytes per second, `busy` the share of time in which kernels ran; None: not known.
    `processes` are in words. Of device HOST `busy` is how many cores others kept busy, `cores` how many there are.
    """

    device: int
    when_ns: int
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    busy: float | None = None
    processes: tuple[str, ...] = ()
    cores: float = 0.0


@dataclasses.dataclass(frozen=True)
class Use:
    """What others did to some devices, from `from_ns` to `to_ns` of the node's clock (infinite: its end was not seen).

    `cases` are those that ran on one of the devices meanwhile, of which so many were `measured`. `hits` of `witnesses`
    showed it. `rate` is what a link carried in those, in bytes per second, `share` that of the link's rate; None where
    not known. `period_s`: bursts that recur. `by`: processes that were seen there outside the run.
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

    @property
    def is_light(self) -> bool:
        """Whether links are judged all the same."""
        return self.share is not None and self.share < LIGHT


@dataclasses.dataclass(frozen=True)
class OtherUsers:
    """All uses by others in a run, of so many measured cases; `began_ns`: when the first of these did."""

    uses: tuple[Use, ...] = ()
    measured: int = 0
    began_ns: float = 0.0

    @property
    def disturbed(self) -> frozenset[Identity]:
        """The cases whose medium others used: they judge nothing."""
        return frozenset().union(*(use.cases for use in self.uses if not use.is_light))

    @property
    def lightly_used(self) -> frozenset[int]:
        """Devices that others used a little."""
        return frozenset(device for use in self.uses if use.is_light for device in use.devices)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A witness: whether others used a device's medium then, and how much they moved, in bytes."""

    start_ns: float
    end_ns: float
    hit: bool
    moved: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Beside:
    """A case on one device: its span, and what each counter grew by; `power` are readings with their time, in W."""

    row: Row
    device: int
    start_ns: float
    end_ns: float
    grown: Mapping[str, float]
    power: tuple[tuple[float, float], ...]
    others: bool

    @property
    def lasts_ns(self) -> float:
        return max(1.0, self.end_ns - self.start_ns)


def other_users(
    rows: Iterable[Row],
    observations: Iterable[Observation],
    system: System | None = None,
    looks: Sequence[Look] = (),
    models: Mapping[int, str] | None = None,
) -> OtherUsers:
    """Return who else used the devices of a run.

    `rows` are its results, `system` its machine with ordinals as devices, `looks` what was seen while it used none,
    `models` the name of each device: those of one name are alike.
    """
    known = {row.identity: row for row in rows}
    beside = _beside(known, observations)
    links = _Links(system)
    seen: dict[tuple[int, str], list[_Seen]] = {}
    for one in filter(_is_measured, beside):
        for medium, witness in links.witnesses(one):
            seen.setdefault((one.device, medium), []).append(witness)
    for device, witnesses in _quiet(beside, models or {}).items():
        seen.setdefault((device, COMPUTE), []).extend(witnesses)
    for look in looks:
        for medium, witness in _looked(look):
            seen.setdefault((look.device, medium), []).append(witness)
    busy = {look.device for look in looks if any(witness.hit for _, witness in _looked(look))}
    idle = {look.device for look in looks if look.busy is not None} - busy
    for one in beside:
        if one.others and one.device not in idle:
            seen.setdefault((one.device, PROCESSES), []).append(_Seen(one.start_ns, one.end_ns, True))
    found = [part for (device, medium), witnesses in sorted(seen.items()) for part in _parts(device, medium, witnesses)]
    measured = {row.identity for row in known.values() if row.status == "ok"}
    began = min((one.start_ns for one in beside), default=0.0)
    return OtherUsers(tuple(_use(parts, beside, links, looks) for parts in _together(found)), len(measured), began)


def _is_measured(one: _Beside) -> bool:
    return one.row.status == "ok" and not one.row.case.background


def _beside(known: Mapping[Identity, Row], observations: Iterable[Observation]) -> list[_Beside]:
    """Return the cases beside which something was observed, on each of their devices, in order of time."""
    found: dict[tuple[Identity, int], list[Observation]] = {}
    for one in observations:
        row = known.get(one.identity)
        if row is not None and 0 <= one.rank < len(row.devices) and ":" in one.subject:
            found.setdefault((one.identity, row.devices[one.rank]), []).append(one)
    result = []
    for (identity, device), values in found.items():
        before = {one.name: one for one in reversed(values) if one.moment == "before"}
        after = {one.name: one for one in values if one.moment == "after"}
        both = before.keys() & after.keys()
        if not both:
            continue
        start = max(before[name].when_ns for name in both)
        end = min(after[name].when_ns for name in both)
        grown = {name: after[name].value - before[name].value for name in both}
        power = tuple((float(one.when_ns), one.value) for one in values if one.name == "power")
        others = any("process" in one.name and "own" not in one.name and one.value > 0 for one in values)
        result.append(_Beside(known[identity], device, start, max(start, end), grown, power, others))
    return sorted(result, key=lambda one: one.start_ns)


class _Links:
    """Which cases explain no byte of a link, by how the system joins its devices."""

    def __init__(self, system: System | None) -> None:
        """Take the links of `system`."""
        self.rates: dict[tuple[int, str], float] = {}
        self._peers: dict[int, set[str]] = {}
        self._to_host_by_fabric: set[int] = set()
        for ordinal, name in system.names_by_ordinal.items() if system is not None else ():
            assert system is not None
            fabric = total = 0.0
            for link in system.links_of(name):
                other, rate = system.kinds[link.other(name)], link.rate(name) or 0.0
                if is_fabric(link, system.kinds):
                    fabric += rate
                    self._peers.setdefault(ordinal, set()).add(link.other(name))
                elif link.kind == "pcie" and other in ("host", "switch"):
                    total = max(total, rate)
                elif other == "host":
                    self._to_host_by_fabric.add(ordinal)
            self.rates |= {(ordinal, medium): rate for medium, rate in ((NVLINK, fabric), (PCIE, total)) if rate}
        self._names = {} if system is None else system.names_by_ordinal

    def witnesses(self, one: _Beside) -> Iterable[tuple[str, _Seen]]:
        """Yield what a case says of the links of its device."""
        sent, received = (one.grown.get(f"nvlink_data_{way}_bytes") for way in ("tx", "rx"))
        if sent is not None and received is not None:
            for way, unexplained in self._over_nvlink(one, max(0.0, sent), max(0.0, received)):
                yield way, _moved(one, unexplained, _NVLINK_RATE)
        counted = [one.grown[name] % _WRAPS for name in ("pcie_tx_bytes", "pcie_rx_bytes") if name in one.grown]
        if counted and self._explains_no_pcie(one, (sent or 0.0) + (received or 0.0)):
            seen = _moved(one, max(counted), _PCIE_RATE)
            if one.lasts_ns <= _UNWRAPPED_NS:
                yield PCIE, seen
            elif seen.hit:  # it may have moved more, and others that seem to have moved little may have moved much
                yield PCIE, dataclasses.replace(seen, moved=0.0)

    def _over_nvlink(self, one: _Beside, sent: float, received: float) -> Iterable[tuple[str, float]]:
        """Yield the bytes that others moved over the device's NVLinks, of each way that the case itself leaves idle."""
        case, info = one.row.case, PATTERNS[one.row.pattern]
        if _reaches_elsewhere(one) or (info.host_end and one.device in self._to_host_by_fabric):
            return
        if len(set(one.row.devices)) == 1 or info.host_end or over_host(case.transport, case.path):
            yield from ((_SENT, sent), (_RECEIVED, received))
        elif (
            case.pattern == "unidirectional"
            and case.via < 0
            and case.transport in _DIRECT
            and not case.devices_per_node
        ):
            source = one.device == case.devices[0]
            used, idle = (sent, received) if source else (received, sent)
            yield (_RECEIVED if source else _SENT), max(0.0, idle - _ACKNOWLEDGED * used)

    def _explains_no_pcie(self, one: _Beside, over_nvlink: float) -> bool:
        case, info = one.row.case, PATTERNS[one.row.pattern]
        if _reaches_elsewhere(one) or info.host_end or case.transport not in _DIRECT or case.devices_per_node:
            return False
        if len(set(one.row.devices)) == 1:
            return info.own_memory and not info.scripted
        joined = [self._peers.get(device, set()) | {self._names.get(device, "")} for device in set(one.row.devices)]
        # What a pair's own bytes take where peer access is off is PCIe: then they are missing on NVLink.
        own = float(one.row.bytes_total or 0) * float(one.row.operations_total or 0) / len(set(one.row.devices))
        own_way = not over_host(case.transport, case.path) and over_nvlink >= own / 2
        return own_way and all(a & b for i, a in enumerate(joined) for b in joined[:i])


_DIRECT = ("copy_engine", "kernel", "ccl")


def _reaches_elsewhere(one: _Beside) -> bool:
    """Whether the case's buffers may lie on another device than its ranks': managed, or placed by number."""
    case = one.row.case
    memories = f"{case.source_memory} {case.target_memory}"
    return bool(case.managed) or "managed" in memories or case.source_device >= 0 or case.target_device >= 0


def _moved(one: _Beside, moved: float, rate: float) -> _Seen:
    hit = moved >= _LEAST_BYTES and moved / one.lasts_ns * 1e9 > rate
    return _Seen(one.start_ns, one.end_ns, hit, moved)


def _looked(look: Look) -> list[tuple[str, _Seen]]:
    found = [
        (medium, _Seen(look.when_ns, look.when_ns, rate > least))
        for medium, least in ((_SENT, _NVLINK_RATE), (_RECEIVED, _NVLINK_RATE), (PCIE, _PCIE_RATE))
        if (rate := look.rates.get(_LINK.get(medium, medium))) is not None
    ]
    if look.device == HOST:
        busy = (look.busy or 0.0) > max(_BUSY_CORES, _BUSY_SHARE * look.cores)
        return [(CORES, _Seen(look.when_ns, look.when_ns, busy))]
    if look.busy is not None and look.busy >= LIGHT:
        found.append((COMPUTE, _Seen(look.when_ns, look.when_ns, True)))
    return found


def _quiet(beside: Sequence[_Beside], models: Mapping[int, str]) -> dict[int, list[_Seen]]:
    """Return by device what its power, and clocks held down for power, say while it does next to nothing.

    Of alike devices the least that one of them takes is what an idle one takes.
    """
    readings: dict[int, list[tuple[float, float]]] = {}
    held: dict[int, list[_Seen]] = {}
    last: dict[int, float] = {}
    for one in beside:
        heavy = one.row.size >= _HEAVY or one.row.transport == "kernel" or PATTERNS[one.row.pattern].computes
        rested = one.start_ns - last.get(one.device, -math.inf) > _AFTER_NS
        if heavy:
            last[one.device] = one.end_ns
        quiet = [reading for reading in one.power if rested and (not heavy or reading[0] <= one.start_ns)]
        readings.setdefault(one.device, []).extend(quiet)
        if rested and not heavy and "power_violation" in one.grown:
            hit = one.grown["power_violation"] > _HELD * one.lasts_ns
            if hit or one.lasts_ns > _AFTER_NS:
                held.setdefault(one.device, []).append(_Seen(one.start_ns, one.end_ns, hit))
    idle: dict[str, float] = {}
    for device, values in readings.items():
        if len(values) >= _LEAST_READINGS:
            model = models.get(device, "")
            idle[model] = min(idle.get(model, math.inf), float(np.quantile([power for _, power in values], 0.25)))
    for device, values in readings.items():
        least = _POWER * idle.get(models.get(device, ""), math.inf)
        if math.isfinite(least):
            held.setdefault(device, []).extend(_Seen(at, at, power > least) for at, power in values)
    # One reading may be of what the device did before the run.
    return {device: seen for device, seen in held.items() if sum(one.hit for one in seen) >= 3}


@dataclasses.dataclass(frozen=True)
class _Part:
    """A stretch of time in which a device's medium was used by others."""

    device: int
    medium: str
    from_ns: float
    to_ns: float
    seen: tuple[_Seen, ...]

    @property
    def hits(self) -> list[_Seen]:
        return [one for one in self.seen if one.hit]


def _parts(device: int, medium: str, witnesses: Iterable[_Seen]) -> list[_Part]:
    """Return the stretches from the last witness that saw nothing before to the first one after."""
    seen = sorted(witnesses, key=lambda one: (one.start_ns, one.end_ns))
    hits = [at for at, one in enumerate(seen) if one.hit]
    recurs = _period([seen[at] for at in hits], seen) is not None
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


def _use(parts: Sequence[_Part], beside: Sequence[_Beside], links: _Links, looks: Sequence[Look]) -> Use:
    spans: dict[int, tuple[float, float]] = {}
    for part in parts:
        begins, ends = spans.get(part.device, (math.inf, -math.inf))
        spans[part.device] = min(begins, part.from_ns), max(ends, part.to_ns)
    cases = frozenset(one.row.identity for one in beside if any(
        one.end_ns > spans[place][0] and one.start_ns < spans[place][1] for place in _places(one) if place in spans
    ))  # fmt: skip
    rates = {(part.device, part.medium): _rate(part) for part in parts}
    shares = [
        1.0 if rate is None else rate / full
        for part in parts
        if (rate := rates[part.device, part.medium]) is None
        or (full := links.rates.get((part.device, _LINK.get(part.medium, part.medium)), 0.0))
    ]
    most = max(parts, key=lambda part: len(part.hits))
    devices = tuple(sorted(spans))
    return Use(
        devices=devices,
        media=tuple(
            dict.fromkeys(_LINK.get(part.medium, part.medium) for part in sorted(parts, key=lambda p: -len(p.hits)))
        ),
        cases=cases,
        measured=len({one.row.identity for one in beside if one.row.identity in cases and one.row.status == "ok"}),
        hits=len(most.hits),
        witnesses=len(most.seen),
        from_ns=min(begins for begins, _ in spans.values()),
        to_ns=max(ends for _, ends in spans.values()),
        rate=rates[most.device, most.medium],
        share=max(shares) if len(shares) == len(parts) else None,
        period_s=_period([one for part in parts for one in part.hits], [one for part in parts for one in part.seen]),
        by=tuple(dict.fromkeys(who for look in looks if look.device in spans for who in look.processes)),
    )


def _places(one: _Beside) -> Iterable[int]:
    """Yield what a case uses: its device, and the host where its bytes go through it."""
    yield one.device
    if PATTERNS[one.row.pattern].host_end or over_host(one.row.transport, one.row.case.path):
        yield HOST


def _rate(part: _Part) -> float | None:
    """Return what others moved while they did, in bytes per second; None of what is not counted in bytes."""
    lasts = sum(one.end_ns - one.start_ns for one in part.hits if one.moved)
    return sum(one.moved for one in part.hits) / lasts * 1e9 if lasts > 0 else None


def _period(hits: Sequence[_Seen], seen: Sequence[_Seen]) -> float | None:
    """Return the seconds after which bursts recur; None where they do not, or there are none.

    The largest period at which the moments of the hits fall together on a circle (Rayleigh's test), those of all
    witnesses being spread over it.
    """
    clean = [one for one in seen if not one.hit]
    if len(hits) < 6 or len(clean) < 6:
        return None
    at = np.array([(one.start_ns + one.end_ns) / 2 for one in hits]) / 1e9
    every = np.array([(one.start_ns + one.end_ns) / 2 for one in seen]) / 1e9
    span = float(at.max() - at.min())
    if span < 2.0:
        return None
    # Phases drift by an eighth of a turn over the span between two periods that are tried.
    turns = np.arange(3.0, span / 0.2, 0.125)
    together = np.abs(np.exp(2j * np.pi * np.outer(turns / span, at)).mean(axis=1))
    spread = np.abs(np.exp(2j * np.pi * np.outer(turns / span, every)).mean(axis=1))
    able = (together >= _PERIODIC) & (spread < together / 2)
    if not able.any():
        return None
    best = np.flatnonzero(able & (together >= 0.97 * together[able].max()))[0]
    return float(span / turns[best])
