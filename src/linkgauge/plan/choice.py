"""Which ranks take part where a table asks for fewer than there are, by the words that simulations have too."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.model.taking import BY_SWITCH, Ints
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import CaseTable

_GIVE = "give --fabric FILE with a node and its switches a line"


def chosen_ranks(
    subset: tuple[int, ...], ranks: int | None, table: CaseTable, machine: PlanMachine, seed: int
) -> Iterator[tuple[int, ...]]:
    """So many ranks of a subset (None: all), as `table.placement` says; for `both` the linear ones and the interleaved.

    Over several nodes whole nodes are taken, so that of two jobs each has nodes of its own, and the last may be taken
    in part; on one node devices are, in PCI order, which puts those of a package side by side. UsageError where the
    switches that `packed` and `spread` go by are not known.
    """
    several = machine.nodes > 1
    parts = [tuple(of) for _, of in itertools.groupby(subset, lambda rank: rank // machine.device_count)]
    parts = parts if several else [(rank,) for rank in subset]
    count = len(subset) if ranks is None else ranks
    wanted = -(-count // len(parts[0]))
    for how in ["linear", "interleaved"] if table.placement == "both" else [table.placement]:
        if how in ("random", "shuffled"):
            taken = random.Random(seed).sample(range(len(parts)), wanted)
            taken = sorted(taken) if how == "random" else taken
        elif how == "interleaved":
            taken = [place * len(parts) // wanted for place in range(wanted)]
        else:
            taken = list(range(wanted)) if how == "linear" else _by_switch(how, table, machine)
        yield tuple(itertools.chain.from_iterable(parts[place] for place in taken))[:count]


def node_counts(nodes: int) -> list[int]:
    """2, 3, 4, ... of so many nodes: to 8 each, beyond half as many again by turns (8, 12, 16, 24, ...), and all."""
    doubled = [count << times for times in range(nodes.bit_length()) for count in (8, 12)]
    return [count for count in (*range(2, 8), *doubled) if count < nodes] + [nodes]


def in_order(how: str, machine: PlanMachine) -> list[int] | None:
    """All nodes in the order in which `how` takes them by their switches; None where not all of these are known."""
    if machine.above is None or not all(machine.above.values()):
        return None
    levels = [_numbered("/".join(names[level:]) for names in machine.above.values()) for level in (1, 0)]
    return [int(place) for place in BY_SWITCH[how](levels)]


def _by_switch(how: str, table: CaseTable, machine: PlanMachine) -> list[int]:
    """All nodes in the order in which they are taken, by what they are attached to."""
    where = f"{table.where}: placement {how}"
    if machine.nodes == 1:
        raise UsageError(f"{where} is of nodes by their switches, here is one node: give --hosts or --nodes")
    if machine.above is None:
        raise UsageError(f"{where}: which switch each node is attached to is not known: {_GIVE}")
    lost = [node for node, names in machine.above.items() if not names]
    if lost:
        raise UsageError(f"{where}: no switch of node {', '.join(lost[:8])} is known: {_GIVE}")
    return in_order(how, machine) or []


def _numbered(names: Iterable[str]) -> Ints:
    """Each name's number, in the order in which they come."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names])
