"""Single paths between devices: hops, the shortest, the widest; and the edge forwarding index.

A path's rate is that of its narrowest bundle. Hops count links, so a way through a switch has two, whether or not its
throughput is stated: the arc inside a vertex limits what passes and is no hop.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from linkgauge.expect.graph import Wires
from linkgauge.system.graph import Path

_AT_ONCE = 1 << 22  # sources x arcs that are looked at together: 32 MiB a temporary array


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


def exchanged(wires: Wires, weights: Mapping[str, int]) -> Any:
    """Return an alltoall's demands: a row for each vertex of `weights`, a column for each vertex of the graph.

    One for each ordered pair of ranks on different vertices.
    """
    own = np.array([weights.get(vertex, 0) for vertex in wires.vertices], dtype=float)
    place = {vertex: i for i, vertex in enumerate(wires.vertices)}
    demands = np.outer([float(weight) for weight in weights.values()], own)
    demands[np.arange(len(weights)), [place[name] for name in weights]] = 0.0
    return demands


def loads(wires: Wires, pairs: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the load on each arc when each pair's demand splits evenly over all its paths of fewest hops.

    With a demand of 1 for every ordered pair the largest load is the edge forwarding index with split shares
    (De Sensi et al., SC'24, Section IV-A). Parallel links are one arc. `ValueError` where a pair is not joined.
    """
    place = {vertex: i for i, vertex in enumerate(wires.vertices)}
    sources = {source: row for row, source in enumerate(dict.fromkeys(source for source, _ in pairs))}
    demands = np.zeros((len(sources), len(place)))
    for (source, target), demand in pairs.items():
        demands[sources[source], place[target]] = demand
    found = even_loads(wires, [place[source] for source in sources], demands)
    if found is None:
        raise ValueError("no path joins some of these pairs")
    return dict(zip(wires.arcs, found.tolist(), strict=True))


def even_loads(wires: Wires, sources: Sequence[int], demands: Any) -> Any:
    """Return the load on each arc, in the order of arcs, where `demands[i, v]` go from vertex `sources[i]` to vertex v.

    Each splits evenly over its paths of fewest hops. All sources at once, hop by hop: the ways to each vertex are
    counted going out, and what passes it is summed coming back (Brandes 2001). None where a pair is not joined.
    """
    place = {vertex: i for i, vertex in enumerate(wires.vertices)}
    ends = np.array([(place[tail], place[head]) for tail, head in wires.arcs], dtype=np.int64).reshape(-1, 2)
    inner = np.array([arc in wires.inner for arc in wires.arcs], dtype=bool)
    steps = [ends[~inner], ends[inner]]
    joins = [
        scipy.sparse.csr_array((np.ones(len(step)), (step[:, 0], step[:, 1])), shape=(len(place), len(place)))
        for step in steps
    ]
    hops = np.full(demands.shape, -1)
    hops[np.arange(len(sources)), list(sources)] = 0
    counts = (hops == 0).astype(float)
    depth = 0
    while (hops == depth).any():
        # An arc inside a vertex is no hop: what is there by it is as far away as what is before it.
        for join, further in zip(joins[::-1], (0, 1), strict=True):
            there = np.where(hops == depth, counts, 0.0) @ join
            new = (hops < 0) & (there > 0)
            hops[new], counts[new] = depth + further, there[new]
        depth += 1
    if (demands[hops < 0] > 0).any():
        return None
    found = np.zeros(len(ends))
    passing = demands.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        for level in range(depth, -1, -1):
            for kind, further in ((1, 0), (0, 1)):
                tails, heads = steps[kind].T
                share = np.where((hops == level) & (counts > 0), passing / counts, 0.0)
                before = np.where(hops == level - further, counts, 0.0)
                for rows in np.array_split(np.arange(len(sources)), max(1, len(sources) * len(tails) // _AT_ONCE)):
                    over = before[rows][:, tails] * share[rows][:, heads]
                    found[np.flatnonzero(inner == bool(kind))] += over.sum(axis=0)
                passing += before * (share @ joins[kind].T)
    return found
