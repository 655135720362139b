"""ucx_perftest: the last line of each test.

Read with its source (openucx/ucx, src/tools/perf): a latency is half of a round trip, an overhead is the time of one
message of a stream; MB/s are 2^20 B/s. What the test is and its size are printed where it serves (`Test:`, `Message
size:`), else they stand in the command, or the user says them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of, whole_of
from linkgauge.model.quantity import format_duration as time_text

_HEAD = re.compile(r"\|\s+\|\s+\|\s+(latency|overhead|response time) \(usec\)")
_SAID = re.compile(r"\|\s*(API|Test|Send memory|Recv memory|Message size|Window size):\s+(.*?)\s*\|$")
_FINAL = re.compile(r"Final:\s+(\S.*)$")
_COMMAND = re.compile(r"(?:.*[\s/$#])?ucx_perftest\s(.*)$")
_TESTS = {
    "tag match latency": ("pingpong", "tag"), "tag match bandwidth": ("unidirectional", "tag"),
    "put latency": ("pingpong", "put"), "put bandwidth": ("unidirectional", "put"),
    "get latency": ("", ""), "get bandwidth": ("unidirectional", "get"),
    "tag_lat": ("pingpong", "tag"), "tag_bw": ("unidirectional", "tag"), "ucp_put_lat": ("pingpong", "put"),
    "ucp_put_bw": ("unidirectional", "put"), "ucp_get": ("unidirectional", "get"),
}  # fmt: skip
_MEMORY = {"host": "pageable", "cuda": "device", "rocm": "device", "ze-device": "device", "cuda-managed": "managed",
           "rocm-managed": "managed"}  # fmt: skip
_DEFAULT_WINDOW = 32


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the case of each test's last line into `log`."""
    said: dict[str, str] = {}
    kind = ""
    for line in lines:
        if match := _COMMAND.match(line.head):
            said, kind = _of_command(match[1]), ""
        elif match := _HEAD.match(line.head):
            kind = match[1]
        elif match := _SAID.match(line.head):
            said[match[1]] = match[2]
        elif match := _FINAL.match(line.head):
            _take(line.number, match[1].split(), said, kind, log, hints)
            said = {}


def _of_command(words: str) -> dict[str, str]:
    """What a command line says, by the names of the lines that a server prints."""
    found = {"ucx_perftest": words}
    for name, flag in (("Test", "t"), ("Message size", "s"), ("Window size", "W"), ("memory", "m")):
        if match := re.search(rf"(?:^|\s)-{flag}\s*(\S+)", words):
            found[name] = match[1]
    memory = found.pop("memory", "host").split(",")
    return found | {"Send memory": memory[0], "Recv memory": memory[-1]}


def _take(number: int, figures: Sequence[str], said: dict[str, str], kind: str, log: ImportedLog, hints: Hints) -> None:
    test = said.get("Test", "")
    known = _TESTS.get(test, ("", "")) if test else (hints.pattern or "", "tag")
    name = test or "a test"
    if len(figures) != 8:
        log.problem(number, f"{name} left out: {len(figures)} figures in its last line where there are 8")
    elif not test and hints.pattern is None:
        log.problem(number, "a test left out: the log does not say which it is, so --pattern must")
    elif known[0] not in ("pingpong", "unidirectional"):
        log.problem(number, f"{name} left out: no pattern of it is read, only tags, puts and gets")
    elif kind and (kind == "latency") != (known[0] == "pingpong"):
        log.problem(number, f"{name} left out: its figures are of {kind}, which no {known[0]} has")
    else:
        _case(number, figures, said, known, log, hints)


def _case(
    number: int, figures: Sequence[str], said: dict[str, str], known: tuple[str, str], log: ImportedLog, hints: Hints
) -> None:
    (pattern, variant), name = known, said.get("Test", "a test")
    try:
        count, *rest = whole_of(figures[0]), *map(number_of, figures[1:])
        size = whole_of(said["Message size"]) if "Message size" in said else hints.size_bytes
        window = whole_of(said["Window size"]) if "Window size" in said else hints.window
    except ValueError:
        log.problem(number, f"{name} left out: a figure that is not a number: {' '.join(figures)[:80]!r}")
        return
    overall_us, mib, rate = rest[2], rest[4], rest[6]
    memory = [_MEMORY.get(said.get(f"{end} memory", "host"), "") for end in ("Send", "Recv")]
    if size is None:
        log.problem(number, f"{name} left out: the log does not say of which size, so --size must")
        return
    printed = mib * (1 << 20) / rate if rate > 0 else math.nan
    slack = 0.51 / max(rate, 1) + 0.0051 / max(mib, 0.0051)  # of a whole number and of two digits behind the point
    if not count > 0 or not 0 < overall_us < math.inf or not size > 0 or not all(memory):
        log.problem(
            number, f"{name} left out: no case: size {size}, {time_text(overall_us * 1e3)}, buffers {said}"[:160]
        )
        return
    if rate > 0 and abs(printed / size - 1) > slack + 1e-3 and mib > 0:
        log.problem(number, f"{name} left out: its rates are of messages of {printed:.0f} bytes, not {size}")
        return
    evidence: dict[str, Any] = {"test": name, "estimator": "mean of a loop"}
    window = 1 if pattern == "pingpong" else window or _DEFAULT_WINDOW
    if pattern != "pingpong" and "Window size" not in said and hints.window is None:
        evidence["window"] = "ucx_perftest's default; the log does not say"
    case = make_case(
        "ucx", pattern, size, (0, 1), variant="" if variant == "tag" else variant, cadence="streaming", arrival="free",
        window=window, source_memory=memory[0], target_memory=memory[1], datatype="int8",
    )  # fmt: skip
    time_ns = overall_us * 1e3 * (2 if pattern == "pingpong" else window)
    into = log.table("ucx_perftest")
    into.add(number, ImportedCase(case, ((time_ns * count, count),), evidence=evidence, operations=count))


_STARTS = r"\|\s*(?:Stage|API:|Test:)\s|\[thread \d+\]\s|Final:\s+\d+\s|\|\s+\|\s+\|\s+(?:latency|overhead) \(usec\)"
Reader("ucx_perftest", re.compile(_STARTS), read_text).register()
