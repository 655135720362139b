"""What applications were predicted to take, beside what they took."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.apps import catalog
from linkgauge.apps.buckets import in_buckets
from linkgauge.apps.program import Program
from linkgauge.apps.traces import LEAST_OF_WAIT, host_wait_ns, is_whole_program
from linkgauge.errors import UsageError
from linkgauge.expect.application import WAITING, Predicted, predict
from linkgauge.expect.coverage import Interval, Misses, gain, misses_of
from linkgauge.expect.curves import Curves
from linkgauge.expect.mechanism import Mechanism, mechanism_of
from linkgauge.expect.new_pages import NEW_PAGES, NewPages, has_temporary_memory
from linkgauge.expect.slow_downs import FREE, IN_TURNS, Costs, Share, SlowDowns
from linkgauge.expect.sureness import WIDE, Ends
from linkgauge.expect.under_way import OverlapTime
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.worded import App
from linkgauge.stats.step_times import KINDS, RankSteps, step_times
from linkgauge.view.results import Results
from linkgauge.view.units import time_text

if TYPE_CHECKING:
    from linkgauge.expect.cluster import Cluster
    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What is supposed of an application. `algorithm`: of collectives, as its curves were measured; "": the library's
    choice. `at_once`: collectives that are begun are waited for at once, so that nothing goes on beside them. `bucket`:
    bytes of a bucket of reductions that are begun; 0: as they are."""

    algorithm: str = ""
    at_once: bool = False
    bucket: int = 0


AS_IT_IS = WhatIf()
SHORT_NS = 5e6
"""Of a program from its start. ParRes' global took 0.99 ms, of which its curves have 0.29: a library's first calls take
longer, here the first 65 of 200 allgathers 3 to 10 us in place of 0.55."""
FIRST_CALLS = "a program so short is mostly its library's first calls, which take longer than any curve or interval has"
_FEW = 64  # ranks, of which one that fits is looked for


@dataclasses.dataclass(frozen=True)
class KindOfStep:
    """Steps of one kind on a rank, in ns: their own time as predicted; what the rank waits in them for others that have
    not come, which is of kind WAITING; and both together as measured, for the host cannot tell them apart."""

    kind: str
    predicted_ns: float
    waiting_ns: float
    measured_ns: float | None

    def words(self, *, told: bool) -> str:
        """What people are shown."""
        measured = ""
        if told and self.measured_ns is not None:
            measured = f" ({time_text(self.measured_ns)}{' with waiting' if self.waiting_ns else ''})"
        return f"{self.kind} {time_text(self.predicted_ns)}{measured}"


@dataclasses.dataclass(frozen=True)
class Prediction:
    """An application by one mechanism. Times in ns; those measured are None where they are not known."""

    app: str
    ranks: int
    mechanism: Mechanism
    predicted: Predicted | None
    why_not: str  # where it is not predicted
    measured_ns: float | None
    measured_ranks: Sequence[RankSteps]
    doubts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # why a kind of step may be off
    interval: Interval | None = None  # where they are of a run
    # Where what overlap costs is not measured, between what it lies: if collectives on one device cost each other
    # nothing, and if stand-in kernels and collectives, which are taken to cost each other nothing, took turns.
    unshared_ns: float | None = None
    in_turns_ns: float | None = None

    def where(self, shown: Mapping[str, str]) -> str:
        """Of which prediction a line is, for people, by what screens call the transports of a run."""
        return f"{self.app} on {self.ranks} by {self.mechanism.words_as(shown)}"

    @property
    def error(self) -> float | None:
        """By how much the prediction is too long, as a share of what was measured."""
        if self.predicted is None or not self.measured_ns:
            return None
        return self.predicted.time_ns / self.measured_ns - 1

    def gain_over(self, before: Prediction) -> tuple[float, float] | None:
        """Between what it saves of the time before, in ns, where both have intervals; both 0: it changes nothing."""
        if self.interval is None or before.interval is None or self.predicted is None or before.predicted is None:
            return None
        return gain(before.predicted, self.predicted, max(self.interval.within.factor, before.interval.within.factor))

    @property
    def _slowest(self) -> int:
        assert self.predicted is not None
        return max(range(self.ranks), key=self.predicted.ranks_ns.__getitem__)

    def kinds(self) -> list[KindOfStep]:
        """Of the rank that is predicted to take longest: kinds of steps, the longest first."""
        if self.predicted is None:
            return []
        rank = self._slowest
        mine, waits = self.predicted.kinds_ns[rank], self.predicted.waits_ns[rank]
        told = next((one.ns for one in self.measured_ranks if one.rank == rank), {})
        found = [KindOfStep(kind, mine.get(kind, 0.0), waits.get(kind, 0.0), told.get(kind, 0.0) if told else None)
                 for kind in KINDS]  # fmt: skip
        found.append(KindOfStep(WAITING, mine.get(WAITING, 0.0), 0.0, None))
        # What is left of a wait by rounding is none.
        return sorted((one for one in found if one.predicted_ns >= 0.5 or one.measured_ns),
                      key=lambda one: -max(one.predicted_ns, one.measured_ns or 0.0))  # fmt: skip

    @property
    def overlap(self) -> OverlapTime | None:
        """Of the rank that is predicted to take longest; None where no stand-in kernel meets a collective."""
        if self.predicted is None or not self.predicted.overlaps:
            return None
        found = self.predicted.overlaps[self._slowest]
        return found if found.any else None

    @property
    def shared_ns(self) -> float:
        """What collectives of the rank that is predicted to take longest lose to those of other groups."""
        return self.predicted.overlaps[self._slowest].shared if self.predicted and self.predicted.overlaps else 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        overlap = self.overlap
        return {
            "app": self.app, "ranks": self.ranks, "transport": self.mechanism.transport,
            "collectives": self.mechanism.collectives, "copies": self.mechanism.copies, "why_not": self.why_not,
            "predicted_ns": None if self.predicted is None else self.predicted.time_ns,
            "measured_ns": self.measured_ns, "error": self.error,
            "low_ns": None if self.interval is None else self.interval.low_ns,
            "high_ns": None if self.interval is None else self.interval.high_ns,
            "interval_by": None if self.interval is None else self.interval.within.of,
            "doubts": dict(self.doubts),
            "overlap": None if overlap is None else {
                **dataclasses.asdict(overlap), "by": [dataclasses.asdict(one) for one in overlap.by],
                "in_turns_ns": self.in_turns_ns},
            "shared": None if self.predicted is None or not self.shared_ns else {
                "lost_ns": self.shared_ns, "by": dataclasses.asdict(self.predicted.share),
                "unshared_ns": self.unshared_ns},
            "kinds": [dataclasses.asdict(one) for one in self.kinds()],
        }  # fmt: skip


def predictions(
    apps: Sequence[App],
    curves: Curves,
    measured: Run | None,
    counts: Sequence[int],
    transports: Sequence[str],
    collectives: str,
    copies: str = "",
    statistic: str = "median_ns",
    cluster: Cluster | None = None,
    blocks: int = 0,
    slow: SlowDowns | None = None,
    ends: Ends | None = None,
    on_host: bool = False,
    misses: Misses | None = None,
    advance: Callable[[], None] = lambda: None,
    what_if: WhatIf = AS_IT_IS,
) -> list[Prediction]:
    """Predict each application on each number of ranks, under each transport, beside what `measured` has. `cluster`:
    where ranks share links, messages and collectives are its. `slow`: what overlap costs, where that was measured.
    `ends`: the curves' intervals, which say how sure each is. `on_host`: the devices are host devices. `misses`: how
    wrong such predictions were, which says between what each lies. `advance` is called after each."""
    there = None if measured is None else Results(measured)
    told = {} if measured is None else step_times(measured)
    taken = {(row.case.app, row.ranks, mechanism_of(row.case)): row
             for row in (there.rows if there else ()) if PATTERNS[row.pattern].scripted}  # fmt: skip
    found = []
    for asked in apps:
        for count in counts:
            app = catalog.asked(asked, count).app
            label = app.label
            for transport in transports:
                by = Mechanism(transport, collectives or transport, copies=copies, blocks=blocks if copies else 0,
                               on_host=on_host, algorithm=what_if.algorithm)  # fmt: skip
                row = taken.get((app, count, by))
                answer, reason = predicted(app, count, curves, by, cluster, slow, what_if=what_if)
                if fits := reason and catalog.why_not_here(app, count) and _fewest(asked):
                    reason = f"{reason}: give --ranks {fits}"
                ranks_told = told.get(row.identity, []) if row is not None else []
                ns = getattr(row, statistic) if row is not None else None
                doubts: dict[str, str] = {}
                between = None
                if answer is not None and answer.time_ns:
                    program = _program(app, count, what_if)
                    by_curves = functools.partial(predict, program, mechanism=by, slow=slow)
                    doubts |= {} if ends is None else ends.doubts(by_curves, answer)
                    if misses is not None:
                        may_save_ns = (1 - LEAST_OF_WAIT) * host_wait_ns(program.file.description)
                        between = misses.interval(label, count, by, answer, may_save_ns)
                        longest = by_curves(NewPages(curves)).time_ns if has_temporary_memory(program, by) else 0.0
                        between = dataclasses.replace(between, high_ns=max(between.high_ns, longest))
                        if longest > (1 + WIDE) * answer.time_ns:
                            doubts["collective"] = f"{NEW_PAGES}: up to {time_text(longest)}"
                        if on_host and answer.time_ns < SHORT_NS and is_whole_program(program.file.description):
                            doubts["start"] = FIRST_CALLS
                one = Prediction(label, count, by, answer, reason, ns, ranks_told, doubts, between)
                if answer is not None and one.shared_ns and not answer.share.of:
                    other, _ = predicted(app, count, curves, by, cluster, slow, FREE, what_if=what_if)
                    one = dataclasses.replace(one, unshared_ns=None if other is None else other.time_ns)
                if one.overlap is not None and not one.overlap.by:
                    other, _ = predicted(app, count, curves, by, cluster, IN_TURNS, what_if=what_if)
                    one = dataclasses.replace(one, in_turns_ns=None if other is None else other.time_ns)
                found.append(one)
                advance()
    return found


def _fewest(app: App) -> int:
    """Ranks that an application takes, the fewest; 0 where that is not known."""
    return next((n for n in range(1, _FEW + 1) if not catalog.why_not_here(catalog.asked(app, n).app, n)), 0)


def misses(source: Run, curves: Curves, statistic: str, slow: SlowDowns | None, *, on_host: bool) -> Misses:
    """How wrong predictions from a run's curves are of the applications that it has measured."""

    def of(app: App, count: int, by: Mechanism) -> Predicted | None:
        return predicted(app, count, curves, by, None, slow)[0]

    return misses_of(Results(source).rows, statistic, of, on_host=on_host)


def predicted(
    app: App, count: int, curves: Curves, by: Mechanism, cluster: Cluster | None = None, slow: Costs | None = None,
    share: Share | None = None, *, what_if: WhatIf = AS_IT_IS,
) -> tuple[Predicted | None, str]:  # fmt: skip
    """What an application takes on so many ranks, or why that is not known."""
    if why := catalog.why_not_here(app, count):
        return None, why
    try:
        program = _program(app, count, what_if)
        return predict(program, curves, by, None if cluster is None else cluster.exchanges(program), slow, share), ""
    except UsageError as error:
        return None, str(error)


def _program(app: App, count: int, what_if: WhatIf) -> Program:
    program = catalog.program(app, count)
    if what_if.bucket:
        program = in_buckets(program, what_if.bucket)
    if not what_if.at_once:
        return program
    waited_for = tuple(dataclasses.replace(one, begun=False) for one in program.collectives)
    return dataclasses.replace(program, collectives=waited_for)
