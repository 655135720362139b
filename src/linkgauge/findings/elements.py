"""What of a machine may be slow: the links, ports, devices, NICs and switches on the ways of pairs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable
from typing import Protocol

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.findings.solve import Slow
from linkgauge.findings.uplinks import near_sets
from linkgauge.findings.wiring import Way, Wiring
from linkgauge.model.grouped import grouped
from linkgauge.system.remembered import remembered

# Where a node has one device, pairs between nodes do not tell which of both it is: then the node is named.
_SPECIFIC = {"link": 0, "port": 1, "host": 1, "nic": 2, "trunk": 3, "node": 4, "device": 5, "switch": 6,
             "uplink": 7, "pair": 8}  # fmt: skip

KINDS_BETWEEN_NODES = ("nic", "node", "trunk", "switch", "uplink")
Ways = dict[tuple[int, int], Way | None]
Part = tuple[str, tuple[int | str, ...]]
"""Kind and ends of an element: what several sets of cases may show in one direction or another."""


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
class SlowElement:
    """An element that one set of cases shows to be slow: by which measures, at which rate in bytes per second."""

    slow: Slow[Element]
    element: Element
    measures: tuple[Measure, ...]
    rate: float
    sibling_rate: float
    links: int
    known: str = ""  # the described system that tells it from its only sibling
    by_fastest: bool = False  # its share is that of the fastest operations


def between_nodes(facts: Facts, pair: tuple[int, int]) -> bool:
    """Whether the devices of a pair are on different nodes."""
    return facts.host_of(pair[0]) != facts.host_of(pair[1])


@remembered
def candidates(
    facts: Facts,
    pairs: list[tuple[int, int]],
    classes: list[Hashable],
    ways: Ways,
    both: bool,
    among: Hashable,
    node_sets: list[tuple[str, ...]],
) -> dict[Element, list[int]]:
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
        if between_nodes(facts, (source, target)):
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


def uplink_sets(facts: Facts, kept: list[tuple[int, int]], measures: list[Measure]) -> list[tuple[str, ...]]:
    """Sets of nodes that may share an uplink; none where the run knows its switches."""
    if facts.network is not None:
        return []
    return near_sets(grouped(((facts.host_of(a), facts.host_of(b)), measure.time_ns)
                             for (a, b), measure in zip(kept, measures, strict=True)
                             if between_nodes(facts, (a, b))))  # fmt: skip


def _specific(element: Element) -> tuple[int, bool, bool]:
    return _SPECIFIC[element.kind], element.among is not None, element.direction == "both"


class Add(Protocol):
    """What notes that pairs use an element."""

    def __call__(self, kind: str, ends: tuple[int | str, ...], direction: str, index: int, of: Hashable = None) -> None:
        """Note that the pair of this index does; `of` is the class of pairs that it is a candidate in alone."""


def _add_between(facts: Facts, add: Add, pair: tuple[int, int], index: int, label: Hashable, among: Hashable) -> None:
    """Between nodes a pair uses each end's NIC and node, and of known switches those and the links between them."""
    for device, direction in zip(pair, ("out", "in"), strict=True):
        host = facts.host_of(device)
        known = facts.devices.get(device)
        nic = facts.wiring.nics.get(known.device_ordinal or 0) if facts.wiring and known else None
        for of in dict.fromkeys((None, label if label == among else None)):
            if nic:
                add("nic", (host, nic), direction, index, of)
            add("node", (host,), direction, index, of)
            add("device", (device,), direction, index, of)
    hosts = [facts.host_of(device) for device in pair]
    way = facts.network.way(*hosts) if facts.network else None
    if facts.network is None or not way:
        return
    shared = [not facts.network.alone(host) for host in hosts]  # else what is the switch's is the node's
    for of in dict.fromkeys((None, label)):
        for switch in dict.fromkeys(itertools.compress((way[0][1], way[-1][0]), shared)):
            add("switch", (switch,), "both", index, of)
        for a, b in way[1:-1]:
            if (shared[0] or a != way[0][1]) and (shared[1] or b != way[-1][0]):
                low, high = sorted((a, b))
                add("trunk", (low, high), f"{a}->{b}", index, of)


def _add_arc(wiring: Wiring, add: Add, arc: tuple[str, str], way: Way, index: int) -> None:
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
