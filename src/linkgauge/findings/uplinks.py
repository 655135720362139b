"""Which nodes may share an uplink, where nobody says which switches there are: those that are near to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def near_sets(times: Mapping[tuple[str, str], Sequence[float]]) -> list[tuple[str, ...]]:
    """Sets of two nodes or more that are nearer to each other than to the rest, at most half of the nodes each.

    `times`: of each two nodes, in either order or both, the times of a message. None where not all pairs were
    measured, or of fewer than four nodes. Nodes are joined by average linkage of the logarithms, and every join is a
    set, or the rest is: a solver says which of them is slow.
    """
    from scipy.cluster.hierarchy import average
    from scipy.spatial.distance import squareform

    nodes = sorted({node for pair in times for node in pair})
    at = {node: place for place, node in enumerate(nodes)}
    sums, counts = np.zeros((len(nodes),) * 2), np.zeros((len(nodes),) * 2)
    for (a, b), found in times.items():
        for x, y in ((at[a], at[b]), (at[b], at[a])):
            sums[x, y] += np.log(found).sum()
            counts[x, y] += len(found)
    if len(nodes) < 4 or (counts + np.eye(len(nodes)) == 0).any():
        return []
    logs = sums / np.maximum(counts, 1)
    joins = average(squareform((logs - logs[counts > 0].min() + 1.0) * (counts > 0), checks=False))
    members: list[frozenset[str]] = [frozenset({node}) for node in nodes]
    for one, other, _, _ in joins:
        members.append(members[int(one)] | members[int(other)])
    everything = frozenset(nodes)
    found_sets = {part for some in members for part in (some, everything - some) if 2 <= len(part) <= len(nodes) // 2}
    # Of two halves the one with the first node stands for both.
    return sorted(tuple(sorted(part)) for part in found_sets if 2 * len(part) < len(nodes) or nodes[0] in part)
