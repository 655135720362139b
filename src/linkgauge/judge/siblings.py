"""A run against itself: each device and pair against those that its system maps to it, over all cases together.

For machines of which nothing is known. One case of a class may be off by chance, and on host devices, which are cores
that others use too, by a lot; a device or pair that is slow is so in most of its cases.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Hashable, Mapping, Sequence

import numpy as np

from linkgauge.findings.collectives import LEAST_OF_LIMIT, shares_of_limits
from linkgauge.findings.facts import Facts
from linkgauge.findings.filled import filled
from linkgauge.findings.known import wrong_system
from linkgauge.findings.measure import Measure, rate_text
from linkgauge.findings.naming import case_words, task_words
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Outcome, Verdict
from linkgauge.model.device_words import device_words
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import change, percent
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.transports import over_host
from linkgauge.stats.alike import members_text, scope_of_case, stands_out
from linkgauge.stats.basics import robust_scale

SIBLINGS = "its siblings"
"""The source of verdicts by them."""
LEAST_SIZE = 1 << 18
"""Below it what is measured is the start of a copy, not the way that it goes."""
_LEAST_MEMBERS = 3  # of two it cannot be told which is slow
CORES_SLOWER = 1.0
"""Host devices are cores that other programs share: one is named only where it is slower than its class by this."""
_CORES_CASES = 3
_AGREE = 0.75

Members = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Standing:
    """One member of a class: by how much its cases take longer than its class's lower quartile, as a logarithm."""

    devices: Members
    excesses: tuple[float, ...]
    half_width: float

    @property
    def excess(self) -> float:
        """The median over its cases."""
        return float(np.median(self.excesses))


@dataclasses.dataclass(frozen=True)
class SlowMember:
    """What is slow: pairs or devices in words, the members that say so, and by which share of the class's time."""

    name: str
    members: tuple[Standing, ...]
    share: float


@dataclasses.dataclass(frozen=True)
class ClassStanding:
    """A class over all its cases: `spread` is by how much its members that do not stand out lie apart, as a share."""

    name: str
    cases: int
    members: tuple[Standing, ...]
    slow: tuple[SlowMember, ...]
    spread: float


def class_standings(facts: Facts) -> list[ClassStanding]:
    """Return how the members of each class stand, for classes of three or more that were measured alike."""
    cases: dict[Hashable, dict[Hashable, dict[Members, Measure]]] = {}
    for measure in facts.measures:
        if not _judged(measure):
            continue
        scope = "" if facts.are_cores(measure.devices) else scope_of_case(measure.case)
        alike = (scope, facts.classes.of(measure.case))
        cases.setdefault(alike, {}).setdefault((measure.settings, measure.size), {})[measure.devices] = measure
    result = []
    for of_class in cases.values():
        full = [case for case in of_class.values() if len(case) >= _LEAST_MEMBERS and _is_filled(facts, case)]
        if full:
            result.append(_standing(facts, full))
    return result


def _judged(measure: Measure) -> bool:
    pattern = PATTERNS[measure.pattern]
    pair = pattern.ranks == "2" and len(set(measure.devices)) == 2
    alone = measure.ranks == 1 and bool(pattern.host_ways)
    return (pair or alone) and not measure.case.routed and measure.size >= LEAST_SIZE and not pattern.latency_only


def _is_filled(facts: Facts, case: Mapping[Members, Measure]) -> bool:
    """Whether the links are what limits a class's case; host devices have none, and only their copies are compared."""
    measures = list(case.values())
    if facts.are_cores(measures[0].devices):
        return True
    return all(filled(facts, measures, [()] * len(measures), [_way_rate(facts, m) for m in measures]))


def _way_rate(facts: Facts, measure: Measure) -> float | None:
    """Return the data rate of the narrowest links on a case's way in bytes per second, None where it is not known."""
    wiring = facts.wiring
    if wiring is None or not facts.on_one_node(measure):
        return None
    devices = facts.ordinals(measure)
    if measure.ranks == 1:
        return wiring.host_rates.get(devices[0])
    way = wiring.way(devices[0], devices[1], over_host(measure.transport, measure.case.path))
    return None if way is None else way.rate


def _standing(facts: Facts, cases: Sequence[Mapping[Members, Measure]]) -> ClassStanding:
    levels = [float(np.quantile([math.log(m.time_ns) for m in case.values()], 0.25)) for case in cases]
    excesses = grouped((devices, math.log(measure.time_ns) - level)
                       for case, level in zip(cases, levels, strict=True)
                       for devices, measure in case.items())  # fmt: skip
    widths = grouped((devices, min(1.0, one.half_width)) for case in cases for devices, one in case.items())
    standings = [
        Standing(devices, tuple(found), _half_width(found, widths[devices])) for devices, found in excesses.items()
    ]
    cores = facts.are_cores(sorted({d for devices in excesses for d in devices}))
    out = stands_out([math.exp(-s.excess) for s in standings], [s.half_width for s in standings])
    rest = [s for i, s in enumerate(standings) if i not in out]
    level = float(np.median([s.excess for s in rest]))
    slow = [standings[i] for i in out if standings[i].excess > level]
    slow = [s for s in slow if _sure(s, level, cores)]
    ends = [s.excess for s in standings if s not in slow]
    return ClassStanding(
        members_text([s.devices for s in standings], facts.noun),
        len(cases),
        tuple(standings),
        tuple(_named(standings, slow, level, facts.noun)),
        math.expm1(max(ends) - min(ends)),
    )


def _half_width(excesses: Sequence[float], widths: Sequence[float]) -> float:
    """Return that of the median's 95 % interval: of what its cases differ by, or of the measurements themselves."""
    count = len(excesses)
    between = 1.96 * 1.2533 * robust_scale(excesses) / math.sqrt(count)
    return max(between, float(np.median(widths)) / math.sqrt(count))


def _sure(one: Standing, level: float, cores: bool) -> bool:
    """Whether a member that stands out is slow in most of its cases, and on host devices far enough beyond load."""
    share = one.excess - level
    agree = float(np.mean([excess - level > share / 2 for excess in one.excesses])) >= _AGREE
    return agree and (not cores or (share > math.log1p(CORES_SLOWER) and len(one.excesses) >= _CORES_CASES))


def _named(every: Sequence[Standing], slow: Sequence[Standing], level: float, noun: str) -> list[SlowMember]:
    """Name a device where all of its pairs are slow, or all that it sends or receives; else the pairs themselves."""
    left = list(slow)
    found: list[SlowMember] = []
    while left:
        best: tuple[str, list[Standing]] | None = None
        for words, chosen in _candidates(every, noun):
            mine = [s for s in chosen if s in left]
            if len(chosen) >= 2 and all(s in slow for s in chosen) and (best is None or len(mine) > len(best[1])):
                best = (words, mine)
        if best is None or len(best[1]) < 2:
            best = (device_words(left[0].devices, noun), [left[0]])
        share = math.expm1(float(np.median([s.excess for s in best[1]])) - level)
        found.append(SlowMember(best[0], tuple(best[1]), share))
        left = [s for s in left if s not in best[1]]
    return found


def _candidates(every: Sequence[Standing], noun: str) -> list[tuple[str, list[Standing]]]:
    """Return what several pairs have in common: both ways of two devices, what a device sends or receives, or all."""
    pairs = [s for s in every if len(s.devices) == 2]
    ends = sorted({device for s in pairs for device in s.devices})
    result = [(f"{noun} {d}", [s for s in pairs if d in s.devices]) for d in ends]
    result += [(f"what {noun} {d} sends", [s for s in pairs if s.devices[0] == d]) for d in ends]
    result += [(f"what {noun} {d} receives", [s for s in pairs if s.devices[1] == d]) for d in ends]
    result += [
        (f"{device_words((a, b), noun)}, each direction", [s for s in pairs if set(s.devices) == {a, b}])
        for a in ends
        for b in ends
        if a < b
    ]
    return result


def check_siblings(subject: Subject) -> list[Verdict]:
    """Return a verdict for each class, or for what stands out of it."""
    verdicts = []
    for one in class_standings(subject.facts):
        if not one.slow:
            reason = f"alike within {percent(one.spread, 1)} over {_cases(one.cases)}"
            verdicts.append(subject.verdict("pass", one.name, reason, SIBLINGS))
        for slow in one.slow:
            devices = tuple(sorted({device for s in slow.members for device in s.devices}))
            count = len(slow.members[0].excesses)
            reason = f"its cases take {change(slow.share)} against those of {one.name} ({_cases(count)} each)"
            verdicts.append(subject.verdict("fail", slow.name, reason, SIBLINGS, devices=devices, check=one.name,
                                            shortfall=slow.share / (1 + slow.share)))  # fmt: skip
    return verdicts


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"


# --- limits --------------------------------------------------------------------------------------------------------

LEAST_OF_BOUND = 0.5
"""What the best mechanism of a way must reach of its bound: of healthy machines that anyone measured none gave less
than 0.7 (docs/results, the papers' tables), and half of a link's lanes unused leave less than that."""
_FULL_SIZE = 16 << 20
_ON_ONE_NODE = ("copy_engine", "kernel", "staging")
_WAYS = ("unidirectional", "bidirectional", "host_to_device", "device_to_host")


def check_limits(subject: Subject) -> list[Verdict]:
    """Return for each way (pattern and class of devices) whether its best mechanism comes near what the links allow.

    Of the largest size that was measured, from 16 MiB on; ways without a known bound are left out.
    """
    facts = subject.facts
    ways: dict[Hashable, list[Measure]] = {}
    for measure in facts.measures:
        single = measure.ranks == 1 or len(set(measure.devices)) == 2
        # One pair fills its own NICs at most, and what bounds it between nodes is all of a node's.
        wanted = measure.pattern in _WAYS and single and not measure.case.routed and facts.on_one_node(measure)
        if wanted and measure.size >= _FULL_SIZE and measure.goodput:
            if measure.ranks == 2 and (scope_of_case(measure.case) == "host" or facts.goes_around(measure)):
                continue  # staging is never the best way where a direct one exists, and has no better where none does
            ways.setdefault((measure.pattern, facts.classes.of(measure.case)), []).append(measure)
    verdicts = []
    for measures in ways.values():
        size = max(m.size for m in measures)
        full = [m for m in measures if m.size == size]
        best = grouped((m.label, ((m.goodput or 0.0) / bound, m, bound)) for m in full if (bound := _bound(facts, m)))
        if not best:
            continue
        found = max(best.values(), key=lambda items: float(np.median([share for share, _, _ in items])))
        share, (_, one, bound) = float(np.median([share for share, _, _ in found])), found[0]
        short = share < LEAST_OF_BOUND
        name = f"{one.pattern} on {members_text([m.devices for _, m, _ in found], facts.noun)}"
        reason = (
            f"{one.label} reaches {percent(share)} of {rate_text(bound)}, what the links allow, at {size_text(size)}"
        )
        outcome, reason = _of_limit(facts, one, share, short, reason)
        verdicts.append(
            subject.verdict(outcome, name, reason, "its limits", devices=one.devices,
                            shortfall=1 - share / LEAST_OF_BOUND if outcome == "fail" else 0.0)
        )  # fmt: skip
    return verdicts


def _doubt(facts: Facts, measure: Measure) -> str:
    """Say why a share of a limit may be healthy although it is small; empty where nothing speaks for that."""
    return _unplaced(facts, measure) or _through_processor(facts, measure)


def _through_processor(facts: Facts, measure: Measure) -> str:
    """Say of a pair's copies that they pass a processor: healthy ones reach 0.51 to 0.89 of PCIe's rate there."""
    wiring = facts.wiring
    if wiring is None or measure.ranks != 2 or not facts.on_one_node(measure):
        return ""
    source, target = facts.ordinals(measure)
    way = wiring.way(source, target, over_host(measure.transport, measure.case.path))
    if way is None or all(wiring.system.kinds.get(head) != "host" for _, head in way.arcs):
        return ""
    return "its copies pass a processor, and what is usual there differs from server to server"


def _unplaced(facts: Facts, measure: Measure) -> str:
    """Say that a log does not name its nodes, where its ranks may have been on several; empty where it does."""
    of_log = bool(facts.info.get("origin")) and measure.ranks > 1
    if not of_log or facts.places(measure) or measure.transport in _ON_ONE_NODE:
        return ""
    return "the log does not say whether its ranks were on one node"


def _of_limit(facts: Facts, measure: Measure, share: float, short: bool, reason: str) -> tuple[Outcome, str]:
    """Return how a share of a limit is judged, and why: unknown where that may be no limit of what was measured."""
    wrong = _doubt(facts, measure) if short else wrong_system(facts, share / (1 + measure.half_width))
    if wrong:
        return "unknown", f"{reason}; {wrong}"
    return "fail" if short else "pass", reason


def check_collectives(subject: Subject, judged: Container[str] = ()) -> list[Verdict]:
    """Return a verdict for each library's large collective: whether it reaches the least share of what links allow.

    Less those whose case is judged already, by its key. A pass is weak: without a share that is known of its kind, a
    slow one may reach it too.
    """
    verdicts = []
    for share, measure, bound in shares_of_limits(subject.facts):
        if measure.case_key in judged:
            continue
        limit = bound.value_bytes_per_s or 0.0
        short = share / max(1e-9, 1 - measure.half_width) < LEAST_OF_LIMIT
        allowed = f"{percent(share)} of {rate_text(limit)}, what the links allow ({bound.rule})"
        reason = f"{allowed}; {percent(LEAST_OF_LIMIT)} is required{bus_words(measure, LEAST_OF_LIMIT * limit)}"
        outcome, reason = _of_limit(subject.facts, measure, share, short, reason)
        verdicts.append(
            subject.verdict(
                outcome, case_words(measure), reason, "its limits", measure,
                measured=measure.goodput, required=LEAST_OF_LIMIT * limit, unit="B/s", task=task_words(measure),
                shortfall=1 - share / LEAST_OF_LIMIT if outcome == "fail" else 0.0, weak=outcome == "pass",
            )
        )  # fmt: skip
    return verdicts


def bus_words(measure: Measure, required: float) -> str:
    """Of a collective its bus bandwidth and the one that a required goodput (B/s) is, as nccl-tests prints them."""
    if not PATTERNS[measure.pattern].collective or not measure.bus or not measure.goodput:
        return ""
    return f", busbw {rate_text(measure.bus)}, at least {rate_text(measure.bus * required / measure.goodput)} required"


def _bound(facts: Facts, measure: Measure) -> float | None:
    """Return the bound in bytes per second: of a pair that of its own way, for no copy is relayed by other devices."""
    found = facts.bound(measure)
    value = None if found is None else found.value_bytes_per_s
    if value is None or measure.ranks != 2:
        return value
    rate = _way_rate(facts, measure)
    return None if rate is None else min(value, rate * PATTERNS[measure.pattern].ways)
