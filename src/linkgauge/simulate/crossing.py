"""Classes of flows over a fabric's links, for jobs that share it: which links each class passes, and with what part.

Exact: flows of ports that are alike (on one leaf, with as many ranks, in domains alike) are one class. Where there
would be too many classes or ways, `TooManyError` says so, and jobs are paced instead (beside.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, hstack

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Floats, Ints, sums
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.fair import Classes, TooManyError
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.routes import Rule, refuse_uneven
from linkgauge.simulate.stage import Stage

MOST_CLASSES = 250_000
_MOST_USES = 40_000_000  # parts in the table: 0.5 GB


@dataclasses.dataclass(frozen=True)
class Sharer:
    """A job's stage on a layout; `endless` flows go on for as long as others do."""

    layout: Layout
    stage: Stage
    endless: bool = False


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Classes of all jobs together, the job of each class, and the links that are ports into nodes."""

    classes: Classes
    job: Ints
    ports_in: Ints


@dataclasses.dataclass
class _Flows:
    """Flows by class: leaf and port class of either end, how many, and bytes of one."""

    s_leaf: Ints
    t_leaf: Ints
    s_port: Ints
    t_port: Ints
    count: Floats
    bytes: Floats


def crossing(fabric: Fabric, jobs: Sequence[Sharer], rule: Rule) -> Crossing:
    """All jobs' classes. UsageError for rules and kinds of fabric that sharing is not reckoned for; TooManyError."""
    refuse_uneven(fabric, rule)
    if fabric.behind_out or fabric.behind_in:  # shared by ports, which are taken as classes here
        raise TooManyError
    flows, job, rates = [], [], []
    ports = 0
    for number, sharer in enumerate(jobs):
        found, capacity = _flows(sharer, ports)
        ports += len(capacity)
        rates.append(capacity)
        for one in found:
            flows.append(
                dataclasses.replace(one, bytes=np.full_like(one.bytes, np.inf) if sharer.endless else one.bytes)
            )
            job.append(np.full(len(one.count), number, dtype=np.int64))
    port_rate = np.concatenate(rates) * fabric.port_rate
    names = ("s_leaf", "t_leaf", "s_port", "t_port", "count", "bytes")
    everything: list[Floats] = [np.concatenate([getattr(one, name) for one in flows]) for name in names]
    s_leaf, t_leaf, s_port, t_port = (one.astype(np.int64) for one in everything[:4])
    n = len(s_leaf)
    own = np.arange(n)
    ends = coo_matrix(
        (np.ones(2 * n), (np.concatenate([own, own]), np.concatenate([s_port, ports + t_port]))), shape=(n, 2 * ports)
    ).tocsr()
    inner, capacity = ways(fabric, rule, s_leaf, t_leaf)
    uses = hstack([ends, inner]).tocsr()
    capacity = np.concatenate([port_rate, port_rate, capacity])
    used = np.unique(uses.indices)
    ports_in = np.flatnonzero((used >= ports) & (used < 2 * ports))
    classes = Classes(uses[:, used].tocsr(), everything[4], everything[5], capacity[used])
    return Crossing(classes, np.concatenate(job), ports_in)


def _flows(sharer: Sharer, first_port: int) -> tuple[list[_Flows], Floats]:
    """A job's flows between domains, and the number of ports in each of its port classes."""
    layout, stage = sharer.layout, sharer.stage
    u, p = layout.leaves.shape
    found: list[_Flows] = []
    if len(stage.source):
        s_node, t_node = layout.node[stage.source], layout.node[stage.target]
        apart = layout.unit[s_node] != layout.unit[t_node]
        source, target, size = stage.source[apart], stage.target[apart], stage.bytes[apart]
        t_port = layout.port[target]
        s_port = t_port if layout.fabric.forwarded else layout.port[source]
        s_flat, t_flat = layout.node[source] * p + s_port, layout.node[target] * p + t_port
        keys = np.stack([s_flat, t_flat])
        pair, count = np.unique(keys, axis=1, return_counts=True)
        if len(np.unique(size)) > 1:  # flows of several sizes between two ports end at different times
            pair, count, each = _by_size(s_flat, t_flat, size)
        else:
            each = np.full(pair.shape[1], size[0] if len(size) else 0.0)
        leaves = layout.leaves.reshape(-1)
        found.append(
            _Flows(leaves[pair[0]], leaves[pair[1]], first_port + pair[0], first_port + pair[1], count.astype(float),
                   each)
        )  # fmt: skip
    capacity = np.ones(u * p)
    if stage.terms:
        if len(stage.source) or any(len(np.unique(side[side > 0])) > 1 for t in stage.terms for side in (t.a, t.b)):
            raise UsageError("concurrent jobs: expected an alltoall or listed flows, not a skewed matrix")
        alike, capacity = _alltoall(layout, stage, first_port)
        found = [alike]
    return found, capacity


def _by_size(s: Ints, t: Ints, size: Floats) -> tuple[Ints, Ints, Floats]:
    keys = np.stack([s.astype(float), t.astype(float), size])
    pair, count = np.unique(keys, axis=1, return_counts=True)
    return pair[:2].astype(np.int64), count, pair[2]


def _alltoall(layout: Layout, stage: Stage, first_port: int) -> tuple[_Flows, Floats]:
    if len(stage.terms) > 1 or (stage.terms[0].a <= 0).any() or (stage.terms[0].b <= 0).any():
        raise UsageError("concurrent jobs: expected an alltoall or listed flows, not a matrix of classes")
    term = stage.terms[0]
    size = float(term.a[0] * term.b[0])
    u, p = layout.leaves.shape
    here = sums(layout.node * p + layout.port, np.ones(layout.ranks), (u, p))
    forwarded = layout.fabric.forwarded
    # What a port's class is: its leaf, how many ranks it has, and how those of its domain lie on ports.
    shape_of_unit = np.zeros((layout.units, p + 1))
    np.add.at(shape_of_unit[:, :p], layout.unit, here)
    np.add.at(shape_of_unit[:, p], layout.unit, 1.0)
    _, kind = np.unique(np.hstack([shape_of_unit[layout.unit], here]), axis=0, return_inverse=True)
    rail = np.arange(p) * forwarded  # ports of a leaf are alike, but where a flow keeps to its rail
    parts = [layout.leaves, here.astype(np.int64), kind.reshape(-1)[:, None], rail[None, :]]
    key = np.stack([np.broadcast_to(part, (u, p)) for part in parts], axis=-1).reshape(-1, 4)
    keys, of = np.unique(key, axis=0, return_inverse=True)
    of = of.reshape(-1)
    k = len(keys)
    if k * k > MOST_CLASSES:
        raise TooManyError
    flat = here.reshape(-1)
    ports = np.bincount(of, minlength=k).astype(float)
    node_ranks = np.repeat(here.sum(axis=1), p)
    sending = node_ranks if forwarded else flat
    flows = np.outer(sums(of, sending, k), sums(of, flat, k))
    if forwarded:
        flows *= keys[:, None, 3] == keys[None, :, 3]
    # Less what stays inside a domain.
    unit_of_port = np.repeat(layout.unit, p)
    held_by, back = np.unique(unit_of_port * k + of, return_inverse=True)
    a, b = sums(back, sending, len(held_by)), sums(back, flat, len(held_by))
    unit, which = held_by // k, held_by % k
    first = np.append(np.searchsorted(unit, np.arange(layout.units)), len(unit))
    widest = int(np.diff(first).max())
    for step in range(widest):
        length = np.diff(first)[unit]
        other = first[unit] + (np.arange(len(unit)) - first[unit] + step) % length
        held = step < length
        gone = (a * b[other])[held]
        pairs = which[held] * k + which[other][held]
        if forwarded:
            same = keys[which[held], 3] == keys[which[other][held], 3]
            gone, pairs = gone[same], pairs[same]
        flows -= sums(pairs, gone, (k, k))
    leaf = keys[:, 0]
    s, t = np.nonzero(flows > 0.5)
    count = flows[s, t]
    found = _Flows(leaf[s], leaf[t], first_port + s, first_port + t, count, np.full(len(count), size))
    return found, ports


# --- ways ------------------------------------------------------------------------------------------------------------


class _Table:
    """Parts of flows on links, gathered as (row, link, part)."""

    def __init__(self) -> None:
        self.rows: list[Ints] = []
        self.links: list[Ints] = []
        self.parts: list[Floats] = []
        self.size = 0

    def add(self, rows: Ints, links: Ints, parts: Floats) -> None:
        kept = parts > 0
        self.rows.append(rows[kept])
        self.links.append(links[kept])
        self.parts.append(parts[kept])
        self.size += int(kept.sum())
        if self.size > _MOST_USES:
            raise TooManyError

    def matrix(self, rows: int, links: int) -> csr_matrix:
        if not self.rows:
            return csr_matrix((rows, links))
        return coo_matrix(
            (np.concatenate(self.parts), (np.concatenate(self.rows), np.concatenate(self.links))), shape=(rows, links)
        ).tocsr()


def ways(f: Fabric, rule: Rule, s_leaf: Ints, t_leaf: Ints) -> tuple[csr_matrix, Floats]:
    """What part of each flow passes which link between switches; the links' rates."""
    n = len(s_leaf)
    if f.kind == "endpoints":
        return csr_matrix((n, 0)), np.zeros(0)
    if f.kind == "fat_tree":
        return _tree(f, s_leaf, t_leaf)
    leaves, groups, routers = f.leaves, f.groups, f.routers
    if f.kind == "dragonfly":
        local = np.full(groups * leaves * leaves, f.local_links * f.link_rate)
    else:
        local = np.full(2 * groups * leaves * routers, f.up_links / f.spines * f.link_rate)
    rates = np.concatenate([local, (f.gateways * f.link_rate).reshape(-1)])
    table = _Table()
    columns = leaves // f.rows if f.kind == "dragonfly" and f.rows > 1 else 0
    direct = 1.0 if rule.name == "minimal" or f.groups < 3 else rule.share if rule.name == "mixed" else 0.0
    _Dragonfly(f, table, len(local), columns).fill(s_leaf, t_leaf, direct)
    return table.matrix(n, len(rates)), rates


class _Dragonfly:
    """Ways of flows on a dragonfly or a dragonfly+: legs are gathered by (leaf, group) and by pair of groups."""

    def __init__(self, f: Fabric, table: _Table, first_global: int, columns: int) -> None:
        self.f, self.table, self.first_global, self.columns = f, table, first_global, columns
        self.share = f.gateway_shares

    def hop(self, rows: Ints, group: Ints, s: Ints, t: Ints, parts: Floats) -> None:
        """Between two switches of a group: of a dragonfly two leaves, of a dragonfly+ (s leaf -> t spine, up)."""
        f = self.f
        away = s != t
        rows, group, s, t, parts = rows[away], group[away], s[away], t[away], parts[away]
        base = group * f.leaves
        if not self.columns:
            self.table.add(rows, (base + s) * f.leaves + t, parts)
            return
        corner = s // self.columns * self.columns + t % self.columns
        for a, b in ((s, corner), (corner, t)):
            moved = a != b
            self.table.add(rows[moved], ((base + a) * f.leaves + b)[moved], parts[moved])

    def fill(self, s_leaf: Ints, t_leaf: Ints, direct: float) -> None:
        f = self.f
        n, leaves, r = len(s_leaf), f.leaves, f.routers
        rows = np.arange(n)
        sg, tg, s, t = s_leaf // leaves, t_leaf // leaves, s_leaf % leaves, t_leaf % leaves
        near = (sg == tg) & (s != t)
        if f.kind == "dragonfly":
            self.hop(rows[near], sg[near], s[near], t[near], np.ones(int(near.sum())))
        else:
            spines = np.tile(np.arange(r), int(near.sum()))
            again = np.repeat(np.flatnonzero(near), r)
            part = np.full(len(again), 1 / r)
            self.up(again, sg[again], s[again], spines, part)
            self.down(again, tg[again], t[again], spines, part)
        far = np.flatnonzero(sg != tg)
        if not len(far):
            return
        if direct > 0:
            self.leg(far, sg[far], s[far], self.share[sg[far], :, tg[far]] * direct, out=True)
            self.across(far, sg[far], tg[far], self.share[sg[far], :, tg[far]] * direct)
            self.leg(far, tg[far], t[far], self.share[tg[far], :, sg[far]] * direct, out=False)
        if direct < 1:
            self.third(far, sg[far], tg[far], s[far], t[far], 1 - direct)

    def leg(self, rows: Ints, group: Ints, leaf: Ints, parts: Floats, out: bool) -> None:
        """From a leaf to the routers of its group (or from them to it), by parts: rows x routers."""
        r = parts.shape[1]
        again = np.repeat(np.arange(len(rows)), r)
        router = np.tile(np.arange(r), len(rows))
        flat = parts.reshape(-1)
        if self.f.kind == "dragonfly":
            a, b = (leaf[again], router) if out else (router, leaf[again])
            self.hop(rows[again], group[again], a, b, flat)
        elif out:
            self.up(rows[again], group[again], leaf[again], router, flat)
        else:
            self.down(rows[again], group[again], leaf[again], router, flat)

    def up(self, rows: Ints, group: Ints, leaf: Ints, spine: Ints, parts: Floats) -> None:
        f = self.f
        self.table.add(rows, (group * f.leaves + leaf) * f.spines + spine, parts)

    def down(self, rows: Ints, group: Ints, leaf: Ints, spine: Ints, parts: Floats) -> None:
        f = self.f
        first = f.groups * f.leaves * f.spines
        self.table.add(rows, first + (group * f.leaves + leaf) * f.spines + spine, parts)

    def across(self, rows: Ints, group: Ints, to: Ints, parts: Floats) -> None:
        """On the links of a group's routers to another group: rows x routers."""
        f = self.f
        r = parts.shape[1]
        again = np.repeat(np.arange(len(rows)), r)
        router = np.tile(np.arange(r), len(rows))
        link = self.first_global + (group[again] * f.routers + router) * f.groups + to[again]
        self.table.add(rows[again], link, parts.reshape(-1))

    def third(self, rows: Ints, sg: Ints, tg: Ints, s: Ints, t: Ints, whole: float) -> None:
        f = self.f
        each = whole / (f.groups - 2)
        everywhere = self.share.sum(axis=2)  # g x r: of all links to other groups
        out = (everywhere[sg] - self.share[sg, :, tg]) * each
        into = (everywhere[tg] - self.share[tg, :, sg]) * each
        self.leg(rows, sg, s, out, out=True)
        self.leg(rows, tg, t, into, out=False)
        pairs, back = np.unique(sg * f.groups + tg, return_inverse=True)
        back = back.reshape(-1)
        order = np.argsort(back, kind="stable")
        bounds = np.searchsorted(back[order], np.arange(len(pairs) + 1))
        for place, pair in enumerate(pairs):
            mine = rows[order[bounds[place] : bounds[place + 1]]]
            links, parts = self.middle(int(pair) // f.groups, int(pair) % f.groups)
            again = np.repeat(mine, len(links))
            self.table.add(again, np.tile(links, len(mine)), np.tile(parts * each, len(mine)))

    def middle(self, g: int, h: int) -> tuple[Ints, Floats]:
        """Links between g and every third group, in it, and between it and h; each third group has one whole part."""
        f = self.f
        inner = _Table()
        beside = _Dragonfly(f, inner, self.first_global, self.columns)
        thirds = np.array([k for k in range(f.groups) if k not in (g, h)], dtype=np.int64)
        zero = np.zeros(len(thirds), dtype=np.int64)
        beside.across(zero, np.full(len(thirds), g), thirds, self.share[g, :, thirds])
        arriving = self.share[thirds, :, g]  # k x r
        has = f.gateways[thirds, :, h] > 0
        kept = np.where(has, arriving, 0.0)
        moved = np.where(has, 0.0, arriving)
        onward = self.share[thirds, :, h]
        leaving = kept + moved.sum(axis=1)[:, None] * onward
        beside.across(zero, thirds, np.full(len(thirds), h), leaving)
        if moved.any():
            which, r = np.nonzero(moved)
            again = np.repeat(np.arange(len(which)), f.routers)
            target = np.tile(np.arange(f.routers), len(which))
            parts = moved[which, r][again] * onward[which[again], target]
            none = np.zeros(len(again), dtype=np.int64)
            if f.kind == "dragonfly":
                beside.hop(none, thirds[which[again]], r[again], target, parts)
            else:  # down to any leaf, and up
                for leaf in range(f.leaves):
                    any_leaf = np.full(len(again), leaf)
                    beside.down(none, thirds[which[again]], any_leaf, r[again], parts / f.leaves)
                    beside.up(none, thirds[which[again]], any_leaf, target, parts / f.leaves)
        links = np.concatenate(inner.links)
        parts = np.concatenate(inner.parts)
        used, back = np.unique(links, return_inverse=True)
        return used, sums(back.reshape(-1), parts, len(used))


def _tree(f: Fabric, s_leaf: Ints, t_leaf: Ints) -> tuple[csr_matrix, Floats]:
    """Every leaf's ways up together: flows are spread evenly over them."""
    size = f.groups * f.leaves
    table = _Table()
    rows = np.arange(len(s_leaf))
    away = s_leaf != t_leaf
    one = np.ones(int(away.sum()))
    table.add(rows[away], s_leaf[away], one)
    table.add(rows[away], size + t_leaf[away], one)
    far = s_leaf // f.leaves != t_leaf // f.leaves
    one = np.ones(int(far.sum()))
    table.add(rows[far], 2 * size + s_leaf[far] // f.leaves, one)
    table.add(rows[far], 2 * size + f.groups + t_leaf[far] // f.leaves, one)
    rates = np.concatenate(
        [
            np.full(2 * size, f.up_links * f.link_rate),
            np.full(2 * f.groups, max(1e-300, f.spines * f.core_links * f.link_rate)),
        ]
    )
    return table.matrix(len(s_leaf), len(rates)), rates
