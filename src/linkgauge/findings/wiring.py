"""The wires as the rules need them: for each ordered pair of devices the way its bytes take, element by element.

Built from a described or discovered system. A way is by the devices' own fabric where that joins them, else over host
links. An element is one bundle of links in one direction: what can be slow by itself.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter

from linkgauge.model.grouped import grouped
from linkgauge.system.graph import Arc, Graph
from linkgauge.system.model import FABRIC_KINDS, Link, System, is_fabric, rates_of


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
        self._merged = _planes(system)
        self._bundles: dict[bool, dict[Arc, list[Link]]] = {True: {}, False: {}}
        for link in system.links:
            if "nic" not in (system.kinds[link.a], system.kinds[link.b]):
                bundles = self._bundles[is_fabric(link, system.kinds)]
                for tail, head in ((link.a, link.b), (link.b, link.a)):
                    bundles.setdefault((self._name(tail), self._name(head)), []).append(link)
        self._graphs = {fabric: self._graph(fabric) for fabric in self._bundles}

    def _name(self, node: str) -> str:
        return self._merged.get(node, node)

    def rate(self, arc: Arc, fabric: bool = True) -> float | None:
        """Return the data rate of all links of one arc in bytes per second, None where one is unknown."""
        rates = [link.rate(link.a if self._name(link.a) == arc[0] else link.b) for link in self._bundles[fabric][arc]]
        return None if None in rates else sum(rate for rate in rates if rate is not None)

    def links(self, arc: Arc, fabric: bool = True) -> list[Link]:
        """Return the links of one arc."""
        return self._bundles[fabric].get(arc, [])

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
        widths = {(a, b): self._graphs[True].width(self.names[a], self.names[b]) for a, b in self.fabric_ways}
        return {pair: rate for pair, rate in widths.items() if rate is not None and math.isfinite(rate)}

    def way(self, source: int, target: int, over_host: bool = False) -> Way | None:
        """Return the way of a pair: over the fabric unless `over_host` or the fabric does not join them."""
        pair = (source, target)
        if not over_host and pair in self.fabric_ways:
            return self.fabric_ways[pair]
        return self.host_ways.get(pair)

    def bounding_kind(self, way: Way) -> str:
        """Return the kind of link that bounds a way: one of unknown rate where there is one, else the narrowest."""
        fabric = way.kind != "host"
        rates = [self.rate(arc, fabric) for arc in way.arcs]
        at = rates.index(None if None in rates else way.rate)
        return self.links(way.arcs[at], fabric)[0].kind

    @functools.cached_property
    def host_rates(self) -> dict[int, float]:
        """The data rate from each device towards the hosts in bytes per second, where it is known."""
        rates = {
            ordinal: [self.rate((name, head), False) or 0.0 for head in self._graphs[False].heads(name)]
            for ordinal, name in self.names.items()
        }
        return {ordinal: max(known) for ordinal, known in rates.items() if any(known)}

    @functools.cached_property
    def host_shapes(self) -> dict[int, tuple[object, ...]]:
        """What a device's host link is: equal for devices that ought to be equally near to host memory."""
        heads = {ordinal: [(head, (name, head)) for head in self._graphs[False].heads(name)]
                 for ordinal, name in self.names.items()}  # fmt: skip
        return {ordinal: tuple(sorted((self.system.kinds[head], self.rate(arc, False) or 0.0) for head, arc in own))
                for ordinal, own in heads.items()}  # fmt: skip

    @functools.cached_property
    def nics(self) -> dict[int, str]:
        """The NIC that is nearest to each device (of several as near ones, by turns in order of ordinals)."""
        near: dict[int, str] = {}
        used: Counter[str] = Counter()
        every, kinds = {node.name for node in self.system.of_kind("nic")}, self.system.kinds
        # No way to a NIC enters another device by its fabric links.
        rates = rates_of(link for link in self.system.links if link.kind not in FABRIC_KINDS)
        fabric = rates_of(link for link in self.system.links if link.kind in FABRIC_KINDS)
        graph = Graph(rates | {arc: rate for arc, rate in fabric.items() if kinds[arc[1]] != "device"})
        for ordinal, name in sorted(self.names.items()):
            found = graph.nearest(name, every)
            if found:
                near[ordinal] = min(found, key=lambda nic: (used[nic], nic))
                used[near[ordinal]] += 1
        return near

    def _graph(self, fabric: bool) -> Graph:
        rates = {arc: math.inf if (rate := self.rate(arc, fabric)) is None else rate for arc in self._bundles[fabric]}
        switches = {node.name for node in self.system.of_kind("switch")}
        others = {node.name for node in self.system.nodes if (node.routes if fabric else node.kind == "host")}
        return Graph(rates, passing=switches | others)

    def _ways(self, fabric: bool) -> dict[tuple[int, int], Way]:
        return {
            (ordinal, self.ordinals[target]): self._way(path, fabric)
            for ordinal, name in self.names.items()
            for target, (_, path) in self._graphs[fabric].ways(name).items()
            if target in self.ordinals and target != name
        }

    def _way(self, path: tuple[str, ...], fabric: bool) -> Way:
        arcs = tuple(itertools.pairwise(path))
        rates = {arc: self.rate(arc, fabric) for arc in arcs}
        known = [rate for arc in arcs if (rate := rates[arc]) is not None]
        rate = min(known) if known else None
        inner = [self.system.kinds[name] for name in path[1:-1]]
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
    """Join fabric switches with the same neighbors (the planes of one fabric), each named after its first."""
    switches = {node.name for node in system.nodes if node.kind == "switch"}
    ends = ((link.a, link.b) for link in system.links if link.kind in FABRIC_KINDS)
    fabric = grouped(way for a, b in ends for way in ((a, b), (b, a)) if way[0] in switches)
    groups = grouped((tuple(sorted(one for one in others if one not in switches)), switch)
                     for switch, others in fabric.items())  # fmt: skip
    return {switch: members[0] for key, members in groups.items() if key for switch in members}
