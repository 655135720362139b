"""Hamiltonian cycles over direct links, and how many of them fit beside each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy

from linkgauge.expect.graph import Wires
from linkgauge.system.remembered import remembered

Cycle = tuple[str, ...]
MOST_DEVICES = 8
"""Above this the cycles of a full mesh are too many to list (8 devices: 2520)."""


@remembered
def cycles(wires: Wires, names: Sequence[str]) -> list[Cycle]:
    """Return every undirected Hamiltonian cycle over direct links, each once, starting at the first name.

    Two devices joined directly make one cycle of two links.
    """
    near = {name: [head for (tail, head) in wires.arcs if tail == name and head in names] for name in names}
    if len(names) == 2:
        return [tuple(names)] if names[1] in near[names[0]] else []
    found: list[Cycle] = []

    def extend(path: list[str]) -> None:
        if len(path) == len(names):
            if path[0] in near[path[-1]] and path[1] < path[-1]:
                found.append(tuple(path))
            return
        for following in near[path[-1]]:
            if following not in path:
                path.append(following)
                extend(path)
                path.pop()

    extend([names[0]])
    return found


def unit_links(wires: Wires, names: Sequence[str]) -> tuple[dict[tuple[str, str], int], float] | None:
    """Return each direct arc as a number of links of one rate, and that rate; None where rates differ or are
    unknown."""
    direct = {arc: rate for arc, rate in wires.arcs.items() if arc[0] in names and arc[1] in names}
    rates = {rate / wires.links[arc] for arc, rate in direct.items()}
    if len(rates) != 1 or math.isinf(next(iter(rates))):
        return None
    return {arc: wires.links[arc] for arc in direct}, next(iter(rates))


@functools.lru_cache(maxsize=256)
def most_disjoint(links: tuple[tuple[tuple[str, str], int], ...], listed: tuple[Cycle, ...]) -> int:
    """Return how many of the cycles, each going one way round, fit on the links at once, each on a whole link of every
    arc that it crosses. `links`: each arc and its number of links.

    An integer program over all cycles. A full mesh of n devices with bundles of c links falls apart into c (n - 1) of
    them, except for n = 4 and 6 (Tillson 1980).
    """
    count = len(listed[0])
    bundles = {bundle for _, bundle in links}
    if count >= 5 and count != 6 and len(bundles) == 1 and len(links) == count * (count - 1):
        return bundles.pop() * (count - 1)
    ways = [way for cycle in listed for way in {cycle, cycle[::-1]}]
    rows = {arc: index for index, (arc, _) in enumerate(links)}
    columns, indices = [], []
    for column, cycle in enumerate(ways):
        for step in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            columns.append(column)
            indices.append(rows[step])
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), (indices, columns)), shape=(len(rows), len(ways)))
    done = scipy.optimize.milp(
        -np.ones(len(ways)),
        constraints=scipy.optimize.LinearConstraint(matrix, ub=np.array([bundle for _, bundle in links], dtype=float)),
        integrality=np.ones(len(ways)),
        options={"time_limit": 5.0},
    )
    if done.x is None:
        return 0
    # A solution found before the limit is a packing too, if perhaps not the largest.
    return round(-float(done.fun))
