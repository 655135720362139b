"""The directed graph of capacities that every rule computes on, made from a system.

A vertex is a device, a switch or a host; an arc is all that a bundle of links carries in one direction, in bytes per
second. Switches that only differ in name (the planes of an NVSwitch fabric) are merged into one vertex of their
summed capacity. Merging is exact for fractional flows: it is done for the classes of an equitable partition (each
member exchanges the same rate with every other class, so a flow through the class splits evenly over its members) and
for switches with the same neighbours in equal proportions. Only a fabric's switches are merged: hardware spreads
what enters a fabric over its planes, so that together they are one way, where a path through PCIe switches takes one.

A vertex with a stated throughput has an entrance before it: a vertex that all that enters must pass, joined to it by
an inner arc of that capacity. It routes, and the inner arc is no hop.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Concatenate, ParamSpec, TypeVar

from linkgauge.system.model import Link, Node, System, is_fabric

_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")

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
class Wires:
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

    @property
    def vertices(self) -> tuple[str, ...]:
        """All vertices, devices first, in a fixed order."""
        names = dict.fromkeys(self.devices.values())
        for tail, head in self.arcs:
            names.setdefault(tail)
            names.setdefault(head)
        return tuple(names)

    @property
    def symmetric(self) -> bool:
        """Whether every arc has an opposite of the same capacity."""
        return all(self.arcs.get((head, tail)) == rate for (tail, head), rate in self.arcs.items())

    def out_rate(self, vertex: str) -> float:
        """Return the total capacity leaving a vertex."""
        return sum(rate for (tail, _), rate in self.arcs.items() if tail == vertex)

    def in_rate(self, vertex: str) -> float:
        """Return the total capacity entering a vertex."""
        return sum(rate for (_, head), rate in self.arcs.items() if head == vertex)

    def balanced(self, ends: Collection[str]) -> bool:
        """Return whether as much may enter each vertex as may leave it, `ends` left out (infinite equals infinite)."""
        balance: dict[str, list[float]] = {}
        for (tail, head), rate in self.arcs.items():
            balance.setdefault(tail, [0.0, 0.0])[0] += rate
            balance.setdefault(head, [0.0, 0.0])[1] += rate
        return all(math.isclose(*both) for vertex, both in balance.items() if vertex not in ends)

    def reversed(self) -> Wires:
        """Return the graph with every arc turned round; what repeats then adds, and the other way about."""
        made: Wires | None = self.__dict__.get("_reversed")
        if made is None:
            made = self.__dict__["_reversed"] = self._turned()
        return made

    def _turned(self) -> Wires:
        return Wires(
            scope=self.scope,
            devices=self.devices,
            arcs={(head, tail): rate for (tail, head), rate in self.arcs.items()},
            links={(head, tail): count for (tail, head), count in self.links.items()},
            multicast=self.reduction,
            reduction=self.multicast,
            routers=self.routers,
            unknown=self.unknown,
            inner=frozenset((head, tail) for tail, head in self.inner),
            network=self.network,
        )

    def with_arcs(self, arcs: Mapping[tuple[str, str], float]) -> Wires:
        """Return the graph with other arcs."""
        return dataclasses.replace(self, arcs=arcs)

    def joined(self, ordinals: Iterable[int], *, by_hardware: bool = False) -> bool:
        """Return whether each of these devices reaches each other one, if asked so through `routers` alone."""
        wanted = {self.devices[o] for o in ordinals if o in self.devices}
        if len(wanted) < len(set(ordinals)):
            return False
        if len(wanted) < 2:
            return True
        if by_hardware:
            return all(wanted <= _reached(self.arcs, start, self.routers) for start in wanted)
        start = next(iter(wanted))
        return all(wanted <= _reached(arcs, start) for arcs in (self.arcs, self.reversed().arcs))

    def reached(self, sources: Iterable[str], *, around: str | None = None) -> set[str]:
        """Return the vertices that some of `sources` reach, themselves included, by ways that avoid `around`."""
        arcs = {arc: rate for arc, rate in self.arcs.items() if around not in arc}
        return {vertex for source in sources for vertex in _reached(arcs, source)}

    def whole(self) -> tuple[dict[tuple[str, str], int | None], Fraction]:
        """Return capacities as exact whole numbers (None: infinite) and the bytes per second that 1 stands for."""
        rounded = {arc: None if math.isinf(rate) else round(rate) for arc, rate in self.arcs.items()}
        unit = math.gcd(*(rate for rate in rounded.values() if rate is not None)) or 1
        return {arc: None if rate is None else rate // unit for arc, rate in rounded.items()}, Fraction(unit)


def _reached(arcs: Mapping[tuple[str, str], float], start: str, through: frozenset[str] | None = None) -> set[str]:
    ahead: dict[str, list[str]] = {}
    for tail, head in arcs:
        ahead.setdefault(tail, []).append(head)
    seen, queue = {start}, [start]
    while queue:
        tail = queue.pop()
        if through is not None and tail != start and tail not in through:
            continue
        for head in ahead.get(tail, ()):
            if head not in seen:
                seen.add(head)
                queue.append(head)
    return seen


def remembered(
    function: Callable[Concatenate[Wires, _Parameters], _Result],
) -> Callable[Concatenate[Wires, _Parameters], _Result]:
    """Keep a function's results with the graph that it was asked of.

    The cases of a run ask the same of the same few graphs, at every size anew.
    """

    @functools.wraps(function)
    def ask(graph: Wires, /, *arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        known: dict[object, _Result] = graph.__dict__.setdefault("_known", {})
        key = (function.__qualname__, _still(arguments), _still(options))
        if key not in known:
            known[key] = function(graph, *arguments, **options)
        return known[key]

    return ask


def _still(value: object) -> object:
    """Return a value that can be a key; mappings in their order, which some results depend on."""
    if isinstance(value, Mapping):
        return tuple((key, _still(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_still(item) for item in value)
    return value


def wires(system: System, scope: str = FABRIC) -> Wires:
    """Return the graph of `system` over the links of `scope` (`FABRIC`, `NODE`, `HOST` or `MACHINE`)."""
    kinds = {node.name: node for node in system.nodes}
    network = _unused(_NETWORK, kinds) if scope == MACHINE else None
    arcs: dict[tuple[str, str], float] = {}
    counts: dict[tuple[str, str], int] = {}
    unknown = []
    for link in system.links:
        a, b = kinds[link.a], kinds[link.b]
        if not _within(scope, link, a, b):
            continue
        if link.data_rate is None and link.kind != "internal":
            unknown.append(f"{link.a} - {link.b} ({link.kind})")
        for tail, head in ((link.a, link.b), (link.b, link.a)):
            rate = link.rate(tail)
            arcs[tail, head] = arcs.get((tail, head), 0.0) + (math.inf if rate is None else rate)
            counts[tail, head] = counts.get((tail, head), 0) + link.count
    if network is not None:
        _add_network(system, network, arcs, counts)
    arcs, counts, inner = _ported(system, arcs, counts)
    devices = {d.ordinal or 0: d.name for d in system.devices}
    fixed = set(devices.values()) | {node.name for node in system.nodes if node.kind == "host"}
    flags = {n.name: (n.multicast, n.reduction) for n in system.nodes if n.kind == "switch"}
    by_kind = {node.name: node.kind for node in system.nodes}
    on_fabric = {end for link in system.links if is_fabric(link, by_kind) for end in (link.a, link.b)}
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


def _within(scope: str, link: Link, a: Node, b: Node) -> bool:
    nics = [node for node in (a, b) if node.kind == "nic"]
    if nics:
        return scope == MACHINE and all(nic.port_rate is not None for nic in nics)
    peer = is_fabric(link, {a.name: a.kind, b.name: b.kind})
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
    inner = frozenset((entrance[name], name) for name in limits if any(head == name for _, head in arcs))
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
    colour: dict[str, object] = {n: n if n in fixed or n not in flags else ("switch", flags[n]) for n in names}
    # Refinement ends when no class splits any more; the signatures keep devices apart and equal planes together.
    while True:
        signature: dict[str, object] = {}
        for name in names:
            out: dict[object, float] = {}
            into: dict[object, float] = {}
            for (tail, head), rate in arcs.items():
                if tail == name:
                    out[colour[head]] = out.get(colour[head], 0.0) + rate
                if head == name:
                    into[colour[tail]] = into.get(colour[tail], 0.0) + rate
            signature[name] = (colour[name], frozenset(out.items()), frozenset(into.items()))
        classes = {sig: index for index, sig in enumerate(dict.fromkeys(signature.values()))}
        refined: dict[str, object] = {name: classes[signature[name]] for name in names}
        if len(set(refined.values())) == len(set(colour.values())):
            break
        colour = refined
    groups: dict[object, list[str]] = {}
    for name in names:
        groups.setdefault(colour[name], []).append(name)
    merged = {name: _group_name(group) for group in groups.values() for name in group}
    return _merge_twins(arcs, merged, fixed, flags)


def _merge_twins(
    arcs: Mapping[tuple[str, str], float],
    merged: dict[str, str],
    fixed: set[str],
    flags: Mapping[str, tuple[bool | None, bool | None]],
) -> dict[str, str]:
    """Merge further those switches that have the same neighbours in equal proportions (HGX's bundles of 5 and 4)."""
    joined = _join(arcs, merged)
    shapes: dict[object, list[str]] = {}
    for target in dict.fromkeys(merged.values()):
        members = [name for name, group in merged.items() if group == target]
        around = {("out", head): rate for (tail, head), rate in joined.items() if tail == target}
        around |= {("in", tail): rate for (tail, head), rate in joined.items() if head == target}
        if members[0] in fixed or members[0] not in flags or any(math.isinf(rate) for rate in around.values()):
            continue
        total = sum(around.values())
        shape = frozenset((way, round(rate / total, 12)) for way, rate in around.items())
        shapes.setdefault((flags[members[0]], shape), []).append(target)
    renamed = {}
    for targets in shapes.values():
        if len(targets) > 1:
            name = _group_name([n for n, group in merged.items() if group in targets])
            renamed.update(dict.fromkeys(targets, name))
    return {name: renamed.get(target, target) for name, target in merged.items()}


def _group_name(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]}..{group[-1]} ({len(group)})"
