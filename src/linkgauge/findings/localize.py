"""Rules that name the slow link, port, pair, device or NIC from the pairs' rates."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Iterable
from fractions import Fraction

from linkgauge.findings.confidence import SLOW, SLOW_BY_KIND
from linkgauge.findings.facts import Facts, Measure, keys, median, rate_text
from linkgauge.findings.filled import filled, nic_rate
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.known import known_shares
from linkgauge.findings.rule import rule
from linkgauge.findings.slow_fixes import CORES_FIX, FIXES
from linkgauge.findings.solve import LEAST_SCALE, Slow, solve
from linkgauge.findings.uplinks import near_sets
from linkgauge.findings.wiring import Way, Wiring
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.model.transports import over_host
from linkgauge.system.remembered import remembered

_WORDS = {
    "link": "link",
    "port": "port of",
    "pair": "path between",
    "device": "",
    "nic": "NIC",
    "trunk": "trunk",
    "node": "node",
    "switch": "switch",
    "host": "host link",
    "uplink": "uplink of",
}


# Where a node has one device, pairs between nodes do not tell which of both it is: then the node is told.
_SPECIFIC = {"link": 0, "port": 1, "host": 1, "nic": 2, "trunk": 3, "node": 4, "device": 5, "switch": 6,
             "uplink": 7, "pair": 8}  # fmt: skip
_BETWEEN = "between nodes"
# Busy nodes delay operations and speed up none. Where medians between nodes are no surer than this, the fastest
# operation of each pair shows what a link allows: a floor that its pairs share, where delays scatter.
_WIDE = 0.1
_LEAST, _LEAST_BY_FASTEST = 0.03, 0.33  # of the time
_FLOOR_PAIRS, _FLOOR_SHARE, _FLOOR_WIDTH = 3, 0.75, 0.15  # so many pairs, and this part of them within 15 %
_BETWEEN_NODES = ("nic", "node", "trunk", "switch", "uplink")
Ways = dict[tuple[int, int], Way | None]


@dataclasses.dataclass(frozen=True)
class Element:
    """What may be slow. `ends` are devices or names of vertices; `direction` is `out`, `in`, `both` or `a->b`.

    `among`: only in pairs of this class; in all others something else is narrower.
    """

    kind: str
    ends: tuple[int | str, ...]
    direction: str
    among: Hashable = None


@dataclasses.dataclass(frozen=True)
class _Seen:
    slow: Slow
    element: Element
    measures: tuple[Measure, ...]
    rate: float
    sibling_rate: float
    links: int
    known: str = ""  # the described system that tells it from its only sibling
    by_fastest: bool = False  # its share is that of the fastest operations


@rule(
    "a link, port, device, NIC, node, switch or host link slower than its siblings, from the residuals of all pairs",
    faults=True,
    tells=SLOW,
)
def slow_elements(facts: Facts) -> Iterable[Finding]:
    """Links, ports, devices, NICs and host links that are slower than their siblings."""
    seen: dict[tuple[str, tuple[int | str, ...]], list[_Seen]] = {}
    tested: dict[tuple[str, tuple[int | str, ...]], int] = {}
    for pairs in _sets(facts):
        found, candidates = _solve_set(facts, pairs)
        # What is between nodes counts once a set of cases, in whichever direction and class it is slow. The other
        # kinds' confidence was calibrated with each direction counted.
        once = {(e.kind, e.ends, "" if e.kind in _BETWEEN_NODES else e.direction) for e in candidates}
        for kind, ends, _ in once:
            tested[(kind, ends)] = tested.get((kind, ends), 0) + 1
        for item in found:
            seen.setdefault((item.element.kind, item.element.ends), []).append(item)
    _host_links(facts, seen, tested)
    yield from _told(facts, seen, tested)


def _sets(facts: Facts) -> Iterable[dict[tuple[int, int], Measure]]:
    """Yield the pair sets of sizes at which the rate and not the overhead counts."""
    for pairs in facts.pair_sets:
        one = next(iter(pairs.values()))
        if one.pattern != "flag_pingpong" and one.size >= 1 << 18:
            yield pairs


def _solve_set(facts: Facts, pairs: dict[tuple[int, int], Measure]) -> tuple[list[_Seen], list[Element]]:
    wiring = facts.wiring
    one = next(iter(pairs.values()))
    ways: Ways = {}
    kept: list[tuple[int, int]] = []
    for pair in pairs:
        way = None
        if wiring is not None and not _between(facts, pair):
            way = wiring.way(*pair, over_host=over_host(one.transport, one.case.path))
            if way is None or way.kind == "routed":
                continue  # which links a routed pair takes is not known
        ways[pair] = way
        kept.append(pair)
    by_fastest = bool(kept) and all(_between(facts, pair) for pair in kept)
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
    elements = _elements(facts, kept, classes, ways, both, among, _node_sets(facts, kept, measures))
    least = _LEAST_BY_FASTEST if by_fastest else _LEAST
    found = solve([m.time_ns for m in measures], classes, elements, [m.half_width for m in measures], least)
    if by_fastest:
        found = [slow for slow in found if _one_floor([measures[pair].time_ns for pair in slow.pairs])]
    result = []
    for slow in found:
        element = slow.element
        assert isinstance(element, Element)
        mine = tuple(measures[i] for i in slow.pairs)
        like = {classes[i] for i in slow.pairs}
        siblings = [m for i, m in enumerate(measures) if classes[i] in like and i not in slow.pairs]
        rate = median(m.goodput or math.nan for m in mine)
        usual = median(m.goodput or math.nan for m in siblings) if siblings else math.nan
        counts = {way.count for pair in slow.pairs if (way := ways[kept[pair]]) is not None}
        links = counts.pop() if len(counts) == 1 else 0
        result.append(_Seen(slow, element, mine, rate, usual, links, by_fastest=by_fastest))
    return result, [e for e in elements if isinstance(e, Element)]


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
        rates.append(way.rate if way is not None else _rate_between(facts, pair) if _between(facts, pair) else None)
    full = filled(facts, [pairs[pair] for pair in kept], [_class(facts, pair, ways[pair]) for pair in kept], rates)
    return [pair for pair, is_full in zip(kept, full, strict=True) if is_full]


def _between(facts: Facts, pair: tuple[int, int]) -> bool:
    return facts.host_of(pair[0]) != facts.host_of(pair[1])


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
    if _between(facts, pair):
        if facts.network is None:
            return _BETWEEN, ""
        hosts = [facts.host_of(device) for device in pair]
        parts = facts.network.way(*hosts) or ()
        rates = facts.network.rates(parts)
        # Where all rates are stated, pairs of one narrowest rate ought to be equal, however far they are.
        level = f"{min(rates.values()):.4g} B/s" if parts and len(rates) == len(parts) else facts.network.level(*hosts)
        return _BETWEEN, level
    return "unknown" if way is None else way.shape


@remembered
def _elements(
    facts: Facts,
    pairs: list[tuple[int, int]],
    classes: list[Hashable],
    ways: Ways,
    both: bool,
    among: Hashable,
    node_sets: list[tuple[str, ...]],
) -> dict[Hashable, list[int]]:
    """Return candidate elements with the pairs that use them; of those with equal pairs the most specific one.

    Where classes between nodes differ, what is a node's own is a candidate in those of the fastest (`among`) alone too,
    and what is a switch's in those of each: in others something else is narrower.

    `node_sets` are nodes that may share an uplink.

    Where two ends are equally specific (the only pair of two devices uses a port of each) it is what joins them.
    """
    wiring = facts.wiring
    found: dict[Element, set[int]] = {}

    def add(kind: str, ends: tuple[int | str, ...], direction: str, index: int, of: Hashable = None) -> None:
        for way in ("both",) if both else (direction, "both"):
            found.setdefault(Element(kind, ends, way, of), set()).add(index)

    for index, (source, target) in enumerate(pairs):
        way = ways[(source, target)]
        if _between(facts, (source, target)):
            label = classes[index] if among is not None else None
            _add_between(facts, add, (source, target), index, label, among)
            for nodes in node_sets:
                leaves, enters = (facts.host_of(device) in nodes for device in (source, target))
                if leaves != enters:
                    add("uplink", nodes, "out" if leaves else "in", index)
            continue
        if way is not None and wiring is not None:
            for arc in way.arcs:
                _add_arc(wiring, add, arc, way, index)
            if way.kind == "switch":  # what only these two share: a route of the switch, a lane inside it
                low, high = sorted((source, target))
                add("pair", (low, high), f"{source}->{target}", index)
        add("device", (source,), "out", index)
        add("device", (target,), "in", index)
    unique: dict[frozenset[int], Element] = {}
    for element, members in found.items():
        held = unique.get(frozenset(members))
        rank = _specific(element)
        if held is None or rank < _specific(held):
            unique[frozenset(members)] = element
        elif element.kind == held.kind == "trunk" and len(set(element.ends) ^ set(held.ends)) == 2:
            unique[frozenset(members)] = _trunks_joined(held, element)
        elif element.kind == held.kind and element.ends != held.ends and len(members) == 1:
            source, target = pairs[next(iter(members))]
            low, high = sorted((source, target))
            unique[frozenset(members)] = Element("pair", (low, high), "both" if both else f"{source}->{target}")
    everything = frozenset(range(len(pairs)))
    return {element: sorted(members) for members, element in unique.items() if members != everything}


def _trunks_joined(one: Element, other: Element) -> Element:
    """The two links up of two switches that alone hang there, in the direction in which pairs use both of them."""
    low, high = sorted(str(end) for end in set(one.ends) ^ set(other.ends))
    ways = [tuple(each.direction.split("->")) for each in (one, other) if "->" in each.direction]
    leaves = {way[0] for way in ways} - {way[-1] for way in ways}  # the switch that pairs come from
    direction = "both" if not leaves else f"{low}->{high}" if low in leaves else f"{high}->{low}"
    return Element("trunk", (low, high), direction, one.among)


def _node_sets(facts: Facts, kept: list[tuple[int, int]], measures: list[Measure]) -> list[tuple[str, ...]]:
    """Sets of nodes that may share an uplink; none where the run knows its switches."""
    if facts.network is not None:
        return []
    times: dict[tuple[str, str], list[float]] = {}
    for pair, measure in zip(kept, measures, strict=True):
        if _between(facts, pair):
            times.setdefault((facts.host_of(pair[0]), facts.host_of(pair[1])), []).append(measure.time_ns)
    return near_sets(times)


def _specific(element: Element) -> tuple[int, bool, bool]:
    return _SPECIFIC[element.kind], element.among is not None, element.direction == "both"


def _add_between(
    facts: Facts, add: object, pair: tuple[int, int], index: int, label: Hashable, among: Hashable
) -> None:
    """Between nodes a pair uses each end's NIC and node, and of known switches those and the links between them."""
    assert callable(add)
    for device, direction in zip(pair, ("out", "in"), strict=True):
        host = facts.host_of(device)
        known = facts.devices.get(device)
        nic = facts.wiring.nics.get(known.device_ordinal or 0) if facts.wiring and known else None
        for of in {None, label if label == among else None}:
            if nic:
                add("nic", (host, nic), direction, index, of)
            add("node", (host,), direction, index, of)
            add("device", (device,), direction, index, of)
    hosts = [facts.host_of(device) for device in pair]
    way = facts.network.way(*hosts) if facts.network else None
    if facts.network is None or not way:
        return
    shared = [not facts.network.alone(host) for host in hosts]  # else what is the switch's is the node's
    for of in {None, label}:
        for switch in {name for name, several in zip((way[0][1], way[-1][0]), shared, strict=True) if several}:
            add("switch", (switch,), "both", index, of)
        for a, b in way[1:-1]:
            if (shared[0] or a != way[0][1]) and (shared[1] or b != way[-1][0]):
                low, high = sorted((a, b))
                add("trunk", (low, high), f"{a}->{b}", index, of)


def _add_arc(wiring: Wiring, add: object, arc: tuple[str, str], way: Way, index: int) -> None:
    assert callable(add)
    tail, head = (wiring.ordinals.get(end) for end in arc)
    if tail is not None and head is not None:
        low, high = sorted((tail, head))
        add("link", (low, high), f"{tail}->{head}", index)
    elif tail is not None:
        add("host" if way.kind == "host" else "port", (tail,), "out", index)
    elif head is not None:
        add("host" if way.kind == "host" else "port", (head,), "in", index)
    else:
        low_name, high_name = sorted(arc)
        add("trunk", (low_name, high_name), f"{arc[0]}->{arc[1]}", index)


def _host_links(
    facts: Facts,
    seen: dict[tuple[str, tuple[int | str, ...]], list[_Seen]],
    tested: dict[tuple[str, tuple[int | str, ...]], int],
) -> None:
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
        elements: dict[Hashable, list[int]] = {
            Element("host", (m.devices[0],), direction): [i] for i, m in enumerate(measures)
        }
        for measure in measures:
            for kind in ("host", f"host {direction}"):
                tested[(kind, measure.devices)] = tested.get((kind, measure.devices), 0) + 1
        if len(measures) == 2:
            item = _by_known(facts, measures, direction) if classes[0] == classes[1] else None
            if item is not None:
                seen.setdefault((item.element.kind, item.element.ends), []).append(item)
            continue
        for slow in solve([m.time_ns for m in measures], classes, elements, [m.half_width for m in measures]):
            element = slow.element
            assert isinstance(element, Element)
            index = slow.pairs[0]
            siblings = [m.goodput or 0.0 for i, m in enumerate(measures) if classes[i] == classes[index] and i != index]
            if len(siblings) < 2:
                continue
            item = _Seen(slow, element, (measures[index],), measures[index].goodput or 0.0, median(siblings), 0)
            seen.setdefault((element.kind, element.ends), []).append(item)


def _by_known(facts: Facts, measures: list[Measure], direction: str) -> _Seen | None:
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
    return _Seen(slow, element, (mine,), mine.goodput or 0.0, other.goodput or 0.0, 0, kind.system.name)


def _largest_alike(group: list[Measure]) -> list[Measure]:
    """Return the measures of the largest size that most devices have: a curve may end early on one of them."""
    sizes = Counter(m.size for m in group)
    most = max(sizes.values())
    size = max(size for size, count in sizes.items() if count == most)
    return [m for m in group if m.size == size]


def _ordinal(facts: Facts, device: int) -> int:
    known = facts.devices.get(device)
    return known.device_ordinal or 0 if known else device


def _told(
    facts: Facts,
    seen: dict[tuple[str, tuple[int | str, ...]], list[_Seen]],
    tested: dict[tuple[str, tuple[int | str, ...]], int],
) -> Iterable[Finding]:
    for (kind, ends), items in seen.items():
        worst = max(items, key=lambda item: item.slow.share)
        share = median(item.slow.share for item in items)
        loss = share / (1 + share)
        subject = f"{_WORDS[kind]} {_place(facts, kind, ends)}".lstrip()
        directions = sorted({item.element.direction for item in items})
        others = "the other of the two" if worst.known else "its siblings"
        first = subject[:1].upper() + subject[1:]
        fraction = _fraction(facts, worst, loss)
        halves = kind == "uplink" and 2 * len(ends) == len(facts.hosts)
        way = _way_of_halves(facts, ends, directions) if halves else _way_words(facts, directions)
        sentence = f"{first} is {percent(loss)} below {others}{way}{fraction}."
        if worst.by_fastest:
            sentence += " The times spread, so the fastest operation of each pair was compared."
        if kind == "pair" and len(facts.devices) > 2:
            sentence += " All other pairs of both devices are as they should be."
        elif kind == "pair":
            sentence += " With two devices alone, the slow part is unknown: a port of either, or the link between."
        if worst.known:
            sentence += f" What is known of {worst.known} says that it is this one."
        if kind == "port":
            sentence += " Behind a switch a pair shows a device's port only, not which of its links."
        evidence = [
            Evidence(
                f"{item.measures[0].label} at {size_text(item.measures[0].size)}: {rate_text(item.rate)}"
                f"{_over(item.measures)} against {rate_text(item.sibling_rate)} of the rest "
                f"({_direction(facts, item.element.direction)})",
                keys(item.measures),
            )
            for item in sorted(items, key=lambda item: -item.slow.share)
        ]
        # One direction of a host link says nothing of the other.
        asked = sum(tested.get((f"{kind} {direction}", ends), 0) for direction in directions) if kind == "host" else 0
        agree = len(items) / max(len(items), asked or tested.get((kind, ends), len(items)))
        score = max(item.slow.score for item in items)
        confidence = min(0.99, (0.8 + 0.19 * (1 - math.exp(-score / 20))) * (0.8 + 0.2 * agree))
        severity: Severity = "fault"
        others_fit = kind == "host" or kind in _BETWEEN_NODES  # what else was measured does not show it
        if _passing(items, max(tested.get((kind, ends), 1), 2 if others_fit else 1), score, share):
            severity, confidence = "note", 0.5
            sentence += " Only one case shows it: measure it again."
        elif halves:
            severity = "loss"
            sentence += " There are two sides alone, so it may be built so: state the rates with --fabric FILE."
        fix = FIXES[kind]
        if kind not in ("nic", "trunk", "node", "switch", "uplink") and facts.are_cores(_devices(ends)):
            severity, fix = "note", CORES_FIX
            sentence += " Host devices are cores, which other programs share: it need not be the machine's."
        yield Finding(
            SLOW_BY_KIND[kind], severity, subject, sentence, tuple(evidence), confidence, fix, loss, _devices(ends)
        )


def _over(measures: tuple[Measure, ...]) -> str:
    if measures[0].ranks == 1:
        return ""
    return f" over {len(measures)} pair{'s' if len(measures) > 1 else ''}"


def _passing(items: list[_Seen], tested: int, score: float, share: float) -> bool:
    """Whether a passing disturbance may explain it.

    One set of cases shows it, others (for a host link, the other direction) do not, and it does not stand out by far.
    """
    if len(items) > 1:
        return False
    alone = len(items[0].slow.pairs) == 1
    if tested > 1:
        return score < 15 or share < 0.12 if alone else score < 20 and share < 0.15
    return alone and score < 8


def _place(facts: Facts, kind: str, ends: tuple[int | str, ...]) -> str:
    words = [_end_words(facts, end) for end in ends]
    if kind == "uplink":
        return " or ".join(_sides(facts, ends))
    text = (" and " if kind == "pair" else " - ").join(words)
    if kind in ("device", "port", "host") and isinstance(ends[0], int):
        text += facts.identity_of(ends[0])
    return text


def _sides(facts: Facts, ends: tuple[int | str, ...]) -> list[str]:
    """Return the nodes behind an uplink; of two halves both, since the same pairs cross the uplink of either."""
    sides = [[_end_words(facts, end) for end in ends]]
    if 2 * len(ends) == len(facts.hosts):
        sides.append([host for host in facts.hosts if host not in ends])
    return [f"{{{', '.join(side)}}}" for side in sides]


def _way_of_halves(facts: Facts, ends: tuple[int | str, ...], directions: list[str]) -> str:
    one, other = _sides(facts, ends)
    words = {"out": f" from {one} to {other}", "in": f" from {other} to {one}"}
    return words.get(directions[0], "") if len(directions) == 1 else ""


def _end_words(facts: Facts, end: int | str) -> str:
    known = facts.wiring.ordinals if facts.wiring else {}
    of = known.get(end, end) if isinstance(end, str) else end
    return of if isinstance(of, str) else facts.name_of(of)


def _direction(facts: Facts, direction: str) -> str:
    """Return `GPU 0 to GPU 1` for `0->1`; other directions are words as they are."""
    source, arrow, target = direction.partition("->")
    if not arrow:
        return {"both": "both directions"}.get(direction, direction)
    return " to ".join(_end_words(facts, int(end) if end.isdecimal() else end) for end in (source, target))


def _way_words(facts: Facts, directions: list[str]) -> str:
    one = directions[0]
    if len(directions) > 1 or one == "both":
        return "" if len(directions) == 1 else f" ({', '.join(_direction(facts, each) for each in directions)})"
    words = {"out": " in what it sends", "in": " in what it receives"}
    return words.get(one, f" in the direction from {_direction(facts, one)}")


def _fraction(facts: Facts, item: _Seen, loss: float) -> str:
    """Say which simple fraction is left, where the rate is within 3 % of one: so many of k parts unused.

    Only of parts that there are: the links of a bundle, a node's rails; of a GPU, inside its node, lanes or engines.
    """
    left, kind = 1 - loss, item.element.kind
    across = any(facts.host_of(device) != facts.host_of(m.devices[0]) for m in item.measures for device in m.devices)
    if item.links > 1:
        counts, what = [item.links], "links were down"
    elif across:
        rails = max((facts.rails_of(host) for host in facts.hosts), default=0)
        counts = [rails] if rails > 1 and kind in ("node", "nic", "device") else []
        what = "rails were unused"
    elif facts.are_cores(_devices(item.element.ends)):
        counts, what = [], ""
    else:
        counts, what = [2, 4], ""
    for parts in counts:
        for missing in range(1, parts):
            kept = Fraction(parts - missing, parts)
            if abs(left / float(kept) - 1) < 0.03:
                if what:
                    return f", as if {missing} of its {parts} {what}"
                return f": {kept} of what they reach, as if so many of its lanes, rails or engines were unused"
    return ""


def _devices(ends: tuple[int | str, ...]) -> tuple[int, ...]:
    return tuple(end for end in ends if isinstance(end, int))
