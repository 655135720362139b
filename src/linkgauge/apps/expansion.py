"""A step file's steps on each of so many ranks, as rows of numbers: the walk over lists and loops.

Loops stay loops unless a step in them asks for their index; then they are written out. Steps that move nothing (0
bytes, a collective of one rank) are none.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkgauge.apps.rows import COLLECTIVE, END, LOOP, RECEIVE, Collective, RankProgram, Row
from linkgauge.apps.step_file import Kind, StepFile
from linkgauge.apps.step_rows import NONE, UNFIXED, OneByOneError, StepRows

MOST_ROWS = 2_000_000  # of all ranks
MOST_EXECUTED = 10_000_000  # steps of a rank in one iteration
_APART = ("compute", "send", "receive")  # their rows depend on nothing but themselves, and are found by the column
_FEW = 64  # steps that follow each other are not sorted for so few


def expanded(
    file: StepFile, settings: Mapping[str, int], ranks: int
) -> tuple[tuple[RankProgram, ...], tuple[Collective, ...]]:
    """Each rank's program, and the collectives that these name by number. UsageError for what cannot be."""
    made = _Expansion(file, settings, ranks)
    programs, collectives = made.programs()
    if made.has_turns and not _agree(programs, collectives):
        # Ranks wait at other places. So turns go on over waits, which takes more buffers, and are the same on all.
        programs, collectives = _Expansion(file, settings, ranks, over_waits=True).programs()
        if not _agree(programs, collectives):
            # Their loops are unlike too, in each of which a step has one turn. So all that are alike have the first.
            return _Expansion(file, settings, ranks, one_turn=True).programs()
    return programs, collectives


def _agree(programs: Sequence[RankProgram], collectives: Sequence[Collective]) -> bool:
    """Whether the ranks of each group have the same collectives, by their turns too, one after the other."""
    numbers: dict[tuple[int, ...], int] = {}
    of = np.array([numbers.setdefault(one.ranks, len(numbers)) for one in collectives])
    known: dict[int, NDArray[np.int64]] = {}
    for program in programs:
        mine = program.rows[program.rows[:, 0] == COLLECTIVE, 1]
        for group in np.unique(of[mine]).tolist():
            found = mine[of[mine] == group]
            if not np.array_equal(known.setdefault(group, found), found):
                return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class _Stretch:
    """Steps that follow each other, none of them a loop: from `begin` on so many.

    `columns`: steps of one kind whose rows are found together. Of the `others` those that are `asked` for theirs, in
    order, with their `kinds` and `sames`: the first of what says the same, and all that depend on what was before them;
    `of`: of each of the others its place there. None: all are asked, and no columns.
    """

    begin: int
    count: int
    asked: Sequence[int]
    kinds: Sequence[Kind]
    sames: Sequence[int]
    others: NDArray[np.int32]
    of: NDArray[np.int64] | None = None
    columns: Sequence[NDArray[np.int32]] = ()

    def at(self, steps: NDArray[np.int32]) -> slice | NDArray[np.int32]:
        """Where steps of it stand in it."""
        return slice(None) if len(steps) == self.count else steps - self.begin


class _Expansion:
    def __init__(
        self, file: StepFile, settings: Mapping[str, int], ranks: int, *, over_waits: bool = False,
        one_turn: bool = False,
    ) -> None:  # fmt: skip
        steps = file.steps
        self._step = StepRows(file, settings, ranks, over_waits=over_waits, one_turn=one_turn)
        self._ranks = ranks
        self._steps = steps
        self._own = np.array([one.verb in UNFIXED or one.begun for one in steps.kinds])  # by kind
        self._apart = np.array([one.verb in _APART and "when" not in one.numbers and len(one.numbers) > 0
                                for one in steps.kinds])  # fmt: skip
        self._loops = sorted(steps.spans)
        self._parts: dict[int, list[int | _Stretch]] = {}  # of lists of steps, by where they begin
        self._uses: dict[int, bool] = {}  # of loops
        self._rows_left = MOST_ROWS
        self._written_left = MOST_ROWS  # steps of loops' turns, whether they come to anything or not
        # Of the rank in hand.
        self._fixed: dict[int, Row] = {}  # of steps whose rows are the same wherever they stand, by what they say
        self._rows: list[Row] = []  # and the steps that they are of, behind those of `_made`
        self._numbers: list[int] = []
        self._made: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []

    @property
    def has_turns(self) -> bool:
        """Whether a begun collective has more than one turn."""
        return bool(self._step.turns)

    def programs(self) -> tuple[tuple[RankProgram, ...], tuple[Collective, ...]]:
        programs = []
        for rank in range(self._ranks):
            self._step.begin_rank(rank)
            self._made, self._fixed = [], {}
            executed = self._list(self._parts_of(0, len(self._steps.kind)))
            if self._rows or not self._made:
                self._gather()
            rows, steps = self._made[0]
            if len(self._made) > 1:
                rows, steps = (np.concatenate(parts) for parts in zip(*self._made, strict=True))
            programs.append(RankProgram(rows, steps, executed, tuple(self._step.copied)))
        return tuple(programs), tuple(self._step.listed)

    # --- lists of steps

    def _parts_of(self, begin: int, end: int) -> list[int | _Stretch]:
        """A list's loops, each as its number, and what is between them."""
        if begin in self._parts:
            return self._parts[begin]
        found: list[int | _Stretch] = []
        self._parts[begin] = found
        while begin < end:
            place = bisect.bisect_left(self._loops, begin)
            stop = min([end, *self._loops[place : place + 1]])
            if stop > begin:
                found.append(self._stretch(begin, stop - begin))
            if stop < end:
                found.append(stop)
                stop += self._steps.spans[stop]
            begin = stop
        return found

    def _stretch(self, begin: int, count: int, *, singly: bool = False) -> _Stretch:
        numbers = np.arange(begin, begin + count, dtype=np.int32)
        if singly or count < _FEW:
            return _Stretch(begin, count, *self._asked(numbers), numbers)
        kinds = self._steps.kind[begin : begin + count]
        found, places, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        by_column = self._apart[found] & (counts >= _FEW)
        apart = by_column[places]
        in_columns = numbers[apart][np.argsort(places[apart], kind="stable")]
        columns = np.split(in_columns, np.cumsum(counts[by_column])[:-1]) if len(in_columns) else []
        others = numbers[~apart]
        alike = np.where(self._own[kinds[~apart]], -1 - others, self._steps.same[others])
        _, first, places = np.unique(alike, return_index=True, return_inverse=True)
        order = np.argsort(first)
        asked = others[first[order]]
        return _Stretch(begin, count, *self._asked(asked), others, np.argsort(order)[places], columns)

    def _asked(self, numbers: NDArray[np.int32]) -> tuple[list[int], list[Kind], list[int]]:
        kinds = [self._steps.kinds[kind] for kind in self._steps.kind[numbers].tolist()]
        return numbers.tolist(), kinds, self._steps.same[numbers].tolist()

    def _list(self, parts: list[int | _Stretch]) -> int:
        """Adds the rows of a list of steps; how many are executed."""
        executed = 0
        fixed = {} if self._step.in_turn else self._fixed
        for part in parts:
            if isinstance(part, int):
                self._step.number = part
                kind = self._steps.kinds[self._steps.kind.item(part)]
                if self._step.takes_part(kind):
                    executed += self._repeat(kind)
            elif part.of is not None and (added := self._add_alike(part, fixed, MOST_EXECUTED - executed)) is not None:
                executed += added
            else:
                if part.of is not None:
                    part = self._stretch(part.begin, part.count, singly=True)
                for self._step.number, kind, same in zip(part.asked, part.kinds, part.sames, strict=True):
                    row = self._row_of(kind, same, fixed, keep=True)
                    if row is not None:
                        self._add(row)
                        executed += 1
                        if executed > MOST_EXECUTED:
                            break
            if executed > MOST_EXECUTED:
                self._step.refuse(f"more than {MOST_EXECUTED} steps are executed: expected fewer")
        return executed

    def _repeat(self, kind: Kind) -> int:
        number = self._step.number
        begin, end = number + 1, number + self._steps.spans[number]
        parts = self._parts_of(begin, end)
        turns: int = self._step.amount(kind, "repeat")
        index = kind.words.get("index", "")
        if turns > MOST_EXECUTED:
            self._step.refuse(f"{turns} turns of a loop: expected at most {MOST_EXECUTED}")
        if index and self._uses_index(index, begin, end):
            self._written_left -= turns * sum(1 if isinstance(part, int) else part.count for part in parts)
            if self._written_left < 0:
                self._step.refuse(
                    f"more than {MOST_ROWS} steps of loops' turns are written out: expected fewer, or loops"
                )
            executed = 0
            for turn in range(turns):
                self._step.enter_turn(index, turn)
                executed += self._list(parts)
                if executed > MOST_EXECUTED:
                    break
            self._step.leave_loop(index)
            self._step.number = number
            return executed
        if turns == 0:
            return 0
        self._add((LOOP, 0, -1, turns, 0))
        length = (len(self._made), len(self._rows))
        executed = self._list(parts)
        self._step.number = number
        if length == (len(self._made), len(self._rows)):
            self._rows.pop()
            self._numbers.pop()
            return 0
        self._add((END, 0, -1, 0, 0))
        return executed * turns

    def _uses_index(self, index: str, begin: int, end: int) -> bool:
        if begin not in self._uses:
            kinds = set(self._steps.kind[begin:end].tolist())
            formulas = (one for kind in kinds for one in self._steps.kinds[kind].formulas.values())
            self._uses[begin] = any(index in one.names for one in formulas)
        return self._uses[begin]

    # --- rows

    def _add(self, row: Row) -> None:
        """Adds a row of the step in hand."""
        self._rows_left -= 1
        if self._rows_left < 0:
            self._step.refuse(f"more than {MOST_ROWS} steps of all ranks are written out: expected fewer, or loops")
        self._rows.append(row)
        self._numbers.append(self._step.number)

    def _add_alike(self, part: _Stretch, fixed: dict[int, Row], most: int) -> int | None:
        """Adds the rows of a stretch; how many. None, and nothing added, where each of its steps is to be asked: one is
        wrong, or they may be too many."""
        if part.count > min(self._rows_left, most):
            return None
        rows = np.empty((part.count, 5), np.int64)
        try:
            for steps in part.columns:
                at = part.at(steps)
                for place, column in enumerate(self._step.row_of_column(steps)):
                    rows[at, place] = column
        except OneByOneError:
            return None
        found = []
        for self._step.number, kind, same in zip(part.asked, part.kinds, part.sames, strict=True):
            found.append(self._row_of(kind, same, fixed, keep=False) or NONE)
        rows[part.at(part.others)] = _as_array(found)[part.of]
        numbers = np.arange(part.begin, part.begin + part.count, dtype=np.int32)
        there = _moves(rows[:, 0], rows[:, 3])
        if not there.all():
            rows, numbers = rows[there], numbers[there]
        if len(rows):
            if self._rows:
                self._gather()
            self._made.append((rows, numbers))
            self._rows_left -= len(rows)
        return len(rows)

    def _gather(self) -> None:
        """Makes arrays of the rows that were added one by one."""
        self._made.append((_as_array(self._rows), np.array(self._numbers, np.int32)))
        self._rows, self._numbers = [], []

    def _row_of(self, kind: Kind, same: int, fixed: dict[int, Row], *, keep: bool) -> Row | None:
        """The row of the step in hand, which is of this kind and no loop; None where it has none.

        `fixed`: those known, by what steps say; `keep`: whether to add to them what will be asked no more in a stretch.
        """
        row = fixed.get(same)
        if row is None:
            row = self._step.row(kind) if self._step.takes_part(kind) else None
            if row is None or not (row[3] or _moves(*row[::3])):  # most have an amount
                return None
            if (keep or kind.begun) and kind.verb not in UNFIXED:
                fixed[same] = row
        return self._step.under_way(row) if kind.begun else row


def _moves(kind: Any, amount: Any) -> Any:
    """Whether a row, or each of a column of them, is any: of no bytes and no time it is none."""
    return (kind > RECEIVE) | (amount > 0)


def _as_array(rows: Sequence[Row]) -> NDArray[np.int64]:
    """As one run of numbers: a million tuples are ten times as long in becoming an array."""
    return np.fromiter(itertools.chain.from_iterable(rows), np.int64, 5 * len(rows)).reshape(-1, 5)
