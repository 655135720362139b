"""What views are made of: rows of a summary, and sizes, times and rates as people read them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from linkgauge.errors import UsageError

RATE_UNITS = {"GB/s": 1e9, "Gb/s": 1e9 / 8, "GiB/s": float(1 << 30), "MB/s": 1e6}
_BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def rate_unit(text: str) -> str:
    """Return a unit of RATE_UNITS as it is written there; UsageError naming those there are."""
    if text not in RATE_UNITS:
        raise UsageError(f"unknown unit '{text}': expected one of {', '.join(RATE_UNITS)}")
    return text


def unit_text(unit: str) -> str:
    """Return a unit as screens write it: `us`, a key of plans and files, as `µs`."""
    return "µs" if unit == "us" else unit


def size_text(size_bytes: int) -> str:
    """Return a size with a binary prefix: `8 B`, `64 KiB`, `1.5 MiB`."""
    for name, unit in _BINARY:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} B"


def time_text(time_ns: float | None) -> str:
    """Return a time with three significant digits: `12.0 µs`; empty where it is missing."""
    if time_ns is None or not math.isfinite(time_ns):
        return ""
    for name, unit in _TIMES:
        if abs(time_ns) >= unit * 0.9995:
            return f"{digits(time_ns / unit)} {name}"
    return f"{digits(time_ns)} ns"


def rate_text(bytes_per_s: float | None, unit: str = "GB/s") -> str:
    """Return a rate in `unit` with three significant digits, without the unit; empty where it is missing."""
    return digits(None if bytes_per_s is None else bytes_per_s / RATE_UNITS[unit])


def digits(value: float | None) -> str:
    """Return a number with three significant digits and no exponent where it is between 1e-5 and 1e9."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    places = 2 - math.floor(math.log10(abs(value)))
    if places > 7:
        return f"{value:.2e}"
    rounded = round(value, places)
    places = 2 - math.floor(math.log10(abs(rounded)))  # 0.9995 has become 1.00
    return f"{rounded:.{max(0, places)}f}"


def percents(shares: Sequence[float]) -> str:
    """Return the range of some shares, 1 being all, in whole percent: `87 %`, of a range within one percent the middle.

    Below a tenth with three significant digits.
    """
    low, high = min(shares), max(shares)
    if high - low < 0.01:
        low = high = statistics.median(shares)
    ends = (digits(100 * share) if share < 0.1 else f"{100 * share:.0f}" for share in (low, high))
    return f"{range_text(*ends)} %"


def range_text(low: str, high: str) -> str:
    """Return `1.31 to 1.40`, `7.09 to 8.32 µs`: what is alike once, and a unit that both have once."""
    value, _, unit = low.partition(" ")
    if low == high:
        return low
    return f"{value if unit and high.endswith(f' {unit}') else low} to {high}"


def count_text(count: int, noun: str) -> str:
    """Return `1 case`, `2 cases`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
