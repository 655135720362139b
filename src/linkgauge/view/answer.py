"""What a run says at first sight, for the report's head and for the terminal: the best of each task."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.model.comparing import MECHANISM, held_apart, values_of
from linkgauge.model.device_words import numbers_text, pairs_text
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS, USUAL_MEMORY
from linkgauge.model.result import Measured
from linkgauge.view.alike import ALL_PAIRS, Devices, Kinds, apart, together
from linkgauge.view.limits import LimitLine, Limits
from linkgauge.view.reached import (
    AS_GOOD,
    BOTH_WAYS,
    ONE_WAY,
    FullPairs,
    NodeRates,
    best_of_each,
    full_pairs,
    labels_of,
    node_rates,
)
from linkgauge.view.results import Results, is_pair
from linkgauge.view.units import range_text, size_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

MOST_TASKS = 15
"""Rows of the first screen's tables; a line below them names what they leave out."""
_WAYS = {"pingpong": "one way", "unidirectional": "one way", "bidirectional": "both ways"}
_USUAL = {pattern: f"{source} to {target} memory" for pattern, (source, target) in USUAL_MEMORY.items()}
# What is asked of a machine first; other patterns stand behind them where there are too many.
_FIRST = (
    "pingpong", "unidirectional", "bidirectional", "alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast",
    "host_to_device", "device_to_host", "local_copy", "ring_shift", "one_to_all", "all_to_one",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Best:
    """One figure of alike devices or pairs: of each its best row, and who differs among them.

    They are by one mechanism at one size, but where another is better for one of them.
    """

    rows: tuple[Measured, ...]
    values: tuple[float, ...]
    label: str
    where: str
    apart: tuple[tuple[Devices, float], ...]

    @property
    def row(self) -> Measured:
        """One of the rows, the first that does not stand apart."""
        outside = {devices for devices, _ in self.apart}
        return next((row for row in self.rows if row.devices not in outside), self.rows[0])

    @property
    def alone(self) -> bool:
        """Whether each row is of one device."""
        return all(row.ranks == 1 for row in self.rows)

    @property
    def sizes(self) -> str:
        """The size of the rows, or their range."""
        sizes = {row.size for row in self.rows}
        return range_text(size_text(min(sizes)), size_text(max(sizes)))

    @property
    def low(self) -> float:
        """The least value of those that do not stand apart."""
        return min(self._usual)

    @property
    def high(self) -> float:
        """The largest value of those that do not stand apart."""
        return max(self._usual)

    @property
    def _usual(self) -> list[float]:
        outside = {devices for devices, _ in self.apart}
        together = zip(self.rows, self.values, strict=True)
        return [value for row, value in together if row.devices not in outside] or list(self.values)


@dataclasses.dataclass(frozen=True)
class TaskAnswer:
    """The best of one task over devices or pairs that are alike.

    `brief` is `where` in a word, for a table that has no room: `each`, `all`; `noun` what one device is called.
    `fastest` is of times in ns at the smallest size, `widest` of goodputs in bytes per second, None for patterns
    without; `upper bound` is the least bound on the latter.
    """

    title: str
    where: str
    fastest: Best
    widest: Best | None
    bound: LimitLine | None
    brief: str = ""
    noun: str = "device"

    @property
    def name(self) -> str:
        """The task and on what, leaving out what is usual: `one way · all pairs`."""
        return self._named(self.where)

    @property
    def brief_name(self) -> str:
        """The name for a narrow table: `host_to_device · each` of all devices of the run, one at a time."""
        return self._named(self.brief or self.where)

    def _named(self, where: str) -> str:
        what, *rest = self.title.split(" · ")
        return " · ".join([what, where, *(part for part in rest if part != _USUAL.get(what, "float32 sum"))])

    @property
    def algorithm_factor(self) -> float:
        """Return algbw / goodput; 0 where nccl-tests has no such collective."""
        row = self.fastest.row
        factor = PATTERNS[row.pattern].algorithm_factor
        return 0.0 if factor is None else float(factor(row.case.group_ranks))

    @property
    def peak_factor(self) -> float:
        """Return busbw / goodput for the collectives of nccl-tests, 1 for all else."""
        row = self.fastest.row
        return PATTERNS[row.pattern].shown_factor(row.case.group_ranks)

    @property
    def shares(self) -> tuple[float, float] | None:
        """The least and largest share of the bound, 1 being all of it; None where there is no bound."""
        limit = self.bound.goodput_bytes_per_s if self.bound is not None else None
        return None if self.widest is None or not limit else (self.widest.low / limit, self.widest.high / limit)


def answers(results: Results, limits: Limits) -> list[TaskAnswer]:
    """Return the best of each task, in the order of patterns: alike devices and pairs are one.

    A copy between two devices one way is one task, whatever its window and whether it comes back: its time is that of
    the ping-pong where there is one. Applications have a table of their own.
    """
    kinds = results.kinds
    groups = grouped((_task(row, kinds), row) for row in results.rows if not PATTERNS[row.pattern].scripted)
    order = {name: place for place, name in enumerate(PATTERNS)}

    def place(rows: list[Measured]) -> tuple[Any, ...]:
        first = min(order[row.pattern] for row in rows)
        alone = is_pair(rows[0]) and len(set(rows[0].devices)) == 1
        return (first, alone, rows[0].ranks, min(row.devices for row in rows))

    return [_answer(results, limits, kinds, rows) for rows in sorted(groups.values(), key=place)]


def first_answers(found: Sequence[TaskAnswer]) -> tuple[list[TaskAnswer], list[TaskAnswer]]:
    """Return the tasks that are shown at first sight, at most MOST_TASKS, and the rest, both in their order."""

    def rank(one: TaskAnswer) -> tuple[Any, ...]:
        pattern = one.fastest.row.pattern
        inside = is_pair(one.fastest.row) and len(set(one.fastest.row.devices)) == 1
        return (inside, pattern not in _FIRST, one.widest is None)

    kept = sorted(range(len(found)), key=lambda place: (rank(found[place]), place))[:MOST_TASKS]
    chosen = set(kept)
    return [found[place] for place in sorted(chosen)], [one for i, one in enumerate(found) if i not in chosen]


def _task(row: Measured, kinds: Kinds) -> tuple[Any, ...]:
    between = row.pattern in _WAYS and len(set(row.devices)) == 2
    ways = ("window",) if between else ()
    settings = values_of(row.case, held_apart("size", "pattern", "devices", *ways, *MECHANISM))
    pattern = _WAYS[row.pattern] if between else row.pattern
    return (pattern, settings, row.ranks, kinds.key(row))


def _answer(results: Results, limits: Limits, kinds: Kinds, rows: list[Measured]) -> TaskAnswer:
    smallest = min(row.size for row in rows)
    # Of several patterns and windows the time is that of the one message that comes back.
    timed = [row for row in rows if row.size == smallest]
    alone = [row for row in timed if PATTERNS[row.pattern].half_round_trip]
    fastest = _best(results, kinds, alone or timed, lambda row: row.latency_ns, min)
    rated = [row for row in rows if row.goodput_bytes_per_s is not None]
    widest = _best(results, kinds, rated, lambda row: row.goodput, max) if rated else None
    bound = limits.limit_of(widest.row) if widest is not None else None
    first = rows[0]
    if first.pattern in _WAYS and len(set(first.devices)) == 2:
        single = dataclasses.replace(first, case=dataclasses.replace(first.case, window=1))
        title = results.title(single, devices=False).replace(first.pattern, _WAYS[first.pattern], 1)
    else:
        title = results.title(first, devices=False)
    members = {row.devices for row in rows}
    where = together(members, kinds.devices, kinds.noun)
    if is_pair(first) and len(set(first.devices)) == 1:
        title, *rest = title.split(" · ")
        title = " · ".join([f"{title} inside", *rest])
    return TaskAnswer(
        title, where, fastest, widest, bound, _brief(members, kinds, where, pair=is_pair(first)), kinds.noun
    )


def _brief(members: set[Devices], kinds: Kinds, where: str, *, pair: bool) -> str:
    """Return `each` for all devices of the run one at a time, else their numbers; `all` for all of them together."""
    every = set(kinds.devices)
    if members == {(device,) for device in every}:
        return "each"
    if all(len(one) == 1 for one in members):
        return numbers_text([device for (device,) in members])
    if len(members) == 1 and {*next(iter(members))} == every and not pair:
        return "all"
    return short_where(members, where)


def short_where(members: Collection[Devices], where: str) -> str:
    """Return pairs as a cell of a table has room for them; `where` for all else."""
    few = all(len(one) == 2 for one in members) and where != ALL_PAIRS
    return pairs_text(sorted(members)) if few else where


def _best(
    results: Results,
    kinds: Kinds,
    rows: list[Measured],
    figure: Callable[[Measured], float],
    better: Callable[..., Any],
) -> Best:
    """Return the best figure by one mechanism at one size; of two that are as good, the one of more devices or pairs.

    What a mechanism gives is its median over those that were measured by it. Where another is better for one of them by
    more than chance, that one's figure is by the other.
    """
    groups: dict[tuple[Any, ...], dict[Devices, Measured]] = {}
    for row in sorted(rows, key=lambda row: row.effective_samples, reverse=True):
        own = groups.setdefault((results.label(row), row.pattern, row.case.window, row.size), {})
        own.setdefault(row.devices, row)
    middles = {key: statistics.median(map(figure, own.values())) for key, own in groups.items()}
    top = better(middles.values())
    near = [key for key, value in middles.items() if min(value, top) >= AS_GOOD * max(value, top)]
    most = max(len(groups[key]) for key in near)
    key = better((key for key in near if len(groups[key]) == most), key=lambda key: middles[key])
    each = best_of_each(groups[key], groups.values(), figure, better)
    chosen = tuple(each[devices] for devices in sorted(each))
    values = tuple(map(figure, chosen))
    outside = apart([1 / value if better is min else value for value in values], chosen)
    named = tuple((chosen[place].devices, values[place]) for place in outside)
    return Best(chosen, values, labels_of(results, chosen), together(groups[key], kinds.devices, kinds.noun), named)


class FirstLook:
    """A run's best of each task, its pairs at full size, and what its links carried."""

    def __init__(self, results: Results, limits: Limits) -> None:
        """Take what is known of the run; nothing is computed yet."""
        self.results, self.limits = results, limits
        self.kinds = results.kinds

    @classmethod
    def of(cls, run: Run) -> FirstLook:
        """Return the first look at a run."""
        return cls(Results(run), Limits(run))

    @functools.cached_property
    def answers(self) -> list[TaskAnswer]:
        """The best of each task."""
        return answers(self.results, self.limits)

    @functools.cached_property
    def one_way(self) -> FullPairs | None:
        """All pairs one way at full size; None where none was measured."""
        return full_pairs(self.results, self.limits, self.kinds, ONE_WAY)

    @functools.cached_property
    def both_ways(self) -> FullPairs | None:
        """All pairs both ways at full size; None where none was measured."""
        return full_pairs(self.results, self.limits, self.kinds, BOTH_WAYS)

    @functools.cached_property
    def node(self) -> NodeRates | None:
        """What the node's links carried; None where the system is not known."""
        return node_rates(self.results, self.limits, self.kinds, self.one_way)
