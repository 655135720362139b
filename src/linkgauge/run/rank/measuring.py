"""What a launch's ranks do together: introduce themselves, then measure case by case as rank 0 says, which records.

`run_rank` is one rank's part, whatever started it (run/rank/worker.py).
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from linkgauge.model.case import Case
from linkgauge.plan.curves import LeftOut, Point
from linkgauge.run.machine import nccl_log
from linkgauge.run.machine.answers import Answer, answers_of
from linkgauge.run.machine.nccl_log import NcclLog
from linkgauge.run.machine.observe import COUNTERS, NODE, Observer, Value
from linkgauge.run.machine.readers import open_reader
from linkgauge.run.rank import peer_memory
from linkgauge.run.rank.case_record import Rest, record_case, send_outcome, send_rest
from linkgauge.run.rank.gathering import gathered
from linkgauge.run.rank.node_counters import (
    CGROUP,
    CORES,
    MEMORY,
    CoreUse,
    NicCounters,
    core_wait,
    memory_use,
    quota_use,
    tells_of_nics,
)
from linkgauge.run.rank.reading_plan import ReadingPlan, Readings
from linkgauge.run.rank.schedule import Schedule
from linkgauge.run.rank.session import Session
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.failures import Failures
from linkgauge.run.wire.heartbeat import HeartbeatFile
from linkgauge.run.wire.outcome import OBSERVING, RankOutcome
from linkgauge.run.wire.spec import ENDED_BY_TIME, CaseEntry, WorkerSpec, is_oversubscribed, rank_list
from linkgauge.store.journal import JournalWriter
from linkgauge.system.allowance import Quotas
from linkgauge.system.resctrl import MemoryTraffic


class Recorder:
    """Rank 0's pen: the records of one launch, in the journal."""

    def __init__(self, spec: WorkerSpec) -> None:
        """Open the launch's journal."""
        self._spec = spec
        self._journal = JournalWriter(spec.journal)
        self._failures = Failures(spec.max_failures, spec.failures)

    def launch(
        self, ranks: Sequence[bytes], clock: dict[str, Any], versions: dict[str, Any], answers: dict[str, Answer]
    ) -> None:
        """Who takes part, each as JSON, and under what; what libraries say of the launch's variables."""
        refused = {}
        said = {}
        for text in ranks:  # one at a time: decoded they take ten times the memory
            one = json.loads(text)
            said[int(one["rank"])] = text
            if one.get("not_observed"):
                refused[int(one["rank"])] = (str(one["device"]["ordinal"]), one["not_observed"])
        header = {"launch": self._spec.launch, "launch_key": self._spec.launch_key, **self._spec.launch_info}
        header["versions"] = {**header.get("versions", {}), **versions}
        if answers:
            header["answers"] = answers
        if refused:
            header["not_observed"] = dict(refused[rank] for rank in sorted(refused))
        listed = ("ranks", [said[rank] for rank in sorted(said)])
        self._journal.append("launch", {**header, "clock": clock}, listed=listed)

    def begin(self, entry: CaseEntry) -> None:
        """A case begins: flushed, not durable, since only the parent of this moment needs it."""
        self._journal.append("begin", {**self._spec.identity(entry), "index": entry.index}, durable=False)

    def leave_out(self, entry: CaseEntry, found: LeftOut | None) -> None:
        """A case will not be measured, since its curve has ended; None: since it is another case of the launch."""
        said = {} if found is None else {"reason": found.reason, "evidence": found.evidence()}
        self._journal.append("left_out", {**self._spec.identity(entry), **said}, durable=False)

    def case(self, entry: CaseEntry, outcomes: list[RankOutcome], fetch: Callable[[bool], Rest]) -> Point | None:
        """A case has ended: durable before the next begins. Returns its time and goodput, where it has them."""
        oversubscribed = is_oversubscribed(self._spec, entry.case)
        of_curve = entry.evidence if entry.step is not None or entry.fits else None
        status, point = record_case(
            self._journal, self._spec.identity(entry), entry.case, outcomes, oversubscribed, of_curve, fetch
        )
        self._failures.note(entry.case, status)
        return point

    def end(self, reason: str, observing: dict[str, Any]) -> None:
        """The launch ends of its own accord. `observing`: what that has cost it."""
        self._journal.append("end", {"launch": self._spec.launch, "reason": reason, OBSERVING: observing})
        self._journal.close()

    def exhausted(self, case: Case) -> bool:
        """Whether so many cases of its transport have failed on its nodes that it is left out."""
        return self._failures.why_left_out(case) is not None


def run_rank(spec: WorkerSpec, session: Session, watch: HeartbeatFile) -> str:
    """Measure the spec's cases as one rank. Returns why the launch ended: done, stopped, or fatal.

    Collective: all ranks do what rank 0 says. It says which case is next, that what was left behind of the last one is
    to come, or that the launch ends; the others learn no more of each other than that.
    """
    recorder = Recorder(spec) if session.rank == 0 else None
    watch.set_word(session.rank, beat.STATE, beat.STATE_IDLE)
    observer = _introduce(spec, session, recorder)
    if recorder is not None:
        ended = _lead(spec, session, watch, recorder, observer)
    else:
        ended = _follow(spec, session, watch, observer)
    watch.set_word(session.rank, beat.STATE, beat.STATE_ENDED)
    return ended


def _lead(spec: WorkerSpec, session: Session, watch: HeartbeatFile, recorder: Recorder, observer: Observer) -> str:
    """Rank 0's part of `run_rank`."""
    schedule = Schedule(spec)
    log = NcclLog.from_environment(os.environ)
    plan = ReadingPlan()
    while True:
        told = json.loads(next_step(schedule, watch, recorder))
        if "ended" in told:
            session.ranks.tell(json.dumps(told).encode())
            recorder.end(str(told["ended"]), plan.record())
            return str(told["ended"])
        entry = _told_entry(spec, told)
        told["read"] = plan.next(entry.case, is_last=not schedule.left)
        session.ranks.tell(json.dumps(told).encode())
        own = _measure(spec, session, watch, entry, observer, log, Readings(*told["read"]))
        outcomes = send_outcome(session.ranks, own, spec.ranks, keep=True)

        def fetch(with_point: bool, own: RankOutcome = own, outcomes: list[RankOutcome] = outcomes) -> Rest:
            rest = Rest(session.ranks, own, outcomes, with_point)
            session.ranks.tell(json.dumps({"send": rest.asked}).encode())
            return rest

        plan.ended(
            (one.facts.get(OBSERVING, {}) for one in outcomes), (row for one in outcomes for row in one.observations)
        )
        schedule.ended(entry, recorder.case(entry, outcomes, fetch))
        if any(one.fatal for one in outcomes):
            recorder.end("fatal", plan.record())  # before the others end, of which the launcher may make the end of all
            session.ranks.tell(b'{"ended": "fatal"}')
            return "fatal"


def _follow(spec: WorkerSpec, session: Session, watch: HeartbeatFile, observer: Observer) -> str:
    """Any other rank's part of `run_rank`."""
    log = NcclLog.from_environment(os.environ)
    outcome: RankOutcome | None = None
    while True:
        told = json.loads(session.ranks.tell(b""))
        if "ended" in told:
            return str(told["ended"])
        if "send" in told:
            assert outcome is not None
            send_rest(session.ranks, outcome, told["send"])
            continue
        readings = Readings(*told["read"])
        outcome = _measure(spec, session, watch, _told_entry(spec, told), observer, log, readings)
        send_outcome(session.ranks, outcome, spec.ranks, keep=False)


def _told_entry(spec: WorkerSpec, told: dict[str, Any]) -> CaseEntry:
    entry: CaseEntry = spec.cases[told["index"]]
    return entry.resolved(told["size"]) if "size" in told else entry


def _measure(
    spec: WorkerSpec,
    session: Session,
    watch: HeartbeatFile,
    entry: CaseEntry,
    observer: Observer,
    log: NcclLog | None,
    readings: Readings,
) -> RankOutcome:
    """Measure one case, with what is observed before and after it."""
    rank = session.rank
    watch.set_word(rank, beat.CASE, entry.index + 1)
    watch.set_word(rank, beat.STATE, beat.STATE_MEASURING)
    ranks = rank_list(entry.case, spec.devices)
    place = ranks.index(rank) if rank in ranks else -1
    tells = tells_of_nics(spec.node_of, ranks, rank)
    classes = bool(entry.case.service_class)
    # Of a case's ranks on each node the first one looks at the node.
    node = tells or (place == 0 and len(set(spec.node_of)) < 2)
    observer.look("before", place, readings.before, nics=tells, priorities=classes, node=node)
    # Rank 0 of a communicator is the one whose NCCL tells.
    log = log if place == 0 and entry.case.transport == "ccl" else None
    if log is not None:
        log.begin()
    counted: list[tuple[str, Callable[[], list[Value]]]] = []
    if tells and entry.case.gpudirect:
        counted.append((peer_memory.SUBJECT, peer_memory.registrations))
    if spec.core_use and place >= 0:
        counted.append((CORES, core_wait))
    for subject, read in counted:
        observer.note("before", place, subject, read)
    outcome = session.measure(entry.case)
    for subject, read in reversed(counted):
        observer.note("after", place, subject, read)
    observer.look("after", place, readings.after, nics=tells, priorities=classes, node=node)
    if log is not None:
        observer.note("after", place, nccl_log.SUBJECT, functools.partial(log.choices, entry.case.pattern))
    outcome.observations += observer.taken()
    outcome.facts[OBSERVING] = observer.costs()
    watch.set_word(rank, beat.STATE, beat.STATE_IDLE)
    return outcome


def next_step(schedule: Schedule, watch: HeartbeatFile, recorder: Recorder) -> bytes:
    """What rank 0 tells all ranks to do next: as JSON the case's index, and size where that was open; or the end."""
    if watch.stop_requested:
        return b'{"ended": "stopped"}'
    entry = schedule.next(lambda one: recorder.exhausted(one.case), recorder.leave_out)
    if entry is None:
        return json.dumps({"ended": ENDED_BY_TIME if schedule.left else "done"}).encode()
    recorder.begin(entry)  # before any rank begins: what ends it then is this case's doing
    size = {"size": entry.case.size_requested} if entry.planned_key else {}
    return json.dumps({"index": entry.index, **size}).encode()


def _answers(spec: WorkerSpec, versions: dict[str, str]) -> dict[str, Answer]:
    """What this rank's libraries say of the launch's variables."""
    names = {name for which in ("env", "derived_env") for name in spec.launch_info.get(which) or ()}
    used = frozenset(job.transport for entry in spec.cases for job in entry.case.jobs)
    return answers_of(names, versions.get("MPI file", ""), versions.get("MPI library", ""), used) if names else {}


def _introduce(spec: WorkerSpec, session: Session, recorder: Recorder | None) -> Observer:
    rank = session.rank
    device: dict[str, Any] = {**session.describe(), "ordinal": spec.device_of(rank)}
    began_ns = time.monotonic_ns()
    reader, unread = open_reader(spec.runtime, device)
    opening_ns = time.monotonic_ns() - began_ns if reader is not None else 0
    mine = {
        "rank": rank,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "memory_node": device.get("numa_node", -1),
        "device": device,
    }
    # What could not be read is said once, by each rank for its device.
    refused = {"NVML": unread} if unread else reader.refused() if reader is not None else {}
    if refused:
        mine["not_observed"] = refused
    everyone = gathered(session.ranks, json.dumps(mine).encode(), keep=recorder is not None)
    if recorder is not None:
        facts = session.facts()
        versions = facts.get("versions", {})
        recorder.launch(everyone, facts.get("clock", {}), versions, _answers(spec, versions))
    # What ranks need to know of each other they ask of those on their node.
    place = [mine["host"], device["ordinal"]]
    beside = [json.loads(text) for text in session.ranks.on_node(json.dumps([rank, mine["pid"], place]).encode())]
    # Of several ranks on one device the first one looks.
    first = min(other for other, _, there in beside if there == place)
    if reader is not None:
        reader.own(pid for _, pid, there in beside if there[0] == mine["host"])
    node: list[tuple[str, str, Callable[[], list[Value]]]] = []
    if spec.core_use:
        node.append((NODE, CORES, CoreUse(pid for _, pid, there in beside if there[0] == mine["host"]).read))
    if quotas := Quotas():
        node.append((COUNTERS, CGROUP, functools.partial(quota_use, quotas)))
    if spec.runtime != "host" and (traffic := MemoryTraffic()):
        node.append((NODE, MEMORY, functools.partial(memory_use, traffic)))
    return Observer(
        reader if first == rank else None,
        NicCounters() if len(set(spec.node_of)) > 1 else None,
        node,
        opening_ns,
    )
