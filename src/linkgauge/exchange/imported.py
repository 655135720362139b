"""What importers make of a log, and how it becomes a run folder that says where it came from."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.model.case import Case, StopRule
from linkgauge.model.patterns import PATTERNS, pattern
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter

MOST_RANKS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Hints:
    """What the user says of logs that do not say it themselves. Sizes in bytes."""

    ranks: int | None = None
    pattern: str | None = None
    transport: str | None = None
    size_bytes: int | None = None
    window: int | None = None


@dataclasses.dataclass(frozen=True)
class ImportedCase:
    """One case of a log. `intervals` holds (ns, iterations): what the tool's clock gave, and over how many operations.

    A tool that gives one figure over all ranks gives one series; nothing is made up for the single ranks.
    """

    case: Case
    intervals: tuple[tuple[float, int], ...]
    wrong: str = ""  # what is wrong with its data
    verified: bool | None = None
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)
    operations: int | None = None  # how many were timed, where the log says it


@dataclasses.dataclass
class ImportedLog:
    """All that was understood of one log, and each line that was not."""

    tool: str
    file: str
    cases: list[ImportedCase] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    ranks: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def add(self, line: int, one: ImportedCase) -> None:
        """Take a case, or note why a run folder cannot hold it: what is stored has 63 bits, ranks have 20."""
        numbers = [one.case.size, one.case.window, one.case.batch, one.case.warmup, one.operations or 0]
        numbers += [count for _, count in one.intervals]
        ranks, root, name = one.case.ranks, one.case.root, one.case.pattern
        if not 0 < ranks <= MOST_RANKS or root >= ranks or not PATTERNS[name].takes(ranks):
            self.problem(line, f"no case: a {name} of {ranks} ranks, root {root}")
        elif any(not 0 <= number < 1 << 62 for number in numbers):
            self.problem(line, "no case: a number beyond what is stored")
        elif any(not 0 <= time < 2.0**62 for time, _ in one.intervals):
            self.problem(line, "no case: a time beyond what is stored")
        else:
            self.cases.append(one)

    def problem(self, line: int, what: str) -> None:
        """Note that something of the log was left out, and why."""
        self.problems.append(f"{self.file}:{line}: {what}")


def restated(pattern_name: str, total_bytes: int, ranks: int) -> int | None:
    """Return m for a total over n blocks: the total, or for alltoall the block; None where it does not divide."""
    if pattern_name == "alltoall":
        return total_bytes // ranks if total_bytes % ranks == 0 else None
    return total_bytes


def make_case(transport: str, pattern_name: str, size: int, ranks: Sequence[int], **dimensions: Any) -> Case:
    """Return the case of an imported figure; its stop rule is one count, since nothing is known of another."""
    dimensions.setdefault("stop", StopRule(rule="count", samples=1))
    dimensions.setdefault("verify", "final")
    return Case(
        transport=transport, pattern=pattern_name, size=size, size_asked=size, devices=tuple(ranks), **dimensions
    )


def write_run(path: Path, logs: Sequence[ImportedLog]) -> int:
    """Write a run folder of imported logs, a launch each, and return how many cases it has. UsageError if it exists."""
    tools = sorted({log.tool for log in logs})
    origin = {"imported": True, "tools": tools, "files": [log.file for log in logs]}
    folder = RunFolder.create(path, {"origin": origin, "versions": {}, "asked": {"command": "linkgauge import"}})
    count = 0
    for launch, log in enumerate(logs):
        seen: dict[str, int] = {}
        key = hashlib.sha256(repr((log.tool, sorted(log.versions.items()))).encode()).hexdigest()[:16]
        with JournalWriter(folder.journal_path(launch)) as journal:
            header = {"launch": launch, "launch_key": key, "versions": log.versions, "ranks": log.ranks}
            journal.append("launch", header | {"mpi": {}, "env": {}, "clock": {}, "tool": log.tool, "file": log.file})
            for one in log.cases:
                repeat = seen[one.case.case_key] = seen.get(one.case.case_key, -1) + 1
                identity = {"case_key": one.case.case_key, "launch": launch, "repeat": repeat, "attempt": 0}
                status = "corrupt" if one.wrong else "ok"
                told = identity | {"case": one.case.dimensions(), "status": status, "reason": one.wrong}
                journal.append("case", told | _facts(one), _columns(one), durable=False)
                folder.status_journal().append("status", told, durable=False)
                count += 1
            journal.append("end", {"launch": launch})
    folder.compact(finish=True)
    folder.close()
    return count


def _facts(one: ImportedCase) -> dict[str, Any]:
    info = pattern(one.case.pattern)
    m, n, w = one.case.size, one.case.ranks, one.case.window
    return {
        "lanes": ["0->1", "1->0"] if _lanes(one.case) == 2 else [""],
        "bytes_per_peer": int(info.bytes_per_peer(m, n, w)),
        "bytes_total": int(info.bytes_total(m, n, w)),
        "verified": False if one.wrong else one.verified,
        "operations_total": one.operations,
        "evidence": one.evidence,
    }


def _lanes(case: Case) -> int:
    """Return how many lanes a case has; what one device does both ways at once is one."""
    return 2 if PATTERNS[case.pattern].both_ways and case.ranks == 2 else 1


def _columns(one: ImportedCase) -> dict[str, np.ndarray[Any, Any]]:
    """Return the sample columns: of a bidirectional case the one figure that is known for both lanes."""
    info = pattern(one.case.pattern)
    lanes = _lanes(one.case)
    keeper = one.case.root if info.timekeeper == "root" else 0
    count = len(one.intervals)
    ns = np.array([max(1, round(time)) for time, _ in one.intervals], np.int64)
    zeros = np.zeros(count * lanes, np.int64)
    return {
        "rank": np.repeat(np.arange(lanes, dtype=np.int32), count) + np.int32(keeper),
        "lane": np.repeat(np.arange(lanes, dtype=np.int16), count),
        "sample": np.tile(np.arange(count, dtype=np.int32), lanes),
        "phase": np.ones(count * lanes, np.uint8),
        "scheduled_ns": zeros,
        "start_ns": zeros,
        "ns": np.tile(ns, lanes),
        "iterations": np.tile(np.array([iterations for _, iterations in one.intervals], np.int64), lanes),
        "clock": np.full(count * lanes, one.case.clock == "event", np.uint8),
    }
