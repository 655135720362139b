"""A command's options as data: a dataclass whose fields are options; click's are made from it, their values become it.

A field's name is the option's, its type and default are those of the value. A field whose default is such a dataclass
is a group of options. A field without an option is set by the command itself.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import click

from linkgauge.app.command_line import COMMON, PATH, Decorated, Option, taken_over
from linkgauge.errors import UsageError, brief
from linkgauge.model.quantity import parse_percentage

_COUNT = re.compile(r"[0-9]{1,9}")
_MOST_COUNTS = 1000
_MADE, _TAKEN = "made", "taken"
_NO = "no-"
Made = Callable[[str, str, str], Sequence[Option]]
"""Click's options of a field, by its name, its type as written, and the title of its dataclass."""


def value(metavar: str, help: str, default: Any = None, *, flags: str = "--{}", **settings: Any) -> Any:
    """A field whose option takes a value, of the type that the field is annotated with.

    `flags`: those of the option, `{}` being the field's name. `settings` are click's and `Option`'s; without a `panel`
    its title in the help is the dataclass' own `panel`.
    """
    return _field(default, flags, {"help": help, "metavar": metavar or None, "default": default, **settings})


def repeated(metavar: str, help: str, *, flags: str = "--{}", **settings: Any) -> Any:
    """A field whose option may be given several times: a tuple."""
    return _field((), flags, {"help": help, "metavar": metavar, "multiple": True, **settings})


def switch(help: str, *, flags: str = "--{}", **settings: Any) -> Any:
    """A field that is True where its option is given."""
    return _field(False, flags, {"help": help, "is_flag": True, **settings})


def pair(help: str, default: bool | None, **settings: Any) -> Any:
    """A field that is True by its option, False by that with `no-` before, else the default, which its help shows."""
    return _field(default, "--{0}/--" + _NO + "{0}", {"help": help, "is_flag": True, "default": default, **settings})


def several(made: Made, taken: Callable[[dict[str, Any]], Any], **default: Any) -> Any:
    """A field of several options: `taken` takes its value out of what click read; `default` as of any field."""
    return dataclasses.field(metadata={_MADE: made, _TAKEN: taken}, **default)


def _field(default: Any, flags: str, settings: dict[str, Any]) -> Any:
    def made(name: str, kind: str, panel: str) -> Sequence[Option]:
        names = flags.format(name.replace("_", "-")).split()
        typed = {"type": PATH} if "Path" in kind else {"type": int} if kind.startswith("int") else {}
        return [Option([*names, name], **{"panel": panel, **typed, **settings})]

    return dataclasses.field(default=default, metadata={_MADE: made})


def takes(
    group: type, *, of: str = "", without: Collection[Any] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds the options of a dataclass to a command, which gets an instance of it.

    `of`: the command that explains them. `without`: fields and groups that are left out, and have their defaults.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*others: Any, **words: Any) -> Any:
            given = _taken(group, words)
            return function(*others, given, **words)

        return _with(call, taken_over(of, made) if of else made)

    left_out = set(without)
    made = [one for owner, field in _fields(group) if not left_out & {owner, field.name} for one in _made(owner, field)]
    if unknown := left_out - {one for owner, field in _fields(group) for one in (owner, field.name)}:
        raise ValueError(f"{group.__name__} has none of these to leave out: {unknown}")
    return add


def offers(**fields: Any) -> Callable[[Decorated], Decorated]:
    """A decorator that adds the options of single fields, by name, to a command, which gets their values by name."""
    made = [one for name, field in fields.items() for one in field.metadata[_MADE](name, "", COMMON)]
    return lambda function: _with(function, made)


def _with(function: Decorated, made: Sequence[click.Parameter]) -> Decorated:
    """The function with parameters as click's own decorators leave them, the last one first."""
    kept: list[click.Parameter] = function.__dict__.setdefault("__click_params__", [])
    kept += reversed(made)
    return function


def _fields(group: type) -> Iterator[tuple[type, dataclasses.Field[Any]]]:
    """The fields of a dataclass and of the groups in it, in their order, each with the dataclass that has it."""
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(field.default):
            yield from _fields(type(field.default))
        else:
            yield group, field


def _made(owner: type, field: dataclasses.Field[Any]) -> Sequence[Option]:
    made: Made | None = field.metadata.get(_MADE)
    return () if made is None else made(field.name, str(field.type), getattr(owner, "panel", COMMON))


def _taken(group: type, words: dict[str, Any]) -> Any:
    """The dataclass of what click read, which is taken out of `words`; what is not there has its default."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(field.default):
            values[field.name] = _taken(type(field.default), words)
        elif _TAKEN in field.metadata:
            values[field.name] = field.metadata[_TAKEN](words)
        elif field.name in words:
            values[field.name] = words.pop(field.name)
    return group(**values)


class Detects:
    """Options with --detect, the smallest shift to find."""

    detect: str | None

    def detected(self) -> float | None:
        """--detect as a share; None without one. UsageError for what is no percentage."""
        return None if self.detect is None else parse_percentage(self.detect)


AUTO = "auto"
"""The devices where none are named."""


def devices_to_use(help: str, **settings: Any) -> Any:
    """A field: the devices that are used."""
    return value("WHICH", help, AUTO, **settings)


def unit_of_rates(default: str = "GB/s") -> Any:
    """A field: the unit of the rates shown."""
    return value("UNIT", "Unit of rates: GB/s, Gb/s, GiB/s or MB/s.", default, panel=COMMON)


def system_to_judge_by() -> Any:
    """A field: a system in place of that of the run; empty without one."""
    return value("NAME|FILE", "System to judge by, in place of that of the run.", "", panel=COMMON)


def distribution_of_blocks() -> Any:
    """A field: the distribution of blocks, by name; empty for the default one."""
    return value("NAME", "Distribution of alltoallv and halo, as in 'linkgauge run'.", "")


def root_rank() -> Any:
    """A field: the rank of a collective's root."""
    return value("", "Rank of the root.", 0, type=click.IntRange(min=0))


class Whole(click.types.IntParamType):
    """A whole number from `least` to 2**63 - 1; UsageError naming the option."""

    def __init__(self, least: int) -> None:
        """Of at least so much."""
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of a text; a default is one already."""
        text = str(value)
        # Python refuses to read thousands of digits; 2**63 has 19.
        number = int(text) if text.isdecimal() and text.isascii() and len(text) <= 40 else -1
        if not self.least <= number < 1 << 63:
            name = param.opts[0] if param is not None else "number"
            raise UsageError(f"{name} '{brief(text)}': expected a whole number of at least {self.least}, below 2**63")
        return number


def counts(option_name: str, text: str) -> list[int]:
    """Whole numbers from 1 of a list with ranges, as 64,1024 or 8:4096:x2. UsageError naming the option."""
    found: list[int] = []
    for part in text.split(","):
        ends = part.strip().split(":")
        step = ends[2][1:] if len(ends) == 3 and ends[2][:1] == "x" else "2" if len(ends) == 2 else "0"
        if not 1 <= len(ends) <= 3 or not all(_COUNT.fullmatch(end) for end in (*ends[:2], step)):
            raise UsageError(f"{option_name}: '{part[:40]}' is no count or range; write 64,1024 or 8:4096:x2")
        first, last = int(ends[0]), int(ends[1] if len(ends) > 1 else ends[0])
        if first < 1 or last < first or (len(ends) > 1 and int(step) < 2):
            raise UsageError(f"{option_name}: '{part[:40]}': expected such as 8:4096:x2, the smaller count first")
        while first <= last and len(found) <= _MOST_COUNTS:
            found.append(first)
            first = first * int(step) if int(step) > 1 else last + 1
    return found
