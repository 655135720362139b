"""fabtests and fi_pingpong of libfabric: the tables that all of them print.

Read with its sources (ofiwg/libfabric, util/pingpong.c and fabtests/common/shared.c): us/xfer is the time of one
message, of which a round trip has two; sizes are cut to k, m and g of 1024. `#sent` is fi_pingpong's alone; of the
other programs the table does not say which it is: the command does, or the user.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of
from linkgauge.model.quantity import format_duration as time_text

_COMMAND = re.compile(r"(?:.*[\s/$#])?(fi_\w+)(?:\s|$)(.*)$")
_HEADING = re.compile(r"bytes\s+(?:#sent\s+#ack|iters)\s+total\s+time\s+MB/sec\s+usec/xfer\s+Mxfers/sec$")
_ROW = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)\s+=?([\d.]+)([kmgb]?)\s")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COUNTS = {"": 1, "k": 1000, "m": 10**6, "g": 10**9, "b": 10**9}
_PROGRAMS = {
    "fi_pingpong": ("pingpong", ""), "fi_rdm_pingpong": ("pingpong", ""), "fi_msg_pingpong": ("pingpong", ""),
    "fi_rdm_tagged_pingpong": ("pingpong", ""), "fi_rma_pingpong": ("pingpong", "put"),
    "fi_msg_bw": ("unidirectional", ""), "fi_rdm_bw": ("unidirectional", ""),
    "fi_rdm_tagged_bw": ("unidirectional", ""),
}  # fmt: skip
_DEFAULT_WINDOW = 64


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`; each heading begins one."""
    program, names, columns, options = "", "", 0, ""
    for line in lines:
        if match := _HEADING.match(line.head):
            columns, names = len(line.head.split()), "fi_pingpong" if "#sent" in line.head else program
            program = ""
        elif (match := _COMMAND.match(line.head)) and not columns:
            program, options = match[1], match[2]
        elif match := _COMMAND.match(line.head):
            program, options, columns = match[1], match[2], 0
        elif re.match(r"\d", line.head) and columns:
            _row(line, names, columns, options, log, hints)
        elif columns and line.head:
            columns = 0


def _row(line: Line, program: str, columns: int, options: str, log: ImportedLog, hints: Hints) -> None:
    words, match = line.head.split(), _ROW.match(line.head)
    if not program and hints.pattern is None:
        log.problem(line.number, "a row left out: the log does not say of which program it is, so --pattern must")
        return
    pattern, variant = _PROGRAMS.get(program, ("", "")) if program else (hints.pattern or "", "")
    if pattern not in ("pingpong", "unidirectional"):
        log.problem(line.number, f"a row of {program or pattern} left out: no pattern of it is read")
        return
    if match is None or len(words) != columns:
        log.problem(line.number, f"not a row of the table: {line.head[:80]!r}")
        return
    try:
        size_text = number_of(match[1])
        mb, us = number_of(words[-3]), number_of(words[-2])
        count = round(number_of(match[3]) * _COUNTS[match[4]])
    except ValueError:
        log.problem(line.number, f"not a size, a count and figures: {line.head[:80]!r}")
        return
    size = size_text * _UNITS[match[2]]
    # Sizes are cut: 1000 KiB and some bytes are 1000k too. What rates and times say has to be this size.
    slack = 0.0051 / max(mb, 0.0051) + 0.0051 / max(us, 0.0051) + 1e-3
    if not 0 < us < math.inf or size <= 0 or size % 1 or count <= 0:
        log.problem(line.number, f"no case: size {size:g}, {time_text(us * 1e3)}")
        return
    if mb >= 0.1 and abs(mb * us / size - 1) > slack:
        log.problem(
            line.number,
            f"a row left out: {mb:g} MB/s at {time_text(us * 1e3)} are of {mb * us:.0f} bytes, not {size:.0f}",
        )
        return
    device = re.search(r"(?:^|\s)-D\s*(?:cuda|rocr|ze)", options) is not None
    window = hints.window or _DEFAULT_WINDOW if pattern == "unidirectional" else 1
    evidence: dict[str, Any] = {"estimator": "mean of a loop", "program": program or "not said"}
    if pattern == "unidirectional" and hints.window is None:
        evidence["window"] = "fabtests' default; the log does not say"
    memory = "device" if device else "pageable"
    case = make_case(
        "ofi", pattern, int(size), (0, 1), variant=variant, cadence="streaming", arrival="free", window=window,
        source_memory=memory, target_memory=memory, datatype="int8",
    )  # fmt: skip
    time_ns = us * 1e3 * (2 if pattern == "pingpong" else window)
    log.table("fabtests").add(line.number, ImportedCase(case, ((time_ns * count, count),), evidence=evidence,
                                                        operations=count))  # fmt: skip


Reader("fabtests", re.compile(r"bytes\s+(?:#sent\s+#ack|iters)\s+total\s+time\s+MB/sec"), read_text).register()
