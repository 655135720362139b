"""The row of a step on one rank, as a step file's formulas have it there."""

from __future__ import annotations

import dataclasses
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
    LINE,
    RECEIVE,
    SEND,
    SYNC,
    WAIT,
    Collective,
    Row,
    names_of,
)
from linkgauge.apps.step_file import COPIES, Kind, StepFile
from linkgauge.errors import UsageError
from linkgauge.model.elements import restated_size
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS

_MOST_COPY_BYTES = 8 << 20  # programs use their buffers again
_BEGUN_AT_ONCE = 8  # collectives that are alike and under way together have buffers of their own
UNFIXED = ("work", "copy", "wait")  # their rows depend on those before them; so do the turns of what is begun
NONE = (-1, 0, 0, 0, 0)  # of a step that moves nothing


class OneByOneError(Exception):
    """A step of a column is wrong: each is evaluated, so that the error names the first."""


class StepRows:
    """Rows of the step in hand, on the rank in hand, and what steps before it left: buffers, collectives under way."""

    def __init__(
        self, file: StepFile, settings: Mapping[str, int], ranks: int, *, over_waits: bool, one_turn: bool
    ) -> None:
        """Read what the file says of every rank; `begin_rank` comes before the first row of each."""
        self._file = file
        self._over_waits, self._one_turn = over_waits, one_turn
        self._ranks = ranks
        self._steps = file.steps
        self._queues = {name: number for number, name in enumerate(file.queues)}
        self._names = [names_of(file, settings, ranks, rank) for rank in range(ranks)]
        self._every = tuple(range(ranks))
        self._collectives: dict[Collective, int] = {}
        self.listed: list[Collective] = []  # by number
        self.turns: dict[tuple[int, int], int] = {}  # of begun collectives: the number of one's turn
        self._groups: dict[str, list[tuple[int, ...]]] = {}  # by their formula, of each rank, outside of loops' turns
        self.number = 0  # of the step in hand, as StepFile.where counts
        self._together: NDArray[np.int32] | None = None  # the column of steps in hand
        self._indices: dict[str, int] = {}  # of the loops that it is in
        self.begin_rank(0)

    def begin_rank(self, rank: int) -> None:
        """Take the next rank in hand."""
        self._rank = rank
        self._mine = dict(self._names[rank])  # what its formulas know now
        self.copied = [0, 0, 0]  # bytes of its copies' buffers
        self._next_copy = [0, 0, 0]
        self._begun: dict[int, int] = {}  # collectives under way, by number, and how often

    @property
    def in_turn(self) -> bool:
        """Whether the step in hand is in a loop whose turns are written out."""
        return bool(self._indices)

    def enter_turn(self, index: str, turn: int) -> None:
        """Formulas know a loop's index from here on."""
        self._mine[index] = self._indices[index] = turn

    def leave_loop(self, index: str) -> None:
        """Formulas know its index no more."""
        self._mine.pop(index, None)
        self._indices.pop(index, None)

    def takes_part(self, kind: Kind) -> bool:
        """Whether the step's `when` holds."""
        return not kind.conditional or bool(self.amount(kind, "when", -(1 << 62)))

    def _where(self) -> str:
        if self._together is not None:
            raise OneByOneError
        return self._file.where(self.number)

    def refuse(self, what: str) -> NoReturn:
        """UsageError that names the step in hand and the rank."""
        raise UsageError(f"{self._where()}: rank {self._rank} of {self._ranks}: {what}")

    def amount(self, kind: Kind, key: str, least: int = 0) -> Any:
        """An amount of the step in hand, or of each of a column of them where they have their own."""
        asked, together = kind.formulas.get(key), self._together
        found: Any
        if asked is not None:
            found = self._evaluated(asked, self._mine, key)
        elif together is None:
            found = self._steps.numbers[key].item(self.number)
        else:
            found = self._steps.numbers[key][together]
        if found < least if together is None else np.any(found < least):
            self.refuse(f"{key} is {found}: expected {least} or more")
        return found

    def _evaluated(self, asked: Formula, known: Mapping[str, int], key: str) -> int:
        try:
            return asked(known)
        except FormulaError as error:
            raise UsageError(f"{self._where()}.{key}: {error}") from None

    def row_of_column(self, steps: NDArray[np.int32]) -> Sequence[Any]:
        """The rows of steps of one kind, as columns or what all have. OneByOneError where one of them is wrong."""
        self._together = steps
        try:
            kind = self._steps.kinds[self._steps.kind[steps[0]]]
            return (self.row(kind) if self.takes_part(kind) else None) or NONE
        finally:
            self._together = None

    def under_way(self, row: Row) -> Row:
        """A collective that is begun: with those alike that are under way it has buffers of its own."""
        number = row[1]
        turn = self._begun.get(number, 0)
        self._begun[number] = turn + 1
        turn %= 1 if self._one_turn else _BEGUN_AT_ONCE
        if turn == 0:
            return row
        if (number, turn) not in self.turns:
            self.turns[number, turn] = self._numbered(dataclasses.replace(self.listed[number], turn=turn))
        return (COLLECTIVE, self.turns[number, turn], -1, 0, 0)

    def _numbered(self, one: Collective) -> int:
        number = self._collectives.setdefault(one, len(self.listed))
        if number == len(self.listed):
            self.listed.append(one)
        return number

    def row(self, step: Kind) -> Row | None:
        """What the step in hand, of this kind, is, or each of a column of them; None where it has no part in it."""
        queue = self._queues[step.words["queue"]] if "queue" in step.words else -1
        match step.verb:
            case "compute":
                return (COMPUTE, 0, -1, self.amount(step, "compute"), 0)
            case "work":
                size = self.amount(step, "work")
                return (COMPUTE, 0, queue, size, self._place(2, size))
            case "copy":
                size, way = self.amount(step, "bytes"), COPIES.index(step.words["copy"])
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
        self.copied[way] = max(self.copied[way], at + size)
        return at

    def _message(self, step: Kind) -> Row | None:
        peer = self.amount(step, step.verb, -(1 << 62))
        wrong = (peer < 0) | (peer >= self._ranks) | (peer == self._rank)
        if wrong if self._together is None else np.any(wrong):
            self.refuse(f"{step.verb} is {peer}: expected another rank, 0 to {self._ranks - 1}")
        return (SEND if step.verb == "send" else RECEIVE, peer, -1, self.amount(step, "bytes"), 0)

    def _collective(self, step: Kind) -> Row | None:
        ranks = self._group(step)
        pattern = "barrier" if step.verb == "barrier" else step.words["collective"]
        size = 0 if pattern == "barrier" else self.amount(step, "bytes")
        root = self.amount(step, "root") if step.has("root") else ranks[0]
        if root not in ranks:
            self.refuse(f"root is {root}: expected one of {', '.join(map(str, ranks[:20]))}")
        if step.in_place and pattern != "allgather":
            self.refuse(
                f"in_place of {pattern}: expected an allgather, whose operands are the same when it is done again"
            )
        if len(ranks) < 2 or (size == 0 and pattern != "barrier"):
            return None
        restated, reason = restated_size(PATTERNS[pattern], size, len(ranks), "float32")
        if reason or restated != size:
            self.refuse(reason or f"{pattern} of {size} bytes: expected whole blocks, as {restated}")
        place = ranks.index(root) if PATTERNS[pattern].rooted else 0
        one = Collective(pattern, size, place, step.words.get("distribution", ""), ranks, step.begun, step.in_place)
        return (COLLECTIVE, self._numbered(one), -1, 0, 0)

    def _group(self, step: Kind) -> tuple[int, ...]:
        """The ranks whose `group` is this one's; all without it."""
        if "group" not in step.formulas:
            return self._every
        asked = step.formulas["group"]
        if self._indices or asked.text not in self._groups:
            of = [self._evaluated(asked, {**names, **self._indices}, "group") for names in self._names]
            by_color = grouped((color, rank) for rank, color in enumerate(of))
            groups = {color: tuple(ranks) for color, ranks in by_color.items()}
            if self._indices:
                return groups[of[self._rank]]
            self._groups[asked.text] = [groups[color] for color in of]
        return self._groups[asked.text][self._rank]
