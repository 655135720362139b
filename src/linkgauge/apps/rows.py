"""Rows of numbers, which a rank's steps become: what each says, and what a step file's formulas know on a rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from linkgauge.apps.formula import Formula, FormulaError
from linkgauge.apps.step_file import StepFile
from linkgauge.errors import UsageError, not_one_of

COMPUTE, COPY, SEND, RECEIVE, WAIT, COLLECTIVE, SYNC, AFTER, LOOP, END = range(10)
"""Kinds of rows, in the order of the core's ProgramKind."""

LINE = 64  # bytes: where messages and copies begin

Row = Sequence[int]  # kind, which, queue, amount, offset


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective: the same thing wherever all of this is the same. `root`: its place in `ranks`."""

    pattern: str
    size: int
    root: int
    distribution: str
    ranks: tuple[int, ...]
    begun: bool
    in_place: bool = False
    turn: int = 0  # of those alike that are under way together

    @property
    def words(self) -> str:
        """What it is, for errors."""
        size = "" if self.pattern == "barrier" else f" of {self.size} bytes"
        return f"{self.pattern}{size}{f' with root {self.ranks[self.root]}' if self.root else ''}"


@dataclasses.dataclass(frozen=True)
class RankProgram:
    """One rank's rows, [rows, 5]; of messages `which` is the peer.

    `steps`: of each its step, as `StepFile.where` counts. `copied`: bytes of the buffers each way.
    """

    rows: NDArray[np.int64]
    steps: NDArray[np.int32]
    executed: int
    copied: tuple[int, ...]


def places(kinds: Sequence[int], turns: Sequence[int]) -> Iterator[int]:
    """Places of a rank's rows that are no loop or end, as it comes by them; a loop as often as `turns` has there."""
    loops: list[list[int]] = []  # where each begins, and how many turns are left
    at = 0
    while at < len(kinds):
        if kinds[at] == LOOP:
            loops.append([at, turns[at]])
        elif kinds[at] == END:
            loops[-1][1] -= 1
            if loops[-1][1] > 0:
                at = loops[-1][0]
            else:
                loops.pop()
        else:
            yield at
        at += 1


def weighted(rows: Iterable[Row]) -> Iterator[tuple[Row, int]]:
    """Each row of a rank that is no loop or end, and how often an iteration has it."""
    times = [1]
    for row in rows:
        if row[0] == LOOP:
            times.append(times[-1] * row[3])
        elif row[0] == END:
            times.pop()
        else:
            yield row, times[-1]


def parameters_of(file: StepFile, settings: Mapping[str, int]) -> dict[str, int]:
    """The file's parameters with those that are set. UsageError for one that it does not have."""
    for name in settings:
        if name not in file.parameters:
            raise UsageError(f"{file.name}: no parameter '{name}'{not_one_of(name, file.parameters)}")
    return {**file.parameters, **settings}


def names_of(file: StepFile, settings: Mapping[str, int], ranks: int, rank: int) -> dict[str, int]:
    """What formulas know on a rank: rank, ranks, parameters and values."""
    known = {"rank": rank, "ranks": ranks, **parameters_of(file, settings)}
    for name, value in file.values.items():
        known[name] = value_of(value, known, f"{file.name}: values.{name}")
    return known


def value_of(asked: Formula, known: Mapping[str, int], where: str) -> int:
    """The value of a formula. UsageError naming where it stands."""
    try:
        return asked(known)
    except FormulaError as error:
        raise UsageError(f"{where}: {error}") from None
