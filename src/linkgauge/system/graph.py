"""What wires join, how many links apart, and which of several ways a path takes.

One search by hops answers everything. It is not networkx's, which takes 0.2 s of processor time to import (all of
`linkgauge topology` takes as long), and knows neither widest paths nor vertices that pass nothing on.
"""

from __future__ import annotations

import bisect
import collections
import math
from collections.abc import Collection, Mapping, Sequence

from linkgauge.system.remembered import Remembering, remembered

Arc = tuple[str, str]
Path = tuple[str, ...]


class Graph(Remembering):
    """Vertices by name, and arcs `(tail, head)` with rates in bytes per second, infinite where one is unknown.

    `passing` are the vertices that pass others' traffic on (None: all); ways begin and end at any. `inner` arcs lie
    inside a vertex and are no hop; each is the only one into its head. Of several ways as short and as wide one takes
    the vertex that is met first, going out from the source along arcs in their order; where `by_name`, the path that
    is first by name.
    """

    def __init__(
        self,
        arcs: Mapping[Arc, float],
        *,
        passing: Collection[str] | None = None,
        inner: Collection[Arc] = frozenset(),
        by_name: bool = False,
    ) -> None:
        """Take the arcs as they are; nothing is searched yet."""
        self.arcs, self._passing, self._inner, self._by_name = arcs, passing, inner, by_name
        self._ahead: dict[str, list[str]] = {}
        for tail, head in arcs:
            self._ahead.setdefault(tail, []).append(head)

    @remembered
    def through(self, passing: frozenset[str]) -> Graph:
        """Return the graph in which these vertices alone pass traffic on."""
        return Graph(self.arcs, passing=passing, inner=self._inner, by_name=self._by_name)

    @remembered
    def _wide(self, rate: float) -> Graph:
        """Return the graph of the arcs of at least this rate."""
        wide = {arc: own for arc, own in self.arcs.items() if own >= rate}
        return Graph(wide, passing=self._passing, inner=self._inner, by_name=self._by_name)

    @remembered
    def _search(self, source: str) -> tuple[dict[str, int], dict[str, list[str]]]:
        """Return what `source` reaches, by hops: how many, and from which vertices the last arc of ways so short comes.

        Breadth first, inner arcs at once; no vertex stands before one that leads to it.
        """
        hops, before = {source: 0}, {source: list[str]()}
        queue = collections.deque([source])
        while queue:
            tail = queue.popleft()
            if self._passing is not None and tail != source and tail not in self._passing:
                continue
            for head in self.heads(tail):
                inner = (tail, head) in self._inner
                further = hops[tail] + (not inner)
                if head not in hops:
                    hops[head], before[head] = further, []
                    (queue.appendleft if inner else queue.append)(head)
                if hops[head] == further:
                    before[head].append(tail)
        return {vertex: hops[vertex] for vertex in sorted(hops, key=hops.__getitem__)}, before

    def heads(self, tail: str) -> Sequence[str]:
        """Return the vertices that arcs lead to from this one."""
        return self._ahead.get(tail, ())

    def hops(self, source: str) -> Mapping[str, int]:
        """Return how many hops each vertex that `source` reaches is away, itself included, the nearest first."""
        return self._search(source)[0]

    def nearest(self, source: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Return those of the wanted vertices, `source` itself left out, that are the fewest hops away."""
        hops = self.hops(source)
        found = [vertex for vertex in hops if vertex in wanted and vertex != source]
        return tuple(vertex for vertex in found if hops[vertex] == hops[found[0]])

    def parts(self, vertices: Sequence[str]) -> list[list[str]]:
        """Return these vertices by what is joined, where every arc goes both ways; in order of each part's last one."""
        parts: list[list[str]] = []
        for vertex in reversed(vertices):
            if not any(vertex in part for part in parts):
                parts.insert(0, [other for other in vertices if other in self.hops(vertex)])
        return parts

    @remembered
    def counts(self, source: str) -> Mapping[str, int]:
        """Return how many ways of fewest hops lead to each vertex that `source` reaches."""
        counts: dict[str, int] = {}
        hops, before = self._search(source)
        for head in hops:
            counts[head] = sum(counts[tail] for tail in before[head]) or 1
        return counts

    @remembered
    def ways(self, source: str) -> Mapping[str, tuple[float, Path]]:
        """Return the widest way of fewest hops to each vertex that `source` reaches, after its narrowest arc's rate."""
        ways: dict[str, tuple[float, Path]] = {source: (math.inf, (source,))}
        hops, before = self._search(source)
        for head in hops:
            found = [(min(ways[tail][0], self.arcs[tail, head]), (*ways[tail][1], head)) for tail in before[head]]
            if self._by_name:
                found.sort(key=lambda way: way[1])
            if found:
                ways[head] = max(found, key=lambda way: way[0])
        return ways

    def shortest(self, source: str, target: str) -> Path | None:
        """Return the path of fewest hops, the widest among those; None where there is none."""
        rate_and_path = self.ways(source).get(target)
        return None if rate_and_path is None else rate_and_path[1]

    @remembered
    def width(self, source: str, target: str) -> float | None:
        """Return the rate of the widest path; None where there is none."""
        rates = self._rates()
        place = bisect.bisect_left(rates, True, key=lambda rate: target in self._wide(rate).hops(source))
        return rates[place] if place < len(rates) else None

    @remembered
    def _rates(self) -> list[float]:
        return sorted(set(self.arcs.values()), reverse=True)

    def widest(self, source: str, target: str) -> Path | None:
        """Return the path whose narrowest arc is widest, the shortest among those; None where there is none."""
        rate = self.width(source, target)
        return None if rate is None else self._wide(rate).shortest(source, target)
