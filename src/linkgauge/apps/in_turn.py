"""Whether an application's messages come to an end where each rank's go in turn, as by NCCL: what a rank sends and
receives between two other steps is one group, and a group begins when the one before it is over."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np

from linkgauge.apps.matching import MOST_FOLLOWED
from linkgauge.apps.program import Program
from linkgauge.apps.rows import RECEIVE, SEND, RankProgram, places

Group = collections.Counter[tuple[int, int]]
"""How many messages of (SEND or RECEIVE, peer)."""


def why_not_in_turn(program: Program) -> str:
    """Why its messages cannot go in turn, in one sentence; empty where they can. Of long loops two turns are followed,
    as matching.py does."""
    turns = 1 << 62 if sum(one.executed for one in program.ranks) <= MOST_FOLLOWED else 2
    waiting = [_groups(one, turns) for one in program.ranks]
    heads = [next(one, Group()) for one in waiting]
    changed = set(range(len(heads)))
    while changed:
        rank = changed.pop()
        for (kind, peer), count in list(heads[rank].items()):
            theirs = (SEND + RECEIVE - kind, rank)
            met = min(count, heads[peer][theirs])
            if met:
                heads[rank] -= Group({(kind, peer): met})
                heads[peer] -= Group({theirs: met})
                changed |= {other for other in (rank, peer) if not heads[other]}
                if not heads[rank]:
                    break
        while not heads[rank] and (following := next(waiting[rank], None)):
            heads[rank] = following
            changed.add(rank)
    stuck = [rank for rank, head in enumerate(heads) if head]
    if not stuck:
        return ""
    kind, peer = next(iter(heads[stuck[0]]))
    words = f"send rank {peer}" if kind == SEND else f"receive from rank {peer}"
    return (
        f"ccl's messages go in turn, and {program.file.name} has ranks that would wait for each other for ever: rank "
        f"{stuck[0]} to {words}; other transports' go on beside each other"
    )


def _groups(one: RankProgram, most_turns: int) -> Iterator[Group]:
    kinds, whiches = one.rows[:, 0].tolist(), one.rows[:, 1].tolist()
    group = Group()
    for at in places(kinds, np.minimum(one.rows[:, 3], most_turns).tolist()):
        if kinds[at] in (SEND, RECEIVE):
            group[kinds[at], whiches[at]] += 1
        elif group:
            yield group
            group = Group()
    if group:
        yield group
