"""What a rank observes of a case beside its device: its node's clock, background loads, steps of an application.

Rows as docs/reference/run-folder.md has them, without the identity.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from linkgauge.model.case import Case
from linkgauge.run.machine.observe import CLOCK_OFFSET, CLOCK_OFFSET_UNCERTAINTY, Row, Value, row_of


def clock_rows(comparisons: Iterable[Mapping[str, Any]], place: int) -> list[Row]:
    """Rows of a rank's clock against that of the case's first node, as the core compared them across nodes.

    `clock_offset` and `clock_offset_uncertainty`, in ns: the true offset lies within the uncertainty.
    """
    return [
        row_of(place, "host clock", one["moment"], one["when_ns"], Value(name, float(one[key]), "ns"))
        for one in comparisons
        for name, key in ((CLOCK_OFFSET, "offset_ns"), (CLOCK_OFFSET_UNCERTAINTY, "uncertainty_ns"))
    ]


LOAD, LOAD_TIME, LOAD_STRETCH = "load", "time_of_operation", "stretch"
_STRETCH_MOMENTS = ("alone", "", "background")  # the core's numbers (core/measure/load.h)


def load_rows(load: Mapping[str, Any]) -> list[Row]:
    """Rows of how a load went on, in ns: of each stretch, alone or beside the measured samples, how long it was and
    `time_of_operation`."""
    columns = (load[name].tolist() for name in ("when", "start_ns", "ns", "operations"))
    return [
        row_of(0, f"{LOAD} {load['number']}", _STRETCH_MOMENTS[when], start_ns, Value(name, value, "ns"))
        for when, start_ns, ns, operations in zip(*columns, strict=True)
        if _STRETCH_MOMENTS[when]
        for name, value in ((LOAD_STRETCH, float(ns)), (LOAD_TIME, ns / operations))
    ]


STEPS, SPANS = "steps", "timeline"


def step_rows(case: Case, place: int, times: Mapping[str, int], spans: Iterable[tuple[str, int, int]]) -> list[Row]:
    """Rows of what an application's iteration is on a rank: of each kind of step how many, how many bytes, and the
    median of the host's time in them, in ns; and when it was in which, in the iteration that was checked last."""
    # Not with the module, which every worker reads before its start: few launches have an application.
    from linkgauge.apps import catalog
    from linkgauge.apps.program import amounts

    told = [Value(f"{kind}_time", float(ns), "ns") for kind, ns in times.items() if ns > 0]
    for name, one in amounts(catalog.program(case.app, case.ranks), place).items():
        quantity, unit = ("ns", "ns") if name == "compute" else ("bytes", "B")
        told += [Value(f"{name}_count", float(one.count), ""), Value(f"{name}_{quantity}", float(one.total), unit)]
    when_ns = time.monotonic_ns()
    rows = [row_of(place, STEPS, "after", when_ns, value) for value in told]
    return rows + [
        row_of(place, SPANS, "after", begin_ns, Value(kind, float(end_ns - begin_ns), "ns"))
        for kind, begin_ns, end_ns in spans
    ]


OVERLAP = "overlap"


def overlap_rows(place: int, times: Mapping[str, int]) -> list[Row]:
    """Rows of a collective that goes on beside computation, on a rank: how long it took `alone`, and the rank's
    `compute`, in ns."""
    when_ns = time.monotonic_ns()
    return [row_of(place, OVERLAP, "before", when_ns, Value(name, float(ns), "ns")) for name, ns in times.items()]
