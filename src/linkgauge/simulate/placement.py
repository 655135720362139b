"""Which nodes jobs run on: placements by name, seeded where they are drawn, and lists of nodes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from linkgauge.errors import UsageError, not_one_of, one_line
from linkgauge.model.taking import BY_SWITCH
from linkgauge.simulate.arrays import Ints, Mask
from linkgauge.simulate.fabric import Fabric

PLACEMENTS = {
    "packed": "the fewest groups, and in them the fewest switches: those with most free nodes first",
    "linear": "the next free nodes in the fabric's order",
    "random": "free nodes anywhere, drawn by the seed; ranks follow the fabric's order, as batch systems list nodes",
    "shuffled": "the same nodes, ranks in the order drawn",
    "interleaved": "jobs together take a linear run and share it out in turn, node by node",
    "spread": "one node of each group in turn, of a group's one of each switch in turn",
    "groups": "groups:64,64,32: so many of the first free nodes of the first, second, third group",
    "over": "over:K: as evenly as can be over K groups, nodes in them drawn by the seed",
    "nodes": "nodes:LIST: the nodes named, as Slurm writes them (lrdn[0001-0016]) or by number (0-15,32)",
}
_ITEM = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*?)?(\d{1,9}|\[[0-9,\-]{1,100000}\])")
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclasses.dataclass(frozen=True)
class Placement:
    """A placement's name, what stands behind its colon, and the seed of what is drawn."""

    name: str = "packed"
    detail: str = ""
    seed: int = 0

    def __str__(self) -> str:
        """As it would be written."""
        drawn = f" (seed {self.seed})" if self.name in ("random", "shuffled", "over") else ""
        return f"{self.name}{':' if self.detail else ''}{one_line(self.detail[:60])}{drawn}"


def parse_placement(text: str, seed: int = 0) -> Placement:
    """A placement as people write it; UsageError naming those there are."""
    name, _, detail = text.partition(":")
    if name not in PLACEMENTS:
        raise UsageError(f"unknown placement '{name[:40]}'{not_one_of(name, PLACEMENTS)}")
    if (name in ("groups", "over", "nodes")) != bool(detail):
        says = PLACEMENTS[name]
        raise UsageError(f"placement '{text[:60]}': expected {says if detail == '' else name + ' alone'}")
    return Placement(name, detail, seed)


def place(fabric: Fabric, counts: Sequence[int], placement: Placement) -> list[Ints]:
    """The nodes of each job, in the order of its ranks; `counts` says how many each takes. UsageError if too few."""
    if any(count < 1 for count in counts):
        raise UsageError("a job of 0 nodes: expected 1 or more")
    if sum(counts) > fabric.nodes:
        raise UsageError(f"{sum(counts)} nodes requested: {fabric.name} has {fabric.nodes}")
    if placement.name == "interleaved" and len(counts) > 1:
        return _interleaved(counts)
    free = np.ones(fabric.nodes, dtype=bool)
    drawn = np.random.default_rng(placement.seed)
    jobs = []
    for count in counts:
        nodes = _one(fabric, count, placement, free, drawn)
        free[nodes] = False
        jobs.append(nodes)
    return jobs


def _interleaved(counts: Sequence[int]) -> list[Ints]:
    # Where one job has more nodes than another, those left over follow at the end.
    turns = np.concatenate([np.arange(count) for count in counts])
    owner = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((owner, turns))
    return [np.flatnonzero(owner[order] == job) for job in range(len(counts))]


def _one(fabric: Fabric, count: int, placement: Placement, free: Mask, drawn: np.random.Generator) -> Ints:
    there = np.flatnonzero(free)
    name = placement.name
    if name in ("linear", "interleaved"):
        return there[:count]
    if name in ("random", "shuffled"):
        found = drawn.permutation(there)[:count]
        return np.sort(found) if name == "random" else found
    if name == "nodes":
        return _listed(fabric, count, placement.detail, free)
    group = fabric.group_of(there)
    if name in BY_SWITCH:
        return there[BY_SWITCH[name]((group, fabric.leaf_of(there)[:, 0]))][:count]
    if name == "groups":
        wanted = _wanted(fabric, count, placement.detail)
        within = np.arange(len(there)) - np.searchsorted(group, group, side="left")  # place among its group's free
        taken = there[within < wanted[group]]
        if len(taken) < count:
            raise UsageError(f"placement groups:{placement.detail[:60]}: groups have too few free nodes")
        return taken
    return _over(fabric, count, placement.detail, there, group, drawn)


def _wanted(fabric: Fabric, count: int, detail: str) -> Ints:
    parts = detail.split(",")
    if len(parts) > fabric.groups or not all(re.fullmatch(r"\d{1,9}", part) for part in parts):
        raise UsageError(
            f"placement groups:{detail[:60]}: expected up to {fabric.groups} whole numbers such as 64,64,32"
        )
    wanted = np.zeros(fabric.groups, dtype=np.int64)
    wanted[: len(parts)] = [int(part) for part in parts]
    if (wanted > fabric.group_nodes).any():
        which = int(np.argmax(wanted > fabric.group_nodes))
        raise UsageError(
            f"placement groups: {wanted[which]} nodes of group {which}, which has {fabric.group_nodes[which]}"
        )
    if wanted.sum() != count:
        raise UsageError(f"placement groups: {wanted.sum()} nodes in groups for a job of {count}")
    return wanted


def _over(fabric: Fabric, count: int, detail: str, there: Ints, group: Ints, drawn: np.random.Generator) -> Ints:
    if not re.fullmatch(r"\d{1,9}", detail) or not 1 <= int(detail) <= fabric.groups:
        raise UsageError(f"placement over:{detail[:40]}: expected a number of groups, 1 to {fabric.groups}")
    chosen = drawn.permutation(fabric.groups)[: int(detail)]
    mixed = drawn.permutation(len(there))
    there, group = there[mixed], group[mixed]
    kept = np.isin(group, chosen)
    there, group = there[kept], group[kept]
    order = np.argsort(group, kind="stable")
    there, group = there[order], group[order]
    within = np.arange(len(there)) - np.searchsorted(group, group, side="left")
    found = there[np.lexsort((group, within))][:count]
    if len(found) < count:
        raise UsageError(f"placement over:{detail}: those groups have {len(found)} free nodes, {count} are requested")
    return np.sort(found)


def node_numbers(text: str) -> list[int]:
    """The numbers in a list of nodes: `lrdn[0001-0016,0031],lrdn0040` or `0-15,32`. UsageError names what is wrong."""
    numbers: list[int] = []
    pieces = re.findall(r"[^,\[\]]+(?:\[[^\]]*\])?|\[[^\]]*\]", text)
    if not pieces or "".join(pieces).replace(",", "") != text.replace(" ", "").replace(",", ""):
        raise UsageError(f"'{text[:60]}' is no list of nodes: expected such as node[01-16] or 0-15,32")
    for piece in pieces:
        part = _PART.fullmatch(piece.strip())
        item = None if part else _ITEM.fullmatch(piece.strip())
        if part is None and item is None:
            raise UsageError(f"'{piece[:60]}' is no node: expected such as node[01-16] or 0-15,32")
        inner = piece if part else item[2].strip("[]") if item else ""
        for one in inner.split(","):
            found = _PART.fullmatch(one.strip())
            if found is None or (found[2] and int(found[2]) < int(found[1])):
                raise UsageError(f"'{piece[:60]}' is no list of nodes: expected such as node[01-16]")
            last = int(found[2] or found[1])
            if len(numbers) + last - int(found[1]) > 2_000_000:
                raise UsageError("a list of more than 2000000 nodes")
            numbers.extend(range(int(found[1]), last + 1))
    return numbers


def _listed(fabric: Fabric, count: int, detail: str, free: Mask) -> Ints:
    numbers: Ints = np.array(node_numbers(detail), dtype=np.int64)
    if (numbers >= fabric.nodes).any():
        which = int(numbers[numbers >= fabric.nodes][0])
        raise UsageError(f"there is no node {which}: {fabric.name} has {fabric.nodes}, counted from 0")
    if len(np.unique(numbers)) < len(numbers):
        raise UsageError("a node is listed twice")
    numbers = numbers[free[numbers]]
    if len(numbers) < count:
        raise UsageError(f"{count} nodes requested: the list has {len(numbers)}")
    return numbers[:count]
