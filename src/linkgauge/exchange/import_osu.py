"""OSU micro-benchmarks: the printed tables of the MPI tests.

Sizes of allgather, gather, scatter and alltoall are per rank or peer there, and the number of ranks is nowhere printed.
"""

from __future__ import annotations

import re
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.other_names import OSU_PER_BLOCK, OSU_TESTS, OSU_TYPES
from linkgauge.model.patterns import PATTERNS

_PATTERNS = {test: pattern for pattern, test in OSU_TESTS.items()}
_TYPES = {theirs: ours for ours, theirs in OSU_TYPES.items()} | {"MPI_SIGNED_CHAR": "int8"}
TEXT = re.compile(r"(?m)^#\s*OSU MPI")
_HEADER = re.compile(r"#\s*OSU MPI(-[A-Z]+(?: MANAGED)?)? (.+?)\s*(?:v(\d\S*))?\s*$")
_BUFFERS = re.compile(r"#\s*Send Buffer on (\w+) .*Receive Buffer on (\w+)")
_MEMORY = {"DEVICE": "device", "HOST": "pageable", "MANAGED": "managed"}
_DEFAULT_WINDOW = 64


class _Test:
    """What the comments before a table say."""

    def __init__(self, suffix: str | None, name: str) -> None:
        self.name = name
        self.pattern = _PATTERNS.get(name, "")
        managed = bool(suffix and suffix.endswith("MANAGED"))
        kind = "managed" if managed else "device" if suffix in ("-CUDA", "-ROCM", "-OPENACC") else "pageable"
        self.source = self.target = kind
        self.datatype: str | None = None
        self.columns: list[str] = []


def read_text(text: str, log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    test: _Test | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if match := _HEADER.match(stripped):
            test = _Test(match[1], match[2])
            if match[3]:
                log.versions["OSU"] = match[3]
            if not test.pattern:
                log.problem(number, f"no pattern for OSU's {test.name!r}: its rows are left out")
        elif stripped.startswith("#"):
            if test is not None:
                _comment(number, stripped, test, log)
        elif stripped:
            if test is None:
                log.problem(number, f"not a row of a table: {stripped[:80]!r}")
            elif test.pattern:
                _row(number, stripped, test, log, hints)


def _comment(number: int, line: str, test: _Test, log: ImportedLog) -> None:
    if match := _BUFFERS.match(line):
        test.source, test.target = (_MEMORY.get(word, "") for word in match.groups())
    elif match := re.match(r"#\s*Datatype:\s*(\w+)", line):
        test.datatype = _TYPES.get(match[1], "")
        if not test.datatype and test.pattern:
            log.problem(number, f"no datatype for {match[1]}: its rows are left out")
            test.pattern = ""
    elif re.match(r"#\s*Size\b", line):
        test.columns = [part.strip() for part in re.split(r"\s{2,}", line.lstrip("# "))]


def _row(number: int, line: str, test: _Test, log: ImportedLog, hints: Hints) -> None:
    tokens = line.split()
    pair = PATTERNS[test.pattern].pair
    ranks = 2 if pair else hints.ranks
    if ranks is None:
        log.problem(number, "OSU does not print the number of ranks, so --ranks must say it: the table is left out")
        test.pattern = ""
        return
    try:
        size, figure = int(tokens[0]), float(tokens[1])
    except (ValueError, IndexError):
        log.problem(number, f"not a size and a figure: {line[:80]!r}")
        return
    heading = test.columns[1] if len(test.columns) > 1 else ""
    unit = "MB/s" if "MB/s" in heading else "us" if "us" in heading else ""
    rate = PATTERNS[test.pattern].windowed
    if unit != ("MB/s" if rate else "us"):
        log.problem(number, f"figures in {heading!r}, expected {'MB/s' if rate else 'us'}")
        return
    if size <= 0 or figure <= 0 or not test.source or not test.target:
        log.problem(number, f"no case: size {size}, figure {figure}")
        return
    m = size * ranks if test.pattern in OSU_PER_BLOCK else size
    window = (hints.window or _DEFAULT_WINDOW) if rate else 1
    reduces = PATTERNS[test.pattern].reduces
    evidence = {"size_printed": size, "estimator": "mean of a loop" if pair else "mean over ranks of means"}
    if rate and hints.window is None:
        evidence["window"] = "OSU's default; the log does not say"
    if test.datatype is None:
        evidence["datatype"] = "OSU's default before 7.0; the log does not say"
    if rate:
        # Of bibw the rate is the sum of both ways, each of which moves the window once in that time.
        ways = PATTERNS[test.pattern].ways
        time_ns = ways * window * m / (figure * 1e6) * 1e9
    else:
        time_ns = figure * 1e3 * (2 if test.pattern == "pingpong" else 1)
    case = make_case(
        "mpi", test.pattern, m, range(ranks), cadence="streaming" if pair else "barrier", arrival="free", window=window,
        source_memory=test.source, target_memory=test.target,
        datatype=test.datatype or ("float32" if reduces else "int8"),
    )  # fmt: skip
    iterations = _iterations(tokens, test.columns)
    told: dict[str, Any] = {"evidence": evidence, "operations": iterations if iterations > 1 else None}
    times = ((time_ns * iterations, iterations),)
    looked = "Validation" in test.columns
    wrong = "OSU's validation failed" if looked and "Fail" in tokens else ""
    log.add(number, ImportedCase(case, times, wrong, verified=looked or None, **told))


def _iterations(tokens: list[str], columns: list[str]) -> int:
    """Return how many operations a figure is the mean of, where the row says it (-f); otherwise 1."""
    if "Iterations" in columns and len(tokens) == len(columns):
        count = tokens[columns.index("Iterations")]
        if count.isdecimal() and int(count) > 0:
            return int(count)
    return 1
