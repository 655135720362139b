"""The parent's eye on one launch: its journal and heartbeats, and what to make of them.

`LaunchWatch` never writes to what it watches but the stop request. It decides by the rules of docs/definitions.md,
Status: hung, timeout (the parent's backstop; the ranks end a slow case themselves), crashed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from linkgauge.model.case import Case
from linkgauge.plan.estimate import case_s, longest_sample_s
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.parent.crossing_watch import CrossingWatch
from linkgauge.run.wire.heartbeat import PHASE, PHASE_NAMES, HeartbeatFile
from linkgauge.run.wire.spec import CaseEntry, entry_of, rank_list
from linkgauge.store.journal import Record, read_journal

HUNG_AFTER_S = 10.0
HUNG_AFTER_SAMPLES = 20
CHECKING = 2  # times the rule's time, in which further checks end: the last round of them may be twice as slow
_LOOKED_INTO_S = 1.0  # without a heartbeat: whether bytes cross, which takes a step a rank to find
_START_PATIENCE_S = 60.0
SETUP_S = 20.0  # buffers, handles and checks beside what is timed, before the backstop counts
# Preparing a case on GPUs may compile all kernels, load NCCL and connect its communicator: taken as a sample this long.
GPU_PREPARE_S = 4.0
END_PATIENCE_S = 15.0
# Kernels that are linked with a library's device code: seconds of a core, once, tens of them on a busy one, and no part
# of the case's own time.
COMPILE_PATIENCE_S = 600.0


@dataclasses.dataclass(frozen=True)
class Trouble:
    """A launch that must be ended: `status` of the case in hand, and why."""

    status: str  # hung | timeout | crashed
    reason: str
    ranks: tuple[int, ...] = ()  # whose it is, where that is sure


@dataclasses.dataclass
class Patience:
    """How long the case in hand may go without a heartbeat, and in all, in seconds."""

    quiet_s: float
    total_s: float


def patience_for(case: Case, machine: PlanMachine, longest_seen_s: float, hung_after_s: float) -> Patience:
    """Limits of one case: quiet for the longer of 10 s and 20 times the longest sample, seen or estimated.

    Preparing and checking raise no heartbeat within them, so their estimate counts as a sample. The total is what the
    core gives a case with few samples, twice the rule's time more where that bounds further checks, and what preparing
    and checking may take.
    """
    from linkgauge._core import FEW_SAMPLES  # here: commands that measure nothing do without

    outside = case_s(case, machine) - min(case.stop.time_ns / 1e9, case_s(case, machine))
    longest = max(longest_sample_s(case, machine), longest_seen_s, outside / 4)
    quiet = max(hung_after_s, HUNG_AFTER_SAMPLES * longest)
    rules = (FEW_SAMPLES + (CHECKING if case.checks else 0)) * case.stop.time_ns / 1e9
    return Patience(quiet, rules + longest + SETUP_S + 5 * outside + hung_after_s)


@dataclasses.dataclass
class LaunchWatch:
    """Follows one launch, which starts now, through its journal and heartbeats. `entries` by their keys."""

    journal: Path
    heartbeat: HeartbeatFile
    entries: dict[tuple[str, int], CaseEntry]
    machine: PlanMachine
    hung_after_s: float = HUNG_AFTER_S
    devices: tuple[int, ...] = ()  # of each rank
    waits: Callable[[], bool] = lambda: False
    """Whether the case in hand waits for another launch, whose own watch says for how long."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self._offset = 0
        self._size = -1
        self._beats = b""
        self._moved_at = self._began_at = self._looked_at = self.clock()
        self._longest_gap_s = 0.0
        self._crossing = CrossingWatch()
        self.compiled_s = 0.0  # spent making kernels, of this launch
        self.in_hand: CaseEntry | None = None
        self.launch_record: dict[str, Any] | None = None
        self.ended = ""  # the reason of the `end` record
        self.ended_at = 0.0

    def new_records(self) -> list[Record]:
        """What the journal holds since the last call; keeps track of the case in hand. Cheap where nothing is new."""
        try:
            size = self.journal.stat().st_size
        except OSError:
            return []
        if size == self._size:
            return []
        self._size = size
        records = []
        for record in read_journal(self.journal, self._offset, damaged=[]):
            self._offset = record.end_offset
            self._take(record)
            records.append(record)
        return records

    def _take(self, record: Record) -> None:
        now = self.clock()
        if record.kind == "launch":
            self.launch_record = record.header
        elif record.kind == "begin":
            self.in_hand = entry_of(self.entries, record.header)
            self._began_at = self._moved_at = now
            self._longest_gap_s = 0.0
        elif record.kind == "case":
            self.in_hand = None
            self._moved_at = now
        elif record.kind == "end":
            self.ended = str(record.header.get("reason", "done"))
            self.ended_at = now

    def trouble(self, unheard: Set[int] = frozenset()) -> Trouble | None:
        """What is wrong with the launch as it stands; None while there is nothing.

        `unheard`: ranks whose heartbeats cannot be seen. Their silence means nothing: a case with one of them is ended
        by its time alone.
        """
        now = self.clock()
        # Of what passed since the last look, what is of the case in hand.
        spent, self._looked_at = now - max(self._looked_at, self._began_at), now
        compiles = self._any_in("compile") and self.compiled_s < COMPILE_PATIENCE_S
        if compiles:
            self.compiled_s += spent
        if compiles or (self.in_hand is not None and self.waits()):
            self._began_at += spent
            self._moved_at = now
        beats = self.heartbeat.beats()
        if beats != self._beats:
            self._longest_gap_s = max(self._longest_gap_s, now - self._moved_at) if self._beats else 0.0
            self._beats, self._moved_at = beats, now
            self._crossing.beat()
        quiet = now - self._moved_at
        if self.launch_record is None:
            if now - self._began_at > _START_PATIENCE_S:
                return Trouble("hung", f"the ranks did not come together within {_START_PATIENCE_S:g} s")
            return None
        if self.ended:
            if now - self.ended_at > END_PATIENCE_S:
                return Trouble("hung", f"the launch did not end within {END_PATIENCE_S:g} s of its last case")
            return None
        if self.in_hand is None:
            limit = 2 * self.hung_after_s
            return Trouble("hung", f"no rank began a case within {limit:g} s") if quiet > limit else None
        longest = max(self._longest_gap_s, GPU_PREPARE_S if self._prepares_gpus() else 0.0)
        limits = patience_for(self.in_hand.case, self.machine, longest, self.hung_after_s)
        ranks = rank_list(self.in_hand.case, self.devices) if unheard or quiet > _LOOKED_INTO_S else []
        if quiet > _LOOKED_INTO_S:
            quiet = min(quiet, now - self._crossing.moved_at(self.in_hand.case, self.heartbeat.crossed(ranks), now))
        silent = sorted(unheard & set(ranks))
        if quiet > limits.quiet_s and not silent:
            return Trouble(
                "hung", f"no rank's heartbeat moved for {quiet:.1f} s (the limit was {limits.quiet_s:.1f} s)"
            )
        if now - self._began_at > limits.total_s:
            words = f"took {now - self._began_at:.1f} s, longer than its limit of {limits.total_s:.1f} s"
            if silent:
                whose = f"rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
                words += f"; no heartbeat of {whose} came here, from another node by TCP, to tell slow from hung"
            return Trouble("timeout", words, tuple(silent))
        return None

    def _prepares_gpus(self) -> bool:
        return self.machine.kind != "host" and self._any_in("prepare")

    def _any_in(self, phase: str) -> bool:
        return bool((self.heartbeat.words()[:, PHASE] == PHASE_NAMES.index(phase)).any())
