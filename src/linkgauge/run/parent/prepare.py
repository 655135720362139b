"""From what was asked to launches ready to run: new, of an earlier run, resumed, or for a described system."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import EnvironmentLackingError, LinkgaugeError, UsageError
from linkgauge.model.background import MPI_SAME, WrittenLoads
from linkgauge.model.case import Case
from linkgauge.model.result import Row
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.values import Value
from linkgauge.plan.curves import FULL, Curves, curve_id
from linkgauge.plan.expand import PlannedCase, expand
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch, plan_run
from linkgauge.plan.machine import PlanMachine, free_shared_memory, numa_nodes, slowdown
from linkgauge.plan.memory import over_limit
from linkgauge.plan.model import LaunchTable, Plan
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.transports import absent_transports
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.fallback import THREADS, end_of
from linkgauge.run.parent.mpi_library import by_name, default_installation, find_all, resolve
from linkgauge.run.parent.nodes import Nodes, least
from linkgauge.run.parent.prepared import Pending, Prepared
from linkgauge.run.parent.statuses import FAILED
from linkgauge.run.wire.spec import AFTER_FAILURES, FITTED, NODE_LEFT_OUT, PAIR_LEFT_OUT, CaseEntry
from linkgauge.started import start_s
from linkgauge.system import System, load
from linkgauge.system.affinity import one_a_nic
from linkgauge.system.allowance import available_cores, free_host_memory

if TYPE_CHECKING:
    from linkgauge.store.run import Run


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
        slowdown=slowdown(),
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
        asked = bool(table.mpi or given)
        if not table.mpi:
            one = next(iter(known.values()), None) or default_installation()
        elif table.mpi in known:
            one = known[table.mpi]
        else:
            one = resolve(table.mpi)
        known[one.name] = one
        tables.append(dataclasses.replace(table, mpi=one.name, mpi_requested=asked))
    return _with_loads_libraries(dataclasses.replace(plan, launches=tuple(tables)), known), known


def _with_loads_libraries(plan: Plan, known: dict[str, MpiInstallation]) -> Plan:
    """The plan with the libraries of loads that are launches of their own named; `known` gets those."""

    def name_of(word: str) -> str:
        one = known.get(word)
        if one is None:
            one = by_name(word)
            known.setdefault(one.name, one)
        return one.name

    def named(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(one.with_libraries(name_of) if isinstance(one, WrittenLoads) else one for one in values)

    cases = tuple(
        dataclasses.replace(table, values={name: named(values) for name, values in table.values.items()})
        for table in plan.cases
    )
    return dataclasses.replace(plan, cases=cases)


def _libraries_of_loads(cases: Iterable[Case]) -> set[str]:
    return {load.mpi for case in cases for _, load in case.background.own_launches} - {MPI_SAME}


def _mpis_or_threads(plan: Plan, given: Sequence[MpiInstallation]) -> tuple[Plan, dict[str, MpiInstallation], str]:
    """As `named_mpis`; where there is no usable library, launches that name none are of threads, and why."""
    try:
        return (*named_mpis(plan, given), "")
    except EnvironmentLackingError as error:
        if any(table.hosts for table in plan.launches):
            raise  # threads are of one node
        tables = tuple(dataclasses.replace(table, threads=table.threads or not table.mpi) for table in plan.launches)
        return (*named_mpis(dataclasses.replace(plan, launches=tables), given), str(error))


def prepare(plan: Plan, devices: DeviceSet, given: Sequence[MpiInstallation], nodes: Nodes | None = None) -> Prepared:
    """Expand and group a plan for these devices, as all nodes have them; without `nodes` for this one alone."""
    plan, mpis, without = _mpis_or_threads(plan, given)
    plan = _on_nodes_that_answer(plan, mpis, nodes)
    machine = machine_of(plan.launches, devices, mpis, nodes, without)
    return made_for(plan, expand(plan, machine), devices, machine, mpis, nodes, without)


def _on_nodes_that_answer(plan: Plan, mpis: Mapping[str, MpiInstallation], nodes: Nodes | None) -> Plan:
    """The plan for the nodes that can be used, which are all where the run is not to go on without the others."""
    if nodes is None:
        return plan
    for table in plan.launches:
        if table.hosts:
            named = {name: values[0] for name, values in table.env.items() if values}
            nodes.meet(mpis[table.mpi], table.hosts, table.launcher_args, {**os.environ, **named})
    there = (tuple(host for host in table.hosts if host not in nodes.gone) for table in plan.launches)
    tables = (dataclasses.replace(table, hosts=hosts) for table, hosts in zip(plan.launches, there, strict=True))
    return dataclasses.replace(plan, launches=tuple(tables))


def machine_of(
    launches: Collection[LaunchTable | LaunchSettings],
    devices: DeviceSet,
    mpis: Mapping[str, MpiInstallation],
    nodes: Nodes | None,
    without_mpi: str = "",
) -> PlanMachine:
    """The machine as the launches' nodes all have it; without `nodes` this one alone."""
    threads = all(one.threads for one in launches)
    absent = absent_transports(devices.kind, mpi=without_mpi if threads else "", threads=threads)
    machine = plan_machine(devices, absent)
    machine = dataclasses.replace(machine, start_s=start_s(), nodes=max([1, *(len(one.hosts) for one in launches)]))
    if nodes is not None:
        for one in launches:
            hosts = tuple(host for host in one.hosts if host not in nodes.gone)
            ranks = devices.count * max(len(hosts), 1)
            found = nodes.of(mpis.get(one.mpi), ranks, one.launcher_args, hosts)
            machine = dataclasses.replace(least(machine, found), above=nodes.above(found, hosts) or machine.above)
        machine = dataclasses.replace(machine, start_s=max(machine.start_s, nodes.start_s))
    return machine


def made_for(
    plan: Plan,
    cases: Sequence[PlannedCase],
    devices: DeviceSet,
    machine: PlanMachine,
    mpis: Mapping[str, MpiInstallation],
    nodes: Nodes | None = None,
    without: str = "",
) -> Prepared:
    """The cases of a plan in launches. EnvironmentLackingError where all need an MPI library and there is none."""
    launches = plan_run(plan, cases, machine, lambda name: mpis[name].dialect if name in mpis else "")
    if without and not any(launch.cases for launch in launches):
        raise EnvironmentLackingError(without)
    return Prepared(
        new_pending(launches),
        devices,
        machine,
        mpis,
        plan.seed,
        library_choices=plan.library_choices,
        without_mpi=without,
        nodes=nodes,
    )


def prepare_from(
    run: Run,
    which: Sequence[str],
    plan: Plan,
    devices: DeviceSet,
    given: Sequence[MpiInstallation],
    nodes: Nodes | None = None,
) -> Prepared:
    """Cases of an earlier run: `failed` ones, or those whose key begins with a KEY; under `plan`'s launch settings.

    UsageError where nothing of the run matches, or a case needs a device that is not used here.
    """
    chosen: dict[str, Case] = {}
    known = run.rows()
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
    plan, mpis, without = _mpis_or_threads(plan, given)
    plan = _on_nodes_that_answer(plan, mpis, nodes)
    machine = machine_of(plan.launches, devices, mpis, nodes, without)
    mpis |= {name: by_name(name) for name in _libraries_of_loads(chosen.values()) if name not in mpis}
    planned = []
    for case in chosen.values():
        if case.devices_per_node not in (0, devices.count):
            raise UsageError(
                f"case {case.case_key} of {run.path} is of nodes with {case.devices_per_node} devices each, here are "
                f"{devices.count}: see --devices"
            )
        worst = max(case.devices)
        if worst >= devices.count * machine.nodes:
            raise UsageError(
                f"case {case.case_key} of {run.path} needs device {worst}, here are {machine.places}: see --devices "
                "and --nodes"
            )
        reason = machine.absent.get(case.transport, "") or over_limit(case, machine, plan.memory_limit)
        planned.append(PlannedCase(case, skip=reason))
    return made_for(plan, planned, devices, machine, mpis, nodes, without)


def new_pending(launches: Sequence[PlannedLaunch]) -> list[Pending]:
    """All cases of a new run, first attempts."""
    return [
        Pending.of(
            launch,
            [
                CaseEntry(case, 0, index, launch.steps.get(case.case_key), fits=case.case_key in launch.fits)
                for index, case in enumerate((*launch.cases, *launch.later))
            ],
            launch.number,
        )
        for launch in launches
    ]


def resumed_pending(
    launches: Sequence[PlannedLaunch], run: Run, relaunched: Mapping[str, int], retry: frozenset[str]
) -> list[Pending]:
    """What is left of a run, in launches of numbers that it has not used.

    Cases without a status and those skipped after failures or for want of a node are measured, as a new attempt where
    an earlier one left a record; other statuses stand unless named in `retry` (docs/definitions.md, Resume).
    """
    highest = max([len(launches) - 1, *map(int, relaunched)])
    last: dict[tuple[int, str], tuple[int, bool]] = {}  # the attempt, and whether its status stands
    for row in run.rows():
        highest = max(highest, row.launch)
        key = (row.planned_launch, _planned_key(row))
        again = row.status is None or row.status in retry or _to_be_had(row)
        last[key] = max(last.get(key, (-1, False)), (row.attempt, not again))
    pending, number = [], highest + 1
    for launch in launches:
        entries: list[CaseEntry] = []
        for case in (*launch.cases, *launch.later):
            key = (launch.number, curve_id(case) if case.size_requested == FULL else case.case_key)
            attempt, stands = last.get(key, (-1, False))
            if not stands:
                step = launch.steps.get(case.case_key)
                fits = case.case_key in launch.fits
                entries.append(CaseEntry(case, attempt + 1, len(entries), step, fits=fits))
        if entries:
            pending.append(Pending.of(launch, entries, number))
            number += 1
    return pending


def _planned_key(row: Row) -> str:
    """What a row's case is known by in the plan: where it was measured at a full curve, all but its size.

    Of one that was measured at a smaller size than was asked for, its key there.
    """
    if FITTED in row.evidence:
        return str(row.evidence[FITTED])
    at_full = row.case.size_requested == FULL or "at_full" in row.evidence
    return curve_id(row.case) if at_full else row.case_key


def known_curves(launches: Sequence[PlannedLaunch], run: Run) -> dict[LaunchSettings, Curves]:
    """What a run's rows tell of its curves, by the kind of launch; the first repeat's before a later one's."""
    curves: dict[LaunchSettings, Curves] = {}
    for row in sorted(run.rows(), key=lambda row: (row.repeat, row.launch)):
        planned = 0 <= row.planned_launch < len(launches)
        if planned and ("curve" in row.evidence or "at_full" in row.evidence):
            known = curves.setdefault(launches[row.planned_launch].settings, Curves())
            known.learn(row.case.size_requested, row.evidence)
    return curves


def _to_be_had(row: Row) -> bool:
    return row.status == "skipped" and not {AFTER_FAILURES, NODE_LEFT_OUT, PAIR_LEFT_OUT}.isdisjoint(row.evidence)


def resumed_mpis(
    launches: Sequence[PlannedLaunch], given: Sequence[MpiInstallation], folder: Path, taken: Mapping[str, str]
) -> tuple[dict[str, MpiInstallation], dict[str, str]]:
    """The installations that a stored plan needs, found here or given, and what takes the place of which.

    `taken`: what the run went on with before; one that is given again by its name is taken itself. UsageError for one
    that is missing.
    """
    known = {one.name: one for one in given}
    taken = {name: other for name, other in taken.items() if name not in known}
    needed = {
        name if launch.settings.mpi_requested else end_of(taken, name)
        for launch in launches
        if not launch.settings.threads and (name := launch.settings.mpi)
    } - {THREADS} | _libraries_of_loads(case for launch in launches for case in (*launch.cases, *launch.later))
    if needed - set(known):
        for one in find_all():
            known.setdefault(one.name, one)
    for name in sorted(needed):
        if name not in known or known[name].problem:
            raise UsageError(f"{folder} was measured with {name}, which is not found here: give it with --mpi PREFIX")
    return {name: known[name] for name in needed}, taken


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


_UNKNOWN_CORES = 64


def system_data(name_or_file: str | None, devices: DeviceSet) -> dict[str, Any] | None:
    """The system for run.json: the one that `--system` names, else what is discovered here; None where that fails.

    A run is worth having without its limits, so a machine that discovery does not understand stops nothing.
    """
    from linkgauge.system.dump import to_data

    if name_or_file is not None:
        return to_data(load(name_or_file))
    from linkgauge.system.discovery import of_devices

    try:
        return to_data(of_devices(devices.kind, devices.infos))
    except (LinkgaugeError, OSError, ValueError, KeyError, TypeError):
        return None


def described_devices(system: System) -> DeviceSet:
    """The devices of a described system as a run would use them: all, by ordinal."""
    of_vendor = {runtime.vendor: runtime.name for runtime in RUNTIMES.values() if runtime.gpus}
    kinds = {of_vendor.get(device.vendor or "", "host") for device in system.devices}
    kind = kinds.pop() if len(kinds) == 1 else "host"
    infos = tuple({"ordinal": d.ordinal, "kind": kind, "name": d.model or d.name} for d in system.devices)
    return DeviceSet(kind, tuple(range(len(infos))), infos)


def prepare_on(plan: Plan, system: System, given: Sequence[MpiInstallation]) -> Prepared:
    """Expand and group a plan for a described system: every transport is taken to be there, all memory to be free."""
    plan, mpis = named_mpis(plan, given)
    devices = described_devices(system)
    device_bytes = min((d.memory_bytes.value for d in system.devices if d.memory_bytes), default=2.0**36)
    host_bytes = sum(h.memory_bytes.value for h in system.hosts if h.memory_bytes) or 2.0**38
    machine = PlanMachine(
        kind=devices.kind,
        device_count=devices.count,
        device_free_bytes=int(device_bytes),
        host_free_bytes=int(host_bytes),
        shm_free_bytes=int(host_bytes / 2),
        cores=_UNKNOWN_CORES,
        memory_nodes=tuple(sorted({host.numa or 0 for host in system.hosts})) or (0,),
        absent={"ccl": "host devices have no NCCL or RCCL"} if devices.kind == "host" else {},
        one_a_nic=one_a_nic(system),
    )
    return made_for(plan, expand(plan, machine), devices, machine, mpis)
