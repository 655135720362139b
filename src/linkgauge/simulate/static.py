"""Static routing on fat trees: each flow takes one way up, drawn by a hash (ECMP, or a subnet manager's tables).

A flow is what one rank sends another in a stage. Where flows are listed, each draws its spine (and core); an alltoall's
are too many to list, and the number on each link is drawn instead: of F flows of a leaf over k ways, as F draws would
fall. The ways up and down are then drawn apart, though a flow's spine is one: exact for each link alone, and so for the
distribution of the fullest one up to what links have in common. One seed is one table; results are a distribution.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Floats, Ints, sums
from linkgauge.simulate.demand import Demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.routes import LinkClass
from linkgauge.simulate.stage import Stage


def static_links(layout: Layout, stage: Stage, asked: Demand, seed: int) -> list[LinkClass]:
    """Loads of one draw. UsageError where links are no whole number, or terms mix listed flows with others."""
    f = layout.fabric
    ways = round(f.up_links)
    if f.kind != "fat_tree" or abs(ways - f.up_links) > 1e-9 or ways < 1:
        raise UsageError(f"rule static on {f.name}: {f.up_links:g} links up a leaf: expected a whole number")
    drawn = np.random.default_rng(seed)
    if stage.terms:
        return _counted(f, stage, asked, drawn, ways)
    return _listed(layout, stage, drawn, ways)


def _names(f: Fabric, loads: dict[str, Floats]) -> list[LinkClass]:
    where = {"leaf up": ("group", "leaf", "link"), "leaf down": ("group", "leaf", "link")}
    rail = {"pod up": ("pod", "link"), "pod down": ("pod", "link")}
    return [LinkClass(name, load, f.link_rate, {**where, **rail}[name]) for name, load in loads.items()]


def _counted(f: Fabric, stage: Stage, asked: Demand, drawn: np.random.Generator, ways: int) -> list[LinkClass]:
    each = _mean_flow(stage)

    def fall(total: Floats, over: int) -> Floats:
        flows: Ints = np.round(total / each).astype(np.int64)
        counts = drawn.multinomial(flows.reshape(-1), np.full(over, 1 / over)).reshape(*total.shape, over)
        scale: Floats = np.where(flows > 0, total / np.maximum(flows, 1), 0.0)
        found: Floats = counts * scale[..., None]
        return found

    loads = {
        "leaf up": fall(asked.local_out + asked.out.sum(axis=2), ways),
        "leaf down": fall(asked.local_in + asked.into.sum(axis=2), ways),
    }
    if f.groups > 1:
        cores = max(1, round(f.spines * f.core_links))
        loads["pod up"] = fall(asked.between.sum(axis=1), cores)
        loads["pod down"] = fall(asked.between.sum(axis=0), cores)
    return _names(f, loads)


def _mean_flow(stage: Stage) -> float:
    """The mean bytes of a flow."""
    flows = sum(
        float((term.a > 0).sum()) * float((term.b > 0).sum()) - float(((term.a > 0) & (term.b > 0)).sum())
        for term in stage.terms
    )
    return sum(term.total for term in stage.terms) / max(1.0, flows)


def _listed(layout: Layout, stage: Stage, drawn: np.random.Generator, ways: int) -> list[LinkClass]:
    source, target, size = stage.source, stage.target, stage.bytes
    apart = layout.unit[layout.node[source]] != layout.unit[layout.node[target]]
    source, target, size = source[apart], target[apart], size[apart]
    t_port = layout.port[target]
    s_leaf = layout.leaves[layout.node[source], t_port if layout.fabric.forwarded else layout.port[source]]
    t_leaf = layout.leaves[layout.node[target], t_port]
    taken = _taken(layout.fabric, s_leaf, t_leaf, drawn, ways)
    return _names(layout.fabric, {name: sums(link, size[on], shape) for name, (on, link, shape) in taken.items()})


_Taken = dict[str, tuple[Ints, Ints, tuple[int, ...]]]
"""Of each class of links: which flows take one, which one, and the class's shape."""


def _taken(f: Fabric, s_leaf: Ints, t_leaf: Ints, drawn: np.random.Generator, ways: int) -> _Taken:
    """Draw a way for each flow between two leaves."""
    on = np.flatnonzero(s_leaf != t_leaf)
    s_leaf, t_leaf = s_leaf[on], t_leaf[on]
    s_group, t_group = s_leaf // f.leaves, t_leaf // f.leaves
    # Link u of a leaf goes to spine u % spines, whose way down is one of as many links.
    up = drawn.integers(0, ways, len(on))
    spine = up % f.spines
    beside = _beside(ways, f.spines)
    far = s_group != t_group
    found: _Taken = {}
    if f.groups > 1:
        cores = max(1, round(f.core_links))
        core = drawn.integers(0, cores, len(on))
        place = spine * cores + core
        # A core switch of the k-th spines joins all k-th spines: the spine of the other pod follows.
        shape = (f.groups, f.spines * cores)
        found["pod up"] = on[far], s_group[far] * shape[1] + place[far], shape
        found["pod down"] = on[far], t_group[far] * shape[1] + place[far], shape
    down = spine + f.spines * (drawn.integers(0, 1 << 30, len(on)) % beside[spine])
    shape3 = (f.groups, f.leaves, ways)
    return {"leaf up": (on, s_leaf * ways + up, shape3), "leaf down": (on, t_leaf * ways + down, shape3), **found}


def static_ways(f: Fabric, s_leaf: Ints, t_leaf: Ints, seed: int) -> tuple[csr_matrix, Floats]:
    """The links that each flow takes by the draw that `static_links` makes of listed flows; the links' rates."""
    drawn = np.random.default_rng(seed)
    rows, links, first = [], [], 0
    for on, link, shape in _taken(f, s_leaf, t_leaf, drawn, round(f.up_links)).values():
        rows.append(on)
        links.append(first + link)
        first += int(np.prod(shape))
    flat = np.concatenate(rows), np.concatenate(links)
    return coo_matrix((np.ones(len(flat[0])), flat), shape=(len(s_leaf), first)).tocsr(), np.full(first, f.link_rate)


def _beside(ways: int, spines: int) -> Ints:
    """Links of a leaf to each spine."""
    found: Ints = np.maximum(1, np.bincount(np.arange(ways) % spines, minlength=spines))
    return found
