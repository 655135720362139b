"""A run and its system: what run.json says of the machine's links, and plans for machines that are not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.plan.case import Case
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import Plan
from linkgauge.plan.patterns import PATTERNS
from linkgauge.run.devices import DeviceSet
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.prepare import Prepared, named_mpis
from linkgauge.system import System, load

_KINDS = {"nvidia": "cuda", "amd": "hip"}
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
    kinds = {_KINDS.get(device.vendor or "", "host") for device in system.devices}
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
    )
    cases = expand(plan, machine)
    abis = {name: mpi.abi for name, mpi in mpis.items()}
    return Prepared(plan, plan_run(plan, cases, machine, lambda name: abis.get(name, "")), machine, mpis)


class Expected:
    """What a system allows each case, for the dry run."""

    def __init__(self, name_or_file: str | Path) -> None:
        """Load the system."""
        self.system = load(name_or_file)

    def of(self, case: Case) -> list[Mapping[str, Any]]:
        """The ceilings of a case as plain tables: rule, kind, and goodput in bytes per second or latency in ns."""
        from linkgauge.expect import ceilings

        known = ceilings(self.system, case.dimensions())
        return [
            {
                "rule": c.rule,
                "kind": c.kind,
                **({} if c.value_bytes_per_s is None else {"value_bytes_per_s": c.value_bytes_per_s}),
                **({} if c.latency_ns is None else {"latency_ns": c.latency_ns}),
            }
            for c in known
        ]

    def text(self, case: Case) -> str:
        """The least bound and the best of what is constructive, in words; empty where no figure supports one."""
        from linkgauge.system.units import show_rate

        known = self.of(case)
        times = {c["rule"]: c["latency_ns"] for c in known if "latency_ns" in c}
        if times and PATTERNS[case.pattern].latency_only:
            rule = max(times, key=lambda name: times[name])
            return f"{'at least' if rule in ('wire_time', 'cycle') else 'seen'} {times[rule]:.4g} ns ({rule})"
        found = [c for c in known if "value_bytes_per_s" in c]
        words = []
        for kind, choose, label in (("bound", min, "at most"), ("constructive", max, "by a known schedule")):
            rates = {c["rule"]: c["value_bytes_per_s"] for c in found if c["kind"] == kind}
            if rates:
                rule = choose(rates, key=lambda name: rates[name])
                words.append(f"{label} {show_rate(rates[rule])} ({rule})")
        return "; ".join(words)
