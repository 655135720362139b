"""Quantities with units, as system descriptions write them: `"50 GB/s"`, `"400 Gb/s"`, `"64 GiB"`, `"8.7
us"`.

Rates become bytes per second, sizes bytes, times nanoseconds. Decimal prefixes are powers of 1000 and binary
ones powers of 1024; `b` is a bit and `B` a byte.
"""

from __future__ import annotations

import math
import re
from typing import Any

from linkgauge.model.shape import LARGEST, MisshapenError, Shape

RATE = "B/s"
SIZE = "B"
TIME = "ns"
COUNT = "1"

_RATES = {
    **{f"{prefix}B/s": 1000.0**power for power, prefix in enumerate(("", "k", "M", "G", "T"))},
    **{f"{prefix}b/s": 1000.0**power / 8 for power, prefix in enumerate(("", "k", "M", "G", "T"))},
    **{f"{prefix}iB/s": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}
_SIZES = {
    **{f"{prefix}B": 1000.0**power for power, prefix in enumerate(("", "k", "M", "G", "T"))},
    **{f"{prefix}iB": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}
_TIMES = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_COUNTS = {"1": 1.0, "": 1.0}
_TABLES = {RATE: _RATES, SIZE: _SIZES, TIME: _TIMES, COUNT: _COUNTS}
# What a figure may be, by unit. Cuts are computed on whole bytes per second, so that less than one would be none; and
# the sum of all links that a system may have must stay a number.
WITHIN = {RATE: (1.0, 1e18), SIZE: (1.0, 1e21), TIME: (1e-6, 1e18), COUNT: (1e-9, 1e15)}
_QUANTITY = re.compile(r"^\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*$")


def parse(text: object, unit: str) -> float:
    """Return `text` in `unit` (`B/s`, `B`, `ns` or `1`); a bare number is taken to be in `unit` already.

    Raises `ValueError` with one line that says what is wrong and what would be right.
    """
    table = _TABLES[unit]
    written = f"{text} {unit if unit != COUNT else ''}" if type(text) in (int, float) else text
    found = _QUANTITY.match(written) if isinstance(written, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no quantity; write a number and a unit, as in {_example(unit)}")
    number, name = found.groups()
    if name not in table:
        raise ValueError(f"unknown unit {name!r} in {text!r}; use one of {', '.join(filter(None, table))}")
    value = float(number) * table[name]
    if not math.isfinite(value):
        raise ValueError(f"{str(text)[:40]!r} is not finite")
    return value


def quantity(unit: str, least: float = -LARGEST, most: float = LARGEST) -> Shape:
    """The shape of a quantity in `unit` from `least` to `most`."""

    def read(value: Any, at: str) -> float:
        try:
            found = parse(value, unit)
        except ValueError as error:
            raise MisshapenError(f"{at}: {error}") from None
        if not least <= found <= most:
            suffix = "" if unit == COUNT else f" {unit}"
            raise MisshapenError(
                f"{at}: {value!r} is beyond any machine; expected {least:g} to {most:g}{suffix}, or leave it out"
            )
        return found

    return read


def _example(unit: str) -> str:
    return {RATE: '"50 GB/s"', SIZE: '"64 GiB"', TIME: '"8.7 us"', COUNT: "18"}[unit]


def show_rate(bytes_per_s: float | None, unit: str = "GB/s") -> str:
    """Return a rate in `unit` (any rate unit this module knows) with four significant digits, or
    `unknown`."""
    if bytes_per_s is None:
        return "unknown"
    return f"{bytes_per_s / _RATES[unit]:.4g} {unit}"


def rate_units() -> tuple[str, ...]:
    """Return the rate units that can be read and shown."""
    return tuple(_RATES)
