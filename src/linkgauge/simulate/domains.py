"""Collectives over NVLink domains, as stages: rings, chains, trees and hierarchies of lanes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.stage import Request, Stage, flows


def _lanes(layout: Layout) -> tuple[Ints, int]:
    """Ranks that send between domains, domains x lanes: the first ones of each, as many as the smallest domain has."""
    order, first = layout.ranks_of_units
    lanes = int(np.diff(first).min())
    return order[first[:-1, None] + np.arange(lanes)[None, :]], lanes


def _inside(layout: Layout, amount: float, between: float | Floats = 0.0) -> Floats:
    """What each rank sends, and gets, inside its domain: `amount`, but what the lanes' ends send between domains.

    `between`: of one lane, of all domains or of each. Nothing where a domain has one rank of the job.
    """
    d = np.bincount(layout.unit[layout.node])[layout.unit[layout.node]]
    found: Floats = np.where(d > 1, amount, 0.0)
    if layout.units > 1:
        ends, lanes = _lanes(layout)
        passed = np.repeat(np.broadcast_to(between, layout.units), lanes)
        found[ends.reshape(-1)] = np.maximum(0.0, found[ends.reshape(-1)] - passed)
    return found


def _rings(layout: Layout, amount: float, steps: int) -> list[Stage]:
    """One ring a lane through all ranks; each hop carries its lane's part of `amount`, domains follow each other."""
    ends, lanes = _lanes(layout)
    flat = ends.T.reshape(-1), np.roll(ends, -1, axis=0).T.reshape(-1)
    stage = flows(*flat, amount / lanes) if layout.units > 1 else Stage()
    return [dataclasses.replace(stage, inside=_inside(layout, amount, amount / lanes), steps=steps)]


def ring_allreduce(layout: Layout, r: Request) -> list[Stage]:
    """A reduce_scatter around each ring, then an allgather."""
    n = layout.ranks
    return _rings(layout, 2 * (n - 1) / n * r.size, 2 * (n - 1))


def ring_gather(layout: Layout, r: Request) -> list[Stage]:
    """An allgather or a reduce_scatter around each ring."""
    n = layout.ranks
    return _rings(layout, (n - 1) / n * r.size, n - 1)


def chain(layout: Layout, r: Request) -> list[Stage]:
    """A pipelined chain from the first rank on: each domain's lanes pass the buffer on, none returns to the root."""
    ends, lanes = _lanes(layout)
    stage = Stage()
    if layout.units > 1:
        stage = flows(ends[:-1].reshape(-1), ends[1:].reshape(-1), r.size / lanes)
    return [dataclasses.replace(stage, inside=_inside(layout, r.size), steps=layout.ranks - 1)]


def _hierarchical(
    share: Callable[[Floats], tuple[Floats, Floats]], rounds: int
) -> Callable[[Layout, Request], list[Stage]]:
    """Each domain scatters, each lane has a ring over the domains, each domain gathers; all at once, as in a pipe.

    `share`: of m what the lanes of each domain together send to the next one, and what they get, by the part of all
    ranks that each domain has.
    """

    def made(layout: Layout, r: Request) -> list[Stage]:
        ends, lanes = _lanes(layout)
        n, held = layout.ranks, np.diff(layout.ranks_of_units[1])
        stage = Stage()
        sent, taken = share(held / n)
        if layout.units > 1:
            hops = ends.T.reshape(-1), np.roll(ends, -1, axis=0).T.reshape(-1)
            stage = Stage(source=hops[0], target=hops[1], bytes=np.tile(sent * r.size / lanes, lanes))
        inside = _inside(layout, rounds * (n - 1) / n * r.size, np.minimum(sent, taken) * r.size / lanes)
        steps, inner = rounds * (layout.units - 1), rounds * (int(held.max()) - 1)
        return [dataclasses.replace(stage, inside=inside, steps=steps, inside_steps=inner)]

    return made


def _halves(part: Floats) -> tuple[Floats, Floats]:
    """Of an allreduce: as much between any two domains, however many ranks they have."""
    found = np.full(len(part), 2 * (len(part) - 1) / len(part))
    return found, found


def _blocks(part: Floats) -> tuple[Floats, Floats]:
    """Of an allgather: a domain is sent all blocks but its own."""
    return 1 - np.roll(part, -1), 1 - part


def _parts(part: Floats) -> tuple[Floats, Floats]:
    """Of a reduce_scatter: a domain sends on all blocks but its own."""
    return 1 - part, 1 - np.roll(part, 1)


def parents(n: int) -> Ints:
    """The parent of each node of a binary tree over 0 to n - 1, -1 of the root: NCCL's first tree (trees.cc)."""
    own = np.arange(n)
    bit = own & -own
    up = (own ^ bit) | (bit << 1)
    up = np.where(up >= n, own ^ bit, up)
    up[0] = -1
    return up


def _trees(layout: Layout, r: Request, both_ways: bool) -> list[Stage]:
    """Two binary trees over the domains, each with half of the buffer: where one has a leaf the other has none."""
    ends, lanes = _lanes(layout)
    u, n = layout.units, layout.ranks
    # All but the root get the whole buffer; of an allreduce each rank sends as much as any schedule must in the mean.
    amount = 2 * (n - 1) / n * r.size if both_ways else float(r.size)
    if u < 2:
        return [Stage(inside=_inside(layout, amount), steps=0, inside_steps=n - 1)]
    first = parents(u)
    # The second tree is the first mirrored, or moved on by one where their number is odd.
    if u % 2 == 0:
        other = np.where(first < 0, -1, u - 1 - first)[::-1]
    else:
        other = np.roll(np.where(first < 0, -1, (first + 1) % u), 1)
    pairs = []
    for tree in (first, other):
        child = np.flatnonzero(tree >= 0)
        if not both_ways:  # the first domain has the whole buffer, and the other tree's root half of it from there
            root = np.flatnonzero(tree < 0)
            pairs.append((root[root > 0], np.zeros(int((root > 0).sum()), dtype=np.int64)))
            child = child[child > 0]
        pairs.append((child, tree[child]))
    child, parent = (np.concatenate(side) for side in zip(*pairs, strict=True))
    up = ends[child].reshape(-1), ends[parent].reshape(-1)
    source = np.concatenate([up[1], up[0]]) if both_ways else up[1]
    target = np.concatenate([up[0], up[1]]) if both_ways else up[0]
    ways = 2 if both_ways else 1
    stage = flows(source, target, r.size / 2 / lanes)
    depth = int(np.ceil(np.log2(u)))
    widest = int(np.diff(layout.ranks_of_units[1]).max())
    inside = _inside(layout, amount, 2 * (u - 1) / u * r.size / lanes if both_ways else 0.0)
    return [dataclasses.replace(stage, inside=inside, steps=ways * depth, inside_steps=ways * (widest - 1))]


hierarchical_allreduce = _hierarchical(_halves, 2)
hierarchical_allgather = _hierarchical(_blocks, 1)
hierarchical_reduce_scatter = _hierarchical(_parts, 1)


def tree_allreduce(layout: Layout, r: Request) -> list[Stage]:
    """Both trees up to their roots, and down again."""
    return _trees(layout, r, both_ways=True)


def tree_broadcast(layout: Layout, r: Request) -> list[Stage]:
    """Both trees down from the first domain."""
    return _trees(layout, r, both_ways=False)
