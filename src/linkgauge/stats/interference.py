"""What a case loses beside its loads, and what they lose beside it.

The measured job's samples beside its loads and alone were taken by turns (docs/definitions.md, Jobs), window after
window of as many samples each, so that what drifts is in both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from linkgauge.model.case import Case
from linkgauge.model.result import Identity
from linkgauge.stats import series
from linkgauge.stats.attempts import counted
from linkgauge.stats.basics import Floats, median, sign_interval_ranks
from linkgauge.stats.tails import tail

if TYPE_CHECKING:
    from linkgauge.store.run import Run

QUANTILES = (0.5, 0.95, 0.99)
LEAST_WINDOWS = 6
"""Pairs of windows below which the median's interval is not known to 95 %."""
LEAST_SAMPLES = 3
"""Of a window: neighboring ones are joined until each has as many."""
LEAST_UNDER_WAY = 0.2
"""Share of a load's stretches beside that the measured job must have been under way, for what the load keeps."""
MOST_KEPT = 1.1
"""No load is faster beside another job: above it its rate alone was disturbed."""
MOST_APART = 2.0
"""Ends of an interval that lie farther apart say nothing of the slow-down."""


@dataclasses.dataclass(frozen=True)
class SlowDown:
    """A time beside loads over the same alone, with its 95 % interval; None where the samples do not give one."""

    quantile: float
    factor: float
    interval: tuple[float, float] | None

    @property
    def known(self) -> bool:
        """Whether the windows agree on it, where it has an interval."""
        return self.interval is None or self.interval[1] <= MOST_APART * self.interval[0]


@dataclasses.dataclass(frozen=True)
class LoadRate:
    """A load's own rate: time of one operation in ns, alone and while the measured operation is under way."""

    number: int
    alone_ns: float | None
    beside_ns: float | None

    @property
    def kept(self) -> float | None:
        """Share of its rate alone that it keeps beside the measured job; None where that is not known."""
        kept = self.alone_ns / self.beside_ns if self.alone_ns and self.beside_ns else None
        return None if kept is None or kept > MOST_KEPT else kept


@dataclasses.dataclass(frozen=True)
class Interference:
    """One case and its loads, of one launch and attempt: slow-downs of QUANTILES and the loads' rates.

    `of_means` is the mean beside over the mean alone: with the slow-down of p99 GPCNeT's congestion impact factors
    (Chunduri et al., SC'19, Section 3.3).
    """

    case: Case
    identity: Identity
    alone_ns: float
    beside_ns: float
    windows: int
    slow_downs: tuple[SlowDown, ...]
    of_means: float
    loads: tuple[LoadRate, ...]


def interferences(run: Run) -> list[Interference]:
    """All cases of a run that have loads and samples, in the run's order. Reads samples only where there are any."""
    records = {row.identity: row.case for group in counted(run).measured for row in group if row.case.background}
    if not records:
        return []
    stretches = _stretches(run)
    nodes = series.one_node(run)
    found = {}
    for identity, block in series.run_blocks(run):
        case = records.get(identity)
        if case is None or not block.alone.any():
            continue
        one_node = nodes.get(identity[1], True)
        beside, alone = (series.headline_of(block.only(kind), case, one_node)[0]
                         for kind in (block.measured, block.alone))  # fmt: skip
        if min(beside.size, alone.size) and median(alone) > 0:
            under_way = _under_way(block) if one_node else None
            loads = stretches.get(identity, {})
            rates = tuple(load_rate(number, loads[number], under_way) for number in sorted(loads))
            middle, count = slow_down(beside, alone, _windows(block))
            tails = (_tail(beside, alone, quantile) for quantile in QUANTILES[1:])
            slow_downs = (middle, *(one for one in tails if one is not None))
            of_means = float(beside.mean() / alone.mean())
            found[identity] = Interference(case, identity, median(alone), median(beside), count, slow_downs, of_means,
                                           rates)  # fmt: skip
    return [found[identity] for identity in records if identity in found]


def _windows(block: series.Block) -> list[int]:
    """The numbers of the samples at which windows begin, the same beside and alone.

    Each window is taken once beside and once alone, the one first by turns: wherever it changes, one begins.
    """
    order = np.argsort(block.start_ns, kind="stable")
    taken = block.measured[order] | block.alone[order]
    alone, number = block.alone[order][taken], block.sample[order][taken]
    changes = np.flatnonzero(np.diff(alone.astype(np.int8))) + 1
    return np.unique(number[changes]).tolist()  # type: ignore[no-any-return]


def slow_down(beside: Floats, alone: Floats, begins: list[int]) -> tuple[SlowDown, int]:
    """The slow-down of the median, and of how many windows its interval is.

    `begins`: the samples at which windows begin, the same in both series. The factor is the median of the windows'
    ratios of medians; the interval lies between order statistics of these (binomial, distribution-free).
    """
    both = min(beside.size, alone.size)
    edges = [0]
    for begin in [*(at for at in begins if 0 < at < both), both]:
        if begin - edges[-1] >= LEAST_SAMPLES:
            edges.append(begin)
    if edges[-1] < both:  # the rest is too few for a window of its own
        edges = [*edges[:-1], both] if len(edges) > 1 else [0, both]
    pairs = list(itertools.pairwise(edges))
    ratios = np.sort([median(beside[a:b]) / median(alone[a:b]) for a, b in pairs if median(alone[a:b]) > 0])
    if not ratios.size:
        return SlowDown(0.5, median(beside) / median(alone), None), 0
    low, high = sign_interval_ranks(ratios.size)
    known = ratios.size >= LEAST_WINDOWS
    interval = (float(ratios[low]), float(ratios[high])) if known else None
    return SlowDown(0.5, median(ratios), interval), int(ratios.size)


def _tail(beside: Floats, alone: Floats, quantile: float) -> SlowDown | None:
    """The slow-down of a high quantile, None where either side has too few samples for it.

    The interval is of the worst of both: it holds wherever both quantiles' own intervals do.
    """
    ours, theirs = tail(beside, quantile), tail(alone, quantile)
    if ours is None or theirs is None or theirs.low <= 0:
        return None
    return SlowDown(quantile, ours.value / theirs.value, (ours.low / theirs.high, ours.high / theirs.low))


@dataclasses.dataclass(frozen=True)
class Stretches:
    """Stretches of a load at one moment: when each began, how long it was and how many operations it had. In ns."""

    begins: Floats
    lengths: Floats
    operations: Floats


def _stretches(run: Run) -> dict[Identity, dict[int, dict[str, Stretches]]]:
    """The stretches of each load, by row identity, number and moment."""
    values: dict[Identity, dict[int, dict[str, dict[str, list[tuple[float, float]]]]]] = {}
    for one in run.observed(lambda table: pc.starts_with(table["subject"], "load ")):
        load = one.subject.removeprefix("load ")
        if load.isdecimal() and one.value > 0 and one.name in ("stretch", "time_of_operation"):
            of_load = values.setdefault(one.identity, {}).setdefault(int(load), {})
            of_load.setdefault(one.moment, {}).setdefault(one.name, []).append((one.when_ns, one.value))
    found: dict[Identity, dict[int, dict[str, Stretches]]] = {}
    for identity, loads in values.items():
        for number, moments in loads.items():
            for moment, columns in moments.items():
                lengths, times = (np.array(columns.get(name, [])) for name in ("stretch", "time_of_operation"))
                if lengths.shape == times.shape and lengths.size:
                    made = Stretches(lengths[:, 0], lengths[:, 1], lengths[:, 1] / times[:, 1])
                    found.setdefault(identity, {}).setdefault(number, {})[moment] = made
    return found


def load_rate(number: int, moments: Mapping[str, Stretches], under_way: Floats | None) -> LoadRate:
    """A load's time of an operation alone, and while an operation of the measured job was under way.

    `under_way`: those intervals, (n, 2), begin and end in ns, apart and rising; None where their clock is another.
    With a the load's rate alone, a stretch of length T of which o was beside holds a (T - o) + b o operations: b from
    the sums over all stretches. None where less than LEAST_UNDER_WAY of them was beside.
    """
    alone, beside = moments.get("alone"), moments.get("background")
    if alone is None:
        return LoadRate(number, None, None)
    rate = float(alone.operations.sum() / alone.lengths.sum())
    if beside is None or under_way is None or not under_way.size:
        return LoadRate(number, 1 / rate, None)
    sums = np.concatenate([[0.0], np.cumsum(under_way[:, 1] - under_way[:, 0])])

    def passed(moments_ns: Floats) -> Floats:
        """Time under way up to each moment."""
        at = np.searchsorted(under_way[:, 0], moments_ns, side="right")
        last = np.maximum(at - 1, 0)
        within = np.where(at > 0, np.minimum(moments_ns, under_way[last, 1]) - under_way[last, 0], 0.0)
        return np.asarray(sums[last] + within, dtype=np.float64)

    both = float((passed(beside.begins + beside.lengths) - passed(beside.begins)).sum())
    whole = float(beside.lengths.sum())
    left = float(beside.operations.sum()) - rate * (whole - both)
    known = both >= LEAST_UNDER_WAY * whole and left > 0
    return LoadRate(number, 1 / rate, both / left if known else None)


def _under_way(block: series.Block) -> Floats:
    """When operations of the measured job were under way beside the loads: intervals of its samples, joined."""
    begins = block.start_ns[block.measured].astype(np.float64)
    ends = begins + block.ns[block.measured]
    order = np.argsort(begins)
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.append(True, begins[1:] > ends[:-1]).nonzero()[0]
    last = np.append(first[1:] - 1, begins.size - 1)
    return np.column_stack([begins[first], ends[last]])
