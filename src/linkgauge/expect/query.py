"""A case as the rules see it: which vertices exchange, over which links, and which of the limits bind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.expect.graph import FABRIC, HOST, MACHINE, NODE, Wires, wires
from linkgauge.model.patterns import PATTERNS, PatternTraits
from linkgauge.model.rank_bytes import pair_bytes, why_not_distributed
from linkgauge.model.transports import TRANSPORTS, TransportTraits, over_host
from linkgauge.system.model import Node, System

HOST_MEMORY = ("pinned", "pageable")
_LARGE_BYTES = 1 << 20
# The columns that are read as they stand: words with their defaults, and numbers, which are -1 where none is stated.
_WORDS = {"variant": "", "source_memory": "device", "target_memory": "device", "algorithm": "", "path": "",
          "clock": "host"}  # fmt: skip
_PLACES = ("source_node", "target_node", "via", "source_device", "target_device")
_ANY = TransportTraits("", "whatever moves the bytes: the links alone", one_sided=True, on_fabric=True, host_links=True)


@dataclass(frozen=True)
class Query:
    """The dimensions that the rules read, checked against the system."""

    system: System
    pattern: str
    transport: str | None
    variant: str
    devices: tuple[int, ...]
    size_bytes: int | None
    root: int
    source_memory: str
    target_memory: str
    source_node: int
    target_node: int
    via: int
    algorithm: str
    path: str
    nodes: int
    clock: str
    source_device: int = -1
    target_device: int = -1
    distribution: str = ""

    @property
    def traits(self) -> PatternTraits:
        """What is known of the pattern."""
        return PATTERNS[self.pattern]

    @property
    def mechanism(self) -> TransportTraits:
        """What is known of the transport; where none is named, of links that anything may use."""
        return TRANSPORTS.get(self.transport or "", _ANY)

    @property
    def ranks(self) -> int:
        """How many ranks take part on one node."""
        return len(self.devices)

    @cached_property
    def messages(self) -> dict[tuple[int, int], int]:
        """Bytes from each rank to each other in one operation; of distributed patterns."""
        listed = pair_bytes(self.pattern, self.ranks, self.message_bytes, self.distribution)
        return {(source, target): moved for source, target, moved in listed}

    @property
    def message_bytes(self) -> int:
        """The size m; of a case of no size that of a large one."""
        return self.size_bytes or _LARGE_BYTES

    @property
    def noun(self) -> str:
        """What one of its devices is called: host devices have memory alone."""
        links = [link for name in self.names for link in self.system.links_of(name)]
        return "host device" if links and all(link.kind == "memory" for link in links) else "GPU"

    @cached_property
    def rank_names(self) -> tuple[str, ...]:
        """The vertex of each rank."""
        by_ordinal = self.system.names_by_ordinal
        return tuple(by_ordinal[ordinal] for ordinal in self.devices)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The vertices of the distinct devices, in the order of ranks."""
        return tuple(dict.fromkeys(self.rank_names))

    @cached_property
    def weights(self) -> dict[str, int]:
        """How many ranks each distinct device has."""
        return dict(Counter(self.rank_names))

    @property
    def root_name(self) -> str:
        """The vertex of the root rank."""
        return self.rank_names[self.root]

    @property
    def on_host(self) -> bool:
        """Whether both ends of the case are host memory."""
        return self.source_memory in HOST_MEMORY and self.target_memory in HOST_MEMORY

    @cached_property
    def scope(self) -> str:
        """The links of the transport's own way: the devices' fabric where it joins them all, else the whole node."""
        if over_host(self.transport or "", self.path) or self.traits.host_ways:
            return HOST
        if self.source_memory in HOST_MEMORY or self.target_memory in HOST_MEMORY:
            return HOST
        return FABRIC if self.graph(FABRIC).joined(self.devices) else NODE

    @cached_property
    def binds(self) -> bool:
        """Whether the scope's links bind the transport, rather than being one way among those that it may take."""
        if self.scope == FABRIC:
            return self.mechanism.on_fabric and self.graph(FABRIC).joined(self.devices, by_hardware=True)
        if self.scope == HOST:
            return self.mechanism.host_links
        return self.scope == self.outer

    @property
    def scopes(self) -> dict[str, str]:
        """The scopes whose links limit it, each with the kind of limit that it gives; those of the last surely bind."""
        return {self.scope: "upper bound"} if self.binds else {
            self.scope: "achievable schedule", self.outer: "upper bound"
        }  # fmt: skip

    @property
    def outer(self) -> str:
        """The links that surely bind the transport: the node's, and for libraries the way by the NICs too."""
        return MACHINE if self.mechanism.library else NODE

    def graph(self, scope: str | None = None) -> Wires:
        """Return the graph of a scope (the case's own by default), made once for a system."""
        return wires(self.system, scope or self.scope)

    def device(self, name: str) -> Node:
        """Return a device's node."""
        return self.system.node(name)

    def memory_of(self, name: str) -> Node:
        """Return the node whose memory holds a device's buffers: itself, or of a host device the host."""
        return memory_of(self.system, name)


def memory_of(system: System, name: str) -> Node:
    """Return the node whose memory holds a device's buffers: itself, or of a host device the host."""
    node = system.node(name)
    if node.memory_rate is not None:
        return node
    links = (link for link in system.links_of(name) if link.kind == "memory")
    hosts = [link.other(name) for link in links if system.kinds[link.other(name)] == "host"]
    return system.node(hosts[0]) if hosts else node


def query(system: System, case: Mapping[str, Any]) -> Query:
    """Read a case's columns; those that are absent get the defaults of docs/definitions.md.

    `UsageError` for an unknown pattern, a device that the system has not, an odd device where pairs are asked for, or a
    root beyond the ranks.
    """
    pattern = str(case["pattern"])
    if pattern not in PATTERNS:
        raise UsageError(f"unknown pattern {pattern!r}: expected one of {', '.join(PATTERNS)}")
    known = [device.ordinal or 0 for device in system.devices]
    listed = case.get("devices")
    devices = tuple(int(d) for d in listed) if listed is not None else tuple(known)
    for device in devices:
        if device not in known:
            raise UsageError(f"{system.name} has no device {device}: expected ordinals 0 to {len(known) - 1}")
    if not devices:
        raise UsageError(f"{system.name} has no devices to take part in {pattern}")
    if PATTERNS[pattern].ranks == "pairs" and len(devices) % 2:
        raise UsageError(f"{pattern} is of disjoint pairs: expected an even number of devices, not {len(devices)}")
    root = int(case.get("root") or 0)
    if not 0 <= root < len(devices):
        raise UsageError(f"root {root} is no rank: expected 0 to {len(devices) - 1}")
    if PATTERNS[pattern].alone:
        # The one flow that is timed; at best it has its links to itself.
        pattern, devices = PATTERNS[pattern].alone, devices[:1]
    distribution = str(case.get("distribution") or "") if PATTERNS[pattern].distributed else ""
    if reason := why_not_distributed(pattern, distribution, len(devices)):
        raise UsageError(reason)
    size = case.get("size_bytes", case.get("size"))
    words: dict[str, Any] = {name: str(case.get(name) or default) for name, default in _WORDS.items()}
    places: dict[str, Any] = {name: -1 if case.get(name) is None else int(case[name]) for name in _PLACES}
    return Query(
        system=system,
        pattern=pattern,
        transport=case.get("transport") or None,
        devices=devices,
        size_bytes=None if size is None else int(size),
        root=root,
        nodes=int(case.get("nodes") or 1),
        distribution=distribution,
        **words,
        **places,
    )


def hosts_for(system: System, device: str, node: int) -> tuple[str, ...]:
    """Return the hosts where a case's host memory for this device may be: the NUMA node it states, or the nearest."""
    if node >= 0:
        stated = tuple(host.name for host in system.hosts if (host.numa if host.numa is not None else -1) == node)
        return stated or tuple(h.name for i, h in enumerate(system.hosts) if i == node)
    return system.nearest(device, "host", over_fabric=False)


def show(names: Sequence[str]) -> str:
    """Return a few names as they appear in a basis, long lists shortened."""
    names = [name for name in names if name]
    if len(names) > 8:
        return f"{{{', '.join(names[:6])}, ... {len(names)} in all}}"
    return "{" + ", ".join(names) + "}"
