"""How a launch ended, and whose doing that was where loads ran beside the measured job.

Launchers that can leave the others of such a launch alone when a rank dies, so that it is known whose rank it was.
"""

from __future__ import annotations

import dataclasses
import os
import select
from collections.abc import Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.run.machine import processes
from linkgauge.run.wire import evidence
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.kept_samples import kept
from linkgauge.run.wire.outcome import case_header, joined_samples
from linkgauge.run.wire.spec import CaseEntry, WorkerSpec, job_ranks
from linkgauge.store.journal import JournalWriter


@dataclasses.dataclass
class LaunchEnd:
    """How a launch ended.

    `status` is empty where the ranks ended of their own accord (`ended`: done, stopped, fatal) or were aborted. Else it
    is the status of `blamed`, the case in hand, with reason and evidence; None where they ended between two cases or,
    with `started` false, never came together.
    """

    started: bool
    ended: str = ""
    status: str = ""
    blamed: CaseEntry | None = None
    reason: str = ""
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)
    rank: int | None = None  # whose node's failure it is, where that is sure
    cannot_record: str = ""  # the journal could not be written: why

    @property
    def start_problem(self) -> str:
        """Why it could not be run, with its last words."""
        said = self.last_words
        reason = self.reason or "no case was begun"
        return reason + (f"; its last words: {said}" if said and said not in reason else "")

    @property
    def last_words(self) -> str:
        """Empty where a rank could say why, which is the reason then: what is printed after it is of others' end."""
        return "" if self.evidence.get("notes") else evidence.last_words(self.evidence.get("output") or [])


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
    if told is None and end.evidence.get("signal") not in evidence.ENDS_OTHERS:
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
    outcomes = kept(spec, entry.case)
    if outcomes:
        outcomes[0].reason = reason
        header = {**spec.identity(entry), **case_header(entry.case, outcomes, oversubscribed)}
        with JournalWriter(spec.journal) as journal:
            journal.append("case", header, joined_samples(outcomes))
    return dataclasses.replace(end, status="disturbed", reason=reason)
