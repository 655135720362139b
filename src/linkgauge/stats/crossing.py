"""Whether the bytes of a case between nodes crossed the network: its nodes' cards counted them, or not.

What must cross follows from the pattern and from where the ranks are (`must_cross`); what did is what the cards of the
case's nodes counted between a look before it and one after it (run/rank/node_counters.py), warm-up, verification and
the ranks' own talk included. A library's headers, acknowledgements and a collective's own algorithm add to it; nothing
takes away but another way: memory that the nodes share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.model.worded import ServiceClass
from linkgauge.run.rank.node_counters import NIC, OF_PRIORITY, RECEIVED, SENT
from linkgauge.stats.launches import Places, nodes_of

if TYPE_CHECKING:
    from linkgauge.store.run import Run

NETWORK, SHARED_MEMORY, PARTLY = "network", "shared_memory", "partly"
ALL, NONE = 0.9, 0.1
"""Of what must cross: from this on all has, up to that none."""
LEAST_BYTES, LEAST_EACH = 1 << 20, 1 << 16
"""Where less must cross in all, or in one operation, the ranks' own talk may be what was counted.

They agree on each sample's start, for which 6 KB an operation were counted on two nodes, and 75 KB a case.
"""
_RAIL = 0.05  # of a node's bytes: a card with less carried none of the payload


@dataclasses.dataclass(frozen=True)
class Crossing:
    """How the bytes of one case between nodes went. Bytes over all of its operations.

    `went_by`: NETWORK, SHARED_MEMORY or PARTLY; empty where too few bytes had to cross to tell, or loads' may be among
    those counted. `payload_bytes` must cross; `counted_bytes` is the mean of what cards sent and received. `cards`: by
    node and card what it sent and got. `priorities`: the same mean of each priority, of cards that count by these.
    """

    identity: Identity
    went_by: str
    payload_bytes: int
    counted_bytes: int
    cards: Mapping[str, Mapping[str, tuple[int, int]]]
    service_class: ServiceClass = dataclasses.field(default=ServiceClass())
    priorities: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def share(self) -> float:
        """Counted over payload; NaN where nothing must cross."""
        return self.counted_bytes / self.payload_bytes if self.payload_bytes else float("nan")

    @property
    def rails(self) -> int:
        """How many cards of a node carried payload: of the node with most."""
        return max((len(used) for used in self.rails_of.values()), default=0)

    @property
    def rails_of(self) -> dict[str, tuple[str, ...]]:
        """By node the cards that carried payload."""
        found = {}
        for node, cards in self.cards.items():
            whole = sum(map(sum, cards.values()))
            found[node] = tuple(name for name, both in cards.items() if whole and sum(both) >= _RAIL * whole)
        return found


def must_cross(case: Case, nodes: Sequence[str]) -> int:
    """Bytes that at least cross between nodes in one operation, whatever the algorithm; `nodes` of each rank.

    Of messages between named ranks those whose ends are on two nodes. What is repeated or added up on the way crosses
    once for each node but one: a broadcast's and a reduction's buffer, an allgather's and a reduce_scatter's total; an
    allreduce's twice (docs/definitions.md, Limits).
    """
    size = len(nodes) // case.groups
    groups = [nodes[first : first + size] for first in range(0, len(nodes), size)]
    return sum(_of_group(case, group) for group in groups)


def _of_group(case: Case, nodes: Sequence[str]) -> int:
    traits = PATTERNS[case.pattern]
    between_ranks = traits.collective or traits.ranks in ("2", "pairs")
    if traits.latency_only or not between_ranks or len(set(nodes)) < 2:
        return 0
    others = len(set(nodes)) - 1
    if traits.one_buffer:
        return (2 if traits.reduces and not traits.rooted else 1) * others * case.size
    if traits.blocks and not traits.rooted:
        return others * case.size
    messages = pair_bytes(case.pattern, len(nodes), case.size, case.distribution, case.root)
    across = sum(moved for source, target, moved in messages if nodes[source] != nodes[target])
    return across * (case.window if traits.windowed else 1)


def crossings(run: Run) -> dict[Identity, Crossing]:
    """The crossings of a run's cases between nodes that ended well and whose cards were read, by row identity."""
    places = Places(run.launched)
    if len(places.hosts) < 2:
        return {}
    return crossings_of(run.rows(), run.observed(lambda table: pc.starts_with(table["subject"], NIC)), places)


def crossings_of(cases: Iterable[Row], observations: Iterable[Observation], places: Places) -> dict[Identity, Crossing]:
    """The crossings from the rows of cases and of their observations."""
    counted = _counted(observations)
    found: dict[Identity, Crossing] = {}
    for row in cases:
        identity = row.identity
        moved, by_priority = counted.get(identity, ({}, {}))
        there = places.of_row(row)
        if not moved or row.status not in ("ok", "timeout") or len(nodes_of(there)) < 2:
            continue
        nodes = [place.node for place in there]
        cards: dict[str, dict[str, tuple[int, int]]] = {}
        for (rank, card), both in moved.items():
            cards.setdefault(nodes[rank], {})[card] = both
        if set(cards) != set(nodes):
            continue
        case = row.case
        each = must_cross(case, nodes)
        payload = each * (row.operations_total or 0)
        every = [both for of_node in cards.values() for both in of_node.values()]
        both_ways = sum(map(sum, every)) // 2
        went_by = _went_by(payload, both_ways) if payload else ""
        if went_by in (NETWORK, PARTLY) and (each < LEAST_EACH or payload < LEAST_BYTES):
            went_by = ""  # it may be the ranks' own talk that was counted; too few bytes are conclusive at any size
        if went_by in (NETWORK, PARTLY) and _loads_there(case, row.launch, places) & set(nodes):
            went_by = ""  # it may be a load's bytes that were counted; too few are conclusive here too
        found[identity] = Crossing(identity, went_by, payload, both_ways, cards, case.service_class, by_priority)
    return found


def _loads_there(case: Case, launch: int, places: Places) -> set[str]:
    """The nodes of a case's loads."""
    return {place.node for load in case.background.each for place in places.of(launch, load.case.devices)}


def _went_by(payload: int, counted: int) -> str:
    share = counted / payload
    return NETWORK if share >= ALL else SHARED_MEMORY if share <= NONE else PARTLY


_Moved = dict[tuple[int, str], tuple[int, int]]  # by the rank that looked and the card: bytes sent and received


def _counted(observations: Iterable[Observation]) -> dict[Identity, tuple[_Moved, dict[int, int]]]:
    """By case what its cards counted meanwhile, and of each priority the mean of all that they sent and received."""
    values: dict[Identity, dict[tuple[int, str], dict[str, dict[tuple[str, str], float]]]] = {}
    for one in observations:
        way, _, priority = one.name.partition(OF_PRIORITY)
        if one.subject.startswith(NIC) and way in (SENT, RECEIVED) and (priority.isdecimal() or not priority):
            of_card = values.setdefault(one.identity, {}).setdefault((one.rank, one.subject.removeprefix(NIC)), {})
            of_card.setdefault(priority, {})[one.moment, way] = one.value
    found: dict[Identity, tuple[_Moved, dict[int, int]]] = {}
    for identity, of_case in values.items():
        moved = {key: both for key, of_card in of_case.items() if (both := _between(of_card.get("", {}))) is not None}
        sums: dict[int, int] = {}
        for of_card in of_case.values():
            for priority in of_card.keys() - {""}:
                sums[int(priority)] = sums.get(int(priority), 0) + sum(_between(of_card[priority]) or (0, 0))
        found[identity] = moved, {priority: both // 2 for priority, both in sorted(sums.items())}
    return found


def _between(looks: Mapping[tuple[str, str], float]) -> tuple[int, int] | None:
    """Bytes sent and received between two looks; None where one is missing. A counter that began anew has none."""
    if len(looks) < 4:
        return None
    sent, received = (max(0, int(looks["after", name] - looks["before", name])) for name in (SENT, RECEIVED))
    return sent, received
