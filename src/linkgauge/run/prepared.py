"""What a run is measured with, and what of it is still to be measured.

A Plan says what is asked for; prepared for a machine (or read back from a run that is resumed) it is `Prepared`, whose
launches are `Pending` while cases of them are left. What one start of a launch tells its ranks is run/spec.py's.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

from linkgauge.model.beside import loads_of
from linkgauge.plan.curves import Curves
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch, with_other_mpi
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.devices import DeviceSet
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.nodes import Nodes
from linkgauge.run.spec import CaseEntry, entry_of
from linkgauge.run.time_limit import TimeLimit
from linkgauge.run.watch import HUNG_AFTER_S

WORKER = (sys.executable, "-m", "linkgauge.run.worker")


@dataclasses.dataclass
class Pending:
    """A planned launch and what is still to be measured of it: what a run works through, launch by launch.

    `launched`: it has been started before. `held`: cases that what the launch went on with cannot run, and why: skipped
    as soon as its ranks have met.
    """

    planned: PlannedLaunch
    entries: dict[tuple[str, int], CaseEntry]  # by CaseEntry.key, in order
    number: int  # of the next launch
    launched: bool = False
    held: dict[tuple[str, int], tuple[CaseEntry, str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, planned: PlannedLaunch, entries: Sequence[CaseEntry], number: int) -> Pending:
        """The planned launch with these cases left."""
        return cls(planned, {entry.key: entry for entry in entries}, number)

    def take(self, header: Mapping[str, Any]) -> CaseEntry | None:
        """The entry that a record is about, its size known, taken out; None where it has its status already."""
        entry = entry_of(self.entries, header)
        if entry is not None:
            del self.entries[entry.key]
        return entry

    def give_back(self) -> None:
        """Have all cases left, those that were held in their places."""
        known = {**self.entries, **{key: entry for key, (entry, _) in self.held.items()}}
        self.entries = dict(sorted(known.items(), key=lambda item: item[1].index))
        self.held = {}

    def leave_out(self, gone: Mapping[str, str]) -> list[tuple[CaseEntry, str]]:
        """Go on without the hosts that are `gone`; returns the entries that need one, taken out, each with its host."""
        found = [(entry, host) for entry in self.entries.values() if (host := self.needs(entry, gone))]
        for entry, _ in found:
            del self.entries[entry.key]
        settings = self.planned.settings
        if not gone.keys().isdisjoint(settings.hosts):
            self.planned = dataclasses.replace(self.planned, settings=settings.without(gone))
        return found

    def needs(self, entry: CaseEntry, gone: Container[str]) -> str:
        """The first of the hosts that are `gone` which an entry has ranks on; empty where it has on none."""
        settings = self.planned.settings
        places = tuple(dict.fromkeys(settings.devices))
        jobs = (entry.case, *(load.case for load in loads_of(entry.case.beside)))
        hosts = (
            settings.hosts[places.index(one) * len(settings.hosts) // len(places)]
            for job in jobs
            for one in job.devices
        )
        return next((host for host in hosts if host in gone), "") if settings.hosts else ""

    def move(
        self, mpi: MpiInstallation | None, machine: PlanMachine, why_threads: str, *, may_hold_all: bool = False
    ) -> bool:
        """Plan it for another MPI library, or for threads by None, and hold the cases that cannot run there.

        Where none can it stays as it is, and false is returned, unless `may_hold_all`.
        """
        entries = [*self.entries.values(), *(entry for entry, _ in self.held.values())]
        name, dialect = (mpi.name, mpi.dialect) if mpi is not None else ("", "")
        settings, reasons = with_other_mpi(
            self.planned.settings, [entry.case for entry in entries], name, dialect, machine
        )
        if len(reasons) == len(entries) and not may_hold_all:
            return False
        self.give_back()
        self.planned = dataclasses.replace(self.planned, settings=settings)
        for key in [key for key, entry in self.entries.items() if entry.case.case_key in reasons]:
            entry = self.entries.pop(key)
            reason = reasons[entry.case.case_key] if mpi is not None else f"mpi needs processes, and {why_threads}"
            self.held[key] = (entry, reason)
        return True


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A plan made for this machine, or what a stored one has left, and all that it is measured with but its folder."""

    pending: Sequence[Pending]
    devices: DeviceSet
    machine: PlanMachine  # as it was seen
    mpis: Mapping[str, MpiInstallation]  # that the launches name
    seed: int
    max_failures: int = 3
    time_limit: TimeLimit | None = None
    every_s: float = 0.0  # from the begin of a repeat to the next one's; 0: one after the other
    variables_read: bool = False  # have NCCL tell which variables it read, in the measured launches
    library_choices: bool = False  # ask NCCL what it chose, in launches of their own (run/library_choice.py)
    without_mpi: str = ""  # why launches that named no MPI library were planned in threads
    curves: Mapping[LaunchSettings, Curves] = dataclasses.field(default_factory=dict)  # what is known of them
    nodes: Nodes | None = None  # None: not looked at yet
    taken: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of run/fallback.py, before
    started: Collection[str] = ()  # MPI libraries that are not to be replaced: they have started launches of the run
    worker: Sequence[str] = WORKER  # tests only: another, or WORKER with what its command begins with
    hung_after_s: float = HUNG_AFTER_S
    fault: dict[str, Any] | None = None  # tests only

    @property
    def launches(self) -> tuple[PlannedLaunch, ...]:
        """The launches as they were planned."""
        return tuple(one.planned for one in self.pending)
