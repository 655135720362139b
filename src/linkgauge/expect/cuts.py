"""Bounds that are cuts: max flow, and the smallest ratio of a cut to what must cross it.

All are computed on whole numbers and so are exact. The ratios are found by Newton's method on cuts (Dinkelbach): ask by
one max flow whether a rate is possible; if not, the cut that forbids it gives the next, smaller rate; a handful of
steps. What is alike as a flow sees it (`alike`) is one vertex of its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy

from linkgauge.expect.alike import Alike, Flow, alike
from linkgauge.expect.graph import Wires
from linkgauge.system.remembered import remembered

_SOURCE = "\0source"
_BEFORE, _AFTER = -1, -2  # the vertices before all sources and after all targets; places are 0 and above
_Arc = tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """A rate in bytes per second (None: nothing known limits it) and the side of the cut that sets it."""

    value: float | None
    side: tuple[str, ...]


class _Quotient:
    """A flow's places as the vertices of a graph: what is alike is one vertex, which carries what all its arcs do."""

    def __init__(self, wires: Wires, flow: Flow, like: Alike) -> None:
        self.flow, self.names = flow, wires.vertices
        capacities, self.unit = wires.whole()
        rates = list(capacities.values())
        self.arcs: dict[_Arc, int | None] = {}
        for tail, head, arc, count in flow.groups:
            rate, sum_of_others = rates[like.arcs[arc]], self.arcs.get((tail, head), 0)
            self.arcs[tail, head] = None if rate is None or sum_of_others is None else sum_of_others + rate * count

    def place(self, name: str) -> int:
        return int(self.flow.places[self.names.index(name)])

    def weights(self, of: Mapping[str, int]) -> dict[int, int]:
        """Return the sum of weights of each place."""
        return {p: n * w for p, n in self.flow.sizes.items() if (w := of.get(self.names[self.flow.member[p]], 0))}

    def scaled(self, factor: int) -> dict[_Arc, int | None]:
        """Return the arcs, each capacity so many times as large."""
        return {arc: None if rate is None else rate * factor for arc, rate in self.arcs.items()}

    def vertices(self, places: Collection[int]) -> set[str]:
        """Return the vertices of these places."""
        return {name for name, place in zip(self.names, self.flow.places.tolist(), strict=True) if place in places}


def _quotients(wires: Wires, ends: Sequence[str | None], labels: Mapping[str, Hashable]) -> list[_Quotient]:
    like = alike(wires, tuple(ends), labels)
    return [_Quotient(wires, flow, like) for flow in like.flows]


def _minimum_cut(arcs: Mapping[_Arc, int | None], source: int, target: int) -> tuple[int | None, set[int]]:
    """Return the cut's value and the source's side, the largest; None where an infinite path joins them.

    Exact. By scipy, which takes 1 ms, where all capacities together fit into its 32 bits.
    """
    vertices = {source, target, *(end for arc in arcs for end in arc)}
    finite = sum(rate for rate in arcs.values() if rate is not None)
    unlimited = sum(rate is None for rate in arcs.values())
    if (finite + 1) * (unlimited + 1) >= 1 << 31:
        return _minimum_cut_at_length(arcs, source, target)
    place = {vertex: i for i, vertex in enumerate(vertices)}
    rates = np.array([finite + 1 if rate is None else rate for rate in arcs.values()], dtype=np.int32)
    ends = np.array([(place[tail], place[head]) for tail, head in arcs], dtype=np.int32).reshape(-1, 2)
    matrix = scipy.sparse.csr_array((rates, (ends[:, 0], ends[:, 1])), shape=(len(place), len(place)))
    done = scipy.sparse.csgraph.maximum_flow(matrix, place[source], place[target])
    if done.flow_value > finite:
        return None, set()
    left = matrix - done.flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    beyond = scipy.sparse.csgraph.breadth_first_order(left.T.tocsr(), place[target], return_predecessors=False)
    return int(done.flow_value), vertices - {list(place)[i] for i in beyond.tolist()}


def _minimum_cut_at_length(arcs: Mapping[_Arc, int | None], source: int, target: int) -> tuple[int | None, set[int]]:
    """Return the same for numbers of any length, by shortest augmenting paths (Edmonds and Karp 1972).

    A path that is unlimited throughout makes the flow infinite; each other one saturates an arc.
    """
    limit = sum(rate for rate in arcs.values() if rate is not None) + 1  # more than any finite cut
    left: dict[int, dict[int, int]] = {source: {}, target: {}}
    for (tail, head), rate in arcs.items():
        out = left.setdefault(tail, {})
        out[head] = out.get(head, 0) + (limit if rate is None else rate)
        left.setdefault(head, {}).setdefault(tail, 0)
    total = 0
    while True:
        before: dict[int, int] = {source: source}
        queue = [source]
        for vertex in queue:  # grows as it is walked
            for head, room in left[vertex].items():
                if room and head not in before:
                    before[head] = vertex
                    queue.append(head)
        if target not in before:
            break
        way = [target]
        while way[-1] != source:
            way.append(before[way[-1]])
        steps = list(zip(way[1:], way, strict=False))
        carried = min(left[tail][head] for tail, head in steps)
        for tail, head in steps:
            left[tail][head] -= carried
            left[head][tail] += carried
        total += carried
        if total >= limit:
            return None, set()
    # The source's side, the largest: all from which the target cannot be reached any more.
    reaches = {target}
    queue = [target]
    for vertex in queue:
        for tail, out in left.items():
            if tail not in reaches and out.get(vertex, 0):
                reaches.add(tail)
                queue.append(tail)
    return total, set(left) - reaches


def max_flow(wires: Wires, source: str, target: str) -> Cut:
    """Return the max flow between two vertices and the cut that sets it."""
    return max_flow_between(wires, [source], [target])


@remembered
def max_flow_between(wires: Wires, sources: Sequence[str], targets: Sequence[str]) -> Cut:
    """Return the max flow from a set of vertices to another."""
    (quotient,) = _quotients(wires, [None], {v: (v in sources, v in targets) for v in (*sources, *targets)})
    arcs = dict(quotient.arcs)
    arcs.update({(_BEFORE, quotient.place(source)): None for source in sources})
    arcs.update({(quotient.place(target), _AFTER): None for target in targets})
    value, side = _minimum_cut(arcs, _BEFORE, _AFTER)
    return Cut(None if value is None else float(value * quotient.unit), tuple(sorted(quotient.vertices(side))))


def _least(wires: Wires, root: str, names: Sequence[str], *, both: bool) -> Cut:
    """Return the smallest max flow from the root to any other of these vertices, and back if asked for."""
    best = Cut(None, ())
    for quotient in _quotients(wires, [name for name in names if name != root], {root: "root"}):
        ends = quotient.place(root), quotient.flow.end_place
        # Where every link carries as much both ways, so does every cut.
        for source, target in (ends, ends[::-1])[: 2 if both and not wires.symmetric else 1]:
            value, side = _minimum_cut(quotient.arcs, source, target)
            if value is not None and (best.value is None or value * quotient.unit < best.value):
                best = Cut(float(value * quotient.unit), tuple(sorted(quotient.vertices(side))))
    return best


@remembered
def smallest_pair_cut(wires: Wires, names: Sequence[str]) -> Cut:
    """Return the smallest cut that separates any of these vertices from any other, in either direction."""
    return _least(wires, names[0], names, both=True)


@remembered
def broadcast(wires: Wires, root: str, names: Sequence[str]) -> Cut:
    """Return min over v of max flow(root, v): the rate of a broadcast (Edmonds' branchings); see `gather_all`."""
    return _least(wires, root, names, both=False)


@remembered
def gather_all(wires: Wires, weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which every vertex v sends `weights[v]` x to all others at once (an allgather).

    x = min over vertex sets S that leave out some v of capacity leaving S / weight of S (bottleneck cut). By Edmonds'
    and Frank's theorems spanning trees can be packed to reach it; through switches too where as much may enter each
    as may leave it, since splitting off keeps cuts there. Elsewhere it is a bound, and `flows.packed_trees` reached.
    """
    total = sum(weights.values())
    quotients = _quotients(wires, list(weights), weights)

    def violated(p: int, q: int) -> set[str] | None:
        for quotient in quotients:
            arcs = quotient.scaled(q)
            arcs.update({(_BEFORE, place): p * weight for place, weight in quotient.weights(weights).items()})
            value, side = _minimum_cut(arcs, _BEFORE, quotient.flow.end_place)
            if value is not None and value < p * total:
                return quotient.vertices(side)
        return None

    return _newton(wires, weights, violated)


@remembered
def scatter(wires: Wires, root: str, weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which `root` sends x times `weights[v]` of its own to each other vertex v.

    x = min over sets S without the root of capacity entering S / weight of S.
    """
    peers = {name: weight for name, weight in weights.items() if name != root}
    total = sum(peers.values())
    (quotient,) = _quotients(wires, [root], peers)

    def violated(p: int, q: int) -> set[str] | None:
        arcs = quotient.scaled(q)
        arcs.update({(place, _AFTER): p * weight for place, weight in quotient.weights(peers).items()})
        value, side = _minimum_cut(arcs, quotient.flow.end_place, _AFTER)
        if value is None or value >= p * total:
            return None
        return set(wires.vertices) - quotient.vertices(side)

    return _newton(wires, peers, violated, entering=True)


@remembered
def fill(wires: Wires, sources: Sequence[str], weights: Mapping[str, int]) -> Cut:
    """Return the largest rate x at which a set of sources together sends x times `weights[v]` to each vertex v."""
    arcs = dict(wires.arcs)
    arcs.update({(_SOURCE, source): float("inf") for source in sources})
    return scatter(wires.with_arcs(arcs), _SOURCE, {**weights, _SOURCE: 0})


def _newton(
    wires: Wires, weights: Mapping[str, int], violated: Callable[[int, int], set[str] | None], *, entering: bool = False
) -> Cut:
    """Lower the rate to that of a cut which forbids it, until none does; `violated` asks of the rate p / q."""
    arcs, unit = wires.whole()
    finite = [rate for rate in arcs.values() if rate is not None]
    if not finite or not weights:
        return Cut(None, ())
    rate = Fraction(sum(finite) + 1)
    unlimited = rate
    side: tuple[str, ...] = ()
    while True:
        found = violated(rate.numerator, rate.denominator)
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
