"""What a job takes of each link between the nodes of a run, by the switches that these are attached to."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from linkgauge.errors import LinkgaugeError
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.stats.distance import stored_switches
from linkgauge.stats.launches import Places
from linkgauge.system.switches import Switches
from linkgauge.system.units import show_rate

if TYPE_CHECKING:
    from linkgauge.expect.limit import Limit
    from linkgauge.store.run import Run

Part = tuple[str, str]
"""A link's direction, `(from, to)`; or a memory, `(of, "")`."""


class Network:
    """The links between a run's nodes: of a node to its switch, of a switch to the one above it, each way."""

    def __init__(self, switches: Switches, places: Places, class_weights: Mapping[str, float] | None = None) -> None:
        """Take the switches of the nodes, where the ranks of each launch were, and weights of service classes."""
        self.class_weights = class_weights or {}
        self._switches = switches
        self._places = places
        # Asked of each pair of nodes, of which there are many.
        self._below = collections.Counter(switches.above.get(host, ())[:1] for host in places.hosts)
        self._rates: dict[Part, float | None] = {}

    @classmethod
    def of_run(cls, run: Run) -> Network | None:
        """The network of a run; None where it is of one node, or its switches are not known."""
        places = Places(run.launched)
        switches = stored_switches(run.info) if len(places.hosts) > 1 else None
        weights = run.info.get("requested", {}).get("class_weights")
        return None if switches is None else cls(switches, places, weights)

    def way(self, a: str, b: str) -> tuple[Part, ...] | None:
        """The links' directions from one host to another; None where it is not known."""
        return self._switches.way(a, b)

    def alone(self, host: str) -> bool:
        """Whether no other host of the run is attached to its first switch."""
        return self._below[self._switches.above.get(host, ())[:1]] < 2

    def level(self, a: str, b: str) -> str:
        """The distance class of two hosts; empty where it is not known."""
        return self._switches.distance(a, b)

    def taken(self, case: Case, launch: int) -> dict[Part, float] | None:
        """Bytes of one operation over each link's direction; None where it is not known which ways they go.

        Known are messages between named ranks. Of collectives that repeat or add up, and of allgather and
        reduce_scatter, the library's algorithm says who sends what to whom, and no reader of a run knows it.
        """
        traits = PATTERNS[case.pattern]
        places = self._places.of(launch, case.devices)
        messages = traits.ranks in ("2", "pairs") or (traits.collective and not traits.one_buffer)
        if not places or not messages or (traits.blocks and not traits.rooted):
            return None
        try:
            listed = pair_bytes(case.pattern, case.group_ranks, case.size, case.distribution, case.root)
        except LinkgaugeError:
            return None
        found: dict[Part, float] = {}
        for group in range(case.groups):
            for source, target, moved in listed:
                a, b = (places[group * case.group_ranks + rank].node for rank in (source, target))
                way = () if a == b else self._switches.way(a, b)
                if way is None:
                    return None
                for part in way:
                    found[part] = found.get(part, 0.0) + float(moved) * (case.window if traits.windowed else 1)
        return found

    def limit(self, case: Case, launch: int) -> Limit | None:
        """The limit that stated rates set a case's goodput, of one lane; None where none is known."""
        from linkgauge.expect.limit import limit

        if PATTERNS[case.pattern].latency_only:
            return None
        taken = {part: moved for part, moved in (self.taken(case, launch) or {}).items() if moved > 0}
        rates = self.rates(taken)
        if not rates:
            return None
        fullest = max(rates, key=lambda part: taken[part] / rates[part])
        traits = PATTERNS[case.pattern]
        payload = float(traits.payload_bytes(case.size, case.group_ranks, case.window, case.distribution))
        words = f"{fullest[0]} to {fullest[1]}: {show_rate(rates[fullest])}"
        return limit("fabric_links", payload * rates[fullest] / taken[fullest], words)

    def rates(self, parts: Iterable[Part]) -> dict[Part, float]:
        """What each of these links carries, in bytes per second; none of those that no one stated."""
        found = {}
        for part in parts:
            if part not in self._rates:
                self._rates[part] = self._switches.rate(*part)
            if (rate := self._rates[part]) is not None:
                found[part] = rate
        return found
