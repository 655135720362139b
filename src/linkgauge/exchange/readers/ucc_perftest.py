"""UCC's perftest: a table for each collective, below what it says of memory, datatype and reduction.

Read with its sources (openucx/ucc, tools/perf): times are each rank's mean, of which the slowest is taken. Sizes of
allgather and gather are one rank's; those of alltoall and scatter were one peer's, and are a rank's or the root's whole
since July 2025, where `Total time:` follows. How many ranks took part is not printed: with -F it
follows from the bandwidth of the slowest rank, which is the bus bandwidth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case, restated
from linkgauge.exchange.rank_count import ranks_by_factor
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.case import OPS
from linkgauge.model.elements import ELEMENT_BYTES
from linkgauge.model.log_text import Line, lines_of, number_of, whole_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_duration as time_text

_TOOL = "UCC's perftest"
_PATTERNS = {
    "Allgather": "allgather", "Allreduce": "allreduce", "Alltoall": "alltoall", "Barrier": "barrier",
    "Bcast": "broadcast", "Gather": "gather", "Reduce": "reduce", "Reduce_scatter": "reduce_scatter",
    "Scatter": "scatter",
}  # fmt: skip
_MEMORY = {"host": "pageable", "cuda": "device", "rocm": "device", "cuda-managed": "managed",
           "rocm-managed": "managed"}  # fmt: skip
_BEGIN = re.compile(r"Collective:\s+([A-Z][\w ]*)$")
_SAID = re.compile(r"(Memory type|Datatype|Reduction|Inplace):\s+(\S.*)$")
_HEADING = re.compile(r"Count\s+Size\s+Time, us(\s+(?:Bus )?Bandwidth, GB/s)?$")
_NEWER = re.compile(r"Total time:\s+\S+ ms$")
_OF_ONE_PEER = ("alltoall", "scatter")
"""Patterns whose size was one peer's, and is the whole in newer versions."""
_COLUMNS = re.compile(r"avg\s+min\s+max(?:\s+avg\s+(?:min\s+max|max\s+min))?$")
_ROW = re.compile(r"(?:\d|N/A\s)")
# Two digits behind the point of a time and of a bandwidth; of a bandwidth below this they say little.
_LEAST_GB_PER_S = 0.1
_SHARE = 2e-3


class _Table:
    """One collective's table: what stands above its rows, and the rows, which are taken when it ends."""

    def __init__(self, line: int, name: str) -> None:
        self.line, self.name = line, name
        self.said: dict[str, str] = {}
        self.begun = self.with_bandwidth = self.newer = False
        self.rows: list[tuple[int, list[str]]] = []

    @property
    def pattern(self) -> str:
        """Ours; empty where none is what it measures."""
        return _PATTERNS.get(self.name, "")

    @property
    def of_block(self) -> bool:
        """Whether its sizes are one rank's or one peer's."""
        return self.pattern in ("allgather", "gather") or (self.pattern in _OF_ONE_PEER and not self.newer)

    def size_of(self, printed: int, ranks: int) -> int | None:
        """Our m of a printed size; None where it is no whole blocks."""
        info = PATTERNS[self.pattern]
        if self.of_block:
            return printed * ranks if info.blocks else printed
        return restated(self.pattern, printed, ranks) if printed % ranks == 0 or not info.blocks else None


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    table: _Table | None = None
    for line in lines:
        text = line.head
        if match := _BEGIN.match(text):
            _end(table, log, hints)
            table = _Table(line.number, match[1].strip())
        elif match := _HEADING.match(text):
            if table is None or table.begun:  # of a log whose beginning is lost
                _end(table, log, hints)
                table = _Table(line.number, "")
            table.begun, table.with_bandwidth = True, match[1] is not None
        elif table is None or not text or _COLUMNS.match(text):
            continue
        elif match := _SAID.match(text):
            table.said[match[1]] = match[2].strip()
        elif _NEWER.match(text):
            table.newer = True
        elif table.begun and _ROW.match(text):
            table.rows.append((line.number, text.split()))
        elif table.begun:
            log.problem(line.number, f"not a row of the table: {text[:80]!r}")
    _end(table, log, hints)


def _end(table: _Table | None, log: ImportedLog, hints: Hints) -> None:
    """Take a table's rows, or say why none is taken."""
    if table is None or not table.rows:
        return
    factor = _factor(table)
    doubt = ""
    if table.pattern in _OF_ONE_PEER and not table.newer:
        # Of a log that was cut its version is unknown: a whole moves (n-1)/n of its size, one peer's n-1 times it.
        between = (hints.ranks - 1) / math.sqrt(hints.ranks) if hints.ranks else 1.0
        table.newer = factor is not None and factor[0] < between
        if factor is None or (not hints.ranks and 0.98 < factor[0] < 1.02):
            doubt = "neither 'Total time:' nor bandwidths (-F) say whether its sizes are one peer's"
    ranks = hints.ranks or (ranks_by_factor(table.pattern, *factor, per_block=table.of_block) if factor else 0)
    if doubt := _lacking(table, ranks) or doubt:
        rows = lines_of(len(table.rows)).replace("line", "row")
        log.problem(table.line, f"table of {table.name or 'a collective'}, {rows} left out: {doubt}", len(table.rows))
        return
    for number, words in table.rows:
        _row(number, words, table, ranks, log)


def _factor(table: _Table) -> tuple[float, float] | None:
    """Bytes over the bus for each of the size, by the largest bandwidth, and by how much that may be off, of itself."""
    if not table.with_bandwidth or not table.pattern:
        return None
    for _, words in reversed(table.rows):
        try:
            size, us, rate = whole_of(words[1]), number_of(words[4]), _slowest(words)
        except (IndexError, ValueError):
            continue
        if rate is not None and rate >= _LEAST_GB_PER_S and size > 0 and us > 0:
            return rate * us * 1e3 / size, _SHARE + 0.0051 / rate + 0.0051 / us
    return None


def _slowest(words: Sequence[str]) -> float | None:
    """The bandwidth of the slowest rank, the last and the least of the three; None where it is not measured."""
    return None if words[-1] == "N/A" else number_of(words[-1])


def _lacking(table: _Table, ranks: int) -> str:
    """Why none of a table's rows can be taken; empty where they can."""
    if not table.name:
        return "no line 'Collective:' says of which it is"
    if not table.pattern:
        return "no pattern measures what it does"
    info, said = PATTERNS[table.pattern], table.said
    if not ranks:
        printed = "its bandwidths do not say" if table.with_bandwidth else "without -F it does not print"
        return f"{printed} how many ranks took part, so --ranks must"
    if ranks < 2 or not info.takes(ranks):
        return f"no {info.name} is of {ranks} rank{'' if ranks == 1 else 's'}"
    if said.get("Memory type") not in _MEMORY:
        return f"memory type {said.get('Memory type', 'not said')[:20]}: expected {', '.join(_MEMORY)}"
    if info.reduces and (said.get("Datatype") not in ELEMENT_BYTES or said.get("Reduction", "").lower() not in OPS):
        return f"no reduction is of {said.get('Datatype', '')[:20]} by {said.get('Reduction', '')[:20]}"
    return ""


def _row(number: int, words: list[str], table: _Table, ranks: int, log: ImportedLog) -> None:
    info, said = PATTERNS[table.pattern], table.said
    columns = 8 if table.with_bandwidth else 5
    if len(words) != columns:
        log.problem(number, f"{len(words)} columns where the heading has {columns}: {' '.join(words)[:80]!r}")
        return
    sizeless = info.size_means == "-"
    try:
        size = 0 if sizeless and words[1] == "N/A" else whole_of(words[1])
        mean, least, us = (number_of(word) for word in words[2:5])
        rate = _slowest(words) if table.with_bandwidth else None
    except ValueError:
        log.problem(number, f"not a size and figures: {' '.join(words)[:80]!r}")
        return
    m = table.size_of(size, ranks)
    if m is None:
        log.problem(number, f"no case: {size} bytes are no {ranks} whole blocks")
        return
    if not 0 < us < 1e12 or (size <= 0 and not sizeless) or not least <= mean <= us:
        log.problem(number, f"no case: size {size}, {time_text(us * 1e3)}")
        return
    if rate is not None and not (rate == 0 and said.get("Inplace") == "1"):  # which it takes for no bytes
        ours = float(info.payload_bytes(m, ranks, 1) * info.bus_factor(ranks)) / us / 1e3
        if abs(ours - rate) > 0.0051 + ours * (0.0051 / us + 1e-3):
            log.problem(number, f"a row left out: {info.name} of {ranks} ranks gives {ours:.4g} GB/s, not {rate:g}")
            return
    evidence: dict[str, Any] = {"size_printed": size, "estimator": "mean of the slowest rank"}
    memory = _MEMORY[said["Memory type"]]
    case = make_case(
        "ucc", table.pattern, m, range(ranks), cadence="barrier", arrival="free", source_memory=memory,
        target_memory=memory, in_place=said.get("Inplace") == "1",
        datatype=said["Datatype"] if info.reduces else "int8", op=said["Reduction"].lower() if info.reduces else "sum",
    )  # fmt: skip
    log.table(_TOOL).add(number, ImportedCase(case, ((us * 1e3, 1),), evidence=evidence))


Reader(_TOOL, re.compile(r"Collective:\s+[A-Z][\w ]*$|\s*Count\s+Size\s+Time, us"), read_text).register()
