"""nvbandwidth, on one node or several: its printed matrices and its JSON.

Only tests that measure one of our patterns are taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, ImportedTable, make_case
from linkgauge.exchange.readers.base import JsonForm, Reader
from linkgauge.model.log_text import Line, number_of
from linkgauge.model.patterns import PATTERNS, REPEATED
from linkgauge.model.shape import each, maybe, scalar, table, text

_DEFAULT_SIZE = 512 << 20  # its --bufferSize is 512 MiB unless given, and is not printed
# Chases of pointers: nvbandwidth 0.8 walks 2 MiB whatever --bufferSize is, and divides the time by the loads.
_LATENCY_BYTES = 2 << 20
_LATENCY_LOADS = 1_000_000
_LATENCIES = ("host_device_latency_sm", "device_to_device_latency_sm")
# A case of all devices for each cell: what is taken grows with the square of the columns.
_MOST_DEVICES = 256
_VERSION = re.compile(r"nvbandwidth Version:\s*(\S+)")
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_RUNNING = re.compile(r"Running (\w+)\.")
_RUNNING_HERE = re.compile(r"Running \w+_(?:ce|sm|copy)\.\s*$")
_PROCESS = re.compile(r"Process (\d{1,9}) \(([^)]*)\): device (\d{1,9}): (.+?)\s*(?:\(([0-9a-fA-F:.]+)\))?$")
_DEVICE = re.compile(r"Device (\d{1,9}):\s*(.+?)\s*(?:\(([0-9a-fA-F:.]+)\))?$")
_LISTED = re.compile(r"(\d{1,9}):\s*(.+?)\s*\(([0-9a-fA-F:.]+)\)(?::\s*\((.*)\))?$")
_UNIT = re.compile(r"(?:bandwidth \(GB/s\)|\blatency .*\(ns\)|\bCE BW)$", re.IGNORECASE)
_TEST = re.compile(r"(?P<what>.+?)(?:_(?P<way>read|write))?_(?P<engine>ce|sm)$")
# Pattern and variant of each test. Read with nvbandwidth 0.8's testcase.cpp: what reads goes the other way round, so
# that all_to_one_read is one device's memory read by all. Its memcpy_sm both ways is one kernel (below).
_PATTERNS = {
    "host_to_device_memcpy": ("host_to_device", ""),
    "device_to_host_memcpy": ("device_to_host", ""),
    "device_to_device_memcpy": ("unidirectional", ""),
    "device_to_device_bidirectional_memcpy": ("bidirectional", ""),
    "multinode_device_to_device_memcpy": ("unidirectional", ""),
    "multinode_device_to_device_bidirectional_memcpy": ("bidirectional", ""),
    "multinode_device_to_device_all_to_one_write": ("all_to_one", ""),
    "multinode_device_to_device_all_from_one_read": ("one_to_all", ""),
    "all_to_one_write": ("all_to_one", ""),
    "all_to_one_read": ("one_to_all", ""),
    "one_to_all_write": ("one_to_all", ""),
    "one_to_all_read": ("all_to_one", ""),
    "host_to_device_bidirectional_memcpy": ("host_to_device_contended", "both_ways"),
    "device_to_host_bidirectional_memcpy": ("device_to_host_contended", "both_ways"),
    "host_to_all_memcpy": ("host_to_device_contended", ""),
    "all_to_host_memcpy": ("device_to_host_contended", ""),
    "host_to_all_bidirectional_memcpy": ("host_to_device_contended", "both_ways"),
    "all_to_host_bidirectional_memcpy": ("device_to_host_contended", "both_ways"),
}
_MEMORY = {
    "host_to_device": ("pinned", "device"),
    "host_to_device_contended": ("pinned", "device"),
    "host_device_bidirectional": ("pinned", "device"),
    "device_to_host": ("device", "pinned"),
    "device_to_host_contended": ("device", "pinned"),
}


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed matrices into `log`; each start of the program has devices and versions of its own."""
    into = log.table("nvbandwidth")
    name, at = "", 0
    while at < len(lines):
        number, line = lines[at].number, lines[at].head
        at += 1
        if match := _VERSION.match(line):
            into, name = log.table("nvbandwidth", {"nvbandwidth": match[1]}), ""
        elif match := _DRIVER.match(line):
            into.versions["driver"] = match[1]
        elif match := _PROCESS.match(line):
            process, host, device, model, pci = match.groups()
            into.ranks.append(_rank(int(process), host, int(device), model, pci))
        elif match := _DEVICE.match(line):
            into.ranks.append(_rank(int(match[1]), None, int(match[1]), match[2], match[3]))
        elif match := _RUNNING.match(line):
            name = match[1]
        elif _UNIT.search(line):
            matrix, at = _printed(lines, at, name, log)
            _matrix(number + 1, name, line, matrix, into, hints)
        elif re.match(r"\d+(\s|$)", line):
            log.problem(number, f"a row outside of a matrix: {line[:80]!r}")
        elif re.match(r"(ERROR|Error|Waived|Invalid)", line):
            log.problem(number, f"{name}: {line[:120]}")


def _printed(lines: Sequence[Line], at: int, name: str, log: ImportedLog) -> tuple[list[list[str]], int]:
    """The cells of the matrix that begins at a place, `N/A` where its row is missing or cut; and where it ends.

    Its first line has the columns' numbers, each further one begins with its own: cells are told by these.
    """
    columns = lines[at].text.split() if at < len(lines) else []
    if not columns or columns != [str(place) for place in range(len(columns))]:
        return [], at
    first = lines[at].number
    at += 1
    rows: dict[int, list[str]] = {}
    while at < len(lines) and (tokens := lines[at].text.split()) and re.match(r"\d{1,9}$", tokens[0]):
        if len(tokens) == len(columns) + 1 and int(tokens[0]) < max(len(columns), 1):
            rows[int(tokens[0])] = tokens[1:]
        else:
            words = f"{name}: {len(tokens) - 1} cells where there are {len(columns)} columns"
            log.problem(lines[at].number, f"{words}: {lines[at].text.strip()[:60]!r}")
        at += 1
    if _by_pairs(name) and rows and (absent := [place for place in range(len(columns)) if place not in rows]):
        log.problem(
            first, f"{name}: of {len(columns)} rows these are missing: {', '.join(map(str, absent))}", len(absent)
        )
    missing = ["N/A"] * len(columns)
    return [rows.get(place, missing) for place in range(max(rows, default=-1) + 1)], at


_TESTCASE = {"name": text, "status": text, "error": scalar, "bandwidth_description": text,
             "bandwidth_matrix": maybe(each(each(scalar)))}  # fmt: skip
_VERSIONS = {"version": "nvbandwidth", "Driver Version": "driver", "CUDA Runtime Version": "CUDA runtime"}
_OUTPUT = {"GPU Device list": maybe(each(text)), "testcases": maybe(each(table(_TESTCASE, needed=("name",))))}
SHAPE = table({"nvbandwidth": table(dict.fromkeys(_VERSIONS, scalar) | _OUTPUT)}, needed=("nvbandwidth",))


def read_json(data: dict[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of what nvbandwidth prints with --json into `log`."""
    root = data["nvbandwidth"]
    into = log.table("nvbandwidth", {name: root[key] for key, name in _VERSIONS.items() if key in root})
    for line in root.get("GPU Device list") or []:
        if match := _LISTED.match(line):
            into.ranks.append(_rank(int(match[1]), match[4], int(match[1]), match[2], match[3]))
    for number, test in enumerate(root.get("testcases") or [], start=1):
        name, matrix = test["name"], test.get("bandwidth_matrix")
        if test.get("status") != "Passed" or matrix is None:
            log.problem(number, f"{name}: {test.get('status')} {test.get('error', '')}".strip())
            continue
        described = test.get("bandwidth_description", "")
        columns = max(map(len, matrix), default=0)
        if "Total" in described and columns > 1 and len(matrix) == 3 * columns:
            matrix = matrix[-columns:]  # both parts stand before their total
        _matrix(number, name, described, matrix, into, hints)


def _rank(rank: int, host: str | None, ordinal: int, model: str, pci: str | None) -> dict[str, Any]:
    identity = {"ordinal": ordinal, "name": model, "pci_address": pci or "", "kind": "cuda"}
    return {"rank": rank, "host": host, "device": identity}


def _matrix(
    number: int, name: str, description: str, matrix: Sequence[Sequence[str]], into: ImportedTable, hints: Hints
) -> None:
    cells = sum(len(row) for row in matrix)
    if why := _why_not(name, description, matrix):
        if why != _PART:
            into.log.problem(number, f"{name or 'a matrix'}, {cells} cells left out: {why}", max(1, len(matrix)))
        return
    if name in _LATENCIES:
        _latencies(number, name, description, matrix, into)
        return
    transport, pattern, variant, initiator = _meaning(name)
    size = hints.size_bytes or _DEFAULT_SIZE
    evidence: dict[str, Any] = {
        "test": name,
        "description": description,
        "estimator": "median of 3 gated batches by default",
    }
    if hints.size_bytes is None:
        evidence["size"] = "nvbandwidth's default; the log does not say"
    if transport == "kernel" and "_bidirectional_memcpy" in name and "device_to_device" not in name:
        evidence["flows"] = "one kernel a device, whose warps copy either way alternately; the rate is of one way"
    for i, j, rate in _cells(number, name, "rate", matrix, into.log):
        # Of host_to_device_bidirectional and its like the other columns are cases of their own.
        beside = len(matrix[i]) if "all_" in name or "_to_all" in name else 1
        devices, root, payload = _who(pattern, i, j, beside, size, reads=initiator == "receiver")
        source, target = _MEMORY.get(pattern, ("device", "device"))
        case = make_case(
            transport, pattern, size, devices, variant=variant, root=root, cadence="gated", clock="event",
            initiator=initiator, source_memory=source, target_memory=target, datatype="int8",
        )  # fmt: skip
        into.add(number + i + 1, ImportedCase(case, ((payload / rate, 1),), evidence=evidence))


_PART = "a part of the total that follows"


def _why_not(name: str, description: str, matrix: Sequence[Sequence[str]]) -> str:
    """Why a matrix is not taken; empty where it is."""
    latency = name in _LATENCIES
    pattern = "pointer_chase" if latency else _meaning(name)[1]
    columns = max(map(len, matrix), default=0)
    if not name:
        return "no line 'Running ...' says of which test it is"
    if not pattern:
        return "no pattern measures this"
    if pattern == "bidirectional":
        if name.startswith("multinode") and name.endswith("_ce"):
            return "its rate is of one way, beside twice as many bytes the other way"
        if not name.startswith("multinode") and "Total" not in description:
            return _PART  # Read1 and Read2, Write1 and Write2
    if ("(ns)" in description) != latency:
        return f"its figures are {'rates' if latency else 'latencies'}"
    if columns > _MOST_DEVICES:
        return f"more than {_MOST_DEVICES} columns, so no matrix of a machine's GPUs"
    if matrix and (len(matrix) > columns if _by_pairs(name) else len(matrix) != 1):
        return f"{len(matrix)} rows, {columns} columns: no matrix of this test"
    return "" if matrix else "no matrix follows"


def _cells(
    number: int, name: str, what: str, matrix: Sequence[Sequence[str]], log: ImportedLog
) -> Iterator[tuple[int, int, float]]:
    """Yield row, column and value of each cell that was measured; what is no number is noted as a problem."""
    for i, row in enumerate(matrix):
        for j, cell in enumerate(row):
            if cell == "N/A":
                continue
            try:
                value = number_of(cell)
                if not 0 <= value < math.inf:
                    raise ValueError
            except ValueError:
                log.problem(number + i + 1, f"{name}: {cell[:40]!r} is not a {what}")
                continue
            if value:  # the diagonal in older versions is 0: not measured
                yield i, j, value


def _latencies(number: int, name: str, description: str, matrix: Sequence[Sequence[str]], into: ImportedTable) -> None:
    """Take nanoseconds of a load: the row walks through the column's memory, or a device through the host's."""
    evidence = {"test": name, "description": description, "estimator": "mean over 1,000,000 loads",
                "size": "nvbandwidth's own, 2 MiB; the log does not say"}  # fmt: skip
    of_host = name == "host_device_latency_sm"
    for i, j, latency_ns in _cells(number, name, "latency", matrix, into.log):
        case = make_case(
            "kernel", "pointer_chase", _LATENCY_BYTES, [j] if of_host else [i, j], clock="event",
            source_memory="pinned" if of_host else "device", datatype="int8",
        )  # fmt: skip
        interval = (latency_ns * _LATENCY_LOADS, _LATENCY_LOADS)
        into.add(number + i + 1, ImportedCase(case, (interval,), evidence=evidence))


def _by_pairs(name: str) -> bool:
    """Whether a test's matrix has a row for each of its columns, not one row."""
    return name == "device_to_device_latency_sm" or _meaning(name)[1] in ("unidirectional", "bidirectional")


def _meaning(name: str) -> tuple[str, str, str, str]:
    """Return transport, pattern, variant and initiator of a test; an empty pattern where it measures none of ours."""
    if name == "device_local_copy":
        return "copy_engine", "local_copy", "", "sender"
    match = _TEST.match(name)
    if not match:
        return "", "", "", ""
    what, way, by_kernel = match["what"], match["way"], match["engine"] == "sm"
    several = what in ("all_to_one", "one_to_all") or what.startswith("multinode_device_to_device_all_")
    pattern, variant = _PATTERNS.get(f"{what}_{way}" if several else what, ("", ""))
    if by_kernel and what in ("host_to_device_bidirectional_memcpy", "device_to_host_bidirectional_memcpy"):
        pattern, variant = "host_device_bidirectional", REPEATED
    # The kernels of 0.8's all_to_one_read_sm and one_to_all_read_sm run on the device that the data leaves.
    receiver = way == "read" and not (what in ("all_to_one", "one_to_all") and by_kernel)
    return ("kernel" if by_kernel else "copy_engine"), pattern, variant, "receiver" if receiver else "sender"


def _who(pattern: str, i: int, j: int, columns: int, size: int, *, reads: bool) -> tuple[list[int], int, float]:
    """Return the devices, the root and the payload in bytes of the cell in row i and column j.

    Between two devices the row's is the one that copies, whatever the headline's arrow says (testcases_ce.cpp).
    """
    if PATTERNS[pattern].host_ways or pattern == "local_copy":
        return [j], 0, size
    if PATTERNS[pattern].alone:
        return [j, *(other for other in range(columns) if other != j)], 0, size
    if PATTERNS[pattern].rooted:
        return list(range(columns)), j, (columns - 1) * size
    ways = PATTERNS[pattern].ways
    return [j, i] if reads and ways == 1 else [i, j], 0, ways * size


Reader("nvbandwidth", re.compile(rf"\s*(?:{_VERSION.pattern}|{_RUNNING_HERE.pattern})"), read_text).register()
JsonForm("nvbandwidth", lambda data: isinstance(data, dict) and "nvbandwidth" in data, SHAPE, read_json).register()
