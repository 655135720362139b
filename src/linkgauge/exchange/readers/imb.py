"""Intel MPI Benchmarks: the tables of IMB-MPI1 that measure a pattern of ours.

Read with its guide (Intel MPI Benchmarks User Guide, "Classification of MPI-1 Benchmarks"): PingPong's time is half of
a round trip; t_max is the slowest rank's mean; X bytes of Allgather, Gather, Scatter and Alltoall are each rank's or
pair's, of Reduce_scatter all of it; roots go round.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of, whole_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_duration as time_text

_PATTERNS = {
    "PingPong": "pingpong", "PingPing": "bidirectional", "Sendrecv": "ring_shift", "Allreduce": "allreduce",
    "Reduce": "reduce", "Reduce_scatter": "reduce_scatter", "Reduce_scatter_block": "reduce_scatter",
    "Allgather": "allgather", "Allgatherv": "allgather", "Gather": "gather", "Gatherv": "gather", "Scatter": "scatter",
    "Scatterv": "scatter", "Alltoall": "alltoall", "Alltoallv": "alltoall", "Bcast": "broadcast", "Barrier": "barrier",
}  # fmt: skip
_VARIANTS = {"Alltoallv": "alltoallv_own"}
_PER_BLOCK = ("Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv")
_VERSION = re.compile(r"#\s*Intel ?\(R\) MPI Benchmarks? ?(?:Suite )?V?(\d[\w.]*)")
_BENCHMARK = re.compile(r"#?\s*Benchmarking\s+([\w-]+)")
_RANKS = re.compile(r"#?\s*#processes = (\d{1,6})")
_GROUPS = re.compile(r"#?\s*\(\s*\d+ groups of \d+ processes")
_NAMES = re.compile(r"#bytes\s+#repetitions\s|#repetitions\s+t_")
_TYPE = re.compile(r"#\s*MPI_Datatype for reductions\s*:\s*(\w+)")
_MULTI = "several groups at once (-multi) are no case here"
_TYPES = {"MPI_FLOAT": "float32", "MPI_DOUBLE": "float64", "MPI_INT": "int32", "MPI_CHAR": "int8", "MPI_BYTE": "uint8"}


class _Table:
    """One benchmark's table: what stands above its rows."""

    def __init__(self, line: int, name: str) -> None:
        self.line, self.name, self.ranks, self.rows = line, name, 0, 0
        self.places: tuple[int, ...] = ()
        self.columns: list[str] = []
        self.doubt = "" if name in _PATTERNS else "no pattern measures what it does"


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    table: _Table | None = None
    version, datatype = "", "MPI_FLOAT"
    for line in lines:
        text = line.head
        if match := _VERSION.match(text):
            version = match[1]
        elif match := _TYPE.match(text):
            datatype = match[1]
        elif match := _BENCHMARK.match(text):
            _end(table, log)
            table = _Table(line.number, match[1])
        elif table is None:
            continue
        elif match := _RANKS.match(text):
            table.ranks = int(match[1])
            table.places = tuple(range(table.ranks))  # once: large jobs have many rows
        elif _GROUPS.match(text):
            table.doubt = table.doubt or _MULTI
        elif _NAMES.match(text):
            table.columns = text.split()
        elif text and table.columns and text[0] != "#":
            if re.match(r"\d", text):
                table.rows += 1
                table.doubt = table.doubt or _lacking(table, datatype)
                if not table.doubt:
                    _row(line, table, version, datatype, log)
            else:
                log.problem(line.number, f"not a row of the table: {text[:80]!r}")
        elif table.columns and (text or table.rows):
            _end(table, log)
            table = None
    _end(table, log)


def _end(table: _Table | None, log: ImportedLog) -> None:
    if table is not None and table.doubt:
        rows = f"{table.rows} row{'' if table.rows == 1 else 's'}"
        log.problem(table.line, f"table of {table.name}, {rows} left out: {table.doubt}", table.rows)


def _lacking(table: _Table, datatype: str) -> str:
    """Why none of a table's rows can be taken; empty where they can."""
    pattern = _PATTERNS[table.name]
    time = "t[usec]" if PATTERNS[pattern].pair else "t_max[usec]"
    if not table.ranks:
        return "no line '#processes = N' says of how many ranks it is"
    if not PATTERNS[pattern].takes(table.ranks) or table.ranks < 2:
        return f"no {pattern} is of {table.ranks} rank{'' if table.ranks == 1 else 's'}"
    if time not in table.columns:
        return f"its columns are {', '.join(table.columns)[:80]}: expected {time}"
    if PATTERNS[pattern].reduces and datatype not in _TYPES:
        return f"no datatype for {datatype}"
    return ""


def _row(line: Line, table: _Table, version: str, datatype: str, log: ImportedLog) -> None:
    name, words = table.name, line.head.split()
    pattern = _PATTERNS[name]
    info = PATTERNS[pattern]
    if len(words) != len(table.columns):
        log.problem(line.number, f"{len(words)} columns where the heading has {len(table.columns)}: {words[0][:40]!r}")
        return
    said = dict(zip(table.columns, words, strict=True))
    try:
        size, count = whole_of(said.get("#bytes", "0")), whole_of(said["#repetitions"])
        us = number_of(said["t[usec]" if info.pair else "t_max[usec]"])
        rate = number_of(said["Mbytes/sec"]) if "Mbytes/sec" in said else 0.0
    except ValueError:
        log.problem(line.number, f"not a size, a count and figures: {line.head[:80]!r}")
        return
    if pattern != "barrier" and size == 0:
        log.problem(line.number, f"no case: size 0, {time_text(us * 1e3)}")
        return
    moved = size * (2 if name == "Sendrecv" else 1)
    slack = 0.0051 / max(us, 0.0051) + 0.0051 / max(rate, 0.0051) + 1e-3
    if not 0 < us < math.inf or count <= 0 or size < 0:
        log.problem(line.number, f"no case: size {size}, {time_text(us * 1e3)}, {count} repetitions")
        return
    # MB/s are 10^6 B/s since 2018, and 2^20 before.
    if rate and min(abs(moved / us / rate * 1e6 / unit - 1) for unit in (10**6, 1 << 20)) > slack:
        log.problem(line.number, f"a row left out: {size} bytes in {time_text(us * 1e3)} are not {rate:g} MB/s")
        return
    if info.blocks and name not in _PER_BLOCK and size % table.ranks:
        log.problem(line.number, f"no case: {size} bytes are no {table.ranks} whole blocks")
        return
    evidence: dict[str, Any] = {"size_printed": size, "estimator": "mean of a loop" if info.pair else
                                "mean of the slowest rank"}  # fmt: skip
    if info.rooted:
        evidence["root"] = "goes round"
    m = size * table.ranks if name in _PER_BLOCK else size
    case = make_case(
        "mpi", pattern, m, table.places, variant=_VARIANTS.get(name, ""), arrival="free",
        cadence="streaming" if info.pair else "barrier", source_memory="pageable", target_memory="pageable",
        datatype=_TYPES[datatype] if info.reduces else "int8",
    )  # fmt: skip
    time_ns = us * 1e3 * (2 if pattern == "pingpong" else 1)
    into = log.table("IMB", {"IMB": version} if version else {})
    into.add(line.number, ImportedCase(case, ((time_ns * count, count),), evidence=evidence, operations=count))


_STARTS = r"#.*Intel ?\(R\) MPI Benchmark|#\s*Benchmarking\s+\w+"
Reader("Intel MPI Benchmarks", re.compile(_STARTS), read_text).register()
