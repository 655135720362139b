"""A case's loads on this machine: which devices each is on, and which launches can have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.beside import REST, SAME, LoadCase, loads_of, loads_written, written
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import LaunchTable

LEAST_TIME_NS = 2_000_000_000
"""What a stop rule's time is raised to beside loads.

So long six windows take, each of three samples of 30 ms beside and as many alone, with 40 ms for the loads to rest and
to be back at their rate. Quick cases end by their interval long before.
"""
MakeJob = Callable[[dict[str, Any], tuple[int, ...]], tuple[Case, str]]
"""A load's case, of its values on these devices, and why it cannot be; empty where it can."""


def with_loads(case: Case, where: str, machine: PlanMachine, make: MakeJob) -> tuple[Case, str]:
    """The case with its loads in canonical form, and why one of them cannot run here; empty where all can.

    A load of a pattern of one device, given several, is one load on each. UsageError, beginning with `where`, for text
    that is of no load, or a device that is not there.
    """
    try:
        asked = loads_written(case.beside)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    loads: list[LoadCase] = []
    reason = ""
    for number, load in enumerate(asked, 1):
        devices = _devices(load.where, case, machine)
        absent = next((device for device in devices if device >= machine.places), None)
        if absent is not None:
            raise UsageError(f"{where}: load {number}: no device {absent}: expected 0 to {machine.places - 1}")
        if not devices:
            used = f"the case uses all {machine.places}"
            return dataclasses.replace(case, beside=""), f"load {number} has no device: {used}; say on={SAME}"
        ranks = PATTERNS[load.values["pattern"]].ranks
        alone = ranks in ("1", "1 or 2", "first")
        for chosen in [(device,) for device in devices] if alone else [devices[:2] if ranks == "2" else devices]:
            one, unfit = make(load.values, chosen)
            reason = reason or (f"load {number}: {unfit}" if unfit else "")
            loads.append(LoadCase(one, load.pace))
    # Of places numbered over nodes where any job is on another node than the first.
    per_node = max([case.devices_per_node, *(load.case.devices_per_node for load in loads)])
    stop = dataclasses.replace(case.stop, time_ns=max(case.stop.time_ns, LEAST_TIME_NS))
    return dataclasses.replace(case, beside=written(tuple(loads)), devices_per_node=per_node, stop=stop), reason


def _devices(where: tuple[int, ...] | str, case: Case, machine: PlanMachine) -> tuple[int, ...]:
    if where == SAME:
        return tuple(dict.fromkeys(case.devices))
    if where == REST:
        return tuple(device for device in range(machine.places) if device not in case.devices)
    assert not isinstance(where, str)
    return where


def wrong_mode_reason(case: Case, launch: LaunchTable, machine: PlanMachine) -> str:
    """Why a case cannot run in a launch of threads, or in one of processes; empty where it can."""
    jobs = [case, *(load.case for load in loads_of(case.beside))]
    if launch.threads:
        bound = next((job.transport for job in jobs if TRANSPORTS[job.transport].needs_processes), "")
        return f"{bound} needs processes: threads mode has no MPI; leave out --threads" if bound else ""
    used = [device for job in jobs for device in set(job.devices)] if len(jobs) > 1 and machine.kind != "host" else []
    shared = next((device for device in used if used.count(device) > 1), None)
    if shared is None:
        return ""
    return f"device {shared} is of two jobs: processes get a GPU in turn, threads share it; run it with --threads"
