"""The directed graph of capacities that every rule computes on, made from a system.

A vertex is a device, a switch or a host; an arc is all that a bundle of links carries in one direction, in bytes per
second. Switches that only differ in name (the planes of an NVSwitch fabric) are merged into one vertex of their
summed capacity. Merging is exact for fractional flows: it is done for the classes of an equitable partition (each
member exchanges the same rate with every other class, so a flow through the class splits evenly over its members) and
for switches with the same neighbors in equal proportions. Only a fabric's switches are merged: hardware spreads
what enters a fabric over its planes, so that together they are one way, where a path through PCIe switches takes one.

A vertex with a stated throughput has an entrance before it: a vertex that all that enters must pass, joined to it by
an inner arc of that capacity. It routes, and the inner arc is no hop.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy

from linkgauge.model.grouped import grouped
from linkgauge.system.graph import Graph
from linkgauge.system.model import Link, System, is_fabric, rates_of
from linkgauge.system.remembered import Remembering, remembered

FABRIC = "fabric"
"""Links between devices and their switches alone: what peer access uses."""
NODE = "node"
"""Every link of the node, host links included; NICs are ends of the node and not a way through it."""
HOST = "host"
"""Links to and between hosts alone: what staging uses."""
MACHINE = "machine"
"""Every link of the node and the way out by one NIC and back by another: what a library may use."""
_NETWORK = "network"


@dataclass(frozen=True)
class Wires(Remembering):
    """Arcs `(tail, head) -> bytes/s` (infinite where a link's rate is unknown) between named vertices.

    `devices` maps ordinals to vertices. `multicast` and `reduction` are the vertices that may repeat or add data on its
    way (switches that say so), `routers` those that pass others' traffic on without a program; `unknown` are the links
    whose rate no source gives; `links` counts links per arc. `inner` are the arcs inside a vertex with a throughput;
    `network` is the vertex in which NICs meet, where the scope has it.
    """

    scope: str
    devices: Mapping[int, str]
    arcs: Mapping[tuple[str, str], float]
    links: Mapping[tuple[str, str], int]
    multicast: frozenset[str]
    reduction: frozenset[str]
    routers: frozenset[str]
    unknown: tuple[str, ...]
    inner: frozenset[tuple[str, str]] = frozenset()
    network: str | None = None

    @functools.cached_property
    def graph(self) -> Graph:
        """The arcs as a graph to search."""
        return Graph(self.arcs, inner=self.inner, by_name=True)

    @functools.cached_property
    def vertices(self) -> tuple[str, ...]:
        """All vertices, devices first, in a fixed order."""
        names = dict.fromkeys(self.devices.values())
        for tail, head in self.arcs:
            names.setdefault(tail)
            names.setdefault(head)
        return tuple(names)

    @functools.cached_property
    def symmetric(self) -> bool:
        """Whether every arc has an opposite of the same capacity."""
        return all(self.arcs.get((head, tail)) == rate for (tail, head), rate in self.arcs.items())

    def out_rate(self, vertex: str) -> float:
        """Return the total capacity leaving a vertex."""
        return self._rates[0].get(vertex, 0.0)

    def in_rate(self, vertex: str) -> float:
        """Return the total capacity entering a vertex."""
        return self._rates[1].get(vertex, 0.0)

    @functools.cached_property
    def _rates(self) -> tuple[dict[str, float], dict[str, float]]:
        out: dict[str, float] = {}
        into: dict[str, float] = {}
        for (tail, head), rate in self.arcs.items():
            out[tail] = out.get(tail, 0.0) + rate
            into[head] = into.get(head, 0.0) + rate
        return out, into

    def balanced(self, ends: Collection[str]) -> bool:
        """Return whether as much may enter each vertex as may leave it, `ends` left out (infinite equals infinite)."""
        inner = (vertex for vertex in self.vertices if vertex not in ends)
        return all(math.isclose(self.out_rate(vertex), self.in_rate(vertex)) for vertex in inner)

    @remembered
    def reversed(self) -> Wires:
        """Return the graph with every arc turned round; what repeats then adds, and the other way about."""
        if self.symmetric and self.multicast == self.reduction and not self.inner:
            return self
        return dataclasses.replace(
            self,
            arcs={(head, tail): rate for (tail, head), rate in self.arcs.items()},
            links={(head, tail): count for (tail, head), count in self.links.items()},
            multicast=self.reduction,
            reduction=self.multicast,
            inner=frozenset((head, tail) for tail, head in self.inner),
        )

    def with_arcs(self, arcs: Mapping[tuple[str, str], float]) -> Wires:
        """Return the graph with other arcs."""
        return dataclasses.replace(self, arcs=arcs)

    def joined(self, ordinals: Iterable[int], *, by_hardware: bool = False) -> bool:
        """Return whether each of these devices reaches each other one, if asked so through `routers` alone."""
        wanted = {self.devices[o] for o in ordinals if o in self.devices}
        if not by_hardware:  # all in one strongly connected part
            ends = [self.devices[o] for o in ordinals if o in self.devices]
            return len(set(ends)) == len(set(ordinals)) and len({self._parts.get(end, end) for end in ends}) < 2
        graph = self.graph.through(self.routers)
        # What is joined to the same is reached from two of them, or from all: the second shows whether the first is.
        beside = grouped((frozenset(graph.heads(start)), start) for start in sorted(wanted))
        starts = [start for alike in beside.values() for start in alike[:2]]
        return len(wanted) == len(set(ordinals)) and all(wanted <= graph.hops(start).keys() for start in starts)

    @functools.cached_property
    def _parts(self) -> dict[str, int]:
        """Which strongly connected part each vertex is in."""
        place = {vertex: i for i, vertex in enumerate(self.vertices)}
        tails, heads = ([place[arc[end]] for arc in self.arcs] for end in (0, 1))
        joins = scipy.sparse.csr_array((np.ones(len(tails)), (tails, heads)), shape=(len(place), len(place)))
        _, parts = scipy.sparse.csgraph.connected_components(joins, connection="strong")
        return dict(zip(place, parts.tolist(), strict=True))

    def reached(self, sources: Iterable[str], *, around: str | None = None) -> set[str]:
        """Return the vertices that some of `sources` reach, themselves included, by ways not past `around`."""
        graph = self.graph.through(frozenset(self.vertices) - {around})
        return {vertex for source in sources for vertex in graph.hops(source)}

    @remembered
    def whole(self) -> tuple[dict[tuple[str, str], int | None], Fraction]:
        """Return capacities as exact whole numbers (None: infinite) and the bytes per second that 1 stands for."""
        rounded = {arc: None if math.isinf(rate) else round(rate) for arc, rate in self.arcs.items()}
        unit = math.gcd(*(rate for rate in rounded.values() if rate is not None)) or 1
        return {arc: None if rate is None else rate // unit for arc, rate in rounded.items()}, Fraction(unit)


@remembered
def wires(system: System, scope: str = FABRIC) -> Wires:
    """Return the graph of `system` over the links of `scope` (`FABRIC`, `NODE`, `HOST` or `MACHINE`)."""
    network = _unused(_NETWORK, system.kinds) if scope == MACHINE else None
    links = [link for link in system.links if _within(system, scope, link)]
    arcs = rates_of(links)
    counts = dict.fromkeys(arcs, 0)
    for link in links:
        for arc in ((link.a, link.b), (link.b, link.a)):
            counts[arc] += link.count
    unknown = [
        f"{link.a} - {link.b} ({link.kind})" for link in links if link.data_rate is None and link.kind != "internal"
    ]
    if network is not None:
        _add_network(system, network, arcs, counts)
    arcs, counts, inner = _ported(system, arcs, counts)
    devices = {d.ordinal or 0: d.name for d in system.devices}
    fixed = set(devices.values()) | {node.name for node in system.nodes if node.kind == "host"}
    flags = {n.name: (n.multicast, n.reduction) for n in system.nodes if n.kind == "switch"}
    on_fabric = {end for arc in system.fabric.arcs for end in arc}
    merged = _merge(arcs, fixed, {name: able for name, able in flags.items() if name in on_fabric})
    arcs, counts = _join(arcs, merged), {arc: int(c) for arc, c in _join(counts, merged).items()}
    return Wires(
        scope=scope,
        devices=devices,
        arcs=arcs,
        links=counts,
        multicast=frozenset(merged[name] for name, (multicast, _) in flags.items() if multicast and name in merged),
        reduction=frozenset(merged[name] for name, (_, reduction) in flags.items() if reduction and name in merged),
        routers=frozenset(
            [merged[node.name] for node in system.nodes if node.routes and node.name in merged]
            + [entrance for entrance, _ in inner]
        ),
        unknown=tuple(unknown),
        inner=inner,
        network=network,
    )


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name for a vertex that no description has, `name` itself where no node is called so."""
    while name in taken:
        name += "'"
    return name


def _add_network(
    system: System, network: str, arcs: dict[tuple[str, str], float], counts: dict[tuple[str, str], int]
) -> None:
    """Join the NICs whose rate is known in one vertex: a library may send out by one and in by another."""
    for nic in system.of_kind("nic"):
        if nic.port_rate is not None:
            for arc in ((nic.name, network), (network, nic.name)):
                arcs[arc], counts[arc] = nic.port_rate.value, 1


def _within(system: System, scope: str, link: Link) -> bool:
    nics = [node for node in (system.node(link.a), system.node(link.b)) if node.kind == "nic"]
    if nics:
        return scope == MACHINE and all(nic.port_rate is not None for nic in nics)
    peer = is_fabric(link, system.kinds)
    if scope == FABRIC:
        return peer
    return scope in (NODE, MACHINE) or not peer


def _ported(
    system: System, arcs: Mapping[tuple[str, str], float], counts: Mapping[tuple[str, str], int]
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], int], frozenset[tuple[str, str]]]:
    """Give each vertex with a stated throughput an entrance that all that enters must pass; return the inner arcs."""
    taken = {node.name for node in system.nodes}
    limits = {n.name: n.throughput.value for n in system.nodes if n.throughput is not None}
    entrance = {name: _unused(f"{name}<", taken) for name in limits}
    ported = {(tail, entrance.get(head, head)): rate for (tail, head), rate in arcs.items()}
    numbers = {(tail, entrance.get(head, head)): count for (tail, head), count in counts.items()}
    entered = {head for _, head in arcs}
    inner = frozenset((entrance[name], name) for name in limits if name in entered)
    for arc in inner:
        ported[arc], numbers[arc] = limits[arc[1]], 1
    return ported, numbers, inner


def _join(arcs: Mapping[tuple[str, str], float], merged: Mapping[str, str]) -> dict[tuple[str, str], float]:
    joined: dict[tuple[str, str], float] = {}
    for (tail, head), rate in arcs.items():
        if merged[tail] != merged[head]:
            key = merged[tail], merged[head]
            joined[key] = joined.get(key, 0) + rate
    return joined


def _merge(
    arcs: Mapping[tuple[str, str], float],
    fixed: set[str],
    flags: Mapping[str, tuple[bool | None, bool | None]],
) -> dict[str, str]:
    """Map each vertex to the name of the vertex it is merged into."""
    names = dict.fromkeys([end for arc in arcs for end in arc])
    color: dict[str, object] = {n: n if n in fixed or n not in flags else ("switch", flags[n]) for n in names}
    # Refinement ends when no class splits any more; the signatures keep devices apart and equal planes together.
    while True:
        out: dict[str, dict[object, float]] = {name: {} for name in names}
        into: dict[str, dict[object, float]] = {name: {} for name in names}
        for (tail, head), rate in arcs.items():
            out[tail][color[head]] = out[tail].get(color[head], 0.0) + rate
            into[head][color[tail]] = into[head].get(color[tail], 0.0) + rate
        signature = {n: (color[n], frozenset(out[n].items()), frozenset(into[n].items())) for n in names}
        classes = {sig: index for index, sig in enumerate(dict.fromkeys(signature.values()))}
        refined: dict[str, object] = {name: classes[signature[name]] for name in names}
        if len(set(refined.values())) == len(set(color.values())):
            break
        color = refined
    groups = grouped((color[name], name) for name in names)
    merged = {name: _group_name(group) for group in groups.values() for name in group}
    return _merge_twins(arcs, merged, fixed, flags)


def _merge_twins(
    arcs: Mapping[tuple[str, str], float],
    merged: dict[str, str],
    fixed: set[str],
    flags: Mapping[str, tuple[bool | None, bool | None]],
) -> dict[str, str]:
    """Merge further those switches that have the same neighbors in equal proportions (HGX's bundles of 5 and 4)."""
    beside: dict[str, dict[tuple[str, str], float]] = {target: {} for target in merged.values()}
    for (tail, head), rate in _join(arcs, merged).items():
        beside[tail]["out", head] = beside[head]["in", tail] = rate
    first: dict[str, str] = {}
    for name, target in merged.items():
        first.setdefault(target, name)
    shapes: dict[object, list[str]] = {}
    for target, member in first.items():
        around = beside[target]
        if member in fixed or member not in flags or any(math.isinf(rate) for rate in around.values()):
            continue
        total = sum(around.values())
        shape = frozenset((way, round(rate / total, 12)) for way, rate in around.items())
        shapes.setdefault((flags[member], shape), []).append(target)
    renamed = {}
    for targets in shapes.values():
        if len(targets) > 1:
            name = _group_name([n for n, group in merged.items() if group in targets])
            renamed.update(dict.fromkeys(targets, name))
    return {name: renamed.get(target, target) for name, target in merged.items()}


def _group_name(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]}..{group[-1]} ({len(group)})"
