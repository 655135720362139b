"""A run from its first launch to its last: one launch after the other, statuses written, going on after what failed.

Only this process writes statuses. After a case that hung, crashed or ran out of time the rest of its launch goes on in
a fresh one; after so many failures of one transport the rest of it is skipped, saying so. A launch that cannot be run
says nothing of its transports: its cases fail, and later launches are as if it had not been.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge import interrupts
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.case import Case, LoadCase
from linkgauge.model.device_words import device_noun
from linkgauge.model.transports import shown_names
from linkgauge.plan.curves import Curves
from linkgauge.plan.environment import shown
from linkgauge.plan.estimate import LAUNCH_S, case_s
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.run.launchers import job_is_over, launcher_for
from linkgauge.run.machine.binding import cores_by_rank
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent.fallback import Fallback, info_after
from linkgauge.run.parent.info import now, settings_of
from linkgauge.run.parent.launch import Launch, LaunchEnd
from linkgauge.run.parent.library_choice import Choices, log_environment
from linkgauge.run.parent.load_launches import LoadLaunches, settings_of_load, with_loads_ends
from linkgauge.run.parent.mpi_library import MpiInstallation
from linkgauge.run.parent.nodes import Node, Nodes, cores_there
from linkgauge.run.parent.prepared import SHORTEST_TURN_S, WORKER, Pending, Prepared, TimeLimit
from linkgauge.run.parent.reporter import Reporter, RunState
from linkgauge.run.parent.time_left import TimeLeft
from linkgauge.run.parent.watch import LaunchWatch
from linkgauge.run.wire.kept_samples import forget, load_to_blame, told_as_the_loads
from linkgauge.run.wire.outcome import point_of
from linkgauge.run.wire.spec import (
    AFTER_FAILURES,
    BROKEN,
    ENDED_BY_TIME,
    NODE_LEFT_OUT,
    CaseEntry,
    WorkerSpec,
    entry_of,
    is_oversubscribed,
)
from linkgauge.run.wire.token import new_token
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import Record

if TYPE_CHECKING:
    from types import FrameType

FAILED = ("failed", "hung", "timeout", "crashed", "corrupt", "disturbed")
# How long after ranks that died of SIGTERM one to this process may come.
_REST_S = 0.2  # between looks whether a signal came, while the next round of a watch is waited for
_SIGNAL_PATIENCE_S = 2.0
# A batch system kills 30 s after its SIGTERM, an impatient user sooner: a run ends within 5 s of a signal.
_LAST_CASE_S = 1.5  # for the case in hand to end
_LAST_WAIT_S = 3.0  # for whatever else the run waits for, such as a look at its nodes
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
        self._next_number = max((one.number for one in prepared.pending), default=-1) + 1
        self._devices = prepared.devices
        self._machine = prepared.machine
        self._fallback = Fallback(prepared.mpis, prepared.taken, prepared.started)
        self._nodes = prepared.nodes or Nodes(prepared.devices, reporter.note, prepared.worker[: -len(WORKER)])
        self._folders = folders
        self._reporter = reporter
        self._failures: dict[str, int] = {}
        self._interrupts = 0
        self._signal = 0
        self._signaled_at = 0.0
        self._launch: Launch | None = None
        self._told_of_compiling = False
        self._relaunched: dict[str, int] = dict(folder.info.get("relaunched", {}))
        self._statuses = folder.status_journal()
        self._choices = Choices()
        self._token = new_token()
        self._curves = dict(prepared.curves)  # of each kind of launch
        self._turn_ends = 0.0  # with a time limit: when the launch in hand has to end
        self._measured: dict[LaunchSettings, set[str]] = {}  # planned keys of cases that a launch has measured
        pending = self._pending  # not by `self`: in a circle the folder would be held until the process ends
        self._time_left = TimeLeft(
            lambda: (entry.case for one in pending for entry in one.entries.values()), self._machine
        )
        self.counts: dict[str, int] = {}
        self.launches_started = 0
        self.last_start_problem = ""
        self.first_skipped = ""  # why the first skipped case was
        self.out_of_time = False
        self.clocks: dict[str, Any] = dict(folder.info.get("clock") or {})  # of each launch, by its number

    @property
    def interrupted(self) -> int:
        """The signal that ended the run early; 0: none."""
        return self._signal

    @property
    def lost_nodes(self) -> bool:
        """Whether the run went on without some of its nodes."""
        return bool(self._nodes.gone)

    @property
    def left(self) -> int:
        """Cases that have no status."""
        return sum(len(one.entries) + len(one.held) for one in self._pending)

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
        ending = {signal.SIGINT, signal.SIGTERM, *interrupts.heeded()}
        previous = {number: signal.signal(number, self._on_signal) for number in ending}
        previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_last_wait)
        try:
            self._leave_out_gone()
            if limit is None:
                self._take_turns(self._pending)
            else:
                self._use_time(limit)
            if self._prepared.library_choices:
                self._ask_libraries()
        except KeyboardInterrupt:
            if not self._signal:
                raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._reporter.stop()

    def _take_turns(self, turns: Sequence[Pending]) -> None:
        due, last = time.monotonic(), turns[0].planned.repeat if turns else 0
        for one in turns:
            if one.planned.repeat != last:
                last = one.planned.repeat
                due = max(due + self._prepared.every_s, time.monotonic())  # one that was late is not caught up with
                self._rest_until(due)
            if self._stopping():
                break
            self._run_planned(one)

    def _rest_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0 and not self._stopping():
            time.sleep(min(left, _REST_S))

    def _use_time(self, limit: TimeLimit) -> None:
        """Launch after launch, each for its share of the time; then again those with cases left, while time is left.

        At first the shares are those of what by the estimates fits: of the most telling cases. First rounds share all
        of the time, so that one that takes longer than estimated takes it from what is less telling.
        """
        turns, first = self._pending, True
        while turns:
            before = self.left
            for place, one in enumerate(turns):
                weights = [
                    0.0 if one.planned.first > other.planned.first else self._likely_s(other) if first else 1.0
                    for other in turns[place:]
                ]
                self._turn_ends = limit.share(time.monotonic(), weights)
                if self._turn_ends > 0:
                    self._run_planned(one)
                if self._stopping():
                    break
            first = False
            turns = [one for one in self._pending if one.entries]
            over = self._stopping() or time.monotonic() + SHORTEST_TURN_S > limit.last_end
            if over or self.left == before or len(self._pending) == 1:
                break
        self.out_of_time = self.out_of_time or self.left > 0

    def _likely_s(self, one: Pending) -> float:
        likely = {case.case_key for case in one.planned.cases}
        estimates = [case_s(e.case, self._machine) for key, e in one.entries.items() if key[0] in likely]
        return sum(estimates) + LAUNCH_S if estimates else 0.0

    def skip(self, case: Case, planned: PlannedLaunch, reason: str, attempt: int = 0) -> None:
        """Record a case as skipped."""
        self._status(CaseEntry(case, attempt, 0), planned, planned.number, "skipped", reason, {})

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        self._signal = self._signal or number
        if self._interrupts == 1:
            self._signaled_at = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _LAST_WAIT_S, _REST_S)
        if self._launch is not None:
            if self._interrupts == 1:
                self._launch.stop()
            else:
                self._launch.abort()

    def _on_last_wait(self, number: int, frame: FrameType | None) -> None:
        """Leave what the run still waits for. A launch is left to end its own processes, which takes a moment."""
        if self._launch is None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt(interrupts.words(self._signal))

    def _stopping(self) -> bool:
        limit = self._prepared.time_limit
        if limit is not None and time.monotonic() >= limit.last_end:
            self.out_of_time = True
        return self._interrupts > 0 or self.out_of_time

    def _turn_is_over(self) -> bool:
        return self._prepared.time_limit is not None and time.monotonic() >= self._turn_ends

    def _run_planned(self, one: Pending) -> None:
        if one.launched:
            self._relaunch(one)
        start_failures = idle = 0
        first: LaunchEnd | None = None  # of those that could not start
        self._settle(one)
        self._skip_exhausted(one)
        while True:
            if not one.entries or self._stopping() or self._turn_is_over():
                return
            before = len(one.entries)
            end = self._run_launch(one)
            if end.cannot_record:
                raise EnvironmentLackingError(end.cannot_record)
            if end.ended == ENDED_BY_TIME:
                return
            if end.started and end.status and not self._ended_with_the_run(end):
                lost = self._find_lost(one)
                self._blame(one, end, lost=lost)
                if lost:
                    self._leave_out_gone()
            elif not end.started:
                if self._stopping() or self._without_its_job():
                    if not self._interrupts:
                        self._reporter.note(f"the ranks of launch {one.number} had not met when the time was up")
                    return
                self.last_start_problem = end.start_problem
                if self._find_lost(one):
                    self._leave_out_gone()
                    self._relaunch(one)
                    continue
                first = first or end
                start_failures += 1
                chance = self._by_chance(one, end)
                # One whose ranks were waited for in vain is not waited for again.
                in_vain = end.status == "hung" and not chance
                if in_vain or start_failures >= self._fallback.attempts(one.planned.settings, chance):
                    if not self._go_on(one, end):
                        self._fail_all(one, first)
                        return
                    start_failures = 0
            idle = idle + 1 if len(one.entries) == before and end.started else 0
            if idle >= _MAX_IDLE_LAUNCHES:
                self._fail_all(one, end)
                return
            self._skip_exhausted(one)
            if one.entries:
                self._relaunch(one)

    def _find_lost(self, one: Pending) -> bool:
        """Whether nodes of a launch do not answer, where the run is to go on without them."""
        settings = one.planned.settings
        if not settings.hosts or self._stopping():
            return False
        mpi = self._fallback.mpis[settings.mpi]
        return self._nodes.lose_silent(mpi, settings.hosts, settings.launcher_args, self._folders)

    def _leave_out_gone(self) -> None:
        """Skip what needs a node that is gone. A resumed run may have again what it went on without before."""
        before = self._folder.info.get("nodes_left_out", {})
        asked = {host for one in self._pending for host in one.planned.settings.hosts}
        gone = {host: why for host, why in before.items() if host not in asked} | self._nodes.gone
        if gone != before:
            self._folder.update_info({"nodes_left_out": gone})
        for one in self._pending:
            left_out = one.leave_out(self._nodes.gone)
            for entry, host in left_out:
                reason = f"node {host} does not answer: {self._nodes.gone[host]}"
                self._status(entry, one.planned, one.number, "skipped", reason, {NODE_LEFT_OUT: host})
            if left_out and not one.launched:  # what is skipped is of no launch, which would have fewer ranks
                self._relaunch(one)

    def _by_chance(self, one: Pending, end: LaunchEnd) -> bool:
        settings = one.planned.settings
        launcher = launcher_for(None if settings.threads else self._fallback.mpis[settings.mpi])
        return launcher.failed_by_chance(end.evidence.get("output", ()))

    def _settle(self, one: Pending) -> None:
        """Plan a launch for what the run goes on with in place of its library."""
        self._fallback.begin()
        taken = self._fallback.taken(one.planned.settings)
        if taken != one.planned.settings.mpi:
            mpi = self._fallback.mpis.get(taken)
            one.move(mpi, self._machine, self._fallback.why_threads, may_hold_all=True)
            self._skip_held(one)

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

    def _on_start(self, one: Pending) -> None:
        """Store what led to the launch whose ranks have met, and skip what it cannot run."""
        steps = self._fallback.note_start(one.planned.settings)
        if steps:
            mpi = self._fallback.mpis.get(steps[-1].taken)
            self._folder.update_info(info_after(self._folder.info, steps, mpi, self._devices))
        self._skip_held(one)

    def _skip_held(self, one: Pending) -> None:
        for entry, reason in one.held.values():
            self._status(entry, one.planned, one.number, "skipped", reason, {})
        one.held.clear()

    def _ended_with_the_run(self, end: LaunchEnd) -> bool:
        """Whether the ranks died of what ends the run, so that no case is to blame.

        A batch system that ends a job sends SIGTERM to the ranks and to this process, and whose comes first is chance;
        or to the ranks alone, and has no such job any more.
        """
        if end.status != "crashed":
            return False
        until = time.monotonic() + (_SIGNAL_PATIENCE_S if end.evidence.get("signal") == signal.SIGTERM else 0)
        while not self._interrupts and time.monotonic() < until:
            time.sleep(0.05)
        return self._interrupts > 0 or self._without_its_job()

    def _without_its_job(self) -> bool:
        """Whether the batch system has ended the job, which then ends the run as a signal does."""
        if job_is_over():
            self._reporter.problem("the batch system has ended the job that this run is in")
            self._interrupts, self._signal = self._interrupts + 1, self._signal or signal.SIGTERM
        return self._interrupts > 0

    def _relaunch(self, one: Pending) -> None:
        one.number = self._next_number
        self._next_number += 1
        self._relaunched[str(one.number)] = one.planned.number
        self._folder.update_info({"relaunched": self._relaunched})

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
        if case is not None and load_to_blame(end, case, spec.devices) and not self._ended_with_the_run(end):
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
            self._nodes_of(Pending.of(dataclasses.replace(one.planned, settings=settings), [], 0))

        def make(
            number: int, load: LoadCase, told: dict[str, Any], lines: dict[str, Any], waits: Callable[[], bool]
        ) -> tuple[Launch, Path]:
            settings, reason = settings_of_load(one.planned.settings, load, self._fallback.mpis, self._machine)
            if reason:
                raise EnvironmentLackingError(reason)
            planned = dataclasses.replace(one.planned, settings=settings)
            pending = Pending.of(planned, [CaseEntry(load.case, 0, 0)], self._next_number)
            self._next_number += 1
            spec, mpi, env, folders = self._prepare(pending, of_run=False)
            journal = Path(spec.journal).with_name(f"load-{pending.number:05d}.lgj")
            spec = dataclasses.replace(spec, journal=str(journal), load=told, lines=lines, failures={}, end_by=None)
            return Launch(spec, mpi, env, settings, self._prepared, self._folders, folders, waits), journal

        try:
            hosts = one.planned.settings.hosts or [node.host for node in self._nodes_of(one)]
            return LoadLaunches(hosts, self._machine, make, self._token)
        except OSError as error:
            raise EnvironmentLackingError(f"no port for the launches of background loads: {error.strerror}") from None

    def _follow(self, launch: Launch, on_record: Callable[[Record], None]) -> LaunchEnd:
        self._launch = launch
        try:
            return launch.run(on_record, self._on_look)
        finally:
            self._launch = None

    def _ask_libraries(self) -> None:
        """Have what was chosen for each measured case told by launches whose times do not count."""
        if self._prepared.time_limit is not None:
            self._turn_ends = self._prepared.time_limit.last_end
        for planned, entries in self._choices.launches():
            if self._stopping():
                return
            one = Pending.of(planned, entries, self._next_number)
            one.leave_out(self._nodes.gone)
            self._next_number += 1
            spec, mpi, env, folders = self._prepare(one)
            journal = Path(spec.journal).with_name(f"choices-{one.number:05d}.lgj")
            spec = dataclasses.replace(spec, journal=str(journal))
            env = {**env, **log_environment(folders.temporary)}
            told = 0

            def answer(record: Record, planned: PlannedLaunch = planned) -> None:
                nonlocal told
                for status in self._choices.answered(planned, record.header) if record.kind == "case" else ():
                    self._statuses.append("status", status, durable=False)
                    told += 1

            try:
                launch = Launch(spec, mpi, env, planned.settings, self._prepared, self._folders, folders)
                end = self._follow(launch, answer)
            finally:
                journal.unlink(missing_ok=True)
            problem = f"; it ended early: {end.start_problem}" if end.status or not end.started else ""
            self._reporter.note(f"what NCCL chose is known of {told} measured cases{problem}")

    def _nodes_of(self, one: Pending) -> tuple[Node, ...]:
        while True:
            settings = one.planned.settings
            mpi = None if settings.threads else self._fallback.mpis[settings.mpi]
            try:
                return self._nodes.of(mpi, settings.ranks, settings.launcher_args, settings.hosts, self._folders)
            except EnvironmentLackingError:
                if not self._find_lost(one):
                    raise
                self._leave_out_gone()

    def _prepare(
        self, one: Pending, *, of_run: bool = True
    ) -> tuple[WorkerSpec, MpiInstallation | None, dict[str, str], Any]:
        """What a launch is started with; `of_run`: its nodes are the run's."""
        nodes = self._nodes_of(one)
        settings = one.planned.settings
        folders = self._folders.launch(one.number)
        mpi = self._fallback.mpis[settings.mpi] if not settings.threads else None
        build = mpi.build if mpi is not None else ""
        if nodes:
            cores = cores_there(nodes, settings.bind, settings.devices, self._devices.ordinals)
            whole = not self._nodes.gone or "nodes" not in self._folder.info  # else those of the whole run are there
            if of_run and whole:
                switches = self._nodes.switches(nodes)
                known = {} if switches is None else {"switches": switches.plain()}
                self._folder.update_info({"nodes": [node.plain() for node in nodes], **known})
        else:
            cores = cores_by_rank(settings.bind, settings.devices, self._devices.infos)
        limit = self._prepared.time_limit
        ordered = list(one.entries.values())
        if limit is not None:  # a repeat has the cases of the first before others, so that they pair up
            measured = self._measured.get(settings, set())
            ordered.sort(key=lambda entry: entry.key[0] not in measured)
        entries = tuple(dataclasses.replace(entry, index=index) for index, entry in enumerate(ordered))
        spec = WorkerSpec(
            launch=one.number,
            repeat=one.planned.repeat,
            launch_key=settings.launch_key(build),
            launch_info=self._launch_info(settings, mpi),
            mode="threads" if settings.threads else "processes",
            ranks=settings.ranks,
            ranks_per_device=settings.ranks_per_device,
            devices=settings.devices,
            runtime=self._devices.kind,
            ordinals=self._devices.ordinals,
            cores=cores,
            available_cores=self._machine.cores,
            node_of=tuple(of for _, of in sorted((rank, at) for at, node in enumerate(nodes) for rank in node.ranks)),
            node_cores=tuple(node.cores for node in nodes),
            peer_access=settings.peer_access,
            thread_level=settings.thread_level,
            seed=self._prepared.seed,
            max_failures=self._prepared.max_failures,
            failures=dict(self._failures),
            journal=str(self._folder.journal_path(one.number).absolute()),
            heartbeat=str(folders.segments / "heartbeat"),
            folder=str(folders.segments),
            evidence=str(folders.temporary / "evidence"),
            cases=entries,
            fault=self._prepared.fault,
            end_by=None if limit is None else time.time() + self._turn_ends - time.monotonic(),
            estimates_s=() if limit is None else tuple(case_s(entry.case, self._machine) for entry in entries),
            core_use=self._prepared.every_s > 0,
            curves=self._curves_of(one).to_plain(),
            job_env=tuple((devices, dict(env)) for devices, env in settings.job_env),
            token=self._token,
        )
        return spec, mpi, {**dict(settings.env), **dict(settings.derived_env)}, folders

    def _launch_info(self, settings: LaunchSettings, mpi: MpiInstallation | None) -> dict[str, Any]:
        build = mpi.build if mpi is not None else ""
        described = {}
        if mpi is not None:
            described = {"name": mpi.name, "vendor": mpi.vendor, "version": mpi.version, "abi": mpi.abi,
                         "library": str(mpi.library), "launcher": str(mpi.launcher), "build": mpi.build}  # fmt: skip
        return {
            "mpi": described,
            # The device of each rank as cases number it, where that is not the rank's own number.
            **({"places": settings.devices} if self._nodes.gone else {}),
            "env": shown(settings.env),
            "derived_env": shown(settings.derived_env),
            "job_env": [{"devices": devices, "env": dict(env)} for devices, env in settings.job_env],
            "launch_key_contents": settings.key_contents(build),
            "settings": settings_of({**dict(settings.env), **dict(settings.derived_env)}),
            "started": now(),
        }

    def _on_look(self, watch: LaunchWatch) -> None:
        self._reporter.look()
        if watch.compiled_s > _TOLD_AFTER_S and not self._told_of_compiling:
            self._told_of_compiling = True
            self._reporter.note("kernels are being linked with a library's device code, once: some seconds of a core")
        if self._launch is None or not self._stopping():
            return
        limit, time_now = self._prepared.time_limit, time.monotonic()
        over = limit is not None and time_now >= limit.cut
        over |= self._interrupts > 0 and time_now >= self._signaled_at + _LAST_CASE_S
        # Ranks that have not met cannot be asked to end after the case in hand.
        if watch.launch_record is None or over:
            self._launch.abort()
        else:
            self._launch.stop()

    def _on_record(self, one: Pending, record: Record, loads: LoadLaunches | None = None) -> None:
        if record.kind == "launch":
            self.clocks[str(one.number)] = record.header.get("clock", {})
            self._on_start(one)
        elif record.kind == "begin":
            entry = entry_of(one.entries, record.header)
            if entry is not None:
                self._reporter.begin(entry.case)
                self._time_left.begin()
                if loads is not None:
                    loads.begin(entry.case)
        elif record.kind == "left_out":
            self._on_left_out(one, record.header)
        elif record.kind == "case":
            entry = one.take(record.header)
            if entry is None:
                return
            header = record.header
            self._measured.setdefault(one.planned.settings, set()).add(entry.key[0])
            status, reason, evidence = with_loads_ends(
                header["status"], header.get("reason", ""), header.get("evidence", {}),
                [] if loads is None else loads.ended(),
            )  # fmt: skip
            point = point_of(entry.case, record.columns) if status == "ok" else None
            goodput = None if point is None else point.goodput
            if entry.step is not None:
                self._curves_of(one).learn(entry.case.size_requested, evidence)
            if self._prepared.library_choices:
                self._choices.note(one.planned, entry.case, {"reason": "", "evidence": {}, **header})
            self._status(entry, one.planned, one.number, status, reason, evidence, goodput)

    def _curves_of(self, one: Pending) -> Curves:
        return self._curves.setdefault(one.planned.settings, Curves())

    def _on_left_out(self, one: Pending, header: Mapping[str, Any]) -> None:
        entry = one.take(header)
        if entry is not None and "reason" in header:  # else it is another case of the launch, which has its own status
            self._status(entry, one.planned, one.number, "skipped", header["reason"], header["evidence"])

    def _blame(self, one: Pending, end: LaunchEnd, *, lost: bool = False) -> None:
        """Give the case in hand its status. One that has no rank on a node that was `lost` is measured again."""
        if lost and end.blamed is not None and not one.needs(end.blamed, self._nodes.gone):
            return
        if end.blamed is None:
            if one.entries and not self._stopping():
                self._reporter.note(f"the ranks ended between two cases, {end.reason}: a fresh launch continues")
            return
        if one.entries.pop(end.blamed.key, None) is not None:
            evidence = {**end.evidence, **end.blamed.evidence(None)}
            self._status(end.blamed, one.planned, one.number, end.status, end.reason, evidence)

    def _fail_all(self, one: Pending, end: LaunchEnd) -> None:
        """Nothing more can be had of this launch: each case left fails with the reason."""
        reason = f"its launch could not be run: {end.start_problem}"
        one.give_back()
        for entry in one.entries.values():
            self._status(entry, one.planned, one.number, "failed", reason, end.evidence, of_launch=True)
        self._reporter.problem(f"{len(one.entries)} cases failed: {reason}")
        one.entries.clear()

    def _skip_exhausted(self, one: Pending) -> None:
        limit = self._prepared.max_failures
        tired = {transport for transport, count in self._failures.items() if count >= limit}
        left_out = {key: entry for key, entry in one.entries.items() if entry.case.transport in tired}
        for key, entry in left_out.items():
            del one.entries[key]
            reason = (
                f"skipped after {self._failures[entry.case.transport]} failures of {entry.case.transport} "
                f"(--max-failures {limit})"
            )
            self._status(entry, one.planned, one.number, "skipped", reason, {AFTER_FAILURES: True})
        for transport in sorted({entry.case.transport for entry in left_out.values()}):
            count = sum(entry.case.transport == transport for entry in left_out.values())
            self._reporter.problem(f"the other {count} cases of {transport} are skipped: it failed {limit} times")

    def _status(
        self,
        entry: CaseEntry,
        planned: PlannedLaunch,
        launch: int,
        status: str,
        reason: str,
        evidence: Mapping[str, Any],
        goodput: float | None = None,
        *,
        of_launch: bool = False,  # the case was not tried: not its transport's failure, and not a line of its own
    ) -> None:
        record = {
            "case_key": entry.case.case_key,
            "launch": launch,
            "repeat": planned.repeat,
            "attempt": entry.attempt,
            "planned_launch": planned.number,
            "case": entry.case.dimensions(),
            "status": status,
            "reason": reason,
            "evidence": dict(evidence),
        }
        # One fsync for each case that was measured or failed; thousands of skipped ones share the next.
        self._statuses.append("status", record, durable=status != "skipped")
        self.counts[status] = self.counts.get(status, 0) + 1
        if status == "skipped":
            self.first_skipped = self.first_skipped or reason
        if status in BROKEN and not of_launch:
            self._failures[entry.case.transport] = self._failures.get(entry.case.transport, 0) + 1
        if not of_launch and status != "skipped":
            self._time_left.ended(entry.case)
        if of_launch:
            self._reporter.state.cases_done += 1
            self._reporter.state.failed += 1
        else:
            self._reporter.case(entry.case, status, reason, goodput)
