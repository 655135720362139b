"""nixlbench: the table below its configuration.

Read with its source (ai-dynamo/nixl, benchmark/nixlbench): a transfer has `Batch Size` blocks; B/W is all bytes over
all time, in 10^9 B/s, and its transfers follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of, whole_of
from linkgauge.model.quantity import format_duration as time_text

_BEGIN = re.compile(r"NIXLBench Configuration$")
_OPTION = re.compile(r"[^(]*\(--(\w+)=[^)]*\)\s*:\s*(.*)$")
_HEADING = re.compile(r"Block Size \(B\)\s+Batch Size\s+\S")
_RATE, _LATENCY = "B/W (GB/Sec)", "Avg Lat. (us)"
_MEMORY = {"DRAM": "pageable", "VRAM": "device"}
_NETWORKS = ("UCX", "UCX_MO", "LIBFABRIC", "MOONCAKE", "GPUNETIO")
_ALIKE = {"scheme": "pairwise", "mode": "SG", "num_initiator_dev": "1", "num_target_dev": "1", "num_threads": "1",
          "pipeline_depth": "1", "worker_type": "nixl"}  # fmt: skip
"""What a case of two ranks has to have, where the log says it."""


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of tables into `log`."""
    said: dict[str, str] = {}
    columns: list[str] = []
    doubt, first, rows = "", 0, 0
    for line in lines:
        if _BEGIN.match(line.head):
            said, columns = {}, []
        elif match := _OPTION.match(line.head):
            said[match[1]] = match[2].strip()
        elif _HEADING.match(line.head):
            _end(first, rows, doubt, log)
            columns = re.split(r"\s{2,}", line.head)
            columns = columns if len(columns) > 3 else re.findall(r"[A-Z][^()]*\([^)]*\)|Batch Size", line.head)
            columns = [name.strip() for name in columns]
            doubt, first, rows = _lacking(said, columns), line.number, 0
        elif columns and re.match(r"\d", line.head):
            rows += 1
            if not doubt:
                _row(line, columns, said, log)
    _end(first, rows, doubt, log)


def _end(first: int, rows: int, doubt: str, log: ImportedLog) -> None:
    if doubt and rows:
        log.problem(first, f"table, {rows} row{'' if rows == 1 else 's'} left out: {doubt}", rows)


def _lacking(said: Mapping[str, str], columns: Sequence[str]) -> str:
    """Why a table's rows cannot be taken; empty where they can."""
    needed = ("backend", "initiator_seg_type", "target_seg_type", "op_type", "scheme")
    if absent := [name for name in needed if name not in said]:
        return f"no configuration above it says --{absent[0]}"
    if said["backend"].upper() not in _NETWORKS:
        return f"backend {said['backend'][:20]} reaches storage, and no other rank"
    if odd := [name for name, value in _ALIKE.items() if said.get(name, value) != value]:
        return f"--{odd[0]} is {said[odd[0]][:20]}, not {_ALIKE[odd[0]]}"
    if said["op_type"] not in ("READ", "WRITE"):
        return f"--op_type is {said['op_type'][:20]}"
    if any(said[f"{end}_seg_type"] not in _MEMORY for end in ("initiator", "target")):
        return "its segments are no memory of a GPU or a host"
    return "" if _RATE in columns and _LATENCY in columns else f"it has no column {_RATE}"


def _row(line: Line, columns: Sequence[str], said: Mapping[str, str], log: ImportedLog) -> None:
    words = line.head.split()
    if len(words) != len(columns):
        log.problem(line.number, f"{len(words)} columns where the heading has {len(columns)}: {line.head[:80]!r}")
        return
    cells = dict(zip(columns, words, strict=True))
    try:
        block, batch = whole_of(words[0]), whole_of(words[1])
        rate, latency = number_of(cells[_RATE]), number_of(cells[_LATENCY])
    except ValueError:
        log.problem(line.number, f"not a size, a batch and figures: {line.head[:80]!r}")
        return
    if block <= 0 or batch <= 0 or not 0 < rate < 1e6:
        log.problem(line.number, f"no case: size {block}, batch {batch}, {rate:g} GB/s")
        return
    time_ns = block * batch / rate
    if latency and not 0.5 < time_ns / (latency * 1e3) < 2:
        log.problem(
            line.number, f"a row left out: {block * batch} bytes at {rate:g} GB/s are not of {time_text(latency * 1e3)}"
        )
        return
    memory = {"initiator": _MEMORY[said["initiator_seg_type"]], "target": _MEMORY[said["target_seg_type"]]}
    reads = said["op_type"] == "READ"
    source, target = ("target", "initiator") if reads else ("initiator", "target")
    case = make_case(
        "nixl", "unidirectional", block * batch, (0, 1), variant="get" if reads else "", window=1, arrival="free",
        chunk=block if batch > 1 else 0, cadence="isolated", source_memory=memory[source],
        target_memory=memory[target], datatype="int8",
    )  # fmt: skip
    evidence = {"backend": said["backend"], "estimator": "all bytes over all time"}
    log.table("nixlbench").add(line.number, ImportedCase(case, ((time_ns, 1),), evidence=evidence))


_STARTS = r"NIXLBench Configuration\s*$|Block Size \(B\)\s+Batch Size\b"
Reader("nixlbench", re.compile(_STARTS), read_text).register()
