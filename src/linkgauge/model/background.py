"""How loads beside a measured job are written.

The dimension `background` is text: loads separated by `; `, each `TRANSPORT PATTERN SIZE` and settings as `name=value`:
`copy_engine host_to_device 64MiB on=2,3 duty=0.5`. `on` says where: devices (`2,3` one load on both, `2+3` one on
each), `same` (those of the measured job), `rest` (all others), or `rest:1/4` (every fourth of these, from the first
on). `mpi=NAME` makes the load a launch of its own, of that MPI library (`same`: the measured job's). In canonical form,
which cases have (`model.case.Loads`), it names devices, and says all that is not the default.
This module imports nothing heavy: workers use it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model import quantity
from linkgauge.model.dimension import Dimension
from linkgauge.model.values import count, number_in, time_ns
from linkgauge.model.worded import Worded, follows

SAME, REST = "same", "rest"
_PART = re.compile(rf"{REST}:([1-9]\d?)/([1-9]\d?)")
_MOST_LOADS = 64
_APART = re.compile(r";(?:\s+|$)")  # rows of a traffic matrix have ; without a space


@dataclasses.dataclass(frozen=True)
class Pace:
    """How a load spaces its operations (core/base/case_spec.h).

    In bursts, `every_ns` apart, a share `duty` of the time.

    `offset_ns`: it begins so much later than the measured job's samples beside it, each time.
    """

    burst: int = 0
    every_ns: int = 0
    duty: float = 1.0
    offset_ns: int = 0


PACE = {
    "burst": Dimension("burst", "", "", count(1, 1 << 20)),
    "every": Dimension("every", "", "", time_ns(1)),
    "duty": Dimension("duty", "", "", number_in(0, 1)),
    "offset": Dimension("offset", "", "", time_ns(0)),
}
PACE_FIELDS = {"burst": "burst", "every": "every_ns", "duty": "duty", "offset": "offset_ns"}
FIRST = ("transport", "pattern", "size")
MPI = "mpi"
MPI_SAME = "same"


@dataclasses.dataclass(frozen=True)
class Load:
    """One load as it was written: `values` by dimension, and where it is: devices, or a word."""

    values: dict[str, Any]
    where: tuple[int, ...] | str
    pace: Pace
    mpi: str = ""


@dataclasses.dataclass(frozen=True)
class WrittenLoads(Worded):
    """Loads as a plan or a command line has them, whose devices may be words."""

    each: tuple[Load, ...] = follows(())

    @classmethod
    def of(cls, parts: Sequence[WrittenLoads]) -> WrittenLoads:
        """All of these. UsageError for none, or too many."""
        if not 1 <= len(parts) <= _MOST_LOADS:
            raise UsageError(f"{len(parts)} loads: expected 1 to {_MOST_LOADS}, separated by '; '")
        each = tuple(load for part in parts for load in part.each)
        if len(each) > _MOST_LOADS:
            raise UsageError(f"{len(each)} loads: expected 1 to {_MOST_LOADS}")
        return cls("; ".join(part.text for part in parts), each)

    def with_libraries(self, name_of: Callable[[str], str]) -> WrittenLoads:
        """The same, with each MPI library that they name under the name that `name_of` gives it."""
        each = (dataclasses.replace(one, mpi=one.mpi if one.mpi in ("", MPI_SAME) else name_of(one.mpi))
                for one in self.each)  # fmt: skip
        return WrittenLoads(self.text, tuple(each))


def written_loads(text: str, rows: Mapping[str, Dimension]) -> WrittenLoads:
    """The loads of a text; `rows` are the dimensions that a load may have, its transport, pattern and size first.

    UsageError naming the load, what was read and what was expected.
    """
    return WrittenLoads.of([WrittenLoads(part, tuple(_loads(part, rows))) for part in parts_of(text)])


def _loads(text: str, rows: Mapping[str, Dimension]) -> list[Load]:
    words = text.split()
    if len(words) < 3 or any("=" in word for word in words[:3]):
        raise UsageError(f"load '{text}': expected TRANSPORT PATTERN SIZE, and settings as name=value")
    values = {name: _one(rows[name], word, text) for name, word in zip(FIRST, words, strict=False)}
    places: list[tuple[int, ...] | str] = [REST]
    pace, mpi = Pace(), ""
    for word in words[3:]:
        name, equals, value = word.partition("=")
        if name == "on" and equals:
            word_of_place = value in (SAME, REST) or part_of_rest(value)
            places = [value] if word_of_place else [_devices(part, text) for part in value.split("+")]
        elif name in PACE and equals:
            pace = dataclasses.replace(pace, **{PACE_FIELDS[name]: _one(PACE[name], value, text)})
        elif name in rows and name not in FIRST and equals:
            values[name] = _one(rows[name], value, text)
        elif name == MPI and value:
            if "/" in value:  # a stranger's plan names no program to be started
                raise UsageError(
                    f"load '{text}': mpi is a path: expected a name of 'linkgauge list mpi', or {MPI_SAME}"
                )
            mpi = value
        else:
            known = ", ".join(("on", *PACE, MPI, *(name for name in rows if name not in FIRST)))
            raise UsageError(f"load '{text}': '{word}' is no setting: expected name=value, of {known}")
    return [Load(values, where, pace, mpi) for where in places]


def part_of_rest(word: str) -> tuple[int, int] | None:
    """Which of how many parts `rest:1/4` is, counted from 1; None for another word."""
    match = _PART.fullmatch(word)
    numbers = (int(match[1]), int(match[2])) if match else (1, 0)
    return numbers if numbers[0] <= numbers[1] else None


def _one(dimension: Dimension, word: str, text: str) -> Any:
    found = dimension.from_text(word)
    if len(found) != 1:
        raise UsageError(f"load '{text}': '{word}' is several values of {dimension.name}: expected one")
    return found[0]


def _devices(value: str, text: str) -> tuple[int, ...]:
    items = value.split(",")
    if not all(item.isdecimal() and len(item) < 6 for item in items):
        raise UsageError(f"load '{text}': on '{value}': expected devices such as 2,3, or {SAME}, {REST} or {REST}:1/4")
    return tuple(int(item) for item in items)


def load_text(values: Mapping[str, Any], on: str, pace: Pace, mpi: str = "") -> str:
    """The text of one load, by its dimensions: transport, pattern, size, then settings in their order."""
    settings = [f"{name}={_value(value)}" for name, value in values.items() if name not in FIRST]
    begin = f"{values['transport']} {values['pattern']} {quantity.format_size(values['size'])}"
    return " ".join([begin, f"on={on}", *settings, *_how(pace, mpi)])


def parts_of(text: str) -> list[str]:
    """The loads of a text, each as it is written."""
    return [part.strip() for part in _APART.split(text) if part.strip()]


def shown_loads(loads: str, shown: Mapping[str, str]) -> str:
    """Loads as screens name them: with their transports by `shown`, what screens call these."""
    parts = [part.partition(" ") for part in parts_of(loads)]
    return "; ".join(f"{shown.get(name, name)}{blank}{rest}" for name, blank, rest in parts)


def beside_text(loads: str, shown: Mapping[str, str] | None = None) -> str:
    """What is said of a case's loads, after its own words; empty without any."""
    words = shown_loads(loads, shown or {})
    return f", with background load {words}" if words else ""


def _how(pace: Pace, mpi: str) -> list[str]:
    words = [f"burst={pace.burst}"] if pace.burst else []
    if pace.every_ns:
        words.append(f"every={quantity.format_exact_duration(pace.every_ns)}")
    if pace.duty != 1:
        words.append(f"duty={pace.duty:g}")
    if pace.offset_ns:
        words.append(f"offset={quantity.format_exact_duration(pace.offset_ns)}")
    return words + ([f"{MPI}={mpi}"] if mpi else [])


def _value(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
