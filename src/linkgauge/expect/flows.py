"""Linear programs over multipath routing: concurrent flows, and allreduce by packed trees. Solved by HiGHS, sparse.

Rates are scaled so that the largest finite capacity is 1 before the solver sees them, and back after.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from linkgauge.expect import cuts
from linkgauge.expect.graph import Wires
from linkgauge.system.remembered import remembered

_LARGE = 2000
_FEW = 4  # vertices that repeat: the program over sets of them has 2 ** _FEW parts, 16 times that of one set
_UNBOUNDED, _DIFFICULT = 3, 4  # scipy.optimize.linprog's status


class UnboundedError(RuntimeError):
    """A linear program whose optimum has no limit."""


class _Program:
    """A linear program in the making: maximise one variable, all variables at least 0."""

    def __init__(self) -> None:
        self.columns = 0
        self.upper: list[float] = []
        self._rows: dict[bool, tuple[list[int], list[int], list[float], list[float]]] = {
            True: ([], [], [], []),
            False: ([], [], [], []),
        }

    def variables(self, uppers: Sequence[float]) -> range:
        first = self.columns
        self.upper.extend(uppers)
        self.columns += len(uppers)
        return range(first, self.columns)

    def row(self, terms: Sequence[tuple[int, float]], right: float, *, equal: bool) -> None:
        """Add sum of coefficient x variable = `right` (equal) or <= `right`."""
        rows, columns, values, rights = self._rows[equal]
        for column, value in terms:
            rows.append(len(rights))
            columns.append(column)
            values.append(value)
        rights.append(right)

    def maximise(self, terms: Sequence[tuple[int, float]]) -> tuple[float, Any]:
        """Return the optimum and the variables.

        UnboundedError where it has no limit, RuntimeError with the solver's words where there is no optimum else.
        """
        cost = np.zeros(self.columns)
        for column, value in terms:
            cost[column] -= value
        matrices: dict[bool, Any] = {}
        for equal, (rows, columns, values, rights) in self._rows.items():
            shape = (len(rights), self.columns)
            matrices[equal] = scipy.sparse.csr_array((values, (rows, columns)), shape=shape) if rights else None
        solve = functools.partial(
            scipy.optimize.linprog,
            cost,
            A_ub=matrices[False],
            b_ub=self._rows[False][3] or None,
            A_eq=matrices[True],
            b_eq=self._rows[True][3] or None,
            bounds=np.column_stack([np.zeros(self.columns), np.asarray(self.upper)]),
            # Interior points are four times as fast on the flows of 64 devices, and the simplex on those of a node.
            method="highs-ipm" if self.columns > _LARGE else "highs-ds",
        )
        done = solve()
        if done.status == _DIFFICULT:  # what is simplified first may leave open whether it is unbounded or infeasible
            done = solve(options={"presolve": False})
        if done.status == _UNBOUNDED:
            raise UnboundedError(f"linear program: {done.message}")
        if done.status != 0:
            raise RuntimeError(f"linear program: {done.message}")
        return -float(done.fun), done.x


def _scale(wires: Wires) -> float:
    finite = [rate for rate in wires.arcs.values() if not math.isinf(rate)]
    return max(finite, default=1.0)


@remembered
def concurrent(wires: Wires, demands: Mapping[tuple[str, str], float]) -> float | None:
    """Return the largest x in bytes per second at which every pair's demand times x flows at the same time.

    The linear program over all routings (concurrent multicommodity flow): one flow for each source, split as it likes.
    None where no known capacity limits it; 0 where a pair is not joined.
    """
    demands = {pair: amount for pair, amount in demands.items() if amount > 0 and pair[0] != pair[1]}
    if not demands:
        return None
    arcs = list(wires.arcs)
    limited = [index for index, arc in enumerate(arcs) if not math.isinf(wires.arcs[arc])]
    if not limited:
        return None
    scale = _scale(wires)
    program = _Program()
    rate = program.variables([math.inf])[0]
    flows: list[range] = []
    for source in dict.fromkeys(pair[0] for pair in demands):
        flow = program.variables([0.0 if head == source else math.inf for _, head in arcs])
        flows.append(flow)
        terms: dict[str, list[tuple[int, float]]] = {vertex: [] for vertex in wires.vertices}
        for column, (tail, head) in zip(flow, arcs, strict=True):
            terms[tail].append((column, -1.0))
            terms[head].append((column, 1.0))
        for vertex, balance in terms.items():
            if vertex != source:
                wanted = demands.get((source, vertex), 0.0)
                program.row([*balance, (rate, -wanted)] if wanted else balance, 0.0, equal=True)
    for index in limited:
        program.row([(flow[index], 1.0) for flow in flows], wires.arcs[arcs[index]] / scale, equal=False)
    try:
        value, _ = program.maximise([(rate, 1.0)])
    except UnboundedError:
        return None
    return value * scale


def all_pairs(weights: Mapping[str, int]) -> dict[tuple[str, str], float]:
    """Return an alltoall's demands: one for each ordered pair of ranks on different vertices."""
    return {(a, b): float(wa * wb) for a, wa in weights.items() for b, wb in weights.items() if a != b}


@remembered
def packed_trees(wires: Wires, weights: Mapping[str, int], *, repeaters: frozenset[str] = frozenset()) -> float | None:
    """Return the largest x in bytes per second at which trees out of every v of `weights` carry x `weights[v]` to all.

    A vertex that is none of `weights` passes on what enters it, once: with what it may carry balanced, trees can be
    packed (Bang-Jensen, Frank and Jackson 1995, splitting off at vertices that as much enters as leaves). Where every
    such vertex is balanced anyway, this is `cuts.gather_all`. `repeaters` may send what enters them any number of
    times, or a mixture of it: with them the value is a bound. None where no known capacity limits it.
    """
    program = _Program()
    rate = program.variables([math.inf])[0]
    roots = dict(zip(weights, program.variables([math.inf] * len(weights)), strict=True))
    for name, column in roots.items():
        program.row([(column, 1.0), (rate, -float(weights[name]))], 0.0, equal=True)
    part = _tree_part(program, wires, roots, free=repeaters)
    scale = _scale(wires)
    for arc, capacity in wires.arcs.items():
        if not math.isinf(capacity):
            program.row([(part[arc], 1.0)], capacity / scale, equal=False)
    try:
        value, _ = program.maximise([(rate, 1.0)])
    except UnboundedError:
        return None
    return value * scale


@remembered
def allreduce_trees(wires: Wires, names: Sequence[str], *, in_network: bool = False) -> float | None:
    """Return the goodput m/t of the best schedule of reducing and broadcasting trees, in bytes per second.

    Maximise the sum of lambda_v over roots v. Each arc's capacity is split into a reducing and a broadcasting part;
    for every proper set S the broadcasting capacity leaving S and the reducing capacity entering S are at least
    the sum of lambda over S, written as a flow of the whole from the roots to each device (docs/definitions.md,
    Ceilings). A vertex that cannot repeat or add data gets parts that balance: what leaves is what entered.

    `in_network` says that switches which can repeat or add are used for it. A tree then branches in some set of them,
    each of which it reaches like a device: the parts are sums over such sets, each a packing of trees (a single part
    in which switches repeat as they like would allow codes, which no switch computes). Of more than 4 switches that
    repeat only the sets of none, one and all are tried: less than the best, and reached. None where an arc's rate is
    unknown.
    """
    if any(math.isinf(rate) for rate in wires.arcs.values()) or len(names) < 2:
        return None
    if not in_network:
        return _allreduce(wires, names, [frozenset()], [frozenset()])
    # Mostly trees through all switches reach the cut, and then nothing is better.
    value = _allreduce(wires, names, [wires.multicast], [wires.reduction])
    cut = cuts.smallest_pair_cut(wires, names).value
    if cut is not None and value < cut * (1 - 1e-9):
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
    program = _Program()
    scale = _scale(wires)
    roots = dict(zip(names, program.variables([math.inf] * len(names)), strict=True))
    forward = _tree_parts(program, wires, roots, repeating)
    # On a symmetric graph some best schedule reduces along its broadcasting trees turned round: half the program.
    if wires.symmetric and list(repeating) == list(adding):
        backward = {arc: forward[arc[1], arc[0]] for arc in forward}
    else:
        turned = _tree_parts(program, wires.reversed(), roots, adding)
        backward = {(head, tail): columns for (tail, head), columns in turned.items()}
    for arc, rate in wires.arcs.items():
        program.row([(column, 1.0) for column in (*forward[arc], *backward[arc])], rate / scale, equal=False)
    value, _ = program.maximise([(column, 1.0) for column in roots.values()])
    return value * scale


def _tree_parts(
    program: _Program, wires: Wires, roots: Mapping[str, int], branching: Sequence[frozenset[str]]
) -> dict[tuple[str, str], list[int]]:
    """Add a broadcasting part of each arc for each set of vertices that trees branch in; return the parts' columns."""
    if len(branching) == 1:
        shares = [dict(roots)]
    else:
        shares = [dict(zip(roots, program.variables([math.inf] * len(roots)), strict=True)) for _ in branching]
        for name, column in roots.items():
            program.row([(column, -1.0), *((share[name], 1.0) for share in shares)], 0.0, equal=True)
    parts = [
        _tree_part(program, wires, share, branching=chosen) for share, chosen in zip(shares, branching, strict=True)
    ]
    return {arc: [part[arc] for part in parts] for arc in wires.arcs}


def _tree_part(
    program: _Program,
    wires: Wires,
    roots: Mapping[str, int],
    *,
    branching: frozenset[str] = frozenset(),
    free: frozenset[str] = frozenset(),
) -> dict[tuple[str, str], int]:
    """Add the broadcasting part of each arc and the flows that prove it enough; return the part's columns.

    All reaches every root and every vertex of `branching`, which may repeat it. `free` vertices need nothing and may
    send whatever they can make of what enters them; all others send what enters them.
    """
    arcs = list(wires.arcs)
    part = dict(zip(arcs, program.variables([math.inf] * len(arcs)), strict=True))
    for vertex in wires.vertices:
        if vertex not in roots and vertex not in branching and vertex not in free:
            terms = [(column, 1.0 if arc[1] == vertex else -1.0) for arc, column in part.items() if vertex in arc]
            program.row(terms, 0.0, equal=True)
    for target in (*roots, *sorted(branching)):
        flow = dict(zip(arcs, program.variables([0.0 if arc[0] == target else math.inf for arc in arcs]), strict=True))
        supply = dict(zip(roots, program.variables([math.inf] * len(roots)), strict=True))
        for arc in arcs:
            program.row([(flow[arc], 1.0), (part[arc], -1.0)], 0.0, equal=False)
        for name, column in supply.items():
            program.row([(column, 1.0), (roots[name], -1.0)], 0.0, equal=False)
        for vertex in wires.vertices:
            terms = [(column, 1.0 if arc[1] == vertex else -1.0) for arc, column in flow.items() if vertex in arc]
            if vertex in supply:
                terms.append((supply[vertex], 1.0))
            if vertex == target:
                terms.extend((column, -1.0) for column in roots.values())
            if terms:
                program.row(terms, 0.0, equal=True)
    return part


@remembered
def hierarchical(wires: Wires, weights: Mapping[str, int], inside: Collection[tuple[str, str]], share: float) -> float:
    """Return the goodput m/t of a hierarchical allreduce in bytes per second, all its phases at once on all links.

    Each rank gets its part of a node's sum over the arcs `inside`, and all get all parts over them again; meanwhile
    what devices hold goes out to `wires.network` by any NIC, and as much comes in: `share` of m for each node, split
    evenly over its ranks. One linear program; 0 where a device reaches no NIC.
    """
    assert wires.network is not None
    program = _Program()
    scale = _scale(wires)
    rate = program.variables([math.inf])[0]
    within = wires.with_arcs({arc: capacity for arc, capacity in wires.arcs.items() if arc in inside})
    roots = dict(zip(weights, program.variables([math.inf] * len(weights)), strict=True))
    total = sum(weights.values())
    for name, column in roots.items():
        program.row([(column, 1.0), (rate, -weights[name] / total)], 0.0, equal=True)
    used: dict[tuple[str, str], list[int]] = {arc: [] for arc in wires.arcs}
    for turned, way in ((False, wires), (True, wires.reversed())):
        trees = _tree_part(program, within.reversed() if turned else within, roots)
        nics = {tail for tail, head in way.arcs if head == way.network}
        # A NIC passes on what goes out by it, and no other traffic.
        closed = [tail == way.network or (tail in nics and head != way.network) for tail, head in way.arcs]
        flow = dict(zip(way.arcs, program.variables([0.0 if shut else math.inf for shut in closed]), strict=True))
        for vertex in way.vertices:
            if vertex != way.network:
                terms = [(column, 1.0 if arc[1] == vertex else -1.0) for arc, column in flow.items() if vertex in arc]
                if vertex in weights:
                    terms.append((rate, share * weights[vertex] / total))
                program.row(terms, 0.0, equal=True)
        for part in (trees, flow):
            for arc, column in part.items():
                used[arc[::-1] if turned else arc].append(column)
    for arc, columns in used.items():
        if columns and not math.isinf(wires.arcs[arc]):
            program.row([(column, 1.0) for column in columns], wires.arcs[arc] / scale, equal=False)
    value, _ = program.maximise([(rate, 1.0)])
    return value * scale
