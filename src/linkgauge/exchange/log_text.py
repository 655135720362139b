"""A log's text as its program printed it: decoded, without what terminals and launchers put around each line.

Every reader of logs gets its lines from here, so none knows of encodings, colors or prefixes. What was taken off is
said. A new kind of prefix is a row of PREFIXES.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


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


_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
PREFIXES = (
    Prefix("a timestamp", re.compile(rf"\[?\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?: ?Z|[+-]\d\d:?\d\d)?\]?:?(?:\s|$)")),
    Prefix("a timestamp", re.compile(rf"(?:{_DAY} )?{_MONTH} [ \d]\d {_CLOCK} \d{{4}}(?=<std|\[|:|\s|$):?\s?")),
    Prefix("a timestamp", re.compile(rf"{_MONTH} [ \d]\d {_CLOCK}(?:\s|$)")),
    Prefix("a timestamp", re.compile(rf"\[?{_CLOCK}\]?:?(?:\s|$)"), sure=False),
    Prefix("mpirun's tag of a rank", re.compile(r"\[(?P<who>[^\]\s]{0,200}?\d{1,9},\d{1,9})\]<std\w{1,9}>:? ?")),
    Prefix("mpirun's tag of a stream", re.compile(r"<std(?:out|err|diag)>:? ?")),
    Prefix("torchrun's tag of a rank", re.compile(r"\[(?P<who>[A-Za-z_]\w{0,60}?\d{1,9})\]:")),
    Prefix("a pod's name", re.compile(r"\[(?P<who>pod/[^\]\s]+)\] ?")),
    Prefix("a rank's number", re.compile(r" {0,8}(?P<who>\d{1,7}): ?"), sure=False),
    Prefix("a rank's number", re.compile(r"\[(?P<who>\d{1,7})\] ?"), sure=False),
    Prefix("a container's name", re.compile(r"(?P<who>[A-Za-z][\w.-]*) +\| ?"), sure=False),
    Prefix("a host's name", re.compile(r"(?P<who>[A-Za-z][\w.-]*): ?"), sure=False),
    Prefix("a mark of quotation", re.compile(r"> ?"), sure=False),
)
"""In the order in which they are looked for; several may stand before one line, in any order."""
_MOST_PREFIXES = 4
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_ENDS = re.compile(r"\r\n|\n|\r")
_LOOKED_AT = 50_000  # lines by which it is told which prefixes there are: each costs a match a line


def log_text(raw: bytes) -> LogText:
    """Return a log's lines, by process where prefixes name these, and say what was decoded and taken off."""
    text, notes = _decoded(raw)
    if _ANSI.search(text):
        text, count = _ANSI.subn("", text)
        notes.append(f"{count} terminal codes were taken off")
    texts = _ENDS.split(text)
    if texts and not texts[-1]:
        texts.pop()
    who = [""] * len(texts)
    taken: Counter[str] = Counter()
    for _ in range(_MOST_PREFIXES):
        found = _next_prefix(texts)
        if found is None:
            break
        taken[f"{found.name} ({_example(texts, found)!r})"] += _take_off(texts, who, found)
    notes += [f"{what} was taken off {count} line{'' if count == 1 else 's'}" for what, count in taken.items()]
    return LogText(_streams(texts, who), tuple(notes))


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


def _next_prefix(texts: Sequence[str]) -> Prefix | None:
    filled = [text for text in texts[:_LOOKED_AT] if text.strip()]
    for prefix in PREFIXES:
        count = sum(1 for text in filled if prefix.form.match(text))
        if count and (prefix.sure or 2 * count >= len(filled)):
            return prefix
    return None


def _example(texts: Sequence[str], prefix: Prefix) -> str:
    matches = (prefix.form.match(text) for text in texts)
    return next(match[0] for match in matches if match)[:40]


def _take_off(texts: list[str], who: list[str], prefix: Prefix) -> int:
    count = 0
    for at, text in enumerate(texts):
        if match := prefix.form.match(text):
            count += 1
            texts[at] = text[match.end() :]
            if "who" in prefix.form.groupindex:
                who[at] = f"{who[at]} {match['who'].strip()}".strip()
    return count


def _streams(texts: Sequence[str], who: Sequence[str]) -> tuple[tuple[Line, ...], ...]:
    """Lines by who printed them. Where most lines have a label, one without is of whoever printed the line before."""
    inherited = 2 * sum(map(bool, who)) > len(who)
    streams: dict[str, list[Line]] = {}
    now = next((name for name in who if name), "") if inherited else ""
    for number, (text, name) in enumerate(zip(texts, who, strict=True), start=1):
        here = name or now
        streams.setdefault(here, []).append(Line(number, text))
        now = here if inherited else ""
    return tuple(map(tuple, streams.values()))
