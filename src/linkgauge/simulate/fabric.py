"""A cluster's fabric as arrays of alike links with counts and rates: groups, switches, nodes and their ports.

Nothing here is an object a node or a link. Where a node's ports lead is arithmetic on its number, and which switch has
how many links to which group is one table, so that 10^5 GPUs take a few MB.

A *port* is what one or several GPUs of a node share towards the fabric: a NIC, or the NICs of one GPU together. A
*group* is a dragonfly's group, a dragonfly+'s cell, a three-level tree's pod, or all of a two-level tree. Its *leaves*
are the switches that nodes are attached to; *spines* are a group's second level (dragonfly+, trees).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Floats, Ints

KINDS = ("endpoints", "dragonfly", "dragonfly+", "fat_tree", "torus")
"""`endpoints`: what joins the nodes' ports is not known, and only the ports themselves bound anything."""

MOST_NODES = 1_000_000
_MOST_CELLS = 30_000_000  # switches times groups: loads are tables of this size, some of them at once


@dataclasses.dataclass(frozen=True)
class Behind:
    """A link inside each node between GPUs and ports: its rate, and the part of each GPU's bytes that passes."""

    rate: float
    shares: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Fabric:
    """A fabric. Rates in bytes per second and one direction; every link is as fast both ways.

    `homes` of a node's ports are attached to different switches in turn (port j on the j % homes-th of its block), and
    `block_nodes` nodes in a row share them: one NIC a rail of a rail-optimized tree is `homes == ports`.
    Errors: UsageError, one line, from `make` and the generators.
    """

    name: str
    kind: str
    gpus: int  # a node
    ports: int  # a node
    port_rate: float
    group_nodes: Ints  # nodes of each group
    block_nodes: int
    homes: int = 1
    leaves: int = 1  # switches with nodes, a group
    link_rate: float = math.inf  # of one link between switches
    domain_nodes: int = 1  # nodes that NVLink joins
    domain_rate: float | None = None  # of one GPU into its domain; None: not known, and bounds nothing
    behind_out: tuple[Behind, ...] = ()  # what lies between GPUs and ports, where it may be full before these
    behind_in: tuple[Behind, ...] = ()
    forwarded: bool = False  # a GPU's data for another rail go to its neighbor on that rail inside the domain first
    rows: int = 1  # a dragonfly's group: switches in so many rows, each row and each column fully joined
    local_links: float = 1.0  # between two switches of a row or column
    spines: int = 0  # a group
    up_links: float = 0.0  # of one leaf to all spines of its group
    core_links: float = 0.0  # of one spine to the cores above (three-level trees)
    pair_links: int = 0  # between two groups
    wiring: str = "consecutive"
    shape: tuple[int, ...] = ()  # a torus' nodes along each dimension
    latency_ns: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by distance class
    unknown: tuple[str, ...] = ()  # what no source states, and so bounds nothing
    assumed: tuple[str, ...] = ()  # what whoever asks has set
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the figures fit together."""
        _check(self)

    @property
    def nodes(self) -> int:
        """All nodes."""
        return int(self.group_nodes.sum())

    @property
    def groups(self) -> int:
        """All groups that have nodes."""
        return len(self.group_nodes)

    @property
    def switches(self) -> int:
        """All leaves."""
        return self.groups * self.leaves

    @property
    def gpus_a_port(self) -> int:
        """GPUs that share a port."""
        return self.gpus // self.ports

    @functools.cached_property
    def first_node(self) -> Ints:
        """The number of each group's first node, and of all nodes at the end."""
        return np.concatenate(([0], np.cumsum(self.group_nodes)))

    def group_of(self, nodes: Ints) -> Ints:
        """The group of each node."""
        return np.searchsorted(self.first_node, nodes, side="right") - 1

    def leaf_of(self, nodes: Ints) -> Ints:
        """The leaf of each port: nodes x ports, leaves counted through all groups."""
        group = self.group_of(nodes)
        block = (nodes - self.first_node[group]) // self.block_nodes
        first = group * self.leaves + block * self.homes
        found: Ints = first[:, None] + np.arange(self.ports)[None, :] % self.homes
        return found

    def domain_of(self, nodes: Ints) -> Ints:
        """The NVLink domain of each node; a group's last domain may have fewer nodes than the others."""
        group = self.group_of(nodes)
        most = -(-int(self.group_nodes.max()) // self.domain_nodes)
        found: Ints = group * most + (nodes - self.first_node[group]) // self.domain_nodes
        return found

    @property
    def routers(self) -> int:
        """Switches of a group that have links to other groups: leaves of a dragonfly, spines of a dragonfly+."""
        return self.spines if self.kind == "dragonfly+" else self.leaves

    @functools.cached_property
    def gateways(self) -> Floats:
        """Links of each router (groups x routers, in order) to each group, as a table groups x routers x groups.

        `consecutive`: the links of a group, in the order of the other groups counted from its own, go to its routers
        in turn. `by_number`: all links to group h are at router h (SimGrid's dragonfly zones).
        """
        g, r = self.groups, self.routers
        links = np.zeros((g, r, g))
        if g < 2 or not self.pair_links:
            return links
        if self.wiring == "by_number":
            for h in range(g):
                links[:, h, h] = self.pair_links
            links[np.arange(g), :, np.arange(g)] = 0
            return links
        slots = np.arange((g - 1) * self.pair_links)
        router, ahead = slots % r, slots // self.pair_links + 1
        for own in range(g):
            np.add.at(links[own], (router, (own + ahead) % g), 1.0)
        return links

    @functools.cached_property
    def gateway_shares(self) -> Floats:
        """The share of each router in the links from its group to each other one: groups x routers x groups."""
        return self.gateways / max(1, self.pair_links)

    def with_more(self, **changes: object) -> Fabric:
        """The same with other figures."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # fields by name


def _check(f: Fabric) -> None:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise UsageError(f"fabric {f.name}: {what}")

    need(f.kind in KINDS, f"unknown topology '{f.kind}': expected one of {', '.join(KINDS)}")
    for name in ("gpus", "ports", "block_nodes", "homes", "leaves", "domain_nodes", "rows"):
        value = getattr(f, name)
        need(isinstance(value, int) and value >= 1, f"{name} is {value}: expected a whole number of 1 or more")
    need(len(f.group_nodes) >= 1 and int(f.group_nodes.min()) >= 1, "a group without nodes: expected 1 or more")
    need(f.nodes <= MOST_NODES, f"{f.nodes} nodes: expected at most {MOST_NODES}")
    need(f.gpus % f.ports == 0, f"{f.gpus} GPUs a node on {f.ports} ports: expected as many GPUs on each")
    need(f.ports % f.homes == 0, f"{f.ports} ports a node on {f.homes} switches: expected as many ports on each")
    for name in ("port_rate", "link_rate"):
        need(getattr(f, name) > 0, f"{name} is {getattr(f, name):g} B/s: expected more than 0")
    need(f.domain_rate is None or f.domain_rate > 0, "domain_rate is 0 B/s: expected more, or leave it out")
    if f.kind in ("endpoints", "torus"):
        need(f.kind != "torus" or math.prod(f.shape) == f.nodes, f"a torus of {f.shape} has not {f.nodes} nodes")
        need(f.kind != "torus" or f.ports == 1, "a torus' nodes have one port each, of all their NICs")
        return
    held = f.leaves // f.homes * f.block_nodes
    most = int(f.group_nodes.max())
    need(most <= held, f"{most} nodes in a group whose {f.leaves} leaf switches hold {held}: expected no more")
    need(f.groups * f.leaves * f.groups <= _MOST_CELLS, f"{f.groups} groups of {f.leaves} leaf switches: too many")
    if f.kind == "dragonfly":
        need(f.leaves % f.rows == 0, f"{f.leaves} switches in {f.rows} rows: expected as many in each")
        need(f.leaves == 1 or f.local_links > 0, "local_links is 0: expected more")
    else:
        need(f.spines >= 1 and f.up_links > 0, "no spine switches or no links to them: expected 1 or more")
    if f.kind in ("dragonfly", "dragonfly+") and f.groups > 1:
        need(f.pair_links >= 1, "no links between groups: expected 1 or more a pair")
        need(f.groups * f.routers * f.groups <= _MOST_CELLS, "too many groups and switches")
        need(f.wiring != "by_number" or f.routers >= f.groups, "fewer switches a group than groups")
    if f.kind == "fat_tree" and f.groups > 1:
        need(f.core_links > 0, "no links between the pods: expected 1 or more a spine")


def _groups(name: str, groups: int, nodes_per_group: int, nodes: int | None) -> Ints:
    """Nodes of each group: full ones, and a last one with the rest where `nodes` says how many there are in all."""
    if groups < 1 or nodes_per_group < 1 or (nodes is not None and nodes < 1):
        raise UsageError(f"fabric {name}: {groups} groups of {nodes_per_group} nodes: expected 1 or more")
    if groups * nodes_per_group > 1000 * MOST_NODES or groups > MOST_NODES:
        raise UsageError(f"fabric {name}: {groups} groups of {nodes_per_group} nodes: expected at most {MOST_NODES}")
    every = groups * nodes_per_group if nodes is None else min(nodes, groups * nodes_per_group)
    full, rest = divmod(every, nodes_per_group)
    return np.array([nodes_per_group] * full + [rest] * (rest > 0), dtype=np.int64)


def dragonfly(
    name: str = "dragonfly", *, groups: int, nodes_per_group: int, gpus: int, ports: int, port_rate: float,
    switches: int, block_nodes: int, link_rate: float, pair_links: int, nodes: int | None = None, homes: int = 1,
    rows: int = 1, local_links: float = 1.0, wiring: str = "consecutive", **more: object,
) -> Fabric:  # fmt: skip
    """A dragonfly (Kim et al. 2008): `switches` a group, every two joined (or in rows and columns), `pair_links`
    between any two groups."""
    return Fabric(
        name, "dragonfly", gpus, ports, port_rate, _groups(name, groups, nodes_per_group, nodes), block_nodes,
        homes=homes, leaves=switches, link_rate=link_rate, rows=rows, local_links=local_links, pair_links=pair_links,
        wiring=wiring, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def dragonfly_plus(
    name: str = "dragonfly+", *, groups: int, nodes_per_group: int, gpus: int, ports: int, port_rate: float,
    leaves: int, spines: int, block_nodes: int, up_links: float, link_rate: float, pair_links: int,
    nodes: int | None = None, homes: int = 1, **more: object,
) -> Fabric:  # fmt: skip
    """A dragonfly+ (Shpiner et al. 2017): each group a tree of two levels, spines of any two joined."""
    return Fabric(
        name, "dragonfly+", gpus, ports, port_rate, _groups(name, groups, nodes_per_group, nodes), block_nodes,
        homes=homes, leaves=leaves, link_rate=link_rate, spines=spines, up_links=up_links, pair_links=pair_links,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def fat_tree(
    name: str = "fat tree", *, nodes: int, gpus: int, ports: int, port_rate: float, block_nodes: int,
    link_rate: float, spines: int, up_links: float, homes: int = 1, pods: int = 1, core_links: float = 0.0,
    **more: object,
) -> Fabric:  # fmt: skip
    """A fat tree (Leiserson 1985) of two levels, or of three where there are `pods`: all leaves of a pod joined to all
    its spines, and spines by `core_links` each to cores that join all pods. Rails where `homes` is `ports`."""
    if not 1 <= pods <= max(1, nodes):
        raise UsageError(f"fabric {name}: {pods} pods for {nodes} nodes: expected 1 or more, and no more than nodes")
    per_pod = -(-nodes // pods)
    sizes = _groups(name, pods, per_pod, nodes)
    leaves = max(1, -(-per_pod // block_nodes)) * homes
    return Fabric(
        name, "fat_tree", gpus, ports, port_rate, sizes, block_nodes, homes=homes, leaves=leaves, link_rate=link_rate,
        spines=spines, up_links=up_links, core_links=core_links, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def torus(
    name: str = "torus", *, shape: tuple[int, ...], gpus: int, port_rate: float, link_rate: float, **more: object
) -> Fabric:
    """A torus of nodes, one link to each neighbor along each dimension. A node's NICs are one port."""
    if not 1 <= len(shape) <= 6 or any(side < 1 for side in shape) or math.prod(shape) > MOST_NODES:
        raise UsageError(f"fabric {name}: a torus of {shape}: expected up to 6 sides, at most {MOST_NODES} nodes")
    return Fabric(
        name, "torus", gpus, 1, port_rate, np.array([math.prod(shape)], dtype=np.int64), 1, leaves=math.prod(shape),
        link_rate=link_rate, shape=tuple(shape), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def endpoints(name: str, *, nodes: int, gpus: int, ports: int, port_rate: float, **more: object) -> Fabric:
    """Nodes of which only the ports are known."""
    if nodes < 1 or nodes > MOST_NODES:
        raise UsageError(f"fabric {name}: {nodes} nodes: expected 1 to {MOST_NODES}")
    return Fabric(
        name, "endpoints", gpus, ports, port_rate, np.array([nodes], dtype=np.int64), max(1, nodes),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
