"""The findings of slow elements: which, by how much, in which direction, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from linkgauge.findings.confidence import SLOW_BY_KIND
from linkgauge.findings.elements import KINDS_BETWEEN_NODES, Part, SlowElement
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import Measure, keys, median, rate_text
from linkgauge.findings.slow_fixes import CORES_FIX, FIXES
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent

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


def findings_of(facts: Facts, seen: Mapping[Part, list[SlowElement]], tested: Mapping[Part, int]) -> Iterable[Finding]:
    """Yield what is found of each element that is seen slow; `tested`: in how many sets of cases it was a candidate."""
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
        evidence = tuple(
            Evidence(
                f"{item.measures[0].label} at {size_text(item.measures[0].size)}: {rate_text(item.rate)}"
                f"{_over(item.measures)} against {rate_text(item.sibling_rate)} of the rest "
                f"({_direction(facts, item.element.direction)})",
                keys(item.measures),
            )
            for item in sorted(items, key=lambda item: -item.slow.share)
        )
        # One direction of a host link says nothing of the other.
        asked = sum(tested.get((f"{kind} {direction}", ends), 0) for direction in directions) if kind == "host" else 0
        agree = len(items) / max(len(items), asked or tested.get((kind, ends), len(items)))
        score = max(item.slow.score for item in items)
        confidence = min(0.99, (0.8 + 0.19 * (1 - math.exp(-score / 20))) * (0.8 + 0.2 * agree))
        severity: Severity = "fault"
        others_fit = kind == "host" or kind in KINDS_BETWEEN_NODES  # what else was measured does not show it
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
        yield Finding(SLOW_BY_KIND[kind], severity, subject, sentence, evidence, confidence, fix, loss, _devices(ends))


def _over(measures: tuple[Measure, ...]) -> str:
    if measures[0].ranks == 1:
        return ""
    return f" over {len(measures)} pair{'s' if len(measures) > 1 else ''}"


def _passing(items: list[SlowElement], tested: int, score: float, share: float) -> bool:
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


def _fraction(facts: Facts, item: SlowElement, loss: float) -> str:
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
