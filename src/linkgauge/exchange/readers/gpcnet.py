"""GPCNeT's network_test: those of its isolated tests that are a pattern of all ranks.

Read with its sources (netbench/GPCNET): each slice of one rank a node does every test at the same time, so that with
one rank a node it is a test of all of them. In a ring a rank sends to both of its neighbors, 8 messages each; a latency
is half of that, a bandwidth what a rank sends, in 2^20 B/s. Random rings are of another order in each of 30 draws.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line, number_of

_TOOL = "GPCNeT"
_VERSION = re.compile(r"Network(?:Load)? Tests v(\d\S*)$")
_RANKS = re.compile(r"Test with (\d{1,7}) MPI ranks \((\d{1,7}) nodes\)")
_SOME = re.compile(r"(\d{1,7}) nodes running Network Tests$")
_TITLE = re.compile(
    r"\|\s+((?:Isolated (?:Network|Congestion) Tests|Network Tests running with Congestion Tests).*?)\s*\|$"
)
_NAMES = re.compile(r"\|\s+Name\s+\|(.*)\|$")
_ROW = re.compile(r"\|\s+(\S.*?)\s+\|(.*)\|$")
_TEST = re.compile(r"(.+?) \(\s*(\d{1,9}) B\)$")
_ISOLATED = "Isolated Network Tests"
_WINDOW = 8
_UNITS = {"usec": "time", "MiB/s/rank": "rate"}
_TESTS = {
    "Nat Two-sided BW": ("halo", "rate"), "Multiple Allreduce": ("allreduce", "time"),
    "Multiple Alltoall": ("alltoall", "rate"),
}  # fmt: skip


class _Reading:
    """What was printed above the rows of a table."""

    def __init__(self, log: ImportedLog) -> None:
        self.log, self.into = log, log.table(_TOOL)
        self.ranks = self.nodes = 0
        self.some: int | None = None  # the nodes of the tests, where others are for congestors
        self.title = ""
        self.columns: list[str] = []
        self.left_out: dict[str, list[int]] = {}

    def row(self, line: Line, name: str, words: Sequence[str]) -> None:
        """Take one row, or say why not."""
        if self.title != _ISOLATED:
            why = f"{self.title or 'a table without a title'}: of figures beside congestors no case is made"
            self.left_out.setdefault(why, []).append(line.number)
            return
        test = _TEST.match(name)
        pattern, of = _TESTS.get(test[1], ("", "")) if test else ("", "")
        if test is None or not pattern:
            why = "tests in rings of random order: which ranks are neighbors is not printed"
            if not name.startswith("RR "):
                why = f"{name[:40]}: no pattern measures it"
            self.left_out.setdefault(why, []).append(line.number)
        elif not self.ranks or self.ranks != self.nodes:
            why = "no line says of how many ranks they are"
            if self.ranks:
                why = f"{self.ranks} ranks on {self.nodes} nodes are several such tests at once, which no pattern is"
            self.left_out.setdefault(f"tests of one rank a node: {why}", []).append(line.number)
        else:
            self._case(line.number, pattern, of, int(test[2]), words)

    def _case(self, number: int, pattern: str, of: str, size: int, words: Sequence[str]) -> None:
        said = dict(zip(self.columns, words, strict=False))
        if len(words) != len(self.columns) or _UNITS.get(said.get("Units", "")) != of or "Avg" not in said:
            self.log.problem(number, f"not a row of the table: {' | '.join(words)[:80]!r}")
            return
        try:
            figure = number_of(said["Avg"])
        except ValueError:
            self.log.problem(number, f"figures that are no numbers: {' | '.join(words)[:80]!r}")
            return
        n, window = self.nodes if self.some is None else self.some, _WINDOW if pattern == "halo" else 1
        if not 0 < figure < 1e9 or size <= 0 or not 2 <= n <= MOST_RANKS:
            self.log.problem(number, f"no case: size {size}, {figure:g} {said['Units']}, {n} ranks")
            return
        sent = {"halo": 2 * window * size, "alltoall": (n - 1) * size}.get(pattern, 0)
        time_ns = sent / (figure * (1 << 20)) * 1e9 if of == "rate" else figure * 1e3
        evidence: dict[str, Any] = {
            "estimator": "mean over ranks of means",
            "99%": f"{said.get('99%', '')[:20]} {said['Units']}",
        }
        reduces = pattern == "allreduce"
        case = make_case(
            "mpi", pattern, size, range(n), cadence="streaming", arrival="free", window=window,
            source_memory="pageable", target_memory="pageable", datatype="float64" if reduces else "int8",
            distribution="ring" if pattern == "halo" else "",
        )  # fmt: skip
        self.into.add(number, ImportedCase(case, ((time_ns, 1),), evidence=evidence))

    def end(self) -> None:
        """Say what was left out, a line a reason."""
        for why, lines in self.left_out.items():
            count = f"{len(lines)} row{'' if len(lines) == 1 else 's'} left out"
            self.log.problem(lines[0], f"{count}, {why}", len(lines))
        self.left_out = {}


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    reading = _Reading(log)
    for line in lines:
        text = line.head
        if match := _VERSION.match(text):
            reading.end()
            reading = _Reading(log)
            reading.into.versions[_TOOL] = match[1]
        elif match := _RANKS.match(text):
            reading.ranks, reading.nodes = int(match[1]), int(match[2])
        elif match := _SOME.match(text):
            reading.some = int(match[1])
        elif match := _TITLE.match(text):
            reading.title, reading.columns = match[1], []
        elif match := _NAMES.match(text):
            reading.columns = [word.strip() for word in match[1].split("|")]
        elif (match := _ROW.match(text)) and reading.columns:
            reading.row(line, match[1], [word.strip() for word in match[2].split("|")])
    reading.end()


_STARTS = r"Network(?:Load)? Tests v\d|\|\s*(?:Isolated (?:Network|Congestion)|Network) Tests\b.*\|$"
Reader(_TOOL, re.compile(_STARTS), read_text).register()
