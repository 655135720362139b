"""Limits of copies that a program takes through other devices: one whole leg after the other, both at once, striped."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from linkgauge.expect import paths
from linkgauge.expect.graph import Wires
from linkgauge.expect.limit import Limit, limit
from linkgauge.expect.points import finite, serial
from linkgauge.expect.query import Query
from linkgauge.system.units import show_rate

_Pair = tuple[str, str]


def relay(q: Query) -> list[Limit]:
    """Return the limit of a routed case: m / t of each flow, in bytes per second; nothing where a leg is unknown.

    Every leg takes the path of fewest hops. Store and forward: all flows' first legs, then all second legs, one after
    the other. Pipelined: all legs at once. In either, flows that share a link in one direction share its rate. Of a
    ping-pong the two directions follow each other.
    """
    middle = next((device.name for device in q.system.devices if device.ordinal == q.via), None)
    names = q.names
    if middle is None or middle in names or len(names) < 2 or len(names) != q.ranks:
        return []
    ahead = list(itertools.pairwise((*names, names[0])))  # ring_shift; of two devices there and back
    rounds = {"unidirectional": [ahead[:1]], "pingpong": [[pair] for pair in ahead]}.get(q.pattern, [ahead])
    pipelined = q.variant == "pipelined"
    rates: list[float | None] = []
    for flows in rounds:
        first, second = [(a, middle) for a, _ in flows], [(middle, b) for _, b in flows]
        for legs in [[*first, *second]] if pipelined else [first, second]:
            rates.append(_shared_rate(q.graph(), legs))
    one = serial(*rates)
    if one is None:
        return []
    value = one * len(rounds)  # half of a round trip is the mean of both ways
    shown = [show_rate(rate) for rate in rates]
    through = f"through {middle}, each flow: "
    basis = through + (
        ", then ".join(shown) if not pipelined or len(rounds) > 1 else f"{shown[0]} with both legs at once"
    )
    return [limit("relay_pipelined" if pipelined else "relay", value, basis)]


def striped(q: Query) -> list[Limit]:
    """Return the limit of a pair's message in equal parts, one direct and one through each device that is no end.

    All legs flow at once, each on its path of fewest hops, and the last part to arrive counts: parts times the rate
    that each leg gets. Of a ping-pong the two directions follow each other.
    """
    if len(q.names) != 2 or q.ranks != 2:
        return []
    a, b = q.names
    between = [device.name for device in q.system.devices if device.name not in q.names]
    ways = {"unidirectional": [[(a, b)]], "pingpong": [[(a, b)], [(b, a)]], "bidirectional": [[(a, b), (b, a)]]}
    rates = []
    for flows in ways.get(q.pattern, []):
        legs = [pair for s, t in flows for pair in ((s, t), *((s, k) for k in between), *((k, t) for k in between))]
        rates.append(_shared_rate(q.graph(), legs))
    one = serial(*rates) if rates and between else None
    if one is None:
        return []
    parts = 1 + len(between)
    shown = ", back ".join(show_rate(rate) for rate in rates)
    basis = f"{parts} equal parts at once, one through each other device, each {shown}"
    return [limit("striped", parts * one * len(rates), basis)]


def _shared_rate(graph: Wires, legs: Iterable[_Pair]) -> float | None:
    """Return the rate that each leg gets when all flow at once over the paths of fewest hops."""
    loads: Counter[_Pair] = Counter()
    known = set(graph.vertices)
    for a, b in legs:
        path = paths.shortest(graph, a, b) if {a, b} <= known else None
        if path is None:
            return None
        loads.update(itertools.pairwise(path))
    rate = min(graph.arcs[arc] / load for arc, load in loads.items())
    return rate if finite(rate) else None
