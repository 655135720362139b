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
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.curves import Step
from linkgauge.plan.environment import shown
from linkgauge.plan.estimate import LAUNCH_S, around_s, case_s, likely_launch_s
from linkgauge.plan.expand import MOST_CASES, PlannedCase, outlasts
from linkgauge.plan.jobs import wrong_mode_reason
from linkgauge.plan.library_settings import (
    Settings,
    class_settings,
    gpudirect_settings,
    library_settings,
    runtime_settings,
)
from linkgauge.plan.machine import PlanMachine, rank_devices
from linkgauge.plan.model import USUAL_THREAD_LEVEL, LaunchTable, Plan
from linkgauge.plan.order import bucket_of, shuffled, value_rounds

MOST_REPEATS = 10_000


@dataclasses.dataclass(frozen=True)
class LaunchSettings:
    """What a launch is started with. `mpi` names an installation; empty in threads mode."""

    mpi: str
    env: tuple[tuple[str, str], ...]
    derived_env: tuple[tuple[str, str], ...]  # from path, algorithm and what the memory needs
    launcher_args: tuple[str, ...]
    bind: str
    threads: bool
    ranks_per_device: int
    peer_access: bool
    devices: tuple[int, ...]  # the device of each rank; with `hosts` the number of its place
    thread_level: str
    mixed_memory: bool = False  # for cases that _is_mixed alone; no part of the key: what is asked for is the same
    mpi_requested: bool = dataclasses.field(default=True, compare=False)  # else another may take the place of `mpi`
    hosts: tuple[str, ...] = ()  # the run's nodes in their order, each with as many ranks; none: not asked for
    # By the devices of each job what its ranks alone are told, where jobs have service classes of their own.
    job_env: tuple[tuple[tuple[int, ...], Settings], ...] = ()

    @property
    def ranks(self) -> int:
        """Ranks that are started."""
        return len(self.devices)

    def key_contents(self, mpi_build: str) -> dict[str, Any]:
        """What `launch_key` hashes, and what of it may be stored: a secret counts by its stand-in.

        The usual thread level is left out, and so are nodes that were not asked for: runs made before match.
        """
        level = {} if self.thread_level == USUAL_THREAD_LEVEL else {"thread_level": self.thread_level}
        nodes = {"nodes": len(self.hosts)} if self.hosts else {}
        return {
            **level,
            **nodes,
            "mpi": mpi_build,
            "env": shown(self.env),
            "launcher_args": list(self.launcher_args),
            "bind": self.bind,
            "ranks": self.ranks,
            "ranks_per_device": self.ranks_per_device,
            "mode": "threads" if self.threads else "processes",
            "peer_access": self.peer_access,
        }

    def without(self, gone: Collection[str]) -> LaunchSettings:
        """The settings on those of the hosts that are not among `gone`; places keep their numbers."""
        each = self.ranks // max(len(self.hosts), 1)
        ranks = [rank for rank in range(self.ranks) if self.hosts[rank // each] not in gone]
        lists = self.bind.split(":")
        return dataclasses.replace(
            self,
            hosts=tuple(host for host in self.hosts if host not in gone),
            devices=tuple(self.devices[rank] for rank in ranks),
            bind=":".join(lists[rank] for rank in ranks) if len(lists) == self.ranks > 1 else self.bind,
        )

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
    later: tuple[Case, ...] = ()  # beyond the time limit by the estimates, in the order of their value
    steps: Mapping[str, Step] = dataclasses.field(default_factory=dict)  # by case_key, of those that are of a curve
    fits: frozenset[str] = frozenset()  # case_keys of those whose size may shrink where a link is slow
    first: bool = False  # with a time limit: the first round of one of several kinds of launches, before what is left


def _check_count(plan: Plan, cases: int) -> None:
    """UsageError where so many launches would take minutes to plan: the products of what --env and --repeat ask for."""
    launches = plan.repeat * sum(math.prod(map(len, table.env.values())) for table in plan.launches)
    if launches * max(cases, 1) > MOST_CASES:
        raise UsageError(
            f"{launches} launches (values of --env, times --repeat) of {cases} cases: expected at most {MOST_CASES} "
            "cases in all"
        )


def _environments(table: LaunchTable) -> list[tuple[tuple[str, str], ...]]:
    names = sorted(table.env)
    return [
        tuple(zip(names, values, strict=True)) for values in itertools.product(*(table.env[name] for name in names))
    ]


def group(
    plan: Plan,
    planned: Sequence[PlannedCase],
    machine: PlanMachine,
    dialect_of: Callable[[str], str],
) -> list[tuple[LaunchSettings, list[Case], list[tuple[Case, str]]]]:
    """Launch settings with the cases to measure and those to skip under them, in the plan's order.

    `dialect_of` gives an installation's, which `path`, `algorithm` and device memory are translated for.
    """
    _check_count(plan, len(planned))
    groups: dict[LaunchSettings, tuple[dict[str, Case], dict[str, tuple[Case, str]]]] = {}
    first_mpi = next((table.mpi for table in plan.launches if not table.threads), "")
    for table in plan.launches:
        for env in _environments(table):
            for one in planned:
                if one.launch and table.name not in one.launch:
                    continue
                again = not table.threads and table.mpi != first_mpi and not env and not one.launch
                if again and not TRANSPORTS[one.case.transport].by_mpi:
                    continue
                _place(groups, one, table, env, machine, dialect_of(table.mpi))
    return [(settings, list(cases.values()), list(skips.values())) for settings, (cases, skips) in groups.items()]


def _place(
    groups: dict[LaunchSettings, tuple[dict[str, Case], dict[str, tuple[Case, str]]]],
    one: PlannedCase,
    table: LaunchTable,
    env: tuple[tuple[str, str], ...],
    machine: PlanMachine,
    dialect: str,
) -> None:
    case = one.case
    derived, unknown = library_settings(case, dialect)
    derived += tuple(one for one in runtime_settings(case, machine.kind, dialect) if one[0] not in dict(env))
    classes, job_env, untold = _classes(case, table, dialect)
    direct, no_switch = gpudirect_settings(case, dialect)
    derived += classes + direct
    per_device = case.ranks_needed
    reason = one.skip or wrong_mode_reason(case, table, machine) or unknown or untold or no_switch
    settings = LaunchSettings(
        mpi="" if table.threads else table.mpi,
        env=env,
        derived_env=() if reason else derived,
        launcher_args=table.launcher_args,
        bind=table.bind,
        threads=table.threads,
        ranks_per_device=per_device,
        peer_access=table.peer_access,
        thread_level=table.thread_level,
        devices=rank_devices(machine.places, per_device),
        mixed_memory=not reason and not table.threads and machine.kind != "host" and _is_mixed(case),
        mpi_requested=table.mpi_requested,
        hosts=table.hosts,
        job_env=() if reason else job_env,
    )
    cases, skips = groups.setdefault(settings, ({}, {}))
    if reason:
        skips.setdefault(case.case_key, (case, reason))
    else:
        cases.setdefault(case.case_key, case)


def _classes(case: Case, table: LaunchTable, dialect: str) -> tuple[Settings, tuple[Any, ...], str]:
    """What all ranks are told of a service class that all jobs have, else what each job is, and why it cannot be.

    An environment is of a process: jobs of different classes share neither a process nor a device. What stays in a node
    has none.
    """
    jobs = [job for job in case.jobs if job.service_class or not TRANSPORTS[job.transport].one_sided]
    told = [class_settings(job, dialect) for job in jobs]
    reason = next((why for _, why in told if why), "")
    if reason or len({settings for settings, _ in told}) < 2:
        return told[0][0] if told else (), (), reason
    devices = [device for job in jobs for device in set(job.devices)]
    shared = next((device for device in devices if devices.count(device) > 1), None)
    if table.threads:
        return (), (), "jobs of different service classes need processes: leave out --threads"
    if shared is not None:
        return (), (), f"device {shared} is of two jobs, and their service classes are of processes: use other devices"
    return (), tuple((job.devices, settings) for job, (settings, _) in zip(jobs, told, strict=True) if settings), ""


def with_other_mpi(
    settings: LaunchSettings, cases: Sequence[Case], mpi: str, dialect: str, machine: PlanMachine
) -> tuple[LaunchSettings, dict[str, str]]:
    """What a launch of these cases is started with under another MPI library, or in threads where `mpi` is empty.

    And by case_key why a case cannot be run so. The others have one path and algorithm, as all cases of a launch, and
    so one environment under any library.
    """
    table = LaunchTable(
        mpi=mpi,
        launcher_args=settings.launcher_args if mpi else (),
        hosts=settings.hosts if mpi else (),
        bind=settings.bind,
        threads=not mpi,
        peer_access=settings.peer_access,
        thread_level=settings.thread_level,
        mpi_requested=settings.mpi_requested,
    )
    groups: dict[LaunchSettings, tuple[dict[str, Case], dict[str, tuple[Case, str]]]] = {}
    for case in cases:
        _place(groups, PlannedCase(case), table, settings.env, machine, dialect)
    reasons = {key: reason for _, skips in groups.values() for key, (_, reason) in skips.items()}
    return next((one for one, (kept, _) in groups.items() if kept), settings), reasons


def _is_mixed(case: Case) -> bool:
    """Whether the MPI library is given device memory at one end alone.

    A library may fix how it moves device memory at the first message of a pair: Open MPI 4.1's smcuda refuses CUDA IPC
    for good where the one side has shown it host memory only (seen on H200: 5 times the time of a device-to-device
    message of 64 KiB ever after). Such cases have a launch of their own, as OSU's "H D" is a program's run of its own.
    """
    ends = {case.source_memory in ("device", "managed"), case.target_memory in ("device", "managed")}
    return case.transport == "mpi" and len(ends) == 2


def plan_run(
    plan: Plan,
    planned: Sequence[PlannedCase],
    machine: PlanMachine,
    dialect_of: Callable[[str], str] = lambda _: "",
) -> tuple[PlannedLaunch, ...]:
    """The launches of a run: `plan.repeat` fresh ones of each group, cases shuffled, cut to the time limit by value.

    With a time limit the most telling cases of every group come first and those beyond the limit are left out.
    """
    groups = [
        _Group(settings, cases, skips)
        for settings, cases, skips in group(plan, planned, machine, dialect_of) if cases or skips
    ]  # fmt: skip
    steps = {one.case.case_key: one.step for one in planned if one.step is not None}
    fits = {one.case.case_key for one in planned if one.fits}
    _keep_within_time(groups, plan, machine)
    launches: list[PlannedLaunch] = []
    for repeat in range(plan.repeat):
        for one, cases, left, skipped, first in _parts(groups):
            number = len(launches)
            ordered = tuple(shuffled(cases, plan.seed, number, one.rounds, steps))
            skips = tuple(skipped) if repeat == 0 else ()
            later = tuple(left)
            own = {case.case_key: steps[case.case_key] for case in (*ordered, *later) if case.case_key in steps}
            fitting = frozenset(fits.intersection(case.case_key for case in (*ordered, *later)))
            launches.append(PlannedLaunch(number, repeat, one.settings, ordered, skips, later, own, fitting, first))
    return tuple(launches)


def estimated_s(launches: Sequence[PlannedLaunch], machine: PlanMachine) -> float:
    """Seconds that launches are assumed to take, on the slow side; those without cases are not started."""
    return sum(LAUNCH_S + _cases_s(launch, machine, 1.0) for launch in launches if launch.cases)


def likely_run_s(launches: Sequence[PlannedLaunch], machine: PlanMachine) -> float:
    """Seconds that a run is likely to take, from the start of the program to its end: what a user is shown."""
    of_launches = (
        likely_launch_s(_cases_s(launch, machine, machine.slowdown), machine) for launch in launches if launch.cases
    )
    return around_s(machine) + sum(of_launches)


def _cases_s(launch: PlannedLaunch, machine: PlanMachine, slowdown: float) -> float:
    return sum(likely_s(case, launch.steps.get(case.case_key), machine, slowdown) for case in launch.cases)


def likely_s(case: Case, step: Step | None, machine: PlanMachine, slowdown: float = 1.0) -> float:
    """Seconds that a case is assumed to take, as `case_s`; 0 where its curve is assumed to have ended before."""
    ended = step is not None and step.until is not None and (step.no_room or outlasts(case, step.until, machine))
    return 0.0 if ended else case_s(case, machine, slowdown)


def measuring_s(time_limit_s: float) -> float:
    """What of a time limit is for measuring: less what the start, the tables and the report take.

    Those took 5 to 8 s for runs of 20 to 60 s (docs/results/first-hour.md), more where more cases were measured.
    """
    rest_s = min(11.0, 0.36 * time_limit_s) if time_limit_s >= 15 else time_limit_s / 4
    return time_limit_s - max(time_limit_s / 9, rest_s)


@dataclasses.dataclass
class _Group:
    """A kind of launch: its cases, and what is measured of them: the most telling round, what else, and what later."""

    settings: LaunchSettings
    cases: list[Case]
    skips: list[tuple[Case, str]]
    first: list[Case] = dataclasses.field(default_factory=list)  # of round 0
    rest: list[Case] = dataclasses.field(default_factory=list)
    later: list[Case] = dataclasses.field(default_factory=list)
    rounds: dict[str, int] | None = None  # by case_key; None: no time limit, any order will do


def _keep_within_time(groups: Sequence[_Group], plan: Plan, machine: PlanMachine) -> None:
    """Set what of each group fits into the time limit: the longest beginning of the order of value.

    A case that alone takes more than the limit is left out and does not end that beginning. The share of the time that
    round 0 gives to each transport and pattern is an equal one, of each kind of launch.
    """
    if plan.time_limit_ns is None:
        for one in groups:
            one.rest = one.cases
        return
    budget = whole = measuring_s(plan.time_limit_ns / 1e9)
    buckets = sum(len({bucket_of(case) for case in one.cases}) for one in groups)
    queue = []
    for place, one in enumerate(groups):
        estimates = [case_s(case, machine) for case in one.cases]
        turns = value_rounds(one.cases, estimates, whole / plan.repeat / max(buckets, 1))
        queue += [(*value, place, index) for index, value in enumerate(zip(turns, estimates, strict=True))]
        one.rounds = {case.case_key: turn for case, turn in zip(one.cases, turns, strict=True)}
    queue.sort()
    over = False
    for turn, estimated, place, index in queue:
        one = groups[place]
        part = one.first if turn == 0 else one.rest
        launched = part or (one.first and len(groups) == 1)
        cost = (estimated + (0.0 if launched else LAUNCH_S)) * plan.repeat
        alone = (estimated + LAUNCH_S) * plan.repeat > whole
        over = over or (cost > budget and not alone)
        if over or alone:
            one.later.append(one.cases[index])
            continue
        budget -= cost
        part.append(one.cases[index])


_Part = tuple[_Group, Sequence[Case], Sequence[Case], Sequence[tuple[Case, str]], bool]
"""What one launch has: its group, its cases, those for later, those skipped, and whether it is of the first round."""


def _parts(groups: Sequence[_Group]) -> list[_Part]:
    """The launches of one repeat: with a time limit each group's first round, then what else there is of each.

    So that what takes longer than estimated takes time from what is least telling, whichever group it is of. One group
    is one launch: there the order of its cases does that.
    """
    if len(groups) == 1 or not any(one.first for one in groups):
        return [(one, [*one.first, *one.rest], one.later, one.skips, False) for one in groups]
    firsts: list[_Part] = [(one, one.first, (), one.skips, True) for one in groups]
    return firsts + [(one, one.rest, one.later, (), False) for one in groups if one.rest or one.later]


def skips_of(launches: Sequence[PlannedLaunch]) -> Mapping[str, int]:
    """How many cases are skipped for each reason, most first."""
    counts: dict[str, int] = {}
    for launch in launches:
        for _, reason in launch.skipped:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
