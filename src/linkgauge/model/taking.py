"""The order in which free nodes are taken, by their switches: `packed` and `spread`, of measured and simulated jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def packed(levels: Sequence[Ints]) -> Ints:
    """Indices of the nodes in the order of the fewest parts: fullest group first, in it the fullest switch.

    `levels`: by node the number of the part that it is in, of the groups first, then of their switches. Of equal
    parts the lower number comes first, and in one the node of the lower index.
    """
    keys: list[Ints] = [np.arange(len(levels[0]))]
    for parts in reversed(levels):
        keys += [parts, -np.bincount(parts)[parts]]
    order: Ints = np.lexsort(keys)
    return order


def spread(levels: Sequence[Ints]) -> Ints:
    """Indices of the nodes one of each group in turn, of a group's one of each switch in turn; `levels` as above."""
    order: Ints = np.arange(len(levels[0]))
    for parts in reversed(levels):
        order = order[np.argsort(parts[order], kind="stable")]
        within = np.arange(len(order)) - np.searchsorted(parts[order], parts[order], side="left")
        order = order[np.lexsort((parts[order], within))]
    return order


BY_SWITCH: dict[str, Callable[[Sequence[Ints]], Ints]] = {"packed": packed, "spread": spread}
