"""A step file's steps on each of so many ranks, as rows of numbers.

Loops stay loops unless a step in them asks for their index; then they are written out. Steps that move nothing (0
bytes, a collective of one rank) are none.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from linkgauge.apps.formula import Formula, FormulaError
from linkgauge.apps.rows import (
    AFTER,
    COLLECTIVE,
    COMPUTE,
    COPY,
    END,
    LINE,
    LOOP,
    RECEIVE,
    SEND,
    SYNC,
    WAIT,
    Collective,
    RankProgram,
    Row,
    names_of,
)
from linkgauge.apps.step_file import COPIES, Kind, StepFile
from linkgauge.errors import UsageError
from linkgauge.model.elements import restated_size
from linkgauge.model.patterns import PATTERNS

MOST_ROWS = 2_000_000  # of all ranks
MOST_EXECUTED = 10_000_000  # steps of a rank in one iteration
_MOST_COPY_BYTES = 8 << 20  # programs use their buffers again
_BEGUN_AT_ONCE = 8  # collectives that are alike and under way together have buffers of their own
_UNFIXED = ("work", "copy", "wait")  # their rows depend on those before them; so do the turns of what is begun
_APART = ("compute", "send", "receive")  # their rows depend on nothing but themselves, and are found by the column
_FEW = 64  # steps that follow each other are not sorted for so few
_NONE = (-1, 0, 0, 0, 0)


def expanded(
    file: StepFile, settings: Mapping[str, int], ranks: int
) -> tuple[tuple[RankProgram, ...], tuple[Collective, ...]]:
    """Each rank's program, and the collectives that these name by number. UsageError for what cannot be."""
    made = _Expansion(file, settings, ranks)
    programs, collectives = made.programs()
    if made.turns and not _agree(programs, collectives):
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


class _OneByOneError(Exception):
    """A step of a column is wrong: each is asked, so that the error names the first."""


class _Expansion:
    def __init__(
        self, file: StepFile, settings: Mapping[str, int], ranks: int, *, over_waits: bool = False,
        one_turn: bool = False,
    ) -> None:  # fmt: skip
        self._file = file
        self._over_waits, self._one_turn = over_waits, one_turn
        self._settings = settings
        self._ranks = ranks
        self._steps = file.steps
        self._queues = {name: number for number, name in enumerate(file.queues)}
        self._names = [names_of(file, settings, ranks, rank) for rank in range(ranks)]
        self._own = np.array([one.verb in _UNFIXED or one.begun for one in file.steps.kinds])  # by kind
        self._apart = np.array([one.verb in _APART and "when" not in one.numbers and len(one.numbers) > 0
                                for one in file.steps.kinds])  # fmt: skip
        self._loops = sorted(file.steps.spans)
        self._parts: dict[int, list[int | _Stretch]] = {}  # of lists of steps, by where they begin
        self._uses: dict[int, bool] = {}  # of loops
        self._every = tuple(range(ranks))
        self._collectives: dict[Collective, int] = {}
        self._listed: list[Collective] = []  # by number
        self.turns: dict[tuple[int, int], int] = {}  # of begun collectives: the number of one's turn
        self._groups: dict[str, list[tuple[int, ...]]] = {}  # by their formula, of each rank, outside of loops' turns
        self._rows_left = MOST_ROWS
        self._written_left = MOST_ROWS  # steps of loops' turns, whether they come to anything or not
        # Of the rank in hand.
        self._rank = 0
        self._number = 0  # of the step in hand, as StepFile.where counts
        self._together: NDArray[np.int32] | None = None  # the column of steps in hand
        self._fixed: dict[int, Row] = {}  # of steps whose rows are the same wherever they stand, by what they say
        self._rows: list[Row] = []  # and the steps that they are of, behind those of `_made`
        self._numbers: list[int] = []
        self._made: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        self._copied = [0, 0, 0]
        self._mine: dict[str, int] = {}  # what its formulas know now
        self._indices: dict[str, int] = {}  # of the loops that it is in
        self._next_copy = [0, 0, 0]
        self._begun: dict[int, int] = {}  # collectives under way, by number, and how often

    def programs(self) -> tuple[tuple[RankProgram, ...], tuple[Collective, ...]]:
        programs = []
        for rank in range(self._ranks):
            self._rank, self._made, self._copied = rank, [], [0, 0, 0]
            self._next_copy, self._begun = [0, 0, 0], {}
            self._mine, self._fixed = dict(self._names[rank]), {}
            executed = self._list(self._parts_of(0, len(self._steps.kind)))
            if self._rows or not self._made:
                self._gather()
            rows, steps = self._made[0]
            if len(self._made) > 1:
                rows, steps = (np.concatenate(parts) for parts in zip(*self._made, strict=True))
            programs.append(RankProgram(rows, steps, executed, tuple(self._copied)))
        return tuple(programs), tuple(self._listed)

    def _where(self) -> str:
        if self._together is not None:
            raise _OneByOneError
        return self._file.where(self._number)

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(f"{self._where()}: rank {self._rank} of {self._ranks}: {what}")

    def _of(self, kind: Kind, key: str, least: int = 0) -> Any:
        """An amount of the step in hand, or of each of a column of them where they have their own."""
        asked, together = kind.formulas.get(key), self._together
        found: Any
        if asked is not None:
            found = self._evaluated(asked, self._mine, key)
        elif together is None:
            found = self._steps.numbers[key].item(self._number)
        else:
            found = self._steps.numbers[key][together]
        if found < least if together is None else np.any(found < least):
            self._refuse(f"{key} is {found}: expected {least} or more")
        return found

    def _evaluated(self, asked: Formula, known: Mapping[str, int], key: str) -> int:
        try:
            return asked(known)
        except FormulaError as error:
            raise UsageError(f"{self._where()}.{key}: {error}") from None

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
        fixed = {} if self._indices else self._fixed
        for part in parts:
            if isinstance(part, int):
                self._number = part
                kind = self._steps.kinds[self._steps.kind.item(part)]
                if not kind.conditional or self._of(kind, "when", -(1 << 62)):
                    executed += self._repeat(kind)
            elif part.of is not None and (added := self._add_alike(part, fixed, MOST_EXECUTED - executed)) is not None:
                executed += added
            else:
                if part.of is not None:
                    part = self._stretch(part.begin, part.count, singly=True)
                for self._number, kind, same in zip(part.asked, part.kinds, part.sames, strict=True):
                    row = self._row_of(kind, same, fixed, keep=True)
                    if row is not None:
                        self._add(row)
                        executed += 1
                        if executed > MOST_EXECUTED:
                            break
            if executed > MOST_EXECUTED:
                self._refuse(f"more than {MOST_EXECUTED} steps are executed: expected fewer")
        return executed

    def _repeat(self, kind: Kind) -> int:
        number = self._number
        begin, end = number + 1, number + self._steps.spans[number]
        parts = self._parts_of(begin, end)
        turns: int = self._of(kind, "repeat")
        index = kind.words.get("index", "")
        if turns > MOST_EXECUTED:
            self._refuse(f"{turns} turns of a loop: expected at most {MOST_EXECUTED}")
        if index and self._uses_index(index, begin, end):
            self._written_left -= turns * sum(1 if isinstance(part, int) else part.count for part in parts)
            if self._written_left < 0:
                self._refuse(f"more than {MOST_ROWS} steps of loops' turns are written out: expected fewer, or loops")
            executed = 0
            for turn in range(turns):
                self._mine[index] = self._indices[index] = turn
                executed += self._list(parts)
                if executed > MOST_EXECUTED:
                    break
            self._mine.pop(index, None)
            self._indices.pop(index, None)
            self._number = number
            return executed
        if turns == 0:
            return 0
        self._add((LOOP, 0, -1, turns, 0))
        length = (len(self._made), len(self._rows))
        executed = self._list(parts)
        self._number = number
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
            self._refuse(f"more than {MOST_ROWS} steps of all ranks are written out: expected fewer, or loops")
        self._rows.append(row)
        self._numbers.append(self._number)

    def _add_alike(self, part: _Stretch, fixed: dict[int, Row], most: int) -> int | None:
        """Adds the rows of a stretch; how many. None, and nothing added, where each of its steps is to be asked: one is
        wrong, or they may be too many."""
        if part.count > min(self._rows_left, most):
            return None
        rows = np.empty((part.count, 5), np.int64)
        try:
            for steps in part.columns:
                at = part.at(steps)
                for place, column in enumerate(self._row_of_column(steps)):
                    rows[at, place] = column
        except _OneByOneError:
            return None
        finally:
            self._together = None
        found = []
        for self._number, kind, same in zip(part.asked, part.kinds, part.sames, strict=True):
            found.append(self._row_of(kind, same, fixed, keep=False) or _NONE)
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

    def _row_of_column(self, steps: NDArray[np.int32]) -> Sequence[Any]:
        """The rows of steps of one kind, as columns or what all have."""
        self._together = steps
        kind = self._steps.kinds[self._steps.kind[steps[0]]]
        if kind.conditional and not self._of(kind, "when", -(1 << 62)):
            return _NONE
        return self._row(kind) or _NONE

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
            if kind.conditional and not self._of(kind, "when", -(1 << 62)):
                return None
            row = self._row(kind)
            if row is None or not (row[3] or _moves(*row[::3])):  # most have an amount
                return None
            if (keep or kind.begun) and kind.verb not in _UNFIXED:
                fixed[same] = row
        return self._under_way(row) if kind.begun else row

    def _under_way(self, row: Row) -> Row:
        """A collective that is begun: with those alike that are under way it has buffers of its own."""
        number = row[1]
        turn = self._begun.get(number, 0)
        self._begun[number] = turn + 1
        turn %= 1 if self._one_turn else _BEGUN_AT_ONCE
        if turn == 0:
            return row
        if (number, turn) not in self.turns:
            self.turns[number, turn] = self._numbered(dataclasses.replace(self._listed[number], turn=turn))
        return (COLLECTIVE, self.turns[number, turn], -1, 0, 0)

    def _numbered(self, one: Collective) -> int:
        number = self._collectives.setdefault(one, len(self._listed))
        if number == len(self._listed):
            self._listed.append(one)
        return number

    def _row(self, step: Kind) -> Row | None:
        """What the step in hand, of this kind, is, or each of a column of them; None where it has no part in it."""
        queue = self._queues[step.words["queue"]] if "queue" in step.words else -1
        match step.verb:
            case "compute":
                return (COMPUTE, 0, -1, self._of(step, "compute"), 0)
            case "work":
                size = self._of(step, "work")
                return (COMPUTE, 0, queue, size, self._place(2, size))
            case "copy":
                size, way = self._of(step, "bytes"), COPIES.index(step.words["copy"])
                return (COPY, way, queue, size, self._place(way, size))
            case "send" | "receive":
                return self._message(step)
            case "wait":
                self._begun = self._begun if self._over_waits else {}
                return (WAIT, 0, -1, 0, 0)
            case "sync":
                named = step.words["sync"]
                return (SYNC, 0, -1 if named == "all" else self._queues[named], 0, 0)
            case "after":
                return (AFTER, self._queues[step.words["after"]], queue, 0, 0)
        return self._collective(step)

    def _place(self, way: int, size: int) -> int:
        """Where a copy of so many bytes lies in its buffers, which are used again from the start where they end."""
        at = self._next_copy[way]
        if size == 0:
            return at
        if at + size > max(_MOST_COPY_BYTES, size):
            at = 0
        self._next_copy[way] = -(-(at + size) // LINE) * LINE
        self._copied[way] = max(self._copied[way], at + size)
        return at

    def _message(self, step: Kind) -> Row | None:
        peer = self._of(step, step.verb, -(1 << 62))
        wrong = (peer < 0) | (peer >= self._ranks) | (peer == self._rank)
        if wrong if self._together is None else np.any(wrong):
            self._refuse(f"{step.verb} is {peer}: expected another rank, 0 to {self._ranks - 1}")
        return (SEND if step.verb == "send" else RECEIVE, peer, -1, self._of(step, "bytes"), 0)

    def _collective(self, step: Kind) -> Row | None:
        ranks = self._group(step)
        pattern = "barrier" if step.verb == "barrier" else step.words["collective"]
        size = 0 if pattern == "barrier" else self._of(step, "bytes")
        root = self._of(step, "root") if step.has("root") else ranks[0]
        if root not in ranks:
            self._refuse(f"root is {root}: expected one of {', '.join(map(str, ranks[:20]))}")
        if len(ranks) < 2 or (size == 0 and pattern != "barrier"):
            return None
        restated, reason = restated_size(PATTERNS[pattern], size, len(ranks), "float32")
        if reason or restated != size:
            self._refuse(reason or f"{pattern} of {size} bytes: expected whole blocks, as {restated}")
        place = ranks.index(root) if PATTERNS[pattern].rooted else 0
        one = Collective(pattern, size, place, step.words.get("distribution", ""), ranks, step.begun)
        return (COLLECTIVE, self._numbered(one), -1, 0, 0)

    def _group(self, step: Kind) -> tuple[int, ...]:
        """The ranks whose `group` is this one's; all without it."""
        if "group" not in step.formulas:
            return self._every
        asked = step.formulas["group"]
        if self._indices or asked.text not in self._groups:
            of = [self._evaluated(asked, {**names, **self._indices}, "group") for names in self._names]
            by_color: dict[int, list[int]] = {}
            for rank, color in enumerate(of):
                by_color.setdefault(color, []).append(rank)
            groups = {color: tuple(ranks) for color, ranks in by_color.items()}
            if self._indices:
                return groups[of[self._rank]]
            self._groups[asked.text] = [groups[color] for color in of]
        return self._groups[asked.text][self._rank]


def _moves(kind: Any, amount: Any) -> Any:
    """Whether a row, or each of a column of them, is any: of no bytes and no time it is none."""
    return (kind > RECEIVE) | (amount > 0)


def _as_array(rows: Sequence[Row]) -> NDArray[np.int64]:
    """As one run of numbers: a million tuples are ten times as long in becoming an array."""
    return np.fromiter(itertools.chain.from_iterable(rows), np.int64, 5 * len(rows)).reshape(-1, 5)
