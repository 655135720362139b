"""Which nodes are far from all others by latency: solved apart from rates, since waiting adds and does not divide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.findings.facts import Facts, Measure, keys, median
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.rule import rule
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text

_SMALL = 4096  # bytes: above, the rate counts too
_FAR = 4.0  # times the latency of the nearest pairs
_LEAST_NS = 5_000.0
_TURNS = 16  # a large message waits so many times for an answer at most, while TCP's window opens
Pair = tuple[str, str]


@rule("nodes whose latency to all others is far above that among these", faults=True)
def high_latency(facts: Facts) -> Iterable[Finding]:
    """Nodes, or groups of nodes, that every small message to the others takes much longer to reach."""
    told: set[frozenset[str]] = set()
    for pairs in sorted(_small_sets(facts), key=lambda pairs: next(iter(pairs.values()))[0].size):
        times = {pair: min(one.fastest_ns for one in found) for pair, found in pairs.items()}
        base, late = far_nodes(times)
        for nodes in late:
            if nodes in told or not _has_siblings(facts, nodes, times):
                continue
            told.add(nodes)
            yield _finding(facts, nodes, pairs, times, base)


def _small_sets(facts: Facts) -> Iterable[dict[Pair, list[Measure]]]:
    """Of each setting and small size the cases between nodes, by the two nodes in order."""
    for by_devices in facts.pair_sets:
        one = next(iter(by_devices.values()))
        if one.size > _SMALL or one.pattern not in ("pingpong", "flag_pingpong"):
            continue
        found: dict[Pair, list[Measure]] = {}
        for devices, measure in by_devices.items():
            a, b = sorted(facts.host_of(device) for device in devices)
            if a != b:
                found.setdefault((a, b), []).append(measure)
        if found:
            yield found


def far_nodes(times: Mapping[Pair, float]) -> tuple[float, list[frozenset[str]]]:
    """The latency of the nearest pairs, and the sets of nodes that are far from the rest.

    Nodes with a near pair are joined; what is joined to more than half of the nodes is the rest, and near means within
    _FAR times the lowest decile. So one near pair clears a node, and noise, which only adds, accuses none.
    """
    nodes = sorted({node for pair in times for node in pair})
    ordered = sorted(times.values())
    base = ordered[(len(ordered) - 1) // 10]
    first = {node: node for node in nodes}

    def root(node: str) -> str:
        while first[node] != node:
            node = first[node]
        return node

    for (a, b), time in times.items():
        if time < max(_FAR * base, base + _LEAST_NS):
            first[root(b)] = root(a)
    sizes = Counter(root(node) for node in nodes)
    body, count = sizes.most_common(1)[0]
    if 2 * count <= len(nodes):
        return base, []
    return base, [frozenset(node for node in nodes if root(node) == top) for top in sorted(sizes) if top != body]


def _has_siblings(facts: Facts, nodes: frozenset[str], times: Mapping[Pair, float]) -> bool:
    """Whether others of the same distance class are near; where no class is known, others are siblings."""
    if facts.network is None:
        return True
    crossing = {facts.network.level(*pair) for pair in times if len(nodes & set(pair)) == 1}
    among = {facts.network.level(*pair) for pair in times if not nodes & set(pair)}
    return bool(crossing & among)


def _finding(
    facts: Facts, nodes: frozenset[str], pairs: Mapping[Pair, Sequence[Measure]], times: Mapping[Pair, float],
    base: float,
) -> Finding:  # fmt: skip
    across = [pair for pair in times if len(nodes & set(pair)) == 1]
    level = median(times[pair] for pair in across)
    names = ", ".join(sorted(nodes))
    one = pairs[across[0]][0]
    several = len(nodes) > 1
    subject = f"uplink of {{{names}}}" if several else f"node {names}"
    cards = facts.cards.get(names, "") if not several else ""
    sentence = (
        f"Messages {'between the nodes ' if several else 'to and from '}{'{' + names + '}' if several else names}"
        f"{f' ({cards})' if cards else ''}{' and the others' if several else ''} take {time_text(level)} at "
        f"{size_text(one.size)}, against {time_text(base)} among the other nodes."
    )
    if several and facts.network is None:
        sentence += " Whether these nodes are meant to be farther away is not known; --fabric FILE states it."
    waiting = _waiting(facts, nodes, level - base)
    return Finding(
        "high_latency",
        "note" if several and facts.network is None else "fault",
        subject,
        sentence,
        (
            Evidence(f"{len(across)} pairs: {time_text(level)} against {time_text(base)}",
                     keys(m for pair in across for m in pairs[pair])),
            *([Evidence(f"{len(waiting)} cases of larger messages wait for it", keys(waiting))] if waiting else []),
        ),
        0.97,
        "Look at the route (traceroute, tracepath), at queues and shaping on the way (tc -s qdisc), at power saving "
        "of the node (C-states) and its NIC (interrupt moderation: ethtool -c).",
        1 - base / level,
        tuple(sorted(device for device in facts.devices if facts.host_of(device) in nodes)),
    )  # fmt: skip


def _waiting(facts: Facts, nodes: frozenset[str], added_ns: float) -> list[Measure]:
    """The cases across whose time beyond that of the others the added latency explains."""
    found = []
    for by_devices in facts.pair_sets:
        usual = [m.time_ns for devices, m in by_devices.items() if not nodes & {facts.host_of(d) for d in devices}]
        level = median(usual) if usual else math.nan
        found += [
            measure for devices, measure in by_devices.items()
            if len({facts.host_of(device) in nodes for device in devices}) == 2
            and measure.time_ns - level <= _TURNS * added_ns
        ]  # fmt: skip
    return found
