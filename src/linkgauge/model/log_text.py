"""A log's text as its program printed it: decoded, without what terminals, launchers and libraries put around it.

Every reader of logs gets its lines from here, so none knows of encodings, colors, prefixes or a library's own log.
What was taken off is said. A new kind of prefix is a row of PREFIXES, a new library is a row of LIBRARIES.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,30}", re.ASCII)


def number_of(text: str) -> float:
    """The number that a tool's printf wrote; ValueError for all else that float() takes: 1_000, nan, other digits."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(text)


def whole_of(text: str) -> int:
    """The whole number of 64 bits that a tool's printf wrote; ValueError for all else that int() takes."""
    if not _WHOLE.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


class Line(NamedTuple):
    """A line with its number in the file, from 1."""

    number: int
    text: str

    @property
    def head(self) -> str:
        """Where a line's form is looked for: a search over the whole of a very long line takes long."""
        return self.text[:_LONGEST_FORM].strip()


_LONGEST_FORM = 4096


@dataclasses.dataclass(frozen=True)
class LogText:
    """The lines of each process whose output a launcher labeled, else all as one stream; and what was taken off."""

    streams: tuple[tuple[Line, ...], ...]
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[Line]:
        """All lines in the file's order."""
        return sorted(line for stream in self.streams for line in stream)


@dataclasses.dataclass(frozen=True)
class Prefix:
    """One kind of what stands before a line. Its group `who`, where it has one, names the process that printed it.

    `sure`: no program prints it by itself, so it is taken off wherever it stands; else only where at least half of the
    lines that are not empty begin so.
    """

    name: str
    form: re.Pattern[str]
    sure: bool = True


@dataclasses.dataclass(frozen=True)
class Library:
    """A library that writes its own log between a program's lines; `warning` finds the words of its warnings."""

    name: str
    form: re.Pattern[str]
    warning: re.Pattern[str]


_PROCESS = r"(?=[\d.-]*[A-Za-z_])[\w.-]+:\d+(?::\d+)?"  # a host of digits alone would be a clock
LIBRARIES = (
    Library("NCCL", re.compile(rf"{_PROCESS} \[\d+\] (?:\S+:\d+ )?(?:\(\w+\) )?NCCL [A-Z]+\b"
                               r"|[NR]CCL version \d[\w.+-]*(?: \S+)?\s*$"), re.compile(r"NCCL (?:WARN|ERROR)\b")),
    Library("UCX", re.compile(r"\[\d+\.\d+\] \[[^\]]+\]\s+\S+:\d+\s+UCX\s+[A-Z]+\b"),
            re.compile(r"UCX\s+(?:WARN|ERROR|FATAL)\b")),
    Library("UCC", re.compile(r"\[\d+\.\d+\] \[[^\]]+\]\s+\S+:\d+\s+(?:UCC|[A-Z]{2}_[A-Z]{2,9})(?:_\w+)?\s+[A-Z]+\b"),
            re.compile(r"(?:UCC|[A-Z]{2}_[A-Z]{2,9})(?:_\w+)?\s+(?:WARN|ERROR|FATAL)\b")),
    Library("libfabric", re.compile(r"libfabric:\d+:\d+:[^<]*<\w+>"), re.compile(r"<warn>")),
)  # fmt: skip
"""A row of a program's table never begins so."""
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = rf"{_MONTH} [ \d]\d {_CLOCK}"
_OWN = r"(?:Collective|Datatype|Device|Final|Inplace|Iterations|Reduction|Warmup)"  # what benchmarks say of themselves
PREFIXES = (
    Prefix("a timestamp", re.compile(rf"\[?\d{{4}}([-/])\d\d\1\d\d[T ]{_CLOCK}(?: ?Z|[+-]\d\d:?\d\d)?\]?:?(?:\s|$)")),
    # Behind a clock without a day of the week, 2048 may be the size in a row.
    Prefix("a timestamp", re.compile(rf"{_DAY} {_DATE} (?:[A-Z]{{3,4}} )?20\d\d(?:[:\s]\s?|$|(?=[<\[]))")),
    Prefix("a timestamp", re.compile(rf"{_DATE} 20\d\d(?:: ?|(?=<std|\[))")),
    Prefix("a timestamp", re.compile(rf"{_DATE}(?:\s|$)")),
    Prefix("a timestamp", re.compile(rf"\[?{_CLOCK}\]?:?(?:\s|$)"), sure=False),
    Prefix("a timestamp", re.compile(rf"[IWEF]\d{{4}} {_CLOCK} +\d+ [\w.-]+:\d+\] ?")),
    Prefix("a container's stream", re.compile(r"std(?:out|err) F(?: |$)")),  # not P: a part of a line
    Prefix("Ray's tag of a worker", re.compile(r"\((?P<who>[\w.:-]+ (?:rank=\d+, )?pid=\d+(?:, ip=[\w.:]+)?)\) ?")),
    Prefix("mpirun's tag of a rank", re.compile(r"\[(?P<who>[^\]\s]{0,200}?\d{1,9},\d{1,9})\]<std\w{1,9}>:? ?")),
    Prefix("mpirun's tag of a stream", re.compile(r"<std(?:out|err|diag)>:? ?")),
    Prefix("torchrun's tag of a rank", re.compile(r"\[(?P<who>[A-Za-z_]\w{0,60}?\d{1,9})\]:")),
    Prefix("a pod's name", re.compile(r"\[(?P<who>pod/[^\]\s]+)\] ?")),
    Prefix("a rank's number", re.compile(r" {0,8}(?P<who>\d{1,7}): ?"), sure=False),
    Prefix("a rank's number", re.compile(r"\[(?P<who>\d{1,7})\]:? ?"), sure=False),
    Prefix("a line's number", re.compile(r" {0,8}(?P<who>\d{1,9})\t"), sure=False),
    Prefix("a host's name and a rank", re.compile(r"(?P<who>nid\d{1,9} \d{1,7}): ?"), sure=False),
    Prefix("a service's name", re.compile(r"(?P<who>[A-Za-z][\w.-]* [\w./-]+\[\d+\]): ?"), sure=False),
    Prefix("a logger's level", re.compile(r"-? ?(?:[\w.]+ - )?\[?(?:INFO|DEBUG)\]?(?::[\w.]+:| - |: ?)"), sure=False),
    Prefix("a container's name", re.compile(r"(?P<who>[A-Za-z][\w.-]*) +\| ?"), sure=False),
    Prefix("a host's name", re.compile(rf"(?!{_OWN}:)(?P<who>[A-Za-z][\w.-]*|\d+(?:\.\d+){{3}}): ?"), sure=False),
    Prefix("a mark of quotation", re.compile(r"> ?"), sure=False),
)
"""In the order in which they are looked for; several may stand before one line, in any order."""
_MOST_PREFIXES = 6
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_FIRM = "\N{NO-BREAK SPACE}"  # browsers and chats keep columns by them
_ENDS = re.compile(r"\r\n|\n|\r")
_MOST_WARNINGS, _LONGEST_WARNING = 5, 200
_LOOKED_AT = 50_000  # lines that show which prefixes there are: each costs a match a line


def log_text(raw: bytes) -> LogText:
    """Return a log's lines, by process where prefixes name these, and say what was decoded and taken off."""
    text, notes = _decoded(raw)
    if _ANSI.search(text):
        text, count = _ANSI.subn("", text)
        notes.append(f"{count} terminal codes were taken off")
    if count := text.count(_FIRM):
        text = text.replace(_FIRM, " ")
        notes.append(f"{count} non-breaking spaces were read as spaces")
    texts = _ENDS.split(text)
    if texts and not texts[-1]:
        texts.pop()
    lines = dict(enumerate(texts, start=1))
    who = dict.fromkeys(lines, "")
    taken: Counter[str] = Counter()
    aside: dict[int, tuple[Library, str]] = {}
    for _ in range(_MOST_PREFIXES + 1):
        # Before each kind of prefix: a library's line begins as a host's name with a colon does.
        aside |= _set_aside(lines)
        found = _next_prefix(lines.values())
        if found is None or len(taken) == _MOST_PREFIXES:
            break
        taken[f"{found.name} ({_example(lines.values(), found)!r})"] += _take_off(lines, who, found)
    notes += [f"{what} was taken off {lines_of(count)}" for what, count in taken.items()]
    return LogText(_streams(lines, who), (*notes, *_said_of(aside)))


def _set_aside(lines: dict[int, str]) -> dict[int, tuple[Library, str]]:
    """Take the lines of libraries' own logs out of the others."""
    found = {}
    for number, text in lines.items():
        if library := next((one for one in LIBRARIES if one.form.match(text)), None):
            found[number] = library, text
    for number in found:
        del lines[number]
    return found


def _said_of(aside: dict[int, tuple[Library, str]]) -> list[str]:
    """How many lines of which library's log were set aside, and the first of its warnings, each once."""
    notes = []
    for library in LIBRARIES:
        texts = [(number, text) for number, (of, text) in sorted(aside.items()) if of is library]
        if texts:
            notes.append(f"{lines_of(len(texts))} of {library.name}'s own log set aside")
        warnings: dict[str, int] = {}
        for number, text in texts:
            if match := library.warning.search(text):
                warnings.setdefault(text[match.start() : match.start() + _LONGEST_WARNING].rstrip(), number)
        notes += [f"line {number}: {text}" for text, number in list(warnings.items())[:_MOST_WARNINGS]]
    return notes


def lines_of(count: int) -> str:
    """A number of lines in words: 1 line, 2 lines."""
    return f"{count} line{'' if count == 1 else 's'}"


def _decoded(raw: bytes) -> tuple[str, list[str]]:
    """UTF-8 unless a byte order mark, or zeros in every other byte of the beginning, say UTF-16 (PowerShell's >)."""
    head = raw[:4096]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace"), ["read as UTF-16"]
    half = len(head) // 2
    for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[0::2])):
        if half >= 8 and zeros.count(0) >= 0.9 * half:
            return raw.decode(name, errors="replace"), ["read as UTF-16"]
    return raw.decode("utf-8-sig", errors="replace"), []


def _next_prefix(texts: Iterable[str]) -> Prefix | None:
    filled = [text for text in itertools.islice(texts, _LOOKED_AT) if text.strip()]
    for prefix in PREFIXES:
        count = sum(1 for text in filled if prefix.form.match(text))
        if count and (prefix.sure or 2 * count >= len(filled)):
            return prefix
    return None


def _example(texts: Iterable[str], prefix: Prefix) -> str:
    matches = (prefix.form.match(text) for text in texts)
    return next(match[0] for match in matches if match)[:40]


def _take_off(lines: dict[int, str], who: dict[int, str], prefix: Prefix) -> int:
    found = {number: match for number, text in lines.items() if (match := prefix.form.match(text))}
    for number, match in found.items():
        lines[number] = match.string[match.end() :]
    if "who" in prefix.form.groupindex and not _countslines_of(found):
        for number, match in found.items():
            who[number] = f"{who[number]} {match['who'].strip()}".strip()
    return len(found)


def _countslines_of(found: Mapping[int, re.Match[str]]) -> bool:
    """Whether labels are the numbers of the lines themselves, as `grep -n` and `cat -n` print them."""
    apart = {int(match["who"]) - number if match["who"].strip().isdecimal() else None
             for number, match in found.items()}  # fmt: skip
    return len(apart) == 1 and None not in apart


def _streams(lines: Mapping[int, str], who: Mapping[int, str]) -> tuple[tuple[Line, ...], ...]:
    """Lines by who printed them. Where most lines have a label, one without is of whoever printed the line before."""
    labels = [who[number] for number in lines]
    inherited = 2 * sum(map(bool, labels)) > len(labels)
    streams: dict[str, list[Line]] = {}
    now = next((name for name in labels if name), "") if inherited else ""
    for (number, text), name in zip(lines.items(), labels, strict=True):
        here = name or now
        streams.setdefault(here, []).append(Line(number, text))
        now = here if inherited else ""
    return tuple(map(tuple, streams.values()))
