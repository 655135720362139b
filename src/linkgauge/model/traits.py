"""Tables of traits: a row each for the patterns and the transports."""

from __future__ import annotations

from collections.abc import Mapping


def having(table: Mapping[str, object], trait: str) -> tuple[str, ...]:
    """Names of the rows that have a trait, in the table's order."""
    return tuple(name for name, row in table.items() if getattr(row, trait))
