"""A sparse linear program in the making, solved by HiGHS."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

_LARGE = 2000
_UNBOUNDED, _DIFFICULT = 3, 4  # scipy.optimize.linprog's status


class UnboundedError(RuntimeError):
    """A linear program whose optimum has no limit."""


class TooLargeError(RuntimeError):
    """A linear program that would take too long."""


class LinearProgram:
    """A linear program in the making: maximize one variable, all variables at least 0."""

    def __init__(self, most: int) -> None:
        """Nothing is asked yet; `most` variables are solved."""
        self.columns, self.most = 0, most
        self._rows: dict[bool, tuple[list[int], list[int], list[float], list[float]]] = {
            True: ([], [], [], []),
            False: ([], [], [], []),
        }

    def variables(self, count: int) -> range:
        """Add so many variables. TooLargeError where they are more than are solved."""
        first = self.columns
        self.columns += count
        if self.columns > self.most:
            raise TooLargeError(f"a linear program of more than {self.most} variables")
        return range(first, self.columns)

    def row(self, terms: Sequence[tuple[int, float]], right: float, *, equal: bool) -> None:
        """Add sum of coefficient x variable = `right` (equal) or <= `right`."""
        rows, columns, values, rights = self._rows[equal]
        for column, value in terms:
            rows.append(len(rights))
            columns.append(column)
            values.append(value)
        rights.append(right)

    def maximize(self, terms: Sequence[tuple[int, float]]) -> tuple[float, Any]:
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
            bounds=(0, None),
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
