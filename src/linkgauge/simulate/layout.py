"""A job's ranks on a fabric: which node, port, leaf switch and NVLink domain each of them is at, as arrays."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Ints
from linkgauge.simulate.fabric import Fabric

DISTANCES = ("same_domain", "same_switch", "same_group", "other_group")
"""Of two ranks: in one NVLink domain, else on one leaf switch, else in one group, else anywhere."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Ranks 0 to `ranks` - 1, node by node in the order of `nodes`, `per_node` on each but the last."""

    fabric: Fabric
    nodes: Ints
    ranks: int
    per_node: int

    @staticmethod
    def of(fabric: Fabric, nodes: Ints, ranks: int, per_node: int = 0) -> Layout:
        """Lay ranks out; UsageError where the nodes hold too few."""
        per_node = per_node or fabric.gpus
        if not 1 <= per_node <= fabric.gpus:
            raise UsageError(f"{per_node} GPUs a node: {fabric.name} has {fabric.gpus}")
        if not (len(nodes) - 1) * per_node < ranks <= len(nodes) * per_node:
            raise UsageError(f"{ranks} ranks on {len(nodes)} nodes of {per_node}: expected them to fill all but one")
        return Layout(fabric, nodes, ranks, per_node)

    @functools.cached_property
    def node(self) -> Ints:
        """Of each rank the place of its node in `nodes`."""
        found: Ints = np.arange(self.ranks) // self.per_node
        return found

    @functools.cached_property
    def port(self) -> Ints:
        """Of each rank its port on its node."""
        found: Ints = np.arange(self.ranks) % self.per_node // self.fabric.gpus_a_port
        return found

    @functools.cached_property
    def gpu(self) -> Ints:
        """Of each rank its GPU's number on its node."""
        found: Ints = np.arange(self.ranks) % self.per_node
        return found

    @functools.cached_property
    def leaves(self) -> Ints:
        """The leaf of each port: nodes x ports."""
        if self.fabric.kind in ("endpoints", "torus"):
            return np.zeros((len(self.nodes), self.fabric.ports), dtype=np.int64)
        return self.fabric.leaf_of(self.nodes)

    @functools.cached_property
    def unit(self) -> Ints:
        """Of each node the place of its domain among those of the job, counted in the order of the ranks."""
        named = self.fabric.domain_of(self.nodes)
        _, first, back = np.unique(named, return_index=True, return_inverse=True)
        place = np.empty(len(first), dtype=np.int64)
        place[np.argsort(first)] = np.arange(len(first))
        found: Ints = place[back.reshape(-1)]
        return found

    @property
    def units(self) -> int:
        """NVLink domains that the job has ranks in."""
        return int(self.unit.max()) + 1

    @functools.cached_property
    def ranks_of_units(self) -> tuple[Ints, Ints]:
        """All ranks, domain by domain, and where each domain's begin (with the end of the last)."""
        unit = self.unit[self.node]
        order = np.argsort(unit, kind="stable")
        return order, np.searchsorted(unit[order], np.arange(self.units + 1))
