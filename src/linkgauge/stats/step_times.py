"""Where the time of an application's iteration went, rank by rank, as its case stored it (`run/rank/case_rows.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity
from linkgauge.run.rank.case_rows import SPANS, STEPS

if TYPE_CHECKING:
    from linkgauge.store.run import Run

KINDS = ("compute", "host_to_device", "device_to_host", "within_device", "message", "collective", "barrier", "sync")
"""Kinds of steps in the order of the core's (core/operation/application.cpp)."""


@dataclasses.dataclass(frozen=True)
class RankSteps:
    """One rank's iteration. `ns` by kind: the median of the host's time in such steps. The rest is what the step file
    says: how many, and how many bytes, by name of apps/program.py's `amounts`."""

    rank: int
    ns: dict[str, float]
    counts: dict[str, int]
    bytes: dict[str, int]

    @property
    def total_ns(self) -> float:
        """All kinds together."""
        return sum(self.ns.values())


def step_times(run: Run) -> dict[Identity, list[RankSteps]]:
    """By row identity what its ranks told, in the order of ranks; cases without are left out."""
    found: dict[Identity, dict[int, RankSteps]] = {}
    for told in run.observed_of(STEPS):
        one = found.setdefault(told.identity, {}).setdefault(told.rank, RankSteps(told.rank, {}, {}, {}))
        name, _, quantity = told.name.rpartition("_")
        if quantity == "time" and name in KINDS:
            one.ns[name] = told.value
        elif quantity in ("count", "bytes"):
            (one.counts if quantity == "count" else one.bytes)[name] = int(told.value)
    return {identity: [ranks[rank] for rank in sorted(ranks)] for identity, ranks in found.items()}


def busiest(ranks: Sequence[RankSteps]) -> RankSteps | None:
    """The rank with most time of its own: that in which it may have waited for others is left out of account."""
    waits = ("message", "collective", "barrier")
    return max(ranks, key=lambda one: sum(ns for kind, ns in one.ns.items() if kind not in waits), default=None)


@dataclasses.dataclass(frozen=True)
class Span:
    """Steps of one kind that followed each other on a rank; ns of its node's clock."""

    rank: int
    kind: str
    begin_ns: int
    end_ns: int


def step_spans(run: Run) -> dict[Identity, list[Span]]:
    """By row identity the iteration that was checked last, rank by rank; of a long one its beginning."""
    found = grouped((one.identity, Span(one.rank, one.name, one.when_ns, one.when_ns + int(one.value)))
                    for one in run.observed_of(SPANS) if one.name in KINDS and one.value >= 0)  # fmt: skip
    return {identity: sorted(spans, key=lambda one: (one.rank, one.begin_ns)) for identity, spans in found.items()}
