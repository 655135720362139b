"""OSU micro-benchmarks: the printed tables of the MPI tests and of some NCCL tests, as many as a log has.

Sizes of allgather, gather, scatter and alltoall are per rank or peer there, and the number of ranks is printed by
osu_mbw_mr alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, ImportedTable, make_case
from linkgauge.exchange.other_names import OSU_ONE_SIDED, OSU_OTHERS, OSU_PER_BLOCK, OSU_TESTS, OSU_TYPES
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of, whole_of
from linkgauge.model.patterns import PATTERNS

_PATTERNS = {test: (pattern, "") for pattern, test in OSU_TESTS.items()} | OSU_OTHERS
_TYPES = {theirs: ours for ours, theirs in OSU_TYPES.items()} | {"MPI_SIGNED_CHAR": "int8"}
_NCCL_TYPES = {
    "char": "int8", "int8": "int8", "uint8": "uint8", "int": "int32", "int32": "int32", "int64": "int64",
    "half": "float16", "float16": "float16", "float": "float32", "float32": "float32", "double": "float64",
    "float64": "float64", "bfloat16": "bfloat16",
}  # fmt: skip
# Where a log was pasted, the # of its comments may be lost: no line is known by it.
_TITLE = re.compile(
    r"#?\s*OSU (?P<suite>MPI|NCCL|RCCL)(?P<call>_\w+)?(?P<on>-[A-Z]+(?: MANAGED)?)? "
    r"(?P<name>.+?)\s*(?:v(?P<version>\d\S*))?$"
)
_BUFFERS = re.compile(r"#?\s*Send Buffer on (\w+) .*Receive Buffer on (\w+)")
_DATATYPE = re.compile(r"#?\s*Datatype:\s*(\w+)")
_SYNCHRONIZATION = re.compile(r"#?\s*Synchronization:\s*(\S+)")
_PAIRS = re.compile(r"#?\s*\[ pairs: (\d{1,5}) \] \[ window size: (\d{1,9}) \]")
_NAMES = re.compile(r"#?\s*(?:Size\b|Avg Latency ?\(us\)|Latency ?\(us\))")
_COLUMN = re.compile(r"Size\b|(?:(?:Avg|Min|Max|Pure) )?[^\s(]+ ?\((?:MB/s|us|%)\)|\S+")
_ROW = re.compile(r"\d+(?:\s+[\d.]+)+")
_NCCL_UNREAD = "of the NCCL suite only messages, allreduce, reduce, broadcast and alltoall are read"
# Of the NCCL suite (osu_xccl_*) these mean by a size what the MPI tests mean.
_OF_NCCL = ("pingpong", "unidirectional", "bidirectional", "allreduce", "reduce", "broadcast", "alltoall")
_MEMORY = {"DEVICE": "device", "HOST": "pageable", "MANAGED": "managed"}
_ON_DEVICE = ("-CUDA", "-ROCM", "-OPENACC", "-SYCL")
_DEFAULT_WINDOW = 64
_LATENCIES = ("Avg Latency(us)", "Latency(us)", "Overall(us)")
_RATES = ("Bandwidth(MB/s)", "MB/s")


class _Test:
    """One table: what its title and the comments below it say, and its rows so far."""

    def __init__(self, line: int, title: re.Match[str]) -> None:
        self.line, self.rows = line, 0
        self.title = f"OSU {title['suite']}{title['call'] or ''} {title['name']}"
        self.transport = "mpi" if title["suite"] == "MPI" else "ccl"
        # A test named for its call (MPI_Put) is another than that of messages with the same words behind it.
        known = OSU_ONE_SIDED if title["call"] else _PATTERNS
        words = " ".join(filter(None, (title["call"], title["name"])))
        self.pattern, self.variant = known.get(words, ("", ""))
        # A message that is put or got by itself has a time, a window of them a rate.
        self.by_rate = bool(self.pattern) and PATTERNS[self.pattern].windowed and "Latency" not in title["name"]
        self.synchronization = ""
        if self.transport == "ccl" and self.pattern not in _OF_NCCL:
            self.pattern = ""
        self.versions = {"OSU": title["version"]} if title["version"] else {}
        self.ranks: int | None = None
        self.window: int | None = None
        suffix = title["on"] or ""
        managed = suffix.endswith("MANAGED")
        kind = "managed" if managed else "device" if suffix in _ON_DEVICE else "pageable"
        kind = "device" if self.transport == "ccl" else kind
        self.source = self.target = kind
        self.datatype: str | None = None
        self.columns: list[str] = []
        unknown = "no pattern measures what it does" if self.transport == "mpi" else _NCCL_UNREAD
        self.doubt = "" if self.pattern else unknown

    def comment(self, text: str) -> None:
        """Take a line that is no row."""
        if match := _BUFFERS.match(text):
            self.source, self.target = (_MEMORY.get(word, "") for word in match.groups())
            if not self.source or not self.target:
                self.doubt = self.doubt or f"buffers on {match[1]} and {match[2]} are no kinds of memory that are known"
        elif match := _DATATYPE.match(text):
            name = match[1].removeprefix("nccl").lower() if match[1].startswith("nccl") else ""
            self.datatype = _NCCL_TYPES.get(name, "") if name else _TYPES.get(match[1], "")
            if not self.datatype:
                self.doubt = self.doubt or f"no datatype for {match[1]}"
        elif match := _SYNCHRONIZATION.match(text):
            self.synchronization = match[1]
        elif match := _PAIRS.match(text):
            self.ranks, self.window = 2 * int(match[1]), int(match[2])
            if self.ranks == 2 and self.pattern:
                self.pattern = PATTERNS[self.pattern].side_by_side_of or self.pattern
        elif _NAMES.match(text):
            words = re.split(r"\s{2,}", text.lstrip("# "))
            words = words if len(words) > 1 else _COLUMN.findall(text.lstrip("# "))
            self.columns = [re.sub(r"\s+\(", "(", word.strip()) for word in words]


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    test: _Test | None = None
    into: ImportedTable | None = None
    for number, text in ((line.number, line.head) for line in lines):
        if match := _TITLE.match(text):
            _end(test, log)
            test = _Test(number, match)
            into = log.table("OSU", test.versions)
        elif test is not None and into is not None and text:
            if text[0] != "#" and text.split()[0].replace(".", "", 1).isdigit():
                test.rows += 1
                test.doubt = test.doubt or _lacking(test, hints)
                if not test.doubt:
                    _row(number, text, test, into, hints)
            elif test.rows and (text[0] == "#" or _NAMES.match(text)):
                # Another heading, or another program's comment: the rows that follow are not this test's.
                _end(test, log)
                test, into = None, None
            elif test.columns and text[0] != "#":
                log.problem(number, f"not a row of the table: {text[:80]!r}")
            else:
                test.comment(text)
        elif _ROW.fullmatch(text):
            log.problem(number, f"a row outside of a table: {text[:80]!r}")
    _end(test, log)


def _end(test: _Test | None, log: ImportedLog) -> None:
    if test is not None and test.doubt:
        rows = f"{test.rows} row{'' if test.rows == 1 else 's'}"
        log.problem(test.line, f"table of {test.title!r}, {rows} left out: {test.doubt}", test.rows)


def _figure_column(test: _Test) -> int | None:
    """Where the figure stands that is taken: its name says what it is and its unit."""
    wanted = _RATES if test.by_rate else _LATENCIES
    return next((test.columns.index(name) for name in wanted if name in test.columns), None)


def _lacking(test: _Test, hints: Hints) -> str:
    """Why none of a table's rows can be taken; empty where they can."""
    info = PATTERNS[test.pattern]
    if test.ranks is None:
        if test.by_rate and info.side_by_side_of:
            return "no line '[ pairs: N ] [ window size: N ]' says of how many ranks it is"
        test.ranks = 2 if info.pair else hints.ranks
    if test.ranks is None:
        return "OSU does not print the number of ranks, so --ranks must say it"
    if not info.takes(test.ranks):
        return f"no {info.name} is of {test.ranks} ranks"
    if _figure_column(test) is None:
        expected = "MB/s" if test.by_rate else "us"
        return f"its columns are {', '.join(test.columns) or 'not named'}: expected one of figures in {expected}"
    return ""


def _row(number: int, text: str, test: _Test, into: ImportedTable, hints: Hints) -> None:
    tokens, info, log = text.split(), PATTERNS[test.pattern], into.log
    at, ranks = _figure_column(test), test.ranks
    assert at is not None
    assert ranks is not None
    if len(tokens) != len(test.columns):
        log.problem(number, f"{len(tokens)} columns where the heading has {len(test.columns)}: {text[:80]!r}")
        return
    sizeless = info.size_means == "-"
    try:
        size, figure = 0 if sizeless else whole_of(tokens[test.columns.index("Size")]), number_of(tokens[at])
        iterations = _iterations(tokens, test.columns)
    except ValueError:
        log.problem(number, f"not a size, a figure and a count: {text[:80]!r}")
        return
    if (size <= 0 and not sizeless) or not 0 < figure < float("inf"):
        log.problem(number, f"no case: size {size}, figure {figure}")
        return
    m = size * ranks if test.pattern in OSU_PER_BLOCK else size
    asked_window = test.window or hints.window
    window = (asked_window or _DEFAULT_WINDOW) if test.by_rate else 1
    one_pair = info.pair or bool(info.side_by_side_of)
    evidence = {"size_printed": size, "estimator": "mean of a loop" if one_pair else "mean over ranks of means"}
    if test.synchronization:
        evidence["synchronization"] = test.synchronization
    if test.by_rate and asked_window is None:
        evidence["window"] = "OSU's default; the log does not say"
    if test.datatype is None:
        evidence["datatype"] = "OSU's default before 7.0; the log does not say"
    if test.by_rate:
        # The rate is the sum of both ways, and of all pairs, each of which moves the window once in that time.
        time_ns = info.lanes(ranks) * window * m / (figure * 1e6) * 1e9
    else:
        time_ns = figure * 1e3 * (2 if info.half_round_trip else 1)
    half = ranks // 2  # of several pairs the first half sends
    places = [place for k in range(half) for place in (k, half + k)] if info.side_by_side_of else range(ranks)
    if "Overlap(%)" in test.columns:
        evidence["overlap_percent"] = tokens[test.columns.index("Overlap(%)")]
    case = make_case(
        test.transport, test.pattern, m, places, variant=test.variant, cadence="streaming" if info.pair else "barrier",
        arrival="free", window=window, source_memory=test.source, target_memory=test.target,
        datatype=test.datatype or ("float32" if info.reduces else "int8"),
    )  # fmt: skip
    told: dict[str, Any] = {"evidence": evidence, "operations": iterations if iterations > 1 else None}
    times = ((time_ns * iterations, iterations),)
    looked = "Validation" in test.columns
    wrong = "OSU's validation failed" if looked and "Fail" in tokens else ""
    into.add(number, ImportedCase(case, times, wrong, verified=looked or None, **told))


def _iterations(tokens: list[str], columns: list[str]) -> int:
    """Return how many operations a figure is the mean of, where the row says it (-f); otherwise 1."""
    return max(1, whole_of(tokens[columns.index("Iterations")])) if "Iterations" in columns else 1


Reader("OSU's MPI and NCCL tests", re.compile(r"\s*#?\s*OSU (?:MPI|NCCL|RCCL)"), read_text).register()
