"""How long cases really take against their estimates, so that what is left of a time limit is used.

Estimates (plan/estimate.py) are guesses on the slow side. Their error is alike for cases that are alike: the same
transport and pattern at about the same size; where none such has been measured, the nearest that have tell. One case
may take long for a reason of its own, as the first does that compiles kernels: a median counts, the estimate in it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Hashable, Iterator

from linkgauge.model.case import Case
from linkgauge.plan.curves import FULL

_SIZE_CLASS_BITS = 3  # sizes within 8 times of each other


class Pace:
    """The ratio of time taken to time estimated, by transport, pattern and size class."""

    def __init__(self) -> None:
        """Nothing has been measured: estimates stand."""
        self._ratios: dict[Hashable, list[float]] = defaultdict(lambda: [1.0])  # rising, the estimate's own among them

    def note(self, case: Case, estimated_s: float, taken_s: float) -> None:
        """A case was measured; both times from its begin to the next one's."""
        for kind in _kinds(case):
            insort(self._ratios[kind], taken_s / estimated_s if estimated_s > 0 else 1.0)

    def corrected_s(self, case: Case, estimated_s: float) -> float:
        """The estimate of a case, by the most alike that were measured."""
        known = next((self._ratios[kind] for kind in _kinds(case) if kind in self._ratios), [1.0])
        return estimated_s * known[(len(known) - 1) // 2]


def _kinds(case: Case) -> Iterator[Hashable]:
    """What a case is alike to, the nearest first."""
    size_class = FULL if case.size_requested == FULL else case.size.bit_length() // _SIZE_CLASS_BITS
    yield case.transport, case.pattern, size_class
    yield case.transport, case.pattern
    yield case.transport
    yield None
