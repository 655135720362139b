"""Ranges of names: `gpu0..7` stands for eight."""

from __future__ import annotations

import re

_RANGE = re.compile(r"^(.*?)(\d{1,9})\.\.(?:(.*?))(\d{1,9})$")


def _span(name: str) -> tuple[str, int, int]:
    """Return what a range stands for: the prefix, the first number and how many; `(name, 0, 0)` for a name alone."""
    found = _RANGE.match(name)
    if found is None:
        return name, 0, 0
    prefix, first, again, last = found.groups()
    if again not in ("", prefix) or int(last) < int(first):
        return name, 0, 0
    return prefix, int(first), int(last) - int(first) + 1


def count_of(name: str) -> int:
    """Return for how many names one stands, without making them."""
    return _span(name)[2] or 1


def expand(name: str) -> list[str]:
    """Return the names that a range such as `gpu0..7` or `gpu0..gpu7` stands for, or the name alone.

    Who asks looks at `count_of` first: a range of eight letters may stand for a hundred million.
    """
    prefix, first, count = _span(name)
    return [f"{prefix}{number}" for number in range(first, first + count)] if count else [name]
