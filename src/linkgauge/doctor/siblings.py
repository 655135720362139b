"""Counters of like parts, such as links: which of them count far more than the others.

Links correct errors all the time, so that counts since the driver was loaded say little by themselves. What says
something is one part unlike its siblings.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

_TIMES, SEVERAL = 10, 100


def far_above(counts: Mapping[str, int], word: str, least: int = SEVERAL) -> Iterator[str]:
    """For each part whose count is over ten times the median and `least`: its name, count and what is usual."""
    if not counts:
        return
    usual = max(statistics.median_low(counts.values()), 0)
    for name, count in counts.items():
        if count > _TIMES * usual + least:
            yield f"{name}: {count} {word}, others {usual}"


def same_bridges(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many bridges two devices share from the root down: the more, the nearer they are."""
    return next((at for at, two in enumerate(zip(one, other, strict=False)) if two[0] != two[1]),
                min(len(one), len(other)))  # fmt: skip
