"""Collectives rank by rank: who arrived when, and how long the transfer itself took.

Per rank and sample: arrival = start - scheduled, transfer = end - max(start)
(docs/definitions.md, Statistics). Every time is taken from its own scheduled start: across nodes that is one instant on
each node's clock, within the stored uncertainty, so that starts of clocks that do not agree can be compared.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats, binomial_tail, effective_size, median


@dataclasses.dataclass(frozen=True)
class Split:
    """Arrival and transfer in nanoseconds, each of shape (samples, ranks)."""

    arrival_ns: Floats
    transfer_ns: Floats


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A rank that others wait for.

    `share` is the share of samples in which it came last, `lateness_ns` the median time by which it came after the
    next to last in those, and `cost_share` the median lateness over the median of the whole (last start to last end
    plus lateness).
    """

    rank: int
    share: float
    lateness_ns: float
    cost_share: float
    p_value: float


def split(start_ns: npt.ArrayLike, duration_ns: npt.ArrayLike, scheduled_ns: npt.ArrayLike) -> Split:
    """Split the samples of one collective; all arrays (samples, ranks) of integers, ranks in order.

    `scheduled_ns` is the agreed start, of the same clock as the rank's start. Nothing is left out: transfer is never
    negative where every rank ends after the last has started, and may be negative where a rank is free to leave early
    (a broadcast's root).
    """
    start = np.asarray(start_ns, dtype=np.int64) - np.asarray(scheduled_ns, dtype=np.int64)
    if start.ndim != 2:
        raise ValueError(f"starts of shape {start.shape}: expected (samples, ranks)")
    end = start + np.asarray(duration_ns, dtype=np.int64)
    last = start.max(axis=1, keepdims=True)
    return Split(start.astype(np.float64), (end - last).astype(np.float64))


_LEVEL = 0.001  # of a rank's being last by chance
_LEAST_SHARE = 0.05  # of the time


def find_straggler(
    parts: Split, uncertainty_ns: float = 0.0, least_cost_share: float = _LEAST_SHARE
) -> Straggler | None:
    """Name the rank that arrives last, if the data support it.

    It must come last more often than chance among the ranks lets it (binomial test on the effective number of
    samples, corrected for the choice among ranks), later than the next to last by more than the clocks'
    `uncertainty_ns` (0 on one node), and by at least `least_cost_share` of the operation. It says who came late, not
    why. Fewer than 10 samples or 2 ranks give None.
    """
    samples, ranks = parts.arrival_ns.shape
    if samples < 10 or ranks < 2:
        return None
    last = np.argmax(parts.arrival_ns, axis=1)
    counts = np.bincount(last, minlength=ranks)
    rank = int(np.argmax(counts))
    if counts[rank] <= samples / 2:
        return None  # before what takes a hundred times as long
    mine = last == rank
    ordered = np.sort(parts.arrival_ns, axis=1)
    gap = ordered[:, -1] - ordered[:, -2]
    lateness = median(gap[mine])
    whole = median(parts.transfer_ns.max(axis=1) + gap)
    cost = lateness / whole if whole > 0 else 0.0
    if lateness <= 2 * uncertainty_ns or cost < least_cost_share:
        return None
    independent = max(1, round(samples * effective_size(mine.astype(np.float64)) / samples))
    came = round(independent * counts[rank] / samples)
    p_value = min(1.0, ranks * binomial_tail(came, independent, 1 / ranks))
    if p_value > _LEVEL:
        return None
    return Straggler(rank, counts[rank] / samples, lateness, cost, p_value)


def slow_transfer(parts: Split) -> int | None:
    """Return the rank whose transfer ends last by 5 % in nearly every sample, or None.

    With equal arrivals this is a rank (its link, its device) that is slow at the transfer itself.
    """
    samples, ranks = parts.transfer_ns.shape
    if samples < 10 or ranks < 3:
        return None
    medians = [median(transfer) for transfer in parts.transfer_ns.T]
    rank = int(np.argmax(medians))
    others = np.delete(parts.transfer_ns, rank, axis=1).max(axis=1)
    later = int((parts.transfer_ns[:, rank] > others).sum())
    p_value = ranks * binomial_tail(later, samples, 1 / ranks)
    rest = median(others)
    return rank if p_value < _LEVEL and rest > 0 and medians[rank] > rest * (1 + _LEAST_SHARE) else None
