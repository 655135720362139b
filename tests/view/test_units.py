from __future__ import annotations

import pytest

from linkgauge.errors import UsageError
from linkgauge.view.units import digits, rate_text, rate_unit, size_text, time_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.00"),
        (12.345, "12.3"),
        (999.6, "1000"),
        (123456, "123000"),
        (0.000572, "0.000572"),
        (0.99951, "1.00"),
        (1e-7, "1.00e-07"),
        (-5.5, "-5.50"),
        (None, ""),
        (float("nan"), ""),
        (float("inf"), ""),
    ],
)
def test_three_digits(value: float | None, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (8, "8 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 30, "1 GiB")]
)
def test_sizes_have_binary_prefixes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (18.0, "18.0 ns"),
        (1000.0, "1.00 µs"),
        (999.9, "1.00 µs"),
        (12_000.0, "12.0 µs"),
        (5.8e6, "5.80 ms"),
        (2e9, "2.00 s"),
        (None, ""),
    ],
)
def test_times(time: float | None, text: str) -> None:
    assert time_text(time) == text


def test_rates_in_each_unit() -> None:
    assert rate_text(450e9) == "450"
    assert rate_text(450e9, "Gb/s") == "3600"
    assert rate_text(float(1 << 30), "GiB/s") == "1.00"
    assert rate_text(None) == ""
    with pytest.raises(UsageError, match="GB/s"):
        rate_unit("GBps")
