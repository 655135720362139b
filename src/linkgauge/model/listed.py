"""Lists that may be long, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first words of a list, and how many more there are.

    >>> listed(("n1", "n2", "n3", "n4"), 2)
    'n1, n2 and 2 more'
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return separator.join(words[:most]) + more
