"""Whether an application's messages meet and its ranks come to an end: every rank followed, before anything runs.

Every message is taken to need its receiver, so that what ends here ends with any library that goes on by itself. Loops
are followed turn by turn where all ranks together have at most MOST_FOLLOWED steps of communication; of longer ones two
turns are, and the sums of all turns compared.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from linkgauge.apps.program import Program
from linkgauge.apps.rows import COLLECTIVE, END, LOOP, RECEIVE, SEND, WAIT, places, weighted
from linkgauge.errors import UsageError

MOST_FOLLOWED = 200_000
_SUMMED = (SEND, RECEIVE, LOOP, END)  # the kinds of rows that matter here
_FOLLOWED = (*_SUMMED, WAIT, COLLECTIVE)

Pair = tuple[int, int]


class DeadlockError(UsageError):
    """Ranks wait for each other for ever."""


def check(program: Program) -> None:
    """UsageError, naming ranks and steps, where messages do not match or ranks wait for each other for ever."""
    _compare_sums(program)
    turns = 1 << 62 if sum(one.executed for one in program.ranks) <= MOST_FOLLOWED else 2
    _Followed(program, turns).run()


def _compare_sums(program: Program) -> None:
    sums: dict[Pair, list[int]] = collections.defaultdict(lambda: [0, 0, 0, 0])
    for rank, one in enumerate(program.ranks):
        for row, times in weighted(one.rows[np.isin(one.rows[:, 0], _SUMMED)].tolist()):
            if row[0] == SEND:
                found = sums[rank, row[1]]
                found[0] += times
                found[1] += times * row[3]
            elif row[0] == RECEIVE:
                found = sums[row[1], rank]
                found[2] += times
                found[3] += times * row[3]
    for (source, target), (sent, sent_bytes, received, received_bytes) in sums.items():
        if (sent, sent_bytes) != (received, received_bytes):
            raise UsageError(
                f"{program.file.name}: rank {source} sends rank {target} {sent} messages of {sent_bytes} bytes "
                f"together, and rank {target} receives {received} of {received_bytes}: expected the same"
            )


def _walk(rows: NDArray[np.int64], most_turns: int) -> Iterator[tuple[int, int, int, int]]:
    """Place, kind, which and amount of the rows of communication as they are executed, loops cut short."""
    kinds, whiches, amounts = (rows[:, column].tolist() for column in (0, 1, 3))
    turns = np.minimum(rows[:, 3], most_turns).tolist()
    return ((at, kinds[at], whiches[at], amounts[at]) for at in places(kinds, turns))


class _Followed:
    def __init__(self, program: Program, most_turns: int) -> None:
        self._program = program
        self._rows = [np.flatnonzero(np.isin(one.rows[:, 0], _FOLLOWED)) for one in program.ranks]
        self._walks = [_walk(one.rows[mine], most_turns) for one, mine in zip(program.ranks, self._rows, strict=True)]
        self._sent: dict[Pair, list[int]] = collections.defaultdict(list)  # sizes, in order
        self._received: dict[Pair, list[int]] = collections.defaultdict(list)
        self._peers: list[set[Pair]] = [set() for _ in program.ranks]
        self._order: dict[tuple[int, ...], list[int]] = collections.defaultdict(list)  # of collectives, by group
        self._met: list[dict[tuple[int, ...], int]] = [collections.defaultdict(int) for _ in program.ranks]
        self._at: list[int | None] = [None] * len(program.ranks)  # the place in its rows where a rank waits
        self._wanted: list[int | None] = [None] * len(program.ranks)  # the collective that it waits for there
        self._waits_all = [False] * len(program.ranks)
        self._ended = [False] * len(program.ranks)

    def run(self) -> None:
        ranks = range(len(self._program.ranks))
        waiting = set(ranks)
        while waiting:
            moved = {rank for rank in sorted(waiting) if self._advance(rank)}
            waiting = {rank for rank in waiting if not self._ended[rank]}
            if not moved and waiting:
                raise DeadlockError(f"{self._program.file.name}: {self._deadlock(waiting)}")

    def _advance(self, rank: int) -> bool:
        """Follows a rank until it must wait; whether it came any further."""
        moved = False
        while True:
            if self._at[rank] is not None or self._waits_all[rank]:
                if self._lacks(rank):
                    return moved
                if self._waits_all[rank]:
                    self._ended[rank] = True
                    return True
                self._at[rank] = None
            row = next(self._walks[rank], None)
            moved = True
            if row is None:
                self._waits_all[rank] = True  # the end of an iteration waits for all
                continue
            self._begin(rank, *row)

    def _begin(self, rank: int, at: int, kind: int, which: int, amount: int) -> None:
        if kind in (SEND, RECEIVE):
            pair = (rank, which) if kind == SEND else (which, rank)
            mine, theirs = (self._sent, self._received) if kind == SEND else (self._received, self._sent)
            mine[pair].append(amount)
            self._peers[rank].add(pair)
            number = len(mine[pair]) - 1
            if number < len(theirs[pair]) and theirs[pair][number] != amount:
                sent, received = (amount, theirs[pair][number]) if kind == SEND else (theirs[pair][number], amount)
                raise UsageError(
                    f"{self._where(rank, at)}: message {number} from rank {pair[0]} to rank {pair[1]} is of {sent} "
                    f"bytes, and {received} are received: expected the same"
                )
        elif kind == COLLECTIVE:
            one = self._program.collectives[which]
            place = self._met[rank][one.ranks]
            self._met[rank][one.ranks] += 1
            order = self._order[one.ranks]
            if place == len(order):
                order.append(which)
            elif order[place] != which:
                other = self._program.collectives[order[place]]
                raise UsageError(
                    f"{self._where(rank, at)}: rank {rank} does {one.words} where others do {other.words}: expected "
                    f"the same"
                )
            if not one.begun:
                self._at[rank], self._wanted[rank] = at, which
        else:
            self._at[rank], self._wanted[rank] = at, None

    def _lacks(self, rank: int) -> str:
        """Whom or what a rank that waits is waiting for; empty where it need not."""
        wanted = self._wanted[rank]
        if self._at[rank] is not None and wanted is not None:
            return self._absent(rank, self._program.collectives[wanted].ranks)
        for source, target in self._peers[rank]:
            sent, received = len(self._sent[source, target]), len(self._received[source, target])
            if rank == source and sent > received:
                return f"rank {target} to receive its message {received}"
            if rank == target and received > sent:
                return f"message {sent} of rank {source}"
        for ranks in self._met[rank]:
            if absent := self._absent(rank, ranks):
                return absent
        return ""

    def _absent(self, rank: int, ranks: tuple[int, ...]) -> str:
        mine = self._met[rank][ranks]
        late = next((other for other in ranks if self._met[other][ranks] < mine), None)
        if late is None:
            return ""
        return f"rank {late} to come to {self._program.collectives[self._order[ranks][mine - 1]].words}"

    def _where(self, rank: int, at: int) -> str:
        return self._program.file.where(self._program.ranks[rank].steps.item(self._rows[rank][at]))

    def _deadlock(self, waiting: set[int]) -> str:
        told = []
        for rank in sorted(waiting)[:3]:
            at = self._at[rank]
            place = "at its end" if at is None else f"in {self._where(rank, at).split(': ', 1)[-1]}"
            told.append(f"rank {rank} waits {place} for {self._lacks(rank)}")
        more = f", and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        return f"a deadlock: {'; '.join(told)}{more}: expected ranks that come to an end"
