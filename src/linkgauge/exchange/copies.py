"""Copies between devices, and between a device and its host's memory, as cases: for all tools that copy.

Their figures are rates in GB/s (10^9 B/s), in a matrix or a row each.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from linkgauge.exchange.imported import ImportedCase, ImportedLog, ImportedTable, make_case
from linkgauge.model.log_text import Line, number_of
from linkgauge.model.patterns import PATTERNS

MOST_DEVICES = 256
"""Columns of a matrix: each cell is a case."""


class Place(NamedTuple):
    """An end of a copy: the memory of a device, or of a host's NUMA node (-1: the one near the device)."""

    host: bool
    number: int


def pattern_of(source: Place, target: Place, ways: int) -> str:
    """The pattern of a copy, one way or both ways at once; empty where none is of it."""
    if source.host and target.host:
        return ""
    if source.host or target.host:
        return "host_device_bidirectional" if ways == 2 else "host_to_device" if source.host else "device_to_host"
    if source == target:
        return "local_copy" if ways == 1 else ""
    return "bidirectional" if ways == 2 else "unidirectional"


@dataclasses.dataclass(frozen=True)
class Copies:
    """What copies of one kind have in common: how they are made and timed. `size` in bytes, each way."""

    into: ImportedTable
    transport: str
    size: int
    evidence: dict[str, Any]
    cadence: str = "streaming"
    clock: str = "event"
    by_receiver: bool = False

    def add(self, line: int, source: Place, target: Place, gb_per_s: float, ways: int = 1) -> bool:
        """Take a copy's rate, of both ways together where both are at once. False where no pattern is of it."""
        name = pattern_of(source, target, ways)
        if not name:
            return False
        if not 0 < gb_per_s < 1e6 or self.size <= 0:
            self.into.log.problem(line, f"no case: {self.size} bytes at {gb_per_s:g} GB/s")
            return True
        info = PATTERNS[name]
        devices = list(dict.fromkeys(one.number for one in (source, target) if not one.host))
        told: dict[str, Any] = {}
        if info.host_end:  # of both ways the host's memory is named as the source
            ends = (target, source) if target.host and ways == 2 else (source, target)
            told = {f"{end}_memory": "pinned" if one.host else "device"
                    for end, one in zip(("source", "target"), ends, strict=True)}  # fmt: skip
            for end, one in zip(("source", "target"), ends, strict=True):
                told |= {f"{end}_node": one.number} if one.host and one.number >= 0 else {}
        case = make_case(
            self.transport, name, self.size, devices, cadence=self.cadence, clock=self.clock, datatype="int8",
            initiator="receiver" if self.by_receiver and info.pair else "sender",
            **({"source_memory": "device", "target_memory": "device"} | told),
        )  # fmt: skip
        self.into.add(line, ImportedCase(case, ((ways * self.size / gb_per_s, 1),), evidence=dict(self.evidence)))
        return True


def gpu(ordinal: int, name: str, pci: str) -> dict[str, Any]:
    """What a log says of the GPU with this number, as an entry of a table's ranks."""
    return {"rank": ordinal, "host": None,
            "device": {"ordinal": ordinal, "name": name, "pci_address": pci, "kind": "gpu"}}  # fmt: skip


class Cell(NamedTuple):
    """A figure of a matrix, by the names of its row and column."""

    line: int
    row: str
    column: str
    value: float


def matrix(
    lines: Sequence[Line], at: int, corner: re.Pattern[str], log: ImportedLog, what: str
) -> tuple[list[Cell], int]:
    """The cells of a matrix whose heading is the next line that is not empty, and the place of the line behind it.

    The heading is a word that `corner` matches and the columns' numbers, each row begins with its own. Rows that are
    missing, cut or there twice are problems of `log`, as all that is no number; N/A is not measured.
    """
    while at < len(lines) and not lines[at].head:
        at += 1
    words = lines[at].head.split() if at < len(lines) else []
    if not words or not corner.fullmatch(words[0]) or not all(re.fullmatch(r"\d{1,4}", word) for word in words[1:]):
        return [], at
    first, columns = lines[at], words[1:]
    at += 1
    if len(set(columns)) != len(columns) or not 0 < len(columns) <= MOST_DEVICES:
        log.problem(first.number, f"{what}: its columns are no devices' numbers: {first.head[:60]!r}")
        return [], at
    found: dict[str, list[Cell]] = {}
    while at < len(lines):
        words = lines[at].head.split()
        if words and not re.fullmatch(r"\d{1,9}", words[0]):
            break
        if words:
            _row(lines[at].number, words, columns, found, log, what)
        at += 1
    if absent := [name for name in columns if name not in found]:
        log.problem(first.number, f"{what}: of {len(columns)} rows these are missing: {', '.join(absent)}", len(absent))
    return [cell for row in found.values() for cell in row], at


def _row(
    number: int, words: list[str], columns: list[str], found: dict[str, list[Cell]], log: ImportedLog, what: str
) -> None:
    name, cells = words[0], words[1:]
    if name not in columns or name in found or len(cells) != len(columns):
        why = f"{len(cells)} cells where there are {len(columns)} columns" if name in columns else "no such column"
        log.problem(number, f"{what}: row {name[:20]}: {'there twice' if name in found else why}")
        return
    found[name] = []
    for column, cell in zip(columns, cells, strict=True):
        if cell == "N/A":
            continue
        try:
            found[name].append(Cell(number, name, column, number_of(cell)))
        except ValueError:
            log.problem(number, f"{what}: {cell[:40]!r} is not a number")


def left_out(log: ImportedLog, line: int, what: str, count: int, why: str) -> None:
    """Say that so many figures were left out, if any."""
    if count:
        log.problem(line, f"{what}: {count} figure{'' if count == 1 else 's'} left out: {why}", count)
