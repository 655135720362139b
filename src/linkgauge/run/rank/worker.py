"""One launch's ranks: `python -m linkgauge.run.rank.worker SPEC.json`, under mpiexec or as threads of one process.

Imports little (numpy, mpi4py, the core): many start at once. Every rank runs `run_rank`, which measures the spec's
cases one after the other; rank 0 appends each case's record to the journal before the next begins. A rank that cannot
go on leaves a note in the evidence folder and ends its process at once, so that the launcher ends the others.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import faulthandler
import functools
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from linkgauge.errors import LinkgaugeError
from linkgauge.files import temporary_folder
from linkgauge.model.case import Case
from linkgauge.plan.curves import LeftOut, Point
from linkgauge.run.machine import nccl_log, processes
from linkgauge.run.machine.nccl_log import NcclLog
from linkgauge.run.machine.observe import Observer, Value
from linkgauge.run.machine.private_folder import note_made
from linkgauge.run.machine.readers import open_reader
from linkgauge.run.rank import node_survivor, peer_memory
from linkgauge.run.rank.case_record import Rest, record_case, send_outcome, send_rest
from linkgauge.run.rank.gathering import gathered
from linkgauge.run.rank.node_counters import (
    CGROUP,
    CORES,
    MEMORY,
    CoreUse,
    NicCounters,
    memory_use,
    quota_use,
    tells_of_nics,
)
from linkgauge.run.rank.schedule import Schedule
from linkgauge.run.rank.session import Session, node_numbers, open_process_session, open_thread_sessions
from linkgauge.run.wire import evidence, token
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.evidence import NoteKind
from linkgauge.run.wire.heartbeat import HeartbeatFile
from linkgauge.run.wire.node_beats import BeatReporter, place_of
from linkgauge.run.wire.outcome import RankOutcome
from linkgauge.run.wire.spec import (
    BROKEN,
    ENDED_BY_TIME,
    CaseEntry,
    WorkerSpec,
    is_oversubscribed,
    rank_list,
    threads_of,
)
from linkgauge.store.journal import JournalDamage, JournalUnwritableError, JournalWriter
from linkgauge.system.allowance import Quotas, allowance
from linkgauge.system.resctrl import MemoryTraffic

EXIT_START = 70  # could not start: the note says why
EXIT_FATAL = 71  # ended itself after a failure that the journal holds
EXIT_JOURNAL = 74  # the journal could not be written


class Recorder:
    """Rank 0's pen: the records of one launch, in the journal."""

    def __init__(self, spec: WorkerSpec) -> None:
        """Open the launch's journal."""
        self._spec = spec
        self._journal = JournalWriter(spec.journal)
        self.failures = dict(spec.failures)

    def launch(self, ranks: Sequence[bytes], clock: dict[str, Any], versions: dict[str, Any]) -> None:
        """Who takes part, each as JSON, and under what."""
        refused = {}
        said = {}
        for text in ranks:  # one at a time: decoded they take ten times the memory
            one = json.loads(text)
            said[int(one["rank"])] = text
            if one.get("not_observed"):
                refused[int(one["rank"])] = (str(one["device"]["ordinal"]), one["not_observed"])
        header = {"launch": self._spec.launch, "launch_key": self._spec.launch_key, **self._spec.launch_info}
        header["versions"] = {**header.get("versions", {}), **versions}
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
        if status in BROKEN:
            transport = entry.case.transport
            self.failures[transport] = self.failures.get(transport, 0) + 1
        return point

    def end(self, reason: str) -> None:
        """The launch ends of its own accord."""
        self._journal.append("end", {"launch": self._spec.launch, "reason": reason})
        self._journal.close()

    def exhausted(self, case: Case) -> bool:
        """Whether so many cases of the transport have failed that the rest of it is left out."""
        return self.failures.get(case.transport, 0) >= self._spec.max_failures


def run_rank(spec: WorkerSpec, session: Session, rank: int, watch: HeartbeatFile) -> str:
    """Measure the spec's cases as one rank. Returns why the launch ended: done, stopped, or fatal.

    Collective: all ranks do what rank 0 says. It says which case is next, that what was left behind of the last one is
    to come, or that the launch ends; the others learn no more of each other than that.
    """
    recorder = Recorder(spec) if rank == 0 else None
    watch.set_word(rank, beat.STATE, beat.STATE_IDLE)
    observer = _introduce(spec, session, rank, recorder)
    if recorder is not None:
        ended = _lead(spec, session, watch, recorder, observer)
    else:
        ended = _follow(spec, session, rank, watch, observer)
    watch.set_word(rank, beat.STATE, beat.STATE_ENDED)
    return ended


def _lead(spec: WorkerSpec, session: Session, watch: HeartbeatFile, recorder: Recorder, observer: Observer) -> str:
    """Rank 0's part of `run_rank`."""
    schedule = Schedule(spec)
    log = NcclLog.from_environment(os.environ)
    while True:
        word = _next_step(schedule, watch, recorder)
        told = json.loads(word)
        if "ended" in told:
            session.ranks.tell(word)
            recorder.end(str(told["ended"]))
            return str(told["ended"])
        session.ranks.tell(word)
        entry = _told_entry(spec, told)
        own = _measure(spec, session, 0, watch, entry, observer, log)
        outcomes = send_outcome(session.ranks, own, spec.ranks, keep=True)

        def fetch(with_point: bool, own: RankOutcome = own, outcomes: list[RankOutcome] = outcomes) -> Rest:
            rest = Rest(session.ranks, own, outcomes, with_point)
            session.ranks.tell(json.dumps({"send": rest.asked}).encode())
            return rest

        schedule.ended(entry, recorder.case(entry, outcomes, fetch))
        if any(one.fatal for one in outcomes):
            recorder.end("fatal")  # before the others end, of which the launcher may make the end of all
            session.ranks.tell(b'{"ended": "fatal"}')
            return "fatal"


def _follow(spec: WorkerSpec, session: Session, rank: int, watch: HeartbeatFile, observer: Observer) -> str:
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
        outcome = _measure(spec, session, rank, watch, _told_entry(spec, told), observer, log)
        send_outcome(session.ranks, outcome, spec.ranks, keep=False)


def _told_entry(spec: WorkerSpec, told: dict[str, Any]) -> CaseEntry:
    entry: CaseEntry = spec.cases[told["index"]]
    return entry.resolved(told["size"]) if "size" in told else entry


def _measure(
    spec: WorkerSpec,
    session: Session,
    rank: int,
    watch: HeartbeatFile,
    entry: CaseEntry,
    observer: Observer,
    log: NcclLog | None,
) -> RankOutcome:
    """Measure one case, with what is observed before and after it."""
    watch.set_word(rank, beat.CASE, entry.index + 1)
    watch.set_word(rank, beat.STATE, beat.STATE_MEASURING)
    ranks = rank_list(entry.case, spec.devices)
    place = ranks.index(rank) if rank in ranks else -1
    tells = tells_of_nics(spec.node_of, ranks, rank)
    classes = bool(entry.case.service_class)
    # Of a case's ranks on each node the first one looks at the node.
    node = tells or (place == 0 and len(set(spec.node_of)) < 2)
    observer.look("before", place, nics=tells, priorities=classes, node=node)
    # Rank 0 of a communicator is the one whose NCCL tells.
    asks = log is not None and place == 0 and entry.case.transport == "ccl"
    if log is not None and asks:
        log.begin()
    registers = tells and bool(entry.case.gpudirect)
    if registers:
        observer.note("before", place, peer_memory.SUBJECT, peer_memory.registrations)
    outcome = session.measure(entry.case)
    if registers:
        observer.note("after", place, peer_memory.SUBJECT, peer_memory.registrations)
    observer.look("after", place, nics=tells, priorities=classes, node=node)
    if log is not None and asks:
        observer.note("after", place, nccl_log.SUBJECT, functools.partial(log.choices, entry.case.pattern))
    outcome.observations += observer.taken()
    watch.set_word(rank, beat.STATE, beat.STATE_IDLE)
    return outcome


def _next_step(schedule: Schedule, watch: HeartbeatFile, recorder: Recorder) -> bytes:
    """What rank 0 tells all ranks to do next: as JSON the case's index, and size where that was open; or the end."""
    if watch.stop_requested:
        return b'{"ended": "stopped"}'
    entry = schedule.next(lambda one: recorder.exhausted(one.case), recorder.leave_out)
    if entry is None:
        return json.dumps({"ended": ENDED_BY_TIME if schedule.left else "done"}).encode()
    recorder.begin(entry)  # before any rank begins: what ends it then is this case's doing
    size = {"size": entry.case.size_requested} if entry.planned_key else {}
    return json.dumps({"index": entry.index, **size}).encode()


def _introduce(spec: WorkerSpec, session: Session, rank: int, recorder: Recorder | None) -> Observer:
    device: dict[str, Any] = {**session.describe(), "ordinal": spec.device_of(rank)}
    reader, unread = open_reader(spec.runtime, device)
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
        recorder.launch(everyone, facts.get("clock", {}), facts.get("versions", {}))
    # What ranks need to know of each other they ask of those on their node.
    place = [mine["host"], device["ordinal"]]
    beside = [json.loads(text) for text in session.ranks.on_node(json.dumps([rank, mine["pid"], place]).encode())]
    # Of several ranks on one device the first one looks.
    first = min(other for other, _, there in beside if there == place)
    if reader is not None:
        reader.own(pid for _, pid, there in beside if there[0] == mine["host"])
    node: list[tuple[str, Callable[[], list[Value]]]] = []
    if spec.core_use:
        node.append((CORES, CoreUse(pid for _, pid, there in beside if there[0] == mine["host"]).read))
    if quotas := Quotas():
        node.append((CGROUP, functools.partial(quota_use, quotas)))
    if spec.runtime != "host" and (traffic := MemoryTraffic()):
        node.append((MEMORY, functools.partial(memory_use, traffic)))
    return Observer(
        reader if first == rank else None,
        NicCounters() if len(set(spec.node_of)) > 1 else None,
        node,
    )


def _note(spec: WorkerSpec, rank: int, reason: str, kind: NoteKind) -> None:
    """Leave word of why this rank ends, for the parent, and say it on stderr."""
    print(f"linkgauge worker: rank {rank}: {reason}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        path = Path(spec.evidence) / f"note-{rank}.json"
        path.write_text(json.dumps({"rank": rank, "pid": os.getpid(), "kind": kind, "reason": reason}))


def _end_now(status: int) -> NoReturn:
    # Not sys.exit: finalizing MPI or a device runtime waits for ranks that may never come.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _guarded(spec: WorkerSpec, rank: int, body: Callable[[], str]) -> str:
    """Run a rank's body; whatever it raises becomes a note and the end of the process."""
    try:
        return body()
    except (JournalUnwritableError, JournalDamage) as error:
        _note(spec, rank, str(error), NoteKind.JOURNAL)
        _end_now(EXIT_JOURNAL)
    except LinkgaugeError as error:
        _note(spec, rank, str(error), NoteKind.ERROR)
        _end_now(EXIT_START)
    except BaseException as error:
        _note(spec, rank, f"{type(error).__name__}: {error}", NoteKind.ERROR)
        if not isinstance(error, (RuntimeError, MemoryError, OSError)):
            import traceback

            traceback.print_exc()
        _end_now(EXIT_START)


def arm_evidence(spec: WorkerSpec) -> None:
    """Stacks of all threads go to a file of this process: on a fatal signal, and when the parent asks by SIGUSR1."""
    # On a node other than the parent's the launch's folders are not there: such a rank's stacks stay on its node.
    for folder in (os.environ.get("TMPDIR", ""), spec.evidence):
        if folder:
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = Path(spec.evidence) / f"stacks-{os.getpid()}.txt"
    file = path.open("w")
    faulthandler.enable(file=file, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=False)
    # The process ends with its parent, here the launcher's proxy: nothing measures for nobody.
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _spare_quota(spec: WorkerSpec, ranks: int) -> None:
    """Let waits sleep where this node's ranks, with their streams' threads, have less than a core each by quota.

    Who spins there spends what those need whom it waits for. An affinity is no quota: a yield gives the core to them.
    """
    quota = allowance().quota
    if quota is not None and quota.value < ranks * threads_of(spec.runtime):
        importlib.import_module("linkgauge._core").spare_quota()


def _bind(spec: WorkerSpec, rank: int) -> None:
    if spec.cores is not None and spec.cores[rank]:
        with contextlib.suppress(OSError):  # a core taken away since: the launch's record says what was got
            os.sched_setaffinity(0, spec.cores[rank])


def run_process(spec: WorkerSpec) -> None:
    """Be one rank under a launcher."""
    import mpi4py

    told = _set_environment(spec) if spec.job_env else None
    # One thread calls MPI. The level asked for counts: from `funneled` on Open MPI 4.1 takes half as long again at 8 B.
    mpi4py.rc.thread_level = spec.thread_level
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        _note(
            spec, -1, f"mpi4py cannot use {os.environ.get('MPI4PY_LIBMPI', 'its MPI library')}: {error}", NoteKind.START
        )
        _end_now(EXIT_START)
    evidence.say_segments(Path(spec.evidence))
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    if told not in (None, rank):
        _note(spec, rank, f"the launcher calls this rank {told}, the MPI library {rank}: no service class a job",
              NoteKind.START)  # fmt: skip
        _end_now(EXIT_START)
    if world.Get_size() != spec.ranks:
        shown = f"{spec.ranks} ranks were started, the MPI library shows {world.Get_size()}"
        fix = "launcher and library are of different installations; fix: --mpi PREFIX of one installation"
        _note(spec, rank, f"{shown}: {fix}", NoteKind.START)
        _end_now(EXIT_START)

    word = token.heard(world)
    if spec.lines and not word:
        _note(spec, rank, "the launcher passed no standard input on to rank 0, which names how to call the "
              "parent: leave out launcher arguments that say so (--launcher-args)", NoteKind.START)  # fmt: skip
        _end_now(EXIT_START)
    spec = dataclasses.replace(spec, token=word)

    def body() -> str:
        nodes = node_numbers(world)
        here, reported = _on_this_node(spec, world, nodes)
        watch = HeartbeatFile(Path(here.heartbeat), spec.ranks, create=False)
        watch.set_word(rank, beat.PID, os.getpid())
        if reported:  # before this thread is bound to cores, so that the reports take none of them
            BeatReporter(place_of(Path(spec.journal)), watch, reported, spec.token, NicCounters().crossed).start()
        _bind(spec, rank)
        _spare_quota(spec, sum(node == nodes[rank] for node in nodes) if nodes else spec.ranks)
        session = open_process_session(here, world, nodes, watch.rank_words(rank))
        evidence.say_segments(Path(spec.evidence))  # again: opening the session may have mapped more
        ended = run_rank(spec, session, rank, watch)
        if ended != "fatal":
            session.close()
        return ended

    ended = _guarded(spec, rank, body)
    if ended == "fatal":
        # Give rank 0 time to be seen ending first: its journal is complete.
        time.sleep(0.05 if rank else 0)
        _end_now(EXIT_FATAL)


def _set_environment(spec: WorkerSpec) -> int:
    """Set what this rank's job is told, which libraries read when they start. Returns the rank by the launcher."""
    from linkgauge.run.launchers import started_by

    started = started_by(os.environ)
    if started is None:
        _note(spec, -1, "the launcher tells ranks no number, by which jobs get their service classes", NoteKind.START)
        _end_now(EXIT_START)
    os.environ.update(spec.env_of(int(started[1])))
    return int(started[1])


def _on_this_node(spec: WorkerSpec, world: Any, nodes: Sequence[int]) -> tuple[WorkerSpec, tuple[int, ...]]:
    """The spec with this node's own folder for segments: on nodes other than the parent's its first rank makes one.

    And for that rank the node's ranks, of whose heartbeats it is to tell the parent; else none. `nodes`: of each rank
    the number of its node. Collective.
    """
    mine = nodes[world.Get_rank()]
    first, *others = (rank for rank, node in enumerate(nodes) if node == mine)
    if world.Get_rank() != first:
        said = str(world.recv(source=first))
        made = ""
    else:
        made = ""
        if not Path(spec.heartbeat).exists():
            base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(temporary_folder())
            made = tempfile.mkdtemp(prefix="linkgauge-", dir=base)
            note_made(made)
            HeartbeatFile(Path(made) / "heartbeat", spec.ranks, create=True)
            atexit.register(shutil.rmtree, made, ignore_errors=True)
        said = made
        for other in others:
            world.send(made, dest=other)
    if not said:
        return spec, ()
    there = dataclasses.replace(spec, folder=said, heartbeat=str(Path(said) / "heartbeat"))
    return there, (first, *others) if made else ()


def run_threads(spec: WorkerSpec) -> None:
    """Be all ranks, one a thread of this process; without MPI."""
    watch = HeartbeatFile(Path(spec.heartbeat), spec.ranks, create=False)
    spec = dataclasses.replace(spec, token=token.heard())
    _spare_quota(spec, spec.ranks)
    sessions = open_thread_sessions(spec, [watch.rank_words(rank) for rank in range(spec.ranks)])
    ends = [""] * spec.ranks

    def one(rank: int) -> None:
        def body() -> str:
            watch.set_word(rank, beat.PID, os.getpid())
            _bind(spec, rank)  # of this thread: Linux binds threads, not processes
            return run_rank(spec, sessions[rank], rank, watch)

        ends[rank] = _guarded(spec, rank, body)

    threads = [threading.Thread(target=one, args=(rank,), name=f"rank {rank}") for rank in range(spec.ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "fatal" in ends:
        _end_now(EXIT_FATAL)
    for session in sessions:
        session.close()


def main() -> None:
    """Entry point of a worker."""
    # Ctrl-C reaches the whole process group of a terminal; only the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        spec = WorkerSpec.read(Path(sys.argv[1]))
    except FileNotFoundError:
        node = socket.gethostname()
        sys.exit(f"linkgauge worker: {node} does not see {sys.argv[1]}: expected a run folder on what all nodes share")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"linkgauge worker: cannot read {sys.argv[1]}: {error}")
    arm_evidence(spec)
    if spec.mode == "processes" and not Path(spec.heartbeat).exists():  # on another node than the parent's
        node_survivor.claim(Path(os.environ.get("TMPDIR", "")), os.environ.get(processes.MARK, ""))
    if spec.mode == "threads":
        run_threads(spec)
    else:
        run_process(spec)


if __name__ == "__main__":
    main()
