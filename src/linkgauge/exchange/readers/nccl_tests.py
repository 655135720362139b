"""nccl-tests and rccl-tests: their printed tables, as many as a log has, each by its own devices and program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from linkgauge.exchange.imported import Hints, ImportedLog
from linkgauge.exchange.nccl_table import MIXED, Figures, NcclTable
from linkgauge.exchange.other_names import NCCL_PROGRAMS, NCCL_UNREAD_PROGRAMS, nccl_version
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line
from linkgauge.model.transports import TRANSPORTS, transport_shown_as

# Where a log was pasted, the # of its comments may be lost: no line is known by it.
_STARTING = re.compile(r"#?\s*Collective test starting:\s*(\S+)")
_CONCLUDED = re.compile(r"#?\s*Collective test concluded:")
_SETTINGS = re.compile(r"#?\s*nThread \d+ nGpus \d+\b")
_ITERATIONS = re.compile(r"warmup iters: (\d{1,9}) iters: (\d{1,9})(?: agg iters: (\d{1,9}))?(?!\S| agg)")
_VERSION = re.compile(r"#?\s*nccl-tests version (\S+)|rccl-tests: Version (\S+)")
_LIBRARY = re.compile(r"(?:nccl|rccl)-library=(\d{1,9})")
_DEVICES = re.compile(r"#?\s*Using devices\b")
_RANK = re.compile(
    r"#?\s*Rank\s+(\d{1,9})(?:\s+Group\s+(\d{1,9}))?\s+Pid\s+(\d{1,9})\s+on\s+(\S+)\s+device\s+(\d{1,9})\s+\[([^\]]*)\]"
    r"\s*(.*)"
)
_RANK_DAMAGED = re.compile(r"#?\s*Rank\s")
# What `export` writes below the program's name: whose times these are, so that a table comes back as what it was.
_OURS = re.compile(r"#\s*by Linkgauge, (\w+)\b(?:, [NR]CCL (\d[\w.]*))?")
_SIDES = re.compile(r"#?\s*(?:out-of-place|in-place)\b")
_NAMES = re.compile(r"#?\s*(?=.*\bsize\b)(?=.*\bcount\b)(?=.*\balgbw\b)(?=.*\bbusbw\b)[\w# ()%/.-]+$", re.IGNORECASE)
_UNITS = re.compile(r"#?\s*\(B\)\s")
_END = re.compile(r"#?\s*Avg bus bandwidth\b")
_OTHERS = re.compile(r"#?\s*Out of bounds values\b")
_PROGRAMS = "|".join(re.escape(name) for name in (*NCCL_PROGRAMS.values(), *NCCL_UNREAD_PROGRAMS))
# A script's own line about the program that comes, such as its name between ==== or the command.
_NAMED = re.compile(rf"""[^"\[{{#]*?(?<![\w-])({_PROGRAMS})(?:_mpi)?(?![\w.:-])""")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT?|(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(?:\.\d+)?Z?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WHOLE = re.compile(r"-?\d+")
_SAID = ("size", "count", "type", "redop", "root")
_STARTS = (_STARTING, _SETTINGS, _VERSION, _DEVICES, _NAMES, _NAMED)


class _Reading:
    """A part of a log: the table at hand, and what a script said of the next one."""

    def __init__(self, log: ImportedLog, hints: Hints) -> None:
        self.log, self.hints = log, hints
        self.outside: list[Line] = []
        self.unfinished = False  # the table before got as far as a heading and no further: another run may have cut in
        self._forget()
        self._begin(0)

    def _forget(self) -> None:
        self.tool, self.announced = "nccl-tests", ""
        self.versions: dict[str, str] = {}

    def _begin(self, line: int) -> None:
        self.table = NcclTable(line, said_pattern=self.hints.pattern)
        self.names: list[str] = []
        self.in_place_first = False
        self.headings = self.ends = 0

    @property
    def _begun(self) -> bool:
        return bool(self.names or self.table.devices)

    def close(self, line: int) -> None:
        """End the table at hand, and begin the next, of which nothing is known."""
        table = self.table
        table.program = table.program or self.announced
        table.tool, table.versions = self.tool, self.versions
        table.ranks = len(table.devices) or self.hints.ranks or 0
        again = len({tuple(of.row.values()) for of in table.found if not of.in_place}) < sum(
            not of.in_place for of in table.found
        )
        if self.ends > 1 or self.headings > 1 or (self.unfinished and again):
            table.doubt = table.doubt or MIXED
        table.finish(self.log)
        if self._begun:
            self._forget()
            self.unfinished = not table.rows and not self.ends
        self._begin(line)

    def take(self, line: Line) -> None:
        """Take one line."""
        text = line.head
        if not text:
            return
        for form, taken in _FORMS:
            if match := form.match(text):
                taken(self, line, match)
                return
        if not text.startswith("#"):
            self._row(line, text)

    def starting(self, line: Line, match: re.Match[str]) -> None:
        """The program's own first word."""
        self.close(line.number)
        self.table.program = match[1]

    def settings(self, line: Line, match: re.Match[str]) -> None:
        """The line of its settings, the first one where a version does not name itself."""
        if self._begun:
            self.close(line.number)
        if found := _ITERATIONS.search(match.string):
            self.table.warmup = int(found[1])
            self.table.iterations = int(found[2]) * int(found[3] or 1)
        if "iters:" in match.string and not (found and self.table.iterations):
            self.table.doubt = f"line {line.number} does not say of how many iterations it is"

    def version(self, line: Line, match: re.Match[str]) -> None:
        """The versions of the tests and of their library, of this run's tables."""
        if self._begun:
            self.close(line.number)
        self.tool = "nccl-tests" if match[1] else "rccl-tests"
        self.versions = {self.tool: match[1] or match[2]}
        if library := _LIBRARY.search(match.string):
            self.versions["nccl" if match[1] else "rccl"] = nccl_version(int(library[1]))

    def ours(self, _: Line, match: re.Match[str]) -> None:
        """The line of a table that Linkgauge wrote in this form: its transport and, of ccl, the library's version."""
        if (transport := transport_shown_as(match[1])) in TRANSPORTS:
            self.table.transport = transport
            self.versions |= {"nccl": match[2]} if match[2] else {}

    def devices(self, line: Line, _: re.Match[str]) -> None:
        """The heading of a list of devices."""
        if self._begun:
            self.close(line.number)

    def rank(self, line: Line, match: re.Match[str]) -> None:
        """A line of that list."""
        if self.names:
            self.close(line.number)
        rank, group, pid, host, device, pci, name = match.groups()
        identity = {"ordinal": int(device), "pci_address": pci, "name": name.strip(), "kind": "gpu"}
        told = {"rank": int(rank), "host": host, "pid": int(pid), "device": identity}
        self.table.devices.append(told | ({"group": int(group)} if group and int(group) else {}))

    def rank_damaged(self, line: Line, _: re.Match[str]) -> None:
        """A line of that list which is of another form: how many ranks took part is not known."""
        if self.names:
            self.close(line.number)
        self.table.doubt = self.table.doubt or f"line {line.number} of its list of devices is not read"

    def sides(self, _: Line, match: re.Match[str]) -> None:
        """The line above the names: on which side the runs in place stand."""
        words = re.findall(r"out-of-place|in-place", match.string)
        self.in_place_first = words[0] == "in-place"

    def heading(self, line: Line, match: re.Match[str]) -> None:
        """The names of the columns."""
        if self.table.rows or self.ends:
            self.close(line.number)  # without a list of its own: of its ranks and program nothing is known
        self.headings += 1
        self.names = [name.lstrip("#") for name in match.string.lstrip("#").split()]

    def units(self, _: Line, match: re.Match[str]) -> None:
        """Their units, which are always these."""
        if odd := [unit for unit in re.findall(r"\([^)]*\)", match.string)
                   if unit not in ("(B)", "(elements)", "(us)", "(GB/s)", "(%)")]:  # fmt: skip
            self.table.doubt = f"its units are {odd[0]}, expected (us) and (GB/s)"

    def end(self, line: Line, _: re.Match[str]) -> None:
        """The last line of a table's run."""
        self.ends += 1

    def named(self, line: Line, match: re.Match[str]) -> None:
        """A script's word about the program that comes; of two programs in one line it is no word about either."""
        if self.table.rows or self.ends:
            self.close(line.number)
        others = set(re.findall(rf"\b(?:{_PROGRAMS})(?=_mpi\b|\b)", match.string))
        self.announced = match[1] if len(others) == 1 else ""

    def _row(self, line: Line, text: str) -> None:
        tokens = text.split()
        if not self.names or self.ends:
            if tokens[0].isdecimal() and len(tokens) > 4:
                self.log.problem(line.number, f"a row outside of a table: {text[:80]!r}")
            else:
                self.outside.append(line)
            return
        if not tokens[0].isdecimal():
            self.log.problem(line.number, f"not a row of the table: {text[:80]!r}")
            return
        self.table.line = self.table.line if self.table.rows else line.number
        self.table.rows += 1
        self.table.found += _figures(line.number, tokens, self.names, self.in_place_first, self.log)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[_Reading, Line, re.Match[str]], None]], ...] = (
    (_STARTING, _Reading.starting), (_CONCLUDED, lambda *_: None), (_SETTINGS, _Reading.settings),
    (_VERSION, _Reading.version), (_OURS, _Reading.ours), (_DEVICES, _Reading.devices), (_RANK, _Reading.rank),
    (_RANK_DAMAGED, _Reading.rank_damaged),
    (_NAMES, _Reading.heading),
    (_SIDES, _Reading.sides), (_UNITS, _Reading.units), (_END, _Reading.end), (_OTHERS, lambda *_: None),
    (_NAMED, _Reading.named),
)  # fmt: skip


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    reading = _Reading(log, hints)
    for line in lines:
        reading.take(line)
    reading.close(0)
    if reading.outside:
        first = reading.outside[0]
        count = len(reading.outside)
        words = f"{count} line{'' if count == 1 else 's'} outside of tables, such as {first.text.strip()[:60]!r}"
        log.note(first.number, words)


def _figures(number: int, tokens: list[str], names: list[str], in_place_first: bool, log: ImportedLog) -> list[Figures]:
    """The figures of a row, one for each time; a row that does not fit its heading is a problem of `log`."""
    if "time" not in names:
        log.problem(number, "times of the CPU, not of the transfer (-C): left out")
        return []
    names = [name for name in names if name not in ("timestamp", "date")]
    while len(tokens) > 1 and _STAMP.fullmatch(tokens[-1]):
        tokens = tokens[:-1]  # -T: when it ended, under a name or none
    said = [name for name in names if name in _SAID]
    figures = [name for name in names if name not in _SAID]
    row: dict[str, str] | None = None
    if len(tokens) == len(names):
        row = {name: token for name, token in zip(names, tokens, strict=True) if name in _SAID}
        tokens = [token for name, token in zip(names, tokens, strict=True) if name not in _SAID]
    elif len(figures) < len(tokens) < len(names) and names[: len(said)] == said:
        row, tokens = _words(said, tokens[: -len(figures)]), tokens[-len(figures) :]
    sides: list[dict[str, str]] = []
    for name, token in zip(figures, tokens, strict=False):
        side = next((one for one in sides if name not in one), None)
        if side is None:
            sides.append(side := {})
        side[name] = token
    if row is None or len(sides) > 2:
        log.problem(number, f"{len(tokens)} columns where the heading has {len(names)}")
        return []
    return [Figures(number, row, side, (at == 1) != in_place_first) for at, side in enumerate(sides)
            if "time" in side and not (len(sides) == 2 and side["time"] == "N/A")]  # fmt: skip


def _words(names: Sequence[str], tokens: Sequence[str]) -> dict[str, str] | None:
    """What a row says before its figures; redop and root may be empty there. None where it does not fit."""
    found: dict[str, str] = {}
    left = list(tokens)
    for name in names:
        form = _WORD if name in ("type", "redop") else _WHOLE
        if left and form.fullmatch(left[0]):
            found[name] = left.pop(0)
        elif name not in ("redop", "root"):
            return None
    return None if left else found


_STARTS_OF_ANY = re.compile("|".join(f"\\s*(?:{one.pattern})" for one in _STARTS), re.IGNORECASE)
Reader("nccl-tests", _STARTS_OF_ANY, read_text).register()
