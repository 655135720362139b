"""The nodes that ranks are started on, each as it shows itself: one look a node, before anything is measured.

So many ranks as a launch has are started by its launcher, with its arguments and without MPI; the first of each node
looks for devices there, and all say where they are. `python -m linkgauge.run.parent.nodes KIND DEVICES` is such a rank.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import EnvironmentLackingError, LinkgaugeError, UsageError
from linkgauge.model.shape import (
    as_it_is,
    each,
    label,
    mapping,
    parsed_by,
    table,
    text,
    whole,
)
from linkgauge.owner import node_name
from linkgauge.plan.machine import PlanMachine, free_shared_memory, numa_nodes
from linkgauge.run.launchers import launcher_for, started_by
from linkgauge.run.machine.binding import cores_by_rank, node_cores
from linkgauge.run.machine.interfaces import FIX, NETWORK_SHAPE, Network, chosen, chosen_below, network, wrong_choices
from linkgauge.run.machine.private_folder import PrivateFolders, remove_elsewhere
from linkgauge.run.machine.processes import MARK
from linkgauge.run.parent import first_look
from linkgauge.run.parent.devices import DEVICES_SHAPE, DeviceSet, probe
from linkgauge.run.parent.mpi_library import MpiInstallation
from linkgauge.run.parent.rank_words import say, shaped, words_of_ranks
from linkgauge.system import affinity, lldp
from linkgauge.system.allowance import available_cores, free_host_memory
from linkgauge.system.discovery import of_devices
from linkgauge.system.switches import Switches, of_addresses, of_text

_LOOK = (sys.executable, "-m", "linkgauge.run.parent.nodes")
_TIMEOUT_S = 120
# Of a node that is asked alone whether it answers: ssh by itself waits for two minutes.
_ONE_TIMEOUT_S = 30
_AT_ONCE = 32


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


class Nodes:
    """The nodes of a run's launches, looked at once for each way of starting them.

    Where all ranks are on this process' node there is nothing to look at, and what it sees itself stands.
    """

    def __init__(
        self,
        devices: DeviceSet,
        tell: Callable[[str], None],
        before: Sequence[str] = (),
        switches: Switches | None = None,
        *,
        look: bool = True,
        keep_going: bool = False,
        folder: Path | None = None,
    ) -> None:
        """Take this node's devices, who is told how nodes differ, and which switches nodes hang on where it was given.

        `before`, of tests only: what the ranks' command begins with. Nodes are then always looked at. Without `look`
        nothing is started, and they are taken to be as this one. `keep_going`: without nodes that do not answer.
        `folder`: of the run, made or not, which all nodes are to see.
        """
        self._keep_going = keep_going
        self._folder = folder
        self.gone: dict[str, str] = {}  # hosts that the run goes on without, and why
        self._look = look
        self._devices = devices
        self._switches = switches
        self._tell = tell
        self._before = before
        self._known: dict[tuple[object, ...], tuple[Node, ...]] = {}
        self._told: set[str] = set()
        self._met: set[tuple[object, ...]] = set()

    def of(
        self,
        mpi: MpiInstallation | None,
        ranks: int,
        launcher_args: Sequence[str],
        hosts: Sequence[str] = (),
        folders: PrivateFolders | None = None,
    ) -> tuple[Node, ...]:
        """The nodes of a launch in the order of their first ranks; none where all ranks are here, or are not known.

        `hosts` and `folders` as `words_of_ranks` takes them. EnvironmentLackingError that names node and device where a
        node lacks one of the run's, or that says what is wrong where hosts are asked for and ranks are not so on them.
        """
        if not self._look or mpi is None or not (self._before or hosts or launcher_for(mpi).may_leave(launcher_args)):
            return ()
        key = (mpi.launcher, ranks, tuple(launcher_args), tuple(hosts))
        if key not in self._known:
            command = [*self._before, *_LOOK, self._devices.kind, str(self._devices.count)]
            said = shaped(words_of_ranks(mpi, ranks, command, launcher_args, folders, _TIMEOUT_S, hosts), _said)
            found = said if isinstance(said, str) else _nodes(said, ranks)
            if hosts and isinstance(found, str) and len(hosts) > 1 and not self._keep_going:
                for host, why in self._silent(mpi, hosts, launcher_args, folders).items():
                    self._note(f"warning: no rank can be started on node {host}: {why}")
            if hosts:
                _check_places(found, ranks, hosts)
            if isinstance(found, str):
                self._note(f"warning: all nodes are taken to be as this one, since a look at them failed: {found}")
                found = ()
            for text in differences(found):
                self._note(f"warning: {text}")
            for node in found:
                _check(node, self._devices)
            self._known[key] = found
        return self._known[key]

    def meet(
        self,
        mpi: MpiInstallation,
        hosts: Sequence[str],
        launcher_args: Sequence[str],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Look at each of these hosts by itself before any launcher is started, each once for an MPI library.

        EnvironmentLackingError where one cannot be used, after a line for each; `keep_going`: those are left out, and
        those on which the launcher then starts no rank, as long as there are others.
        """
        asked = [host for host in hosts if host not in self.gone]
        if not self._look or self._before or not asked or (mpi.library, *asked) in self._met:
            return
        self._met.add((mpi.library, *asked))
        found = self._first_look(mpi, asked, launcher_args, environment)
        if found and (not self._keep_going or len(found) == len(asked)):
            for host, why in found.items() if len(found) > 1 else ():
                self._note(f"warning: node {host} cannot be used: {why}")
            first, why = next(iter(found.items()))
            others = f"; {', '.join(list(found)[1:9])}: see above" if len(found) > 1 else ""
            fix = "" if len(found) == len(asked) else ": mend them, or leave them out with --keep-going nodes"
            raise EnvironmentLackingError(
                f"{len(found)} of {len(asked)} nodes cannot be used: {first}: {why}{others}{fix}"
            )
        self._leave_out(found)
        if self._keep_going:
            rest = [host for host in asked if host not in found]
            self._leave_out(self._silent(mpi, rest, launcher_args, None))

    def _first_look(
        self, mpi: MpiInstallation, hosts: Sequence[str], launcher_args: Sequence[str],
        environment: Mapping[str, str] = os.environ,
    ) -> dict[str, str]:  # fmt: skip
        """Of these hosts those that cannot be used, and why; none where no remote shell is to be looked through."""
        shell = launcher_for(mpi).remote_shell(launcher_args)
        if shell is None:
            return {}
        found = first_look.look(shell, hosts, first_look.expected(mpi, environment, self._folder))
        for host, one in found.items():
            for words in one.warnings:
                self._note(f"warning: node {host}: {words}")
        return {host: "; ".join(one.problems) for host, one in found.items() if one.problems}

    def lose_silent(
        self, mpi: MpiInstallation, hosts: Sequence[str], launcher_args: Sequence[str], folders: PrivateFolders | None
    ) -> bool:
        """Add to `gone` the hosts on which no rank can be started; whether there are any that were not there.

        EnvironmentLackingError where none answers.
        """
        asked = [host for host in hosts if host not in self.gone]
        if not self._keep_going or not self._look or not asked:
            return False
        found = self._first_look(mpi, asked, launcher_args) or self._silent(mpi, asked, launcher_args, folders)
        if len(found) == len(asked):
            raise EnvironmentLackingError(f"no node answers; {asked[0]}: {found[asked[0]]}")
        self._leave_out(found)
        return bool(found)

    def _silent(
        self, mpi: MpiInstallation, hosts: Sequence[str], launcher_args: Sequence[str], folders: PrivateFolders | None
    ) -> dict[str, str]:
        """Of these hosts those on which the launches' own launcher starts no rank, each asked alone, and why."""
        command = [*self._before, *_LOOK, self._devices.kind, str(self._devices.count)]
        said = ask_each_alone(mpi, hosts, command, launcher_args, folders)
        found = {host: words for host, words in said.items() if isinstance(words, str)}
        if hosts and len(found) == len(hosts):
            raise EnvironmentLackingError(f"no node answers; {hosts[0]}: {found[hosts[0]]}")
        return found

    def _leave_out(self, found: Mapping[str, str]) -> None:
        for host, why in found.items():
            self._note(f"warning: node {host} does not answer, and the run continues without it: {why}")
        self.gone |= found

    def switches(self, nodes: Sequence[Node]) -> Switches | None:
        """Which switches these nodes hang on: as given, as Slurm, its controller or LLDP tell; None: nobody says."""
        if self._switches is not None:
            return self._switches
        found = of_addresses({node.host: node.switch_address for node in nodes}) or _scontrol(os.environ)
        if found is not None and all(node.host in found.above for node in nodes):
            return found
        heard = {node.host: node.switches_above for node in nodes}
        return Switches(heard, lldp.SOURCE) if all(heard.values()) else None

    def above(self, nodes: Sequence[Node], hosts: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
        """Of each of these nodes, or of `hosts` where none was looked at, its switches; None where nobody says."""
        names = [node.host for node in nodes] or hosts
        switches = self.switches(nodes) if len(names) > 1 else None
        return None if switches is None else {name: switches.above.get(name, ()) for name in names}

    def _note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def ask_each_alone(
    mpi: MpiInstallation, hosts: Sequence[str], command: Sequence[str], launcher_args: Sequence[str] = (),
    folders: PrivateFolders | None = None,
) -> dict[str, list[Any] | str]:  # fmt: skip
    """What a rank of a command says on each of these hosts, or why none can be started there; many at a time."""
    own = folders or PrivateFolders()

    def said(at: int) -> list[Any] | str:
        return words_of_ranks(mpi, 1, command, launcher_args, own, _ONE_TIMEOUT_S, (hosts[at],), number=-2 - at)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(hosts, pool.map(said, range(len(hosts))), strict=True))
    finally:
        if folders is None:
            own.close()


def differences(nodes: Sequence[Node]) -> list[str]:
    """What sets the nodes apart, in one sentence, what most of them have first; nothing where all are alike."""
    alike: dict[str, list[str]] = {}
    for node in nodes:
        alike.setdefault(node.words(), []).append(node.host)
    if len(alike) < 2:
        return []
    kinds = sorted(alike.items(), key=lambda item: -len(item[1]))
    return ["nodes differ: " + "; ".join(f"{', '.join(hosts)}: {words}" for words, hosts in kinds)]


def ways_between(
    mpi: MpiInstallation, environment: Mapping[str, str], nodes: Sequence[Node], transports: Iterable[str] = (),
    kind: str = "",
) -> list[str]:  # fmt: skip
    """Which interface each library will use between these nodes, and what is wrong with it; nothing for one node.

    `transports`: those of the cases, on devices of that kind.
    """
    if len(nodes) < 2:
        return []
    networks, first = {node.host: node.network for node in nodes}, nodes[0].network
    choices = {mpi.name: chosen(mpi.vendor, mpi.version_text, environment, first)}
    choices |= dict(filter(None, (chosen_below(name, kind, environment, first) for name in sorted(set(transports)))))
    known = {one.name: one.words for one in first.interfaces}
    said = []
    for name, choice in choices.items():
        words = ", ".join(known.get(one, one) for one in choice.names) or "nothing that is known"
        said.append(f"between nodes {name} will use {words}: {choice.why}")
    near: dict[str, list[str]] = {}
    for node in nodes:
        if node.near_nics:
            near.setdefault(affinity.words(node.near_nics), []).append(node.host)
    for cards, hosts in near.items():
        said.append(f"network cards near to devices{'' if len(near) == 1 else ' of ' + ', '.join(hosts)}: {cards}")
    wrong = [(name, one) for name, choice in choices.items() for one in wrong_choices(choice, networks)]
    return said + [f"warning: {name}: {one}; {FIX}" for name, one in wrong]


def least(machine: PlanMachine, nodes: Sequence[Node]) -> PlanMachine:
    """What all nodes have of what a plan asks of a machine: the machine itself where there are none."""
    if not nodes:
        return machine
    free = [int(info.get("free_bytes", 0)) for node in nodes for info in node.devices.values()]
    host = min(node.host_free_bytes for node in nodes)
    return dataclasses.replace(
        machine,
        device_free_bytes=min(free, default=0) or host,
        host_free_bytes=host,
        shm_free_bytes=min(node.shm_free_bytes for node in nodes),
        cores=min(node.cores for node in nodes),
        memory_nodes=_common([node.memory_nodes for node in nodes]) or machine.memory_nodes,
        core_nodes=_common([node.core_nodes for node in nodes]) or machine.core_nodes,
        one_a_nic=nodes[0].one_a_nic if len({node.one_a_nic for node in nodes}) == 1 else (),
    )


def cores_there(
    nodes: Sequence[Node], bind: str, devices: Sequence[int], ordinals: Sequence[int]
) -> list[list[int]] | None:
    """The cores of each rank, of its own node; as `cores_by_rank`, which it asks for each node."""
    if bind == "none":
        return None
    if bind != "nearest":
        return cores_by_rank(bind, devices, [], sorted({core for node in nodes for core in node.allowed}))
    cores: list[list[int]] = [[] for _ in devices]
    for node in nodes:
        infos = [node.devices.get(ordinal, {}) for ordinal in ordinals]
        mine = [devices[rank] % len(ordinals) for rank in node.ranks]
        for rank, own in zip(node.ranks, cores_by_rank(bind, mine, infos, node.allowed, node.near) or [], strict=True):
            cores[rank] = own
    return cores


def _common(each: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(set(each[0]).intersection(*each[1:])))


def _check_places(found: tuple[Node, ...] | str, ranks: int, hosts: Sequence[str]) -> None:
    """EnvironmentLackingError where the ranks are not on as many nodes as hosts, node after node, as many on each."""
    named = f"{len(hosts)} node{'' if len(hosts) == 1 else 's'} ({', '.join(hosts[:8])}{', ...' if hosts[8:] else ''})"
    if isinstance(found, str):
        raise EnvironmentLackingError(f"no ranks can be started on {named}: {found}")
    each = ranks // len(hosts)
    wanted = [tuple(range(first, first + each)) for first in range(0, ranks, each)]
    if not found and len(hosts) == 1:
        return  # it is this one
    if [node.ranks for node in found] != wanted:
        are = "; ".join(f"{node.host}: {', '.join(map(str, node.ranks[:8]))}" for node in found[:8]) or "all here"
        same = "" if len(found) >= len(hosts) else "; hosts that share a boot id are one node"
        raise EnvironmentLackingError(f"ranks are not on {named} in this order, {each} on each, but on {are}{same}")


def _check(node: Node, devices: DeviceSet) -> None:
    for ordinal in devices.ordinals:
        if ordinal not in node.devices:
            has = ", ".join(map(str, node.devices)) or f"none ({node.reason})"
            raise EnvironmentLackingError(
                f"node {node.host} has no {devices.kind} device {ordinal}: it has {has}; give --devices that all nodes "
                "have, or leave the node out"
            )


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


def _said(value: Any, at: str) -> Any:
    """What a rank says: where it is; and, as the first of its node, what is there."""
    place: dict[str, Any] = table(_PLACE, as_it_is, _PLACE)(value, at)
    return table({**_FOUND, **_LATER}, as_it_is, _FOUND)(place, at) if "devices" in place else place


def _nodes(said: Sequence[Mapping[str, Any]], ranks: int) -> tuple[Node, ...] | str:
    """The nodes that ranks told of, none where all are on this one; or why they are not known."""
    looks = {one["node"]: one for one in said if "devices" in one}
    of_node: dict[str, list[int]] = {}
    for one in sorted(said, key=lambda one: one["rank"]):
        of_node.setdefault(one["node"], []).append(one["rank"])
    if sorted(rank for of in of_node.values() for rank in of) != list(range(ranks)):
        return "not all ranks said where they are"
    if of_node.keys() != looks.keys():
        return "not all nodes said what they have"
    if of_node.keys() == {node_name()}:
        return ()
    return tuple(_node(looks[name], of) for name, of in of_node.items())


def _node(look: Mapping[str, Any], ranks: Sequence[int]) -> Node:
    return Node(
        host=look["host"],
        ranks=tuple(ranks),
        devices={info["ordinal"]: info for info in look["devices"]},
        reason=look["reason"],
        cores=look["cores"],
        allowed=tuple(look["allowed"]),
        near=look["near"],
        memory_nodes=tuple(look["memory_nodes"]),
        core_nodes=tuple(look["core_nodes"]),
        host_free_bytes=look["host_free_bytes"],
        shm_free_bytes=look["shm_free_bytes"],
        network=Network.of_plain(look["network"]) if "network" in look else Network(),
        switch_address=look.get("switch_address", ""),
        switches_above=tuple(look.get("switches_above", ())),
        near_nics={ordinal: tuple(cards) for ordinal, cards in look.get("near_nics", {}).items()},
        one_a_nic=tuple(look.get("one_a_nic", ())),
    )


def _look(kind: str, count: int) -> dict[str, Any]:
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


def _scontrol(environment: Mapping[str, str]) -> Switches | None:
    """What Slurm's controller says of a job's network; None without a job, a network or leave to ask."""
    if "SLURM_JOB_ID" not in environment or shutil.which("scontrol") is None:
        return None
    with contextlib.suppress(NoAnswerError, UsageError):
        return of_text(output_of(["scontrol", "show", "topology"], 30).stdout, "scontrol show topology")
    return None


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
        say({**where, **(_look(sys.argv[1], int(sys.argv[2])) if first else {})})
        if first:
            remove_elsewhere()


if __name__ == "__main__":
    main()
