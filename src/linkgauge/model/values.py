"""Which texts and TOML values stand for which values of a dimension: a parser for each kind of value.

A value is parsed from a flag's text or from TOML's own types by the same row. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from linkgauge.errors import UsageError, nearest
from linkgauge.files import read_file
from linkgauge.model import quantity
from linkgauge.model.shape import parsed_tables
from linkgauge.model.worded import App, ServiceClass, Worded

Value = int | float | str | bool | tuple[int, ...] | Worded
Read = Callable[[Any], tuple[Value, ...] | None]
"""One item of a list, or one flag's text, to one or more values; None where it is none. UsageError says more."""


class WrongValueError(Exception):
    """A value that a dimension cannot take; the message says what was expected, not where it was written."""


_LONGEST_METAVAR = 40
_LONGEST_SHOWN = 200  # characters of a value that an error quotes
_MOST_BITS = 64  # of whole numbers, which TOML has up to 64


@dataclasses.dataclass(frozen=True)
class Values:
    """The values that a dimension can take.

    `read` turns one written item into values; a flag's comma-separated text is one item for sizes, several for the
    rest (`splits`). `expected` completes the sentence "expected ...", `limits` says more where that is an error's.
    `metavar` stands for a value in the help.
    """

    read: Read
    expected: str
    choices: tuple[str, ...] = ()
    splits: bool = True
    metavar: str = "NAME"
    limits: str = ""

    def parse(self, item: Any) -> tuple[Value, ...]:
        """The values of a written item; WrongValueError."""
        if isinstance(item, int) and item.bit_length() > _MOST_BITS:  # Python refuses to print thousands of digits
            raise WrongValueError(f"wrong value of {item.bit_length()} bits: expected {self.expected}{self.limits}")
        try:
            values = self.read(item)
        except UsageError as error:
            raise WrongValueError(str(error)) from None
        if values is None:
            raise WrongValueError(f"wrong value {shown(item)}: expected {self.expected}{self.limits}")
        return values


def shown(value: object) -> str:
    """A value as errors quote it, of a long one the beginning."""
    if isinstance(value, str):
        return f"'{value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + '...'}'"
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = str(value)
    except ValueError:  # a list with a number of thousands of digits, which Python refuses to print
        return f"a {type(value).__name__} with a number of too many digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def one_of(
    choices: Collection[str],
    blank: str = "",
    aliases: Mapping[str, str] = MappingProxyType({}),
    named: Collection[str] = (),
) -> Values:
    """One of the words; `blank` is the word for the canonical empty value, which stored plans hold.

    `aliases` and `named` as `one_of_or_all` takes them.
    """
    told = ", ".join(named or choices)

    def read(item: Any) -> tuple[Value, ...]:
        if blank and item in ("", blank):
            return ("",)
        word = aliases.get(item, item) if isinstance(item, str) else ""
        if word not in choices:
            raise WrongValueError(f"unknown value {shown(item)}: expected one of {told}")
        return (word,)

    listed = "|".join(choices)
    metavar = listed if len(listed) <= _LONGEST_METAVAR else "NAME"
    return Values(read, f"one of {told}", tuple(choices), metavar=metavar)


def one_of_or_all(
    choices: Collection[str],
    what: str,
    only_by_name: Collection[str] = (),
    aliases: Mapping[str, str] = MappingProxyType({}),
    named: Collection[str] = (),
) -> Values:
    """One of the words, or `all` of them but those that are meant only where they are named.

    `aliases` are what other tools call some of the words; `named` what people are told in place of `choices`.
    Underscores and dashes do not count: `all_reduce`.
    """
    joined = {name.replace("_", ""): name for name in choices}
    told = ", ".join(named or choices)

    def read(item: Any) -> tuple[Value, ...]:
        if item == "all":
            return tuple(choice for choice in choices if choice not in only_by_name)
        if not isinstance(item, str):
            raise WrongValueError(f"unknown {what} {shown(item)}: expected all or one of {told}")
        word = item.replace("-", "_")
        found = word if word in choices else aliases.get(word) or joined.get(word.replace("_", ""))
        if found is None:
            near = nearest(item, [*choices, *aliases])
            raise WrongValueError(f"unknown {what} {shown(item)}{near}: expected all or one of {told}")
        return (found,)

    return Values(read, f"all or one of {told}", tuple(choices), metavar="NAMES")


def count(minimum: int, maximum: int = 2**31 - 1, expected: str = "") -> Values:
    """A whole number; `expected` says of what."""
    limits = f" of at least {minimum}" if maximum == 2**31 - 1 else f" from {minimum} to {maximum}"

    def read(item: Any) -> tuple[Value, ...] | None:
        number = item
        if isinstance(item, str):
            try:
                number = int(item)
            except ValueError:
                return None
        whole = isinstance(number, int) and not isinstance(number, bool)
        return (number,) if whole and minimum <= number <= maximum else None

    return Values(read, expected or "a whole number", metavar="NUMBER", limits="" if expected else limits)


_FLAG_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def _flag(item: Any) -> tuple[Value, ...] | None:
    found = _FLAG_WORDS.get(item.lower()) if isinstance(item, str) else item
    return (found,) if isinstance(found, bool) else None


YES_OR_NO = Values(_flag, "yes or no", metavar="yes|no")


def number_in(low: float, high: float) -> Values:
    """A number above `low`, up to `high`."""

    def read(item: Any) -> tuple[Value, ...] | None:
        if isinstance(item, bool) or not isinstance(item, (str, int, float)):
            return None
        try:
            number = float(item)
        except (ValueError, OverflowError):
            return None
        return (number,) if low < number <= high else None

    return Values(read, f"a number above {low:g} and up to {high:g}", metavar="NUMBER")


def _quantity(parse_text: Callable[[str], Any], minimum: int, maximum: int, expected: str) -> Read:
    """A size or a time: text with a unit, or (in TOML) a whole number of bytes or nanoseconds."""

    def read(item: Any) -> tuple[Value, ...] | None:
        if isinstance(item, bool) or not isinstance(item, (str, int)):
            return None
        parsed = parse_text(item) if isinstance(item, str) else item
        values = parsed if isinstance(parsed, tuple) else (parsed,)
        if any(not minimum <= value <= maximum for value in values):
            raise WrongValueError(f"wrong value {shown(item)}: expected {minimum} to {maximum}; {expected}")
        return values

    return read


def _duration_or_ns(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= 40 else quantity.parse_duration(text)


def _word(item: Any) -> tuple[Value, ...] | None:
    if not isinstance(item, str) or any(ch.isspace() or not ch.isprintable() for ch in item) or len(item) > 64:
        return None
    return ("" if item == "default" else item,)


WORD = Values(_word, "a word")
SIZE = Values(
    _quantity(quantity.parse_size, 0, quantity.MAX_SIZE_BYTES, quantity.SIZE_EXPECTED),
    quantity.SIZE_EXPECTED,
    metavar="SIZE",
)
SIZES = Values(_quantity(quantity.parse_sizes, 0, quantity.MAX_SIZE_BYTES, quantity.SIZES_EXPECTED),
               quantity.SIZES_EXPECTED, splits=False, metavar="SIZES")  # fmt: skip


def time_ns(minimum: int = 0) -> Values:
    """A time of at least `minimum` ns."""
    expected = quantity.TIME_EXPECTED
    return Values(_quantity(_duration_or_ns, minimum, quantity.MAX_TIME_NS, expected), expected, metavar="TIME")


EACH, FINAL = "each", "final"


def _verify(item: Any) -> tuple[Value, ...] | None:
    """A word, or a number as text."""
    if item in (EACH, FINAL):
        return (item,)
    numbers = count(1, 1_000_000_000).read(item)
    return None if numbers is None else (str(numbers[0]),)


VERIFY = Values(_verify, "final, each, or how many untimed operations more", metavar="final|each|N")
OTHERS = -2
"""In source_device and target_device: each device but those of the case, by turns."""
_DEVICE_WORDS = {"own": -1, "others": OTHERS}


def _device(item: Any) -> tuple[Value, ...]:
    return (_DEVICE_WORDS[item],) if isinstance(item, str) and item in _DEVICE_WORDS else count(-1, 4096).parse(item)


FILE = "file:"
_LONGEST_DISTRIBUTION = 1 << 16  # the rows of 100 ranks and more


def _distribution(item: Any) -> tuple[Value, ...] | None:
    """Words, or rows of a traffic matrix as text: `0,3;1,0`. A file's rows are lines, numbers apart by , or space.

    What they mean for so many ranks is the pattern's to say (core/traffic/distribution.h).
    """
    if not isinstance(item, str):
        return None
    if item.startswith(FILE):
        path = item[len(FILE) :]
        text = read_file(path, _LONGEST_DISTRIBUTION, "a traffic matrix").decode(errors="replace")
        rows = [",".join(line.replace(",", " ").split()) for line in text.splitlines() if line.strip()]
        if any(not number.isdecimal() for row in rows for number in row.split(",")):
            raise WrongValueError(f"{path} is no traffic matrix: expected rows of whole numbers, as many as ranks")
        item = ";".join(rows)
    if len(item) > _LONGEST_DISTRIBUTION or any(ch.isspace() or not ch.isprintable() for ch in item):
        return None
    return ("" if item in ("default", "uniform") else item,)


EACH_SHIFT = "shift:each"
"""In distribution: a case of each shift there is, by whole nodes where there are several."""
_SHIFT = re.compile(r"shift:(\d+)")


def shift_of(distribution: str) -> int | None:
    """By how many ranks a distribution shifts; None of any other, all of which the core reads."""
    match = _SHIFT.fullmatch(distribution)
    return int(match[1]) if match else None


DISTRIBUTION = Values(
    _distribution,
    "uniform, zipf:1.2, blocks:2, moe:64:8, rows as 0,3;1,0, file:PATH, a grid as 2x2 or ring, shift:2 or shift:each",
    splits=False,
)
DEVICE = Values(_device, "own, others or a device", metavar="own|others|NUMBER")
DEVICE_OR_NONE = count(-1, expected="a device's number, as 2, or -1 for none")


def _cores(item: Any) -> tuple[Value, ...] | None:
    """A list of cores, as text; which are there is for the core to say."""
    text = str(item) if type(item) is int else item
    if (
        not isinstance(text, str)
        or len(text) > 1 << 12
        or not re.fullmatch(r"([0-9]{1,5}(-[0-9]{1,5})?(,|$))*", text)
        or any(int(first) > int(last) for first, last in re.findall(r"(\d+)-(\d+)", text))
    ):
        return None
    return (text.rstrip(","),)


CORES = Values(_cores, "cores such as 0-3,8", splits=False, metavar="CORES")
SLINGSHOT_CLASSES = ("dedicated_access", "low_latency", "bulk_data", "best_effort")
MOST_LEVEL, MOST_DSCP = 15, 63


def _service_class(item: Any) -> tuple[Value, ...] | None:
    """A service level, a DSCP or a traffic class; what libraries are told is plan/library_settings.py's."""
    text = str(item) if type(item) is int else item
    if text in ("", "default"):
        return (ServiceClass(),)
    found = ServiceClass.of_text(text) if isinstance(text, str) else ServiceClass()
    number, most = (found.level, MOST_LEVEL) if found.dscp is None else (found.dscp, MOST_DSCP)
    known = found.text in SLINGSHOT_CLASSES or (number is not None and number <= most)
    return (found,) if known else None


SERVICE_CLASS = Values(
    _service_class,
    f"default, a service level 0 to {MOST_LEVEL}, dscp:0 to dscp:{MOST_DSCP}, or Slingshot's "
    f"{', '.join(SLINGSHOT_CLASSES)}",
    metavar="CLASS",
)


def _beside(item: Any) -> tuple[Value, ...] | None:
    """Text of loads; what it says is for model/background.py to read."""
    if not isinstance(item, str) or not item.isprintable() or len(item) > 1 << 12:
        return None
    return ("" if item == "none" else item,)


BESIDE = Values(
    _beside, "none, or loads such as 'copy_engine host_to_device 64MiB on=2,3', separated by '; '", splits=False,
    metavar="LOADS",
)  # fmt: skip
WHOLE_NODES = "nodes"
"""In ranks: those of 2, 3, 4, ... nodes, and of all."""


def _ranks(item: Any) -> tuple[Value, ...] | None:
    """How many, the text of a share of all, or the word for whole nodes."""
    if item == WHOLE_NODES:
        return (WHOLE_NODES,)
    if isinstance(item, str) and item.endswith("%"):
        quantity.parse_percentage(item)
        return (item,)
    return None if isinstance(item, str) and not item.isdecimal() else count(1, 1 << 20).read(item)


RANKS = Values(
    _ranks, "a whole number, a share of all as 20%, or nodes: those of 2, 3, ... nodes", metavar="NUMBER|SHARE|nodes"
)
_APP_EXPECTED = (
    "a name of 'linkgauge apps' or a step file's path (in a plan file:PATH), a preset of it, and parameters as "
    "NAME=NUMBER or NAME=NUMBER*ranks"
)
_APP = re.compile(
    r"[A-Za-z0-9_-]{1,64}(@[0-9a-f]{8})?( [A-Za-z0-9][A-Za-z0-9_.-]{0,31}(=[0-9]{1,13}(\*ranks)?)?)*( \{.*\})?"
)
LONGEST_APP = 1 << 18  # bytes of a step file, which travels with its case


def _app(item: Any) -> tuple[Value, ...]:
    """A step file's name, its digest once it is known, parameters, and what the file holds where it is no built-in one.

    A file is read here, and travels with the case; what it says is for apps/step_file.py to read.
    """
    if isinstance(item, str) and item.startswith(FILE):
        path, *settings = item[len(FILE) :].split(" ")
        document = parsed_tables(read_file(path, LONGEST_APP, "a step file's TOML"), path)
        try:
            body = json.dumps(document, separators=(",", ":"))
        except (TypeError, ValueError):
            raise WrongValueError(f"{path}: has dates or times: expected a step file") from None
        name = re.sub(r"[^A-Za-z0-9_-]", "_", os.path.basename(path).removesuffix(".toml").removesuffix(".json"))[:64]
        item = " ".join([name, *settings, body])
    if item in ("", "default"):
        return (App(),)
    if not isinstance(item, str) or len(item) > LONGEST_APP or _APP.fullmatch(item) is None:
        raise WrongValueError(f"wrong value {shown(item)[:80]}: expected {_APP_EXPECTED}")
    return (App.of_text(item),)


APP = Values(_app, _APP_EXPECTED, metavar="NAME|FILE")
NODE = count(-1, 4096, "a node")
