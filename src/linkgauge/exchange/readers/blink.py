"""blink's data.csv: one row an iteration, columns such as `0_Transfer Time_s`, the number being the application's.

The file does not say what was measured: pattern, transport, ranks and size come from the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of

_STARTS = re.compile(r"[^{\[]*\d_Transfer Time_s")


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the case of a data.csv into `log`: application 0, the one measured; others only load the network."""
    start = next(at for at, line in enumerate(lines) if _STARTS.match(line.head))
    line = lines[start].number
    names, *rows = ([cell.strip(' "') for cell in one.text.split(",")] for one in lines[start:])
    column = names.index("0_Transfer Time_s") if "0_Transfer Time_s" in names else None
    pattern, transport, ranks, size = hints.pattern, hints.transport, hints.ranks, hints.size_bytes
    if pattern is None or transport is None or ranks is None or size is None:
        said = {"--pattern": pattern, "--transport": transport, "--ranks": ranks, "--size": size}
        lacking = ", ".join(flag for flag, value in said.items() if value is None)
        log.problem(line, f"blink's file does not say it: give {lacking}")
        return
    if column is None:
        log.problem(line, "no column '0_Transfer Time_s'")
        return
    # blink halves the round trip of its ping-pongs before it stores them.
    factor = 2 if pattern == "pingpong" else 1
    intervals = []
    for number, row in enumerate(rows, start=line + 1):
        if row == [""]:
            continue
        if len(row) != len(names):
            log.problem(number, f"{len(row)} cells where the heading has {len(names)}")
            continue
        text_ = row[column]
        if not text_:
            continue  # this application made fewer iterations than another
        try:
            time_s = number_of(text_)
        except ValueError:
            log.problem(number, f"{text_[:40]!r} is not a time")
            continue
        if not 0 < time_s < 1e6:
            log.problem(number, f"time {text_}: blink's mark of a launch that failed")
            continue
        intervals.append((time_s * 1e9 * factor, 1))
    if intervals:
        case = make_case(transport, pattern, size, range(ranks), cadence="barrier", arrival="free")
        evidence = {"estimator": "each iteration, slowest rank; barrier exit skew included"}
        log.table("blink").add(line, ImportedCase(case, tuple(intervals), evidence=evidence, operations=len(intervals)))


Reader("blink", _STARTS, read_text).register()
