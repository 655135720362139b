"""Bounds that are cuts: max flow, and the smallest ratio of a cut to what must cross it.

All are computed on whole numbers and so are exact. The ratios are found by Newton's method on cuts (Dinkelbach): ask by
one max flow whether a rate is possible; if not, the cut that forbids it gives the next, smaller rate; a handful of
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import networkx

from linkgauge.expect.graph import Wires
from linkgauge.system.remembered import remembered

_SOURCE = "\0source"
_SINK = "\0sink"


@dataclass(frozen=True)
class Cut:
    """A rate in bytes per second (None: nothing known limits it) and the side of the cut that sets it."""

    value: float | None
    side: tuple[str, ...]


def _graph(arcs: Mapping[tuple[str, str], int | None], factor: int = 1) -> Any:
    graph = networkx.DiGraph()
    for (tail, head), rate in arcs.items():
        if rate is None:
            graph.add_edge(tail, head)
        else:
            graph.add_edge(tail, head, capacity=rate * factor)
    return graph


def _minimum_cut(graph: Any, source: str, target: str) -> tuple[int | None, set[str]]:
    """Return the cut's value and the source's side; None where an infinite path joins them."""
    try:
        value, (side, _) = networkx.minimum_cut(graph, source, target)
    except networkx.NetworkXUnbounded:
        return None, set()
    return value, side


def max_flow(wires: Wires, source: str, target: str) -> Cut:
    """Return the max flow between two vertices and the cut that sets it."""
    return max_flow_between(wires, [source], [target])


@remembered
def max_flow_between(wires: Wires, sources: Sequence[str], targets: Sequence[str]) -> Cut:
    """Return the max flow from a set of vertices to another."""
    arcs, unit = wires.whole()
    graph = _graph(arcs)
    for source in sources:
        graph.add_edge(_SOURCE, source)
    for target in targets:
        graph.add_edge(target, _SINK)
    value, side = _minimum_cut(graph, _SOURCE, _SINK)
    return Cut(None if value is None else float(value * unit), tuple(sorted(side - {_SOURCE})))


@remembered
def smallest_pair_cut(wires: Wires, names: Sequence[str]) -> Cut:
    """Return the smallest cut that separates any of these vertices from any other, in either direction."""
    best = Cut(None, ())
    root = names[0]
    for name in names[1:]:
        for a, b in ((root, name), (name, root)):
            cut = max_flow(wires, a, b)
            if cut.value is not None and (best.value is None or cut.value < best.value):
                best = cut
    return best


@remembered
def broadcast(wires: Wires, root: str, names: Sequence[str]) -> Cut:
    """Return min over v of max flow(root, v): the rate of a broadcast (Edmonds' branchings); see `gather_all`."""
    best = Cut(None, ())
    for name in names:
        if name != root:
            cut = max_flow(wires, root, name)
            if cut.value is not None and (best.value is None or cut.value < best.value):
                best = cut
    return best


@remembered
def gather_all(wires: Wires, weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which every vertex v sends `weights[v]` x to all others at once (an allgather).

    x = min over vertex sets S that leave out some v of capacity leaving S / weight of S (bottleneck cut). By Edmonds'
    and Frank's theorems spanning trees can be packed to reach it; through switches too where as much may enter each
    as may leave it, since splitting off keeps cuts there. Elsewhere it is a bound, and `flows.packed_trees` reached.
    """
    names = list(weights)
    total = sum(weights.values())

    def violated(graph: Any, p: int, q: int) -> set[str] | None:
        for name in names:
            graph.add_edge(_SOURCE, name, capacity=p * weights[name])
        for name in names:
            value, side = _minimum_cut(graph, _SOURCE, name)
            if value is not None and value < p * total:
                return side - {_SOURCE}
        return None

    return _newton(wires, weights, violated)


@remembered
def scatter(wires: Wires, root: str, weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which `root` sends x times `weights[v]` of its own to each other vertex v.

    x = min over sets S without the root of capacity entering S / weight of S.
    """
    peers = {name: weight for name, weight in weights.items() if name != root}
    total = sum(peers.values())

    def violated(graph: Any, p: int, q: int) -> set[str] | None:
        for name, weight in peers.items():
            graph.add_edge(name, _SINK, capacity=p * weight)
        value, side = _minimum_cut(graph, root, _SINK)
        if value is None or value >= p * total:
            return None
        return {vertex for vertex in graph if vertex not in side} - {_SINK}

    return _newton(wires, peers, violated, entering=True)


@remembered
def fill(wires: Wires, sources: Sequence[str], weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which a set of sources together sends x times `weights[v]` to each vertex v."""
    arcs = dict(wires.arcs)
    arcs.update({(_SOURCE, source): float("inf") for source in sources})
    return scatter(wires.with_arcs(arcs), _SOURCE, {**weights, _SOURCE: 0})


def _newton(wires: Wires, weights: Mapping[str, int], violated: Any, *, entering: bool = False) -> Cut:
    arcs, unit = wires.whole()
    finite = [rate for rate in arcs.values() if rate is not None]
    if not finite or not weights:
        return Cut(None, ())
    rate = Fraction(sum(finite) + 1)
    unlimited = rate
    side: tuple[str, ...] = ()
    while True:
        p, q = rate.numerator, rate.denominator
        found = violated(_graph(arcs, q), p, q)
        if found is None:
            break
        crossing = [
            capacity
            for (tail, head), capacity in arcs.items()
            if (head in found and tail not in found if entering else tail in found and head not in found)
        ]
        capacity = sum(c for c in crossing if c is not None)
        smaller = Fraction(capacity, sum(weights.get(v, 0) for v in found))
        if smaller >= rate:
            raise AssertionError("a violated cut did not lower the rate")
        rate, side = smaller, tuple(sorted(found))
    return Cut(None if rate == unlimited else float(rate * unit), side)
