"""Linear programs over multipath routing: concurrent flows, and allreduce by packed trees. Solved by HiGHS, sparse.

Flows, arcs and vertices that are alike stand in a program once (`alike`), so that its size is that of what differs. A
program beyond `MOST_COLUMNS` is not solved; what stands in its place says so. Rates are scaled so that the largest
finite capacity is 1 before the solver sees them, and back after.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linkgauge.expect import cuts, paths
from linkgauge.expect.alike import Alike, Flow, Group, alike, alike_but
from linkgauge.expect.graph import Wires
from linkgauge.expect.linear_program import LinearProgram, TooLargeError, UnboundedError
from linkgauge.system.remembered import remembered

MOST_OF_FLOWS, MOST_OF_TREES = 20_000, 6_000
"""Programs of more variables are not solved. Each bar takes 2 to 4 s: of flows alone, and of trees, whose parts tie
them together."""
_FEW = 4  # vertices that repeat: the program over sets of them has 2 ** _FEW parts, 16 times that of one set


def _scale(wires: Wires) -> float:
    finite = [rate for rate in wires.arcs.values() if not math.isinf(rate)]
    return max(finite, default=1.0)


def _flow(
    program: LinearProgram, flow: Flow, *, out: bool, turned: bool = False, closed: Collection[int] = ()
) -> tuple[list[tuple[int, Group]], dict[int, list[tuple[int, float]]]]:
    """Add a class of flows; return a column for each group of arcs, what all its arcs carry, and what enters places.

    Nothing enters the end where the flow goes `out` of it, else nothing leaves it. `turned`: over every arc backwards;
    no arc of the classes `closed` is used.
    """
    balance: dict[int, list[tuple[int, float]]] = {place: [] for place in flow.sizes}
    groups = [(b, a, arc, count) if turned else (a, b, arc, count) for a, b, arc, count in flow.groups]
    groups = [g for g in groups if (g[1] if out else g[0]) != flow.end_place and g[2] not in closed]
    columns = list(zip(program.variables(len(groups)), groups, strict=True))
    for column, (tail, head, _, _) in columns:
        balance[tail].append((column, -1.0))
        balance[head].append((column, 1.0))
    return columns, balance


@dataclass(frozen=True)
class Rate:
    """A rate in bytes per second that nothing exceeds, and one that a routing reaches; `words` where they differ."""

    bound: float
    reached: float
    words: str = ""


@remembered
def concurrent(wires: Wires, demands: Mapping[tuple[str, str], float]) -> Rate | None:
    """Return the largest x in bytes per second at which every pair's demand times x flows at the same time.

    The linear program over all routings (concurrent multicommodity flow): one flow for each source, split as it likes.
    Where that is too large, the least of some cuts, and what even shares over the paths of fewest hops reach. None
    where no known capacity limits it; 0 where a pair is not joined.
    """
    demands = {pair: amount for pair, amount in demands.items() if amount > 0 and pair[0] != pair[1]}
    return _concurrent(wires, *of_demands(wires, demands)) if demands else None


@remembered
def of_demands(wires: Wires, demands: Mapping[tuple[str, str], float]) -> tuple[Alike, Any]:
    """Return the classes of the flows that meet these demands, and a row of demands for each, by target's vertex."""
    sources = tuple(dict.fromkeys(source for source, _ in demands))
    row = {source: i for i, source in enumerate(sources)}
    place = {vertex: i for i, vertex in enumerate(wires.vertices)}
    wanted = np.zeros((len(sources), len(place)))
    for (source, target), amount in demands.items():
        wanted[row[source], place[target]] = amount
    return alike_but(wires, sources, wanted), wanted


@remembered
def alltoall(wires: Wires, weights: Mapping[str, int]) -> Rate | None:
    """Return the same for a demand of one between each ordered pair of ranks on different vertices."""
    names = tuple(weights)
    return _concurrent(wires, alike(wires, names, weights), paths.exchanged(wires, weights)) if len(names) > 1 else None


def _concurrent(wires: Wires, like: Alike, wanted: Any) -> Rate | None:
    rates = np.array(list(wires.arcs.values()))
    if not np.isfinite(rates).any():
        return None
    scale = _scale(wires)
    program = LinearProgram(MOST_OF_FLOWS)
    rate = program.variables(1)[0]
    used: dict[int, list[tuple[int, float]]] = {}
    try:
        for flow in like.flows:
            columns, balance = _flow(program, flow, out=True)
            for column, (_, _, arc, _) in columns:
                used.setdefault(arc, []).append((column, float(flow.count)))
            for place, terms in balance.items():
                if place != flow.end_place:
                    asked = float(wanted[flow.number, flow.places == place].sum())
                    program.row([*terms, (rate, -asked)] if asked else terms, 0.0, equal=True)
    except TooLargeError as error:
        return _cheaper(wires, like, wanted, f"{error} is not solved")
    for arc, terms in used.items():
        if math.isfinite(rates[like.arcs[arc]]):
            program.row(terms, rates[like.arcs[arc]] / scale * like.arc_counts[arc], equal=False)
    try:
        value, _ = program.maximize([(rate, 1.0)])
    except UnboundedError:
        return None
    return Rate(value * scale, value * scale)


def _cheaper(wires: Wires, like: Alike, wanted: Any, why: str) -> Rate | None:
    """Return the least of the cuts around each vertex, alone and with its dependents, and what even shares reach.

    A cut bounds by what leaves, or enters, over what must.
    """
    rates = np.array(list(wires.arcs.values()))
    near: dict[int, set[int]] = {}
    for tail, head in zip(like.tails.tolist(), like.heads.tolist(), strict=True):
        near.setdefault(tail, set()).add(head)
        near.setdefault(head, set()).add(tail)
    found: list[tuple[float, str]] = []
    sources = np.array(like.ends)
    for vertex, others in near.items():
        hanging = {other for other in others if near[other] == {vertex}}
        for members in {frozenset({vertex}), frozenset({vertex, *hanging})}:
            inside = np.zeros(len(wires.vertices), dtype=bool)
            inside[list(members)] = True
            name = wires.vertices[vertex] + (" with what is attached to it" if len(members) > 1 else "")
            for way, there in (("leave", inside), ("enter", ~inside)):
                asked = float(wanted[there[sources]][:, ~there].sum())
                crossing = float(rates[there[like.tails] & ~there[like.heads]].sum())
                if asked > 0 and math.isfinite(crossing):
                    found.append((crossing / asked, f"links that {way} {name}"))
    least, words = min(found, default=(math.inf, ""))
    loads = paths.even_loads(wires, like.ends, wanted)
    if loads is None:
        return Rate(0.0, 0.0)
    reached = float((rates[loads > 0] / loads[loads > 0]).min())
    if not math.isfinite(least):
        return None if not math.isfinite(reached) else Rate(math.inf, reached)
    return Rate(least, reached, f"{words} ({why})")


def _roots(like: Alike, wires: Wires, names: Collection[str]) -> dict[int, int]:
    """Return the classes that devices are of, with how many each has."""
    place = {vertex: i for i, vertex in enumerate(wires.vertices)}
    classes, counts = np.unique(like.vertex_class[[place[name] for name in names]], return_counts=True)
    return {int(c): int(n) for c, n in zip(classes, counts, strict=True)}


@remembered
def packed_trees(wires: Wires, weights: Mapping[str, int], *, repeaters: frozenset[str] = frozenset()) -> float | None:
    """Return the largest x in bytes per second at which trees out of every v of `weights` carry x `weights[v]` to all.

    A vertex that is none of `weights` passes on what enters it, once: with what it may carry balanced, trees can be
    packed (Bang-Jensen, Frank and Jackson 1995, splitting off at vertices that as much enters as leaves). Where every
    such vertex is balanced anyway, this is `cuts.gather_all`. `repeaters` may send what enters them any number of
    times, or a mixture of it: with them the value is a bound. None where no known capacity limits it. TooLargeError
    where the program would take too long.
    """
    program = LinearProgram(MOST_OF_TREES)
    rate = program.variables(1)[0]
    like = alike(wires, tuple(weights), {v: (weights.get(v), v in repeaters) for v in wires.vertices})
    of_class = {int(like.vertex_class[i]): v for i, v in enumerate(wires.vertices)}
    roots = {c: (rate, float(weights[of_class[c]]), count) for c, count in _roots(like, wires, weights).items()}
    part = _tree_part(program, wires, like, roots, free=repeaters)
    return _limited(program, wires, like, [part], {}, [(rate, 1.0)])


def _limited(
    program: LinearProgram,
    wires: Wires,
    like: Alike,
    parts: Sequence[Sequence[int]],
    used: Mapping[int, Sequence[tuple[int, float]]],
    aim: Sequence[tuple[int, float]],
) -> float | None:
    """Hold what classes of arcs carry, `parts` each and `used` in all, to their capacities; return the optimum."""
    scale, rates = _scale(wires), list(wires.arcs.values())
    for arc, (member, count) in enumerate(zip(like.arcs, like.arc_counts, strict=True)):
        if math.isfinite(rates[member]):
            terms = [(part[arc], 1.0) for part in parts] + [(c, n / count) for c, n in used.get(arc, ())]
            program.row(terms, rates[member] / scale, equal=False)
    try:
        value, _ = program.maximize(aim)
    except UnboundedError:
        return None
    return value * scale


@remembered
def allreduce_trees(wires: Wires, names: Sequence[str], *, in_network: bool = False) -> float | None:
    """Return the goodput m/t of the best schedule of reducing and broadcasting trees, in bytes per second.

    Maximize the sum of lambda_v over roots v. Each arc's capacity is split into a reducing and a broadcasting part;
    for every proper set S the broadcasting capacity leaving S and the reducing capacity entering S are at least
    the sum of lambda over S, written as a flow of the whole from the roots to each device (docs/definitions.md,
    Limits). A vertex that cannot repeat or add data gets parts that balance: what leaves is what entered.

    `in_network` says that switches which can repeat or add are used for it. A tree then branches in some set of them,
    each of which it reaches like a device: the parts are sums over such sets, each a packing of trees (a single part
    in which switches repeat as they like would allow codes, which no switch computes). Of more than 4 switches that
    repeat only the sets of none, one and all are tried: less than the best, and reached. None where an arc's rate is
    unknown. TooLargeError where the program would take too long.
    """
    if any(math.isinf(rate) for rate in wires.arcs.values()) or len(names) < 2:
        return None
    if not in_network:
        return _allreduce(wires, names, [frozenset()], [frozenset()])
    # Mostly trees through all switches reach the cut, and then nothing is better.
    value = _allreduce(wires, names, [wires.multicast], [wires.reduction])
    cut = cuts.smallest_pair_cut(wires, names).value
    if cut is not None and value < cut * (1 - 1e-9):
        with contextlib.suppress(TooLargeError):
            value = max(value, _allreduce(wires, names, _some(wires.multicast), _some(wires.reduction)))
    return value


def _some(repeaters: frozenset[str]) -> list[frozenset[str]]:
    """Return the sets of vertices that trees may branch in: every one of a few, else none, one and all."""
    sizes = range(len(repeaters) + 1) if len(repeaters) <= _FEW else sorted({0, 1, len(repeaters)})
    return [frozenset(chosen) for size in sizes for chosen in itertools.combinations(sorted(repeaters), size)]


def _allreduce(
    wires: Wires, names: Sequence[str], repeating: Sequence[frozenset[str]], adding: Sequence[frozenset[str]]
) -> float:
    """Return the program's value where broadcasting trees branch in one of `repeating`, reducing ones in `adding`."""
    program = LinearProgram(MOST_OF_TREES)
    sets = (*repeating, *adding)
    labels = {v: (v in names, *(v in chosen for chosen in sets)) for v in wires.vertices}
    like = alike(wires, (*names, *sorted(frozenset().union(*sets))), labels)
    sizes = _roots(like, wires, names)
    roots = {c: (column, 1.0, sizes[c]) for c, column in zip(sizes, program.variables(len(sizes)), strict=True)}
    parts = _tree_parts(program, wires, like, roots, repeating)
    # On a symmetric graph some best schedule reduces along its broadcasting trees turned round: half the program.
    if wires.symmetric and list(repeating) == list(adding):
        number = {arc: i for i, arc in enumerate(wires.arcs)}
        arcs = list(wires.arcs)
        back = [like.arc_class[number[arcs[member][::-1]]] for member in like.arcs]
        parts = [*parts, *([part[arc] for arc in back] for part in parts)]
    else:
        parts = [*parts, *_tree_parts(program, wires, like, roots, adding, turned=True)]
    value = _limited(program, wires, like, parts, {}, [(column, float(n)) for column, _, n in roots.values()])
    assert value is not None  # every arc is limited
    return value


Roots = Mapping[int, tuple[int, float, int]]
"""Of each class of roots a column, by how much of it each one sends, and how many they are."""


def _tree_parts(
    program: LinearProgram,
    wires: Wires,
    like: Alike,
    roots: Roots,
    branching: Sequence[frozenset[str]],
    *,
    turned: bool = False,
) -> list[list[int]]:
    """Add a broadcasting part of each arc for each set of vertices that trees branch in; return the parts' columns."""
    shares = [roots]
    if len(branching) > 1:
        shares = [
            {c: (column, 1.0, roots[c][2]) for c, column in zip(roots, program.variables(len(roots)), strict=True)}
            for _ in branching
        ]
        for c, (column, factor, _) in roots.items():
            program.row([(column, -factor), *((share[c][0], 1.0) for share in shares)], 0.0, equal=True)
    return [
        _tree_part(program, wires, like, share, branching=chosen, turned=turned)
        for share, chosen in zip(shares, branching, strict=True)
    ]


def _tree_part(
    program: LinearProgram,
    wires: Wires,
    like: Alike,
    roots: Roots,
    *,
    branching: frozenset[str] = frozenset(),
    free: frozenset[str] = frozenset(),
    turned: bool = False,
    closed: Collection[int] = (),
) -> list[int]:
    """Add the broadcasting part of each class of arcs and the flows that prove it enough; return the part's columns.

    All reaches every root and every vertex of `branching`, which may repeat it. `free` vertices need nothing and may
    send whatever they can make of what enters them; all others send what enters them. `turned`: over all arcs
    backwards; classes of arcs that are `closed` carry nothing.
    """
    part = list(program.variables(len(like.arcs)))
    passing: dict[int, list[tuple[int, float]]] = {}
    for vertex, name in enumerate(wires.vertices):
        if like.vertex_class[vertex] not in roots and name not in branching and name not in free:
            passing.setdefault(int(like.vertex_class[vertex]), [])
    for arc, tail, head in zip(like.arc_class.tolist(), like.tails, like.heads, strict=True):
        for vertex, sign in ((tail, -1.0), (head, 1.0)):
            if like.vertex_class[vertex] in passing:
                passing[int(like.vertex_class[vertex])].append((part[arc], sign))
    for terms in passing.values():
        program.row(terms, 0.0, equal=True)
    for arc in closed:
        program.row([(part[arc], 1.0)], 0.0, equal=True)
    for flow in like.flows:
        if flow.end < 0 or not (like.vertex_class[flow.end] in roots or wires.vertices[flow.end] in branching):
            continue
        columns, balance = _flow(program, flow, out=False, turned=turned, closed=closed)
        for column, (_, _, arc, count) in columns:
            program.row([(column, 1.0), (part[arc], -float(count))], 0.0, equal=False)
        for place, size in flow.sizes.items():
            own = roots.get(int(like.vertex_class[flow.member[place]]))
            if own is not None:
                supply = program.variables(1)[0]
                program.row([(supply, 1.0), (own[0], -own[1] * size)], 0.0, equal=False)
                balance[place].append((supply, 1.0))
        balance[flow.end_place].extend((column, -factor * count) for column, factor, count in roots.values())
        for terms in balance.values():
            if terms:
                program.row(terms, 0.0, equal=True)
    return part


@remembered
def hierarchical(wires: Wires, weights: Mapping[str, int], inside: Collection[tuple[str, str]], share: float) -> float:
    """Return the goodput m/t of a hierarchical allreduce in bytes per second, all its phases at once on all links.

    Each rank gets its part of a node's sum over the arcs `inside`, and all get all parts over them again; meanwhile
    what devices hold goes out to `wires.network` by any NIC, and as much comes in: `share` of m for each node, split
    evenly over its ranks. One linear program; 0 where a device reaches no NIC. TooLargeError where it would take too
    long.
    """
    assert wires.network is not None
    program = LinearProgram(MOST_OF_TREES)
    rate = program.variables(1)[0]
    arcs, total = list(wires.arcs), sum(weights.values())
    nics = [{arc[way] for arc in arcs if arc[1 - way] == wires.network} for way in (0, 1)]  # out of the node, into it
    labels = {v: (weights.get(v), v == wires.network, v in nics[0], v in nics[1]) for v in wires.vertices}
    like = alike(wires, (*weights, None), labels, {arc: arc in inside for arc in arcs})
    of_class = {int(like.vertex_class[i]): v for i, v in enumerate(wires.vertices)}
    roots = {c: (rate, weights[of_class[c]] / total, n) for c, n in _roots(like, wires, weights).items()}
    outside = [c for c, member in enumerate(like.arcs) if arcs[member] not in inside]
    (way,) = (flow for flow in like.flows if flow.end < 0)
    parts: list[list[int]] = []
    used: dict[int, list[tuple[int, float]]] = {}
    for turned in (False, True):
        parts.append(_tree_part(program, wires, like, roots, turned=turned, closed=outside))
        # A NIC passes on what goes out by it, and no other traffic.
        ends = [arcs[member][::-1] if turned else arcs[member] for member in like.arcs]
        closed = [
            c for c, (a, b) in enumerate(ends) if a == wires.network or (a in nics[turned] and b != wires.network)
        ]
        columns, balance = _flow(program, way, out=True, turned=turned, closed=closed)
        for column, (_, _, arc, _) in columns:
            used.setdefault(arc, []).append((column, 1.0))
        for place, terms in balance.items():
            name = wires.vertices[way.member[place]]
            if name != wires.network:
                sent = share * weights.get(name, 0) / total * way.sizes[place]
                program.row([*terms, (rate, sent)], 0.0, equal=True)
    value = _limited(program, wires, like, parts, used, [(rate, 1.0)])
    return math.inf if value is None else value
