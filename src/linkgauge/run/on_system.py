"""A run and its system: what run.json says of the machine's links, and plans for machines that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.plan.expand import expand
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import Plan
from linkgauge.run.devices import DeviceSet
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.prepare import made_for, named_mpis
from linkgauge.run.prepared import Prepared
from linkgauge.system import System, load
from linkgauge.system.affinity import one_a_nic

_UNKNOWN_CORES = 64


def system_data(name_or_file: str | None, devices: DeviceSet) -> dict[str, Any] | None:
    """The system for run.json: the one that `--system` names, else what is discovered here; None where that fails.

    A run is worth having without its ceilings, so a machine that discovery does not understand stops nothing.
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
