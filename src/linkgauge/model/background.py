"""Loads beside a measured job: how they are written, and the cases that they are.

The dimension `background` is text: loads separated by `; `, each `TRANSPORT PATTERN SIZE` and settings as `name=value`:
`copy_engine host_to_device 64MiB on=2,3 duty=0.5`. `on` says where: devices (`2,3` one load on both, `2+3` one on
each), `same` (those of the measured job), `rest` (all others), or `rest:1/4` (every fourth of these, from the first
on). `mpi=NAME` makes the load a launch of its own, of that MPI library (`same`: the measured job's). In canonical form,
which cases have, it names devices, and says all that is not the default.
This module imports nothing heavy: workers use it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model import quantity
from linkgauge.model.case import DEFAULTS, DIMENSIONS, LOAD_SETTINGS, Case
from linkgauge.model.dimension import Dimension, count, number_in, time_ns

SAME, REST = "same", "rest"
_PART = re.compile(rf"{REST}:([1-9]\d?)/([1-9]\d?)")
_MOST_LOADS = 64
_APART = re.compile(r";(?:\s+|$)")  # rows of a traffic matrix have ; without a space


@dataclasses.dataclass(frozen=True)
class Pace:
    """How a load spaces its operations (core/case_spec.h): in bursts, `every_ns` apart, a share `duty` of the time.

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
class LoadCase:
    """One load of a case: what it does, as a case of its own, and at which pace.

    `mpi`: the MPI library of the launch of its own that it is; empty: it is a job of the measured launch.
    """

    case: Case
    pace: Pace
    mpi: str = ""


def loads_written(text: str) -> tuple[Load, ...]:
    """The loads that a text is of. UsageError naming the load, what was read and what was expected."""
    parts = parts_of(text)
    if not 1 <= len(parts) <= _MOST_LOADS:
        raise UsageError(f"{len(parts)} loads: expected 1 to {_MOST_LOADS}, separated by '; '")
    loads = tuple(load for part in parts for load in _loads(part))
    if len(loads) > _MOST_LOADS:
        raise UsageError(f"{len(loads)} loads: expected 1 to {_MOST_LOADS}")
    return loads


def _loads(text: str) -> list[Load]:
    words = text.split()
    if len(words) < 3 or any("=" in word for word in words[:3]):
        raise UsageError(f"load '{text}': expected TRANSPORT PATTERN SIZE, and settings as name=value")
    values = {name: _one(DIMENSIONS[name], word, text)
              for name, word in zip(("transport", "pattern", "size"), words, strict=False)}  # fmt: skip
    places: list[tuple[int, ...] | str] = [REST]
    pace, mpi = Pace(), ""
    for word in words[3:]:
        name, equals, value = word.partition("=")
        if name == "on" and equals:
            word_of_place = value in (SAME, REST) or part_of_rest(value)
            places = [value] if word_of_place else [_devices(part, text) for part in value.split("+")]
        elif name in PACE and equals:
            pace = dataclasses.replace(pace, **{PACE_FIELDS[name]: _one(PACE[name], value, text)})
        elif name in LOAD_SETTINGS and equals:
            values[name] = _one(DIMENSIONS[name], value, text)
        elif name == MPI and value:
            if "/" in value:  # a stranger's plan names no program to be started
                raise UsageError(
                    f"load '{text}': mpi is a path: expected a name of 'linkgauge list mpi', or {MPI_SAME}"
                )
            mpi = value
        else:
            known = ", ".join(("on", *PACE, MPI, *LOAD_SETTINGS))
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
    """The text of one load, by its dimensions: transport, pattern, size, and any of LOAD_SETTINGS."""
    settings = [f"{name}={_value(values[name])}" for name in LOAD_SETTINGS if name in values]
    begin = f"{values['transport']} {values['pattern']} {quantity.format_size(values['size'])}"
    return " ".join([begin, f"on={on}", *settings, *_how(pace, mpi)])


def parts_of(text: str) -> list[str]:
    """The loads of a text, each as it was written."""
    return [part.strip() for part in _APART.split(text) if part.strip()]


def written(loads: tuple[LoadCase, ...]) -> str:
    """The canonical text of loads whose devices are known: `loads_of` gives them back."""
    told: list[tuple[str, str, list[str]]] = []
    for load in loads:
        words, devices = _written(load), ",".join(map(str, load.case.devices))
        if told and told[-1][:2] == words:
            told[-1][2].append(devices)
        else:
            told.append((*words, [devices]))
    return "; ".join(f"{begin} on={'+'.join(devices)}{settings}" for begin, settings, devices in told)


def beside_text(loads: str, shown: Mapping[str, str] | None = None) -> str:
    """What is said of a case's loads, after its own words; empty without any. `shown`: what screens call transports."""
    parts = [part.partition(" ") for part in parts_of(loads)]
    words = "; ".join(f"{(shown or {}).get(name, name)}{blank}{rest}" for name, blank, rest in parts)
    return f", beside {words}" if words else ""


def _written(load: LoadCase) -> tuple[str, str]:
    """What is said before a load's devices, and after them."""
    case = load.case
    set_ = {name: getattr(case, name) for name in LOAD_SETTINGS}
    words = ["", *(f"{name}={_value(one)}" for name, one in set_.items() if one != DEFAULTS[name])]
    words += _how(load.pace, load.mpi)
    return f"{case.transport} {case.pattern} {quantity.format_size(case.size)}", " ".join(words)


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


@functools.lru_cache(maxsize=256)
def loads_of(text: str) -> tuple[LoadCase, ...]:
    """The loads of a case, by its canonical `background`. UsageError where it is none."""
    if not text:
        return ()
    found = []
    for load in loads_written(text):
        if isinstance(load.where, str):
            raise UsageError(f"load '{text}' names no devices: expected on=0,1")
        values = dict(load.values)
        size = values.pop("size")
        found.append(LoadCase(Case(size=size, size_asked=size, devices=load.where, **values), load.pace, load.mpi))
    return tuple(found)


def jobs_of(case: Case) -> list[Case]:
    """The jobs of a case that are of its own launch: the measured one, then loads."""
    return [case, *(load.case for load in loads_of(case.background) if not load.mpi)]


def own_launches(case: Case) -> list[tuple[int, LoadCase]]:
    """The loads of a case that are launches of their own, each with its number, from 1."""
    return [(number, load) for number, load in enumerate(loads_of(case.background), 1) if load.mpi]


def with_libraries(text: str, name_of: Callable[[str], str]) -> str:
    """Loads as they were written, with each MPI library that they name under the name that `name_of` gives it."""

    def named(word: str) -> str:
        name, equals, value = word.partition("=")
        return f"{MPI}={name_of(value)}" if name == MPI and equals and value != MPI_SAME else word

    return "; ".join(" ".join(named(word) for word in part.split()) for part in parts_of(text))


def on_devices(case: Case, ordinal_of: Callable[[int], int]) -> Case:
    """The same case on other devices: every ordinal that it or a load of it names goes through `ordinal_of`."""
    moved = tuple(dataclasses.replace(one, case=one.case.on_devices(ordinal_of)) for one in loads_of(case.background))
    return dataclasses.replace(case.on_devices(ordinal_of), background=written(moved))


def ranks_per_device(case: Case) -> int:
    """How many ranks each device of the case's launch must have: a load shares no rank with another job."""
    entries = [device for job in jobs_of(case) for device in job.devices]
    return max([case.ranks_per_device, *(entries.count(device) for device in set(entries))])
