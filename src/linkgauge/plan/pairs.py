"""Which pairs a table means: among devices or nodes, each alone or disjoint ones at once, by the words of `pairs`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from linkgauge.plan.choice import in_order
from linkgauge.plan.machine import PlanMachine

BETWEEN_NODES = ("nodes", "nics")
"""Words that mean nothing on one node."""
DRAWS = 5
"""Ways to cut nodes into random halves, each a case."""
Pair = tuple[int, int]


def single_pairs(
    distinct: tuple[int, ...], subset: tuple[int, ...], which: str, machine: PlanMachine, seed: int
) -> Iterator[tuple[int, ...]]:
    """The pairs of `distinct` places, a case each; a diagonal entry is one with itself. `subset`: of each rank."""
    per_node = machine.device_count
    diagonal = ((device,) for device in distinct)
    # Two ranks on one device are a pair; one alone is none, and its case is skipped with the reason.
    of_root: list[tuple[int, ...]] = [(distinct[0], other) for other in distinct[1:] or subset[1:2]]
    first = (of_root or [subset])[0]
    several = distinct[0] // per_node != distinct[-1] // per_node
    if which == "diagonal":
        yield from diagonal
    elif which in BETWEEN_NODES and not several:
        yield first  # to be skipped with the reason
    elif which == "first":
        yield next((pair for pair in of_root if pair[0] // per_node != pair[1] // per_node), first)
    elif which == "nodes":
        yield from itertools.permutations(_first_of_nodes(distinct, per_node), 2)
    elif which in ("nics", "halves", "random_halves"):
        yield from itertools.chain.from_iterable(_stated(distinct, which, machine, seed))
    elif which == "root":
        yield from of_root
    else:
        yield from itertools.permutations(distinct, 2) if distinct[1:] else of_root
        if which == "all":
            yield from diagonal


def pairings(
    distinct: tuple[int, ...], which: str, machine: PlanMachine, seed: int, *, both_ways: bool
) -> Iterator[tuple[int, ...]]:
    """Disjoint pairs at once, a case each: `(a0, b0, a1, b1, ...)`; a round holds no diagonal.

    `both_ways`: each also with the pairs turned round, so that every ordered pair is measured; not of `nics`, which are
    from the first node to the second, nor of one node's `halves`, which are senders and receivers.
    """
    per_node = machine.device_count
    several = distinct[0] // per_node != distinct[-1] // per_node
    if which == "diagonal":
        return
    if which in ("halves", "random_halves") or (which == "nics" and several):
        found = _stated(distinct, which, machine, seed)
    else:
        found = _rounds(_first_of_nodes(distinct, per_node) if which == "nodes" and several else distinct)
    if which in ("first", *BETWEEN_NODES) and not (which == "nodes" and several):
        found = found[:1]
    for pairs in found:  # of one device there is none: its case is skipped with the reason
        yield tuple(itertools.chain.from_iterable(pairs)) or distinct
    one_way = ("first", "root", "nics") if several else ("first", "root", "nics", "halves")
    if both_ways and which not in one_way:
        for pairs in found:
            yield tuple(itertools.chain.from_iterable((b, a) for a, b in pairs)) or distinct


def _first_of_nodes(distinct: tuple[int, ...], per_node: int) -> tuple[int, ...]:
    first = {device // per_node: device for device in reversed(distinct)}
    return tuple(first[node] for node in sorted(first))


def _rounds(distinct: Sequence[int]) -> list[list[Pair]]:
    """Rounds in which, over all of them, each meets each: a tournament's (circle method), in order of their pairs.

    Of an odd number another one rests in each round.
    """
    places: list[int | None] = [*distinct, *([None] if len(distinct) % 2 else [])]
    rounds: list[list[Pair]] = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None))
        places = [places[0], places[-1], *places[1:-1]]
    return sorted(rounds)


def _stated(distinct: Sequence[int], which: str, machine: PlanMachine, seed: int) -> list[list[Pair]]:
    """The pairings that a word states: `nics` of the first two nodes, `halves`, or DRAWS times `random_halves`.

    Halves are of nodes, on one node of devices, each place with its like in the other half; of an odd number the last
    rests. `halves` are the worst where the switches are known: whole groups, then whole switches, stand against others
    (of groups that are not alike one may be on both sides), so that all crosses the links above them; else they are in
    the run's order.
    """
    per_node = machine.device_count
    nodes = [list(of) for _, of in itertools.groupby(distinct, lambda place: place // per_node)]
    if which == "nics":
        chosen = machine.one_a_nic or range(per_node)
        likes = {place % per_node: place for place in nodes[1]}
        return [[(place, likes[place % per_node]) for place in nodes[0]
                 if place % per_node in chosen and place % per_node in likes]]  # fmt: skip
    parts = nodes if len(nodes) > 1 else [[place] for place in distinct]
    if which == "random_halves":
        drawn = random.Random(seed)
        return [_against(drawn.sample(parts, len(parts))) for _ in range(DRAWS)]
    order = in_order("packed", machine) if len(nodes) > 1 else None
    if order is not None:
        parts = sorted(parts, key=lambda places: order.index(places[0] // per_node))
    return [_against(parts)]


def _against(parts: Sequence[Sequence[int]]) -> list[Pair]:
    half = len(parts) // 2
    return [pair for one, other in zip(parts[:half], parts[half : 2 * half], strict=True)
            for pair in zip(one, other, strict=False)]  # fmt: skip
