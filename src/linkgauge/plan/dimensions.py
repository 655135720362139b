"""The table of dimensions: one typed model behind the flags, the help, the plan file's schema and its checks.

Every dimension that a user may set has one name: the flag (`--target-memory`), the plan key and the column
(`target_memory`). Values are parsed from a flag's text or from TOML's own types by the same row. A dimension may be
given several values; a plan's table then stands for their product. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.plan import quantity
from linkgauge.plan.case import (
    ARRIVALS,
    CADENCES,
    CLOCKS,
    DATATYPES,
    MANAGED_USES,
    MEMORY_KINDS,
    OPS,
    STOP_RULES,
    TRANSPORTS,
)
from linkgauge.plan.patterns import PATTERNS, SIDE_BY_SIDE

Value = int | float | str | bool | tuple[int, ...]
Parse = Callable[[Any], tuple[Value, ...]]  # one item of a list, or one flag's text, to one or more values


class WrongValueError(Exception):
    """A value that a dimension cannot take; the message says what was expected, not where it was written."""


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One row: how a dimension is written, and what it means.

    `parse` turns one written item into values; a flag's comma-separated text is one item for sizes, several for the
    rest. `expected` completes the sentence "expected ...".
    """

    name: str
    help: str
    expected: str
    parse: Parse
    group: str
    choices: tuple[str, ...] = ()
    splits: bool = True  # a flag's text is cut at commas before parse

    @property
    def flag(self) -> str:
        """The command line's spelling."""
        return "--" + self.name.replace("_", "-")

    def from_text(self, text: str) -> tuple[Value, ...]:
        """Values of a flag's text; UsageError naming the flag, what was read, and what was expected."""
        items = text.split(",") if self.splits else [text]
        try:
            return unique(value for item in items for value in self.parse(item.strip()))
        except WrongValueError as error:
            raise UsageError(f"{self.flag}: {error}") from None

    def from_toml(self, value: object, where: str) -> tuple[Value, ...]:
        """Values of a plan key; `where` (file, table, key) begins the error."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise UsageError(f"{where}: an empty list: expected {self.expected}")
        try:
            return unique(parsed for item in items for parsed in self.parse(item))
        except WrongValueError as error:
            raise UsageError(f"{where}: {error}") from None


def unique(values: Any) -> tuple[Any, ...]:
    """The values in their order, each once; 1 and True are told apart."""
    seen: dict[tuple[type, Any], Any] = {}
    for value in values:
        seen.setdefault((type(value), value), value)
    return tuple(seen.values())


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _choice(choices: tuple[str, ...], blank: str = "") -> Parse:
    """One of the words; `blank` is the word for the canonical empty value, which stored plans hold."""

    def parse(item: Any) -> tuple[Value, ...]:
        if blank and item in ("", blank):
            return ("",)
        if not isinstance(item, str) or item not in choices:
            raise WrongValueError(f"unknown value {_shown(item)}: expected one of {', '.join(choices)}")
        return (item,)

    return parse


def _choice_or_all(choices: tuple[str, ...], what: str, only_by_name: Collection[str] = ()) -> Parse:
    def parse(item: Any) -> tuple[Value, ...]:
        if item == "all":
            return tuple(choice for choice in choices if choice not in only_by_name)
        if not isinstance(item, str) or item not in choices:
            raise WrongValueError(f"unknown {what} {_shown(item)}: expected all or one of {', '.join(choices)}")
        return (item,)

    return parse


def _count(minimum: int, maximum: int = 2**31 - 1) -> Parse:
    def parse(item: Any) -> tuple[Value, ...]:
        number = item
        if isinstance(item, str):
            try:
                number = int(item)
            except ValueError:
                number = None
        if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number <= maximum:
            limit = f"of at least {minimum}" if maximum == 2**31 - 1 else f"from {minimum} to {maximum}"
            raise WrongValueError(f"wrong value {_shown(item)}: expected a whole number {limit}")
        return (number,)

    return parse


def _flag(item: Any) -> tuple[Value, ...]:
    words = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if isinstance(item, bool):
        return (item,)
    if isinstance(item, str) and item.lower() in words:
        return (words[item.lower()],)
    raise WrongValueError(f"wrong value {_shown(item)}: expected yes or no")


def _real(low: float, high: float) -> Parse:
    def parse(item: Any) -> tuple[Value, ...]:
        try:
            number = float(item) if isinstance(item, (str, int, float)) and not isinstance(item, bool) else None
        except (ValueError, OverflowError):
            number = None
        if number is None or not low < number <= high:
            raise WrongValueError(f"wrong value {_shown(item)}: expected a number above {low:g} and up to {high:g}")
        return (number,)

    return parse


def _quantity(parse_text: Callable[[str], Any], minimum: int, maximum: int, expected: str) -> Parse:
    """A size or a time: text with a unit, or (in TOML) a whole number of bytes or nanoseconds."""

    def parse(item: Any) -> tuple[Value, ...]:
        if isinstance(item, bool) or not isinstance(item, (str, int)):
            raise WrongValueError(f"wrong value {_shown(item)}: expected {expected}")
        try:
            parsed = parse_text(item) if isinstance(item, str) else item
        except UsageError as error:
            raise WrongValueError(str(error)) from None
        values = parsed if isinstance(parsed, tuple) else (parsed,)
        if any(not minimum <= value <= maximum for value in values):
            raise WrongValueError(f"wrong value {_shown(item)}: expected {minimum} to {maximum}; {expected}")
        return values

    return parse


def _duration_or_ns(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= 40 else quantity.parse_duration(text)


def _word(item: Any) -> tuple[Value, ...]:
    if not isinstance(item, str) or any(ch.isspace() or not ch.isprintable() for ch in item) or len(item) > 64:
        raise WrongValueError(f"wrong value {_shown(item)}: expected a word")
    return ("" if item == "default" else item,)


OTHERS = -2
"""In source_device and target_device: each device but those of the case, by turns."""


def _device(item: Any) -> tuple[Value, ...]:
    words = {"own": -1, "others": OTHERS}
    return (words[item],) if isinstance(item, str) and item in words else _count(-1, 4096)(item)


_SIZE = _quantity(quantity.parse_sizes, 0, quantity.MAX_SIZE_BYTES, quantity.SIZES_EXPECTED)
_ONE_SIZE = _quantity(quantity.parse_size, 0, quantity.MAX_SIZE_BYTES, quantity.SIZE_EXPECTED)
_TIME = _quantity(_duration_or_ns, 0, quantity.MAX_TIME_NS, quantity.TIME_EXPECTED)
_WHAT, _WHERE, _HOW, _STOP = "What is moved", "Where it lies", "How it is timed", "When to stop"


def _of_choices(name: str, help: str, choices: tuple[str, ...], group: str, blank: str = "") -> Dimension:
    return Dimension(name, help, f"one of {', '.join(choices)}", _choice(choices, blank), group, choices)


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("transport", "Mechanism that moves the bytes.", f"all or one of {', '.join(TRANSPORTS)}",
              _choice_or_all(TRANSPORTS, "transport"), _WHAT, TRANSPORTS),
    Dimension("variant", "Variant of the transport; 'default' is its own choice.", "a word", _word, _WHAT),
    Dimension("pattern", "Who sends what to whom.", f"all or one of {', '.join(PATTERNS)}",
              _choice_or_all(tuple(PATTERNS), "pattern", SIDE_BY_SIDE.values()), _WHAT, tuple(PATTERNS)),
    Dimension("size", "Sizes: 8, 64KiB, or a range 1:1GiB:x4.", quantity.SIZES_EXPECTED, _SIZE, _WHAT, splits=False),
    Dimension("datatype", "Element type of reductions.", f"one of {', '.join(DATATYPES)}", _choice(DATATYPES), _WHAT,
              DATATYPES),
    _of_choices("op", "Reduction.", OPS, _WHAT),
    Dimension("root", "Root rank of rooted patterns.", "a rank", _count(0), _WHAT),
    Dimension("window", "Messages in flight in one operation.", "a whole number", _count(1, 1 << 20), _WHAT),
    Dimension("in_place", "Collectives in place.", "yes or no", _flag, _WHAT),
    Dimension("path", "Path asked of the library: direct, pcie, host; 'default' is its own.", "a word", _word, _WHAT),
    Dimension("algorithm", "Algorithm asked of the library; 'default' is its own.", "a word", _word, _WHAT),
    _of_choices("initiator", "Who starts one-sided copies.", ("sender", "receiver"), _WHAT),
    _of_choices("host_leg", "staging: how bytes cross between hosts' buffers; default by mode.",
                ("default", "mpi", "memcpy"), _WHAT, blank="default"),
    _of_choices("buffer", "ccl: who makes its buffers, and how the library knows them.",
                ("plain", "allocated", "registered", "symmetric"), _WHAT, blank="plain"),
    Dimension("chunk", "Pipelined variants: chunk size; 0 lets the transport choose.", quantity.SIZE_EXPECTED,
              _ONE_SIZE, _WHAT),
    Dimension("blocks", "kernel: thread blocks; 0 lets the transport choose.", "a whole number", _count(0, 1 << 20),
              _WHAT),
    Dimension("via", "Routed copies: the device the data goes through; -1 for none.", "a device", _count(-1), _WHAT),
    Dimension("ranks", "How many ranks take part: the first so many.", "a whole number", _count(1, 1 << 20), _WHERE),
    Dimension("groups", "Equal groups of the ranks that do the same side by side; collectives only.", "a whole number",
              _count(1, 1 << 19), _WHERE),
    Dimension("ranks_per_device", "Ranks that drive one device.", "a whole number", _count(1, 1024), _WHERE),
    _of_choices("source_memory", "Memory kind sent from.", MEMORY_KINDS, _WHERE),
    _of_choices("target_memory", "Memory kind received into.", MEMORY_KINDS, _WHERE),
    Dimension("source_node", "NUMA node of the source's host memory; -1 the nearest.", "a node", _count(-1, 4096),
              _WHERE),
    Dimension("target_node", "NUMA node of the target's host memory; -1 the nearest.", "a node", _count(-1, 4096),
              _WHERE),
    Dimension("write_combined", "Pinned memory write-combined.", "yes or no", _flag, _WHERE),
    Dimension("huge_pages", "Huge pages for host memory.", "yes or no", _flag, _WHERE),
    _of_choices("managed", "Use of managed memory: what its driver is told, and what moves its pages.", MANAGED_USES,
                _WHERE, blank="default"),
    Dimension("source_device", "stream_copy: whose memory is read: own, another device, or others for each other.",
              "own, others or a device", _device, _WHERE),
    Dimension("target_device", "stream_copy: whose memory is written: own, another device, or others for each other.",
              "own, others or a device", _device, _WHERE),
    Dimension("cpu_node", "cpu_stream: NUMA node of the cores that move the bytes; -1 the device's.", "a node",
              _count(-1, 4096), _WHERE),
    _of_choices("cadence", "How operations are spaced and timed.", CADENCES, _HOW),
    _of_choices("arrival", "When the ranks arrive.", ARRIVALS, _HOW),
    Dimension("skew_ns", "skewed arrival: rank k arrives k times this later.", quantity.TIME_EXPECTED, _TIME, _HOW),
    _of_choices("clock", "Host clock, or the device's events.", CLOCKS, _HOW),
    Dimension("batch", "Operations in one streaming or gated sample.", "a whole number", _count(1, 1 << 20), _HOW),
    _of_choices("verify", "Check the data of the final operation, or of each.", ("final", "each"), _HOW),
    Dimension("warmup", "Operations before the first sample.", "a whole number", _count(0, 1 << 30), _HOW),
    _of_choices("stop_rule", "When to stop sampling.", STOP_RULES, _STOP),
    Dimension("stop_samples", "count: samples to take; interval: at most this many.", "a whole number",
              _count(1, 1_000_000), _STOP),
    Dimension("stop_relative_half_width", "interval: half width of the median's interval over the median.",
              "a number above 0 and up to 1", _real(0, 1), _STOP),
    Dimension("stop_time_ns", "No longer than this; duration: as long as this.", quantity.TIME_EXPECTED,
              _quantity(_duration_or_ns, 1, quantity.MAX_TIME_NS, quantity.TIME_EXPECTED), _STOP),
)  # fmt: skip

BY_NAME: dict[str, Dimension] = {dimension.name: dimension for dimension in DIMENSIONS}


def nearest(word: str, known: list[str]) -> str:
    """` (did you mean 'x'?)` where a known word is close, else nothing."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
