"""A dimension: its flag, its plan key, its column, and what it says of a case.

Every dimension that a user may set has one name: the flag (`--target-memory`), the plan key and the column
(`target_memory`). A dimension may be given several values; a plan's table then stands for their product. Which there
are is said at the fields of `model.case.Case`. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.values import FILE, Value, Values, WrongValueError, shown
from linkgauge.model.worded import Worded


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One row: how a dimension is written, and what it means. `group` is its heading in the help."""

    name: str
    help: str
    group: str
    values: Values

    @property
    def expected(self) -> str:
        """What completes the sentence "expected ..."."""
        return self.values.expected

    @property
    def key(self) -> str:
        """A plan's spelling: the column's without its unit, since what is written has one (`max_time = "50ms"`)."""
        return self.name.removesuffix("_ns")

    @property
    def flag(self) -> str:
        """The command line's spelling."""
        return "--" + self.key.replace("_", "-")

    def from_text(self, text: str) -> tuple[Value, ...]:
        """Values of a flag's text; UsageError naming the flag, what was read, and what was expected."""
        items = text.split(",") if self.values.splits else [text]
        try:
            return unique(value for item in items for value in self.values.parse(item.strip()))
        except WrongValueError as error:
            raise UsageError(f"{self.flag}: {error}") from None

    def from_toml(self, value: object, where: str) -> tuple[Value, ...]:
        """Values of a plan key; `where` (file, table, key) begins the error."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise UsageError(f"{where}: an empty list: expected {self.expected}")
        try:
            return unique(parsed for item in items for parsed in self.values.parse(item))
        except WrongValueError as error:
            raise UsageError(f"{where}: {error}") from None

    def stored(self, value: object, where: str) -> Value:
        """The shape of a stored value: one of this dimension's, in canonical form, which names no file; as text."""
        named = isinstance(value, str) and value.startswith(FILE)
        (first, *more) = ("",) if named else self.from_toml(value, where)
        first = first.text if isinstance(first, Worded) else first
        if more or first != value or isinstance(first, bool) != isinstance(value, bool):
            raise UsageError(f"{where}: {shown(value)[:80]} is not stored so: expected {self.expected}")
        return first


def unique(values: Any) -> tuple[Any, ...]:
    """The values in their order, each once; 1 and True are told apart."""
    seen: dict[tuple[type, Any], Any] = {}
    for value in values:
        seen.setdefault((type(value), value), value)
    return tuple(seen.values())


class Says(enum.Enum):
    """What a dimension says of a case."""

    WHAT = "what is done"
    HOW = "how it is done: the mechanism"
    HOW_LONG = (
        "how long and how thoroughly, or in what words: cases that differ in nothing else are one and the same thing, "
        "measured twice"
    )
    SIZE = "the size, along which curves are drawn"


class Part(enum.Enum):
    """The part of a case that a dimension is of, and under which heading of the help it stands.

    The same as in core/base/case_spec.h, but for `managed`, `cpu_node` and `cpu_cores`, by which the core's mechanisms
    act: who asks for them asks where something lies.
    """

    TRAFFIC = "who sends what to whom", "What is moved"
    PLACES = "on which ranks and devices, and in which memory", "Where it lies"
    OPTIONS = "by what the bytes move", "What is moved"
    TIMING = "how operations are started, timed and checked", "How it is timed"
    JOBS = "what runs at the same time", "What is moved"


_OF_LOADS = (Part.TRAFFIC, Part.PLACES, Part.OPTIONS)


def row(
    part: Part, says: Says, help: str, values: Values, *, name: str = "", later: bool = False, core: str | None = None,
    load: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What stands at the field of a dimension. `name`: its own, where the field has another; empty for the field's.

    `later`: it came after the first runs were stored. A case that does not use it keeps its key, and a run folder
    without its column is read as one that did not use it: older runs and baselines stay good. `core`: its name in
    core/base/case_spec.h, where that is another; empty where spec.py says it in other words. `load`: whether a load may
    set it; by default what says what is moved, how, and where it lies.
    """
    load = part in _OF_LOADS if load is None else load
    return {"part": part, "says": says, "written": (name, help, values), "later": later, "core": core, "load": load}
