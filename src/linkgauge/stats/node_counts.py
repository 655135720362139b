"""What the nodes of a run counted beside its cases: by case and node how much grew, and by counter all readings.

The counters are those of run/rank/node_counters.py, of network cards and of TCP and IP. One rank of each node of a case
reads them before and after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.model.result import Identity, Observation
from linkgauge.run.rank.node_counters import NIC, PROTOCOLS, RECEIVED, RETRIES, SENT
from linkgauge.stats.launches import Places

Counter = tuple[str, str]
"""The subject of a counter and its name."""
_PACKET_BYTES = 4096  # the usual MTU of RDMA: what its cards send is counted in bytes alone


@dataclasses.dataclass(frozen=True)
class Reading:
    """One value of a counter, when it was read on its node's clock, and of which case."""

    when_ns: int
    value: float
    case_key: str


@dataclasses.dataclass(frozen=True)
class NodeCounts:
    """By case and node how much each counter grew; by node and counter all readings in the order of time."""

    grown: Mapping[Identity, Mapping[str, Mapping[Counter, float]]]
    readings: Mapping[tuple[str, Counter], Sequence[Reading]]

    @classmethod
    def of(
        cls, observations: Iterable[Observation], devices: Mapping[Identity, Sequence[int]], places: Places
    ) -> NodeCounts:
        """Take a run's observations, the devices of each of its cases, and where its ranks were."""
        grown: dict[Identity, dict[str, dict[Counter, float]]] = {}
        readings: dict[tuple[str, Counter], list[Reading]] = {}
        before: dict[tuple[Identity, str, Counter], float] = {}
        for one in observations:
            if not (one.subject.startswith(NIC) or one.subject == PROTOCOLS) or one.identity not in devices:
                continue
            there = places.of(one.identity[1], devices[one.identity])
            if not 0 <= one.rank < len(there):
                continue
            node, counter = there[one.rank].node, (one.subject, one.name)
            readings.setdefault((node, counter), []).append(Reading(one.when_ns, one.value, one.case_key))
            if one.moment == "before":
                before[one.identity, node, counter] = one.value
            elif (start := before.get((one.identity, node, counter))) is not None:
                grown.setdefault(one.identity, {}).setdefault(node, {})[counter] = max(0.0, one.value - start)
        for found in readings.values():
            found.sort(key=lambda one: one.when_ns)
        return cls(grown, readings)


def of_cards(counts: Mapping[Counter, float], names: Iterable[str]) -> float:
    """The growth of all cards' counters of these names together."""
    wanted = set(names)
    return sum(value for (subject, name), value in counts.items() if subject.startswith(NIC) and name in wanted)


def packets_sent(counts: Mapping[Counter, float], tcp: str) -> float:
    """How many packets a node sent: TCP's segments, or where RDMA counts retries what its bytes stand for."""
    by_rdma = any(name in RETRIES for _, name in counts)
    return counts.get((PROTOCOLS, tcp), 0.0) + (of_cards(counts, [SENT]) / _PACKET_BYTES if by_rdma else 0.0)


def card_in_use(counts: Mapping[Counter, float]) -> str:
    """The card that carried most bytes; empty where none was read."""
    moved = {subject: of_cards({key: value for key, value in counts.items() if key[0] == subject}, [SENT, RECEIVED])
             for subject, _ in counts if subject.startswith(NIC)}  # fmt: skip
    return max(moved, key=lambda subject: moved[subject]).removeprefix(NIC) if moved else ""
