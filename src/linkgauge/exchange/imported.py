"""What importers make of a log, and how it becomes a run folder that says where it came from."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.exchange.numbering import number_devices
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS, pattern
from linkgauge.model.stop_rule import StopRule
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter

MOST_RANKS = 1 << 20
_LONGEST = 600  # characters of what is said of a line, which may quote it


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
class ImportedTable:
    """One table of a log, which stands alone: its own tool, versions, ranks and cases.

    `ranks`: what the log says of each rank; cases name their devices by the entry's `rank` here, and `write_run` gives
    these the numbers of the run. Empty where the log says nothing of them.
    """

    log: ImportedLog
    tool: str
    versions: dict[str, str]
    ranks: list[dict[str, Any]]
    cases: list[ImportedCase] = dataclasses.field(default_factory=list)

    def add(self, line: int, one: ImportedCase) -> None:
        """Take a case, or note why a run folder cannot hold it: what is stored has 63 bits, ranks have 20."""
        numbers = [one.case.size, one.case.window, one.case.batch, one.case.warmup, one.operations or 0]
        numbers += [count for _, count in one.intervals]
        ranks, root, name = one.case.ranks, one.case.root, one.case.pattern
        if not 0 < ranks <= MOST_RANKS or root >= ranks or not PATTERNS[name].takes(ranks):
            self.log.problem(line, f"no case: a {name} of {ranks} ranks, root {root}")
        elif any(not 0 <= number < 1 << 62 for number in numbers):
            self.log.problem(line, "no case: a number beyond what is stored")
        elif any(not 0 <= time < 2.0**62 for time, _ in one.intervals):
            self.log.problem(line, "no case: a time beyond what is stored")
        else:
            self.cases.append(one)


@dataclasses.dataclass(frozen=True)
class Call:
    """A collective as one rank of a running job recorded it. `size`: our m; `group`: what its ranks share."""

    line: int
    tool: str
    group: str
    number: int  # which of the group's
    rank: int
    ranks: int
    pattern: str
    size: int
    ns: float
    host: str = ""
    pid: int = 0
    datatype: str = ""


@dataclasses.dataclass
class ImportedLog:
    """All that was understood of one log, a table each, and each line that was not.

    `left_out` counts the lines, cells or results that `problems` are about; `notes` say what was taken as what. `calls`
    are one rank's records of a job, which become cases together with the other ranks' (`jobs.join`).
    """

    file: str
    _: dataclasses.KW_ONLY
    own: bool = False  # of a program that Linkgauge started itself
    tables: list[ImportedTable] = dataclasses.field(default_factory=list)
    found_wrong: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    left_out: int = 0
    calls: list[Call] = dataclasses.field(default_factory=list)

    def table(
        self, tool: str, versions: Mapping[str, str] | None = None, ranks: Sequence[Mapping[str, Any]] = ()
    ) -> ImportedTable:
        """Begin a table."""
        self.tables.append(ImportedTable(self, tool, dict(versions or {}), [dict(rank) for rank in ranks]))
        return self.tables[-1]

    @property
    def cases(self) -> list[ImportedCase]:
        """The cases of all tables."""
        return [one for table in self.tables for one in table.cases]

    @property
    def versions(self) -> dict[str, str]:
        """What the first table says of each version."""
        found: dict[str, str] = {}
        for table in self.tables:
            found = table.versions | found
        return found

    def problem(self, line: int, what: str, lines: int = 1) -> None:
        """Note that something of the log, so many lines, was left out, and why."""
        self.left_out += lines
        self.found_wrong.append((line, what[:_LONGEST]))

    @property
    def problems(self) -> list[str]:
        """What was left out and why, in the order of the log's lines."""
        return [f"{self.file}:{line}: {what}" for line, what in sorted(self.found_wrong, key=lambda one: one[0])]

    def note(self, line: int, what: str) -> None:
        """Note how something of the log was taken, which is in the run all the same."""
        self.notes.append(f"{self.file}:{line}: {what[:_LONGEST]}")


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
        transport=transport, pattern=pattern_name, size=size, size_requested=size, devices=tuple(ranks), **dimensions
    )


def write_run(
    path: Path,
    logs: Sequence[ImportedLog],
    system: Mapping[str, Any] | None = None,
    machine: Mapping[str, str] | None = None,
) -> int:
    """Write a run folder of imported logs, and return how many cases it has. UsageError if it exists.

    `machine`: what is known of why it is of this system, for run.json's `origin`.

    A launch is the tables of a log, one after the other, of the same tool, versions and ranks.
    """
    tables = [(log, table) for log in logs for table in log.tables if table.cases]
    tools = sorted({table.tool for _, table in tables})
    origin = {"imported": True, "tools": tools, "files": [log.file for log in logs], **(machine or {})}
    info = {"origin": origin, "versions": {}, "requested": {"command": "linkgauge import"}}
    folder = RunFolder.create(path, info | ({"system": system} if system is not None else {}))
    numbered = number_devices([table.ranks for _, table in tables])
    launches = itertools.groupby(zip(tables, numbered, strict=True), key=lambda one: _launch_of(*one[0]))
    count = 0
    for launch, (_, members) in enumerate(launches):
        some = list(members)
        (log, first), devices = some[0]
        seen: dict[str, int] = {}
        key = hashlib.sha256(repr((first.tool, sorted(first.versions.items()))).encode()).hexdigest()[:16]
        with JournalWriter(folder.journal_path(launch)) as journal:
            header = {"launch": launch, "launch_key": key, "versions": first.versions, "ranks": devices.ranks}
            header |= {"places": devices.places} if devices.places else {}
            journal.append("launch", header | {"mpi": {}, "env": {}, "clock": {}, "tool": first.tool, "file": log.file})
            for imported in (one for (_, table), _ in some for one in table.cases):
                one = dataclasses.replace(imported, case=devices.of_run(imported.case))
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


def _launch_of(log: ImportedLog, table: ImportedTable) -> tuple[object, ...]:
    return id(log), table.tool, sorted(table.versions.items()), table.ranks


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
