"""When to stop sampling."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Literal

from linkgauge.model.dimension import Part, Says, row
from linkgauge.model.values import count, number_in, one_of, time_ns

STOP_RULES = ("count", "interval", "duration")


@dataclasses.dataclass(frozen=True)
class StopRule:
    """When to stop sampling. Every rule is bounded by `time_ns`; `duration` samples as long as that.

    >>> StopRule("count", samples=100).time_ns
    1000000000
    """

    rule: Literal["count", "interval", "duration"] = field(
        default="interval", metadata=row(Part.TIMING, Says.HOW_LONG, "Rule that ends the sampling.", one_of(STOP_RULES))
    )
    samples: int = field(  # count: how many; interval: at most this many
        default=1000,
        metadata=row(
            Part.TIMING, Says.HOW_LONG, "Samples to take; at most, with the rule interval.", count(1, 1_000_000)
        ),
    )
    relative_half_width: float = field(  # interval: half width of the median's 95 % interval over the median
        default=0.025,
        metadata=row(Part.TIMING, Says.HOW_LONG, "Half width of the median's interval as a share of it, for interval.",
                     number_in(0, 1), name="ci_width"),
    )  # fmt: skip
    time_ns: int = field(
        default=1_000_000_000,
        metadata=row(
            Part.TIMING,
            Says.HOW_LONG,
            "Time to sample at most; the time to sample, with the rule duration.",
            time_ns(1),
            name="max_time_ns",
        ),
    )


STOP_FIELDS = {one.metadata["written"][0] or f"stop_{one.name}": one.name for one in dataclasses.fields(StopRule)}
"""By dimension of the stop rule its field."""
