"""Typed sizes, times and shares as people write them: `8`, `64KiB`, `1:1GiB:x4`, `250us`, `10m`, `50%`.

Every parser raises `UsageError` naming what was read and what was expected. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import math
import re
from fractions import Fraction

from linkgauge.errors import UsageError

# K, M and G are binary, as nccl-tests, OSU and nvbandwidth take them; KB and MB would be read either way and are not.
_SIZE_UNITS = {
    "": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "K": 1 << 10, "M": 1 << 20,
    "G": 1 << 30,
}  # fmt: skip
_TIME_UNITS_NS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
# No quantity has more digits; Python refuses to convert thousands of them.
_NUMBER_AND_UNIT = re.compile(r"(\d{1,40}(?:\.\d{1,40})?)\s*([^\W\d_]*|%)")
MAX_SIZE_BYTES = 1 << 50  # beyond any memory; keeps a typing error from becoming an endless range
MAX_TIME_NS = 100 * 365 * 24 * 3600 * 10**9  # a century; what is stored has 63 bits

SIZE_EXPECTED = "a size such as 8, 64KiB, 64K or 1.5MiB (binary: K, M, G; B, KiB, MiB, GiB, TiB)"
SIZES_EXPECTED = "sizes such as 8, 64KiB, a list 8,64KiB, or a range 1:1GiB:x4 or 1MiB:8MiB:+1MiB"
TIME_EXPECTED = "a time such as 250us, 1.5s or 10m (ns, us, ms, s, m, h)"
SHARE_EXPECTED = "a share such as 50% or a size such as 16GiB"


def _split(text: str) -> tuple[Fraction, str] | None:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    return (Fraction(match[1]), match[2]) if match else None


def parse_size(text: str) -> int:
    """Bytes of one size. Binary prefixes only: `64KB` is refused with what was probably meant."""
    parts = _split(text)
    if parts is None:
        raise UsageError(f"'{text}' is not a size: expected {SIZE_EXPECTED}")
    number, unit = parts
    if unit not in _SIZE_UNITS:
        letter = unit[:1].upper()
        guess = f"{letter}iB" if unit and f"{letter}iB" in _SIZE_UNITS else ""
        hint = f"; did you mean {_plain(number)}{guess}?" if guess else ""
        raise UsageError(f"'{text}' is not a size: expected {SIZE_EXPECTED}{hint}")
    size = number * _SIZE_UNITS[unit]
    if size.denominator != 1:
        raise UsageError(f"'{text}' is not a whole number of bytes: expected {SIZE_EXPECTED}")
    if size > MAX_SIZE_BYTES:
        raise UsageError(f"'{text}' is beyond any memory: expected at most {format_size(MAX_SIZE_BYTES)}")
    return int(size)


def _plain(number: Fraction) -> str:
    return str(int(number)) if number.denominator == 1 else str(float(number))


def parse_sizes(text: str) -> tuple[int, ...]:
    """Bytes of a list of sizes and ranges, in the order written, each once.

    A range is `first:last:xFACTOR` (geometric), `first:last:+STEP` (arithmetic) or `first:last` (doubling). The last
    size belongs to the range only where a step meets it.
    """
    sizes: dict[int, None] = {}
    for part in text.split(","):
        for size in _one_or_range(part.strip(), text):
            sizes[size] = None
    return tuple(sizes)


def _one_or_range(part: str, whole: str) -> list[int]:
    pieces = part.split(":")
    if len(pieces) == 1:
        return [parse_size(part)]
    if len(pieces) > 3 or not all(pieces):
        raise UsageError(f"'{whole}' is not a list of sizes: expected {SIZES_EXPECTED}")
    first, last = parse_size(pieces[0]), parse_size(pieces[1])
    if first > last:
        raise UsageError(f"'{part}' runs backwards: expected the smaller size first, {pieces[1]}:{pieces[0]}")
    step = pieces[2] if len(pieces) == 3 else "x2"
    if step[0] == "+":
        stride = parse_size(step[1:])
        if stride == 0 or (last - first) // stride > 10_000:
            raise UsageError(f"'{part}' has too small a step '{step}': expected at most 10000 sizes")
        return list(range(first, last + 1, stride))
    match = re.fullmatch(r"x(\d{1,18})", step)
    if match is None or int(match[1]) < 2:
        raise UsageError(f"'{step}' in '{part}' is not a step: expected xFACTOR (x2, x4, ...) or +SIZE")
    if first == 0:
        raise UsageError(f"'{part}' starts at 0, which no factor leaves: expected 1 or more")
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= int(match[1])
    return sizes


def parse_duration(text: str) -> int:
    """Nanoseconds of a time. A bare number is refused: it does not say of what."""
    parts = _split(text)
    if parts is None or parts[1] not in _TIME_UNITS_NS:
        raise UsageError(f"'{text}' is not a time: expected {TIME_EXPECTED}")
    time_ns = int(parts[0] * _TIME_UNITS_NS[parts[1]])
    if time_ns > MAX_TIME_NS:
        raise UsageError(f"'{text}' is longer than a century: expected {TIME_EXPECTED}")
    return time_ns


@dataclasses.dataclass(frozen=True)
class Share:
    """A part of something: `fraction` of it, or `size` bytes."""

    fraction: float | None = None
    size: int | None = None

    def of(self, whole_bytes: int) -> int:
        """Bytes of this share of `whole_bytes`; never more than all of it."""
        if self.size is not None:
            return min(self.size, whole_bytes)
        assert self.fraction is not None
        return int(whole_bytes * self.fraction)

    def __str__(self) -> str:
        """As it would be written."""
        if self.size is not None:
            return format_size(self.size)
        assert self.fraction is not None
        return f"{self.fraction * 100:g}%"


def parse_share(text: str) -> Share:
    """A percentage above 0 and up to 100, or a size above 0."""
    parts = _split(text)
    if parts is not None and parts[1] == "%":
        if not 0 < parts[0] <= 100:
            raise UsageError(f"'{text}' is not a share: expected a percentage above 0% and up to 100%")
        return Share(fraction=float(parts[0] / 100))
    if parts is None:
        raise UsageError(f"'{text}' is not a share: expected {SHARE_EXPECTED}")
    size = parse_size(text)
    if size == 0:
        raise UsageError(f"'{text}' leaves no memory: expected {SHARE_EXPECTED}")
    return Share(size=size)


def parse_percentage(text: str) -> float:
    """`2%` or `0.5%` as a fraction above 0 and below 1."""
    parts = _split(text)
    if parts is None or parts[1] != "%" or not 0 < parts[0] < 100:
        raise UsageError(f"'{text}' is not a percentage: expected such as 2%, above 0% and below 100%")
    return float(parts[0] / 100)


def format_size(size_bytes: int) -> str:
    """The shortest exact text that `parse_size` reads back: `64KiB`, `1536`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= _SIZE_UNITS[unit] and size_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"
    return str(size_bytes)


def format_bytes(amount: int) -> str:
    """Three digits of an amount of memory for reading, not for reading back: `1.5 GiB`."""
    value = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def format_exact_duration(time_ns: int) -> str:
    """The shortest exact text of a time that is read back: `20ms`, `1500us`."""
    for unit in ("s", "ms", "us"):
        if time_ns and time_ns % _TIME_UNITS_NS[unit] == 0:
            return f"{time_ns // _TIME_UNITS_NS[unit]}{unit}"
    return f"{time_ns}ns"


def format_duration(time_ns: float) -> str:
    """A time for reading: `250 µs`, `1.5 s`, `2 m 05 s`, `1 h 10 m`; `inf s` where a file has none that is finite."""
    seconds = time_ns / 1e9
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} m"
    if seconds >= 60:
        return f"{int(seconds // 60)} m {int(seconds % 60):02d} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 0.9995:  # what is rounded to 1000 is 1 of the next unit
            return f"{seconds * factor:.3g} {unit}"
    return f"{time_ns:.3g} ns"


def percent(share: float, digits: int = 0) -> str:
    """A share for reading, 1 being all: `87 %`, with one digit `87.3 %`."""
    return f"{100 * share:.{digits}f} %"


def change(share: float, digits: int = 0) -> str:
    """A change for reading, with its sign: `+3 %`."""
    return f"{100 * share:+.{digits}f} %"


def is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another, by their first three numbers; one without numbers is."""
    one, two = (tuple(int(word) for word in re.findall(r"\d+", text)[:3]) for text in (version, other))
    return one < two
