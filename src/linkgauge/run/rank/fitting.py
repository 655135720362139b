"""At which size a case between nodes is measured where a link is slow: what fits into the case's own time.

Built-in plans ask for sizes that suit links of 10 Gb/s and more. On a link of 10 Mb/s one such operation takes longer
than the case may, and a run would be timeouts. What the first operations took tells the rate; a case whose operation
would take more than a third of its time is measured at a smaller size, or left out where its curve has a smaller one.
Sizes that a user asks for stay.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_duration
from linkgauge.plan.curves import LeftOut, Point, curve_id, family
from linkgauge.run.wire.spec import CaseEntry

_SHARE = 3  # so many operations fit into a case's time: with warm-up and checks ten or so take four times as long
_LEAST = 4096  # bytes: below, an operation is of latency
_NEAR = 8  # so many times a measured size its own curve tells
TELLING = 16 << 10  # from here on a time tells a rate


def moved(case: Case, size: int) -> float:
    """Bytes that one of a case's ranks sends or gets in one operation of `size`, about."""
    traits = PATTERNS[case.pattern]
    n = max(case.group_ranks, 1)
    total = float(traits.bytes_total(size, n, case.window, case.distribution))
    return total if traits.ranks == "2" or traits.rooted else total * 2 / n


class Fitting:
    """What the operations so far took, and which size of the next case fits by that."""

    def __init__(self, entries: Sequence[CaseEntry]) -> None:
        """Take a launch's cases, of which some are to fit."""
        self._sizes: dict[str, list[int]] = defaultdict(list)  # of each curve: what is asked for
        for entry in entries:
            if entry.fits:
                self._sizes[curve_id(entry.case)].append(entry.case.size_requested)
        self._known: dict[str, dict[int, float]] = defaultdict(dict)  # by family and size: ns
        self._rates: dict[str, tuple[float, float]] = {}  # by transport: bytes of the largest operation, and bytes/ns

    def knows(self, transport: str) -> bool:
        """Whether the rate of a transport is known."""
        return transport in self._rates

    def note(self, case: Case, point: Point) -> None:
        """A case between nodes was measured."""
        of_family = self._known[family(case)]
        of_family[case.size_requested] = max(point.time_ns, of_family.get(case.size_requested, 0.0))
        amount = moved(case, case.size)
        if amount >= TELLING and point.time_ns > 0:
            # Queues and shapers let a small operation through at once: the largest one tells what a link sustains.
            self._rates[case.transport] = max((amount, amount / point.time_ns), self._rates.get(case.transport, (0, 0)))

    def expected_ns(self, case: Case, size: int) -> float:
        """What an operation of `size` takes, by smaller ones of its family and the transport's rate; 0: unknown."""
        rate = self._rates.get(case.transport, (0.0, 0.0))[1]
        by_rate = moved(case, size) / rate if rate else 0.0
        known = self._known.get(family(case), {})
        below = sorted(other for other in known if other <= size)
        if below and below[-1] >= TELLING:
            last = below[-1]
            slope = known[last] / last
            for a, b in itertools.pairwise(below):
                slope = max(0.0, (known[b] - known[a]) / (b - a)) if b == last else slope
            own = known[last] + slope * (size - last)
            return own if size <= _NEAR * last else max(own, by_rate)
        return by_rate

    def fitting(self, case: Case) -> tuple[int, LeftOut | None]:
        """The size at which a case is measured, or why it is not: a smaller one of its curve is."""
        asked = case.size_requested
        most_ns = case.stop.time_ns / _SHARE
        if self.expected_ns(case, asked) <= most_ns:
            return asked, None
        if any(TELLING <= other < asked for other in self._sizes[curve_id(case)]):
            took_ns = self.expected_ns(case, asked)
            reason = f"an operation would take {format_duration(took_ns)} on this link: smaller sizes are measured"
            return asked, LeftOut("time", reason, {"expected_ns": took_ns})
        size = asked
        while size > _LEAST and self.expected_ns(case, size) > most_ns:
            size //= 2
        return max(size, min(_LEAST, asked)), None


def in_order(entries: Sequence[CaseEntry]) -> list[CaseEntry]:
    """The cases in their order, but that those of one family which are to fit come by rising size, each in a place that
    the family has."""
    families: dict[str, list[CaseEntry]] = defaultdict(list)
    for entry in entries:
        if entry.fits:
            families[family(entry.case)].append(entry)
    turns = {name: iter(sorted(some, key=lambda one: one.case.size_requested)) for name, some in families.items()}
    return [next(turns[family(entry.case)]) if entry.fits else entry for entry in entries]
