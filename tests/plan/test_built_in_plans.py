"""What each built-in plan comes to on three kinds of machines stays as it is: every case, launch and order."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from approved import approve
from linkgauge.app.planning import apply_dimensions
from linkgauge.errors import UsageError
from linkgauge.plan.builtin import builtin_plan, names
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch, plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import LaunchTable, Plan
from thorough import most

GIB = 1 << 30
MACHINES = {
    "host-4": PlanMachine("host", 4, 8 * GIB, 8 * GIB, 4 * GIB, 4, {"ccl": "host devices have no NCCL or RCCL"}),
    "cuda-4": PlanMachine("cuda", 4, 64 * GIB, 512 * GIB, 256 * GIB, 32, memory_nodes=(0, 1), core_nodes=(0, 1)),
    "hip-8": PlanMachine("hip", 8, 64 * GIB, 512 * GIB, 256 * GIB, 64, memory_nodes=(0, 1, 2, 3)),
}


def contents(plan: Plan, launches: tuple[PlannedLaunch, ...]) -> list[object]:
    # Of the tables of cases only what they stand for counts, not where they are written.
    # What jobs' names stand for is in the cases. Nodes, which came later, are asked for on the command line alone.
    return [
        {
            **{name: value for name, value in dataclasses.asdict(plan).items() if name not in ("cases", "jobs")},
            "launches": tuple(_on_no_hosts(table) for table in plan.launches),
        },
        *(
            [
                one.number,
                one.repeat,
                one.first,
                _on_no_hosts(one.settings),
                [case.case_key for case in one.cases],
                [(case.case_key, reason) for case, reason in one.skipped],
                [case.case_key for case in one.later],
                sorted((key, dataclasses.astuple(step)) for key, step in one.steps.items()),
            ]
            for one in launches
        ),
    ]


def _on_no_hosts(settings: LaunchTable | LaunchSettings) -> dict[str, object]:
    plain = dataclasses.asdict(settings)
    assert plain.pop("hosts") == ()
    assert plain.pop("job_env", ()) == ()  # of launches alone
    return plain


@pytest.mark.parametrize("name", most([*MACHINES], ["cuda-4"]))
def test_what_the_built_in_plans_come_to_is_as_approved(name: str) -> None:
    lines = []
    for plan in map(builtin_plan, names()):
        launches = plan_run(plan, expand(plan, MACHINES[name]), MACHINES[name], lambda _: "openmpi")
        digest = hashlib.sha256(json.dumps(contents(plan, launches)).encode()).hexdigest()[:16]
        cases, skipped = sum(len(one.cases) for one in launches), sum(len(one.skipped) for one in launches)
        lines.append(f"{plan.name}: {len(launches)} launches, {cases} cases, {skipped} skipped: {digest}\n")
    approve(Path(__file__).parent / "approved" / f"built-in-plans.{name}.txt", "".join(lines))


@pytest.mark.parametrize("kind", most(["cuda", "hip", "host"], ["cuda"]))
@pytest.mark.parametrize("devices", most([1, 2, 3], [1, 3]))
def test_on_few_devices_built_in_plans_skip_what_needs_more(kind: str, devices: int) -> None:
    few = PlanMachine(kind, devices, 64 * GIB, 64 * GIB, 8 * GIB, 16)
    for plan in map(builtin_plan, names()):
        for one in expand(plan, few):
            assert one.skip or max(one.case.devices) < devices
    skips = {one.skip for one in expand(builtin_plan("interference"), few)}
    lacking = {reason for reason in skips if "no device 1: expected 0 to 0" in reason}
    assert bool(lacking) == (devices == 1 and kind != "host")
    typed = apply_dimensions(builtin_plan("quick"), {"background": ("kernel local_copy 8 on=7",)}, named=True)
    with pytest.raises(UsageError, match="load 1: no device 7: expected 0 to"):
        expand(typed, few)


@pytest.mark.parametrize("kind", most(list(MACHINES), ["host-4", "cuda-4"]))
def test_no_case_of_the_default_plan_stands_twice_with_another_stop_rule(kind: str) -> None:
    (launch,) = plan_run(plan := builtin_plan("default"), expand(plan, MACHINES[kind]), MACHINES[kind],
                         lambda _: "openmpi")[:1]  # fmt: skip
    alike = [dataclasses.replace(case, stop=launch.cases[0].stop) for case in launch.cases]
    twice = {case.case_key: case for place, case in enumerate(alike) if case in alike[:place]}
    assert [(one.transport, one.pattern, one.size, one.devices) for one in twice.values()] == []
