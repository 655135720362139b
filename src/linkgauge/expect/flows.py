"""Linear programs over multipath routing: concurrent flows, and allreduce by packed trees. Solved by HiGHS, sparse.

Rates are scaled so that the largest finite capacity is 1 before the solver sees them, and back after.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from linkgauge.expect.graph import Wires, remembered

_LARGE = 2000
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
def allreduce_trees(wires: Wires, names: Sequence[str], *, in_network: bool = False) -> float | None:
    """Return the goodput m/t of the best schedule of reducing and broadcasting trees, in bytes per second.

    Maximise the sum of lambda_v over roots v. Each arc's capacity is split into a reducing and a broadcasting part;
    for every proper set S the broadcasting capacity leaving S and the reducing capacity entering S are at least
    the sum of lambda over S, written as a flow of the whole from the roots to each device (docs/definitions.md,
    Ceilings). A vertex that cannot repeat or add data gets parts that balance: what leaves is what entered;
    `in_network` says that switches which can do so are used for it. None where an arc's rate is unknown.
    """
    if any(math.isinf(rate) for rate in wires.arcs.values()) or len(names) < 2:
        return None
    program = _Program()
    scale = _scale(wires)
    roots = dict(zip(names, program.variables([math.inf] * len(names)), strict=True))
    forward = _tree_part(program, wires, roots, wires.multicast if in_network else frozenset())
    # On a symmetric graph some best schedule reduces along its broadcasting trees turned round: half the program.
    if wires.symmetric and wires.multicast == wires.reduction:
        backward = {arc: forward[arc[1], arc[0]] for arc in forward}
    else:
        turned = _tree_part(program, wires.reversed(), roots, wires.reduction if in_network else frozenset())
        backward = {(head, tail): column for (tail, head), column in turned.items()}
    for arc, rate in wires.arcs.items():
        program.row([(forward[arc], 1.0), (backward[arc], 1.0)], rate / scale, equal=False)
    value, _ = program.maximise([(column, 1.0) for column in roots.values()])
    return value * scale


def _tree_part(
    program: _Program, wires: Wires, roots: Mapping[str, int], repeaters: frozenset[str]
) -> dict[tuple[str, str], int]:
    """Add the broadcasting part of each arc and the flows that prove it enough; return the part's columns."""
    arcs = list(wires.arcs)
    part = dict(zip(arcs, program.variables([math.inf] * len(arcs)), strict=True))
    for vertex in wires.vertices:
        if vertex not in roots and vertex not in repeaters:
            terms = [(column, 1.0 if arc[1] == vertex else -1.0) for arc, column in part.items() if vertex in arc]
            program.row(terms, 0.0, equal=True)
    for target in roots:
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
