"""The doctor on every node at once: each node's checks and facts, and what differs between them, the majority first.

One rank a node, started as a run's ranks are but without MPI, looks and says what it found
(`linkgauge.doctor.one_node`).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.doctor.check import CHECKS, FAILING, NOT_CHECKED, OK, WARNING, load
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.grouped import grouped
from linkgauge.model.shape import each, label, mapping, number, one_of, table, text
from linkgauge.run.launchers import launcher_for
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import FIX, NETWORK_SHAPE, Network, chosen, wrong_choices
from linkgauge.run.parent import first_look
from linkgauge.run.parent.nodes import ask_each_alone
from linkgauge.run.parent.rank_words import shaped, words_of_ranks

START = "start of ranks"  # the check of whether ranks can be started on each node
MOST_S = 180
"""How long all nodes together may take."""
_GRAVE = {FAILING: 0, WARNING: 1, NOT_CHECKED: 2, OK: 3}
_ROW = {"check": label, "status": one_of(tuple(_GRAVE)), **dict.fromkeys(("finding", "cost", "fix"), text)}
_SAID = {
    "host": label, "date": number(), "rows": each(table(_ROW, needed=_ROW)), "facts": mapping(text),
    "network": NETWORK_SHAPE,
}  # fmt: skip
_CLOCK_S = 1.0  # two nodes' dates that differ by less are alike: ranks do not look at one moment


@dataclasses.dataclass(frozen=True)
class OnNodes:
    """One thing looked at, and what was found of it on which nodes: what most have first.

    `status`: the gravest. `cost` and `fix` are those of the gravest finding.
    """

    name: str
    status: str
    found: tuple[tuple[str, str, tuple[str, ...]], ...]  # status, finding, hosts
    cost: str = ""
    fix: str = ""

    @property
    def differs(self) -> bool:
        """Whether not all nodes have it alike."""
        return len(self.found) > 1


def look_on_nodes(mpi: MpiInstallation, hosts: Sequence[str], devices: str) -> list[OnNodes]:
    """All checks and facts of those of these nodes that can be looked at, and why others cannot.

    EnvironmentLackingError where none can.
    """
    command = [sys.executable, "-m", "linkgauge.doctor.one_node", devices]
    shell = launcher_for(mpi).node_shell(())
    met = {} if shell is None else first_look.look(shell, hosts, first_look.expected(mpi, os.environ, None))
    silent = {host: "; ".join(one.problems) for host, one in met.items() if one.problems}
    lossy = {host: "; ".join(one.lossy.values()) for host, one in met.items() if one.lossy}
    left = [host for host in hosts if host not in silent]
    shape = table(_SAID, needed=_SAID)
    words = words_of_ranks(mpi, len(left), command, (), timeout_s=MOST_S, hosts=left) if left else []
    said = shaped(words, shape)
    if isinstance(said, str) and not isinstance(words, str):
        raise EnvironmentLackingError(f"the doctor cannot be started on {len(hosts)} nodes: {said}")
    if isinstance(said, str) or len({one["host"] for one in said}) < len(left):  # which it is, each by itself tells
        each_said = {host: shaped(one, shape) for host, one in
                     ask_each_alone(mpi, left, command, ()).items()}  # fmt: skip
        silent |= {host: one for host, one in each_said.items() if isinstance(one, str)}
        said = [one for found in each_said.values() if not isinstance(found, str) for one in found]
    if not said:
        host, why = next(iter(silent.items()), (hosts[0], "no words came"))
        raise EnvironmentLackingError(f"the doctor cannot be started on any of {len(hosts)} nodes; {host}: {why}")
    harmed = {host: "; ".join(one.warnings) for host, one in met.items() if one.warnings and host not in silent}
    between = way_between(mpi, {str(one["host"]): Network.of_plain(one["network"]) for one in said})
    return [_starts(hosts, silent, lossy, harmed), *compared(said), between]


def _starts(
    hosts: Sequence[str], silent: Mapping[str, str], lossy: Mapping[str, str], harmed: Mapping[str, str]
) -> OnNodes:
    """Whether ranks can be started on each host, which two cannot be used together, and what may harm ranks."""
    well = tuple(host for host in hosts if host not in silent and host not in lossy and host not in harmed)
    found = [(OK, "ranks can be started", well)] if well else []
    for status, words_of in ((FAILING, silent), (FAILING, lossy), (WARNING, harmed)):
        found += [(status, words, (host,)) for host, words in words_of.items()]
    status = FAILING if silent or lossy else WARNING if harmed else OK
    cost = fix = ""
    if silent:
        cost, fix = "a run cannot use it; --keep-going nodes leaves it out", f"try 'ssh {next(iter(silent))}'"
    elif lossy:
        cost, fix = "a run leaves out the cases of both nodes", "set one MTU on all nodes and switches"
    return OnNodes(START, status, tuple(found), cost, fix)


def way_between(mpi: MpiInstallation, nodes: Mapping[str, Network]) -> OnNodes:
    """Which interface the MPI library takes between these nodes, and what is wrong with it.

    `nodes`: by host what each has. A bridge of containers, or a management network, is a warning.
    """
    first = next(iter(nodes.values()))
    choice = chosen(mpi.vendor, mpi.version_text, os.environ, first)
    wrong = wrong_choices(choice, nodes)
    taken = f"{', '.join(choice.names) or 'nothing that is known'}: {choice.why}"
    status, words = (WARNING, f"{taken}; {'; '.join(wrong)}") if wrong else (OK, taken)
    cost = "messages between nodes fail, or go by a slower network" if wrong else ""
    return OnNodes(f"network of {mpi.name}", status, ((status, words, tuple(nodes)),), cost,
                   FIX.removeprefix("fix: ") if wrong else "")  # fmt: skip


def compared(said: Sequence[Mapping[str, Any]]) -> list[OnNodes]:
    """What nodes have said of themselves, thing by thing: `host`, `rows` of checks, `facts`, and `date` in seconds."""
    load()
    momentary = {name for name, one in CHECKS.items() if one.momentary}
    things: list[tuple[str, tuple[str, str, str, str, str]]] = []
    first: dict[tuple[str, str], str] = {}  # by momentary check and status: the finding that stands for all
    for node in sorted(said, key=lambda node: node["host"]):
        host = node["host"]
        things += [(name, (OK, value, host, "", "")) for name, value in node["facts"].items()]
        for row in node["rows"]:
            finding = row["finding"]
            if row["check"] in momentary:
                finding = first.setdefault((row["check"], row["status"]), finding)
            things.append((row["check"].replace("_", " "), (row["status"], finding, host, row["cost"], row["fix"])))
    found = [joined(name, told, {node["host"] for node in said}) for name, told in grouped(things).items()]
    return [*found, _dates(said)]


def joined(name: str, told: Sequence[tuple[str, str, str, str, str]], hosts: set[str]) -> OnNodes:
    """One thing as it was found on nodes: `told` has status, finding, host, cost and fix of each."""
    alike = grouped(((status, finding), host) for status, finding, host, _, _ in told)
    if missing := hosts - {host for _, _, host, _, _ in told}:
        alike[OK, "none"] = sorted(missing)
    ordered = sorted(alike.items(), key=lambda item: (-len(item[1]), _GRAVE[item[0][0]]))
    gravest = min(told, key=lambda one: _GRAVE[one[0]])
    found = tuple((status, finding, tuple(on)) for (status, finding), on in ordered)
    return OnNodes(name, gravest[0], found, gravest[3], gravest[4])


def _dates(said: Sequence[Mapping[str, Any]]) -> OnNodes:
    """How far the nodes' dates lie apart, as far as they were asked at one moment."""
    dates = sorted((node["date"], node["host"]) for node in said)
    middle = dates[len(dates) // 2][0]
    alike = tuple(host for date, host in dates if abs(date - middle) <= _CLOCK_S)
    apart = [(OK, f"{date - middle:+.1f} s from most", (host,)) for date, host in dates if host not in alike]
    return OnNodes("date", OK, ((OK, f"within {_CLOCK_S:g} s", alike), *apart))
