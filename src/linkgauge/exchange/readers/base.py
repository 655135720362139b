"""What a reader of another tool's output is: how its parts of a log, or its JSON files, are known, and what reads them.

A tool's own file registers both; nothing else names it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedLog
from linkgauge.model.log_text import Line
from linkgauge.model.shape import Shape

READERS: list[Reader] = []
JSON_FORMS: list[JsonForm] = []


@dataclasses.dataclass(frozen=True)
class JsonForm:
    """A JSON file of a tool's: `accepts` knows it by a look, `shape` is what it has to be, `read` gets it so.

    `listed`: what 'linkgauge import --list' says of it.
    """

    tool: str
    accepts: Callable[[Any], bool]
    shape: Shape
    read: Callable[[Any, ImportedLog, Hints], None]
    listed: str = "JSON"

    def register(self) -> None:
        """Have files of this form found. Called once, by the tool's own file."""
        JSON_FORMS.append(self)


@dataclasses.dataclass(frozen=True)
class Reader:
    """One tool's output.

    `starts` matches at the beginning of each line that only this tool prints, so that one log may hold several tools'
    output: a part goes from such a line to the next one of another tool's. `read_text` gets a part at a time, and keeps
    nothing between parts; None where Linkgauge knows the tool and does not read it: `instead` says why, or what does.
    """

    tool: str
    starts: re.Pattern[str]
    read_text: Callable[[Sequence[Line], ImportedLog, Hints], None] | None
    instead: str = "which Linkgauge does not read"

    @property
    def refusal(self) -> str:
        """What its output is called where it is left out, and what to do with it."""
        return f"{self.tool}'s output, {self.instead}"

    def register(self) -> None:
        """Have logs of this tool found. Called once, by the reader's own file."""
        READERS.append(self)


Part = tuple[Reader | None, list[Line]]


def parts(lines: Sequence[Line]) -> list[Part]:
    """Return the log's parts in its order. What comes before the first start is nobody's."""
    found: list[Part] = [(None, [])]
    for line in lines:
        reader = next((one for one in READERS if one.starts.match(line.head)), None)
        if reader is not None and reader is not found[-1][0]:
            found.append((reader, []))
        found[-1][1].append(line)
    return found
