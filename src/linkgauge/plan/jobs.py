"""A case's loads on this machine: which devices each is on, and which launches can have them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from linkgauge.errors import UsageError
from linkgauge.model.background import MPI_SAME, REST, SAME, Load, WrittenLoads, part_of_rest, parts_of
from linkgauge.model.case import DEFAULTS, LOAD_ROWS, NO_LOADS, Case, LoadCase, Loads, loads_written
from linkgauge.model.comparing import held_apart
from linkgauge.model.dimension import Part
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.model.values import Value
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import LaunchTable

LEAST_TIME_NS = 2_000_000_000
"""What a stop rule's time is raised to beside loads.

So long six windows take, each of three samples of 30 ms beside and as many alone, with 40 ms for the loads to rest and
to be back at their rate. Quick cases end by their interval long before.
"""
_MOST_TEXTS = 10_000
MakeJob = Callable[[Load, tuple[int, ...]], tuple[Case, str]]
"""A load's case, as it is written on these devices, and why it cannot be; empty where it can."""


class AbsentDeviceError(Exception):
    """A load is on a device that is not there; the message says which, not where that was written."""


def with_loads(case: Case, written: WrittenLoads, machine: PlanMachine, make: MakeJob) -> tuple[Case, str]:
    """The case with these loads in canonical form, and why one of them cannot run here; empty where all can.

    A load of a pattern of one device, given several, is one load on each; the host's cores have the first.
    AbsentDeviceError for a device that is not there.
    """
    loads: list[LoadCase] = []
    reason = ""
    for number, load in enumerate(written.each, 1):
        devices = _devices(load.where, case, machine)
        absent = next((device for device in devices if device >= machine.places), None)
        if absent is not None:
            raise AbsentDeviceError(f"load {number}: no device {absent}: expected 0 to {machine.places - 1}")
        if not devices:
            used = len(set(case.devices))
            share = f"all {used}" if used == machine.places else f"{used} of {machine.places}"
            why = f"load {number} has no device: the case uses {share}; say on={SAME}"
            return case, why
        ranks = PATTERNS[load.values["pattern"]].ranks
        alone = ranks in ("1", "1 or 2", "first")
        devices = devices[: {"first": 1, "2": 2}.get(ranks, len(devices))]
        for chosen in [(device,) for device in devices] if alone else [devices]:
            one, unfit = make(load, chosen)
            reason = reason or (f"load {number}: {unfit}" if unfit else "")
            loads.append(LoadCase(one, load.pace, load.mpi))
    # Of places numbered over nodes where any job is on another node than the first.
    per_node = max([case.devices_per_node, *(load.case.devices_per_node for load in loads)])
    stop = dataclasses.replace(case.stop, time_ns=max(case.stop.time_ns, LEAST_TIME_NS))
    return dataclasses.replace(case, background=Loads.of(loads), devices_per_node=per_node, stop=stop), reason


def named_jobs(
    values: Sequence[Value], jobs: Mapping[str, tuple[WrittenLoads, ...]], where: str
) -> tuple[WrittenLoads, ...]:
    """The loads that values of `background` say; a name stands for those of the plan's job, of lists the product.

    UsageError, beginning with `where`, for a single word that is no job's name, or text that is of no load.
    """
    found: dict[str, WrittenLoads] = {}
    for value in values:
        alternatives: list[tuple[WrittenLoads, ...]] = []
        for part in parts_of(str(value)):
            if " " not in part and part not in jobs:
                known = f"a job of the plan ({', '.join(jobs)}), or " if jobs else ""
                raise UsageError(f"{where}: load '{part}': expected {known}TRANSPORT PATTERN SIZE")
            alternatives.append(jobs[part] if part in jobs else (_read(part, where),))
        if len(found) + math.prod(map(len, alternatives)) > _MOST_TEXTS:
            raise UsageError(
                f"{where}: background stands for more than {_MOST_TEXTS} combinations of loads: expected fewer"
            )
        for chosen in itertools.product(*alternatives):
            try:
                loads = WrittenLoads.of(chosen) if chosen else WrittenLoads()
            except UsageError as error:
                raise UsageError(f"{where}: {error}") from None
            found.setdefault(loads.text, loads)
    return tuple(found.values())


def _read(text: str, where: str) -> WrittenLoads:
    try:
        return loads_written(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def swapped_roles(case: Case) -> list[tuple[Case, str]]:
    """Each load of a case as the measured job, beside the other loads and the case; and why it cannot be so."""
    plain = dataclasses.replace(case, background=NO_LOADS)
    said = plain.dimensions()
    lost = [name for name in held_apart(Part.TIMING, "devices", "ranks_per_device", *LOAD_ROWS)
            if said[name] != DEFAULTS[name]]  # fmt: skip
    roles = f"a load cannot have {', '.join(lost)} as the case has, with which it would change roles" if lost else ""
    loads = case.background.each
    found = []
    for place, load in enumerate(loads):
        reason = roles
        if load.mpi:
            reason = f"the load is a launch of its own: measure it by --mpi {load.mpi}, with the case as its load"
        others = (*loads[:place], LoadCase(plain), *loads[place + 1 :])
        timing = {name: getattr(case, name) for name in ("stop", "warmup", "verify", "devices_per_node")}
        found.append((dataclasses.replace(load.case, background=Loads.of(others), **timing), reason))
    return found


def _devices(where: tuple[int, ...] | str, case: Case, machine: PlanMachine) -> tuple[int, ...]:
    if where == SAME:
        return tuple(dict.fromkeys(case.devices))
    rest = tuple(device for device in range(machine.places) if device not in case.devices)
    if where == REST:
        return rest
    if isinstance(where, str) and (part := part_of_rest(where)):
        return rest[part[0] - 1 :: part[1]]
    assert not isinstance(where, str)
    return where


def wrong_mode_reason(case: Case, launch: LaunchTable, machine: PlanMachine) -> str:
    """Why a case cannot run in a launch of threads, or in one of processes; empty where it can."""
    jobs = case.jobs
    others = [load for _, load in case.background.own_launches]
    if launch.threads and any(load.mpi == MPI_SAME for load in others):
        return f"threads have no MPI library that a load could be a launch of: name one in place of mpi={MPI_SAME}"
    if launch.threads:
        bound = next((job.transport for job in jobs if TRANSPORTS[job.transport].needs_processes), "")
        if bound:
            return f"{bound} needs processes, one a rank; leave out --threads"
    driving = [job for job in jobs if not PATTERNS[job.pattern].by_cores]  # which leaves its device alone
    used = [device for job in driving for device in set(job.devices)] if machine.kind != "host" else []
    apart = [load.case for load in others if not PATTERNS[load.case.pattern].by_cores] if machine.kind != "host" else []
    elsewhere = [device for job in apart for device in set(job.devices)]
    shared = next((device for device in elsewhere if [*used, *elsewhere].count(device) > 1), None)
    if shared is not None:
        return f"device {shared} is of two launches: processes get a GPU in turn; use other devices, or leave out mpi="
    shared = next((device for device in used if used.count(device) > 1), None)
    if shared is None or launch.threads:
        return ""
    return f"device {shared} is of two jobs: processes get a GPU in turn, threads share it; run it with --threads"
