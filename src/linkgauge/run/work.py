"""What a run is measured with."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from linkgauge.plan.curves import Curves
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.devices import DeviceSet
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.nodes import Nodes
from linkgauge.run.pending import Pending
from linkgauge.run.time_limit import TimeLimit
from linkgauge.run.watch import HUNG_AFTER_S
from linkgauge.store.folder import RunFolder

WORKER = (sys.executable, "-m", "linkgauge.run.worker")


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """What holds for the whole run; None: no limit."""

    seed: int
    max_failures: int = 3
    time_limit: TimeLimit | None = None
    fault: dict[str, Any] | None = None  # tests only
    library_choices: bool = False  # ask NCCL what it chose, in launches of their own (run/library_choice.py)


@dataclasses.dataclass(frozen=True)
class Work:
    """All that a run is measured with."""

    folder: RunFolder
    pending: Sequence[Pending]
    next_number: int  # the first that is free for fresh launches
    devices: DeviceSet
    machine: PlanMachine
    mpis: Mapping[str, MpiInstallation]
    settings: RunSettings
    skipped: Sequence[PlannedLaunch] = ()  # launches whose skipped cases are to be recorded
    curves: Mapping[LaunchSettings, Curves] = dataclasses.field(default_factory=dict)  # what is known of them
    nodes: Nodes | None = None  # None: not looked at yet
    worker: Sequence[str] = WORKER  # tests only: another, or WORKER with what its command begins with
    hung_after_s: float = HUNG_AFTER_S
    taken: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of run/fallback.py, before
    started: Collection[str] = ()  # MPI libraries that are not to be replaced: they have started launches of the run
