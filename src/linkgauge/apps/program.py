"""What a step file becomes on so many ranks: each rank's steps as numbers, for the core (core/traffic/program.h)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from linkgauge.apps.expansion import expanded
from linkgauge.apps.rows import (
    COLLECTIVE,
    COMPUTE,
    COPY,
    END,
    LINE,
    LOOP,
    RECEIVE,
    SEND,
    Collective,
    RankProgram,
    names_of,
    parameters_of,
    value_of,
    weighted,
)
from linkgauge.apps.step_file import COPIES, StepFile
from linkgauge.collector import uncollected
from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS

MOST_RANKS = 4096
_MOST_SLOTS = 64
_MOST_SLOT_BYTES = 8 << 20  # of one pair of ranks


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
        programs, collectives = expanded(file, settings, ranks)
    return Program(file, dict(settings), programs, collectives)


def why_not(file: StepFile, settings: Mapping[str, int], ranks: int) -> str:
    """Why the application is none for so many ranks or such a size, in the file's words; empty where it is one."""
    for rank in range(ranks):
        known = {"rank": rank, "ranks": ranks, **parameters_of(file, settings)}
        for condition, words in file.needs.values():
            if not condition.names <= known.keys():
                known = names_of(file, settings, ranks, rank)
            if not value_of(condition, known, f"{file.name}: needs"):
                return f"{file.name} needs {words}"
    return ""


# --- what the core is given ------------------------------------------------------------------------------------------


def _flow(sends: list[tuple[int, tuple[int, ...]]]) -> Flow:
    """Of what a rank sends another: of each row its bytes and the loops that it stands in."""
    sizes = [size for size, _ in sends]
    stride = -(-max(sizes) // LINE) * LINE
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
        asked = np.flatnonzero(np.isin(one.rows[:, 0], (LOOP, END, SEND)))
        for number, (kind, which, _, amount, _) in zip(asked.tolist(), one.rows[asked].tolist(), strict=True):
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
    steps = mine.rows.copy() if numbers else mine.rows
    for kind, with_peer in ((SEND, lambda peer: (rank, peer)), (RECEIVE, lambda peer: (peer, rank))):
        of_peer = np.array([numbers.get(with_peer(peer), -1) for peer in range(len(program.ranks))])
        found = steps[:, 0] == kind
        steps[found, 1] = of_peer[steps[found, 1]]
    copies = steps[(steps[:, 0] == COPY) | ((steps[:, 0] == COMPUTE) & (steps[:, 2] >= 0))]
    collectives = [
        {"pattern": one.pattern, "size_bytes": one.size, "root": one.root, "distribution": one.distribution,
         "ranks": list(one.ranks), "begun": one.begun, **({"in_place": True} if one.in_place else {})}
        for one in program.collectives
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


def collective_bytes(one: Collective) -> int:
    """Bytes of the two buffers that a rank has for a collective, at most: each has its own."""
    return 2 * one.size * (len(one.ranks) if PATTERNS[one.pattern].per_peer else 1)


def touched_bytes(program: Program) -> list[int]:
    """Bytes of all buffers, both ends, that an iteration goes through on each rank: what a cache would have to hold."""
    found = [2 * sum(one.copied) for one in program.ranks]
    for pair, flow in program.flows.items():
        for rank in pair:
            found[rank] += flow.stride * flow.slots
    for collective in program.collectives:
        for rank in collective.ranks:
            found[rank] += collective_bytes(collective)
    return found


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
    for (kind, which, queue, amount, _), times in weighted(program.ranks[rank].rows.tolist()):
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
