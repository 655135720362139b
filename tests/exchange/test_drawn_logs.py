"""A log as its program prints it comes back exactly, whatever its columns, order, prefixes and encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from exchange import drawn_logs


@pytest.mark.parametrize("name", drawn_logs.FORMATS)
def test_drawn_logs_come_back(name: str, tmp_path: Path) -> None:
    for seed in range(12):
        drawn_logs.check(name, seed, tmp_path)
