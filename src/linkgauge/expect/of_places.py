"""Limits of a case by where its ranks were: of one node's links, or of the network between several."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.expect.limit import Limit
from linkgauge.expect.of_case import limits
from linkgauge.model.grouped import grouped
from linkgauge.stats.launches import Place, nodes_of
from linkgauge.system.model import System


@dataclasses.dataclass(frozen=True)
class Placed:
    """A case as the rules are asked for it: once for each choice of devices that a node of it has.

    `nodes`: how many it lies on. `problem`: one line that says why there is none; else empty.
    """

    cases: tuple[Mapping[str, Any], ...]
    nodes: int = 1
    problem: str = ""


def in_domain(system: System, hosts: Sequence[str], places: tuple[Place, ...]) -> tuple[Place, ...]:
    """The places of ranks in a rack that is one NVLink domain: on one node, with the numbers that devices have there.

    `hosts` are all of the run, each a tray; which one is no matter, since trays are alike. Places stay as they are
    where the rack has fewer trays, or smaller ones.
    """
    a_tray = len(system.devices) // system.trays
    if system.trays < 2 or len(hosts) > system.trays or any(place.device >= a_tray for place in places):
        return places
    return tuple(Place(system.name, hosts.index(place.node) * a_tray + place.device) for place in places)


def placed(system: System, case: Mapping[str, Any], places: Sequence[Place]) -> Placed:
    """Return how the rules are asked for a case whose ranks were there; places that are not known are one node."""
    if not places:
        return Placed((case,))
    of_node = grouped((host, ordinal) for host, ordinal in places)
    nodes = len(nodes_of(places))
    if nodes == 1:
        return Placed(({**case, "devices": tuple(next(iter(of_node.values())))},))
    problem = ""
    if system.network is None:
        problem = f"{system.name} describes no network between nodes"
    elif len(set(map(len, of_node.values()))) > 1:
        problem = f"no rule is of nodes with unlike numbers of ranks ({_counts(of_node)})"
    elif int(case.get("groups") or 1) > 1:
        problem = "no rule is of groups side by side there"
    if problem:
        return Placed((), nodes, problem)
    # Any rank may be the root: nodes are alike, and so are a node's devices to what leaves it.
    chosen = dict.fromkeys(tuple(ordinals) for ordinals in of_node.values())
    return Placed(tuple({**case, "devices": ordinals, "nodes": nodes, "root": 0} for ordinals in chosen), nodes)


def _counts(of_node: Mapping[str, Sequence[int]]) -> str:
    counts = Counter(map(len, of_node.values()))
    return ", ".join(f"{ranks} on {nodes}" for ranks, nodes in sorted(counts.items()))


def limits_there(system: System, case: Placed) -> list[Limit]:
    """Return the limits of a placed case (`limits`); of nodes with unlike devices each rule's lowest."""
    lowest: dict[tuple[str, str], Limit] = {}
    found: list[Limit] = []
    for one in case.cases:
        found = limits(system, one)
        for limit in found:
            key = (limit.rule, limit.kind)
            if key not in lowest or _value(limit) < _value(lowest[key]):
                lowest[key] = limit
    return found if len(case.cases) < 2 else list(lowest.values())


def _value(limit: Limit) -> float:
    """Return a goodput, or of a latency what is the lower the later."""
    return limit.value_bytes_per_s if limit.value_bytes_per_s is not None else -(limit.latency_ns or 0.0)
