"""A run from its first launch to its last: one launch after the other, statuses written, going on after what failed.

After a case that hung, crashed or ran out of time the rest of its launch goes on in a fresh one; after so many failures
of a transport on some nodes its cases there are skipped. A launch that cannot be run says nothing of its transports:
its cases fail, and later launches are as if it had not been.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.case import Case, LoadCase
from linkgauge.model.device_words import device_noun
from linkgauge.model.transports import shown_names
from linkgauge.plan.launches import PlannedLaunch
from linkgauge.run.launchers import launcher_for
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent.ending import Ending
from linkgauge.run.parent.fallback import Fallback, info_after
from linkgauge.run.parent.launch import Launch
from linkgauge.run.parent.launch_end import LaunchEnd, load_to_blame, told_as_the_loads
from linkgauge.run.parent.launch_numbers import LaunchNumbers
from linkgauge.run.parent.launch_spec import Known, spec_of
from linkgauge.run.parent.library_choice import log_environment
from linkgauge.run.parent.load_launches import LoadLaunches, settings_of_load
from linkgauge.run.parent.nodes import Nodes, nodes_info
from linkgauge.run.parent.nodes_in_use import NodesInUse
from linkgauge.run.parent.prepared import WORKER, Pending, Prepared, write_launches
from linkgauge.run.parent.records import Records
from linkgauge.run.parent.refused import refusal
from linkgauge.run.parent.reporter import Reporter, RunState
from linkgauge.run.parent.statuses import Statuses
from linkgauge.run.parent.time_left import TimeLeft
from linkgauge.run.parent.turns import cases_left, take_turns, use_time
from linkgauge.run.parent.watch import LaunchWatch
from linkgauge.run.wire.kept_samples import forget
from linkgauge.run.wire.spec import ENDED_BY_TIME, CaseEntry, WorkerSpec, is_oversubscribed
from linkgauge.run.wire.token import new_token
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import Record

_TOLD_AFTER_S = 2.0  # of a compilation
# Launches in a row that end without any case to blame and without progress.
_MAX_IDLE_LAUNCHES = 2


class Runner:
    """Measures planned launches into a run folder."""

    def __init__(self, prepared: Prepared, folder: RunFolder, folders: PrivateFolders, reporter: Reporter) -> None:
        """Take what is to be measured, the folder for it, and this process' private folders."""
        self._prepared = prepared
        self._folder = folder
        self._pending = list(prepared.pending)
        self._numbers = LaunchNumbers(folder, prepared.pending)
        self._devices = prepared.devices
        self._machine = prepared.machine
        self._fallback = Fallback(prepared.mpis, prepared.taken, prepared.started)
        nodes = prepared.nodes or Nodes(prepared.devices, reporter.note, prepared.worker[: -len(WORKER)])
        self._folders = folders
        self._reporter = reporter
        self.ending = Ending(prepared.time_limit, reporter.problem)
        self._told_of_compiling = False
        self._token = new_token()
        pending = self._pending  # not by `self`: in a circle the folder would be held until the process ends
        self._time_left = TimeLeft(
            lambda: (entry.case for one in pending for entry in one.entries.values()), self._machine
        )
        self.statuses = Statuses(folder.status_journal(), reporter, self._time_left, prepared.max_failures)
        self.launches_started = 0
        self.last_start_problem = ""
        self.records = Records(prepared, folder.info, self.statuses, reporter, self._time_left)
        self.nodes = NodesInUse(
            nodes, self._fallback, folder, folders, self.statuses, self._pending, self.ending, self._numbers
        )

    @property
    def left(self) -> int:
        """Cases that have no status."""
        return cases_left(self._pending)

    def run(self) -> None:
        """Measure until all is done, the time is up, or a signal came. Raises where the folder cannot be written."""
        limit = self._prepared.time_limit
        ends_at = None if limit is None else limit.last_end
        kinds = {self._devices.kind}
        state = RunState(
            self.left, left_s=self._time_left, ends_at=ends_at,
            shown=shown_names(kinds), noun=device_noun(kinds),
        )  # fmt: skip
        self._reporter.start(state)
        try:
            with self.ending.heeded():
                self.nodes.leave_out_gone()
                if limit is None or self._prepared.rounds is not None:
                    self.ending.turn_ends = 0.0 if limit is None else limit.last_end
                    take_turns(
                        self._pending, self._prepared.every_s, self.ending, self._run_planned, self._enough_rounds
                    )
                else:
                    use_time(self._pending, limit, self._machine, self.ending, self._run_planned)
                if self._prepared.library_choices:
                    self._ask_libraries()
        finally:
            self._reporter.stop()

    def skip(self, case: Case, planned: PlannedLaunch, reason: str) -> None:
        """Record a case as skipped."""
        one = Pending.of(planned, [], planned.number)
        self.statuses.write(one, CaseEntry(case, 0, 0), "skipped", reason, {})

    def _enough_rounds(self) -> bool:
        """Whether the rounds so far are enough: then no later one is planned any more."""
        if self._prepared.rounds is None or not self._prepared.rounds.enough():
            return False
        while self._pending and not self._pending[-1].launched:
            self._pending.pop()
        write_launches(self._folder.path, tuple(one.planned for one in self._pending))
        return True

    def _run_planned(self, one: Pending) -> None:
        if one.launched:
            self._numbers.renew(one)
        start_failures = idle = 0
        first: LaunchEnd | None = None  # of those that could not start
        self._settle(one)
        self.statuses.leave_out(one)
        while True:
            if not one.entries or self.ending.is_due() or self.ending.turn_is_over():
                return
            before = len(one.entries)
            end = self._run_launch(one)
            if end.cannot_record:
                raise EnvironmentLackingError(end.cannot_record)
            if end.ended == ENDED_BY_TIME:
                return
            if end.started and end.status and not self.ending.ended_with(end):
                lost = self.nodes.find_lost(one)
                self._blame(one, end, lost=lost)
                if lost:
                    self.nodes.leave_out_gone()
            elif not end.started:
                if self.ending.is_due() or self.ending.without_its_job():
                    if not self.ending.signaled:
                        self._reporter.note(f"the ranks of launch {one.number} had not met when the time was up")
                    return
                self.last_start_problem = end.start_problem
                if self.nodes.find_lost(one):
                    self.nodes.leave_out_gone()
                    self._numbers.renew(one)
                    continue
                first = first or end
                start_failures += 1
                settings = one.planned.settings
                launcher = launcher_for(self._fallback.mpi_of(settings))
                chance = launcher.failed_by_chance(end.evidence.get("output", ()))
                # One whose ranks were waited for in vain is not waited for again.
                in_vain = end.status == "hung" and not chance
                if in_vain or start_failures >= self._fallback.attempts(settings, chance):
                    refused = self._refusal(one)
                    if refused or not self._go_on(one, end):
                        self._give_up(one, first, refused)
                        return
                    start_failures = 0
            idle = idle + 1 if len(one.entries) == before and end.started else 0
            if idle >= _MAX_IDLE_LAUNCHES:
                self.statuses.fail_all(one, end)
                return
            self.statuses.leave_out(one)
            if one.entries:
                self._numbers.renew(one)

    def _settle(self, one: Pending) -> None:
        """Plan a launch for what the run goes on with in place of its library."""
        self._fallback.begin()
        taken = self._fallback.taken(one.planned.settings)
        if taken != one.planned.settings.mpi:
            mpi = self._fallback.mpis.get(taken)
            one.move(mpi, self._machine, self._fallback.why_threads, may_hold_all=True)
            self.statuses.skip_held(one)

    def _go_on(self, one: Pending, end: LaunchEnd) -> bool:
        """Have a launch that could not start go on with the next library found, or in threads; whether there is one."""
        why = end.last_words or end.start_problem
        found = self._fallback.go_on(
            one.planned.settings, why, lambda mpi: one.move(mpi, self._machine, self._fallback.why_threads)
        )
        if found is None:
            return False
        step, news = found
        if news:
            self._reporter.note(str(step))
        return True

    def _refusal(self, one: Pending) -> str:
        """Why the library of a launch does not start, where that is what was requested of it; else empty."""
        settings = one.planned.settings
        mpi = self._fallback.mpi_of(settings)
        algorithms = {entry.case.algorithm for entry in one.entries.values()} - {""}
        return "" if mpi is None else refusal(mpi, settings, algorithms)

    def _give_up(self, one: Pending, end: LaunchEnd, refused: str) -> None:
        """Fail the cases of a launch that cannot start; where nothing else is left to start, its end says why."""
        if refused:
            evidence = {name: told for name, told in end.evidence.items() if name != "output"}
            end = dataclasses.replace(end, reason=refused, evidence=evidence)
        self.last_start_problem = end.start_problem
        last = not self.launches_started and len(one.entries) == self.left
        self.statuses.fail_all(one, end, say=not last)

    def _on_start(self, one: Pending) -> None:
        """Store what led to the launch whose ranks have met, and skip what it cannot run."""
        steps = self._fallback.note_start(one.planned.settings)
        if steps:
            mpi = self._fallback.mpis.get(steps[-1].taken)
            self._folder.update_info(info_after(self._folder.info, steps, mpi, self._devices))
        self.statuses.skip_held(one)

    def _run_launch(self, one: Pending) -> LaunchEnd:
        spec, mpi, env, folders = self._prepare(one)
        if self._prepared.variables_read:
            env = {**env, **log_environment(folders.temporary, "ENV")}
        one.launched = True
        with contextlib.ExitStack() as stack:
            loads = self._load_launches(one)
            if loads is not None:
                stack.callback(loads.close)
                spec = dataclasses.replace(spec, lines=loads.lines.place)
            waits = (lambda: False) if loads is None else loads.waits
            end = self._follow(
                Launch(spec, mpi, env, one.planned.settings, self._prepared, self._folders, folders, waits),
                lambda record: self._on_record(one, record, loads),
            )
        case = None if end.blamed is None else end.blamed.case
        if case is not None and load_to_blame(end, case, spec.devices) and not self.ending.ended_with(end):
            end = told_as_the_loads(end, spec, is_oversubscribed(spec, case))
        forget(spec)
        if end.started:
            self.launches_started += 1
        self._folder.compact()
        return end

    def _load_launches(self, one: Pending) -> LoadLaunches | None:
        """What starts the loads of a launch's cases that are launches of their own; None where there are none."""
        loads = [load for entry in one.entries.values() for _, load in entry.case.background.own_launches]
        if not loads:
            return None
        for load in loads:  # nodes are looked at now, not while the case waits
            settings, _ = settings_of_load(one.planned.settings, load, self._fallback.mpis, self._machine)
            self.nodes.of(Pending.of(dataclasses.replace(one.planned, settings=settings), [], 0))

        def make(
            number: int, load: LoadCase, told: dict[str, Any], lines: dict[str, Any], waits: Callable[[], bool]
        ) -> tuple[Launch, Path]:
            settings, reason = settings_of_load(one.planned.settings, load, self._fallback.mpis, self._machine)
            if reason:
                raise EnvironmentLackingError(reason)
            planned = dataclasses.replace(one.planned, settings=settings)
            pending = Pending.of(planned, [CaseEntry(load.case, 0, 0)], self._numbers.take())
            spec, mpi, env, folders = self._prepare(pending, of_run=False)
            journal = Path(spec.journal).with_name(f"load-{pending.number:05d}.lgj")
            spec = dataclasses.replace(spec, journal=str(journal), load=told, lines=lines, failures={}, end_by=None)
            return Launch(spec, mpi, env, settings, self._prepared, self._folders, folders, waits), journal

        try:
            hosts = one.planned.settings.hosts or [node.host for node in self.nodes.of(one)]
            return LoadLaunches(hosts, self._machine, make, self._token)
        except OSError as error:
            raise EnvironmentLackingError(f"no port for the launches of background loads: {error.strerror}") from None

    def _follow(self, launch: Launch, on_record: Callable[[Record], None]) -> LaunchEnd:
        with self.ending.ends(launch):
            return launch.run(on_record, self._on_look)

    def _ask_libraries(self) -> None:
        """Have what was chosen for each measured case told by launches whose times do not count."""
        if self._prepared.time_limit is not None:
            self.ending.turn_ends = self._prepared.time_limit.last_end
        for planned, entries in self.records.choices.launches():
            if self.ending.is_due():
                return
            one = Pending.of(planned, entries, self._numbers.take())
            one.leave_out(self.nodes.gone)
            spec, mpi, env, folders = self._prepare(one)
            journal = Path(spec.journal).with_name(f"choices-{one.number:05d}.lgj")
            spec = dataclasses.replace(spec, journal=str(journal))
            env = {**env, **log_environment(folders.temporary)}
            told = 0

            def answer(record: Record, planned: PlannedLaunch = planned) -> None:
                nonlocal told
                for status in self.records.choices.answered(planned, record.header) if record.kind == "case" else ():
                    self.statuses.add(status)
                    told += 1

            try:
                launch = Launch(spec, mpi, env, planned.settings, self._prepared, self._folders, folders)
                end = self._follow(launch, answer)
            finally:
                journal.unlink(missing_ok=True)
            problem = f"; it ended early: {end.start_problem}" if end.status or not end.started else ""
            self._reporter.note(f"what NCCL chose is known of {told} measured cases{problem}")

    def _prepare(
        self, one: Pending, *, of_run: bool = True
    ) -> tuple[WorkerSpec, MpiInstallation | None, dict[str, str], Any]:
        """What a launch is started with; `of_run`: its nodes are the run's."""
        nodes = self.nodes.of(one)
        settings = one.planned.settings
        folders = self._folders.launch(one.number)
        mpi = self._fallback.mpi_of(settings)
        if nodes and of_run:
            count = len(self._devices.ordinals)
            self.statuses.hosts |= {settings.devices[node.ranks[0]] // count: node.host for node in nodes}
            switches = self.nodes.switches(nodes)
            self._folder.update_info(nodes_info(self._folder.info, nodes, switches, whole=not self.nodes.any_lost))
        state = Known(nodes, self.nodes.any_lost, self.statuses.failures, self.records.measured.get(settings, set()),
                      self.records.curves_of(one), self.ending.turn_ends, self._token)  # fmt: skip
        spec = spec_of(one, self._prepared, mpi, self._folder, folders, state)
        return spec, mpi, {**dict(settings.env), **dict(settings.derived_env)}, folders

    def _on_look(self, watch: LaunchWatch) -> None:
        self._reporter.look()
        if watch.compiled_s > _TOLD_AFTER_S and not self._told_of_compiling:
            self._told_of_compiling = True
            self._reporter.note("kernels are being linked with a library's device code, once: some seconds of a core")
        self.ending.look(watch.launch_record is not None)

    def _on_record(self, one: Pending, record: Record, loads: LoadLaunches | None) -> None:
        self.records.note(one, record, loads)
        if record.kind == "launch":
            self._on_start(one)

    def _blame(self, one: Pending, end: LaunchEnd, *, lost: bool = False) -> None:
        """Give the case in hand its status. One that has no rank on a node that was `lost` is measured again."""
        if lost and end.blamed is not None and not one.needs(end.blamed, self.nodes.gone):
            return
        if end.blamed is None:
            if one.entries and not self.ending.is_due():
                self._reporter.note(f"the ranks ended between two cases, {end.reason}: a fresh launch continues")
            return
        if one.entries.pop(end.blamed.key, None) is not None:
            evidence = {**end.evidence, **end.blamed.evidence(None)}
            node = None if end.rank is None else end.blamed.case.node_of(one.planned.settings.devices[end.rank])
            self.statuses.write(one, end.blamed, end.status, end.reason, evidence, node=node)
