"""What applications were predicted to take, beside what they took."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.apps import catalog
from linkgauge.apps.buckets import in_buckets
from linkgauge.apps.program import Program
from linkgauge.errors import UsageError
from linkgauge.expect.application import WAITING, Predicted, predict
from linkgauge.expect.coverage import LEVEL, Interval, Misses, misses_of
from linkgauge.expect.curves import Curves
from linkgauge.expect.mechanism import Mechanism, mechanism_of
from linkgauge.expect.slow_downs import FREE, IN_TURNS, Costs, Share, SlowDowns
from linkgauge.expect.sureness import Ends
from linkgauge.expect.under_way import OverlapTime
from linkgauge.model.listed import listed
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import change, percent
from linkgauge.model.worded import App
from linkgauge.stats.step_times import KINDS, RankSteps, step_times
from linkgauge.view.results import Results
from linkgauge.view.units import range_text, time_text

if TYPE_CHECKING:
    from linkgauge.expect.cluster import Cluster
    from linkgauge.store.run import Run


_MEASURED_BY = "'linkgauge run --plan overlap' measures what it costs, see --overlap"


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What is supposed of an application. `algorithm`: of collectives, as its curves were measured; "": the library's
    choice. `at_once`: collectives that are begun are waited for at once, so that nothing goes on beside them. `bucket`:
    bytes of a bucket of reductions that are begun; 0: as they are."""

    algorithm: str = ""
    at_once: bool = False
    bucket: int = 0


AS_IT_IS = WhatIf()


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

    @property
    def where(self) -> str:
        """Of which prediction a line is, for people."""
        return f"{self.app} on {self.ranks} by {self.mechanism.words}"

    @property
    def error(self) -> float | None:
        """By how much the prediction is too long, as a share of what was measured."""
        if self.predicted is None or not self.measured_ns:
            return None
        return self.predicted.time_ns / self.measured_ns - 1

    def gain_over(self, before: Prediction) -> tuple[float, float] | None:
        """Between what it saves, in ns, where it and what it is beside have intervals: their ends, whose errors may be
        unlike."""
        if self.interval is None or before.interval is None:
            return None
        return before.interval.low_ns - self.interval.high_ns, before.interval.high_ns - self.interval.low_ns

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
                ranks_told = told.get(row.identity, []) if row is not None else []
                ns = getattr(row, statistic) if row is not None else None
                doubts = {}
                if ends is not None and answer is not None:
                    program = _program(app, count, what_if)
                    doubts = ends.doubts(functools.partial(predict, program, mechanism=by, slow=slow), answer)
                between = None
                if misses is not None and answer is not None and answer.time_ns:
                    between = misses.interval(label, count, by, answer)
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


def print_predictions(
    found: Sequence[Prediction],
    bound_of: str | None = None,
    as_it_is: Sequence[Prediction] | None = None,
    shown: Mapping[str, str] | None = None,
) -> None:
    """Print a table, a row an application and mechanism, and a line of the errors.

    `bound_of`: the system whose links tell, so that what is predicted is a least time. `as_it_is`: the same predictions
    without the change that `found` supposes, which then stand beside instead of what was measured. `shown`: what the
    run's transports are called.
    """
    from rich.text import Text

    from linkgauge.view.screen import Table, console

    out = console()
    known = [(one, before) for one, before in zip(found, as_it_is or found, strict=True)
             if one.predicted is not None and one.predicted.time_ns]  # fmt: skip
    several = len({one.ranks for one, _ in known}) > 1
    told = as_it_is is None and any(one.measured_ns is not None for one, _ in known)
    time_name = "predicted" if bound_of is None else "at least"
    title = "predicted from curves" if bound_of is None else f"the least time that the links of {bound_of} allow"
    table = Table(title=f"applications: {title}{', and measured' if told else ''}", title_justify="left",
                  title_style="bold", box=None, pad_edge=False, header_style="bold")  # fmt: skip
    columns = ["application", "ranks", "by", time_name if as_it_is is None else f"{time_name}, as it is"]
    columns += ["what if", "as fast"] if as_it_is is not None else []
    stated = any(one.interval is not None for one, _ in known)
    columns += [f"{percent(LEVEL)} interval"] if stated else []
    columns += ["measured", "error" if bound_of is None else "of that"] if told else []
    columns += ["as fast as on fewest"] if several else []
    for name in (*columns, f"by kind of step{': predicted (measured)' if told else ''}"):
        right = name in columns and name not in ("application", "by")
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    first: dict[tuple[str, Mechanism], float] = {}
    for one, before in known:
        assert one.predicted is not None
        assert before.predicted is not None
        by, time_ns = one.mechanism, one.predicted.time_ns
        kinds = [kind.words(told=told) for kind in one.kinds() if told or kind.predicted_ns]
        cells: list[Text | str] = [
            Text(one.app),
            str(one.ranks),
            by.words_as(shown or {}),
            time_text(before.predicted.time_ns),
        ]
        if as_it_is is not None:
            cells += [time_text(time_ns), f"{before.predicted.time_ns / time_ns:.2f}x"]
        if stated:
            ends = one.interval and (time_text(one.interval.low_ns), time_text(one.interval.high_ns))
            cells.append(range_text(*ends) if ends else "")
        if told and one.error is not None and one.measured_ns:
            compared = change(one.error) if bound_of is None else f"{one.measured_ns / time_ns:.1f}x"
            cells += [time_text(one.measured_ns), compared]
        elif told:
            cells += ["", ""]
        if several:
            fewest = first.setdefault((one.app.partition(" ")[0], by), time_ns)
            cells.append(f"{fewest / time_ns:.2f}x")
        table.add_row(*cells, ", ".join(kinds[:3]))
    if known:
        out.print(table)
    nothing = [one for one in found if one.predicted is not None and not one.predicted.time_ns]
    if nothing:
        where = ", ".join(dict.fromkeys(f"{one.app} on {one.ranks}" for one in nothing))
        out.print(Text(f"moves nothing, and takes no time here: {where}"))
    for reason, count in Counter(one.why_not for one in found if one.why_not).items():
        out.print(Text(f"not predicted: {reason}{f' ({count} times)' if count > 1 else ''}"))
    those = [one for one, _ in known]
    for line in _overlap_lines(those) + _shared_lines(those):
        out.print(Text(line))
    if as_it_is is not None:
        for one, before in known:
            if line := _gain_line(one, before):
                out.print(Text(line))
    for line in _interval_lines(those, told=told) + _doubt_lines(those, shown or {}):
        out.print(Text(line))
    errors = [one.error for one, _ in known if one.error is not None]
    if errors and told and bound_of is None:
        ratios = statistics.median(math.exp(abs(math.log(1 + error))) for error in errors)
        middle, most = statistics.median(map(abs, errors)), max(map(abs, errors))
        out.print(
            f"{len(errors)} of {len(found)} predicted and measured: error {percent(middle)} in the "
            f"median, {percent(most)} at most; off by a factor of {ratios:.2f} in the median"
        )


def _gain_line(one: Prediction, before: Prediction) -> str:
    """What a change saves, or that it may save nothing; empty where errors are not known."""
    gain = one.gain_over(before)
    if gain is None or before.predicted is None:
        return ""
    low, high = gain
    of = f" of {time_text(before.predicted.time_ns)}"
    if low > 0:
        return f"{one.where}: the change saves {range_text(time_text(low), time_text(high))}{of}"
    if high < 0:
        return f"{one.where}: the change costs {range_text(time_text(-high), time_text(-low))}{of}"
    ends = f"it costs up to {time_text(-low)} or saves up to {time_text(high)}{of}"
    return f"{one.where}: no gain can be promised: {ends}, by the {percent(LEVEL)} intervals"


def _interval_lines(found: Sequence[Prediction], *, told: bool) -> list[str]:
    """By what the intervals are known, and where measured times stand beside how many of these lie in them."""
    of: dict[str, list[Prediction]] = {}
    for one in found:
        if one.interval is not None:
            of.setdefault(one.interval.within.of, []).append(one)
    lines = []
    for words, those in of.items():
        factors = sorted(one.interval.within.factor for one in those if one.interval is not None)
        between = range_text(f"{factors[0]:.2f}", f"{factors[-1]:.2f}")
        lines.append(f"{percent(LEVEL)} intervals: what moves takes within a factor of {between}, by {words}")
    held = [one.interval.holds(one.measured_ns) for one in found if one.interval is not None and one.measured_ns]
    return [*lines, *([f"{sum(held)} of {len(held)} measured times lie in their intervals"] if held and told else [])]


def _doubt_lines(found: Sequence[Prediction], shown: Mapping[str, str]) -> list[str]:
    """Of which kinds of step the run itself shows that predictions may be off: a line each cause."""
    lines = []
    causes: dict[tuple[str, str], list[str]] = {}
    for one in found:
        for kind, why in one.doubts.items():
            causes.setdefault((kind, why), []).append(f"{one.app} by {one.mechanism.words_as(shown)}")
    for (kind, why), of in sorted(causes.items()):
        lines.append(f"not sure of {kind} in {listed(of, 3)}: {why}")
    return lines


def _overlap_lines(found: Sequence[Prediction]) -> list[str]:
    """By which slow-downs collectives and stand-in kernels cost each other, what that came to, and where it is free."""
    lines, free = [], []
    for one in found:
        told = one.overlap
        if told is None:
            continue
        if not told.by:
            free.append(f"{one.where} ({_change(one, one.in_turns_ns)} if they took turns)")
            continue
        lines.append(
            f"{one.where}: kernels take {_longer(told.work, told.work_lost)} as long beside collectives, these "
            f"{_longer(told.collective, told.collective_lost)} as long beside kernels"
        )
    known = dict.fromkeys(by for one in found if one.overlap is not None for by in one.overlap.by)
    lines += [f"measured: {by.of}: the collective takes {by.collective:.2f}x, the kernel {by.work:.2f}x as long"
              for by in known]  # fmt: skip
    if free:
        lines.append(f"overlap of kernels and collectives is taken as free: {', '.join(free)}; {_MEASURED_BY}")
    return lines


def _shared_lines(found: Sequence[Prediction]) -> list[str]:
    """By what collectives of several groups were taken to share devices, and how wrong that may be."""
    shared = [(one, one.predicted.share) for one in found if one.predicted is not None and one.shared_ns]
    lines = [f"measured: {share.of}: each takes {share.factor:.2f}x as long on the same devices"
             for share in dict.fromkeys(share for _, share in shared) if share.of]  # fmt: skip
    evenly = [f"{one.where} ({_change(one, one.unshared_ns)} if they cost each other nothing)"
              for one, share in shared if not share.of]  # fmt: skip
    if evenly:
        lines.append(f"collectives of several groups are taken to share their devices evenly: {', '.join(evenly)}; "
                     f"{_MEASURED_BY}")  # fmt: skip
    return lines


def _change(one: Prediction, ns: float | None) -> str:
    return "" if one.predicted is None or ns is None else change(ns / one.predicted.time_ns - 1)


def _longer(whole: float, lost: float) -> str:
    return f"{whole / (whole - lost):.2f}x"
