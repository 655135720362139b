"""Loads that are launches of their own, beside a measured launch: each is started for its case and ends with it.

A load goes on in a launch like any other, of one case, whose journal is read for how it ended and then removed: what it
measures of itself it tells the measured launch (run/wire/load_lines.py). How long the one may wait for the other, the
watch of the one that is waited for says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.model.background import MPI_SAME
from linkgauge.model.case import Case, LoadCase
from linkgauge.plan.launches import LaunchSettings, with_other_mpi
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.launch import Launch
from linkgauge.run.parent.launch_end import LaunchEnd
from linkgauge.run.parent.watch import patience_for
from linkgauge.run.wire.load_lines import LOAD, MEASURED, Key, LoadLines
from linkgauge.store.journal import Record

_ENDED_WELL = ("", "ok", "idle")


@dataclasses.dataclass(frozen=True)
class LoadEnd:
    """How a load ended: its status is empty where it went on until its case was over, with right data."""

    number: int
    status: str
    reason: str
    evidence: Mapping[str, Any]


def settings_of_load(
    measured: LaunchSettings, load: LoadCase, mpis: Mapping[str, MpiInstallation], machine: PlanMachine
) -> tuple[LaunchSettings, str]:
    """What a load's launch is started with, beside a measured one; and why it cannot be, empty where it can."""
    name = measured.mpi if load.mpi == MPI_SAME else load.mpi
    kinds = {mpis[one].launcher_kind for one in (name, measured.mpi) if one}
    base = dataclasses.replace(
        measured,
        launcher_args=measured.launcher_args if len(kinds) == 1 else (),
        threads=False,
        mixed_memory=False,
        job_env=(),
        bind=measured.bind if measured.bind in ("nearest", "none") else _bind_of(measured, load.case.devices),
    )
    settings, reasons = with_other_mpi(base, [load.case], name, mpis[name].dialect, machine)
    reason = next(iter(reasons.values()), "")
    if not settings.hosts:
        return dataclasses.replace(settings, devices=load.case.devices), reason
    places = tuple(dict.fromkeys(measured.devices))
    settings = dataclasses.replace(settings, devices=tuple(one for one in settings.devices if one in places))
    used = {measured.hosts[places.index(one) * len(measured.hosts) // len(places)] for one in load.case.devices}
    return settings.without(set(settings.hosts) - used), reason


def _bind_of(measured: LaunchSettings, devices: tuple[int, ...]) -> str:
    """The cores of the measured launch's ranks on these devices; as many entries as a load on one node has ranks."""
    lists = measured.bind.split(":")
    if len(lists) != measured.ranks or measured.hosts:
        return measured.bind
    return ":".join(lists[measured.devices.index(device)] for device in devices)


MakeLaunch = Callable[[int, LoadCase, dict[str, Any], dict[str, Any], Callable[[], bool]], tuple[Launch, Path]]
"""Makes a load's launch, ready to run, and says where its journal will be. LinkgaugeError where it cannot.

Of the load's number, the load, WorkerSpec.load, WorkerSpec.lines, and `waits` as LaunchWatch takes it.
"""


class _Load(threading.Thread):
    """One load that goes on: its launch is run here."""

    def __init__(self, lines: LoadLines, key: Key, words: str, launch: Launch, journal: Path) -> None:
        super().__init__(name=f"load {key[1]}", daemon=True)
        self.launch = launch
        self._lines, self._key, self._words, self._journal = lines, key, words, journal
        self._said: dict[str, Any] = {}
        self._failure = ""
        self._end: LaunchEnd | None = None

    def run(self) -> None:
        try:
            self._end = self.launch.run(self._on_record, lambda watch: None)
        except Exception as error:  # whatever it is: the measured launch waits for a word of the load
            self._failure = str(error) or type(error).__name__
        finally:
            self._lines.end(self._key, LOAD)
            with contextlib.suppress(OSError):
                self._journal.unlink(missing_ok=True)

    def _on_record(self, record: Record) -> None:
        if record.kind == "case":
            self._said = record.header

    def end(self) -> LoadEnd:
        """How it ended; waits for it."""
        self.join()
        number = self._key[1]
        if self._said:
            status = "" if self._said["status"] in _ENDED_WELL else str(self._said["status"])
            reason = str(self._said.get("reason", ""))
            told = reason if not status or reason.startswith("load ") else self._of(reason)
            return LoadEnd(number, status, told, {})
        if self._end is None or not self._end.started:
            why = self._failure or ("its ranks did not meet" if self._end is None else self._end.start_problem)
            evidence = {} if self._end is None else self._end.evidence
            return LoadEnd(number, "failed", self._of(f"its launch could not be run: {why}"), evidence)
        return LoadEnd(number, self._end.status or "failed", self._of(self._end.reason or "it was ended"),
                       self._end.evidence)  # fmt: skip

    def _of(self, reason: str) -> str:
        return f"load {self._key[1]} ({self._words}): {reason}"


class LoadLaunches:
    """The loads of one measured launch's cases that are launches of their own; after `close` none is left."""

    def __init__(self, hosts: Sequence[str], machine: PlanMachine, make: MakeLaunch, token: str) -> None:
        """`hosts`: on which ranks are, where some are on others than the parent's; `token` is the run's.

        OSError where no port can be had.
        """
        self._machine = machine
        self._make = make
        self.lines = LoadLines(hosts, token)
        self._going: list[_Load] = []
        self._failed: list[LoadEnd] = []
        self._keys: list[Key] = []

    def close(self) -> None:
        """End those that still go on."""
        for load in self._going:
            load.launch.abort()
        self._over()
        self.lines.close()

    def waits(self) -> bool:
        """Whether the measured launch waits for one of the loads of its case."""
        return any(self.lines.waits_for_load(key) for key in self._keys)

    def begin(self, case: Case) -> None:
        """Start the loads of a case that has begun."""
        self._over()
        for number, load in case.background.own_launches:
            key, words = (case.case_key, number), load.text
            self._keys.append(key)
            told = {"number": number, "case_key": case.case_key, "pace": dataclasses.asdict(load.pace), "words": words}
            # It goes on for as long as the measured case may, of whose time its own limits are made.
            longest_s = patience_for(case, self._machine, 0.0, 0.0).total_s
            stop = dataclasses.replace(load.case.stop, time_ns=int(longest_s * 1e9))
            per_node = case.devices_per_node  # places are the run's
            going = dataclasses.replace(load, case=dataclasses.replace(load.case, stop=stop, devices_per_node=per_node))
            try:
                waits = functools.partial(self.lines.may_rest, key)
                launch, journal = self._make(number, going, told, self.lines.place, waits)
            except LinkgaugeError as error:
                self.lines.end(key, LOAD)
                reason = f"load {number} ({words}): its launch could not be run: {error}"
                self._failed.append(LoadEnd(number, "failed", reason, {}))
                continue
            self._going.append(_Load(self.lines, key, words, launch, journal))
            self._going[-1].start()

    def ended(self) -> list[LoadEnd]:
        """How the loads of the case that is over ended, in their order; waits for them."""
        ends = [*self._failed, *(load.end() for load in self._going)]
        self._over()
        return sorted(ends, key=lambda end: end.number)

    def _over(self) -> None:
        for key in self._keys:
            self.lines.end(key, MEASURED)
        for load in self._going:
            load.join()
        self._going, self._failed, self._keys = [], [], []


def with_loads_ends(
    status: str, reason: str, evidence: Mapping[str, Any], ends: list[LoadEnd]
) -> tuple[str, str, dict[str, Any]]:
    """A case's status, reason and evidence, with how its loads ended: what a load did wrong is told as the load's."""
    bad = next((end for end in ends if end.status), None)
    if bad is None:
        return status, reason, dict(evidence)
    kept = {**evidence, "loads": [{"load": end.number, "status": end.status, "reason": end.reason, **end.evidence}
                                  for end in ends if end.status]}  # fmt: skip
    if status in ("ok", "timeout"):
        return "disturbed", bad.reason, kept
    if status == "failed":  # it had not been at its rate
        return "skipped" if bad.status == "skipped" else "failed", bad.reason, kept
    return status, reason, kept
