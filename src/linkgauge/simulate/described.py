"""A fabric from a described system: its devices and NICs, and its `network` table (docs/reference/systems.md).

What no source states is left unknown. Where that is what joins the groups, only the nodes' own ports are counted, and
the fabric says so. Whoever asks may set figures (`--set groups=30`): they are named as assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from linkgauge.errors import UsageError, nearest
from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate.behind import behind_ports
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import DISTANCES
from linkgauge.system import units
from linkgauge.system.domain import rates_into_domain
from linkgauge.system.model import System

COUNTS = {
    "nodes": "nodes in all",
    "groups": "groups (dragonfly), cells (dragonfly+)",
    "nodes_per_group": "nodes of a full group",
    "switches_per_group": "switches of a dragonfly's group; else switch_local_ports + 1",
    "switch_endpoint_ports": "ports of a dragonfly's switch to nodes",
    "switch_local_ports": "and to the other switches of its group",
    "rows_per_group": "rows of switches of a group, each row and column fully joined; 1 by default",
    "local_links": "links between two switches of a row or column; 1 by default",
    "links_per_group_pair": "links between two groups",
    "switches_per_node": "switches that a node's NICs hang on in turn; 1 by default",
    "leaf_switches_per_group": "leaf switches of a dragonfly+'s cell",
    "spine_switches_per_group": "and its spine switches",
    "nodes_per_leaf": "nodes that hang on the same leaf switches",
    "leaf_up_ports": "links of a leaf switch up",
    "oversubscription": "of a fat tree's leaves: links down over links up, where leaf_up_ports is not stated",
    "spine_switches": "a fat tree's spine switches (of a pod, where there are pods)",
    "nodes_per_pod": "of a three-level tree",
    "core_links_per_spine": "links of a spine up, of a three-level tree",
    "nodes_per_domain": "nodes that NVLink joins; 1 by default",
    "rail_forwarding": "1: data for another rail go to the GPU on that rail inside the node first (NCCL's PXN)",
    "side_x": "nodes of a torus along a dimension",
    "side_y": "and the next",
    "side_z": "and the next",
}
RATES = {
    "port_rate": "of one link between switches",
    "nic_rate": "of a NIC, instead of the described one",
    "domain_rate": "of a GPU into its node's or domain's other GPUs",
}
TIMES = {f"{name}_latency": f"of a small message between GPUs: {name.replace('_', ' ')}" for name in DISTANCES}


def parse_setting(text: str) -> tuple[str, float]:
    """A figure as `name=value`, in B/s, ns or a plain number. UsageError names those there are."""
    name, equals, value = text.partition("=")
    known = {**COUNTS, **RATES, **TIMES}
    if name not in known or not equals:
        raise UsageError(f"--set {text[:60]}{nearest(name, list(known))}: expected NAME=VALUE, of {', '.join(known)}")
    unit = units.COUNT if name in COUNTS else units.RATE if name in RATES else units.TIME
    found = units.quantity(unit)(value, f"--set {name}")
    if found <= 0:
        raise UsageError(f"--set {name}={value[:40]}: expected more than 0, or leave it out")
    return name, found


class _Figures:
    """The figures of a system's network, with what was set before what is described."""

    def __init__(self, system: System, assumed: Mapping[str, float]) -> None:
        self.system = system
        self.assumed = assumed
        self.missing: list[str] = []
        self.sources: dict[str, str] = {}

    def real(self, name: str) -> float | None:
        if name in self.assumed:
            self.sources[name] = "assumed"
            return self.assumed[name]
        network = self.system.network
        figure = None if network is None else network.figures.get(name)
        if figure is not None:
            self.sources[name] = figure.source
            return figure.value
        return None

    def count(self, name: str) -> int | None:
        value = self.real(name)
        if value is None:
            return None
        if value != int(value) or not 1 <= value <= 1e9:
            raise UsageError(f"{self.system.name}: {name} is {value:g}: expected a whole number from 1 to 10^9")
        return int(value)

    def need(self, name: str) -> int:
        """The count, or 0 and a note that it is missing."""
        value = self.count(name)
        if value is None:
            self.missing.append(name)
        return value or 0


def of_system(system: System, assumed: Mapping[str, float] | None = None) -> Fabric:
    """The fabric that a system's network describes. UsageError, one line, for what is missing or does not fit."""
    said = _Figures(system, assumed or {})
    gpus = len(system.devices)
    rates = [nic.port_rate.value if nic.port_rate is not None else None for nic in system.of_kind("nic")]
    nic_rate = said.real("nic_rate")
    known = [nic_rate or rate for rate in rates]
    if not gpus or not known:
        raise UsageError(f"{system.name}: describes no NICs or no devices, so nothing joins its nodes")
    if any(rate is None for rate in known) or len(set(known)) > 1:
        raise UsageError(f"{system.name}: NICs of no stated rate, or of several: set one by --set nic_rate=50GB/s")
    rate = float(known[0] or 0.0)
    network = system.network
    topology = network.topology if network is not None else "unknown"
    ports, port_rate = _ports(gpus, len(known), rate, topology == "torus")
    passing, out, into = behind_ports(system, ports, port_rate)
    in_domain = said.count("nodes_per_domain") or 1
    common: dict[str, object] = {
        "domain_nodes": in_domain,
        "domain_rate": said.real("domain_rate") or _domain_rate(system, in_domain),
        "forwarded": said.real("rail_forwarding") == 1,
        "behind_out": out,
        "behind_in": into,
        "latency_ns": {name: value for name in DISTANCES if (value := said.real(f"{name}_latency")) is not None},
        "assumed": tuple(f"{name}={value:g}" for name, value in said.assumed.items()),
    }
    maker = {"dragonfly": _dragonfly, "dragonfly+": _dragonfly_plus, "fat_tree": _tree, "torus": _torus}.get(topology)
    arguments = None
    if maker is not None:
        arguments = maker(said, gpus, ports, port_rate)
    if arguments is None or said.missing:
        nodes = said.count("nodes")
        if nodes is None:
            missing = ", ".join(dict.fromkeys(["nodes", *said.missing]))
            raise UsageError(f"{system.name}: its network does not state {missing}: --set {missing.split(',')[0]}=...")
        lacking = tuple(dict.fromkeys(said.missing)) or ("topology",)
        common.pop("forwarded")
        return fabrics.endpoints(
            system.name, nodes=nodes, gpus=gpus, ports=ports, port_rate=passing, unknown=lacking,
            sources=said.sources, **common,
        )  # fmt: skip
    make, figures = arguments
    # Switches and their links are for what NICs send, whatever leads to these.
    made: Fabric = make(system.name, **{**figures, "port_rate": passing}, **common, sources=said.sources)
    return made


def _ports(gpus: int, nics: int, rate: float, joined: bool) -> tuple[int, float]:
    """Ports of a node and the rate of each: NICs, or all of a GPU's, or of the node where neither divides the other."""
    if joined:
        return 1, nics * rate
    if gpus % nics == 0:
        return nics, rate
    if nics % gpus == 0:
        return gpus, nics // gpus * rate
    return 1, nics * rate


def _domain_rate(system: System, nodes: int) -> float | None:
    """What all links of the device with the least of them carry: no GPU gives more to others of its domain's nodes."""
    rates = rates_into_domain(system) if len(system.devices) * nodes > 1 else None
    return min(min(ways) for ways in rates.values()) if rates else None


_Made = tuple[Callable[..., Fabric], dict[str, object]]


def _dragonfly(said: _Figures, gpus: int, ports: int, port_rate: float) -> _Made | None:
    homes = said.count("switches_per_node") or 1
    local = said.count("switch_local_ports")
    switches = said.count("switches_per_group") or (local + 1 if local else said.need("switches_per_group"))
    ends = said.need("switch_endpoint_ports")
    groups, each = said.need("groups"), said.need("nodes_per_group")
    pair = said.need("links_per_group_pair") if groups != 1 else 0
    link = said.real("port_rate")
    if link is None:
        said.missing.append("port_rate")
    if said.missing:
        return None
    return fabrics.dragonfly, {
        "groups": groups, "nodes_per_group": each, "nodes": said.count("nodes"), "gpus": gpus, "ports": ports,
        "port_rate": port_rate, "switches": switches, "block_nodes": _whole(said, ends * homes, ports),
        "homes": homes, "link_rate": link, "pair_links": pair, "rows": said.count("rows_per_group") or 1,
        "local_links": said.real("local_links") or 1.0,
    }  # fmt: skip


def _whole(said: _Figures, ends: int, ports: int) -> int:
    nics = len(list(said.system.of_kind("nic")))
    nodes = ends // max(nics, ports)
    if nodes < 1:
        raise UsageError(f"{said.system.name}: switch_endpoint_ports hold no node of {nics} NICs")
    return nodes


def _dragonfly_plus(said: _Figures, gpus: int, ports: int, port_rate: float) -> _Made | None:
    groups, each = said.need("groups"), said.need("nodes_per_group")
    figures: dict[str, object] = {
        "groups": groups, "nodes_per_group": each, "nodes": said.count("nodes"), "gpus": gpus, "ports": ports,
        "port_rate": port_rate, "leaves": said.need("leaf_switches_per_group"),
        "spines": said.need("spine_switches_per_group"), "block_nodes": said.need("nodes_per_leaf"),
        "up_links": float(said.need("leaf_up_ports")), "homes": said.count("switches_per_node") or 1,
        "pair_links": said.need("links_per_group_pair") if groups != 1 else 0, "link_rate": said.real("port_rate"),
    }  # fmt: skip
    if figures["link_rate"] is None:
        said.missing.append("port_rate")
    return None if said.missing else (fabrics.dragonfly_plus, figures)


def _tree(said: _Figures, gpus: int, ports: int, port_rate: float) -> _Made | None:
    nodes, per_leaf = said.need("nodes"), said.need("nodes_per_leaf")
    homes = said.count("switches_per_node") or 1
    link, up = said.real("port_rate") or port_rate, said.real("leaf_up_ports")
    if up is None and per_leaf:
        over = said.real("oversubscription")
        if over is None:
            said.missing.append("leaf_up_ports")
        else:
            up = per_leaf * ports / homes * port_rate / over / link
    per_pod = said.count("nodes_per_pod")
    pods = 1
    if per_pod and nodes and nodes > per_pod:
        pods = -(-nodes // per_pod)
    spines = said.count("spine_switches") or max(1, int(up or 1))
    core = said.real("core_links_per_spine") if pods > 1 else 0.0
    if core is None:
        said.missing.append("core_links_per_spine")
    if said.missing:
        return None
    return fabrics.fat_tree, {
        "nodes": nodes, "gpus": gpus, "ports": ports, "port_rate": port_rate, "block_nodes": per_leaf,
        "link_rate": link, "spines": spines, "up_links": float(up or 0.0), "homes": homes, "pods": pods,
        "core_links": float(core or 0.0),
    }  # fmt: skip


def _torus(said: _Figures, gpus: int, ports: int, port_rate: float) -> _Made | None:
    sides = [side for name in ("side_x", "side_y", "side_z") if (side := said.count(name)) is not None]
    link = said.real("port_rate")
    if not sides or link is None:
        said.missing += ["side_x", "port_rate"]
        return None
    return fabrics.torus, {"shape": tuple(sides), "gpus": gpus, "port_rate": port_rate, "link_rate": link}
