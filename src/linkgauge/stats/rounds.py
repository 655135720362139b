"""How the times of cases go over many rounds of the same launch: what `linkgauge watch` and `--repeat` measure.

A round is a repeat: each has the same cases, and of each case here counts its median. Rounds that are slow are told
apart by who was: the node, a device, or single cases; and by what else had the nodes' cores then, where a watch saw it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from linkgauge.model.quantity import percent
from linkgauge.model.result import Measured
from linkgauge.stats import series
from linkgauge.stats.attempts import counted
from linkgauge.stats.basics import Floats, median, robust_scale
from linkgauge.stats.drift import theil_sen

if TYPE_CHECKING:
    from linkgauge.store.run import Run

LEAST_ROUNDS = 6
"""Fewer say nothing of time: a median of rounds has no interval yet."""
_FAR = 5.0  # robust deviations of a case's rounds
_LEAST_SHARE = 0.05  # of time added, for a case to be slow in a round
_LEAST_CORES = 0.05  # share of a node's cores, beyond what others have in most rounds
_MOST_OF_THEM = 0.75  # of the cases of a round, for the node to be slow


@dataclasses.dataclass(frozen=True)
class OverRounds:
    """One case over its rounds: arrays have an entry a round, in order of time.

    `began_ns` since the run's first sample, on the node's clock; `times_ns` medians; `factors` over their median.
    `trend` is by which share of it the time grows from the first round to the last (Theil and Sen's slope), with its
    95 % interval.
    """

    row: Measured
    repeats: tuple[int, ...]
    began_ns: Floats
    times_ns: Floats
    trend: tuple[float, float, float]

    @property
    def middle_ns(self) -> float:
        """The median of the rounds' medians."""
        return median(self.times_ns)

    @property
    def factors(self) -> Floats:
        """Each round's time over the middle one."""
        return self.times_ns / self.middle_ns

    @property
    def spread(self) -> float:
        """The rounds' interquartile range over the middle one."""
        low, high = np.percentile(self.times_ns, [25, 75])
        return float(high - low) / self.middle_ns

    @property
    def slow(self) -> tuple[int, ...]:
        """Numbers of the repeats that stand out: 5 % longer, and five robust deviations of the rounds."""
        limit = 1.0 + max(_LEAST_SHARE, _FAR * robust_scale(self.times_ns) / self.middle_ns)
        return tuple(self.repeats[i] for i in np.flatnonzero(self.factors > limit))


@dataclasses.dataclass(frozen=True)
class SlowRound:
    """A round in which cases were slow: whose that is (`node`, `device 3`, or empty: of these cases), and how much.

    `background`: what else had more of the nodes' cores than in other rounds; empty where nothing is known to have had.
    """

    repeat: int
    began_ns: float
    who: str
    factor: float
    cases: tuple[str, ...]
    beside: str = ""


@dataclasses.dataclass(frozen=True)
class CoreShares:
    """Of the time of a node's cores beside a round's cases: what other programs had, and what a hypervisor took."""

    others: float
    stolen: float


def over_rounds(run: Run) -> list[OverRounds]:
    """Return the cases with LEAST_ROUNDS rounds or more; reads samples only where there are any."""
    groups = [group for group in counted(run).measured if len(group) >= LEAST_ROUNDS]
    if not groups:
        return []
    wanted = {row.identity for group in groups for row in group}
    began = {identity: int(block.start_ns.min()) for identity, block in series.run_blocks(run)
             if identity in wanted and block.start_ns.size}  # fmt: skip
    first = min(began.values(), default=0)
    found = []
    for group in groups:
        rows = sorted((row for row in group if row.identity in began), key=lambda row: began[row.identity])
        if len(rows) < LEAST_ROUNDS:
            continue
        moments = np.array([began[row.identity] - first for row in rows], dtype=np.float64)
        times = np.array([row.median_ns for row in rows], dtype=np.float64)
        found.append(OverRounds(rows[0], tuple(row.repeat for row in rows), moments, times, _trend(times, moments)))
    return found


def _trend(times: Floats, moments: Floats) -> tuple[float, float, float]:
    if np.unique(moments).size < times.size:
        return 0.0, -np.inf, np.inf
    slope, low, high = theil_sen(times / median(times), (moments - moments[0]) / (moments[-1] - moments[0]))
    return slope, low, high


def core_shares(run: Run) -> dict[int, CoreShares]:
    """Return by repeat what the nodes' cores did beside the cases, where that was observed (run/rank/node_counters.py).

    Of several nodes that with the largest share of others.
    """
    sums: dict[tuple[int, int], defaultdict[str, float]] = {}
    for one in run.observed_of("cores"):
        of_node = sums.setdefault((one.identity[2], one.rank), defaultdict(float))
        of_node[one.name] += one.value if one.moment == "after" else -one.value
    found: dict[int, CoreShares] = {}
    for (repeat, _), of_node in sums.items():
        whole = of_node["cores_all"]
        if whole > 0:
            others = max(of_node["cores_busy"] - of_node["cores_own"], 0.0) / whole
            shares = CoreShares(others, of_node["cores_stolen"] / whole)
            found[repeat] = max(shares, found.get(repeat, shares), key=lambda one: one.others + one.stolen)
    return found


def slow_rounds(cases: Sequence[OverRounds], shares: Mapping[int, CoreShares] | None = None) -> list[SlowRound]:
    """Return the rounds in which cases stood out, in order of time, each told of the least that explains it.

    `shares`: of each repeat what had the cores, as far as it is known.
    """
    found = []
    slow = {case.row.case_key: set(case.slow) for case in cases}
    for repeat in sorted({number for numbers in slow.values() for number in numbers}):
        there = [case for case in cases if repeat in case.repeats]
        hit = [case for case in there if repeat in slow[case.row.case_key]]
        factor = median(np.array([case.factors[case.repeats.index(repeat)] for case in hit]))
        began = min(float(case.began_ns[case.repeats.index(repeat)]) for case in there)
        keys = tuple(case.row.case_key for case in hit)
        found.append(SlowRound(repeat, began, _who(there, hit), float(factor), keys, _beside(repeat, shares or {})))
    return found


def _beside(repeat: int, shares: Mapping[int, CoreShares]) -> str:
    """What had clearly more of the cores in this round than in most; empty where nothing had, or it is not known."""
    if repeat not in shares:
        return ""
    told = []
    for name, words in (("others", "other programs had"), ("stolen", "a hypervisor took")):
        usual = np.array([getattr(one, name) for number, one in shares.items() if number != repeat])
        if usual.size < LEAST_ROUNDS - 1:
            continue
        mine, middle = getattr(shares[repeat], name), median(usual)
        if mine > middle + max(_LEAST_CORES, _FAR * robust_scale(usual)):
            told.append(f"{words} {percent(mine)} of its cores, else {percent(middle)}")
    return " and ".join(told)


def _who(there: Sequence[OverRounds], hit: Sequence[OverRounds]) -> str:
    """The node where most cases were slow; a device that most of its cases, and all that were slow, have in common."""
    if len(there) > 2 and len(hit) >= _MOST_OF_THEM * len(there):
        return "the node"
    shared = set.intersection(*(set(case.row.devices) for case in hit))
    for device in sorted(shared):
        own = [case for case in there if device in case.row.devices]
        if len(hit) > 1 and len(own) < len(there) and len(hit) >= _MOST_OF_THEM * len(own):
            return f"device {device}"
    return ""
