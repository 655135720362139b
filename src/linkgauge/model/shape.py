"""What a file that may be a stranger's has to be: types, ranges, lengths and depths, said as a table and read by it.

A shape takes a value as a parser gave it and its place there, and returns what may be used without a further look; it
raises `MisshapenError` with the place, what was found and what would be right. Texts come out as `clean` makes them, so
that they can be stored, encoded and printed. This module imports nothing heavy: the ranks' journals are read by it too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from linkgauge.errors import UsageError, not_one_of, one_line
from linkgauge.files import read_file

Shape = Callable[[Any, str], Any]

# What a terminal obeys, what turns the text around it, what ends a line unseen, and what no XML may hold. As a regular
# expression of Python's and of Arrow's.
CONTROLS = "[\\x00-\\x08\\x0b-\\x1f\\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]"
_UNCLEAN = re.compile(CONTROLS[:-1] + "\\ud800-\\udfff]")
DEEPEST = 40
LONGEST_TEXT = 1 << 20
MOST_ITEMS = 1 << 20
MOST_WHOLE = (1 << 63) - 1
LARGEST = 1e300
LEAST, MOST_NS = 1e-3, 1 << 61
"""Of times and rates: what can be divided by, turned over and multiplied; times of which the sum of two has 63 bits."""


class MisshapenError(UsageError):
    """A value that is not as its shape says; the message names its place, what was found and what would be right."""


def _wrong(value: object, at: str, expected: str) -> MisshapenError:
    # What is found may be a list of a million things, or a number of a million digits.
    found = repr(value) if isinstance(value, str | float | bool | None) else f"{type(value).__name__}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_WHOLE:
        found = str(value)
    return MisshapenError(f"{one_line(at[-200:]) or 'it'} is {one_line(found[:80])}: expected {expected}")


def clean(text: str) -> str:
    """The text with U+FFFD for control characters other than tabs and line breaks, and for halves of characters."""
    return text if text.isascii() and text.isprintable() else _UNCLEAN.sub("\N{REPLACEMENT CHARACTER}", text)


def clean_line(text: str) -> str:
    """The clean text on one line: what a terminal or an XML file may hold."""
    return " ".join(clean(text).split())


def text(value: Any, at: str) -> str:
    """A text of at most LONGEST_TEXT characters."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _wrong(value if not isinstance(value, str) else "a longer one", at, "a text")
    return clean(value)


def exact(value: Any, at: str) -> str:
    """A text that is used as it is, not shown: only a zero byte, which ends it for the system, is refused."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or "\0" in value:
        raise _wrong(value, at, "a text without zero bytes")
    return value


def plain(value: Any, at: str) -> str:
    """A text that is used and shown: one with control characters is refused, not changed."""
    if text(value, at) != value:
        raise MisshapenError(f"{at}: a text with control characters")
    return str(value)


def label(value: Any, at: str) -> str:
    """Such a text that is not empty."""
    if value == "":
        raise _wrong(value, at, "a name")
    return plain(value, at)


def numeral(value: Any, at: str) -> str:
    """A whole number in digits, as JSON names things by number."""
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 9:
        raise _wrong(value, at, "a whole number in digits")
    return value


def scalar(value: Any, at: str) -> str:
    """A text, or a number or null as one, as other programs write the same figure now so, now so."""
    if isinstance(value, list | dict):
        raise _wrong(value, at, "a text or a number")
    return "" if value is None else str(anything(value, at))


def flag(value: Any, at: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(value, at, "true or false")
    return value


def whole(low: int = 0, high: int = MOST_WHOLE) -> Shape:
    """A whole number from `low` to `high`."""

    def read(value: Any, at: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _wrong(value, at, f"a whole number from {low} to {high}")
        return value

    return read


def number(low: float = -LARGEST, high: float = LARGEST) -> Shape:
    """A finite number from `low` to `high`; that of a whole number too."""

    def read(value: Any, at: str) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise _wrong(value, at, f"a number from {low:g} to {high:g}")
        return float(value)

    return read


def parsed_by(parse: Callable[[str], Any]) -> Shape:
    """A text, and what becomes of it: `parse` raises UsageError or ValueError that says what is wrong."""

    def read(value: Any, at: str) -> Any:
        found = text(value, at)
        try:
            return parse(found)
        except (UsageError, ValueError) as error:
            raise MisshapenError(f"{at}: {error}") from None

    return read


def one_of(words: Collection[Any]) -> Shape:
    """One of some words."""

    def read(value: Any, at: str) -> Any:
        if not isinstance(value, str) or value not in words:
            raise _wrong(value, at, f"one of {', '.join(map(str, words))}")
        return value

    return read


def maybe(shape: Shape) -> Shape:
    """The shape, or null."""
    return lambda value, at: None if value is None else shape(value, at)


def each(shape: Shape, most: int = MOST_ITEMS, least: int = 0) -> Shape:
    """A list of `least` to `most` items of a shape."""

    def read(value: Any, at: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(value, at, "a list")
        if not least <= len(value) <= most:
            raise MisshapenError(f"{at or 'it'} has {len(value)} items: expected {least} to {most}")
        return [shape(item, f"{at}[{place}]") for place, item in enumerate(value)]

    return read


def mapping(shape: Shape, key: Shape = text) -> Shape:
    """An object whose names are of one shape, and whose values of another."""

    def read(value: Any, at: str) -> dict[str, Any]:
        found = {key(name, f"a name in {at}"): shape(one, f"{at}.{name}") for name, one in _items(value, at)}
        if len(found) < len(value):
            raise MisshapenError(f"{at or 'it'} has a name twice: expected each once")
        return found

    return read


def one_or_more(shape: Shape) -> Shape:
    """A list of a shape, or one such thing alone, which becomes a list."""
    return lambda value, at: each(shape)(value, at) if isinstance(value, list) else [shape(value, at)]


def table(known: Mapping[str, Shape], rest: Shape | None = None, needed: Collection[str] = ()) -> Shape:
    """An object: the known names by their shapes, others by `rest` (anything by default); what is `needed` is there."""

    def read(value: Any, at: str) -> dict[str, Any]:
        prefix = f"{at}." if at else ""
        other = rest or anything
        found = {_name(name, at): known.get(name, other)(one, prefix + name) for name, one in _items(value, at)}
        for name in needed:
            if name not in found:
                raise MisshapenError(f"{at or 'it'} has no '{name}': expected it")
        return found

    return read


def only(known: Mapping[str, Shape], needed: Collection[str] = ()) -> Shape:
    """An object of the known names and no other: people write it, and a wrong name would go unheeded."""
    of_known = table(known, needed=needed)

    def read(value: Any, at: str) -> dict[str, Any]:
        for name in _items(value, at):
            if name[0] not in known:
                prefix = f"{at}: " if at else ""
                raise MisshapenError(f"{prefix}unknown key '{name[0]}'{not_one_of(name[0], known)}")
        found: dict[str, Any] = of_known(value, at)
        return found

    return read


def tables(value: Any, at: str) -> list[dict[str, Any]]:
    """A list of TOML's tables, which are looked at one by one: each knows its name for errors."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise MisshapenError(f"{at}: expected [[{at}]] tables")
    return value


def fitting(found: Mapping[str, Any], known: Mapping[str, Shape]) -> dict[str, Any]:
    """What of a machine's own words is of its shape; the rest is left out, as if it were not said. Never an error."""
    kept = {}
    for name in known.keys() & found.keys():
        with contextlib.suppress(UsageError):
            kept[name] = known[name](found[name], name)
    return kept


def _items(value: Any, at: str) -> Any:
    if not isinstance(value, dict) or len(value) > MOST_ITEMS:
        raise _wrong(value, at, "an object or table")
    return value.items()


def as_it_is(value: Any, at: str) -> Any:
    """Whatever it is: what is made of it is checked."""
    return value


def anything(value: Any, at: str) -> Any:
    """Any value of JSON that can be written again: nested at most DEEPEST deep, no number beyond 63 bits or finite."""
    try:
        return _anything(value, DEEPEST)
    except MisshapenError as wrong:
        raise MisshapenError(f"{one_line(at[-200:]) or 'it'}: {wrong}") from None


def _anything(value: Any, deepest: int) -> Any:
    """Without places, which cost more than all else: a record of a journal has fifty values, a run 10^5 records."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() and value.isprintable() else text(value, "a text")
    if value is None or kind is bool:
        return value
    if kind is int or kind is float:
        if not abs(value) <= (MOST_WHOLE if kind is int else LARGEST):
            raise _wrong(value, "a number", "a finite number of at most 63 bits")
        return value
    if deepest == 0:
        raise MisshapenError(f"nested more than {DEEPEST} deep: expected less")
    if kind is list:
        return [_anything(item, deepest - 1) for item in value]
    return {_name(name, ""): _anything(one, deepest - 1) for name, one in _items(value, "a value")}


def _name(name: Any, at: str) -> str:
    return name if name.isascii() and name.isprintable() else text(name, f"a name in {at}")


def frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A table that was read, as dataclasses keep it: tuples in place of its lists, at any depth of these."""

    def kept(value: Any) -> Any:
        return tuple(map(kept, value)) if isinstance(value, list) else value

    return {name: kept(value) for name, value in entry.items()}


def checked(value: Any, shape: Shape, where: str, error: type[UsageError] = UsageError) -> Any:
    """What the shape makes of a value; `error`, beginning with `where`, if it is of another."""
    try:
        return shape(value, "")
    except UsageError as wrong:
        raise error(f"{where}: {wrong}") from None


def parsed(content: str | bytes, shape: Shape, where: str, error: type[UsageError] = UsageError) -> Any:
    """What a JSON text holds, of a shape; `error`, beginning with `where`, if it is no JSON or of another shape."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise error(f"{where}: JSON nested more than {DEEPEST} deep: expected less") from None
    except ValueError as wrong:  # also a number of more digits than Python reads, and bytes that are no text
        line = f" at line {wrong.lineno}" if isinstance(wrong, json.JSONDecodeError) else ""
        raise error(f"{where}: not JSON: truncated or damaged{line}") from None
    return checked(value, shape, where, error)


def json_object(text: str | None) -> dict[str, Any]:
    """What a column of JSON texts holds behind the door; an empty object for null."""
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def last_line(said: str, shape: Shape, where: str) -> Any:
    """What the last line that a program printed holds, before which libraries may print; refuses as `parsed` does."""
    return parsed((said.strip().splitlines() or [""])[-1], shape, where)


def read_json(
    path: str | os.PathLike[str],
    most_bytes: int,
    what: str,
    shape: Shape,
    error: type[UsageError] = UsageError,
    *,
    links: bool = True,
) -> Any:
    """What a JSON file of that many bytes at most holds, of a shape; refuses as `read_file` and `parsed` do."""
    return parsed(read_file(path, most_bytes, what, error, links=links), shape, os.fspath(path), error)


def read_toml(path: str | os.PathLike[str], what: str, most_bytes: int = 1 << 20) -> dict[str, Any]:
    """What a TOML file holds; refuses as `read_file` and `parsed_toml` do. People write thousands of bytes."""
    return parsed_toml(read_file(path, most_bytes, what), os.fspath(path))


def parsed_tables(content: str | bytes, where: str) -> dict[str, Any]:
    """What a TOML text holds, or, where it begins with a brace as no TOML does, a JSON one; else as `parsed_toml`."""
    if content.lstrip()[:1] in ("{", b"{"):
        return parsed(content, table({}, as_it_is), where)  # type: ignore[no-any-return]
    return parsed_toml(content, where)


def parsed_toml(content: str | bytes, where: str) -> dict[str, Any]:
    """What a TOML text holds, of which each part is to be checked; UsageError beginning with `where` if it is none."""
    import tomli  # the standard library's reader as well, compiled: half its time

    try:
        return tomli.loads(content if isinstance(content, str) else content.decode())
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not valid TOML: is not UTF-8 text") from None
    except (ValueError, RecursionError) as wrong:  # also a number of too many digits
        raise UsageError(f"{where}: not valid TOML: {wrong or 'nested too deeply'}") from None
