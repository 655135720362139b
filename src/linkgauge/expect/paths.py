"""Single paths between devices: hops, the shortest, the widest; and the edge forwarding index.

A path's rate is that of its narrowest bundle. Hops count links, so a way through a switch has two, whether or not its
throughput is stated: the arc inside a vertex limits what passes and is no hop.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.expect.graph import Wires, remembered

Path = tuple[str, ...]


def rate_of(wires: Wires, path: Sequence[str]) -> float:
    """Return the rate of a path in bytes per second: the capacity of its narrowest arc."""
    return min(wires.arcs[arc] for arc in itertools.pairwise(path))


def length(wires: Wires, path: Sequence[str]) -> int:
    """Return how many links a path has."""
    return sum(arc not in wires.inner for arc in itertools.pairwise(path))


def shown(wires: Wires, path: Sequence[str]) -> str:
    """Return a path as its basis shows it: without the entrances of vertices whose throughput is stated."""
    return " - ".join([arc[0] for arc in itertools.pairwise(path) if arc not in wires.inner] + [path[-1]])


@remembered
def shortest(wires: Wires, source: str, target: str) -> Path | None:
    """Return a path of the fewest hops, the widest among those; None where there is no path."""
    return _best(wires, source, target, widest_first=False)


@remembered
def widest(wires: Wires, source: str, target: str) -> Path | None:
    """Return a path whose narrowest arc is widest, the shortest among those; None where there is no path."""
    best = _best(wires, source, target, widest_first=True)
    if best is None:
        return None
    rate = rate_of(wires, best)
    wide = {arc: r for arc, r in wires.arcs.items() if r >= rate}
    return _best(wires.with_arcs(wide), source, target, widest_first=False)


def _best(wires: Wires, source: str, target: str, *, widest_first: bool) -> Path | None:
    """Dijkstra over (hops, -rate) or (-rate, hops)."""
    ahead: dict[str, list[tuple[str, float]]] = {}
    for (tail, head), rate in wires.arcs.items():
        ahead.setdefault(tail, []).append((head, rate))
    queue: list[tuple[float, float, Path]] = [(0, 0, (source,))]
    queue[0] = (-float("inf"), 0, (source,)) if widest_first else (0, -float("inf"), (source,))
    done: set[str] = set()
    while queue:
        first, second, path = heapq.heappop(queue)
        end = path[-1]
        if end == target:
            return path
        if end in done:
            continue
        done.add(end)
        hops, rate = (second, -first) if widest_first else (first, -second)
        for head, arc in ahead.get(end, ()):
            if head not in done:
                narrow, further = min(rate, arc), hops + ((end, head) not in wires.inner)
                key = (-narrow, further) if widest_first else (further, -narrow)
                heapq.heappush(queue, (*key, (*path, head)))
    return None


def hops(wires: Wires, source: str, target: str) -> int | None:
    """Return how many links the shortest path has (0 to itself), or None where there is no path."""
    if source == target:
        return 0
    path = shortest(wires, source, target)
    return None if path is None else length(wires, path)


def hop_matrix(wires: Wires, ordinals: Iterable[int]) -> list[list[int | None]]:
    """Return the hops from each device to each other, in the order of `ordinals`."""
    names = [wires.devices[o] for o in ordinals]
    return [[hops(wires, a, b) for b in names] for a in names]


@remembered
def loads(wires: Wires, pairs: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the load on each arc when each pair's demand splits evenly over all its paths of fewest hops.

    With a demand of 1 for every ordered pair the largest load is the edge forwarding index with split shares
    (De Sensi et al., SC'24, Section IV-A). Parallel links are one arc.
    """
    result = dict.fromkeys(wires.arcs, 0.0)
    # Paths are counted on vertices whose entrances are one with them; each arc but the inner ones stays one arc.
    whole = {vertex: vertex for vertex in wires.vertices} | dict(wires.inner)
    ends = {arc: (whole[arc[0]], whole[arc[1]]) for arc in wires.arcs if arc not in wires.inner}
    ahead: dict[str, list[str]] = {}
    for tail, head in ends.values():
        ahead.setdefault(tail, []).append(head)
    ways = {vertex: _counts(ahead, vertex) for vertex in dict.fromkeys(whole.values())}
    for (source, target), demand in pairs.items():
        distance, count = ways[source]
        if target not in distance:
            raise ValueError(f"no path from {source} to {target}")
        for arc, (tail, head) in ends.items():
            if tail not in distance or target not in ways[head][0]:
                continue
            if distance[tail] + 1 + ways[head][0][target] == distance[target]:
                result[arc] += demand * count[tail] * ways[head][1][target] / count[target]
    for entrance, inside in wires.inner:
        result[entrance, inside] = sum(load for (_, head), load in result.items() if head == entrance)
    return result


def _counts(ahead: Mapping[str, list[str]], source: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the distance of each vertex from `source` and how many shortest paths lead there."""
    distance, count, front = {source: 0}, {source: 1}, [source]
    while front:
        following: list[str] = []
        for tail in front:
            for head in ahead.get(tail, ()):
                if head not in distance:
                    distance[head], count[head] = distance[tail] + 1, 0
                    following.append(head)
                if distance[head] == distance[tail] + 1:
                    count[head] += count[tail]
        front = following
    return distance, count


def forwarding_index(wires: Wires, names: Sequence[str]) -> float:
    """Return the edge forwarding index among these devices: the largest load of any arc, shares split evenly."""
    return max(loads(wires, {(a, b): 1.0 for a in names for b in names if a != b}).values())
