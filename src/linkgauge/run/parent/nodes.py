"""The nodes that ranks are started on, each as it shows itself: one look a node, before anything is measured.

So many ranks as a launch has are started by its launcher, with its arguments and without MPI; what they say is in
run/parent/node.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.grouped import grouped
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.launchers import launcher_for
from linkgauge.run.machine.binding import cores_by_rank
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import FIX, chosen, chosen_below, wrong_choices
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent import first_look
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.node import Node, nodes_of, said_shape
from linkgauge.run.parent.rank_words import shaped, words_of_ranks
from linkgauge.system import affinity, lldp
from linkgauge.system.switches import Switches, of_addresses, of_text

_LOOK = (sys.executable, "-m", "linkgauge.run.parent.node")
_TIMEOUT_S = 120
# Of a node that is asked alone whether it answers: ssh by itself waits for two minutes.
_ONE_TIMEOUT_S = 30
_AT_ONCE = 32


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
        """Take this node's devices, who hears how nodes differ, and the switches of the nodes where they were given.

        `before`, of tests only: what the ranks' command begins with. Nodes are then always looked at. Without `look`
        nothing is started, and they are taken to be as this one. `keep_going`: without nodes that do not answer.
        `folder`: of the run, made or not, which all nodes are to see.
        """
        self._keep_going = keep_going
        self._folder = folder
        self.gone: dict[str, str] = {}  # hosts that the run goes on without, and why
        self.lossy: dict[frozenset[str], str] = {}  # each two that lose large packets between them, and that in words
        self.start_s = 0.0  # what the first start of a rank on each node took; 0: none has been started
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
            began = time.monotonic()
            said = shaped(words_of_ranks(mpi, ranks, command, launcher_args, folders, _TIMEOUT_S, hosts), said_shape)
            self.start_s = self.start_s or time.monotonic() - began
            found = said if isinstance(said, str) else nodes_of(said, ranks)
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
        those on which the launcher then starts no rank, as long as there are others. Two that lose packets of full size
        only with each other are `lossy`.
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
        """Of these hosts those that cannot be used, and why; none where nothing is known to look through."""
        shell = launcher_for(mpi).node_shell(launcher_args)
        if shell is None:
            return {}
        found = first_look.look(shell, hosts, first_look.expected(mpi, environment, self._folder))
        for host, one in found.items():
            for words in one.warnings:
                self._note(f"warning: node {host}: {words}")
            for words in one.lossy.values():
                self._note(f"warning: {words}; the run continues without the cases of both nodes")
            self.lossy |= {frozenset((host, other)): words for other, words in one.lossy.items()}
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
        """The switches of these nodes: as given, or as Slurm, its controller or LLDP tell; None: nobody says."""
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


def nodes_info(
    before: Mapping[str, Any], nodes: Sequence[Node], switches: Switches | None, *, whole: bool
) -> dict[str, Any]:
    """What run.json says of these nodes; `whole`: the run has no others, whose words in `before` stay else."""
    said = {node.host: node.plain() for node in nodes}
    if not whole:
        said = {node["host"]: node for node in before.get("nodes", ())} | said
    if switches is None:
        return {"nodes": list(said.values())}
    above = {} if whole else before.get("switches", {}).get("above", {})
    together = dataclasses.replace(switches, above={**above, **switches.above})
    return {"nodes": list(said.values()), "switches": together.plain()}


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
    alike = grouped((node.words(), node.host) for node in nodes)
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
    near = grouped((affinity.words(node.near_nics), node.host) for node in nodes if node.near_nics)
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


def _scontrol(environment: Mapping[str, str]) -> Switches | None:
    """What Slurm's controller says of a job's network; None without a job, a network or leave to ask."""
    if "SLURM_JOB_ID" not in environment or shutil.which("scontrol") is None:
        return None
    with contextlib.suppress(NoAnswerError, UsageError):
        return of_text(output_of(["scontrol", "show", "topology"], 30).stdout, "scontrol show topology")
    return None
