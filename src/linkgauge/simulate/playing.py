"""A stage of unlike flows played out: max-min fair rates until one is through, and again, until all are.

Where all flows have as many bytes the fullest link says when all are through (routes.time_of), and nothing is played.
Elsewhere that is a bound from below: whoever has little leaves others more, but nobody gets back what a link did not
carry while flows waited elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, hstack

from linkgauge.simulate.arrays import Floats, Ints, sums
from linkgauge.simulate.fair import Classes, TooManyError, play
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.stage import Stage

MOST_FLOWS = 20_000
_MOST_LOOKED = 6e6  # parts of flows on links, over all events: 5 s
_ALIKE = 1e-3  # sizes that differ by less, as those of blocks of whole elements do
_TOGETHER = 3e-4  # of the fullest link's time: flows that end so close together end at once

Ways = Callable[[Ints, Ints], tuple[csr_matrix, Floats]]
"""What part of each flow between two leaves (of a torus: nodes) passes which link, and the links' rates."""


def unlike(stage: Stage) -> bool:
    """Whether a stage's flows differ in their bytes."""
    sizes = [stage.bytes[stage.bytes > 0]]
    for term in stage.terms:
        sent, taken = (np.unique(side[side > 0]) for side in (term.a, term.b))
        if len(sent) and len(taken):
            sizes.append(np.array([sent[0] * taken[0], sent[-1] * taken[-1]]))
    every = np.concatenate(sizes)
    return bool(len(every)) and float(every.max()) > float(every.min()) * (1 + _ALIKE)


def listed(stage: Stage) -> Stage:
    """The same stage with every flow by itself, and none of no bytes. TooManyError."""
    if sum(len(term.a) ** 2 for term in stage.terms) > 100 * MOST_FLOWS:
        raise TooManyError
    parts = [(stage.source, stage.target, stage.bytes)]
    for term in stage.terms:
        table = np.outer(term.a, term.b)
        np.fill_diagonal(table, 0.0)
        source, target = np.nonzero(table)
        parts.append((source, target, table[source, target]))
    source, target, size = (np.concatenate([part[k] for part in parts]) for k in range(3))
    moved = size > 0
    if int(moved.sum()) > MOST_FLOWS:
        raise TooManyError
    flows = source[moved].astype(np.int64), target[moved].astype(np.int64), size[moved]
    return dataclasses.replace(stage, terms=(), source=flows[0], target=flows[1], bytes=flows[2])


def played(layout: Layout, stage: Stage, ways: Ways, fullest: float) -> float:
    """Seconds until all flows of a listed stage are through, no less than the fullest link takes. TooManyError."""
    f = layout.fabric
    source, target, size = stage.source, stage.target, stage.bytes
    n, p = len(source), f.ports
    s_node, t_node = layout.node[source], layout.node[target]
    away = layout.unit[s_node] != layout.unit[t_node]
    t_port = layout.port[target]
    s_port = t_port if f.forwarded else layout.port[source]
    nodes = len(layout.nodes)
    own = np.flatnonzero(away)
    parts: list[tuple[Ints, Ints, Floats]] = []
    rates: list[Floats] = []
    width = 0

    def add(rows: Ints, links: Ints, shares: Floats, capacity: Floats) -> None:
        nonlocal width
        parts.append((rows, width + links, shares))
        rates.append(capacity)
        width += len(capacity)

    at = layout.node * p + layout.port
    order = np.argsort(at, kind="stable")
    first = np.searchsorted(at[order], np.arange(nodes * p + 1))
    for node, port, rank, behind in (
        (s_node, s_port, source, f.behind_out), (t_node, t_port, target, f.behind_in)
    ):  # fmt: skip
        add(own, (node * p + port)[own], np.ones(len(own)), np.full(nodes * p, f.port_rate))
        for link in behind:
            shares = np.array(link.shares)[layout.gpu[rank[own]]]
            if f.forwarded and rank is source:  # by the GPUs of the port, whoever they had it from
                of_port = sums(at, np.array(link.shares)[layout.gpu], nodes * p) / np.maximum(1, np.diff(first))
                shares = of_port[(node * p + port)[own]]
            add(own[shares > 0], node[own][shares > 0], shares[shares > 0], np.full(nodes, link.rate))
    ends = (layout.nodes[s_node], layout.nodes[t_node]) if f.kind == "torus" else (
        layout.leaves[s_node, s_port], layout.leaves[t_node, t_port]
    )  # fmt: skip
    inner, capacity = ways(ends[0][own], ends[1][own])
    if f.domain_rate is not None:
        ranks = np.full(layout.ranks, f.domain_rate)
        near = np.flatnonzero(~away)
        handed = np.flatnonzero(away & (layout.port[source] != t_port)) if f.forwarded else near[:0]
        out = np.concatenate([near, handed])
        add(out, source[out], np.ones(len(out)), ranks)
        # What another rail's port is to send goes to the GPUs there first, evenly.
        wanted = (s_node * p + s_port)[handed]
        holders = np.diff(first)[wanted]
        again = np.repeat(handed, holders)
        step = np.arange(len(again)) - np.repeat(np.cumsum(holders) - holders, holders)
        held = order[np.repeat(first[wanted], holders) + step]
        rows, links = np.concatenate([near, again]), np.concatenate([target[near], held])
        add(rows, links, np.concatenate([np.ones(len(near)), np.repeat(1 / np.maximum(1, holders), holders)]), ranks)
    rows, links, shares = (np.concatenate([part[k] for part in parts]) for k in range(3))
    ends_of = coo_matrix((shares, (rows, links)), shape=(n, width)).tocsr()
    between = csr_matrix((n, inner.shape[1])) if not len(own) else coo_matrix(
        (inner.data, (own[np.repeat(np.arange(len(own)), np.diff(inner.indptr))], inner.indices)),
        shape=(n, inner.shape[1]),
    ).tocsr()  # fmt: skip
    uses = hstack([ends_of, between]).tocsr()
    limited = np.diff(uses.indptr) > 0
    used = np.unique(uses.indices)
    if not len(used):
        return fullest
    uses, size = uses[limited][:, used].tocsr(), size[limited]
    classes = _merged(uses, size, np.concatenate([*rates, capacity])[used])
    found = play(classes, within=_ALIKE, together=_TOGETHER * fullest, most=_MOST_LOOKED).ends
    return max(fullest, float(found.max(initial=0.0)))


def _merged(uses: csr_matrix, size: Floats, capacity: Floats) -> Classes:
    """Flows of as many bytes over the same links are one class."""
    drawn = np.random.default_rng(0).random((2, uses.shape[1]))
    marks = np.stack([uses @ drawn[0], uses @ drawn[1], size])
    _, first, count = np.unique(np.round(marks / marks.max(axis=1, keepdims=True), 12), axis=1, return_index=True,
                                return_counts=True)  # fmt: skip
    return Classes(uses[first].tocsr(), count.astype(float), size[first], capacity)
