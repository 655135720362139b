"""Rules that name the slow link, port, pair, device or NIC from the pairs' rates."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Iterable

from linkgauge.findings.confidence import SLOW
from linkgauge.findings.elements import (
    KINDS_BETWEEN_NODES,
    Element,
    Part,
    SlowElement,
    Ways,
    between_nodes,
    candidates,
    uplink_sets,
)
from linkgauge.findings.facts import Facts
from linkgauge.findings.filled import filled, nic_rate
from linkgauge.findings.finding import Finding
from linkgauge.findings.known import known_shares
from linkgauge.findings.measure import Measure, median
from linkgauge.findings.rule import rule
from linkgauge.findings.slow_words import findings_of
from linkgauge.findings.solve import LEAST_SCALE, Slow, solve
from linkgauge.findings.wiring import Way
from linkgauge.model.transports import over_host

_BETWEEN = "between nodes"
# Busy nodes delay operations and speed up none. Where medians between nodes are no surer than this, the fastest
# operation of each pair shows what a link allows: a floor that its pairs share, where delays scatter.
_WIDE = 0.1
_LEAST, _LEAST_BY_FASTEST = 0.03, 0.33  # of the time
_FLOOR_PAIRS, _FLOOR_SHARE, _FLOOR_WIDTH = 3, 0.75, 0.15  # so many pairs, and this part of them within 15 %


@rule(
    "a link, port, device, NIC, node, switch or host link slower than its siblings, from the residuals of all pairs",
    faults=True,
    tells=SLOW,
)
def slow_elements(facts: Facts) -> Iterable[Finding]:
    """Links, ports, devices, NICs and host links that are slower than their siblings."""
    seen: dict[Part, list[SlowElement]] = {}
    tested: Counter[Part] = Counter()
    for pairs in _sets(facts):
        found, possible = _solve_set(facts, pairs)
        # What is between nodes counts once a set of cases, in whichever direction and class it is slow. The other
        # kinds' confidence was calibrated with each direction counted.
        once = {(e.kind, e.ends, "" if e.kind in KINDS_BETWEEN_NODES else e.direction) for e in possible}
        tested.update((kind, ends) for kind, ends, _ in once)
        for item in found:
            seen.setdefault((item.element.kind, item.element.ends), []).append(item)
    _host_links(facts, seen, tested)
    yield from findings_of(facts, seen, tested)


def _sets(facts: Facts) -> Iterable[dict[tuple[int, int], Measure]]:
    """Yield the pair sets of sizes at which the rate and not the overhead counts."""
    for pairs in facts.pair_sets:
        one = next(iter(pairs.values()))
        if one.pattern != "flag_pingpong" and one.size >= 1 << 18:
            yield pairs


def _solve_set(facts: Facts, pairs: dict[tuple[int, int], Measure]) -> tuple[list[SlowElement], list[Element]]:
    wiring = facts.wiring
    one = next(iter(pairs.values()))
    ways: Ways = {}
    kept: list[tuple[int, int]] = []
    for pair in pairs:
        way = None
        if wiring is not None and not between_nodes(facts, pair):
            way = wiring.way(*pair, over_host=over_host(one.transport, one.case.path))
            if way is None or way.kind == "routed":
                continue  # which links a routed pair takes is not known
        ways[pair] = way
        kept.append(pair)
    by_fastest = bool(kept) and all(between_nodes(facts, pair) for pair in kept)
    by_fastest = by_fastest and median(pairs[pair].half_width for pair in kept) > _WIDE
    if by_fastest:
        pairs = {pair: _at_fastest(pairs[pair]) for pair in kept}
    kept = _filled(facts, pairs, kept, ways)
    if len(kept) < 2 or (wiring is None and len(kept) < 6 and len(facts.hosts) < 2):
        return [], []
    measures = [pairs[pair] for pair in kept]
    classes = [_class(facts, pair, ways[pair]) for pair in kept]
    both = one.pattern != "unidirectional"
    among = _widest(measures, classes)
    elements = candidates(facts, kept, classes, ways, both, among, uplink_sets(facts, kept, measures))
    least = _LEAST_BY_FASTEST if by_fastest else _LEAST
    found = solve([m.time_ns for m in measures], classes, elements, [m.half_width for m in measures], least)
    if by_fastest:
        found = [slow for slow in found if _one_floor([measures[pair].time_ns for pair in slow.pairs])]
    result = []
    for slow in found:
        mine = tuple(measures[i] for i in slow.pairs)
        like = {classes[i] for i in slow.pairs}
        siblings = [m for i, m in enumerate(measures) if classes[i] in like and i not in slow.pairs]
        rate = median(m.goodput or math.nan for m in mine)
        usual = median(m.goodput or math.nan for m in siblings) if siblings else math.nan
        counts = {way.count for pair in slow.pairs if (way := ways[kept[pair]]) is not None}
        links = counts.pop() if len(counts) == 1 else 0
        result.append(SlowElement(slow, slow.element, mine, rate, usual, links, by_fastest=by_fastest))
    return result, list(elements)


def _at_fastest(measure: Measure) -> Measure:
    """A case as its fastest operation was."""
    goodput = measure.goodput and measure.goodput * measure.time_ns / measure.fastest_ns
    return dataclasses.replace(measure, time_ns=measure.fastest_ns, half_width=_WIDE, goodput=goodput)


def _one_floor(fastest_ns: list[float]) -> bool:
    """Whether the fastest operations of several pairs end at one time, as those do that one link limits."""
    middle = median(fastest_ns)
    near = sum(abs(time / middle - 1) <= _FLOOR_WIDTH for time in fastest_ns)
    return len(fastest_ns) >= _FLOOR_PAIRS and near >= _FLOOR_SHARE * len(fastest_ns)


def _filled(
    facts: Facts, pairs: dict[tuple[int, int], Measure], kept: list[tuple[int, int]], ways: Ways
) -> list[tuple[int, int]]:
    """Return the pairs of classes that the links limit."""
    rates = []
    for pair in kept:
        way = ways[pair]
        rates.append(
            way.rate if way is not None else _rate_between(facts, pair) if between_nodes(facts, pair) else None
        )
    full = filled(facts, [pairs[pair] for pair in kept], [_class(facts, pair, ways[pair]) for pair in kept], rates)
    return [pair for pair, is_full in zip(kept, full, strict=True) if is_full]


def _rate_between(facts: Facts, pair: tuple[int, int]) -> float | None:
    """The narrowest of the NICs and the links between switches; None where one of these is not stated."""
    nics = nic_rate(facts, pair)
    way = facts.network.way(*map(facts.host_of, pair)) if facts.network else None
    if facts.network is None or nics is None or not way:
        return nics
    known = facts.network.rates(way[1:-1])
    return min((nics, *known.values())) if len(known) == len(way[1:-1]) else None


def _widest(measures: list[Measure], classes: list[Hashable]) -> Hashable:
    """The fastest class between nodes, where the others are slower as a whole, so that something narrower is on their
    way than what a node has; None where they are alike."""
    levels = {label: median(m.goodput or 0.0 for m, mine in zip(measures, classes, strict=True) if mine == label)
              for label in dict.fromkeys(classes) if isinstance(label, tuple) and label[0] == _BETWEEN}  # fmt: skip
    if not levels:
        return None
    best = max(levels, key=lambda label: levels[label])
    return best if min(levels.values()) < 0.85 * levels[best] else None


def _class(facts: Facts, pair: tuple[int, int], way: Way | None) -> Hashable:
    if between_nodes(facts, pair):
        if facts.network is None:
            return _BETWEEN, ""
        hosts = [facts.host_of(device) for device in pair]
        parts = facts.network.way(*hosts) or ()
        rates = facts.network.rates(parts)
        # Where all rates are stated, pairs of one narrowest rate ought to be equal, however far they are.
        level = f"{min(rates.values()):.4g} B/s" if parts and len(rates) == len(parts) else facts.network.level(*hosts)
        return _BETWEEN, level
    return "unknown" if way is None else way.shape


def _host_links(facts: Facts, seen: dict[Part, list[SlowElement]], tested: Counter[Part]) -> None:
    """Compare each device's own rate to and from host memory with that of devices whose host link is the same.

    Adds to `seen` and `tested`, which pairs over host links may have begun.
    """
    wanted = ("host_to_device", "device_to_host", "host_device_bidirectional")
    groups = facts.grouped(lambda m: m.settings if m.pattern in wanted and m.ranks == 1 and m.size >= 1 << 18 else None)
    shapes = facts.wiring.host_shapes if facts.wiring else {}
    known = facts.wiring.host_rates if facts.wiring else {}
    for group in groups.values():
        measures = _largest_alike(group)
        ordinals = [_ordinal(facts, m.devices[0]) for m in measures]
        rates = [known.get(ordinal) for ordinal in ordinals]
        full = filled(facts, measures, [shapes.get(ordinal, ()) for ordinal in ordinals], rates)
        measures = [m for m, is_full in zip(measures, full, strict=True) if is_full]
        classes = [shapes.get(_ordinal(facts, m.devices[0]), ()) for m in measures]
        if len(measures) < 2:
            continue
        direction = {"host_to_device": "in", "device_to_host": "out"}.get(measures[0].pattern, "both")
        elements = {Element("host", m.devices, direction): [i] for i, m in enumerate(measures)}
        tested.update((kind, m.devices) for m in measures for kind in ("host", f"host {direction}"))
        if len(measures) == 2:
            item = _by_known(facts, measures, direction) if classes[0] == classes[1] else None
            if item is not None:
                seen.setdefault((item.element.kind, item.element.ends), []).append(item)
            continue
        for slow in solve([m.time_ns for m in measures], classes, elements, [m.half_width for m in measures]):
            element, index = slow.element, slow.pairs[0]
            siblings = [m.goodput or 0.0 for i, m in enumerate(measures) if classes[i] == classes[index] and i != index]
            if len(siblings) < 2:
                continue
            item = SlowElement(slow, element, (measures[index],), measures[index].goodput or 0.0, median(siblings), 0)
            seen.setdefault((element.kind, element.ends), []).append(item)


def _by_known(facts: Facts, measures: list[Measure], direction: str) -> SlowElement | None:
    """Return the slower of two alike host links, of which what is known of that kind of machine tells which it is.

    The device itself where half of its copies in its own memory are below what is known too. None where nothing is
    known, or both or none of the two reach what is.
    """
    kind, held = facts.likeness, known_shares(facts)
    pair = [held.get(measure.case_key) for measure in measures]
    if kind is None or pair[0] is None or pair[1] is None or pair[0].short == pair[1].short:
        return None
    index = 0 if pair[0].short else 1
    mine, other = measures[index], measures[1 - index]
    share = math.log(mine.time_ns / other.time_ns)
    scale = max(LEAST_SCALE, math.hypot(mine.half_width, other.half_width) / 1.96)
    inside = [one.short for one in held.values() if one.kind == "memory" and one.measure.devices == mine.devices]
    whole = bool(inside) and 2 * sum(inside) >= len(inside)
    element = Element("device", mine.devices, "both") if whole else Element("host", mine.devices, direction)
    slow = Slow(element, math.expm1(share), (index,), share / (1.25 * scale), scale)
    return SlowElement(slow, element, (mine,), mine.goodput or 0.0, other.goodput or 0.0, 0, kind.system.name)


def _largest_alike(group: list[Measure]) -> list[Measure]:
    """Return the measures of the largest size that most devices have: a curve may end early on one of them."""
    sizes = Counter(m.size for m in group)
    most = max(sizes.values())
    size = max(size for size, count in sizes.items() if count == most)
    return [m for m in group if m.size == size]


def _ordinal(facts: Facts, device: int) -> int:
    known = facts.devices.get(device)
    return known.device_ordinal or 0 if known else device
