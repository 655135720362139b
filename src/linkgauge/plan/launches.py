"""Cases grouped into launches: what shares an MPI library, environment, rank layout and mode is started once.

`launch_key` is the hash of docs/definitions.md: mpi build, environment asked for, launcher arguments, rank layout,
process or threads, peer access, thread level. What the planner derives from `path` and `algorithm` sets the launch's
environment but is not repeated in the key: those are dimensions of the case.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.plan.case import Case
from linkgauge.plan.estimate import LAUNCH_S, case_s
from linkgauge.plan.expand import PlannedCase, needs_threads_reason, rank_devices
from linkgauge.plan.library_settings import library_settings, runtime_settings
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import USUAL_THREAD_LEVEL, LaunchTable, Plan
from linkgauge.plan.order import shuffled, value_rounds

# Transports whose measured path goes through the MPI library; the others are measured under the first one only.
MPI_DEPENDENT = ("mpi", "staging")


@dataclasses.dataclass(frozen=True)
class LaunchSettings:
    """What a launch is started with. `mpi` names an installation; empty in threads mode."""

    mpi: str
    env: tuple[tuple[str, str], ...]
    derived_env: tuple[tuple[str, str], ...]  # from path and algorithm
    launcher_args: tuple[str, ...]
    bind: str
    threads: bool
    ranks_per_device: int
    peer_access: bool
    devices: tuple[int, ...]  # the device of each rank
    thread_level: str

    @property
    def ranks(self) -> int:
        """Ranks that are started."""
        return len(self.devices)

    def key_contents(self, mpi_build: str) -> dict[str, Any]:
        """What `launch_key` hashes. The usual thread level is left out: runs made before it could be set match."""
        level = {} if self.thread_level == USUAL_THREAD_LEVEL else {"thread_level": self.thread_level}
        return {
            **level,
            "mpi": mpi_build,
            "env": dict(self.env),
            "launcher_args": list(self.launcher_args),
            "bind": self.bind,
            "ranks": self.ranks,
            "ranks_per_device": self.ranks_per_device,
            "mode": "threads" if self.threads else "processes",
            "peer_access": self.peer_access,
        }

    def launch_key(self, mpi_build: str) -> str:
        """Hash of the contents: 16 hexadecimal digits."""
        text = json.dumps(self.key_contents(mpi_build), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class PlannedLaunch:
    """One launch to be started: its number in the run, which repeat it is, and its cases in order."""

    number: int
    repeat: int
    settings: LaunchSettings
    cases: tuple[Case, ...]
    skipped: tuple[tuple[Case, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """All launches of a run, and what the time limit left out."""

    launches: tuple[PlannedLaunch, ...]
    left_out: int  # cases beyond the time limit: without a status, `--resume` measures them
    estimated_s: float


def _environments(table: LaunchTable) -> list[tuple[tuple[str, str], ...]]:
    names = sorted(table.env)
    return [
        tuple(zip(names, values, strict=True)) for values in itertools.product(*(table.env[name] for name in names))
    ]


def group(
    plan: Plan,
    planned: Sequence[PlannedCase],
    machine: PlanMachine,
    abi_of: Callable[[str], str],
) -> list[tuple[LaunchSettings, list[Case], list[tuple[Case, str]]]]:
    """Launch settings with the cases to measure and those to skip under them, in the plan's order.

    `abi_of` gives an installation's ABI word, which `path` and `algorithm` are translated for.
    """
    groups: dict[LaunchSettings, tuple[dict[str, Case], dict[str, tuple[Case, str]]]] = {}
    first_mpi = next((table.mpi for table in plan.launches if not table.threads), "")
    for table in plan.launches:
        for number, env in enumerate(_environments(table)):
            for one in planned:
                if one.launch and table.name not in one.launch:
                    continue
                again = not table.threads and table.mpi != first_mpi and not env and not one.launch
                if again and one.case.transport not in MPI_DEPENDENT:
                    continue
                _place(groups, one, table, env, machine, abi_of(table.mpi), number)
    return [(settings, list(cases.values()), list(skips.values())) for settings, (cases, skips) in groups.items()]


def _place(
    groups: dict[LaunchSettings, tuple[dict[str, Case], dict[str, tuple[Case, str]]]],
    one: PlannedCase,
    table: LaunchTable,
    env: tuple[tuple[str, str], ...],
    machine: PlanMachine,
    abi: str,
    number: int,
) -> None:
    case = one.case
    derived, unknown = library_settings(case, abi)
    derived += tuple(one for one in runtime_settings(case, machine.kind) if one[0] not in dict(env))
    reason = one.skip or needs_threads_reason(case, table) or unknown
    settings = LaunchSettings(
        mpi="" if table.threads else table.mpi,
        env=env,
        derived_env=() if reason else derived,
        launcher_args=table.launcher_args,
        bind=table.bind,
        threads=table.threads,
        ranks_per_device=case.ranks_per_device,
        peer_access=table.peer_access,
        thread_level=table.thread_level,
        devices=rank_devices(machine.device_count, case.ranks_per_device),
    )
    cases, skips = groups.setdefault(settings, ({}, {}))
    if reason:
        skips.setdefault(case.case_key, (case, reason))
    else:
        cases.setdefault(case.case_key, case)


def plan_run(
    plan: Plan,
    planned: Sequence[PlannedCase],
    machine: PlanMachine,
    abi_of: Callable[[str], str] = lambda _: "",
) -> PlannedRun:
    """The launches of a run: `plan.repeat` fresh ones of each group, cases shuffled, cut to the time limit by value.

    With a time limit the most telling cases of every group come first and those beyond the limit are left out.
    """
    groups = [found for found in group(plan, planned, machine, abi_of) if found[1] or found[2]]
    kept, left_out = _within_time(groups, plan, machine)
    launches: list[PlannedLaunch] = []
    for repeat in range(plan.repeat):
        for (settings, _, skips), cases in zip(groups, kept, strict=True):
            number = len(launches)
            ordered = shuffled(cases, plan.seed, number, by_value=plan.time_limit_ns is not None)
            launches.append(
                PlannedLaunch(number, repeat, settings, tuple(ordered), tuple(skips) if repeat == 0 else ())
            )
    estimated = sum(estimate_launch_s(launch.cases, machine) for launch in launches)
    return PlannedRun(tuple(launches), left_out, estimated)


def estimate_launch_s(cases: Sequence[Case], machine: PlanMachine) -> float:
    """Seconds that a launch with these cases is assumed to take; 0 without cases: it is not started."""
    return LAUNCH_S + sum(case_s(case, machine) for case in cases) if cases else 0.0


def _within_time(
    groups: Sequence[tuple[LaunchSettings, list[Case], list[tuple[Case, str]]]], plan: Plan, machine: PlanMachine
) -> tuple[list[list[Case]], int]:
    if plan.time_limit_ns is None:
        return [cases for _, cases, _ in groups], 0
    queue = []
    for place, (_, cases, _) in enumerate(groups):
        queue += [(turn, place, index) for index, turn in enumerate(value_rounds(cases))]
    queue.sort()
    # A tenth is kept for the report and the end of the case in hand.
    budget = plan.time_limit_ns / 1e9 * 0.9
    kept: list[list[Case]] = [[] for _ in groups]
    left_out = 0
    for _, place, index in queue:
        case = groups[place][1][index]
        cost = (case_s(case, machine) + (0.0 if kept[place] else LAUNCH_S)) * plan.repeat
        if cost > budget:
            left_out += plan.repeat
            continue
        budget -= cost
        kept[place].append(case)
    return kept, left_out


def skips_of(launches: Sequence[PlannedLaunch]) -> Mapping[str, int]:
    """How many cases are skipped for each reason, most first."""
    counts: dict[str, int] = {}
    for launch in launches:
        for _, reason in launch.skipped:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
