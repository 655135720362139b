"""Bytes that ranks send each other in one operation, as the core's schedules have them."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from linkgauge.errors import UsageError


@functools.lru_cache(maxsize=4096)  # asked for each row of a run
def sent_and_received(pattern: str, n: int, m: int, distribution: str) -> tuple[list[int], list[int]]:
    """Bytes that each rank sends, and receives, in one operation of a `distributed` pattern; by rank.

    Errors: UsageError where the distribution is none of so many ranks.
    """
    if reason := why_not_distributed(pattern, distribution, n):
        raise UsageError(reason)
    found: tuple[list[int], list[int]] = _core().rank_bytes(pattern, n, m, distribution)
    return found


def halo_buffer_bytes(n: int, m: int, distribution: str, *, field: bool) -> int:
    """Bytes of either of a rank's buffers: a place for each neighbor, also at an open boundary, or a `field` of cells.

    0 where no field has faces of m bytes. Errors: UsageError where the distribution is none of so many ranks.
    """
    if reason := why_not_distributed("halo", distribution, n):
        raise UsageError(reason)
    return int(_core().halo_buffer_bytes(n, m, distribution, field))


def why_not_distributed(pattern: str, distribution: str, n: int) -> str:
    """Why a distribution is none of the pattern's over so many ranks; empty where it is one."""
    if not distribution:
        return ""
    reason: str = _core().why_not_distributed(pattern, distribution, n)
    return reason


def pair_bytes(pattern: str, n: int, m: int, distribution: str = "", root: int = 0) -> list[tuple[int, int, int]]:
    """(source, target, bytes) of one operation of a pattern between ranks, by the schedule that composes it.

    Pairs without bytes are left out. A library's own collective may send others; see `stats/crossing.py`.
    """
    found: list[tuple[int, int, int]] = _core().pair_bytes(pattern, n, m, distribution, root)
    return found


def _core() -> Any:
    """What traffic is, is known in the core; the model loads without it."""
    return importlib.import_module("linkgauge._core")
