"""From what was asked to launches ready to run: for a new plan, for cases of an earlier run, and for a resumed run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.plan.case import Case
from linkgauge.plan.expand import PlannedCase, expand
from linkgauge.plan.launches import PlannedLaunch, PlannedRun, plan_run
from linkgauge.plan.machine import PlanMachine, available_cores, free_host_memory, free_shared_memory, numa_nodes
from linkgauge.plan.memory import over_limit
from linkgauge.plan.model import Plan
from linkgauge.run.devices import DeviceSet
from linkgauge.run.mpi_library import MpiInstallation, default_installation, find_all, resolve
from linkgauge.run.runner import FAILED, Pending
from linkgauge.run.spec import CaseEntry
from linkgauge.run.transports import absent_transports

if TYPE_CHECKING:
    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A plan made for this machine: launches, the MPI libraries that they name, and the machine as it was seen."""

    plan: Plan
    planned: PlannedRun
    machine: PlanMachine
    mpis: Mapping[str, MpiInstallation]


def plan_machine(devices: DeviceSet, absent: Mapping[str, str]) -> PlanMachine:
    """The machine as the planner sees it now."""
    host = free_host_memory()
    return PlanMachine(
        kind=devices.kind,
        device_count=devices.count,
        device_free_bytes=devices.free_bytes() or host,
        host_free_bytes=host,
        shm_free_bytes=free_shared_memory(),
        cores=available_cores(),
        absent=absent,
        memory_nodes=numa_nodes("memory"),
        core_nodes=numa_nodes("cpu"),
    )


def named_mpis(plan: Plan, given: Sequence[MpiInstallation]) -> tuple[Plan, dict[str, MpiInstallation]]:
    """The plan with every launch's MPI named, and the installations by name: given ones, found ones, the default.

    Looks for installations only where a launch needs one.
    """
    known = {one.name: one for one in given}
    tables = []
    for table in plan.launches:
        if table.threads:
            tables.append(dataclasses.replace(table, mpi=""))
            continue
        if not table.mpi:
            one = next(iter(known.values()), None) or default_installation()
        elif table.mpi in known:
            one = known[table.mpi]
        else:
            one = resolve(table.mpi)
        known[one.name] = one
        tables.append(dataclasses.replace(table, mpi=one.name))
    return dataclasses.replace(plan, launches=tuple(tables)), known


def prepare(plan: Plan, devices: DeviceSet, given: Sequence[MpiInstallation]) -> Prepared:
    """Expand and group a plan for these devices."""
    plan, mpis = named_mpis(plan, given)
    only_threads = all(table.threads for table in plan.launches)
    absent = absent_transports(devices.kind, devices.count, threads=only_threads)
    machine = plan_machine(devices, absent)
    cases = expand(plan, machine)
    return Prepared(plan, plan_run(plan, cases, machine, _abi_of(mpis)), machine, mpis)


def _abi_of(mpis: Mapping[str, MpiInstallation]) -> Any:
    return lambda name: mpis[name].abi if name in mpis else ""


def prepare_from(
    run: Run, which: Sequence[str], plan: Plan, devices: DeviceSet, given: Sequence[MpiInstallation]
) -> Prepared:
    """Cases of an earlier run: `failed` ones, or those whose key begins with a KEY; under `plan`'s launch settings.

    UsageError where nothing of the run matches, or a case needs a device that is not used here.
    """
    chosen: dict[str, Case] = {}
    known = list(run.rows())
    for word in which:
        found = [
            row.case
            for row in known
            if (row.status in FAILED if word == "failed" else row.case_key.startswith(word) and word)
        ]
        if not found and word != "failed":
            raise UsageError(f"--cases '{word}': {run.path} has no case of that key: expected failed, or a case_key")
        chosen |= {case.case_key: case for case in found}
    if not chosen:
        raise UsageError(f"--cases failed: no case of {run.path} has failed")
    plan, mpis = named_mpis(plan, given)
    absent = absent_transports(devices.kind, devices.count, threads=all(table.threads for table in plan.launches))
    machine = plan_machine(devices, absent)
    planned = []
    for case in chosen.values():
        worst = max(case.devices)
        if worst >= devices.count:
            raise UsageError(
                f"case {case.case_key} of {run.path} needs device {worst}, here are {devices.count}: see --devices"
            )
        reason = absent.get(case.transport, "") or over_limit(case, machine, plan.memory_limit)
        planned.append(PlannedCase(case, skip=reason))
    return Prepared(plan, plan_run(plan, planned, machine, _abi_of(mpis)), machine, mpis)


def new_pending(planned: PlannedRun) -> list[Pending]:
    """All cases of a new run, first attempts."""
    return [
        Pending.of(launch, [CaseEntry(case, 0, index) for index, case in enumerate(launch.cases)], launch.number)
        for launch in planned.launches
    ]


def resumed_pending(
    launches: Sequence[PlannedLaunch], run: Run, relaunched: Mapping[str, int], retry: frozenset[str]
) -> tuple[list[Pending], int]:
    """What is left of a run, and the first free launch number.

    Cases without a status and those skipped after failures are measured, as a new attempt where an earlier one left a
    record; other statuses stand unless named in `retry` (docs/definitions.md, Resume).
    """
    origin = {int(number): int(planned) for number, planned in relaunched.items()}
    highest = max([len(launches) - 1, *origin])
    done: set[tuple[int, str]] = set()
    attempts: dict[tuple[int, str], int] = {}
    for row in run.rows():
        highest = max(highest, row.launch)
        key = (origin.get(row.launch, row.launch), row.case_key)
        attempts[key] = max(attempts.get(key, -1), row.attempt)
        again = row.status is None or row.status in retry or _after_failures(row.record)
        if not again:
            done.add(key)
    pending, number = [], highest + 1
    for launch in launches:
        entries: list[CaseEntry] = []
        for case in (*launch.cases, *launch.later):
            key = (launch.number, case.case_key)
            if key not in done:
                entries.append(CaseEntry(case, attempts.get(key, -1) + 1, len(entries)))
        if entries:
            pending.append(Pending.of(launch, entries, number))
            number += 1
    return pending, number


def _after_failures(record: Mapping[str, Any]) -> bool:
    return record.get("status") == "skipped" and '"after_failures"' in str(record.get("evidence") or "").replace(
        "'", '"'
    )


def resumed_mpis(
    launches: Sequence[PlannedLaunch], given: Sequence[MpiInstallation], folder: Path
) -> dict[str, MpiInstallation]:
    """The installations that a stored plan names, found here or given. UsageError for one that is missing."""
    needed = {launch.settings.mpi for launch in launches if not launch.settings.threads}
    known = {one.name: one for one in given}
    if needed - set(known):
        for one in (default_installation(), *(find_all() if needed - {*known, default_installation().name} else ())):
            known.setdefault(one.name, one)
    for name in sorted(needed):
        if name not in known or known[name].problem:
            raise UsageError(f"{folder} was measured with {name}, which is not found here: give it with --mpi PREFIX")
    return {name: known[name] for name in needed}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of the machine and the versions differs between a stored run.json and now, one sentence each."""
    found = []
    for name in ("host", "kernel", "cpu", "available_cores", "memory_bytes"):
        old, new = before.get("machine", {}).get(name), now["machine"][name]
        if old != new:
            found.append(f"{name} was {old}, is {new}")
    old_devices, new_devices = before.get("devices", {}), now["devices"]
    if (old_devices.get("kind"), old_devices.get("ordinals")) != (new_devices["kind"], new_devices["ordinals"]):
        found.append(
            f"devices were {old_devices.get('kind')} {old_devices.get('ordinals')}, "
            f"are {new_devices['kind']} {new_devices['ordinals']}"
        )
    identities = [[one.get("uuid") for one in side.get("infos", [])] for side in (old_devices, new_devices)]
    if new_devices["kind"] != "host" and identities[0] != identities[1]:
        found.append("the devices are other ones (UUID)")
    old_versions, new_versions = before.get("versions", {}), now["versions"]
    for name in sorted({*old_versions, *new_versions}):
        if old_versions.get(name) != new_versions.get(name):
            found.append(f"{name} was {old_versions.get(name, 'absent')}, is {new_versions.get(name, 'absent')}")
    return found
