"""From a run folder, or from summary rows, to the facts that rules read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.network import Network
from linkgauge.expect.of_run import system_of_run
from linkgauge.findings.facts import DIMENSIONS, Facts, FailedCase, Measure, Observation
from linkgauge.findings.samples import RankSeries, Samples
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.run.parent.prepared import read_launches
from linkgauge.stats.attempts import Counted, counted
from linkgauge.stats.checked import operations_checked
from linkgauge.stats.crossing import crossings
from linkgauge.stats.interference import interferences
from linkgauge.store.schema import Identity
from linkgauge.system.model import System

if TYPE_CHECKING:
    from linkgauge.store.run import Run

HEADLINE = -1
NEEDED = (
    "case_key", "launch", "repeat", "attempt", "planned_launch", "lane", "launch_key", "status", "reason", "size",
    "devices", "median_ns", "interval_low_ns", "interval_high_ns", "q1_ns", "q3_ns", "p95_ns", "min_ns", "max_ns",
    "samples", "effective_samples", "goodput_bytes_per_s", "stop_rule", "evidence", *DIMENSIONS,
)  # fmt: skip
"""Columns of a summary that the rules need."""


def measures_of(rows: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """Join summary rows (columns NEEDED) to measures: of several repeats the median."""
    return _measures(Counted(rows))


def _measures(rows: Counted[Any]) -> list[Measure]:
    groups = ([row for row in group if row["median_ns"]] for group in rows.measured)
    return [_measure(group) for group in groups if group]


def _measure(rows: list[Mapping[str, Any]]) -> Measure:
    first = rows[0]
    medians = [float(row["median_ns"]) for row in rows]
    time = medians[0] if len(medians) == 1 else float(np.median(medians))
    goodputs = [float(row["goodput_bytes_per_s"]) for row in rows if row.get("goodput_bytes_per_s")]
    goodput = None if not goodputs else goodputs[0] if len(goodputs) == 1 else float(np.median(goodputs))
    return Measure(
        case_key=first["case_key"],
        launch_key=first["launch_key"] or "",
        case=_case(first),
        time_ns=time,
        half_width=_mean((row["interval_high_ns"] - row["interval_low_ns"]) / 2 / row["median_ns"] for row in rows),
        spread=_mean((row["q3_ns"] - row["q1_ns"]) / row["median_ns"] for row in rows),
        tail=_mean(row["p95_ns"] / row["median_ns"] for row in rows),
        samples=sum(int(row["samples"]) for row in rows),
        effective=sum(float(row["effective_samples"]) for row in rows),
        goodput=None if PATTERNS[first["pattern"]].latency_only else goodput,
        identities=tuple((first["case_key"], row["launch"], row["repeat"], row["attempt"]) for row in rows),
        repeats=tuple(medians),
        fastest_ns=min(float(row["min_ns"]) for row in rows),
        slowest_ns=max(float(row["max_ns"]) for row in rows),
    )


_NOT_SAID = Case("", "", 0, 0, (0,)).dimensions()


def _case(row: Mapping[str, Any]) -> Case:
    """Return what was measured; a dimension that an older run did not have is what it was for all then."""
    known = {name: row[name] for name in ("devices", "stop_rule", *DIMENSIONS) if row.get(name) is not None}
    return Case.from_dimensions({**_NOT_SAID, **known, "size": int(row["size"]), "size_asked": int(row["size"])})


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


def facts_of(run: Run, system: System | None = None) -> Facts:
    """Read a run folder. `system`: the machine to judge against; by default what the run itself found there."""
    rows = counted(run, NEEDED)
    return Facts(
        # What goes on beside loads is no witness of the machine: those cases are judged against themselves, alone.
        [measure for measure in _measures(rows) if not measure.case.background],
        failures=_failures(run, [row for row in rows.others if row["status"] != "skipped"]),
        skipped=[row for row in rows.others if row["status"] == "skipped"],
        observations=[Observation.of(row) for row in run.observations.to_pylist()],
        launches=run.launches.to_pylist(),
        system=system or system_of(run),
        samples=Samples(_series_reader(run)),
        info=run.info,
        records=functools.cache(lambda: {row["case_key"]: row for row in counted(run).rows}),
        crossings=crossings(run),
        interferences=lambda: interferences(run),
        network=Network.of_run(run),
        lost=run.lost,
        checked=operations_checked(run),
    )


def _failures(run: Run, rows: Sequence[Mapping[str, Any]]) -> list[FailedCase]:
    """Of a launch that never began the plan alone tells the variables."""
    found = [FailedCase.of(row) for row in rows]
    if all(one.launch_key for one in found):
        return found
    try:
        planned = {one.number: one.settings.env for one in read_launches(run.path)}
        again = {int(actual): int(number) for actual, number in dict(run.info.get("relaunched") or {}).items()}
    except (LinkgaugeError, TypeError, ValueError):  # no plan, as of what was imported; or a stranger's
        return found
    return [one if one.launch_key
            else dataclasses.replace(one, variables=planned.get(again.get(row["launch"], row["launch"]), ()))
            for one, row in zip(found, rows, strict=True)]  # fmt: skip


def system_of(run: Run) -> System | None:
    """Return the system that a run stored in its run.json, None where there is none that can be read."""
    try:
        return system_of_run(run)
    except LinkgaugeError:
        return None


def _series_reader(run: Run) -> Callable[[Identity], RankSeries | None]:
    """Read all samples at the first call that asks for any, and keep them by row identity."""
    held: dict[Identity, RankSeries] = {}

    def reader(identity: Identity) -> RankSeries | None:
        if not held:
            from linkgauge.stats.series import run_blocks

            for key, block in run_blocks(run):
                kept = block.only(block.measured)
                names = ("rank", "lane", "sample", "scheduled_ns", "start_ns", "ns", "iterations")
                columns = {name: np.asarray(getattr(kept, name)) for name in names}
                held[key] = RankSeries(**columns, host_clock=not block.event_clock)
        return held.get(identity)

    return reader
