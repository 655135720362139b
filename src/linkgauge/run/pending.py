"""A planned launch and what is still to be measured of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.plan.launches import PlannedLaunch, with_other_mpi
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.spec import CaseEntry, entry_of


@dataclasses.dataclass
class Pending:
    """A planned launch and what is still to be measured of it.

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

    def move(
        self, mpi: MpiInstallation | None, machine: PlanMachine, why_threads: str, *, may_hold_all: bool = False
    ) -> bool:
        """Plan it for another MPI library, or for threads by None, and hold the cases that cannot run there.

        Where none can it stays as it is, and false is returned, unless `may_hold_all`.
        """
        entries = [*self.entries.values(), *(entry for entry, _ in self.held.values())]
        name, abi = (mpi.name, mpi.abi) if mpi is not None else ("", "")
        settings, reasons = with_other_mpi(self.planned.settings, [entry.case for entry in entries], name, abi, machine)
        if len(reasons) == len(entries) and not may_hold_all:
            return False
        self.give_back()
        self.planned = dataclasses.replace(self.planned, settings=settings)
        for key in [key for key, entry in self.entries.items() if entry.case.case_key in reasons]:
            entry = self.entries.pop(key)
            reason = reasons[entry.case.case_key] if mpi is not None else f"mpi needs processes, and {why_threads}"
            self.held[key] = (entry, reason)
        return True
