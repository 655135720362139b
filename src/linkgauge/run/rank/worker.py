"""One launch's ranks: `python -m linkgauge.run.rank.worker SPEC.json`, under mpiexec or as threads of one process.

Imports little (numpy, mpi4py, the core): many start at once. Every rank runs `run_rank` (run/rank/measuring.py). A
rank that cannot go on leaves a note in the evidence folder and ends its process at once, so that the launcher ends the
others.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import faulthandler
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
from linkgauge.run.machine import processes
from linkgauge.run.machine.private_folder import note_made
from linkgauge.run.rank import node_survivor
from linkgauge.run.rank.measuring import run_rank
from linkgauge.run.rank.node_counters import NicCounters
from linkgauge.run.rank.session import node_numbers, open_process_session, open_thread_sessions
from linkgauge.run.wire import evidence, token
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.evidence import NoteKind
from linkgauge.run.wire.heartbeat import HeartbeatFile
from linkgauge.run.wire.node_beats import BeatReporter, place_of
from linkgauge.run.wire.spec import WorkerSpec, threads_of
from linkgauge.store.journal import JournalDamage, JournalUnwritableError
from linkgauge.system.allowance import allowance

EXIT_START = 70  # could not start: the note says why
EXIT_FATAL = 71  # ended itself after a failure that the journal holds
EXIT_JOURNAL = 74  # the journal could not be written


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
        ended = run_rank(spec, session, watch)
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
        _note(spec, -1, "the launcher gives ranks no number, by which jobs get their service classes", NoteKind.START)
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
    made = ""
    if world.Get_rank() != first:
        said = str(world.recv(source=first))
    else:
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
            return run_rank(spec, sessions[rank], watch)

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
