"""Which elements are slow, from how slow the pairs are that use them: a sparse, robust, non-negative fit.

The logarithm of a pair's time is the level of its class (pairs that ought to be equal) plus what each slow element on
its way adds. Elements only ever add. The fit takes the least sum of absolute residuals plus a price for each element,
a linear program: a fault of one device is cheaper told by one element than by each of its pairs, and a single slow
pair by its link than by its device.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.stats.basics import NORMAL_MAD, Floats

_PRICE = 0.5
LEAST_SCALE = 0.002


Name = TypeVar("Name", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Slow(Generic[Name]):
    """An element that is slow: by how much (share of time added), how many pairs say so, and at how many deviations."""

    element: Name
    share: float
    pairs: tuple[int, ...]
    score: float
    scale: float


def solve(
    times: Sequence[float],
    classes: Sequence[Hashable],
    elements: Mapping[Name, Sequence[int]],
    half_widths: Sequence[float],
    least_share: float = 0.03,
) -> list[Slow[Name]]:
    """Return the slow elements, the worst first.

    `times` of the pairs (any unit, above 0), `classes` of pairs that ought to be equal, `elements` with the indices
    of the pairs that use each, `half_widths` of the medians' 95 % intervals as shares. Elements with equal pairs must
    be given once. An element is told if it adds at least `least_share`, if most of its pairs show at least half of
    that, and if it stands out from the residuals by a score that chance among all elements, with tails heavier than
    normal, does not reach.
    """
    count = len(times)
    if count < 2 or not elements:
        return []
    logs = np.log(np.asarray(times, dtype=np.float64))
    labels = {label: i for i, label in enumerate(dict.fromkeys(classes))}
    owner = np.array([labels[label] for label in classes])
    names = _plausible(logs, owner, len(labels), elements, least_share)
    if not names:
        return []  # the usual case, told without a linear program
    shares = _program(logs, owner, len(labels), [list(elements[name]) for name in names])
    weights = shares * np.sqrt([len(elements[name]) for name in names])
    chosen = [k for k in np.argsort(-weights) if shares[k] > least_share / 3]
    return _confirm(logs, owner, len(labels), names, elements, chosen, np.asarray(half_widths), least_share)


def _plausible(
    logs: Floats,
    owner: npt.NDArray[np.int64],
    classes: int,
    elements: Mapping[Name, Sequence[int]],
    least_share: float,
) -> list[Name]:
    """Return the elements whose pairs lie above their class's lower quartile by nearly the least share: no other can
    be told."""
    low = np.array([np.quantile(logs[owner == c], 0.25) for c in range(classes)])
    above = logs - low[owner]
    least = 0.8 * math.log1p(least_share)
    return [name for name, pairs in elements.items() if float(np.median(above[np.asarray(pairs)])) >= least]


def _program(logs: Floats, owner: npt.NDArray[np.int64], classes: int, members: list[list[int]]) -> Floats:
    count, width = logs.size, len(members)
    rows = np.concatenate([np.arange(count), *(np.array(m) for m in members)]).astype(np.int64)
    columns = np.concatenate([owner, *(np.full(len(m), classes + k) for k, m in enumerate(members))]).astype(np.int64)
    design = scipy.sparse.coo_matrix((np.ones(rows.size), (rows, columns)), shape=(count, classes + width))
    identity = scipy.sparse.identity(count)
    cost = np.concatenate([np.zeros(classes), [_PRICE * math.sqrt(len(m)) for m in members], np.ones(2 * count)])
    bounds = [(None, None)] * classes + [(0, None)] * (width + 2 * count)
    done = scipy.optimize.linprog(
        cost, A_eq=scipy.sparse.hstack([design, identity, -identity]).tocsc(), b_eq=logs, bounds=bounds, method="highs"
    )
    if done.status != 0:
        raise RuntimeError(f"linear program: {done.message}")
    return np.asarray(done.x[classes : classes + width], dtype=np.float64)


def _confirm(
    logs: Floats,
    owner: npt.NDArray[np.int64],
    classes: int,
    names: list[Name],
    elements: Mapping[Name, Sequence[int]],
    chosen: list[int],
    half_widths: Floats,
    least_share: float,
) -> list[Slow[Name]]:
    """Fit again without prices: levels from pairs that no chosen element touches, elements by their pairs' medians."""
    touched = np.zeros(logs.size, dtype=bool)
    for k in chosen:
        touched[list(elements[names[k]])] = True
    untouched = [logs[(owner == c) & ~touched] for c in range(classes)]
    levels = np.array([np.median(one) if one.size else logs[owner == c].min() for c, one in enumerate(untouched)])
    excess = logs - levels[owner]
    scale = max(LEAST_SCALE, _scale(excess, touched), float(np.median(half_widths)) / 1.96)
    # Heavy tails: a single pair must stand out further than a normal deviate among as many elements would.
    limit = 1.3 * -float(scipy.special.ndtri(0.001 / max(1, len(elements))))
    rest, result = excess.copy(), []
    for k in chosen:
        pairs = list(elements[names[k]])
        share = float(np.median(rest[pairs]))
        agree = float(np.mean(rest[pairs] > share / 2))
        # A pair's own interval may be far wider than most.
        score = share / (1.25 * max(scale, float(np.median(half_widths[pairs])) / 1.96) / math.sqrt(len(pairs)))
        # Nor may its own pairs' intervals reach down to what is no fault.
        sure = share - float(np.median(half_widths[pairs])) / math.sqrt(len(pairs))
        if sure >= math.log1p(least_share) and agree >= 0.75 and score >= limit:
            rest[pairs] -= share
            result.append(Slow(names[k], math.expm1(share), tuple(pairs), score, scale))
    return sorted(result, key=lambda slow: -slow.share * math.sqrt(len(slow.pairs)))


def _scale(excess: Floats, touched: npt.NDArray[np.bool_]) -> float:
    """Deviation of the noise from the pairs below their level.

    Faults only raise times, so that what was chosen hides none of these. Widened for few of them, as a t distribution
    is.
    """
    below = -excess[excess < 0]
    if below.size < 4:
        rest = np.abs(excess[~touched])
        rest = rest[rest > 0]
        return float(NORMAL_MAD * np.median(rest) * (1 + 3 / rest.size)) if rest.size else 0.0
    return float(NORMAL_MAD * np.median(below) * (1 + 2 / below.size))
