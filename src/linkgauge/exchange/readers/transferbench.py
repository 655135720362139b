"""TransferBench: tests of one transfer and of all GPUs (preset a2a), as text and CSV, and matrices of preset p2p.

Read with its sources (ROCm/TransferBench 1.14 to 1.66): a transfer is SOURCE -> EXECUTOR:UNITS -> TARGET. Memory: G, F,
U and D are a GPU's, C, B and P a host's pinned by NUMA node. Executors: G a kernel, D a copy engine, C cores, I and N
cards. What executes at the target reads.
"""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from linkgauge.exchange.copies import MOST_DEVICES, Copies, Place, left_out, pattern_of
from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, ImportedTable, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of, whole_of

_VERSION = re.compile(r"TransferBench v(\S+)")
_TEST = re.compile(r"Test\s+(\d{1,9}):")
_EXECUTOR = re.compile(r"Executor:\s")
_EXECUTOR_MS = re.compile(r"Executor:\s[^|│]*[|│][^|│]*[|│]\s*([\d.]+) ms")
_TRANSFER = re.compile(r"Transfer\s+\d{1,9}\b")
_CELLS = re.compile(r"\s*[|│,]\s*")
_PATH = re.compile(r"(\S+)\s*->\s*(?:R\d+)?([A-Z])(\d{1,4})[A-Z]?(?:\.\d+)?(?::\d+)?\s*->\s*(\S+)$")
_MEMORY = re.compile(r"([A-Z])(\d{1,4})$")
_HEADINGS = re.compile(r"Test ?#?,(?:Transfer ?#?,|SRC mem,)", re.IGNORECASE)
_NAMES = {
    "test#": "test", "test": "test", "transfer#": "transfer", "numbytes": "bytes", "bytes": "bytes", "src": "source",
    "srcmem": "source", "exe": "by", "executor": "by", "dst": "target", "dstmem": "target", "bw(gb/s)": "rate",
    "gb/s": "rate", "time(ms)": "ms",
}  # fmt: skip
_BYTES = re.compile(r"Bytes Per Direction\s+(\d{1,18})$")
_RATES = re.compile(
    r"(?P<ways>Uni|Bi)directional copy peak bandwidth GB/s \[(?P<at>Local read / Remote write|Remote read / Local "
    r"write)\] \(GPU-Executor: (?P<by>GFX|DMA)\)$"
)
_CORNER = re.compile(r"SRC(?:\+EXE)?\\+DST(?:\+EXE)?\s+(.*)$")
_ROW = re.compile(r"(CPU|GPU) (\d{1,3})\s+(<?->?)\s+(.*)$")
_PLACES = re.compile(r"(CPU|GPU) (\d{1,3})")
_ON_GPU, _ON_HOST, _BY = "GFUD", "CBP", {"G": "kernel", "D": "copy_engine"}
_ROUNDING = 0.0006  # both figures have three digits behind the point


@dataclasses.dataclass
class _Test:
    """One test: its transfers so far, as texts; and the time of each executor, which CSV does not say."""

    line: int
    name: str
    transfers: list[tuple[int, Mapping[str, str]]] = dataclasses.field(default_factory=list)
    executors_ms: list[float] = dataclasses.field(default_factory=list)


class _Transfer(NamedTuple):
    """A transfer by a GPU at one of its ends. `rate` in GB/s, `size` in bytes."""

    words: str
    source: Place
    target: Place
    transport: str
    by_receiver: bool
    rate: float
    ms: float
    size: int


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of tests and matrices into `log`."""
    into, at, size = log.table("TransferBench"), 0, hints.size_bytes
    test: _Test | None = None
    while at < len(lines):
        line = lines[at]
        at += 1
        if match := _VERSION.match(line.head):
            _end(test, into)
            test = None
            into = log.table("TransferBench", {"TransferBench": match[1]})
        elif _HEADINGS.match(line.head):
            _end(test, into)
            test = None
            at = _csv(lines, at - 1, into)
        elif match := _TEST.match(line.head):
            _end(test, into)
            test = _Test(line.number, match[1])
        elif match := _BYTES.match(line.head):
            size = whole_of(match[1])
        elif match := _RATES.match(line.head):
            _end(test, into)
            test = None
            at = _matrix(match, line, lines, at, into, size)
        elif _TRANSFER.match(line.head):
            _transfer(line, test, log)
        elif _EXECUTOR.match(line.head):
            if test is None:
                log.problem(line.number, f"an executor's line outside of a test: {line.head[:60]!r}")
            elif match := _EXECUTOR_MS.match(line.head):
                test.executors_ms.append(number_of(match[1]))
    _end(test, into)


def _end(test: _Test | None, into: ImportedTable) -> None:
    """Take a test's case."""
    if test is None:
        return
    read = [_read(*one, into.log) for one in test.transfers]
    transfers = [one for one in read if one is not None]
    if not transfers or len(transfers) < len(read):  # of each it is said why
        if transfers:
            into.log.problem(test.line, f"test {test.name} left out: not all of its transfers are read", len(transfers))
    elif len(read) == 1:
        _take(test.transfers[0][0], transfers[0], into)
    elif why := _at_once(test, transfers, into):
        into.log.problem(test.line, f"test {test.name} left out: {len(read)} transfers at once {why}", len(read))


def _at_once(test: _Test, transfers: Sequence[_Transfer], into: ImportedTable) -> str:
    """Take the transfers of a test as one case: both ways between two GPUs, or from each GPU to each other. Or why not.

    The time is the slowest GPU's, as of a collective. What the host timed has the launches in it, 0.4 of 1.9 ms.
    """
    first = transfers[0]
    if len({(one.transport, one.by_receiver, one.size) for one in transfers}) > 1:
        return "are not alike in size, executor and memory"
    pairs = {(one.source, one.target) for one in transfers}
    places = sorted({place for pair in pairs for place in pair})
    each = {(source, target) for source in places for target in places if source != target}
    if pairs != each or len(transfers) != len(each) or any(place.host for place in places):
        return "do not go from each GPU to each other one"
    ms = max([one.ms for one in transfers] + test.executors_ms)
    evidence = {"test": f"test {test.name}", "estimator": "slowest GPU, mean of its iterations"}
    if len(places) == 2:
        copies = Copies(into, first.transport, first.size, evidence, "isolated", by_receiver=first.by_receiver)
        copies.add(test.line, first.source, first.target, 2 * first.size / (ms * 1e6), ways=2)
        return ""
    case = make_case(
        first.transport, "alltoall", first.size, [place.number for place in places], cadence="isolated", clock="event",
        datatype="int8", initiator="receiver" if first.by_receiver else "sender",
        source_memory="device", target_memory="device",
    )  # fmt: skip
    into.add(test.line, ImportedCase(case, ((ms * 1e6, 1),), evidence=evidence))
    return ""


def _transfer(line: Line, test: _Test | None, log: ImportedLog) -> None:
    cells = [cell for cell in _CELLS.split(line.head) if cell]
    form = [re.fullmatch(rf"([\d.]+)\s*{unit}", cell) for unit, cell in zip(("GB/s", "ms", "bytes"), cells[1:4],
                                                                            strict=False)]  # fmt: skip
    path = _PATH.match(cells[4]) if len(cells) == 5 else None
    if test is None or path is None or not all(form):
        log.problem(line.number, f"not a transfer of a test: {line.head[:80]!r}")
        return
    rate, ms, size = (match[1] for match in form if match)
    said = {"rate": rate, "ms": ms, "bytes": size, "source": path[1], "by": path[2] + path[3], "target": path[4]}
    test.transfers.append((line.number, said))


def _read(line: int, said: Mapping[str, str], log: ImportedLog) -> _Transfer | None:
    """A transfer's figures; None, and why, where it is of no memory or executor that is known."""
    ends = []
    words = f"{said['source']} -> {said['by']} -> {said['target']}"
    for text in (said["source"], said["target"]):
        match = _MEMORY.match(text)
        if not match or match[1] not in _ON_GPU + _ON_HOST:
            log.problem(line, f"transfer {words[:60]} left out: {text[:20]!r} is no one memory of a GPU or a host")
            return None
        ends.append(Place(match[1] in _ON_HOST, int(match[2])))
    source, target = ends
    by = re.match(r"([A-Z])(\d{1,4})", said["by"])
    executor = Place(False, int(by[2])) if by else None
    if by is None or by[1] not in _BY or executor not in ends:
        log.problem(line, f"transfer {words[:60]} left out: it is not by a GPU at one of its ends")
        return None
    try:
        rate, ms, size = number_of(said["rate"]), number_of(said["ms"]), whole_of(said["bytes"])
    except ValueError:
        log.problem(line, f"transfer {words[:60]} left out: a figure that is not a number")
        return None
    low, high = size / ((ms + _ROUNDING) * 1e6), size / (max(ms - _ROUNDING, 1e-9) * 1e6)
    if not low - _ROUNDING <= rate * 1.002 or not rate * 0.998 <= high + _ROUNDING:
        log.problem(line, f"transfer {words[:60]} left out: {size} bytes in {ms:g} ms are not {rate:g} GB/s")
        return None
    by_receiver = executor == target and source != target
    return _Transfer(words, source, target, _BY[by[1]], by_receiver, rate, ms, size)


def _take(line: int, one: _Transfer, into: ImportedTable) -> None:
    """A test's only transfer as a case, or why it is none."""
    # Both have as many digits behind the point: the larger number is the more exact one.
    exact = one.rate if one.rate >= one.ms else one.size / (one.ms * 1e6)
    evidence = {"test": one.words, "estimator": "mean of its iterations"}
    copies = Copies(into, one.transport, one.size, evidence, "isolated", by_receiver=one.by_receiver)
    if not copies.add(line, one.source, one.target, exact):
        into.log.problem(line, f"transfer {one.words[:60]} left out: no pattern measures it")


def _csv(lines: Sequence[Line], at: int, into: ImportedTable) -> int:
    """Rows below a heading of names, by them; and the place of the line behind."""
    log = into.log
    tests: dict[str, _Test] = {}
    heading = [_NAMES.get(name.strip().lower().replace(" ", ""), "") for name in next(csv.reader([lines[at].head]))]
    number = lines[at].number
    at += 1
    lacking = [name for name in ("test", "source", "by", "target", "rate", "ms", "bytes") if name not in heading]
    while at < len(lines):
        line = lines[at]
        if not line.head:
            at += 1
            continue
        if not re.match(r"\d{1,9},", line.head):
            break
        at += 1
        cells = [cell.strip() for cell in line.head.split(",")]
        if len(cells) != len(heading) or lacking:
            why = f"its heading lacks {', '.join(lacking)}" if lacking else f"{len(cells)} cells for {len(heading)}"
            log.problem(line.number, f"a row left out: {why}: {line.head[:60]!r}")
            continue
        said = {name: cell for name, cell in zip(heading, cells, strict=True) if name}
        if "ALL" not in (said.get("transfer"), said["source"]):
            tests.setdefault(said["test"], _Test(line.number, said["test"])).transfers.append((line.number, said))
    if not tests:
        log.problem(number, "a heading of a table, and no rows of transfers below")
    for test in tests.values():
        _end(test, into)
    return at


def _matrix(
    title: re.Match[str], line: Line, lines: Sequence[Line], at: int, into: ImportedTable, size: int | None
) -> int:
    """A matrix of the preset p2p: rates of the row's memory to the column's; and the place of the line behind."""
    log, name = into.log, title[0]
    corner = _CORNER.match(lines[at].head) if at < len(lines) else None
    columns = [Place(kind == "CPU", int(number)) for kind, number in _PLACES.findall(corner[1])] if corner else []
    if not columns or len(set(columns)) != len(columns) or len(columns) > MOST_DEVICES:
        log.problem(line.number, f"{name}: no matrix follows")
        return at
    at += 1
    rows = []
    while at < len(lines) and (not lines[at].head or _ROW.match(lines[at].head)):
        if match := _ROW.match(lines[at].head):
            rows.append((lines[at].number, match))
        at += 1
    count = sum(len(match[4].split()) for _, match in rows)
    if title["ways"] == "Bi" or size is None:
        why = ("both ways are timed each by itself, over a time that is not printed" if size is not None
               else "no line 'Bytes Per Direction' says of which size, so --size must")  # fmt: skip
        left_out(log, line.number, name, count, why)
        return at
    local = title["at"].startswith("Local read")
    evidence = {"test": name, "estimator": "mean of its iterations"}
    transport = "kernel" if title["by"] == "GFX" else "copy_engine"
    copies = Copies(into, transport, size, evidence, "isolated", by_receiver=not local)
    _fill(rows, columns, copies, name, local=local)
    missing = set(columns) - {Place(match[1] == "CPU", int(match[2])) for _, match in rows}
    left_out(log, line.number, name, len(missing) * len(columns), "rows of the matrix are missing")
    return at


def _fill(
    rows: Iterable[tuple[int, re.Match[str]]], columns: Sequence[Place], copies: Copies, name: str, *, local: bool
) -> None:
    log = copies.into.log
    seen: set[Place] = set()
    for number, match in rows:
        source, cells = Place(match[1] == "CPU", int(match[2])), match[4].split()
        if source in seen or len(cells) != len(columns) or match[3] != "->" or source not in columns:
            log.problem(number, f"{name}: not a row of the matrix: {match[0][:60]!r}", len(columns))
            continue
        seen.add(source)
        absent = 0
        for target, cell in zip(columns, cells, strict=True):
            by_cores = (source if local else target).host
            if cell == "N/A":
                continue
            if by_cores or not pattern_of(source, target, 1):
                absent += 1
                continue
            try:
                copies.add(number, source, target, number_of(cell))
            except ValueError:
                log.problem(number, f"{name}: {cell[:40]!r} is not a rate")
        what = f"{name}, row {match[1]} {match[2]}"
        left_out(log, number, what, absent, "copies by the host's cores have no pattern")


Reader("TransferBench", re.compile(rf"\s*(?:{_VERSION.pattern}|{_HEADINGS.pattern}|Test\s+\d+:|Bytes Per Direction\s+\d"
                                   r"|(?:Uni|Bi)directional copy peak bandwidth GB/s \[)", re.IGNORECASE),
       read_text).register()  # fmt: skip
