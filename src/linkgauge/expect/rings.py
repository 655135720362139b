"""Hamiltonian cycles over direct links, and how many of them fit beside each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

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
def _solved(links: tuple[tuple[tuple[str, str], int], ...], listed: tuple[Cycle, ...], directed: bool) -> int:
    return _most_disjoint(dict(links), listed, directed=directed)


def most_disjoint(links: Mapping[tuple[str, str], int], listed: Sequence[Cycle], *, directed: bool) -> int:
    """Return how many cycles fit on the links at once, each taking a whole link of every arc it crosses.

    `directed`: each cycle goes one way round and takes one direction of its links; else it takes both.
    An integer program over all cycles.
    """
    return _solved(tuple(links.items()), tuple(listed), directed)


def _most_disjoint(links: Mapping[tuple[str, str], int], listed: Sequence[Cycle], *, directed: bool) -> int:
    if not listed:
        return 0
    mesh = _mesh_answer(links, len(listed[0]), directed=directed)
    if mesh is not None:
        return mesh
    ways = [cycle for cycle in listed for cycle in ({cycle, cycle[::-1]} if directed else {cycle})]
    rows = {arc: index for index, arc in enumerate(links)}
    columns, indices = [], []
    for column, cycle in enumerate(ways):
        steps = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        if not directed:
            steps += [(head, tail) for tail, head in steps]
        for step in dict.fromkeys(steps):
            columns.append(column)
            indices.append(rows[step])
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), (indices, columns)), shape=(len(rows), len(ways)))
    done = scipy.optimize.milp(
        -np.ones(len(ways)),
        constraints=scipy.optimize.LinearConstraint(matrix, ub=np.array(list(links.values()), dtype=float)),
        integrality=np.ones(len(ways)),
        options={"time_limit": 5.0},
    )
    if done.x is None:
        return 0
    # A solution found before the limit is a packing too, if perhaps not the largest.
    return round(-float(done.fun))


def _mesh_answer(links: Mapping[tuple[str, str], int], count: int, *, directed: bool) -> int | None:
    """Return the answer for a full mesh of equal bundles, where theorems give it; None where they do not apply.

    Complete graphs of n vertices fall apart into Hamiltonian cycles: undirected floor((n - 1) / 2) of them, and
    with c parallel edges floor(c (n - 1) / 2) (Walecki); directed n - 1 except for n = 4 and 6 (Tillson 1980).
    """
    sizes = set(links.values())
    if count < 5 or len(sizes) != 1 or len(links) != count * (count - 1) or (directed and count == 6):
        return None
    most = next(iter(sizes)) * (count - 1)
    return most if directed else most // 2
