"""Which nodes are far from all others by latency: solved apart from rates, since waiting adds and does not divide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys, median
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text

_SMALL = 4096  # bytes: above, the rate counts too
_FAR = 4.0  # times the latency of the pairs by which the other nodes hang together
_LEAST_NS = 5_000.0
_SUREST = 0.97
_TURNS = 16  # a large message waits so many times for an answer at most, while TCP's window opens
Pair = tuple[str, str]


@rule("nodes whose latency to all others is far above that among these", faults=True)
def high_latency(facts: Facts) -> Iterable[Finding]:
    """Nodes, or groups of nodes, that every small message to the others takes much longer to reach."""
    told: set[frozenset[str]] = set()
    for pairs in sorted(_small_sets(facts), key=lambda pairs: next(iter(pairs.values()))[0].size):
        times = {pair: min(one.fastest_ns for one in found) for pair, found in pairs.items()}
        base, late = far_nodes(times)
        near = {node for pair in times for node in pair}.difference(*late)
        for nodes in late:
            if nodes in told or not _has_siblings(facts, nodes, times):
                continue
            told.add(nodes)
            across = [pair for pair in times if len(nodes & set(pair)) == 1 and near & set(pair)]
            rest = [measure for pair, found in pairs.items() if near.issuperset(pair) for measure in found]
            floor = min(times[pair] for pair in across)
            sure = min(_SUREST, 1 - len(near | nodes) * chance_of(floor, len(across), base, rest))
            yield _finding(facts, nodes, pairs, across, base, times, sure)


def _small_sets(facts: Facts) -> Iterable[dict[Pair, list[Measure]]]:
    """Of each setting and small size the cases between nodes, by the two nodes in order."""
    for by_devices in facts.pair_sets:
        one = next(iter(by_devices.values()))
        if one.size > _SMALL or one.pattern not in ("pingpong", "flag_pingpong"):
            continue
        nodes = ((sorted(map(facts.host_of, devices)), measure) for devices, measure in by_devices.items())
        found = grouped(((a, b), measure) for (a, b), measure in nodes if a != b)
        if found:
            yield found


def far_nodes(times: Mapping[Pair, float]) -> tuple[float, list[frozenset[str]]]:
    """The latency within which more than half of the nodes hang together, and the sets of nodes that are far from them.

    Pairs join their nodes, the nearest first. What is joined first to more than half of the nodes is the rest, and what
    would join it later, at _FAR times the latency that joined the rest, is far. So one near pair clears a node, and
    noise, which only adds, must lift all pairs of a node far above those that join the others: `chance_of` says how
    likely that is.
    """
    nodes = sorted({node for pair in times for node in pair})
    sets = {node: frozenset((node,)) for node in nodes}
    within, rest, far = 0.0, frozenset[str](), list[frozenset[str]]()
    for (a, b), time in sorted(times.items(), key=lambda item: item[1]):
        one, other = sets[a], sets[b]
        if one == other or one in far or other in far:
            continue
        if rest in (one, other) and time >= max(_FAR * within, within + _LEAST_NS):
            far.append(other if one == rest else one)
            continue
        joined = one | other
        sets |= dict.fromkeys(joined, joined)
        if 2 * len(joined) > len(nodes):
            rest, within = joined, time
    return within, sorted(far, key=sorted)


def chance_of(floor_ns: float, pairs: int, within_ns: float, rest: Sequence[Measure]) -> float:
    """How likely noise alone lifts the fastest operations of so many pairs to `floor_ns`, by what it does to the rest.

    On busy nodes whole pairs are measured late, so the operations of one pair count as one. `rest`: pairs of the other
    nodes, of whose operations a share takes as long. What these few have not shown comes by a heavy tail (of Pareto,
    with index 1/2) from `within_ns`, what joins them; it counts as one more pair.
    """
    unseen = math.sqrt(min(1.0, within_ns / floor_ns))
    return float(((sum(_share_above(one, floor_ns) for one in rest) + unseen) / (len(rest) + 1)) ** pairs)


def _share_above(measure: Measure, time_ns: float) -> float:
    """The share of a case's operations that took at least so long, between its known quantiles by the logarithm."""
    points = [(measure.fastest_ns, 1.0), (measure.time_ns, 0.5), (measure.tail * measure.time_ns, 0.05),
              (measure.slowest_ns, 0.0)]  # fmt: skip
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if time_ns <= low:
            return at_low
        if time_ns < high:
            part = math.log(time_ns / low) / math.log(high / low) if math.isfinite(high) else 0.0
            return at_low + (at_high - at_low) * part
    return 0.0


def _has_siblings(facts: Facts, nodes: frozenset[str], times: Mapping[Pair, float]) -> bool:
    """Whether others of the same distance class are near; where no class is known, others are siblings."""
    if facts.network is None:
        return True
    crossing = {facts.network.level(*pair) for pair in times if len(nodes & set(pair)) == 1}
    among = {facts.network.level(*pair) for pair in times if not nodes & set(pair)}
    return bool(crossing & among)


def _finding(
    facts: Facts, nodes: frozenset[str], pairs: Mapping[Pair, Sequence[Measure]], across: Sequence[Pair], base: float,
    times: Mapping[Pair, float], sure: float,
) -> Finding:  # fmt: skip
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
        sure,
        "Look at the route (traceroute, tracepath), at queues and shaping on the way (tc -s qdisc), at power saving "
        "of the node (C-states) and its NIC (interrupt moderation: ethtool -c).",
        1 - base / level,
        facts.devices_of(nodes),
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
