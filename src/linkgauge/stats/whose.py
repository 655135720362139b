"""Whose a shift is: the fewest nodes, devices, directions and links that explain the shifts of crossing pairs.

A pair that is slow has a slow end or a slow way. Which, its other partners tell: where all pairs of one device are slow
it is the device, where all that it sends are slow it is that direction, where one pair is slow it is the link.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.model.grouped import grouped
from linkgauge.stats.basics import Floats

_MOST_CAUSES = 3
_KEPT = 12
"""Single causes that are tried together: more cost the cube of their number."""
_APART = math.log(20)
"""How much better the log likelihood of one explanation is than another's for it to be told from that."""

End = tuple[Hashable, Hashable]
"""A node and its device."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A sender and a receiver, by how much their times are longer (log), and its standard error. Ends may be one."""

    source: End
    target: End
    shift: float
    error: float


@dataclasses.dataclass(frozen=True, order=True)
class Cause:
    """What may be slow: `node`, `device`, `sends`, `receives` (of a device), `link` or `direction` of two devices."""

    kind: str
    ends: tuple[End, ...]


@dataclasses.dataclass(frozen=True)
class Explained:
    """The least set of causes with its shifts (log), or what cannot be told apart.

    `rivals`: other causes in place of the last one that explain the pairs as well; with any, it cannot be told which.
    """

    causes: tuple[Cause, ...]
    shifts: tuple[float, ...]
    rivals: tuple[Cause, ...] = ()

    @property
    def told(self) -> bool:
        """Whether the causes are told from all others."""
        return bool(self.causes) and not self.rivals


def whose(pairs: Sequence[Pair], expected: float = 0.003, level: float = 0.05) -> Explained:
    """Return the fewest causes of the pairs' shifts.

    A model of sparse effects: each pair's shift is the sum of its causes' (each at least 0) and normal noise of the
    given error. A further cause is taken only where its e-value, the normal mixture of likelihood ratios with a prior
    deviation of `expected` (Howard et al., Annals of Statistics 2021, section 3.2; its variance is known here), is
    beyond the number of candidates over `level`. Causes with the same pairs are rivals: partners do not cross there.
    """
    if not pairs:
        return Explained((), ())
    columns = _columns(pairs)
    shifts = np.array([pair.shift for pair in pairs])
    weights = 1 / np.array([pair.error for pair in pairs]) ** 2
    bar = math.log(len(columns) / level)
    names = list(columns)
    # What explains all pairs of the design cannot be told from its zero.
    names = [name for name in names if not columns[name].all()] or names
    chosen: tuple[tuple[Cause, ...], ...] = ()
    reached = 0.0
    singles: list[tuple[Cause, ...]] = names
    for size in range(1, _MOST_CAUSES + 1):
        tried = singles if size == 1 else _likely(singles, columns, shifts, weights)
        best: list[tuple[float, tuple[int, ...]]] = []
        for subset in itertools.combinations(range(len(tried)), size):
            matrix = np.stack([columns[tried[at]] for at in subset], axis=1).astype(float)
            best.append((_evidence(matrix, shifts, weights, expected), subset))
        if not best:
            break
        best.sort(key=lambda one: -one[0])
        if best[0][0] - reached < bar:
            break
        top = best[0][0]
        chosen = tuple(tried[at] for at in best[0][1])
        reached = top
        near = [tuple(tried[at] for at in subset) for value, subset in best[1:] if top - value < _APART]
    if not chosen:
        return Explained((), ())
    matrix = np.stack([columns[names_] for names_ in chosen], axis=1).astype(float)
    effects = _fitted(matrix, shifts, weights)
    order = sorted(range(len(chosen)), key=lambda at: -effects[at])
    rivals = [one for of in chosen for one in of[1:]]
    rivals += [one for other in near for of in other if of not in chosen for one in of]
    return Explained(
        tuple(chosen[at][0] for at in order), tuple(float(effects[at]) for at in order), tuple(dict.fromkeys(rivals))
    )


def _columns(pairs: Sequence[Pair]) -> dict[tuple[Cause, ...], npt.NDArray[np.bool_]]:
    """Which pairs each cause would slow; causes with the same pairs come together."""
    touched: dict[Cause, set[int]] = {}
    for at, pair in enumerate(pairs):
        source, target = pair.source, pair.target
        causes = [Cause("node", ((end[0], ""),)) for end in (source, target)]
        causes += [Cause("device", (end,)) for end in (source, target)]
        if source != target:
            causes += [Cause("sends", (source,)), Cause("receives", (target,)), Cause("direction", (source, target))]
            first, second = sorted((source, target), key=repr)
            causes.append(Cause("link", (first, second)))
        for cause in causes:
            touched.setdefault(cause, set()).add(at)
    alike = grouped((frozenset(which), cause) for cause, which in touched.items())
    return {
        tuple(sorted(causes, key=repr)): np.isin(np.arange(len(pairs)), list(which)) for which, causes in alike.items()
    }


def _fitted(matrix: Floats, shifts: Floats, weights: Floats) -> Floats:
    root = np.sqrt(weights)
    return np.asarray(scipy.optimize.nnls(matrix * root[:, None], shifts * root)[0], dtype=np.float64)


def _evidence(matrix: Floats, shifts: Floats, weights: Floats, expected: float) -> float:
    """Log of the normal mixture of likelihood ratios of effects with deviation `expected` against none.

    0 evidence of effects below 0: those would be faster.
    """
    if (_fitted(matrix, shifts, weights) <= 0).any():
        return -math.inf
    information = matrix.T @ (weights[:, None] * matrix)
    score = matrix.T @ (weights * shifts)
    posterior = information + np.eye(matrix.shape[1]) / expected**2
    _, size = np.linalg.slogdet(posterior * expected**2)
    return float(score @ np.linalg.solve(posterior, score) - size) / 2


def _likely(
    names: Sequence[tuple[Cause, ...]],
    columns: dict[tuple[Cause, ...], npt.NDArray[np.bool_]],
    shifts: Floats,
    weights: Floats,
) -> list[tuple[Cause, ...]]:
    """The causes worth a try together: those whose pairs are slow beyond noise, the surest first."""
    score = {name: float((weights * shifts)[columns[name]].sum() / math.sqrt(weights[columns[name]].sum()))
             for name in names}  # fmt: skip
    return sorted(names, key=lambda name: -score[name])[:_KEPT]
