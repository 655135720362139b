"""Sizes, times and shares: what is written comes back, what is wrong is named with what was expected."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model import quantity


@given(st.integers(0, quantity.MAX_SIZE_BYTES))
def test_a_size_written_is_read_back(size: int) -> None:
    assert quantity.parse_size(quantity.format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", (8,)),
        ("64KiB", (65536,)),
        ("1.5MiB", (1572864,)),
        ("1:1GiB:x4", tuple(4**k for k in range(16))),
        ("8:64", (8, 16, 32, 64)),
        ("1MiB:3MiB:+1MiB", (1 << 20, 2 << 20, 3 << 20)),
        ("8,64KiB,8", (8, 65536)),
        ("0", (0,)),
    ],
)
def test_sizes(text: str, expected: tuple[int, ...]) -> None:
    assert quantity.parse_sizes(text) == expected


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(2, 64))
def test_a_geometric_range_starts_at_its_first_stays_within_and_cannot_go_on(a: int, b: int, factor: int) -> None:
    first, last = sorted((a, b))
    sizes = quantity.parse_sizes(f"{first}:{last}:x{factor}")
    assert sizes[0] == first
    assert all(nxt == now * factor for now, nxt in itertools.pairwise(sizes))
    assert sizes[-1] <= last < sizes[-1] * factor


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("64KB", "64KiB"),
        ("64k", "64KiB"),
        ("1.5", "whole"),
        ("abc", "abc"),
        ("", "''"),
        ("-8", "-8"),
        ("8:1", "1:8"),
        ("1:8:x1", "x1"),
        ("1:8:y2", "y2"),
        ("0:8:x2", "0"),
        ("1:2:3:4", "range"),
        ("1:", "range"),
        ("1:1TiB:+1", "10000"),
        ("9999999TiB", "at most"),
        ("8,,9", "''"),
    ],
)
def test_a_wrong_size_is_named_with_what_was_expected(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        quantity.parse_sizes(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=20))
def test_any_text_is_sizes_or_a_usage_error(text: str) -> None:
    for parse in (quantity.parse_sizes, quantity.parse_duration, quantity.parse_share):
        said = ""
        try:
            parse(text)
        except UsageError as error:
            said = str(error)
        assert not said or "expected" in said


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("250us", 250_000),
        ("10m", 600 * 10**9),
        ("1.5s", 1_500_000_000),
        ("7ns", 7),
        ("1h", 3600 * 10**9),
        ("2 ms", 2_000_000),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert quantity.parse_duration(text) == ns


@pytest.mark.parametrize("text", ["10", "10x", "s", "1:2", "", "10 m 5"])
def test_a_wrong_time_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="expected a time such as"):
        quantity.parse_duration(text)


def test_shares() -> None:
    assert quantity.parse_share("50%").of(1000) == 500
    assert quantity.parse_share("1KiB").of(10_000) == 1024
    assert quantity.parse_share("1KiB").of(10) == 10
    for wrong in ("0%", "101%", "x", "0", "50 percent", ""):
        with pytest.raises(UsageError):
            quantity.parse_share(wrong)


@given(st.fractions(0, 100))
def test_a_share_is_of_the_whole(percent: Fraction) -> None:
    if percent == 0:
        return
    share = quantity.parse_share(f"{float(percent):.6f}%") if float(percent) > 1e-6 else quantity.Share(fraction=1.0)
    assert 0 <= share.of(1 << 40) <= 1 << 40


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (250_000, "250 µs"),
        (999_800, "1 ms"),
        (1_500_000_000, "1.5 s"),
        (125e9, "2 m 05 s"),
        (4200e9, "1 h 10 m"),
        (7, "7 ns"),
    ],
)
def test_durations_for_reading(ns: float, text: str) -> None:
    assert quantity.format_duration(ns) == text


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [("1.9", "1.10", True), ("1.10", "1.9", False), ("2.28.9", "2.28.9", False), ("4.1.4rc1", "4.1.5", True),
     ("v5.0", "5", False), ("", "1", True), ("1", "", False)],
)  # fmt: skip
def test_versions_are_held_number_by_number(one: str, other: str, older: bool) -> None:
    assert quantity.is_older(one, other) is older


def test_screens_write_percent_and_microseconds_in_one_way() -> None:
    """`87 %` and `µs`: no source formats a share by `%` itself, or writes `us` behind a number."""
    assert (quantity.percent(0.87), quantity.percent(0.8749, 1), quantity.change(0.031)) == ("87 %", "87.5 %", "+3 %")
    package = Path(quantity.__file__).parents[1]
    other_ways = re.compile(r"""\{[^{}]*:[^{}]*%\}|:[.\dg]*\} us\b""")
    found = {
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if other_ways.search(line)
    }
    assert found == set()
