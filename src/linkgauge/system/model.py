"""A system: the devices, hosts, switches and NICs of one node (or rack), the links between them, and its
network.

The graph is full duplex: a link has a rate in each direction. A rate that nobody states is None (unknown),
never 0. Every figure says where it comes from. `linkgauge.system.form` reads and `dump` writes the JSON and TOML
forms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from linkgauge.model.patterns import PATTERNS
from linkgauge.system.graph import Arc, Graph
from linkgauge.system.remembered import Remembering

PROVENANCES = ("discovered", "described", "measured")
NODE_KINDS = ("device", "host", "switch", "nic")
FABRIC_KINDS = ("nvlink", "xgmi", "sli", "roce")
"""Kinds of link between devices that peer access uses (when both ends are devices or switches)."""
LINK_KINDS = (*FABRIC_KINDS, "pcie", "c2c", "infinity_fabric", "upi", "xbus", "memory", "internal")
ORIGINS = ("here", "publication", "bar")
"""How an accepted share was obtained: measured by this project, a published measurement, or the bar of a maker or an
operator."""
ALGORITHMS = ("ring", "tree", "nvls", "nvlstree", "direct")
"""Algorithms of collective libraries that a share may be of."""
TOPOLOGIES = ("dragonfly", "dragonfly+", "fat_tree", "torus", "unknown")


@dataclass(frozen=True)
class Figure:
    """One number, its unit (`B/s`, `B`, `ns` or `1`), and where it comes from."""

    value: float
    unit: str
    provenance: str
    source: str


@dataclass(frozen=True)
class Node:
    """A vertex of the system: a device, a host (NUMA node), a switch (NVSwitch, PCIe switch) or a NIC.

    `memory_rate` is what the memory moves in all, reads and writes together; `copy_rate` is what a copy from
    host buffer to host buffer was seen to reach (payload); `throughput` is the most that may enter a vertex
    in all, where its ports could bring more; `port_rate` is a NIC's rate to the network per direction;
    `cycle` is the shortest cycle of its clock. `multicast` and `reduction` say whether a switch repeats or
    adds data itself; None is unknown. `routes` says that the hardware passes others' traffic on without a
    program (switches; MI250X's dies, but no NVLink device).
    """

    name: str
    kind: str
    model: str | None = None
    vendor: str | None = None
    ordinal: int | None = None
    package: str | None = None
    numa: int | None = None
    cores: str | None = None
    at: tuple[float, float] | None = None
    memory_bytes: Figure | None = None
    memory_rate: Figure | None = None
    cache_bytes: Figure | None = None
    copy_rate: Figure | None = None
    throughput: Figure | None = None
    port_rate: Figure | None = None
    cycle: Figure | None = None
    multicast: bool | None = None
    reduction: bool | None = None
    routes: bool = False
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """`count` equal links between two nodes; rates are of one link in one direction.

    `signalling_rate` is what the wire carries with its coding, `data_rate` what is left for packets; they are
    separate facts. `possible_rate` is the data rate the ends could train to. `back_rate` is the data rate
    from `b` to `a` where it differs. `payload_share` is the part of the data rate that packets leave to
    payload, typical and never a bound.
    """

    a: str
    b: str
    kind: str
    count: int = 1
    version: str | None = None
    width: int | None = None
    signalling_rate: Figure | None = None
    data_rate: Figure | None = None
    back_rate: Figure | None = None
    possible_rate: Figure | None = None
    payload_share: Figure | None = None
    max_payload_bytes: int | None = None

    def rate(self, source: str) -> float | None:
        """Return the data rate of all `count` links leaving `source`, in bytes per second, or None where
        unknown."""
        figure = self.back_rate if source == self.b and self.back_rate is not None else self.data_rate
        return None if figure is None else figure.value * self.count

    def other(self, end: str) -> str:
        """Return the name of the end that is not `end`."""
        return self.b if end == self.a else self.a


def is_fabric(link: Link, kinds: Mapping[str, str]) -> bool:
    """Return whether peer access between devices uses a link; `kinds` are the nodes' by name."""
    return link.kind in FABRIC_KINDS and {kinds[link.a], kinds[link.b]} <= {"device", "switch"}


def rates_of(links: Iterable[Link]) -> dict[Arc, float]:
    """Return what links carry from each node to each other, in bytes per second; infinite where one is unknown."""
    rates: dict[Arc, float] = {}
    for link in links:
        for arc in ((link.a, link.b), (link.b, link.a)):
            rate = link.rate(arc[0])
            rates[arc] = rates.get(arc, 0.0) + (math.inf if rate is None else rate)
    return rates


@dataclass(frozen=True)
class Published:
    """A figure that a paper or a maker states for one pattern on this system: shown beside the rules, never a
    bound.

    `devices` and `nodes` limit it (None: any); value is a goodput (`B/s`) or a latency (`ns`).
    """

    rule: str
    pattern: str
    value: Figure
    transport: str | None = None
    devices: tuple[int, ...] | None = None
    nodes: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Cap:
    """What an engine or a runtime is known to stay below, whatever the links allow (MI250X's copy engines:
    50 GB/s)."""

    transport: str
    rate: Figure
    note: str | None = None


FULL_SIZE = 64 << 20
"""In bytes. From here on a link's rate hardly grows with the message."""


@dataclass(frozen=True)
class Accepted:
    """The share of a link kind's data rate that a source saw there, by which a new machine is judged on its first day.

    `kind` is a link kind, or `memory`: the share is of half of a device's memory rate then. Of a kind whose rate is
    not known, as `upi`, it is about the ways over such a link, and of the narrowest rate that is known there. Without a
    transport, pattern or number of ranks it holds for all. `size` is the least size in bytes from which it holds.
    `algorithm`: it is about cases that ask the library for this one; without it, about those that leave the choice to
    the library.
    `ranks` are those of one node; with `nodes` it is of a collective of so many, and of what the network allows it.
    `library` (a range of versions), `date` and `origin` say what was measured when and how. `check` asks for a little
    less than this share (docs/reference/check.md). `initiator`: it is about copies that this end starts, `sender` (a
    write) or `receiver` (a read); without it, about both. `condition`: what the machine had that others of its kind may
    lack and no log says, such as a modified driver.
    """

    kind: str
    share: Figure
    size: Figure
    transport: str | None = None
    pattern: str | None = None
    ranks: int | None = None
    algorithm: str | None = None
    library: str | None = None
    date: str | None = None
    origin: str | None = None
    note: str | None = None
    nodes: int | None = None
    initiator: str | None = None
    condition: str | None = None

    def fits(
        self,
        transport: str | None,
        pattern: str | None,
        size_bytes: int | None,
        ranks: int,
        algorithm: str = "",
        nodes: int = 1,
        initiator: str = "sender",
    ) -> bool:
        """Whether it is about such a case, of so many ranks a node; a size that is not known is large enough."""
        return (
            self.initiator in (None, initiator)
            and (self.nodes or 1) == nodes
            and self.transport in (None, transport)
            and self.pattern in (None, pattern)
            and self.ranks in (None, ranks)
            and (self.algorithm or "").lower() == algorithm.lower()
            and (size_bytes is None or size_bytes >= self.size.value)
        )


SPREADS = {True: 0.04, False: 0.11}
"""How far below the highest of several healthy measurements of one class the lowest may lie: of copies over a fabric or
within a device, which are the same parts in every server; of all else, where hosts and library versions differ."""


def spread_of(kind: str, pattern: str | None) -> float:
    """Return by which share healthy measurements of one class differ at most (docs/definitions.md)."""
    alike = kind in (*FABRIC_KINDS, "memory") and (pattern is None or not PATTERNS[pattern].collective)
    return SPREADS[alike]


def most_particular(entries: Iterable[Accepted]) -> Accepted | None:
    """Return the entry that speaks of several that fit: of the pattern, transport, ranks, algorithm and initiator.

    A bar speaks only where nobody measured. Of one source it is the entry of the largest size. Of several it is the one
    that saw less, each at its own largest size, since a machine that is as healthy as theirs must pass; but not one
    that lies further below the highest than healthy machines differ. What was seen below FULL_SIZE says nothing of
    larger messages.
    """
    alike: list[Accepted] = []
    most: tuple[object, ...] = ()
    for entry in entries:
        said = (entry.pattern, entry.transport, entry.ranks, entry.algorithm, entry.initiator)
        kind = (entry.origin != "bar", *(one is not None for one in said))
        if kind > most:
            most, alike = kind, []
        if kind == most:
            alike.append(entry)
    speaking = _at_largest_sizes(alike)
    highest = max((one.share.value for one in speaking), default=0.0)
    return _lowest(one for one in speaking if one.share.value >= (1 - spread_of(one.kind, one.pattern)) * highest)


def lowest_healthy(entries: Iterable[Accepted]) -> Accepted | None:
    """Return the measurement of several that fit which saw least, whoever made it and whichever end started the copies.

    A threshold above it fails a healthy machine. Each source counts at its own largest size, as in `most_particular`.
    """
    return _lowest(_at_largest_sizes(one for one in entries if one.origin != "bar"))


def _at_largest_sizes(entries: Iterable[Accepted]) -> list[Accepted]:
    """Of each source and end the entry of the largest size, without what was seen at small sizes alone."""
    largest: dict[tuple[object, ...], Accepted] = {}
    for entry in entries:
        key = (entry.share.source, entry.initiator)
        if key not in largest or _sooner(largest[key], entry):
            largest[key] = entry
    least = min(max((one.size.value for one in largest.values()), default=0.0), FULL_SIZE)
    return [one for one in largest.values() if one.size.value >= least]


def _lowest(entries: Iterable[Accepted]) -> Accepted | None:
    return min(entries, key=lambda one: (one.share.value, -one.size.value), default=None)


def _sooner(one: Accepted, other: Accepted) -> bool:
    """Whether the other is of a larger size, or of the same and saw less."""
    return (one.size.value, -one.share.value) < (other.size.value, -other.share.value)


@dataclass(frozen=True)
class Network:
    """What joins nodes: its topology and the figures its sources give, by name (see docs/reference/systems.md)."""

    topology: str
    name: str | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def value(self, key: str) -> float | None:
        """Return the figure `key`, or None where no source gives it."""
        figure = self.figures.get(key)
        return None if figure is None else figure.value


@dataclass(frozen=True)
class System(Remembering):
    """One node (or rack) of a machine as a graph. Devices are in the order of their ordinals."""

    name: str
    title: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    published: tuple[Published, ...] = ()
    caps: tuple[Cap, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    notes: tuple[str, ...] = ()
    trays: int = 1  # of a rack that is one NVLink domain: how many operating systems share its devices equally

    @property
    def devices(self) -> tuple[Node, ...]:
        """The devices, by ordinal."""
        return tuple(sorted(self.of_kind("device"), key=lambda node: node.ordinal or 0))

    @property
    def names_by_ordinal(self) -> dict[int, str]:
        """The devices' names by ordinal; their place in the order where none is given."""
        return {
            device.ordinal if device.ordinal is not None else i: device.name for i, device in enumerate(self.devices)
        }

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The hosts: one for each NUMA node that has cores or host memory."""
        return tuple(self.of_kind("host"))

    def of_kind(self, kind: str) -> Iterator[Node]:
        """Yield the nodes of `kind` in the order of the description."""
        return (node for node in self.nodes if node.kind == kind)

    def node(self, name: str) -> Node:
        """Return the node called `name`; `KeyError` where there is none."""
        return self._nodes[name]

    def links_of(self, name: str) -> Iterator[Link]:
        """Yield the links that end at the node `name`."""
        return (link for link in self.links if name in (link.a, link.b))

    def nearest(self, name: str, kind: str, *, over_fabric: bool = True) -> tuple[str, ...]:
        """Return the nodes of `kind` that are the fewest links away from a node; more than one where several are.

        `over_fabric`: also by way of other devices (a die whose neighbor has the NIC); else by host links alone.
        """
        return (self.wires if over_fabric else self.host_wires).nearest(name, {n.name for n in self.of_kind(kind)})

    @functools.cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def kinds(self) -> Mapping[str, str]:
        """The nodes' kinds by name."""
        return {node.name: node.kind for node in self.nodes}

    @functools.cached_property
    def wires(self) -> Graph:
        """All links."""
        return Graph(rates_of(self.links))

    @functools.cached_property
    def fabric(self) -> Graph:
        """The links between devices and their switches that peer access uses."""
        return Graph(rates_of(link for link in self.links if is_fabric(link, self.kinds)))

    @functools.cached_property
    def host_wires(self) -> Graph:
        """All other links, between which devices pass nothing on."""
        others = rates_of(link for link in self.links if not is_fabric(link, self.kinds))
        return Graph(others, passing={node.name for node in self.nodes if node.kind != "device"})
