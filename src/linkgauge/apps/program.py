"""What a step file becomes on so many ranks: each rank's steps as numbers, for the core (core/traffic/program.h).

Loops stay loops unless a step in them asks for their index; then they are written out. Steps that move nothing (0
bytes, a collective of one rank) are none.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from linkgauge.apps.formula import Formula, FormulaError
from linkgauge.apps.step_file import COPIES, Step, StepFile
from linkgauge.collector import uncollected
from linkgauge.errors import UsageError, nearest
from linkgauge.model.patterns import PATTERNS, restated_size

COMPUTE, COPY, SEND, RECEIVE, WAIT, COLLECTIVE, SYNC, AFTER, LOOP, END = range(10)
"""Kinds of rows, in the order of the core's ProgramKind."""

MOST_ROWS = 2_000_000  # of all ranks
MOST_EXECUTED = 10_000_000  # steps of a rank in one iteration
MOST_RANKS = 4096
_MOST_SLOTS = 64
_MOST_SLOT_BYTES = 8 << 20  # of one pair of ranks
_MOST_COPY_BYTES = 8 << 20  # programs use their buffers again
_BEGUN_AT_ONCE = 8  # collectives that are alike and under way together have buffers of their own
_LINE = 64
_UNFIXED = ("work", "copy", "wait")  # and what is begun: these depend on those before them

Row = tuple[int, int, int, int, int]  # kind, which, queue, amount, offset


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective: the same thing wherever all of this is the same. `root`: its place in `ranks`."""

    pattern: str
    size: int
    root: int
    distribution: str
    ranks: tuple[int, ...]
    begun: bool
    turn: int = 0  # of those alike that are under way together

    @property
    def words(self) -> str:
        """What it is, for errors."""
        size = "" if self.pattern == "barrier" else f" of {self.size} bytes"
        return f"{self.pattern}{size}{f' with root {self.ranks[self.root]}' if self.root else ''}"


@dataclasses.dataclass
class RankProgram:
    """One rank's rows; of messages `which` is the peer. `steps`: by row its step, as `StepFile.where` counts."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)
    executed: int = 0
    copied: list[int] = dataclasses.field(default_factory=lambda: [0, 0, 0])  # bytes of the buffers each way


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


@dataclasses.dataclass(frozen=True)
class Flow:
    """Messages from one rank to another: how many slots, how far apart, and the bytes that each gets at least."""

    slots: int
    stride: int
    arriving: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """An application on so many ranks."""

    file: StepFile
    settings: Mapping[str, int]
    ranks: tuple[RankProgram, ...]
    collectives: tuple[Collective, ...]

    @functools.cached_property
    def flows(self) -> dict[tuple[int, int], Flow]:
        """The messages between ranks, by source and target."""
        return _flows_of(self)

    @functools.cached_property
    def bases(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Where each flow begins in its source's buffer, and in its target's."""
        return _bases_of(self.flows, 0), _bases_of(self.flows, 1)


def program_of(file: StepFile, settings: Mapping[str, int], ranks: int) -> Program:
    """The programs of all ranks. UsageError for what cannot be on so many; see `why_not` for what merely is not."""
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"{file.name}: {ranks} ranks: expected 1 to {MOST_RANKS}")
    with uncollected():
        return _Expansion(file, settings, ranks).program()


def parameters_of(file: StepFile, settings: Mapping[str, int]) -> dict[str, int]:
    """The file's parameters with those that are set. UsageError for one that it does not have."""
    for name in settings:
        if name not in file.parameters:
            raise UsageError(
                f"{file.name}: no parameter '{name}'{nearest(name, list(file.parameters))}: expected one of "
                f"{', '.join(file.parameters) or 'none'}"
            )
    return {**file.parameters, **settings}


def names_of(file: StepFile, settings: Mapping[str, int], ranks: int, rank: int) -> dict[str, int]:
    """What formulas know on a rank: rank, ranks, parameters and values."""
    known = {"rank": rank, "ranks": ranks, **parameters_of(file, settings)}
    for name, value in file.values.items():
        known[name] = _value(value, known, f"{file.name}: values.{name}")
    return known


def why_not(file: StepFile, settings: Mapping[str, int], ranks: int) -> str:
    """Why the application is none for so many ranks or such a size, in the file's words; empty where it is one."""
    for rank in range(ranks):
        known = {"rank": rank, "ranks": ranks, **parameters_of(file, settings)}
        for condition, words in file.needs.values():
            if not condition.names <= known.keys():
                known = names_of(file, settings, ranks, rank)
            if not _value(condition, known, f"{file.name}: needs"):
                return f"{file.name} needs {words}"
    return ""


def _value(asked: Formula, known: Mapping[str, int], where: str) -> int:
    try:
        return asked(known)
    except FormulaError as error:
        raise UsageError(f"{where}: {error}") from None


class _Expansion:
    def __init__(self, file: StepFile, settings: Mapping[str, int], ranks: int) -> None:
        self._file = file
        self._settings = settings
        self._ranks = ranks
        self._queues = {name: number for number, name in enumerate(file.queues)}
        self._names = [names_of(file, settings, ranks, rank) for rank in range(ranks)]
        self._collectives: dict[Collective, int] = {}
        self._rows_left = MOST_ROWS
        self._written_left = MOST_ROWS  # steps of loops' turns, whether they come to anything or not
        # Of the rank in hand.
        self._rank = 0
        self._number = 0  # of the step in hand, as StepFile.where counts
        self._fixed: dict[int, Row] = {}  # of steps whose rows are the same wherever they stand, by id
        self._program = RankProgram()
        self._mine: dict[str, int] = {}  # what its formulas know now
        self._indices: dict[str, int] = {}  # of the loops that it is in
        self._next_copy = [0, 0, 0]
        self._begun: dict[Collective, int] = {}

    def program(self) -> Program:
        programs = []
        for rank in range(self._ranks):
            self._rank, self._program, self._next_copy, self._begun = rank, RankProgram(), [0, 0, 0], {}
            self._mine, self._fixed = dict(self._names[rank]), {}
            self._program.executed = self._steps(self._file.steps, 0)
            programs.append(self._program)
        return Program(self._file, dict(self._settings), tuple(programs), tuple(self._collectives))

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(f"{self._file.where(self._number)}: rank {self._rank} of {self._ranks}: {what}")

    def _of(self, step: Step, key: str, least: int = 0) -> int:
        said = step.formulas[key]
        found = said if isinstance(said, int) else self._evaluated(said, self._mine, key)
        if found < least:
            self._refuse(f"{key} is {found}: expected {least} or more")
        return found

    def _evaluated(self, asked: Formula, known: Mapping[str, int], key: str) -> int:
        try:
            return asked(known)
        except FormulaError as error:
            raise UsageError(f"{self._file.where(self._number)}.{key}: {error}") from None

    def _steps(self, steps: tuple[Step, ...], number: int) -> int:
        """Adds the rows of these steps, of which the first has this number; how many are executed."""
        executed = 0
        fixed = {} if self._indices else self._fixed
        for step in steps:
            self._number = number
            row = fixed.get(id(step))
            if row is not None:
                self._add(row)
                executed += 1
            elif "when" in step.formulas and not self._of(step, "when", -(1 << 62)):
                pass
            elif step.verb == "repeat":
                executed += self._repeat(step)
            elif (row := self._row(step)) is not None:
                self._add(row)
                executed += 1
                if step.verb not in _UNFIXED and not step.begun:
                    fixed[id(step)] = row
            if executed > MOST_EXECUTED:
                self._refuse(f"more than {MOST_EXECUTED} steps are executed: expected fewer")
            number += step.span
        return executed

    def _repeat(self, step: Step) -> int:
        number = self._number
        turns = self._of(step, "repeat")
        index = step.words.get("index", "")
        used = index and any(index in one.names() for one in step.body)
        if turns > MOST_EXECUTED:
            self._refuse(f"{turns} turns of a loop: expected at most {MOST_EXECUTED}")
        if used:
            self._written_left -= turns * len(step.body)
            if self._written_left < 0:
                self._refuse(f"more than {MOST_ROWS} steps of loops' turns are written out: expected fewer, or loops")
            executed = 0
            for turn in range(turns):
                self._mine[index] = self._indices[index] = turn
                executed += self._steps(step.body, number + 1)
                if executed > MOST_EXECUTED:
                    break
            self._mine.pop(index, None)
            self._indices.pop(index, None)
            self._number = number
            return executed
        if turns == 0:
            return 0
        rows = self._program.rows
        begin = len(rows)
        self._add((LOOP, 0, -1, turns, 0))
        executed = self._steps(step.body, number + 1)
        self._number = number
        if len(rows) == begin + 1:
            rows.pop()
            self._program.steps.pop()
            return 0
        self._add((END, 0, -1, 0, 0))
        return executed * turns

    def _add(self, row: Row) -> None:
        """Adds a row of the step in hand."""
        self._rows_left -= 1
        if self._rows_left < 0:
            self._refuse(f"more than {MOST_ROWS} steps of all ranks are written out: expected fewer, or loops")
        self._program.rows.append(row)
        self._program.steps.append(self._number)

    def _row(self, step: Step) -> Row | None:
        """What a step that is no loop is; None where it moves nothing."""
        queue = self._queues[step.words["queue"]] if "queue" in step.words else -1
        match step.verb:
            case "compute":
                ns = self._of(step, "compute")
                return (COMPUTE, 0, -1, ns, 0) if ns else None
            case "work":
                size = self._of(step, "work")
                return (COMPUTE, 0, queue, size, self._place(2, size)) if size else None
            case "copy":
                size, way = self._of(step, "bytes"), COPIES.index(step.words["copy"])
                return (COPY, way, queue, size, self._place(way, size)) if size else None
            case "send" | "receive":
                return self._message(step)
            case "wait":
                self._begun = {}
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
        if at + size > max(_MOST_COPY_BYTES, size):
            at = 0
        self._next_copy[way] = -(-(at + size) // _LINE) * _LINE
        self._program.copied[way] = max(self._program.copied[way], at + size)
        return at

    def _message(self, step: Step) -> Row | None:
        peer = self._of(step, step.verb, -(1 << 62))
        if not 0 <= peer < self._ranks or peer == self._rank:
            self._refuse(f"{step.verb} is {peer}: expected another rank, 0 to {self._ranks - 1}")
        size = self._of(step, "bytes")
        return (SEND if step.verb == "send" else RECEIVE, peer, -1, size, 0) if size else None

    def _collective(self, step: Step) -> Row | None:
        ranks = self._group(step)
        pattern = "barrier" if step.verb == "barrier" else step.words["collective"]
        size = 0 if pattern == "barrier" else self._of(step, "bytes")
        root = self._of(step, "root") if "root" in step.formulas else ranks[0]
        if root not in ranks:
            self._refuse(f"root is {root}: expected one of {', '.join(map(str, ranks[:20]))}")
        if len(ranks) < 2 or (size == 0 and pattern != "barrier"):
            return None
        restated, reason = restated_size(PATTERNS[pattern], size, len(ranks), "float32")
        if reason or restated != size:
            self._refuse(reason or f"{pattern} of {size} bytes: expected whole blocks, as {restated}")
        place = ranks.index(root) if PATTERNS[pattern].rooted else 0
        one = Collective(pattern, size, place, step.words.get("distribution", ""), ranks, step.begun)
        if step.begun:
            turn = self._begun.get(one, 0)
            self._begun[one] = turn + 1
            one = dataclasses.replace(one, turn=turn % _BEGUN_AT_ONCE)
        number = self._collectives.setdefault(one, len(self._collectives))
        return (COLLECTIVE, number, -1, 0, 0)

    def _group(self, step: Step) -> tuple[int, ...]:
        """The ranks whose `group` is this one's; all without it."""
        group = step.formulas.get("group", 0)
        if isinstance(group, int):
            return tuple(range(self._ranks))
        of = [self._evaluated(group, {**names, **self._indices}, "group") for names in self._names]
        return tuple(rank for rank, colour in enumerate(of) if colour == of[self._rank])


# --- what the core is given ------------------------------------------------------------------------------------------


def _flow(sends: list[tuple[int, tuple[int, ...]]]) -> Flow:
    """Of what a rank sends another: of each row its bytes and the loops that it stands in."""
    sizes = [size for size, _ in sends]
    stride = -(-max(sizes) // _LINE) * _LINE
    slots = max(1, min(len(sizes), _MOST_SLOTS, _MOST_SLOT_BYTES // stride))
    arriving = [min(sizes)] * slots
    # Where message and slot are known one by one each slot gets its own largest, else the smallest of all at least.
    if slots == len(sizes) and len({loops for _, loops in sends}) == 1:
        arriving = sizes
    elif not any(loops for _, loops in sends):
        for number, size in enumerate(sizes):
            arriving[number % slots] = max(arriving[number % slots], size)
    return Flow(slots, stride, tuple(arriving))


def _flows_of(program: Program) -> dict[tuple[int, int], Flow]:
    """By source and target, in that order."""
    found: dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]] = {}
    for rank, one in enumerate(program.ranks):
        loops: list[int] = []
        for number, (kind, which, _, amount, _) in enumerate(one.rows):
            if kind == LOOP:
                loops.append(number)
            elif kind == END:
                loops.pop()
            elif kind == SEND:
                found.setdefault((rank, which), []).append((amount, tuple(loops)))
    return {pair: _flow(found[pair]) for pair in sorted(found)}


def _bases_of(flows: Mapping[tuple[int, int], Flow], end: int) -> dict[tuple[int, int], int]:
    """Where each flow's slots begin in the buffer of its source (end 0), or its target (end 1)."""
    next_of: dict[int, int] = {}
    found = {}
    for pair, flow in flows.items():
        found[pair] = next_of.get(pair[end], 0)
        next_of[pair[end]] = found[pair] + flow.stride * flow.slots
    return found


def _copied_pieces(copies: Iterable[list[int]]) -> list[tuple[int, int, int]]:
    """What copies, by their rows, cover of their buffers: way, offset, bytes; none of it twice."""
    places = sorted({(2 if kind == COMPUTE else way, at, at + size) for kind, way, _, size, at in copies})
    found: list[tuple[int, int, int]] = []
    for way, begin, end in places:
        if found and found[-1][0] == way and begin <= found[-1][2]:
            found[-1] = (way, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((way, begin, end))
    return [(way, begin, end - begin) for way, begin, end in found]


def core_program(program: Program, rank: int) -> dict[str, Any]:
    """A rank's part under the names of core/traffic/program.h; arrays of int64."""
    import numpy as np

    mine = program.ranks[rank]
    source_base, target_base = program.bases
    numbers: dict[tuple[int, int], int] = {}
    flows: list[list[int]] = []
    arrivals: list[list[int]] = []
    for pair, flow in program.flows.items():
        if rank not in pair:
            continue
        numbers[pair] = len(flows)
        flows.append([*pair, source_base[pair], target_base[pair], flow.stride, flow.slots])
        if pair[1] == rank:
            for slot, size in enumerate(flow.arriving):
                at = slot * flow.stride
                arrivals.append([target_base[pair] + at, size, pair[0], source_base[pair] + at])
    # As one run of numbers: a million tuples are ten times as long in becoming an array.
    steps = np.fromiter(itertools.chain.from_iterable(mine.rows), np.int64, 5 * len(mine.rows)).reshape(-1, 5)
    for kind, with_peer in ((SEND, lambda peer: (rank, peer)), (RECEIVE, lambda peer: (peer, rank))):
        of_peer = np.array([numbers.get(with_peer(peer), -1) for peer in range(len(program.ranks))])
        found = steps[:, 0] == kind
        steps[found, 1] = of_peer[steps[found, 1]]
    copies = steps[(steps[:, 0] == COPY) | ((steps[:, 0] == COMPUTE) & (steps[:, 2] >= 0))]
    collectives = [
        {"pattern": one.pattern, "size_bytes": one.size, "root": one.root, "distribution": one.distribution,
         "ranks": list(one.ranks), "begun": one.begun} for one in program.collectives
    ]  # fmt: skip
    sent, received = message_buffers(program, rank)
    into, out, within = mine.copied
    return {
        "steps": steps, "flows": np.array(flows, dtype=np.int64).reshape(-1, 6),
        "arrivals": np.array(arrivals, dtype=np.int64).reshape(-1, 4),
        "copied": np.array(_copied_pieces(copies.tolist()), dtype=np.int64).reshape(-1, 3), "collectives": collectives,
        "source_bytes": sent, "target_bytes": received, "into_device_bytes": into, "out_of_device_bytes": out,
        "within_device_bytes": within, "queues": len(program.file.queues),
    }  # fmt: skip


def message_buffers(program: Program, rank: int) -> tuple[int, int]:
    """Bytes of the buffers that a rank sends its messages from, and receives them into."""
    sizes = [0, 0]
    for pair, flow in program.flows.items():
        for end in (0, 1):
            if pair[end] == rank:
                sizes[end] += flow.stride * flow.slots
    return sizes[0], sizes[1]


# --- what it moves ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Amount:
    """How often an iteration has something, and how many bytes, or ns of computing, that is together."""

    count: int = 0
    total: int = 0


def amounts(program: Program, rank: int) -> dict[str, Amount]:
    """What one iteration has on a rank, by kind: compute (ns), work, copies each way, sent, received, and collectives
    by their pattern, of which the bytes are their sizes."""
    found: dict[str, list[int]] = {}
    for (kind, which, queue, amount, _), times in weighted(program.ranks[rank].rows):
        if kind == COLLECTIVE:
            name, size = program.collectives[which].pattern, program.collectives[which].size
        elif kind == COPY:
            name, size = COPIES[which], amount
        elif kind == COMPUTE:
            name, size = ("compute" if queue < 0 else "work"), amount
        elif kind in (SEND, RECEIVE):
            name, size = ("sent" if kind == SEND else "received"), amount
        else:
            continue
        sums = found.setdefault(name, [0, 0])
        sums[0] += times
        sums[1] += times * size
    return {name: Amount(*sums) for name, sums in found.items()}
