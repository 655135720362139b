"""The wires as the rules need them: for each ordered pair of devices the way its bytes take, element by element.

Built from a described or discovered system. A way is by the devices' own fabric where that joins them, else over host
links. An element is one bundle of links in one direction: what can be slow by itself.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

from linkgauge.system.model import FABRIC_KINDS, Link, System, is_fabric

Arc = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Way:
    """How a pair's bytes travel. `rate` is the narrowest data rate on it in bytes per second, None where unknown.

    `kind`: `direct` (one bundle between the two), `switch` (fabric switches only), `routed` (through devices that
    route), `host` (over host links). `shape` is equal for pairs that ought to be equally fast. `count` is how many
    links the narrowest bundle has.
    """

    kind: str
    arcs: tuple[Arc, ...]
    rate: float | None
    shape: tuple[object, ...]
    count: int

    @property
    def hops(self) -> int:
        """How many bundles the way has."""
        return len(self.arcs)


class Wiring:
    """The ways of one system. Devices by ordinal."""

    def __init__(self, system: System) -> None:
        """Read the links of `system`."""
        self.system = system
        self.names = system.names_by_ordinal
        self.ordinals = {name: ordinal for ordinal, name in self.names.items()}
        self._nodes = {node.name: node for node in system.nodes}
        self._merged = _planes(system)
        self._fabric: dict[str, dict[str, list[Link]]] = {}
        self._host: dict[str, dict[str, list[Link]]] = {}
        kinds = {node.name: node.kind for node in system.nodes}
        for link in system.links:
            if "nic" in (kinds[link.a], kinds[link.b]):
                continue
            for graph in [self._fabric] if is_fabric(link, kinds) else [self._host]:
                for tail, head in ((link.a, link.b), (link.b, link.a)):
                    graph.setdefault(self._name(tail), {}).setdefault(self._name(head), []).append(link)

    def _name(self, node: str) -> str:
        return self._merged.get(node, node)

    def rate(self, arc: Arc, fabric: bool = True) -> float | None:
        """Return the data rate of all links of one arc in bytes per second, None where one is unknown."""
        total = 0.0
        for link in (self._fabric if fabric else self._host)[arc[0]][arc[1]]:
            source = link.a if self._name(link.a) == arc[0] else link.b
            rate = link.rate(source)
            if rate is None:
                return None
            total += rate
        return total

    def links(self, arc: Arc, fabric: bool = True) -> list[Link]:
        """Return the links of one arc."""
        return (self._fabric if fabric else self._host).get(arc[0], {}).get(arc[1], [])

    @functools.cached_property
    def fabric_ways(self) -> dict[tuple[int, int], Way]:
        """The ways over the devices' fabric by fewest hops (the widest of those), for pairs that it joins."""
        return self._ways(True)

    @functools.cached_property
    def host_ways(self) -> dict[tuple[int, int], Way]:
        """The ways over host links by fewest hops, for pairs that they join."""
        return self._ways(False)

    @functools.cached_property
    def widest_rates(self) -> dict[tuple[int, int], float]:
        """The rate of the widest single path over the fabric, for pairs that it joins."""
        return {pair: way.rate for pair, way in self._ways(True, widest=True).items() if way.rate is not None}

    def way(self, source: int, target: int, over_host: bool = False) -> Way | None:
        """Return the way of a pair: over the fabric unless `over_host` or the fabric does not join them."""
        pair = (source, target)
        if not over_host and pair in self.fabric_ways:
            return self.fabric_ways[pair]
        return self.host_ways.get(pair)

    @functools.cached_property
    def host_rates(self) -> dict[int, float]:
        """The data rate from each device towards the hosts in bytes per second, where it is known."""
        rates: dict[int, float] = {}
        for ordinal, name in self.names.items():
            known = [rate for head in self._host.get(name, {}) if (rate := self.rate((name, head), False)) is not None]
            if known:
                rates[ordinal] = max(known)
        return rates

    @functools.cached_property
    def host_shapes(self) -> dict[int, tuple[object, ...]]:
        """What a device's host link is: equal for devices that ought to be equally near to host memory."""
        shapes: dict[int, tuple[object, ...]] = {}
        for ordinal, name in self.names.items():
            ends = sorted(
                (self._nodes[head].kind if head in self._nodes else "switch", self.rate((name, head), False) or 0.0)
                for head in self._host.get(name, {})
            )
            shapes[ordinal] = tuple(ends)
        return shapes

    @functools.cached_property
    def nics(self) -> dict[int, str]:
        """The NIC that is nearest to each device (of several as near ones, by turns in order of ordinals)."""
        near: dict[int, str] = {}
        used: dict[str, int] = {}
        every = {node.name for node in self.system.nodes if node.kind == "nic"}
        for ordinal, name in sorted(self.names.items()):
            found = self._nearest(name, every)
            if found:
                chosen = min(found, key=lambda nic: (used.get(nic, 0), nic))
                used[chosen] = used.get(chosen, 0) + 1
                near[ordinal] = chosen
        return near

    def _nearest(self, start: str, targets: set[str]) -> list[str]:
        front, seen = [start], {start}
        while front:
            found = sorted(set(front) & targets)
            if found:
                return found
            following = []
            for name in front:
                for link in self.system.links_of(name):
                    other = link.other(name)
                    if other not in seen and not (link.kind in FABRIC_KINDS and self._nodes[other].kind == "device"):
                        seen.add(other)
                        following.append(other)
            front = following
        return []

    def _passes(self, name: str, fabric: bool) -> bool:
        node = self._nodes.get(name)
        if node is None or node.kind == "switch":
            return True
        return node.routes if fabric else node.kind == "host"

    def _ways(self, fabric: bool, widest: bool = False) -> dict[tuple[int, int], Way]:
        graph = self._fabric if fabric else self._host
        rates = {(t, h): self.rate((t, h), fabric) for t, heads in graph.items() for h in heads}
        found: dict[tuple[int, int], Way] = {}
        for ordinal, name in self.names.items():
            for target, path in self._search(graph, rates, name, fabric, widest).items():
                if target in self.ordinals and target != name:
                    found[(ordinal, self.ordinals[target])] = self._way(path, rates, fabric)
        return found

    def _search(
        self,
        graph: dict[str, dict[str, list[Link]]],
        rates: dict[Arc, float | None],
        start: str,
        fabric: bool,
        widest: bool,
    ) -> dict[str, tuple[str, ...]]:
        """Best paths from one vertex by relaxation: (hops, -rate), or (-rate, hops) where `widest`."""
        infinite = float("inf")
        best: dict[str, tuple[tuple[float, float], tuple[str, ...]]] = {
            start: ((-infinite, 0) if widest else (0, -infinite), (start,))
        }
        front = [start]
        while front:
            following: list[str] = []
            for tail in front:
                score, path = best[tail]
                if tail != start and not self._passes(tail, fabric):
                    continue
                hops, width = (score[1], -score[0]) if widest else (score[0], -score[1])
                for head in graph.get(tail, {}):
                    rate = rates[(tail, head)]
                    narrow = min(width, infinite if rate is None else rate)
                    new = (-narrow, hops + 1) if widest else (hops + 1, -narrow)
                    if head not in path and (head not in best or new < best[head][0]):
                        best[head] = (new, (*path, head))
                        following.append(head)
            front = following
        return {name: path for name, (_, path) in best.items()}

    def _way(self, path: tuple[str, ...], rates: dict[Arc, float | None], fabric: bool) -> Way:
        arcs = tuple(itertools.pairwise(path))
        known = [rate for arc in arcs if (rate := rates[arc]) is not None]
        rate = min(known) if known else None
        inner = [self._nodes[name].kind if name in self._nodes else "switch" for name in path[1:-1]]
        if not fabric:
            kind = "host"
        elif not inner:
            kind = "direct"
        else:
            kind = "routed" if "device" in inner else "switch"
        narrowest = next((arc for arc in arcs if rates[arc] == rate), arcs[0])
        count = sum(link.count for link in self.links(narrowest, fabric))
        return Way(kind, arcs, rate, (kind, tuple(inner), tuple(rates[arc] for arc in arcs)), count)


def _planes(system: System) -> dict[str, str]:
    """Join fabric switches with the same neighbours (the planes of one fabric), each named after its first."""
    fabric: dict[str, list[str]] = {}
    switches = {node.name for node in system.nodes if node.kind == "switch"}
    for link in system.links:
        if link.kind in FABRIC_KINDS:
            for end, other in ((link.a, link.b), (link.b, link.a)):
                if end in switches:
                    fabric.setdefault(end, []).append(other)
    groups: dict[tuple[str, ...], list[str]] = {}
    for switch, others in fabric.items():
        groups.setdefault(tuple(sorted(other for other in others if other not in switches)), []).append(switch)
    return {switch: members[0] for key, members in groups.items() if key for switch in members}
