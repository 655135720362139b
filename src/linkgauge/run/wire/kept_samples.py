"""What a case beside loads of its own launch keeps when one of them takes the launch along, and whose doing that was.

A rank of the measured job adds its samples to a file beside the journal after each round, with the loads at rest or
about to be; where the run folder is shared, also from other nodes. When a load's rank has hung or died, so that the
launch had to end, the parent makes the case's record of them. Launchers that can leave the others of such a launch
alone when a rank dies, so that it is known whose rank it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.run.machine import processes
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.evidence import ENDS_OTHERS
from linkgauge.run.wire.outcome import RankOutcome, case_header, joined_samples
from linkgauge.run.wire.spec import WorkerSpec, job_ranks
from linkgauge.store.journal import JournalWriter

if TYPE_CHECKING:
    from linkgauge.run.parent.launch import LaunchEnd

_SAMPLE = np.dtype([  # core/measure/sampler.h, Sample
    ("scheduled_ns", "<i8"), ("start_ns", "<i8"), ("ns", "<i8"), ("iterations", "<i8"), ("sample", "<i4"),
    ("lane", "<i2"), ("phase", "|u1"), ("clock", "|u1")])  # fmt: skip


class KeptSamples:
    """A rank's file of the case in hand, as the core takes it."""

    def __init__(self, spec: WorkerSpec, case: Case, rank: int) -> None:
        """Make it, where the rank is of the measured job and loads are beside it; where it cannot be, none is kept."""
        self._file = -1
        if case.background.within and rank in job_ranks(case, spec.devices)[0]:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                self._file = os.open(_path(spec, rank), flags, 0o600)

    def fields(self) -> dict[str, Any]:
        """What of it the core's case has."""
        return {"kept": self._file} if self._file >= 0 else {}

    def close(self) -> None:
        """Close it; its bytes stay until the next case, or the launch's end."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _path(spec: WorkerSpec, rank: int) -> Path:
    return Path(spec.journal).with_suffix(f".kept{rank}")


def forget(spec: WorkerSpec) -> None:
    """Remove the files of a launch that is over."""
    journal = Path(spec.journal)
    for path in journal.parent.glob(f"{journal.stem}.kept*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _kept(spec: WorkerSpec, case: Case) -> list[RankOutcome]:
    """What the ranks of the measured job have kept: the samples that all of them have."""
    found = []
    for place, rank in enumerate(job_ranks(case, spec.devices)[0]):
        data = b""
        with contextlib.suppress(OSError):
            data = _path(spec, rank).read_bytes()
        found.append((place, rank, np.frombuffer(data, _SAMPLE, len(data) // _SAMPLE.itemsize)))
    numbers = [rows["phase"].astype(np.int64) << 32 | rows["sample"] for _, _, rows in found]
    timed = [one for one in numbers if one.size]  # not every rank keeps time
    if not timed:
        return []
    whole = functools.reduce(np.intersect1d, timed)
    outcomes = []
    for (place, rank, rows), number in zip(found, numbers, strict=True):
        told = np.isin(number, whole)
        samples = {name: np.ascontiguousarray(rows[told][name]) for name in _SAMPLE.names or ()}
        samples["rank"] = np.full(int(told.sum()), place, np.int32)
        outcomes.append(RankOutcome(rank, "disturbed", samples=samples))
    return outcomes


class FirstEnd:
    """Which rank of a launch ended first, of those on this machine, where that is sure."""

    def __init__(self) -> None:
        """Nobody is watched yet."""
        self._ends = select.epoll()
        self._ranks: dict[int, tuple[int, int]] = {}  # by the descriptor of its process: rank and process id
        self.rank: int | None = None

    @property
    def file(self) -> int:
        """What can be polled for the first end."""
        return self._ends.fileno()

    def watch(self, heartbeat: beat.HeartbeatFile) -> None:
        """Watch all ranks that have said their process ids; none where one cannot be."""
        try:
            for rank in sorted(heartbeat.known()):
                pid = heartbeat.word(rank, beat.PID)
                descriptor = os.pidfd_open(pid)
                self._ranks[descriptor] = (rank, pid)
                self._ends.register(descriptor, select.EPOLLIN)
        except OSError:
            self._forget()

    def look(self) -> None:
        """See whether one has ended. Only where all others live is it known that it was the first.

        Launchers end the others within a millisecond, as soon as the files of the first are closed: others' ends, or
        what leads to them, may be seen before it is quite gone.
        """
        ended = self._ends.poll(0) if self._ranks else []
        if not ended:
            return
        (first, _), *more = (self._ranks[descriptor] for descriptor, _ in ended)
        if not more and not any(processes.is_exiting(pid) for rank, pid in self._ranks.values() if rank != first):
            self.rank = first
        self._forget()

    def _forget(self) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._ranks.clear()

    def close(self) -> None:
        """Watch no one any more."""
        self._forget()
        self._ends.close()


def stuck_load(case: Case, rank_devices: tuple[int, ...], words: Sequence[np.ndarray[Any, Any]]) -> int:
    """The load for which the measured job waits in vain; 0: it does not, or for no load of its launch.

    `words`: of all ranks, as heartbeat.words() had them, some time apart.
    """
    measured, *loads = job_ranks(case, rank_devices)
    others = beat.PHASE_NAMES.index("other jobs")
    waits = [bool((one[measured][:, beat.PHASE] == others).all()) for one in words]
    if not all(waits):
        return 0
    first, last = words[0], words[-1]
    for number, ranks in enumerate(loads, 1):
        for rank in ranks:
            still = first[rank][beat.COUNT] == last[rank][beat.COUNT]
            if still and last[rank][beat.PHASE] not in (others, beat.PHASE_NAMES.index("none")):
                return number
    return 0


def load_to_blame(end: LaunchEnd, case: Case, rank_devices: tuple[int, ...]) -> int:
    """The load whose rank is known to be why a launch ended in this case; 0: none is.

    The first end that was seen tells; else, of ranks on other nodes too, the launcher, but of a signal by which it ends
    the others itself. Where both are there they may differ: MPICH's Hydra was seen to name another rank of the node.
    """
    if end.status in ("hung", "timeout"):
        return int(end.evidence.get("stuck_load", 0))
    if end.status != "crashed":
        return 0
    told = end.evidence.get("first_rank")
    if told is None and end.evidence.get("signal") not in ENDS_OTHERS:
        told = end.evidence.get("told_rank", next((note["rank"] for note in end.evidence.get("notes", ())), None))
    return next((number for number, ranks in enumerate(job_ranks(case, rank_devices)) if told in ranks), 0)


def told_as_the_loads(end: LaunchEnd, spec: WorkerSpec, oversubscribed: bool) -> LaunchEnd:
    """The end of a launch in a case that one of its loads broke: `disturbed`, by that load; else as it is.

    What the measured job has kept is then the case's record, in the launch's journal.
    """
    entry = end.blamed
    number = 0 if entry is None else load_to_blame(end, entry.case, spec.devices)
    if entry is None or not number:
        return end
    reason = f"load {number} ({entry.case.background.each[number - 1].text}): {end.reason}"
    outcomes = _kept(spec, entry.case)
    if outcomes:
        outcomes[0].reason = reason
        header = {**spec.identity(entry), **case_header(entry.case, outcomes, oversubscribed)}
        with JournalWriter(spec.journal) as journal:
            journal.append("case", header, joined_samples(outcomes))
    return dataclasses.replace(end, status="disturbed", reason=reason)
