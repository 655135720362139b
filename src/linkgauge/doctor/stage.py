"""The doctor inside a run: its quick checks, which warn and never stop the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkgauge.doctor.check import FAILING, WARNING, run_checks
from linkgauge.doctor.readers import Readers

if TYPE_CHECKING:
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
    for one, result in run_checks(Readers(mpi=mpi, ranks=ranks), quick_only=True, also=_ASKED if gpus_asked else ()):
        if one.name == "mpi_library" and mpi is None:
            continue  # threads mode needs none
        if one.name == "devices_hidden" and devices.hidden:
            continue  # the run's first line says so
        if result.status in (WARNING, FAILING):
            said.append(f"{result.finding}: {result.cost}; fix: {result.fix}")
    return said
