"""A test of a peer and the case of ours that is the same measurement."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, UsageError


@dataclasses.dataclass(frozen=True)
class PeerTest:
    """One program (or test name) of a peer, beside our case table.

    `case` is a `[[case]]` table of a plan without sizes; `estimator` a name in estimators.ESTIMATORS. `tolerance`
    is the share within which the two should agree at a size. `figure` says what both sides give: `latency_ns` (less
    is better) or `rate_bytes_per_s`. `payload(size, ranks)` is what a rate divides by the estimator's time.
    """

    peer: str
    name: str  # the peer's own: osu_latency, all_reduce_perf, device_to_device_memcpy_write_ce
    case: Mapping[str, Any]
    estimator: str
    figure: str
    ranks: int | None = 2  # None: any number
    sizes_are: str = "same"  # same | total: the peer's size is n times ours


@dataclasses.dataclass(frozen=True)
class PeerRequest:
    """How to start a peer: the sizes, ranks and counts of one comparison."""

    folder: Path
    sizes: tuple[int, ...]
    ranks: int
    iterations: int
    warmup: int
    devices: tuple[int, ...]
    processes: bool  # one process a rank (MPI), against threads of one
    memory: tuple[str, str] = ("device", "device")


def find_program(folder: Path, name: str) -> Path:
    """The program `name` in `folder` or below it; EnvironmentLackingError naming both when it is not there."""
    if folder.is_file() and folder.name == name:
        return folder
    direct = folder / name
    if direct.is_file():
        return direct
    for found in sorted(folder.rglob(name)):
        if found.is_file():
            return found
    raise EnvironmentLackingError(
        f"no program '{name}' in '{folder}': expected the folder of the peer's built programs"
    )


_NUMBER = re.compile(r"^[0-9]+(\.[0-9]+)?$")


def numbers_of(line: str) -> list[str]:
    """The words of a line of a peer's table."""
    return line.split()


def is_number(word: str) -> bool:
    """Whether a word of a table is a plain decimal number."""
    return _NUMBER.match(word) is not None


def check_counts(found: Mapping[int, float], sizes: Sequence[int], peer: str, output: str) -> None:
    """UsageError showing what the peer said when a size that was asked for is missing in its output."""
    missing = [size for size in sizes if size not in found]
    if missing:
        last = output.strip().splitlines()[-1:] or ["nothing"]
        raise UsageError(f"{peer} gave no figure for {missing[0]} bytes; its last line: {last[0][:200]}")
