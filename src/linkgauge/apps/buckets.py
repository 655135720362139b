"""What if the reductions that a program begins were of other sizes, as DDP's buckets: the program with these instead.

What a trace says is when each bucket began, and so that its bytes were there. Those of a later one are taken to have
become ready evenly while the rank computed since the one before; those of the first all where it began. One that stands
right behind a wait for others of its kind was ready before, for convert puts it there since it goes on behind these
(timeline.py).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from linkgauge.apps.matching import check
from linkgauge.apps.program import Program
from linkgauge.apps.rows import COLLECTIVE, COMPUTE, WAIT, Collective, RankProgram, Row, places, weighted
from linkgauge.errors import UsageError

PATTERNS = ("allreduce", "reduce_scatter")
_MOST_ROWS = 500_000  # of a rank, loops written out: a second and some 200 MB
_MOST_BUCKETS = 10_000  # of a rank and an iteration: a second for each time that a prediction follows them


class _Bucket(NamedTuple):
    """`at`: ns of computing since the last wait, when it begins."""

    at: int
    size: int


def in_buckets(program: Program, size: int) -> Program:
    """The program with all reductions between two waits, of the same ranks, in buckets of so many bytes.

    UsageError where it begins none, is too long to be written out, or its ranks wait in unlike places.
    """
    collectives: dict[Collective, int] = {}
    ranks = tuple(_rank(one, program, size, collectives) for one in program.ranks)
    if not any(one.begun and one.pattern in PATTERNS for one in program.collectives):
        raise UsageError(f"{program.file.name}: begins no {' and no '.join(PATTERNS)}: no buckets to change")
    changed = dataclasses.replace(program, ranks=ranks, collectives=tuple(collectives))
    try:
        check(changed)
    except UsageError as error:
        raise UsageError(
            f"{program.file.name}: its ranks wait for reductions at different steps, so buckets of {size:,} B would "
            f"differ between ranks ({str(error).removeprefix(f'{program.file.name}: ')}): leave --bucket out"
        ) from None
    return changed


def _rank(one: RankProgram, program: Program, size: int, collectives: dict[Collective, int]) -> RankProgram:
    if one.executed > _MOST_ROWS:
        raise UsageError(
            f"{program.file.name}: {one.executed} steps of a rank: expected at most {_MOST_ROWS} to change buckets of"
        )
    begun = sum(times * wanted.size for row, times in weighted(one.rows.tolist())
                if (wanted := _bucket_of(row, program.collectives)) is not None)  # fmt: skip
    if begun > size * _MOST_BUCKETS:
        raise UsageError(
            f"{program.file.name}: {begun // size:,} buckets of {size:,} B: expected at most {_MOST_BUCKETS:,}; give "
            f"--bucket {-(-begun // _MOST_BUCKETS)} or more"
        )
    rows: list[Row] = []
    steps: list[int] = []
    part: list[tuple[Row, int]] = []  # up to a wait, with what stands right behind it

    def end() -> None:
        for row, step in _changed(part, program.collectives, size, collectives):
            rows.append(row)
            steps.append(step)
        part.clear()

    kinds: set[Collective] = set()  # of what the part begins
    for row, step in _written_out(one):
        kind = _kind_of(_bucket_of(row, program.collectives))
        if part and part[-1][0][0] == WAIT and kind not in kinds:
            end()
            kinds = set()
        part.append((row, step))
        kinds |= {kind} if kind else set()
    end()
    return dataclasses.replace(one, rows=np.array(rows, np.int64).reshape(-1, 5), steps=np.array(steps, np.int32),
                               executed=len(rows))  # fmt: skip


def _written_out(one: RankProgram) -> Iterator[tuple[Row, int]]:
    """The rows as they are carried out, without loops, each with its step."""
    rows, steps = one.rows.tolist(), one.steps.tolist()
    kinds, turns = one.rows[:, (0, 3)].T.tolist()
    return ((rows[at], steps[at]) for at in places(kinds, turns))


def _changed(
    part: Sequence[tuple[Row, int]], known: Sequence[Collective], size: int, collectives: dict[Collective, int]
) -> Iterator[tuple[Row, int]]:
    """Rows up to a wait and buckets behind it, with others in place of what was begun."""
    new = collections.deque(_new_buckets(part, known, size))
    at, waited = 0, False
    for row, step in part:
        if _bucket_of(row, known) is not None:
            continue
        if _computes(row) and not waited:
            until = at + row[3]
            while new and new[0][0] < until:
                begin, wanted = new.popleft()
                if begin > at:
                    yield (*row[:3], begin - at, row[4]), step
                    at = begin
                yield (COLLECTIVE, _number(wanted, collectives), -1, 0, 0), step
            if until > at:
                yield (*row[:3], until - at, row[4]), step
            at = until
            continue
        if row[0] == WAIT:
            yield from (((COLLECTIVE, _number(wanted, collectives), -1, 0, 0), step) for _, wanted in new)
            new.clear()
            already, waited = waited, True
            if already:
                continue  # all buckets were waited for
        which = _number(known[row[1]], collectives) if row[0] == COLLECTIVE else row[1]
        yield (row[0], which, *row[2:]), step
    step = part[-1][1] if part else 0
    yield from (((COLLECTIVE, _number(wanted, collectives), -1, 0, 0), step) for _, wanted in new)


def _new_buckets(
    part: Sequence[tuple[Row, int]], known: Sequence[Collective], size: int
) -> list[tuple[int, Collective]]:
    """The buckets of a part, and after how many ns of its computing each begins, in that order."""
    begun: dict[Collective, list[_Bucket]] = {}
    at, waited = 0, False
    for row, _ in part:
        waited |= row[0] == WAIT
        if _computes(row) and not waited:
            at += row[3]
        elif (wanted := _bucket_of(row, known)) is not None and (kind := _kind_of(wanted)) is not None:
            there = begun.setdefault(kind, [])
            if there and there[-1].at == at:
                there[-1] = _Bucket(at, there[-1].size + wanted.size)
            else:
                there.append(_Bucket(at, wanted.size))
    new = [(bucket.at, dataclasses.replace(of, size=bucket.size))
           for of, there in begun.items() for bucket in _divided(there, size)]  # fmt: skip
    return sorted(new, key=lambda one: one[0])


def _divided(begun: Sequence[_Bucket], size: int) -> Iterator[_Bucket]:
    """The same bytes in buckets of so many, the last with what is left, each as soon as its bytes are ready."""
    total, ready, since, done = sum(one.size for one in begun), 0, begun[0].at, 0
    for one in begun:
        while done < total and min(done + size, total) <= ready + one.size:
            done = min(done + size, total)
            part = (done - ready) / one.size
            yield _Bucket(since + round(part * (one.at - since)), done - (-(-done // size) - 1) * size)
        ready, since = ready + one.size, one.at


def _bucket_of(row: Row, known: Sequence[Collective]) -> Collective | None:
    if row[0] != COLLECTIVE:
        return None
    wanted = known[row[1]]
    return wanted if wanted.begun and wanted.pattern in PATTERNS and wanted.size > 0 else None


def _kind_of(wanted: Collective | None) -> Collective | None:
    """What buckets that may be made one have in common."""
    return None if wanted is None else dataclasses.replace(wanted, size=0, turn=0)


def _computes(row: Row) -> bool:
    return row[0] == COMPUTE and row[2] < 0


def _number(wanted: Collective, collectives: dict[Collective, int]) -> int:
    return collectives.setdefault(wanted, len(collectives))
