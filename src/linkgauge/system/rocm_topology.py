"""A system from `rocm-smi --showtopo`: which GPUs xGMI joins directly, and at which NUMA node each is.

The matrices name kinds of links and hops, not counts and rates: what could not be known is in the system's notes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from linkgauge.errors import UsageError
from linkgauge.model.log_text import Line
from linkgauge.system.model import Link, Node, System

TOOL = "rocm-smi --showtopo"
_TITLE = re.compile(
    r"=+ (?P<what>Weight|Hops|Link Type|Link accessibility|Numa Nodes|[\w ]+?)(?: between two GPUs)? =+$"
)
_HEADING = re.compile(r"GPU\d{1,3}(?:\s+GPU\d{1,3})*$")
_ROW = re.compile(r"(GPU\d{1,3})\s+(\S.*)$")
_NUMA = re.compile(r"GPU ?\[?(\d{1,3})\]?\s*: \(Topology\) Numa Node:\s*(-?\d{1,3})$")


def is_topology(lines: Sequence[Line]) -> bool:
    """Whether it has the matrix of kinds of links."""
    return any("Link Type between two GPUs" in line.head for line in lines)


def of_topology(lines: Sequence[Line], place: str) -> System:
    """The system of its matrices; UsageError where one contradicts itself or a part is damaged."""
    matrices, numas = _read(lines, place)
    kinds, hops = matrices.get("Link Type", {}), matrices.get("Hops", {})
    names = sorted({name for pair in kinds for name in pair}, key=lambda name: int(name[3:]))
    if not names:
        raise UsageError(f"{place}: no matrix of link types: expected the whole output of '{TOOL}'")
    notes = [f"from '{TOOL}', which names no models, memory, counts of links and rates: unknown"]
    hosts = {numa: Node(f"numa{max(0, numa)}", "host", numa=max(0, numa)) for numa in sorted(set(numas.values()))}
    if set(numas) != {int(name[3:]) for name in names}:
        hosts, numas = {0: Node("host0", "host")}, dict.fromkeys((int(name[3:]) for name in names), 0)
        notes.append("NUMA nodes are not in it: all GPUs are drawn at one host")
    links = []
    nodes: list[Node] = []
    for ordinal, name in enumerate(names):
        host = hosts[numas[int(name[3:])]]
        nodes.append(Node(f"gpu{ordinal}", "device", vendor="amd", ordinal=ordinal, numa=host.numa))
        links.append(Link(f"gpu{ordinal}", host.name, "pcie"))
    nodes += hosts.values()
    far = 0
    for at, a in enumerate(names):
        for b in names[at + 1 :]:
            kind = kinds.get((a, b))
            if kind != kinds.get((b, a)) or kind not in ("XGMI", "PCIE"):
                both = f"{str(kind)[:20]} and {str(kinds.get((b, a)))[:20]}"
                raise UsageError(f"{place}: {a} to {b} is {both}: the matrix is damaged: expected all of '{TOOL}'")
            if kind == "XGMI" and hops.get((a, b), "1") == "1":
                links.append(Link(f"gpu{names.index(a)}", f"gpu{names.index(b)}", "xgmi"))
            far += kind == "XGMI" and hops.get((a, b), "1") != "1"
    if any(link.kind == "xgmi" for link in links):
        notes.append("each direct xGMI connection is drawn as one link: how many there are is unknown")
        if not hops:
            notes.append("hops are not in it: each xGMI connection is taken as a direct one")
    if far:
        notes.append(f"{far} pairs reach each other by xGMI in several hops: no link of their own")
    order = sorted(hosts.values(), key=lambda node: node.name)
    links += [Link(a.name, b.name, "infinity_fabric") for at, a in enumerate(order) for b in order[at + 1 :]]
    title = f"{len(names)} AMD GPU{'' if len(names) == 1 else 's'}, as {TOOL} shows them"
    return System("rocm-smi-topology", title, tuple(nodes), tuple(links), notes=tuple(notes))


def _read(lines: Sequence[Line], place: str) -> tuple[dict[str, dict[tuple[str, str], str]], dict[int, int]]:
    matrices: dict[str, dict[tuple[str, str], str]] = {}
    numas: dict[int, int] = {}
    what = ""
    columns: list[str] = []
    for line in lines:
        if match := _TITLE.match(line.head):
            what, columns = match["what"], []
        elif _HEADING.match(line.head):
            columns = line.head.split()
        elif match := _NUMA.match(line.head):
            numas[int(match[1])] = int(match[2])
        elif (match := _ROW.match(line.head)) and what:
            cells = match[2].split()
            cell_of = matrices.setdefault(what, {})
            if (
                not columns
                or len(cells) != len(columns)
                or match[1] not in columns
                or (match[1], columns[0]) in cell_of
            ):
                raise UsageError(f"{place}:{line.number}: not a row of the matrix: {line.head[:60]!r}")
            cell_of |= {(match[1], column): cell for column, cell in zip(columns, cells, strict=True)}
    for what, cells_of in matrices.items():
        named = {name for pair in cells_of for name in pair}
        if len(cells_of) != len(named) ** 2:
            raise UsageError(f"{place}: rows of the matrix {what!r} are missing: expected the whole output of '{TOOL}'")
    return matrices, numas
