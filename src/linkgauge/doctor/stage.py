"""The doctor inside a run: its quick checks, which warn and never stop the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linkgauge.doctor.check import FAILING, WARNING, run_checks
from linkgauge.doctor.readers import Need, Readers
from linkgauge.plan.memory import host_need, memory_need

if TYPE_CHECKING:
    from linkgauge.model.case import Case
    from linkgauge.run.parent.devices import DeviceSet
    from linkgauge.run.parent.prepared import Prepared


_ASKED = ("devices_hidden", "observable")


def warnings_before_run(devices: DeviceSet, prepared: Prepared, *, gpus_asked: bool = False) -> list[str]:
    """One line for each quick check that does not say ok: finding, cost and fix.

    `gpus_asked`: GPUs were looked for, so that how many are hidden costs no further process.
    """
    of_node = (launch.settings.ranks // max(len(launch.settings.hosts), 1) for launch in prepared.launches)
    ranks = max(of_node, default=devices.count)
    mpi = next(iter(prepared.mpis.values()), None)
    said = []
    readers = Readers(mpi=mpi, ranks=ranks, need=_need(prepared))
    for one, result in run_checks(readers, quick_only=True, also=_ASKED if gpus_asked else ()):
        if one.name == "mpi_library" and mpi is None:
            continue  # threads mode needs none
        if one.name == "devices_hidden" and devices.hidden:
            continue  # the run's first line says so
        if result.status in (WARNING, FAILING):
            said.append(f"{result.finding}: {result.cost}; fix: {result.fix}")
    return said


def _need(prepared: Prepared) -> Need:
    """What the plan's cases take at most at once, by the same estimate that skips those that do not fit.

    Of cases that differ in size alone the largest stands for all: a plan may have 100,000.
    """
    largest: dict[Any, Case] = {}
    for case in (case for launch in prepared.launches for case in launch.cases):
        kind = (case.transport, case.pattern, case.variant, case.ranks, case.source_memory, case.target_memory,
                case.app)  # fmt: skip
        if kind not in largest or largest[kind].size < case.size:
            largest[kind] = case
    needs = [(memory_need(case), case) for case in largest.values()]
    # What libraries keep in /dev/shm stands for their own buffers, which they register too.
    locked = (host_need(case, need, prepared.machine.kind) + need.shm_bytes for need, case in needs)
    return Need(max((need.shm_bytes for need, _ in needs), default=0), max(locked, default=0))
