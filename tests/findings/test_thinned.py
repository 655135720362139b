"""Runs that read all before and after each case, thinned to what a run reads today: they are judged as before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from run_extracts import rebuild
from test_other_users import STORED

from linkgauge.findings.read import other_users_of
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.run.machine.nvml_reader import _FIELDS
from linkgauge.run.machine.observe import CASE_TIME, COUNTERS, LINKS, PCIE, STATE, THROTTLE_REASONS
from linkgauge.run.rank.reading_plan import ReadingPlan
from linkgauge.stats.attempts import counted
from thorough import thorough

PART_OF = {field.name: field.part for field in _FIELDS} | {THROTTLE_REASONS: STATE}
COSTS = {STATE: 27_000, LINKS: 1_100_000, PCIE: 300_000, COUNTERS: 850_000}


def thinned(known: Mapping[Identity, Row], observations: Iterable[Observation]) -> tuple[list[Observation], float]:
    """The observations that a plan of readings would have made, and their share of the time."""
    of_case: dict[Identity, list[Observation]] = {}
    for one in observations:
        if one.identity in known and ":" in one.subject:
            of_case.setdefault(one.identity, []).append(one)
    cases = sorted(of_case.items(), key=lambda item: min(one.when_ns for one in item[1]))
    now = [min(one.when_ns for one in cases[0][1])]
    plan = ReadingPlan(lambda: now[0])
    kept: list[Observation] = []
    for number, (identity, seen) in enumerate(cases):
        now[0] = min(one.when_ns for one in seen)
        readings = plan.next(known[identity].case, is_last=number == len(cases) - 1)
        of_moment = {"before": readings.before, "after": readings.after}
        for one in seen:
            parts = of_moment.get(one.moment, ())
            own = PART_OF.get(one.name, COUNTERS)
            if own in parts or (own == PCIE and LINKS in parts):
                kept.append(one)
        for rank in {one.rank for one in seen}:
            mine = [one for one in seen if one.rank == rank]
            begins, ends = min(one.when_ns for one in mine), max(one.when_ns for one in mine)
            lasted = dataclasses.replace(mine[0], name=CASE_TIME, unit="ns", moment="after", when_ns=ends,
                                         value=float(ends - begins - 1))  # fmt: skip
            kept.append(lasted)
        now[0] = max(one.when_ns for one in seen)
        costs: dict[str, list[int]] = {}
        for part in (*readings.before, *readings.after):
            costs.setdefault(part, []).append(COSTS[part])
        plan.ended([costs])
    return kept, plan.total_ns / plan.lasts_ns


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        pytest.param("copies", (0, 1), marks=thorough("the same readings tell one that computes")),
        ("computes", (1,)),
    ],
)
def test_a_disturbed_run_is_judged_as_before(name: str, devices: tuple[int, ...], tmp_path: Path) -> None:
    run = rebuild(STORED / f"h100x2-another-{name}.xz", tmp_path / name)
    known = {row.identity: row for row in counted(run).rows}
    seen, share = thinned(known, run.observed())
    assert share <= 0.005
    (before,), (now,) = other_users_of(run, run.observed()).uses, other_users_of(run, seen).uses
    assert now.devices == before.devices == devices
    assert now.media == before.media
    assert len(now.cases) == pytest.approx(len(before.cases), rel=0.02)
