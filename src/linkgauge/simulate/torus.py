"""A torus' links under dimension-ordered routing: along the first dimension to the target's place, then the next.

The shorter way around; where both are as long, half each way. An alltoall along a dimension needs only how much each
node sends to each place along it, so that tables are nodes x side.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from linkgauge.simulate.arrays import Floats, Ints, sums
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.routes import LinkClass
from linkgauge.simulate.stage import Stage


def torus_links(layout: Layout, stage: Stage) -> list[LinkClass]:
    """Loads of each node's link ahead and back along each dimension."""
    f = layout.fabric
    sides = f.shape
    # At each node and by where it goes along the dimensions still to come, summed over all that is alike from here.
    ahead = [np.zeros(sides) for _ in sides]
    back = [np.zeros(sides) for _ in sides]
    for term in stage.terms:
        a = sums(layout.nodes[layout.node], term.a, sides)
        b = sums(layout.nodes[layout.node], term.b, sides)
        _product(a, b, ahead, back)
    if len(stage.source):
        s, t = layout.nodes[layout.node[stage.source]], layout.nodes[layout.node[stage.target]]
        for on, links, parts in _steps(f, s, t):
            table = (back if links[0] // f.nodes % 2 else ahead)[int(links[0]) // f.nodes // 2]
            table += sums(links % f.nodes, stage.bytes[on] * parts, sides)
    found = []
    for axis, side in enumerate(sides):
        if side > 1:
            found.append(LinkClass(f"torus {axis} ahead", ahead[axis], f.link_rate, "xyzuvw"[: len(sides)]))
            found.append(LinkClass(f"torus {axis} back", back[axis], f.link_rate, "xyzuvw"[: len(sides)]))
    return found


def _product(a: Floats, b: Floats, ahead: list[Floats], back: list[Floats]) -> None:
    """Each node sends a times b to each other. At dimension d a message is where its target is along those before."""
    dims = a.ndim
    for d in range(dims):
        # Sent from a row along d: of all sources that meet there, to each place along d. Sources have their own
        # places along d and after, targets' places before d are reached: the product splits.
        sources = a.sum(axis=tuple(range(d)), keepdims=True)  # places before d no longer matter
        targets = b.sum(axis=tuple(range(d + 1, dims)), keepdims=True)  # by places up to d
        # Amount from (before: target's, at d: x, after: source's) to x' along d.
        here = np.moveaxis(np.broadcast_to(sources, a.shape), d, -1)
        to = np.moveaxis(np.broadcast_to(targets, a.shape), d, -1)
        # Places before d are the target's, places after d the source's, which both broadcasts hold.
        matrix = here[..., :, None] * to[..., None, :]
        fore, aft = _along(matrix)
        ahead[d] += np.moveaxis(fore, -1, d)
        back[d] += np.moveaxis(aft, -1, d)


def _along(matrix: Floats) -> tuple[Floats, Floats]:
    """Loads of the links x -> x + 1 and x -> x - 1 of rings, of what goes from place to place (..., side, side)."""
    side = matrix.shape[-1]
    fore = np.zeros(matrix.shape[:-1])
    aft = np.zeros(matrix.shape[:-1])
    own = np.arange(side)
    for hop in range(1, side):
        moved = matrix[..., own, (own + hop) % side]
        share = 1.0 if 2 * hop < side else 0.5 if 2 * hop == side else 0.0
        for step in range(hop if share else 0):
            fore += share * np.roll(moved, step, axis=-1)
        for step in range(side - hop if share < 1 else 0):
            aft += (1 - share) * np.roll(moved, -step, axis=-1)
    return fore, aft


def torus_ways(f: Fabric, s: Ints, t: Ints) -> tuple[csr_matrix, Floats]:
    """What part of each flow between two nodes passes which link; the links' rates."""
    size = f.nodes
    found = list(_steps(f, s, t))
    rows, links, parts = (
        (np.concatenate([one[k] for one in found]) if found else np.zeros(0)) for k in range(3)
    )  # fmt: skip
    width = 2 * len(f.shape) * size
    table = coo_matrix((parts, (rows.astype(np.int64), links.astype(np.int64))), shape=(len(s), width)).tocsr()
    return table, np.full(width, f.link_rate)


def _steps(f: Fabric, s: Ints, t: Ints) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Flows, a link of each and the part of it that passes there, step by step; links ahead of those back, by axis."""
    places, targets = (np.array(np.unravel_index(nodes, f.shape)) for nodes in (s, t))
    for d, side in enumerate(f.shape):
        hops = (targets[d] - places[d]) % side
        for way in (1, -1):
            length = hops if way == 1 else (side - hops) % side
            share = np.where(2 * length < side, 1.0, np.where(2 * length == side, 0.5, 0.0)) * (hops > 0)
            for step in range(side // 2):
                on = np.flatnonzero((step < length) & (share > 0))
                if len(on):
                    place = places[:, on].copy()
                    place[d] = (place[d] + way * step) % side
                    flat = np.ravel_multi_index(tuple(place), f.shape)
                    yield on, (2 * d + (way < 0)) * f.nodes + flat, share[on]
        places[d] = targets[d]
