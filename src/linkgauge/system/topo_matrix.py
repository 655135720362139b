"""A system from `nvidia-smi topo -m` (or -mp): which GPUs and cards it has, and by what each reaches each other.

The matrix names ways, not rates: links have counts and no rates, models are not known, and what could not be known
is in the system's notes. -mp hides NVLink, -m hides what PCIe lies between GPUs that NVLink joins.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.errors import UsageError
from linkgauge.model.log_text import Line
from linkgauge.system.model import Link, Node, System

TOOL = "nvidia-smi topo -m"
_NAME = r"(?:GPU\d{1,3}|NIC\d{1,3}|(?:mlx|hns|irdma|bnxt_re|efa|rdma|rocep)\w*)"
_HEADING = re.compile(rf"GPU\d{{1,3}}(?:\s+{_NAME})*(?:\s+(?:CPU|NUMA) Affinity|\s+GPU NUMA ID)*\s*$")
_ROW = re.compile(rf"({_NAME})\s+(\S.*)$")
_LEGEND = re.compile(r"(NIC\d{1,3}):\s*([\w.:-]+)$")
_NVLINK = re.compile(r"NV(\d{1,2})$", re.ASCII)
_CORES = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*$", re.ASCII)
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
# From near to far: below one bridge, below several, below one host bridge, at one NUMA node, elsewhere.
_WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_MOST_LINKS = 18  # of one GPU: A100 has 12, H100 to B300 18


def is_matrix(lines: Iterable[Line]) -> bool:
    """Whether lines hold such a matrix: its heading, and a row of a GPU below."""
    heads = [line.head for line in lines]
    return any(_HEADING.match(one) and re.match(r"GPU\d+\s+\S", two) for one, two in itertools.pairwise(heads))


def of_matrix(lines: Sequence[Line], place: str) -> System:
    """The system of the first matrix among lines; UsageError where it contradicts itself or a part is damaged."""
    return _Matrix(lines, place).system()


class _Matrix:
    """A matrix as it is read: `cells` by both names, and of each GPU its CPU and NUMA affinity."""

    def __init__(self, lines: Sequence[Line], place: str) -> None:
        self.place = place
        self.cells: dict[tuple[str, str], str] = {}
        self.affinity: dict[str, dict[str, str]] = {}
        self.legend: dict[str, str] = {}
        start = next(at for at, line in enumerate(lines) if _HEADING.match(line.head))
        heading = lines[start].head
        self.names = re.findall(rf"\b{_NAME}\b", re.sub("GPU NUMA ID|(?:CPU|NUMA) Affinity", "", heading))
        if len(set(self.names)) != len(self.names):
            raise self.fail(lines[start], "a column is there twice")
        columns = [name for name in _AFFINITIES if name in heading]
        for line in lines[start + 1 :]:
            if not line.head or line.head.startswith(("```", "Legend")):
                break
            self._row(line, columns)
        for line in lines[start + 1 :]:
            if match := _LEGEND.match(line.head):
                self.legend[match[1]] = match[2]
        self._check()

    def fail(self, line: Line, what: str) -> UsageError:
        return UsageError(f"{self.place}:{line.number}: {what}: expected the whole output of '{TOOL}'")

    def _row(self, line: Line, columns: Sequence[str]) -> None:
        match = _ROW.match(line.head)
        if not match or match[1] not in self.names or match[1] in self.affinity:
            raise self.fail(line, f"not a row of the matrix: {line.head[:60]!r}")
        name, words = match[1], match[2].split()
        if len(words) < len(self.names):
            raise self.fail(line, f"{len(words)} cells for {len(self.names)} columns")
        for other, word in zip(self.names, words, strict=False):
            if (word != "X") != (name != other) or not (word in ("X", *_WAYS) or _NVLINK.match(word)):
                raise self.fail(line, f"{name} to {other} is {word[:20]!r}, which is no way")
            self.cells[name, other] = word
        said = words[len(self.names) :]
        if len(said) > len(columns):
            raise self.fail(line, f"{len(words)} cells for {len(self.names) + len(columns)} columns")
        self.affinity[name] = dict(zip(columns, said, strict=False))

    def _check(self) -> None:
        for name in self.gpus:
            if name not in self.affinity:
                raise UsageError(f"{self.place}: no row of {name}: expected the whole output of '{TOOL}'")
        for (a, b), way in self.cells.items():
            if self.cells.get((b, a), way) != way:
                ways = f"{way} in its row and {self.cells[b, a]} in the other's"
                raise UsageError(f"{self.place}: {a} to {b} is {ways}: the matrix is damaged")

    @property
    def gpus(self) -> list[str]:
        """In the order of their numbers."""
        return sorted((name for name in self.names if name.startswith("GPU")), key=lambda name: int(name[3:]))

    @property
    def nics(self) -> list[str]:
        """In the order of the columns."""
        return [name for name in self.names if not name.startswith("GPU")]

    def called(self, name: str) -> str:
        """A part's name in the system: gpu0, and a card's as the legend has it."""
        return f"gpu{self.gpus.index(name)}" if name in self.gpus else self.legend.get(name, name.lower())

    def way(self, a: str, b: str) -> str:
        """The cell of two parts; of two cards without rows of their own there is none."""
        return self.cells.get((a, b)) or self.cells.get((b, a), "")

    def joined(self, names: Sequence[str], ways: Sequence[str]) -> dict[str, frozenset[str]]:
        """Of each part all that it reaches by such ways, itself included."""
        groups = {name: {name} for name in names}
        for a, b in itertools.combinations(names, 2):
            if self.way(a, b) in ways and groups[a] is not groups[b]:
                both = groups[a] | groups[b]
                groups |= dict.fromkeys(both, both)
        return {name: frozenset(group) for name, group in groups.items()}

    def system(self) -> System:
        """The system that the matrix tells of."""
        notes = [f"from '{TOOL}', which names no models, memory, rates, or PCIe generations and widths: unknown"]
        hosts, at = self._hosts(notes)
        nodes = [
            Node(self.called(name), "device", vendor="nvidia", ordinal=number, numa=hosts[at[name]].numa)
            for number, name in enumerate(self.gpus)
        ]
        nodes += hosts.values()
        switches, links = self._pcie(hosts, at, notes)
        more, fabric = self._nvlink(notes)
        nodes += [*switches, *more]  # before cards, as in a dump: read again it is the same system
        nodes += [Node(self.called(name), "nic", numa=hosts[at[name]].numa if name in at else None)
                  for name in self.nics]  # fmt: skip
        pairs = itertools.combinations([host.name for host in hosts.values()], 2)
        links += [*fabric, *(Link(a, b, "upi") for a, b in pairs)]
        count = len(self.gpus)
        return System(
            "nvidia-smi-topo", f"{count} NVIDIA GPU{'' if count == 1 else 's'}, as {TOOL} shows them",
            tuple(nodes), tuple(links), notes=tuple(notes),
        )  # fmt: skip

    def _hosts(self, notes: list[str]) -> tuple[dict[str, Node], dict[str, str]]:
        """The NUMA nodes by how the matrix names them, and the one of each part that is near one."""
        at: dict[str, str] = {}
        hosts: dict[str, Node] = {}
        for name in self.gpus:
            said = self.affinity[name]
            cores, numa = said.get("CPU Affinity", ""), said.get("NUMA Affinity", "")
            key = numa if _CORES.match(numa) else cores if _CORES.match(cores) else ""
            at[name] = key
            single = int(numa) if numa.isdecimal() else None
            called = f"numa{single}" if single is not None else f"host{len(hosts)}"
            hosts.setdefault(key, Node(called, "host", numa=single, cores=cores if _CORES.match(cores) else None))
        if any(host.numa is None for host in hosts.values()):
            notes.append("NUMA nodes are not numbered in it: hosts are by CPU affinity")
        for nic in self.nics:
            near = (gpu for way in _WAYS[:-1] for gpu in self.gpus if self.way(gpu, nic) == way)
            gpu = next(near, None)
            if gpu is not None:
                at[nic] = at[gpu]
        for nic in self.nics:
            other = next((one for one in self.nics if one in at and self.way(nic, one) in _WAYS[:-1]), None)
            if nic not in at and other is not None:
                at[nic] = at[other]
        if lost := [self.called(nic) for nic in self.nics if nic not in at]:
            notes.append(f"no GPU is at the NUMA node of {', '.join(lost)}: which one that is, is unknown")
        return hosts, at

    def _pcie(
        self, hosts: Mapping[str, Node], at: Mapping[str, str], notes: list[str]
    ) -> tuple[list[Node], list[Link]]:
        """PCIe switches and the links of each part up to its host."""
        near, far = self.joined(self.names, ("PIX",)), self.joined(self.names, ("PIX", "PXB"))
        switches: dict[str, Node] = {}
        links: dict[tuple[str, str], Link] = {}
        for name in self.names:
            if name not in at:
                continue
            below = self.called(name)
            for level, groups in (("pcie", near), ("pcie upper", far)):
                group = groups[name]
                if len(group) > 1 and (level == "pcie" or group != near[name]):
                    first = next(one for one in self.names if one in group)
                    switch = f"{level} {self.called(first)}"
                    switches.setdefault(switch, Node(switch, "switch", model="PCIe switch", routes=True))
                    links.setdefault((below, switch), Link(below, switch, "pcie"))
                    below = switch
            host = hosts[at[name]].name
            links.setdefault((below, host), Link(below, host, "pcie"))
        if switches:
            notes.append("PIX and PXB are drawn as PCIe switches; two ports of one card are PIX too")
        return list(switches.values()), list(links.values())

    def _nvlink(self, notes: list[str]) -> tuple[list[Node], list[Link]]:
        """NVLink's links: between two GPUs, or to a switch where a GPU has not as many as its row says together."""
        counts: dict[str, dict[str, int]] = {}
        for a, b in itertools.permutations(self.gpus, 2):
            if match := _NVLINK.match(self.way(a, b)):
                counts.setdefault(a, {})[b] = int(match[1])
        if not counts:
            notes.append("no NVLink in it: -mp hides it, -m shows it")
            return [], []
        most = max(_MOST_LINKS, *(count for row in counts.values() for count in row.values()))
        if all(sum(row.values()) <= most for row in counts.values()):
            pairs = ((a, b, count) for a, row in counts.items() for b, count in row.items() if a < b)
            return [], [Link(self.called(a), self.called(b), "nvlink", count) for a, b, count in pairs]
        switches, links = self._switched(counts)
        if len(switches) == 1:
            notes.append(f"a GPU's NV# add up to more than {most} links: they go to NVSwitches, drawn as one")
        else:
            notes.append(
                f"a GPU's NV# add up to more than {most} links: they go to NVSwitches, drawn as one for each of the "
                f"{len(switches)} groups of GPUs that NVLink joins"
            )
        return switches, links

    def _switched(self, counts: Mapping[str, Mapping[str, int]]) -> tuple[list[Node], list[Link]]:
        """A switch for each group of GPUs that NVLink joins: what parts a fabric, parts its switches too."""
        reached: dict[str, frozenset[str]] = {a: frozenset((a, *row)) for a, row in counts.items()}
        for a, row in counts.items():
            for b in row:
                if missing := reached[b] - reached[a]:
                    other = min(missing, key=self.gpus.index)
                    raise UsageError(
                        f"{self.place}: {a} to {other} is {self.way(a, other)}, and NVSwitches join both to {b}: "
                        "the matrix is damaged"
                    )
        groups = list(dict.fromkeys(reached.values()))
        names = ["nvswitch"] if len(groups) == 1 else [f"nvswitch{number}" for number in range(len(groups))]
        called = dict(zip(groups, names, strict=True))
        switches = [Node(name, "switch", model="NVSwitch", routes=True) for name in names]
        return switches, [
            Link(self.called(a), called[reached[a]], "nvlink", max(row.values())) for a, row in counts.items()
        ]
