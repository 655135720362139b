"""When a run has to end: `--time-limit`, and what of it each launch has (docs/plans.md, By value)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linkgauge.plan.launches import measuring_s

SHORTEST_TURN_S = 3.0  # a launch takes a second of it to start


@dataclasses.dataclass(frozen=True)
class TimeLimit:
    """The end of a run, on its process' steady clock in seconds."""

    last_end: float  # no case begins that, by its estimate, would not be over by then
    cut: float  # a case that is still in hand then is ended, without a status

    @classmethod
    def of(cls, limit_s: float, began: float) -> TimeLimit:
        """Of a run whose command began at `began` and may take `limit_s`."""
        last_end = began + measuring_s(limit_s)
        return cls(last_end, (last_end + began + limit_s) / 2)

    def share(self, now: float, weights: Sequence[float]) -> float:
        """When the first of several launches has to end that share the time from now on by these weights.

        0 for one that weighs nothing beside others; all alike where none weighs anything.
        """
        whole = sum(weights)
        part = weights[0] / whole if whole > 0 else 1 / len(weights)
        return now + max(self.last_end - now, 0.0) * part if part > 0 else 0.0
