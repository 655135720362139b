"""By which dimensions cases are compared, and which set them apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from linkgauge.model.case import Case
from linkgauge.model.dimension import Part, Says

_FIELDS = dataclasses.fields(Case)


def _saying(kind: Says) -> tuple[str, ...]:
    return tuple(one.name for one in _FIELDS if one.metadata["says"] is kind)


TASK = _saying(Says.WHAT)
"""Dimensions that say what is done: with MECHANISM, all that tells curves apart."""
MECHANISM = _saying(Says.HOW)
"""Dimensions that say how it is done."""
PARTS: dict[Part, tuple[str, ...]] = {
    part: tuple(one.name for one in _FIELDS if one.metadata["part"] is part) for part in Part
}
"""By part the names of its dimensions."""


def held_apart(*compared: str | Part) -> tuple[str, ...]:
    """Names of the dimensions that two cases must share to be compared by `compared`: all others, sizes among them.

    A part stands for all its dimensions. KeyError for a name that is no dimension, or only says how long
    and how thoroughly is measured.
    """
    names = (*TASK, *MECHANISM, "size")
    apart = {name for one in compared for name in (PARTS[one] if isinstance(one, Part) else (one,))}
    for one in compared:
        if one not in names and not isinstance(one, Part):
            raise KeyError(one)
    return tuple(name for name in names if name not in apart)


def values_of(case: Case, names: Iterable[str]) -> tuple[Any, ...]:
    """The case's values of some dimensions: what cases are grouped by."""
    return tuple(getattr(case, name) for name in names)
