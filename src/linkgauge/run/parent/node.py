"""A node as it shows itself to a run: `python -m linkgauge.run.parent.node KIND DEVICES` is a rank that says so.

The first rank of each node looks for devices there, and all say where they are; without MPI.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.model.grouped import grouped
from linkgauge.model.shape import as_it_is, each, label, mapping, parsed_by, table, text, whole
from linkgauge.owner import node_name
from linkgauge.plan.machine import free_shared_memory, numa_nodes
from linkgauge.run.launchers import started_by
from linkgauge.run.machine.binding import node_cores
from linkgauge.run.machine.interfaces import NETWORK_SHAPE, Network, network
from linkgauge.run.machine.private_folder import remove_elsewhere
from linkgauge.run.machine.processes import MARK
from linkgauge.run.parent.devices import DEVICES_SHAPE, probe
from linkgauge.run.parent.rank_words import say
from linkgauge.system import affinity, lldp
from linkgauge.system.allowance import available_cores, free_host_memory
from linkgauge.system.discovery import of_devices


@dataclasses.dataclass(frozen=True)
class Node:
    """A node as a look there shows it, and the ranks that were started on it. Memory in bytes, free at that moment.

    `devices` are those of the run's runtime, by their ordinals there; none: `reason` says why. `near` gives the cores
    of a NUMA node among those `allowed` to its ranks, for each node that a device is on.
    """

    host: str
    ranks: tuple[int, ...]
    devices: Mapping[int, Mapping[str, Any]]
    reason: str
    cores: int
    allowed: tuple[int, ...]
    near: Mapping[int, Sequence[int]]
    memory_nodes: tuple[int, ...]
    core_nodes: tuple[int, ...]
    host_free_bytes: int
    shm_free_bytes: int
    network: Network = dataclasses.field(default_factory=Network)
    switch_address: str = ""  # what Slurm says of its place in the network
    switches_above: tuple[str, ...] = ()  # what switches say of themselves by LLDP
    near_nics: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # by device; none: not known
    one_a_nic: tuple[int, ...] = ()  # a device for each of its network cards

    def plain(self) -> dict[str, Any]:
        """What run.json says of it."""
        infos = [dict(info) for info in self.devices.values()]
        near = {str(ordinal): list(cards) for ordinal, cards in self.near_nics.items()}
        return {"host": self.host, "devices": infos, "cores": self.cores, "memory_nodes": list(self.memory_nodes),
                "network": self.network.plain(), "near_nics": near}  # fmt: skip

    def words(self) -> str:
        """What a plan asks of a node, in words: equal for nodes that are alike."""
        names = sorted({str(info.get("name") or "") for info in self.devices.values()} - {""})
        count = f"{len(self.devices)} device{'' if len(self.devices) == 1 else 's'}"
        named = f" ({', '.join(names)})" if names else ""
        return f"{count}{named}, {self.cores} cores, NUMA nodes {', '.join(map(str, self.memory_nodes))} with memory"


_OF_LOOK = {field.name for field in dataclasses.fields(Node)}
_NUMBERS, _CORES = each(whole(0, 1 << 20)), each(whole(0, 1 << 20), least=1)
_PLACE = {"rank": whole(0, 1 << 20), "host": label, "node": label}
_FOUND = {
    "devices": DEVICES_SHAPE, "reason": text, "cores": whole(),
    "near": mapping(_CORES, parsed_by(int)), "allowed": _CORES, "memory_nodes": _NUMBERS, "core_nodes": _NUMBERS,
    **dict.fromkeys(("host_free_bytes", "shm_free_bytes"), whole()),
}  # fmt: skip
_LATER = {
    "network": NETWORK_SHAPE, "switch_address": text, "switches_above": each(label),
    "near_nics": mapping(each(label), parsed_by(int)), "one_a_nic": _NUMBERS,
}  # fmt: skip


def said_shape(value: Any, at: str) -> Any:
    """What a rank says: where it is; and, as the first of its node, what is there."""
    place: dict[str, Any] = table(_PLACE, as_it_is, _PLACE)(value, at)
    return table({**_FOUND, **_LATER}, as_it_is, _FOUND)(place, at) if "devices" in place else place


def nodes_of(said: Sequence[Mapping[str, Any]], ranks: int) -> tuple[Node, ...] | str:
    """The nodes that ranks told of, none where all are on this one; or why they are not known."""
    looks = {one["node"]: one for one in said if "devices" in one}
    of_node = grouped((one["node"], one["rank"]) for one in sorted(said, key=lambda one: one["rank"]))
    if sorted(rank for of in of_node.values() for rank in of) != list(range(ranks)):
        return "not all ranks said where they are"
    if of_node.keys() != looks.keys():
        return "not all nodes said what they have"
    if of_node.keys() == {node_name()}:
        return ()
    return tuple(_node(looks[name], of) for name, of in of_node.items())


def _node(look: Mapping[str, Any], ranks: Sequence[int]) -> Node:
    found: dict[str, Any] = {
        name: tuple(of) if isinstance(of, list) else of for name, of in look.items() if name in _OF_LOOK
    }
    found["devices"] = {info["ordinal"]: info for info in look["devices"]}
    if "network" in look:
        found["network"] = Network.of_plain(look["network"])
    if "near_nics" in look:
        found["near_nics"] = {ordinal: tuple(cards) for ordinal, cards in look["near_nics"].items()}
    return Node(ranks=tuple(ranks), **found)


def look_here(kind: str, count: int) -> dict[str, Any]:
    """What the first rank of a node says of it beside where it is."""
    found = probe(kind, count)
    allowed = sorted(os.sched_getaffinity(0))
    return {
        "devices": [dict(info) for info in found.devices],
        "reason": found.reason,
        "cores": available_cores(),
        "allowed": allowed,
        "near": {node: node_cores(node, allowed) for node in {int(one.get("numa_node", -1)) for one in found.devices}},
        "memory_nodes": numa_nodes("memory"),
        "core_nodes": numa_nodes("cpu"),
        "host_free_bytes": free_host_memory(),
        "shm_free_bytes": free_shared_memory(),
        "network": network().plain(),
        "switch_address": _switch_address(os.environ),
        "switches_above": lldp.above(),
        **_affinity(kind, found.devices),
    }


def _affinity(kind: str, infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Which cards this node's devices are near to; nothing where its wires are not understood."""
    try:
        system = of_devices(kind, infos)
    except (LinkgaugeError, OSError, ValueError, KeyError, TypeError):
        return {}
    return {"near_nics": affinity.near_nics(system), "one_a_nic": affinity.one_a_nic(system)}


def _switch_address(environment: Mapping[str, str]) -> str:
    """The switches above a node by Slurm's topology plug-in; empty where it has none."""
    pattern = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "")
    return environment.get("SLURM_TOPOLOGY_ADDR", "") if pattern.startswith("switch.") else ""


def main() -> None:
    """Say where this rank is; and, as the first on its node that comes, what is there."""
    started = started_by(os.environ)
    where = {"rank": int(started[1]) if started else 0, "host": os.uname().nodename, "node": node_name()}
    # A name that ends with this process: of ranks of one node the first to take it looks, and none leaves a file.
    name = hashlib.blake2b(f"{os.environ.get(MARK, '')} {node_name()}".encode(), digest_size=16).hexdigest()
    with socket.socket(socket.AF_UNIX) as held:
        try:
            held.bind(f"\0linkgauge-{name}")
            first = True
        except OSError:
            first = False
        say({**where, **(look_here(sys.argv[1], int(sys.argv[2])) if first else {})})
        if first:
            remove_elsewhere()


if __name__ == "__main__":
    main()
