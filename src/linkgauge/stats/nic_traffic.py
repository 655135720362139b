"""What others moved over a node's network cards beside a case between nodes: bytes that its own do not explain.

Cards count before and after each such case (run/rank/node_counters.py). Of messages between named ranks what must cross
is known, so that the rest is somebody else's; of a collective the algorithm may move more, and more is left to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.run.rank.node_counters import NIC, RECEIVED, SENT
from linkgauge.stats.crossing import must_cross

NETWORK = "network"
"""The medium, as Use.media has it."""
FIRST = -2
"""In place of a device: the cards of the first node; those of the next have the next lower number."""
_HEADERS = 1.15  # of the payload: 1.05 by TCP at 1500 bytes a frame, up to 1.1 were counted
_ACKNOWLEDGED = 0.05  # of the bytes the other way
_TALK_EACH, _TALK = 12_000, 256 << 10  # twice what ranks were seen to say an operation, three times a case's; a node
_LEAST_BYTES = 1 << 20
_LEAST_RATE = 1e6  # B/s: monitoring and shared folders stay below
_LEAST_SHARE = 0.02  # of the most that the node's cards carried in any case


@dataclasses.dataclass(frozen=True)
class NicSpan:
    """A case on one node: when its cards were read, what they counted and what its own messages explain, in bytes.

    `place` stands for the node. Both are of the way that leaves more unexplained.
    """

    row: Row
    place: int
    start_ns: float
    end_ns: float
    counted: float
    explained: float

    @property
    def lasts_ns(self) -> float:
        """How long others had to add to it."""
        return max(1.0, self.end_ns - self.start_ns)

    @property
    def unexplained(self) -> float:
        """Bytes of others, at least."""
        return max(0.0, self.counted - self.explained)

    @property
    def rate(self) -> float:
        """All that was counted, in bytes per second."""
        return self.counted / self.lasts_ns * 1e9


def nic_spans(
    known: Mapping[Identity, Row], observations: Iterable[Observation], nodes: Callable[[Row], Sequence[str]]
) -> tuple[list[NicSpan], tuple[str, ...]]:
    """Return what cards said beside each case between nodes, on one clock, and the nodes in the order of their places.

    `nodes`: of each rank of a row. Clocks of nodes differ: of the cases that two nodes share one is set by the other.
    """
    values: dict[tuple[Identity, str], list[Observation]] = {}
    between: dict[Identity, Sequence[str]] = {}
    for one in observations:
        row = known.get(one.identity)
        if row is None or not one.subject.startswith(NIC) or one.name not in (SENT, RECEIVED):
            continue
        there = between.setdefault(one.identity, nodes(row))
        if 0 <= one.rank < len(there) and row.operations_total and not row.case.background and row.status == "ok":
            values.setdefault((one.identity, there[one.rank]), []).append(one)
    names = tuple(dict.fromkeys(node for _, node in values))
    found = []
    for (identity, node), seen in values.items():
        row = known[identity]
        ways = _explained(row.case, between[identity], node, row.operations_total or 0)
        span = _span(row, FIRST - names.index(node), seen, ways)
        if span is not None:
            found.append(span)
    return sorted(_on_one_clock(found), key=lambda one: one.start_ns), names


def _span(row: Row, place: int, seen: Sequence[Observation], explained: tuple[float, float]) -> NicSpan | None:
    moments = {moment: [one for one in seen if one.moment == moment] for moment in ("before", "after")}
    if not all(moments.values()):
        return None
    cards = {(one.subject, one.name): one.value for one in moments["before"]}
    grown = dict.fromkeys((SENT, RECEIVED), 0.0)
    for one in moments["after"]:
        # A counter that began anew says nothing.
        grown[one.name] += max(0.0, one.value - cards.get((one.subject, one.name), one.value))
    ways = zip((grown[SENT], grown[RECEIVED]), explained, strict=True)
    counted, own = max(ways, key=lambda way: way[0] - way[1])
    start = float(max(one.when_ns for one in moments["before"]))
    return NicSpan(row, place, start, max(start, float(min(one.when_ns for one in moments["after"]))), counted, own)


def _explained(case: Case, nodes: Sequence[str], node: str, operations: int) -> tuple[float, float]:
    """Return the bytes that the case's own messages may send from a node and bring to it, at most."""
    talk = len(set(nodes)) * (_TALK + _TALK_EACH * operations)
    traits = PATTERNS[case.pattern]
    if traits.collective or traits.ranks not in ("2", "pairs"):
        # Each piece may go to each rank by itself.
        most = _HEADERS * len(nodes) * must_cross(case, nodes) * operations + talk
        return most, most
    size = len(nodes) // case.groups
    sent = received = 0.0
    for first in range(0, len(nodes), size):
        group = nodes[first : first + size]
        for source, target, moved in pair_bytes(case.pattern, size, case.size, case.distribution, case.root):
            if group[source] != group[target] and node in (group[source], group[target]):
                way = moved * (case.window if traits.windowed else 1) * operations
                sent, received = (sent + way, received) if group[source] == node else (sent, received + way)
    return _HEADERS * sent + _ACKNOWLEDGED * received + talk, _HEADERS * received + _ACKNOWLEDGED * sent + talk


def _on_one_clock(spans: Sequence[NicSpan]) -> list[NicSpan]:
    """Return the spans with the times of the node that has most of them; a node that shares no case keeps its own."""
    starts: dict[int, dict[Identity, float]] = {}
    for one in spans:
        starts.setdefault(one.place, {})[one.row.identity] = one.start_ns
    if not starts:
        return []
    first = max(starts, key=lambda place: (len(starts[place]), place))
    offsets = {}
    for place, of_node in starts.items():
        shared = of_node.keys() & starts[first].keys()
        offsets[place] = float(np.median([starts[first][key] - of_node[key] for key in shared])) if shared else 0.0
    return [dataclasses.replace(one, start_ns=one.start_ns + offsets[one.place],
                                end_ns=one.end_ns + offsets[one.place]) for one in spans]  # fmt: skip


def busiest(spans: Iterable[NicSpan]) -> dict[int, float]:
    """Return by place the most that its cards carried in a case, in bytes per second."""
    found: dict[int, float] = {}
    for one in spans:
        found[one.place] = max(one.rate, found.get(one.place, 0.0))
    return found


def is_used(one: NicSpan, most: float) -> bool:
    """Whether others moved enough over a node's cards meanwhile; `most`: what these carried in their busiest case."""
    rate = one.unexplained / one.lasts_ns * 1e9
    return one.unexplained >= _LEAST_BYTES and rate > max(_LEAST_RATE, _LEAST_SHARE * most)
