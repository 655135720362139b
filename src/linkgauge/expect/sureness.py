"""Which kind of step of a prediction a reader is not to trust, with the cause, where the run itself shows one: by the
ends of its curves' intervals, by their quartiles and means, and by curves that fall. What takes a thousand steps takes
a thousand times their mean, whatever their median, where another program has a rank's core for a while.

That a curve is of another state of the machine than the application (threads that share a core, a clock at another
frequency) shows in neither its interval nor its quartiles where all its samples are of that state; then it may show in
a copy of fewer bytes that takes longer than one of more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linkgauge.expect.application import WAITING, Predicted
from linkgauge.expect.curves import COPIES_WITHIN, Curves, CurvesOfRun, kind_of
from linkgauge.model.quantity import percent
from linkgauge.model.result import Measured

WIDE = 0.4  # of a kind's time: beyond it the cause is named
_SMALL = 0.1  # of an iteration: a kind that takes less decides nothing


class Ends:
    """The curves of a run by the ends of their medians' intervals and by their quartiles."""

    def __init__(self, rows: Sequence[Measured]) -> None:
        """Take the run's headline rows."""
        names = ("interval_low_ns", "interval_high_ns", "q1_ns", "q3_ns", "mean_ns")
        self.low, self.high, self.q1, self.q3, self.mean = (CurvesOfRun(rows, name) for name in names)
        self._falls = _falls(rows)

    def doubts(self, by: Callable[[Curves], Predicted], usual: Predicted) -> dict[str, str]:
        """Why a kind of step of a prediction may be off: `by` makes it from other curves."""
        low, high, q1, q3, mean = (by(curves) for curves in (self.low, self.high, self.q1, self.q3, self.mean))
        rank = max(range(len(usual.ranks_ns)), key=lambda one: usual.ranks_ns[one])
        doubts = {}
        for kind, ns in usual.kinds_ns[rank].items():
            if ns <= _SMALL * usual.time_ns or kind == WAITING:  # that is others' steps
                continue
            ends = (high.kinds_ns[rank].get(kind, 0.0) - low.kinds_ns[rank].get(kind, 0.0)) / ns
            middle = (q3.kinds_ns[rank].get(kind, 0.0) - q1.kinds_ns[rank].get(kind, 0.0)) / ns
            if ends > WIDE:
                doubts[kind] = f"the intervals of its curves' medians are {percent(ends)} wide"
            elif middle > WIDE:
                doubts[kind] = f"half of its curves' samples lie in a range of {percent(middle)}"
            elif (mean_ns := mean.kinds_ns[rank].get(kind, 0.0)) > (1 + WIDE) * ns:
                doubts[kind] = (
                    f"its curves' means are {mean_ns / ns:.1f} times their medians, and many steps take the mean: see "
                    "--statistic mean"
                )
            elif kind in self._falls:
                doubts[kind] = self._falls[kind]
        return doubts


def _falls(rows: Sequence[Measured]) -> dict[str, str]:
    """Kinds of copies of which fewer bytes took longer than more: by half as long again, and beyond the intervals."""
    found: dict[str, str] = {}
    of: dict[tuple[object, ...], list[Measured]] = {}
    for row in rows:
        if row.pattern in COPIES_WITHIN and row.case.cadence == "isolated":
            of.setdefault((row.pattern, row.transport, row.ranks), []).append(row)
    for (pattern, _, ranks), points in of.items():
        points.sort(key=lambda row: row.size)
        for less in points:
            more = min((row for row in points if row.size > less.size), default=None,
                       key=lambda row: row.median_ns)  # fmt: skip
            if more is None or not more.median_ns or less.median_ns < (1 + WIDE) * more.median_ns:
                continue
            if less.interval_low_ns > more.interval_high_ns:
                times = f"{less.median_ns / more.median_ns:.1f} times as long as {more.size}"
                found[kind_of(str(pattern))] = (
                    f"on {ranks} device{'' if ranks == 1 else 's'} {less.size} bytes took {times}: its curve was "
                    f"disturbed"
                )
                break
    return found
