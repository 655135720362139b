"""Single paths between devices: hops, the shortest, the widest; and the edge forwarding index.

A path's rate is that of its narrowest bundle. Hops count links, so a way through a switch has two, whether or not its
throughput is stated: the arc inside a vertex limits what passes and is no hop.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from linkgauge.expect.graph import Wires
from linkgauge.system.graph import Path
from linkgauge.system.remembered import remembered


def rate_of(wires: Wires, path: Sequence[str]) -> float:
    """Return the rate of a path in bytes per second: the capacity of its narrowest arc."""
    return min(wires.arcs[arc] for arc in itertools.pairwise(path))


def length(wires: Wires, path: Sequence[str]) -> int:
    """Return how many links a path has."""
    return sum(arc not in wires.inner for arc in itertools.pairwise(path))


def shown(wires: Wires, path: Sequence[str]) -> str:
    """Return a path as its basis shows it: without the entrances of vertices whose throughput is stated."""
    return " - ".join([arc[0] for arc in itertools.pairwise(path) if arc not in wires.inner] + [path[-1]])


def shortest(wires: Wires, source: str, target: str) -> Path | None:
    """Return a path of the fewest hops, the widest among those; None where there is no path."""
    return wires.graph.shortest(source, target)


def widest(wires: Wires, source: str, target: str) -> Path | None:
    """Return a path whose narrowest arc is widest, the shortest among those; None where there is no path."""
    return wires.graph.widest(source, target)


@remembered
def loads(wires: Wires, pairs: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the load on each arc when each pair's demand splits evenly over all its paths of fewest hops.

    With a demand of 1 for every ordered pair the largest load is the edge forwarding index with split shares
    (De Sensi et al., SC'24, Section IV-A). Parallel links are one arc.
    """
    graph, result = wires.graph, dict.fromkeys(wires.arcs, 0.0)
    ways = {vertex: (graph.hops(vertex), graph.counts(vertex)) for vertex in wires.vertices}
    ahead = {source: graph.arcs_from(source) for source, _ in pairs}
    for (source, target), demand in pairs.items():
        hops, count = ways[source]
        if target not in hops:
            raise ValueError(f"no path from {source} to {target}")
        for tail, head in ahead[source]:
            left, onward = ways[head]
            if target in left and hops[head] + left[target] == hops[target]:
                result[tail, head] += demand * count[tail] * onward[target] / count[target]
    return result


def forwarding_index(wires: Wires, names: Sequence[str]) -> float:
    """Return the edge forwarding index among these devices: the largest load of any arc, shares split evenly."""
    return max(loads(wires, {(a, b): 1.0 for a in names for b in names if a != b}).values())
