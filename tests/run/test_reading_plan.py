"""What observing costs: the share of a launch's time stays within its budget, and what is read still shows others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from linkgauge.model.case import Case
from linkgauge.model.result import Observation, Result
from linkgauge.run.machine.observe import CASE_TIME, COUNTERS, LINKS, NVLINK_RECEIVED, NVLINK_SENT, PARTS, PCIE, STATE
from linkgauge.run.rank.reading_plan import ODD_SHARE, SHARES, ReadingPlan, Readings
from linkgauge.stats.other_users import other_users
from linkgauge.stats.windows import windows_of
from linkgauge.system import catalog
from results import result_of

GPUS = catalog.load("hgx-h100-8")
COSTS = {STATE: 27_000, LINKS: 1_100_000, PCIE: 300_000, COUNTERS: 850_000}
"""In ns, as on two H100."""
MS = 1_000_000
RATE = 400e9
KINDS: dict[str, dict[str, Any]] = {
    "local": {"transport": "copy_engine", "pattern": "local_copy", "devices": (0,)},
    "pair": {"transport": "copy_engine", "pattern": "pingpong", "devices": (0, 1)},
    "library": {"transport": "ccl", "pattern": "alltoall", "devices": (0, 1)},
    "host": {"transport": "copy_engine", "pattern": "device_to_host", "devices": (1,)},
}


@dataclasses.dataclass
class Launch:
    """A launch of cases one after the other, whose devices are read as the plan says. Times in ns."""

    others: float = 0.0  # bytes per second from GPU 0 to GPU 1, all the time
    costs: dict[str, int] = dataclasses.field(default_factory=lambda: dict(COSTS))
    odd: bool = False
    now: int = 0
    spent: int = 0
    last: Readings = dataclasses.field(default_factory=Readings)
    own: dict[str, float] = dataclasses.field(default_factory=dict)
    rows: list[Result] = dataclasses.field(default_factory=list)
    observations: list[Observation] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = ReadingPlan(lambda: self.now)

    def run(self, cases: Sequence[tuple[str, int]]) -> None:
        for number, (kind, lasts_ns) in enumerate(cases):
            self.measure(kind, lasts_ns, is_last=number == len(cases) - 1)

    def measure(self, kind: str, lasts_ns: int, *, is_last: bool) -> None:
        column = KINDS[kind]
        row = result_of({**column, "case_key": f"case {len(self.rows)}", "size": 4096 + 8 * len(self.rows),
                         "median_ns": 1e3, "bytes_total": 4096, "operations_total": 1, "status": "ok"})  # fmt: skip
        self.rows.append(row)
        self.last = self.plan.next(row.case, is_last=is_last)
        self._read(row, "before", self.last.before)
        began = self.now
        self.now += lasts_ns
        if kind in ("pair", "library"):
            self.own = {
                name: self.own.get(name, 0.0) + RATE * lasts_ns / 1e9 for name in (NVLINK_SENT, NVLINK_RECEIVED)
            }
        for rank, device in enumerate(row.devices):
            self._observe(row, rank, device, "after", CASE_TIME, "ns", self.now - began)
        self._read(row, "after", self.last.after)
        costs: dict[str, list[int]] = {}
        for part in (*self.last.before, *self.last.after):
            costs.setdefault(part, []).append(self.costs[part])
        odd = [{"name": "other_processes", "value": 1.0, "moment": "after", "subject": "cuda:0"}] if self.odd else []
        self.plan.ended([costs, {}], odd)
        self.now += 4 * MS  # what ranks say to each other

    def _read(self, row: Result, moment: str, parts: Sequence[str]) -> None:
        for part in parts:
            for rank, device in enumerate(row.devices):
                for name in (NVLINK_SENT, NVLINK_RECEIVED) if part == LINKS else ():
                    hit = (device, name) in ((0, NVLINK_SENT), (1, NVLINK_RECEIVED))
                    value = self.own.get(name, 0.0) + hit * self.others * self.now / 1e9
                    self._observe(row, rank, device, moment, name, "B", value)
            self.now += self.costs[part]
            self.spent += self.costs[part]

    def _observe(self, row: Result, rank: int, device: int, moment: str, name: str, unit: str, value: float) -> None:
        self.observations.append(
            Observation(row.identity, rank, f"cuda:{device}", name, unit, value, moment, int(self.now))
        )


LENGTHS = st.sampled_from((1, 2, 5, 8, 30, 100, 400, 3000)).map(lambda ms: ms * MS)
CASES = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), LENGTHS), min_size=1, max_size=120)


@hypothesis.given(cases=CASES, odd=st.booleans(), factor=st.sampled_from((0.1, 1.0, 20.0)))
def test_the_share_of_time_stays_within_the_budget_for_any_cases(
    cases: list[tuple[str, int]], odd: bool, factor: float
) -> None:
    launch = Launch(odd=odd, costs={part: int(factor * cost) for part, cost in COSTS.items()})
    launch.run(cases)
    share = sum(SHARES.values()) + (ODD_SHARE if odd else 0.0)
    first_and_last = 4 * sum(launch.costs.values())  # of two devices the first, and the last
    assert launch.spent <= share * launch.now + first_and_last
    assert launch.plan.total_ns == launch.spent
    assert set(launch.last.after) | {PCIE} == set(PARTS)  # what the last case leaves is known


@hypothesis.given(cases=CASES)
def test_windows_cover_the_whole_launch(cases: list[tuple[str, int]]) -> None:
    launch = Launch()
    launch.run(cases)
    known = {row.identity: row for row in launch.rows}
    for device in (0, 1):
        mine = [row for row in launch.rows if device in row.devices]
        windows = [one for one in windows_of(known, launch.observations) if NVLINK_SENT in one.grown]
        seen = [row for one in windows if one.device == device for row in one.rows]
        if mine and device in launch.rows[-1].devices:
            assert seen == mine, device


def of_plan(groups: int) -> list[tuple[str, int]]:
    """Cases as a plan orders them: sizes of a mechanism one after the other."""
    kinds = ("local", "pair", "host", "library")
    return [
        (kinds[group % 4], (8, 8, 8, 8, 10, 40, 100, 300)[size] * MS) for group in range(groups) for size in range(8)
    ]


def test_a_light_user_of_a_link_is_seen_across_windows() -> None:
    for others, light in ((0.05 * RATE, True), (0.5 * RATE, False)):
        launch = Launch(others)
        launch.run(of_plan(60))
        assert launch.spent <= 0.004 * launch.now
        (use,) = other_users(launch.rows, launch.observations, GPUS).uses
        assert (use.devices, use.media, use.is_light) == ((0, 1), ("NVLink",), light)
        assert use.rate == pytest.approx(others, rel=0.05)
        assert use.hits == use.witnesses >= 10
    free = Launch()
    free.run(of_plan(60))
    assert other_users(free.rows, free.observations, GPUS).uses == ()


def test_links_are_read_where_the_cases_use_of_them_changes() -> None:
    launch = Launch()
    launch.run(of_plan(60))
    read = [row.pattern for row, one in zip(launch.rows[1:], launch.rows, strict=False) if row.pattern != one.pattern]
    windows = [one for one in windows_of({row.identity: row for row in launch.rows}, launch.observations)
               if NVLINK_SENT in one.grown]  # fmt: skip
    pure = sum(one.of_one_kind for one in windows)
    assert pure >= 0.8 * len(windows)
    assert len(windows) >= len(read)


def test_where_something_looks_like_another_user_links_are_read_more_often() -> None:
    counts = []
    for odd in (False, True):
        launch = Launch(odd=odd)
        launch.run([("library", 30 * MS)] * 400)
        counts.append(sum(one.name == NVLINK_SENT for one in launch.observations))
    assert counts[1] > 1.3 * counts[0]


def test_without_a_reader_nothing_is_known_and_nothing_is_spent() -> None:
    plan = ReadingPlan(lambda: 0)
    case = Case.from_dimensions({**result_of({**KINDS["local"], "size": 8}).case.dimensions()})
    for _ in range(3):
        assert plan.next(case, is_last=False).before
        plan.ended([{}, {}])
    assert plan.record() == {"seconds": 0.0, "of_seconds": 0.0, "parts": {}}
