"""Which tuples of devices, or numbers of places, a pattern of a plan's table runs on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linkgauge.model.patterns import PatternTraits
from linkgauge.plan.choice import chosen_ranks
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import CaseTable
from linkgauge.plan.pairs import pairings, single_pairs


def device_sets(
    pattern: PatternTraits,
    table: CaseTable,
    ranks: int | None,
    all_ranks: Sequence[int],
    machine: PlanMachine,
    seed: int,
) -> list[tuple[int, ...]]:
    """The tuples of devices, or numbers of places, one entry a rank, that a pattern runs on.

    Pair patterns: ordered pairs among the subset as `table.pairs` says, a diagonal entry being one rank with itself.
    Pairs side by side: all of the subset at once, each case another pairing.
    Single-device patterns: each alone; a chase also the pairs, or only sets of as many ranks as are asked for. Host
    patterns: each alone, then all together. Others: the whole subset. Subsets are of each node's devices.
    """
    per_node = machine.device_count
    subsets = [tuple(rank for rank in all_ranks if rank % per_node in subset) for subset in table.devices]
    subsets += [tuple(rank for rank in all_ranks if rank in places) for places in map(set, table.places)]
    subsets = [subset or tuple(all_ranks[:1]) for subset in subsets] or [tuple(all_ranks)]  # skipped, if none is here
    found: dict[tuple[int, ...], None] = {}
    for subset in subsets:
        for chosen in chosen_ranks(subset, ranks, table, machine, seed):
            for devices in _sets_of(pattern, table, chosen, machine, seed):
                if pattern.ranks != "1 or 2" or ranks in (None, len(devices)):
                    found[devices] = None
    return list(found)


def _sets_of(
    pattern: PatternTraits, table: CaseTable, subset: tuple[int, ...], machine: PlanMachine, seed: int
) -> Iterator[tuple[int, ...]]:
    distinct = tuple(dict.fromkeys(subset))
    if pattern.ranks == "first":
        yield distinct[:1]
    elif pattern.ranks == "2":
        yield from single_pairs(distinct, subset, table.pairs, machine, seed)
    elif pattern.ranks == "pairs":
        yield from pairings(distinct, table.pairs, machine, seed, both_ways=pattern.name != "pairs_bidirectional")
    elif pattern.ranks in ("1", "1 or 2"):
        yield from ((device,) for device in distinct)
        if pattern.ranks == "1 or 2" and len(distinct) > 1:
            pairs = single_pairs(distinct, distinct, table.pairs, machine, seed)
            yield from (pair for pair in pairs if len(pair) == 2)
    elif not pattern.collective:  # host to devices and back, STREAM
        if not table.devices:
            yield from ((device,) for device in distinct)
        yield subset
    else:
        yield subset
