"""Where a rank is."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A node, by its host's name, and a device of it, by the ordinal there."""

    node: str
    device: int
