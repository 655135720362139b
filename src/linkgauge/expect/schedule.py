"""Schedules that reach a limit of links: trees with their shares, or ways between devices with theirs.

What the rules' linear programs promise, made by column generation (Ford and Fulkerson 1958): a program over the parts
known so far prices the links; the cheapest way, or tree (Chu and Liu 1965, Edmonds 1967), at these prices joins it,
until none is cheaper than what it would earn. Apart from the programs of `flows` and `cuts`, whose values it confirms.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from linkgauge.errors import UsageError
from linkgauge.expect.graph import Wires
from linkgauge.expect.query import Query
from linkgauge.system.graph import Arc, Path

MOST_DEVICES = 16
"""An allreduce over so many takes some 10 s."""
_MOST_ROUNDS = 500
_WAYS = ("unidirectional", "bidirectional", "ring_shift", "pairs_unidirectional", "pairs_bidirectional", "alltoall",
         "scatter", "gather", "one_to_all", "all_to_one")  # fmt: skip
_TREES = {"broadcast": "rooted_cut", "reduce": "rooted_cut", "allgather": "tree_packing",
          "reduce_scatter": "tree_packing", "allreduce": "allreduce_trees"}  # fmt: skip
PATTERNS_OF_SCHEDULES = (*_WAYS, *_TREES)


@dataclass(frozen=True)
class Part:
    """One way or tree, and the bytes per second that it carries, on each of its steps at once.

    Steps are ways from device to device, through switches and devices that take no part, in the order in which a byte
    takes them: `reduce` towards `root`, each sender adding what it got before, then `copy` away from it. A way of a
    pattern between pairs is one step of `copy` from `root`.
    """

    root: str
    rate_bytes_per_s: float
    reduce: tuple[Path, ...] = ()
    copy: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """A pattern's goodput in bytes per second (as docs/definitions.md counts it), the rule that claims it, its parts.

    The goodput is that of all parts at once, over the links of `scope`; `exact`: no other parts give more.
    """

    pattern: str
    rule: str
    scope: str
    value_bytes_per_s: float
    exact: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class _Demand:
    """What must flow, `amount` of it for each unit of the program, and what finds its cheapest part at given prices."""

    amount: float
    cheapest: Callable[[Mapping[Arc, float]], tuple[float, Part] | None]


def schedule(q: Query) -> Schedule:
    """Return a schedule over the links of the case's own scope.

    UsageError for a pattern without one, more than MOST_DEVICES devices, several nodes, a link of unknown rate, or
    devices that the links do not join.
    """
    graph, names, n = q.graph(), q.names, q.ranks
    if q.pattern not in PATTERNS_OF_SCHEDULES:
        raise UsageError(f"no schedule for {q.pattern}: expected one of {', '.join(PATTERNS_OF_SCHEDULES)}")
    if q.nodes > 1 or len(names) > MOST_DEVICES or len(names) < 2:
        raise UsageError(f"a schedule is of 2 to {MOST_DEVICES} devices of one node: name them with --devices")
    if graph.unknown:
        raise UsageError(f"no schedule where a link's rate is unknown: {graph.unknown[0]}")
    if not graph.joined(q.devices):
        raise UsageError(f"no schedule: the {graph.scope} links do not join all these devices")
    rule, factor = _TREES.get(q.pattern, "concurrent_flow"), 1.0
    if q.pattern in _TREES:
        demands = _trees(q, graph)
    else:
        pairs = _pairs(q)
        demands = [_Demand(float(count), _cheapest_way(graph, *pair)) for pair, count in pairs.items()]
        if q.traits.root:
            rule, factor = "scatter_cut", n - 1.0 if q.traits.per_peer else float(n)
        elif q.traits.to_each:
            factor = n - 1.0
        elif q.pattern == "unidirectional":
            rule = "max_flow"
    if not demands:
        raise UsageError(f"no schedule: {q.pattern} sends nothing between these devices")
    value, exact, parts = _generated(graph, demands)
    return Schedule(q.pattern, rule, graph.scope, value * factor, exact, parts)


def _pairs(q: Query) -> Counter[tuple[str, str]]:
    ranks = q.rank_names
    root, apart = q.root_name, list(zip(ranks[::2], ranks[1::2], strict=False))
    listed: Sequence[tuple[str, str]]
    if q.traits.root:
        listed = [(root, v) if q.traits.root == "sends" else (v, root) for v in ranks]
    elif q.traits.to_each:
        listed = list(itertools.permutations(ranks, 2))
    elif q.traits.side_by_side_of:
        listed = apart + ([(b, a) for a, b in apart] if q.pattern == "pairs_bidirectional" else [])
    else:
        listed = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))[: 1 if q.pattern == "unidirectional" else None]
    return Counter(pair for pair in listed if pair[0] != pair[1])


def _trees(q: Query, graph: Wires) -> list[_Demand]:
    away, towards = _cheapest_trees(graph, q.names), _cheapest_trees(graph.reversed(), q.names)

    def part(prices: Mapping[Arc, float], root: str, *, reduce: bool, copy: bool) -> tuple[float, Part] | None:
        there = towards(root, {(b, a): price for (a, b), price in prices.items()}) if reduce else (0.0, ())
        back = away(root, prices) if copy else (0.0, ())
        if there is None or back is None:
            return None
        steps = tuple(step[::-1] for step in there[1][::-1])
        return there[0] + back[0], Part(root, 0.0, steps, back[1])

    if q.pattern == "allreduce":

        def best(prices: Mapping[Arc, float]) -> tuple[float, Part] | None:
            found = [part(prices, root, reduce=True, copy=True) for root in q.names]
            return min((one for one in found if one is not None), key=lambda one: one[0], default=None)

        return [_Demand(1.0, best)]
    copy = q.pattern in ("allgather", "broadcast")
    shares = {q.root_name: 1.0} if q.traits.rooted else {v: count / q.ranks for v, count in q.weights.items()}
    return [
        _Demand(share, functools.partial(part, root=root, reduce=not copy, copy=copy)) for root, share in shares.items()
    ]


def _generated(graph: Wires, demands: Sequence[_Demand]) -> tuple[float, bool, tuple[Part, ...]]:
    """Return the most that flows of every demand at once, whether nothing gives more, and the parts that carry it."""
    arcs = {arc: place for place, arc in enumerate(graph.arcs)}
    scale = max(graph.arcs.values())
    room = np.array([rate / scale for rate in graph.arcs.values()])
    prices = {arc: scale / rate for arc, rate in graph.arcs.items()}
    earns = [math.inf] * len(demands)
    known: dict[tuple[int, Part], Counter[Arc]] = {}
    done: Any = None
    for _ in range(_MOST_ROUNDS):
        new = False
        for number, demand in enumerate(demands):
            found = demand.cheapest(prices)
            if found is None:
                raise UsageError(f"no schedule: the {graph.scope} links do not join all these devices")
            if found[0] < earns[number] - 1e-9 and (number, found[1]) not in known:
                steps = (*found[1].reduce, *found[1].copy)
                known[number, found[1]] = Counter(arc for step in steps for arc in itertools.pairwise(step))
                new = True
        if not new:
            break
        ends = [(arcs[arc], column, n) for column, used in enumerate(known.values()) for arc, n in used.items()]
        rows, columns, counts = zip(*ends, strict=True)
        used = scipy.sparse.csr_array((counts, (rows, columns)), shape=(len(arcs), len(known) + 1))
        equal = np.zeros((len(demands), len(known) + 1))
        for column, (number, _) in enumerate(known):
            equal[number, column] = 1.0
        equal[:, -1] = [-demand.amount for demand in demands]
        cost = np.zeros(len(known) + 1)
        cost[-1] = -1.0
        done = scipy.optimize.linprog(cost, A_ub=used, b_ub=room, A_eq=equal, b_eq=np.zeros(len(demands)))
        if done.status != 0:
            raise RuntimeError(f"linear program: {done.message}")
        prices = dict(zip(arcs, np.maximum(-done.ineqlin.marginals, 0.0).tolist(), strict=True))
        earns = done.eqlin.marginals.tolist()
    else:
        new = True
    rates = zip(known, (done.x[:-1] * scale).tolist(), strict=True)
    parts = [
        Part(part.root, rate, *(tuple(_outside(graph, step) for step in steps) for steps in (part.reduce, part.copy)))
        for (_, part), rate in rates
        if rate > 1e-9 * scale
    ]
    return float(done.x[-1]) * scale, not new, tuple(sorted(parts, key=lambda part: -part.rate_bytes_per_s))


def _outside(graph: Wires, path: Path) -> Path:
    """Return a way without the entrances of vertices that have a throughput."""
    return (*(arc[0] for arc in itertools.pairwise(path) if arc not in graph.inner), path[-1])


def _ways(
    graph: Wires, source: str, prices: Mapping[Arc, float], ends: frozenset[str]
) -> dict[str, tuple[float, Path]]:
    """Return the cheapest way from a vertex to each other one, past none of `ends`; of ways as cheap the shortest."""
    found: dict[str, tuple[float, Path]] = {}
    queue: list[tuple[float, int, Path]] = [(0.0, 0, (source,))]
    while queue:
        price, hops, path = heapq.heappop(queue)
        if path[-1] in found:
            continue
        found[path[-1]] = (price, path)
        if path[-1] == source or path[-1] not in ends:
            for head in graph.graph.heads(path[-1]):
                if head not in found:
                    heapq.heappush(queue, (price + prices[path[-1], head], hops + 1, (*path, head)))
    return found


def _cheapest_way(graph: Wires, source: str, target: str) -> Callable[[Mapping[Arc, float]], tuple[float, Part] | None]:
    def cheapest(prices: Mapping[Arc, float]) -> tuple[float, Part] | None:
        found = _ways(graph, source, prices, frozenset()).get(target)
        return None if found is None else (found[0], Part(source, 0.0, copy=(found[1],)))

    return cheapest


def _cheapest_trees(
    graph: Wires, names: Sequence[str]
) -> Callable[[str, Mapping[Arc, float]], tuple[float, tuple[Path, ...]] | None]:
    """Return what finds the cheapest tree out of a root over these devices: its price, its steps from the root on."""
    kept: list[Any] = [None, {}]

    def cheapest(root: str, prices: Mapping[Arc, float]) -> tuple[float, tuple[Path, ...]] | None:
        if kept[0] != prices:  # all roots ask at the same prices
            kept[:] = [dict(prices), {name: _ways(graph, name, prices, frozenset(names)) for name in names}]
        ways = kept[1]
        costs = {(a, b): ways[a][b][0] for a in names for b in names if a != b and b in ways[a] and b != root}
        parents = _branching(costs, root, list(names))
        if parents is None:
            return None
        order = [root]
        for name in order:
            order.extend(head for head, tail in parents.items() if tail == name)
        steps = tuple(ways[parents[name]][name][1] for name in order[1:])
        return sum(costs[parents[name], name] for name in order[1:]), steps

    return cheapest


def _branching(costs: Mapping[Arc, float], root: str, names: Sequence[str]) -> dict[str, str] | None:
    """Return each vertex's parent in the cheapest tree out of the root (Chu and Liu 1965, Edmonds 1967)."""
    parents: dict[str, str] = {}
    for name in names:
        if name != root:
            entering = [(cost, tail) for (tail, head), cost in costs.items() if head == name]
            if not entering:
                return None
            parents[name] = min(entering)[1]
    for start in parents:
        cycle = [start]
        while cycle[-1] in parents and parents[cycle[-1]] not in cycle:
            cycle.append(parents[cycle[-1]])
        if parents.get(cycle[-1]) == start:
            break
    else:
        return parents
    # The circle becomes one vertex, which a tree enters where that costs least over the arc that it then lacks.
    one = "\0" + cycle[0]
    inner: dict[Arc, tuple[float, Arc]] = {}
    for (tail, head), cost in costs.items():
        if head in cycle:
            if tail in cycle:
                continue
            arc, cost = (tail, one), cost - costs[parents[head], head]
        else:
            arc = (one if tail in cycle else tail, head)
        if arc not in inner or cost < inner[arc][0]:
            inner[arc] = (cost, (tail, head))
    rest = [name for name in names if name not in cycle]
    found = _branching({arc: cost for arc, (cost, _) in inner.items()}, root, [*rest, one])
    if found is None:
        return None
    result = {name: parents[name] for name in cycle}
    for head, tail in found.items():
        source, target = inner[tail, head][1]
        result[target] = source
    return result
