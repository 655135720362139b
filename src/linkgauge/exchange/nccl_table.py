"""A table of nccl-tests' or rccl-tests' figures, printed or as JSON, as cases; and whether the table bears itself out.

Sizes there are totals over all blocks, the own one included; times are means over the iterations and ranks. The bus
bandwidth that a table prints follows from its size, time, program and number of ranks: that of what is taken here is
held against it, so that ranks or a program that are not the table's own are found.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath
from typing import Any

from linkgauge.exchange.imported import ImportedCase, ImportedLog, make_case, restated
from linkgauge.exchange.other_names import NCCL_OLDER_TYPES, NCCL_PROGRAMS, NCCL_TYPES
from linkgauge.model.case import OPS, Case
from linkgauge.model.log_text import number_of, whole_of
from linkgauge.model.patterns import PATTERNS

PATTERN_OF = {program: pattern for pattern, program in NCCL_PROGRAMS.items()}
_TYPES = NCCL_OLDER_TYPES | {theirs: ours for ours, theirs in NCCL_TYPES.items()}
_ROUNDING = 1e-3  # what a printed bus bandwidth may differ by, beside the last digits of it and of the time
# Versions before 2.12 print the largest error in place of the count of wrong values; up to these it is rounding
# (DeltaMaxValue of their common.cu). What is not added up has none.
_LARGEST_ERROR = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}
_LEAST_US = 1e-6
MIXED = "the output of several runs is mixed in it, as where mpirun starts a program that was built without MPI"


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a row says of one run of it, out of place or in place; texts as they are printed.

    `row` has size, type, redop and root, `figures` time, busbw and wrong, or error in its place. `intervals` are single
    iterations' (ns, 1), where the tool gives them.
    """

    line: int
    row: Mapping[str, str]
    figures: Mapping[str, str]
    in_place: bool
    intervals: tuple[tuple[float, int], ...] = ()


@dataclasses.dataclass
class NcclTable:
    """One table: what is known of it before its rows.

    `program`: as the log names it, empty where it does not; `said_pattern`: what the user says of a log that does not.
    `ranks` is the number, `devices` are the entries of the list of devices. `doubt`: why none of it can be taken.
    """

    line: int
    _: dataclasses.KW_ONLY
    tool: str = "nccl-tests"
    transport: str = "ccl"
    program: str = ""
    said_pattern: str | None = None
    ranks: int = 0
    devices: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    iterations: int = 20
    warmup: int = 5
    rows: int = 0
    found: list[Figures] = dataclasses.field(default_factory=list)
    doubt: str = ""

    @property
    def name(self) -> str:
        """What it is called in a message."""
        return f"table of {self.program}" if self.program else "table"

    @property
    def pattern(self) -> str | None:
        """The program's pattern; the user's word counts only where the log names no program."""
        return pattern_of(self.program) if self.program else self.said_pattern

    def finish(self, log: ImportedLog) -> None:
        """Take the table's cases into `log`, or say why all of it is left out."""
        if not self.rows:
            return
        cases = [] if (reason := self._unknown()) else self._cases(log)
        if not (reason := reason or self._contradiction(log, cases)):
            into = log.table(self.tool, self.versions, self.devices)
            for figures, one in cases:
                into.add(figures.line, one)
            return
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
        log.problem(self.line, f"{self.name}, {rows} left out: {reason}", self.rows)

    def _unknown(self) -> str:
        """Why the table cannot be taken before a row is looked at; empty where it can."""
        listed = sorted(one["rank"] for one in self.devices)
        if repeated := [rank for rank in dict.fromkeys(listed) if listed.count(rank) > 1]:
            hosts = ", ".join(dict.fromkeys(str(one["host"]) for one in self.devices if one["rank"] == repeated[0]))
            return f"rank {repeated[0]} is listed {listed.count(repeated[0])} times ({hosts}): {MIXED}"
        if self.doubt:
            return self.doubt
        if self.program and self.pattern is None:
            return "no pattern measures what this program does"
        if self.pattern is None:
            return "the log does not say which program it is, so --pattern must"
        if listed != list(range(len(listed))):
            return f"its list of devices has {len(listed)} ranks up to rank {listed[-1]}: some are missing"
        if len({one.get("group", 0) for one in self.devices}) > 1:
            return "its ranks are several groups (NCCL_TESTS_SPLIT)"
        if self.ranks == 0:
            return "the log does not say how many ranks took part, so --ranks must"
        if self.ranks == 1 or not PATTERNS[self.pattern].takes(self.ranks):
            return f"no {self.pattern} is of {self.ranks} rank{'' if self.ranks == 1 else 's'}"
        return ""

    def _cases(self, log: ImportedLog) -> list[tuple[Figures, ImportedCase]]:
        made = ((figures, self._case(figures, log)) for figures in self.found)
        return [(figures, one) for figures, one in made if one is not None]

    def _case(self, of: Figures, log: ImportedLog) -> ImportedCase | None:
        assert self.pattern is not None
        info, figures = PATTERNS[self.pattern], of.figures
        try:
            total, time_us = whole_of(of.row["size"]), number_of(figures["time"])
            root = max(0, whole_of(of.row.get("root") or "-1"))
            datatype = _TYPES.get(of.row.get("type", ""))
            wrong = _wrong(figures, datatype, info.reduces)
            bus = number_of(figures["busbw"]) if figures.get("busbw") else None
            if not all(map(math.isfinite, (time_us, bus or 0.0, wrong or 0.0))):
                raise ValueError
        except (KeyError, ValueError):
            log.problem(of.line, f"a figure that is not a number: {' '.join(figures.values())[:80]!r}")
            return None
        op = of.row.get("redop") or "none"
        size = restated(info.name, total, self.ranks)
        if datatype is None or op not in ("none", *OPS) or size is None or size <= 0 or not time_us > _LEAST_US:
            what = f"size {total}, type {of.row.get('type')}, operation {op}, time {time_us}"
            log.problem(of.line, f"no case: {what}")
            return None
        case = make_case(
            self.transport, info.name, size, range(self.ranks), cadence="streaming", batch=self.iterations,
            in_place=of.in_place, datatype=datatype, op=op if info.reduces and op in OPS else "sum",
            root=root if info.rooted else 0, warmup=self.warmup, clock="event" if of.intervals else "host",
        )  # fmt: skip
        times = of.intervals or ((time_us * 1e3 * self.iterations, self.iterations),)
        evidence = {"size_printed": total, "busbw_printed_gb_per_s": bus, "estimator": "mean over iterations and ranks"}
        said = f"{wrong:g} wrong values" if wrong else ""
        return ImportedCase(
            case, tuple(times), said, verified=None if wrong is None else True, evidence=evidence,
            operations=sum(iterations for _, iterations in times),
        )  # fmt: skip

    def _contradiction(self, log: ImportedLog, cases: Sequence[tuple[Figures, ImportedCase]]) -> str:
        """What of the table does not go with the pattern and ranks that are taken; empty where all does."""
        assert self.pattern is not None
        info = PATTERNS[self.pattern]
        otherwise = "" if self.program else "; give another --pattern"
        without_op = next((of for of, _ in cases if (of.row.get("redop") or "none") == "none"), None)
        if info.reduces and without_op is not None:
            return f"line {without_op.line} has no reduction (redop), which an {info.name} has{otherwise}"
        if log.own:
            return ""
        off = [(of, one.case) for of, one in cases if not _agrees(of, one.case, self.pattern)]
        if not off:
            return ""
        of, case = off[0]
        if without_op is not None and all(_agrees(of, one.case, "allreduce") for of, one in cases):
            # What it prints is no program's own of these, but names the number of ranks, which is what could be wrong.
            words = f"its busbw is by allreduce's 2(n-1)/n, not by {info.name}'s factor: both say {self.ranks} ranks"
            log.note(self.line, f"{self.name}: {words}, and ours is by {info.name}'s")
            return ""
        ours = _bus_bandwidth(case.ranks, self.pattern, int(of.row["size"]), float(of.figures["time"]))
        return (
            f"line {of.line} prints a bus bandwidth of {of.figures['busbw']} GB/s, which {info.name} of {self.ranks} "
            f"ranks does not give: {ours:.4g} GB/s{otherwise}"
        )


def pattern_of(program: str) -> str | None:
    """The pattern of a program by its path; a build for MPI may say so at the end of its name."""
    return PATTERN_OF.get(PurePosixPath(program).name.removesuffix("_mpi"))


def _wrong(figures: Mapping[str, str], datatype: str | None, reduces: bool) -> float | None:
    """How many values were wrong, None where that is unknown; of a largest error 1 where that is no rounding."""
    if "error" in figures:
        if figures["error"] in ("N/A", ""):
            return None
        return float(number_of(figures["error"]) > (_LARGEST_ERROR.get(datatype or "", 0.0) if reduces else 0.0))
    return None if figures.get("wrong", "") in ("N/A", "") else number_of(figures["wrong"])


def _bus_bandwidth(ranks: int, pattern: str, total: int, time_us: float) -> float:
    """In GB/s, of what nccl-tests counts as so many bytes."""
    info, size = PATTERNS[pattern], restated(pattern, total, ranks) or 0
    return float(info.payload_bytes(size, ranks, 1) * info.bus_factor(ranks)) / (time_us * 1e-6) / 1e9


def _agrees(of: Figures, case: Case, pattern: str) -> bool:
    """Whether the printed bus bandwidth is a pattern's by the case's ranks and the printed time, up to their digits."""
    printed = of.figures.get("busbw", "")
    if not printed:
        return True
    time_us = float(of.figures["time"])
    ours = _bus_bandwidth(case.ranks, pattern, int(of.row["size"]), time_us)
    allowed = _last_digit(printed) + ours * (_last_digit(of.figures["time"]) / time_us + _ROUNDING)
    return abs(float(printed) - ours) <= allowed


def _last_digit(text: str) -> float:
    """What one in the last digit of a printed number is worth: 0.01 of 30.49, 1000 of 1.2e+04."""
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return float(10.0**exponent) if isinstance(exponent, int) and abs(exponent) < 300 else 0.0
