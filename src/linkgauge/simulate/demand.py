"""What a stage of traffic asks of a fabric, before any routing: bytes a port, and from leaf switches to groups.

Rules that spread a leaf's traffic to another group alike over the links between the two need no more than how much each
leaf sends to each group and gets from each, and how much goes between the leaves of a group. So an alltoall of 10^5
ranks is a few tables of leaves x groups, not 10^10 flows, and exact.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from linkgauge.simulate.arrays import Floats, sums
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.stage import Stage, Term


@dataclasses.dataclass
class Demand:
    """Bytes of one stage. G groups of a leaves each, U nodes of P ports."""

    port_out: Floats  # U x P
    port_in: Floats
    rank_out: Floats  # of each rank, by the port of the rank that hands it over where rails forward
    rank_in: Floats
    domain_out: Floats  # of each rank, into and out of its NVLink domain
    domain_in: Floats
    out: Floats  # G x a x G: from a leaf to another group
    into: Floats  # G x a x G: to a leaf from another group
    local: Floats | None  # G x a x a: between two leaves of a group, where the fabric asks for it
    local_out: Floats  # G x a: from a leaf to others of its group, and to one from others
    local_in: Floats
    farthest: str  # the distance class of the farthest flow

    @property
    def between(self) -> Floats:
        """From group to group, G x G."""
        found: Floats = self.out.sum(axis=1)
        return found


def demand(layout: Layout, stage: Stage) -> Demand:
    """What a stage asks for."""
    f = layout.fabric
    groups, leaves = f.groups, 1 if f.kind in ("endpoints", "torus") else f.leaves
    u, p = layout.leaves.shape
    found = Demand(
        port_out=np.zeros((u, p)),
        port_in=np.zeros((u, p)),
        rank_out=np.zeros(layout.ranks),
        rank_in=np.zeros(layout.ranks),
        domain_out=np.zeros(layout.ranks),
        domain_in=np.zeros(layout.ranks),
        out=np.zeros((groups, leaves, groups)),
        into=np.zeros((groups, leaves, groups)),
        local=np.zeros((groups, leaves, leaves)) if f.kind == "dragonfly" else None,
        local_out=np.zeros((groups, leaves)),
        local_in=np.zeros((groups, leaves)),
        farthest="same_domain",
    )
    for term in stage.terms:
        _add_term(found, layout, term)
    if len(stage.source):
        _add_flows(found, layout, stage)
    if len(stage.inside):
        found.domain_out += stage.inside
        found.domain_in += stage.inside
    if f.forwarded:  # by the GPUs of the port, whoever they had it from
        at = layout.node * p + layout.port
        holders = np.bincount(at, minlength=u * p)[at]
        found.rank_out = found.port_out.reshape(-1)[at] / holders
    own = np.arange(groups)
    found.out[own, :, own] = 0.0
    found.into[own, :, own] = 0.0
    # What was made as a whole less what stays inside leaves rounding behind.
    for table in (found.out, found.into, found.local_out, found.local_in, found.port_out, found.port_in):
        table[table < 1e-9 * max(1.0, float(table.max(initial=0.0)))] = 0.0
    if found.port_out.any():
        found.farthest = "same_switch"
    if found.local_out.any():
        found.farthest = "same_group"
    if found.out.any():
        found.farthest = "other_group"
    return found


def _by_port(layout: Layout, weights: Floats) -> Floats:
    u, p = layout.leaves.shape
    return sums(layout.node * p + layout.port, weights, (u, p))


def _add_term(found: Demand, layout: Layout, term: Term) -> None:
    """Add a[i] b[j] for all ranks in different domains; within a domain it stays on NVLink."""
    a, b = _by_port(layout, term.a), _by_port(layout, term.b)
    of = layout.unit
    units = layout.units
    a_unit = sums(of, a.sum(axis=1), units)
    unit_of_rank = of[layout.node]
    b_unit = sums(of, b.sum(axis=1), units)
    found.domain_out += term.a * (b_unit[unit_of_rank] - term.b)
    found.domain_in += term.b * (a_unit[unit_of_rank] - term.a)
    found.rank_out += term.a * (b.sum() - b_unit[unit_of_rank])
    found.rank_in += term.b * (a.sum() - a_unit[unit_of_rank])
    if not layout.fabric.forwarded:
        _spread(found, layout, a, b)
        found.port_out += a * (b.sum() - b_unit[of])[:, None]
        found.port_in += b * (a.sum() - a_unit[of])[:, None]
        return
    node_a = a.sum(axis=1)
    for rail in range(a.shape[1]):
        there = np.zeros_like(b)
        there[:, rail] = b[:, rail]
        here = np.zeros_like(a)
        here[:, rail] = node_a
        _spread(found, layout, here, there)
        rail_unit = sums(of, b[:, rail], units)
        leaving = b[:, rail].sum() - rail_unit[of]
        found.port_out[:, rail] += node_a * leaving
        found.port_in[:, rail] += b[:, rail] * (a.sum() - a_unit[of])
        # What other rails' GPUs hand to this rail's, inside the domain.
        handed = np.where(layout.port == rail, 0.0, term.a * leaving[layout.node])
        found.domain_out += handed
        on_rail = layout.port == rail
        holders = np.bincount(layout.node[on_rail], minlength=len(of))
        by_node = sums(layout.node, handed, len(of))
        found.domain_in[on_rail] += (by_node / np.maximum(1, holders))[layout.node[on_rail]]


def _spread(found: Demand, layout: Layout, a: Floats, b: Floats) -> None:
    """Add a product of ports to the tables of leaves, less what stays inside a domain. a, b: U x P."""
    f = layout.fabric
    if f.kind in ("endpoints", "torus"):
        return
    groups, leaves = f.groups, f.leaves
    size = groups * leaves
    flat = layout.leaves.reshape(-1)
    a_leaf = sums(flat, a, (groups, leaves))
    b_leaf = sums(flat, b, (groups, leaves))
    found.out += a_leaf[:, :, None] * b_leaf.sum(axis=1)[None, None, :]
    found.into += b_leaf[:, :, None] * a_leaf.sum(axis=1)[None, None, :]
    # By domain and leaf: a domain lies in one group, on few leaves.
    key = (layout.unit[:, None] * size + layout.leaves).reshape(-1)
    keys, back = np.unique(key, return_inverse=True)
    a_in = sums(back, a, len(keys))
    b_in = sums(back, b, len(keys))
    unit, leaf = keys // size, keys % size
    a_unit = sums(unit, a_in, layout.units)
    b_unit = sums(unit, b_in, layout.units)
    group_of = leaf // leaves
    out = a_leaf * (b_leaf.sum(axis=1)[:, None] - b_leaf)
    into = b_leaf * (a_leaf.sum(axis=1)[:, None] - a_leaf)
    out -= sums(leaf, a_in * (b_unit[unit] - b_in), (groups, leaves))
    into -= sums(leaf, b_in * (a_unit[unit] - a_in), (groups, leaves))
    found.local_out += np.maximum(out, 0.0)
    found.local_in += np.maximum(into, 0.0)
    if found.local is None:
        return
    found.local += a_leaf[:, :, None] * b_leaf[:, None, :]
    first = np.searchsorted(unit, np.arange(len(a_unit)))
    widest = int(np.diff(np.append(first, len(unit))).max())
    for step in range(widest):  # each leaf of a domain with the one `step` further on, around
        end = np.append(first, len(unit))
        count = np.diff(end)[unit]
        other = first[unit] + (np.arange(len(unit)) - first[unit] + step) % count
        held = step < count
        flat_pair = (group_of * leaves + leaf % leaves) * leaves + leaf[other] % leaves
        found.local -= sums(flat_pair[held], (a_in * b_in[other])[held], found.local.shape)
    own = np.arange(leaves)
    found.local[:, own, own] = 0.0
    np.maximum(found.local, 0.0, out=found.local)
    found.local[found.local < 1e-9 * max(1.0, float(found.local.max(initial=0.0)))] = 0.0


def _add_flows(found: Demand, layout: Layout, stage: Stage) -> None:
    f = layout.fabric
    source, target, size = stage.source, stage.target, stage.bytes
    s_node, t_node = layout.node[source], layout.node[target]
    inside = layout.unit[s_node] == layout.unit[t_node]
    found.domain_out += sums(source[inside], size[inside], layout.ranks)
    found.domain_in += sums(target[inside], size[inside], layout.ranks)
    source, target, size = source[~inside], target[~inside], size[~inside]
    found.rank_out += sums(source, size, layout.ranks)
    found.rank_in += sums(target, size, layout.ranks)
    s_node, t_node = s_node[~inside], t_node[~inside]
    t_port = layout.port[target]
    s_port = t_port if f.forwarded else layout.port[source]
    if f.forwarded:
        handed = layout.port[source] != t_port
        found.domain_out += sums(source[handed], size[handed], layout.ranks)
    u, p = layout.leaves.shape
    found.port_out += sums(s_node * p + s_port, size, (u, p))
    found.port_in += sums(t_node * p + t_port, size, (u, p))
    if f.kind in ("endpoints", "torus"):
        return
    groups, leaves = f.groups, f.leaves
    s_leaf, t_leaf = layout.leaves[s_node, s_port], layout.leaves[t_node, t_port]
    s_group, t_group = s_leaf // leaves, t_leaf // leaves
    far = s_group != t_group
    found.out += sums(s_leaf[far] * groups + t_group[far], size[far], found.out.shape)
    found.into += sums(t_leaf[far] * groups + s_group[far], size[far], found.into.shape)
    near = ~far & (s_leaf != t_leaf)
    found.local_out += sums(s_leaf[near], size[near], found.local_out.shape)
    found.local_in += sums(t_leaf[near], size[near], found.local_in.shape)
    if found.local is not None:
        found.local += sums(s_leaf[near] * leaves + t_leaf[near] % leaves, size[near], found.local.shape)
