"""From a run folder to the facts that rules read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.network import Network
from linkgauge.expect.of_run import system_of_run
from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import FailedCase, Measure
from linkgauge.findings.samples import RankSeries, Samples
from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity, Launch, Observation, Result
from linkgauge.run.parent.looks import KEY as LOOKS
from linkgauge.run.parent.prepared import read_launches
from linkgauge.stats.attempts import counted
from linkgauge.stats.checked import operations_checked
from linkgauge.stats.crossing import crossings
from linkgauge.stats.interference import interferences
from linkgauge.stats.launches import Places, launch_devices
from linkgauge.stats.node_counts import NodeCounts
from linkgauge.stats.other_users import OtherUsers, other_users
from linkgauge.stats.requested import requests_of
from linkgauge.stats.witnesses import HOST, MEMORY, NVLINK, PCIE, Look
from linkgauge.system.model import System
from linkgauge.system.named import another_machine

if TYPE_CHECKING:
    from linkgauge.store.run import Run


def facts_of(run: Run, system: System | None = None) -> Facts:
    """Read a run folder. `system`: the machine to judge against; by default what the run itself found there."""
    found = counted(run)
    observations = run.observed()
    system = system or system_of(run)
    unlike = another_than(run.launched, system)
    if unlike:  # its rates and shares say nothing of these GPUs
        system = None
    crossed = crossings(run)
    return Facts(
        # What goes on beside loads is no witness of the machine: those cases are judged against themselves, alone.
        [Measure.of(group) for group in found.measured if not group[0].case.background],
        failures=_failures(run, [row for row in found.others if row.status != "skipped"]),
        skipped=[row for row in found.others if row.status == "skipped"],
        rows=found.rows,
        observations=observations,
        launches=run.launched,
        system=system,
        unlike=unlike,
        samples=Samples(_series_reader(run)),
        info=run.info,
        crossings=crossed,
        requests=requests_of(run, system, crossed),
        interferences=lambda: interferences(run),
        network=Network.of_run(run),
        lost=run.lost,
        checked=operations_checked(run),
        used=other_users_of(run, observations),
        counts=NodeCounts.of(observations, {row.identity: row.devices for row in found.rows}, Places(run.launched)),
    )


def _failures(run: Run, rows: Sequence[Result]) -> list[FailedCase]:
    """Of a launch that never began the plan alone tells the variables."""
    found = [FailedCase.of(row) for row in rows]
    if all(one.launch_key for one in found):
        return found
    try:
        planned = {one.number: one.settings.env for one in read_launches(run.path)}
        again = {int(actual): int(number) for actual, number in dict(run.info.get("relaunched") or {}).items()}
    except (LinkgaugeError, TypeError, ValueError):  # no plan, as of what was imported; or a stranger's
        return found
    return [one if one.launch_key
            else dataclasses.replace(one, variables=planned.get(again.get(row.launch, row.launch), ()))
            for one, row in zip(found, rows, strict=True)]  # fmt: skip


def other_users_of(run: Run, observations: Sequence[Observation]) -> OtherUsers:
    """Return who else used the run's devices."""
    models = {number: device.device_name for number, device in launch_devices(run.launched).items()}
    places = Places(run.launched)
    return other_users(run.rows(), observations, system_of(run), looks_of(run.info), models,
                       lambda row: [place.node for place in places.of_row(row)])  # fmt: skip


def disturbed_in(run: Run) -> frozenset[Identity]:
    """Return the measurements of a run whose medium others used."""
    measured = (row.identity for row in run.rows() if row.status == "ok")
    return other_users_of(run, run.observed()).disturbed.intersection(measured)


def looks_of(info: Mapping[str, Any]) -> list[Look]:
    """Return what a run stored of its devices from before its first launch and after its last."""
    found = []
    for look in info.get(LOOKS) or ():
        for one in look.get("devices", ()):
            rates = {link: one[name] for link, name in _RATES.items() if name in one}
            found.append(Look(one["device"], look["when_ns"], rates, one.get("busy"), tuple(one.get("processes", ()))))
        if host := look.get("host"):
            processes = tuple(host.get("processes", ()))
            rates = {MEMORY: host["memory_bytes_per_s"]} if "memory_bytes_per_s" in host else {}
            found.append(Look(HOST, look["when_ns"], rates, host.get("others"), processes, host.get("cores", 0.0)))
    return found


_RATES = {NVLINK: "nvlink_bytes_per_s", PCIE: "pcie_bytes_per_s"}


def system_of(run: Run) -> System | None:
    """Return the system that a run stored in its run.json, None where there is none that can be read."""
    try:
        return system_of_run(run)
    except LinkgaugeError:
        return None


def another_than(launches: Sequence[Launch], system: System | None) -> str:
    """Say that a run's GPUs are another machine's than `system`, as a user may name it; empty where they may be."""
    if system is None:
        return ""
    ranks = (rank for launch in launches for rank in launch.ranks)
    hosts = grouped((rank.host, (rank.device_ordinal or 0, rank.device_name)) for rank in ranks)
    return another_machine(list(hosts.values()), system.name, [device.model or "" for device in system.devices])


def _series_reader(run: Run) -> Callable[[Identity], RankSeries | None]:
    """Read all samples at the first call that asks for any, and keep them by row identity."""
    held: dict[Identity, RankSeries] = {}

    def reader(identity: Identity) -> RankSeries | None:
        if not held:
            from linkgauge.stats.series import run_blocks

            for key, block in run_blocks(run):
                kept = block.only(block.measured)
                names = ("rank", "lane", "sample", "scheduled_ns", "start_ns", "ns", "iterations")
                columns = {name: np.asarray(getattr(kept, name)) for name in names}
                held[key] = RankSeries(**columns, host_clock=not block.event_clock)
        return held.get(identity)

    return reader
