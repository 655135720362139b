"""How far a case's ranks are from each other: the distance class of its farthest two, for every table that has one.

A run stores each node's switch where it could read it (system/switches.py). Else it is inferred here from the run's own
pairs between nodes, and every word of it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured, Result, Row
from linkgauge.stats.launches import Places, nodes_of
from linkgauge.system.switches import DEVICE, NODE, Switches, inferred

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_SETTINGS = held_apart("size", "devices")
_LARGE = 1 << 16  # from here on a time is of the bytes; below, of the latency


class Distances:
    """The distance classes of a run's cases."""

    def __init__(self, run: Run, rows: Iterable[Result]) -> None:
        """Take a run, and its results, which are asked for only where classes have to be inferred from them."""
        self._places = Places(run.launched)
        self._several = len(self._places.hosts) > 1
        self.switches = stored_switches(run.info) if self._several else None
        if self.switches is None and self._several:
            self.switches = from_rows(rows, self._places)

    def of_row(self, row: Row) -> str:
        """Return the class of a row's case; empty where it is not known."""
        hosts = nodes_of(self._places.of_row(row)) if self._several else ()
        if len(hosts) > 1:
            return self.switches.farthest(hosts) or "" if self.switches is not None else ""
        return DEVICE if len(set(row.devices)) == 1 else NODE


def stored_switches(info: Mapping[str, Any]) -> Switches | None:
    """Return what a run stored of its nodes' switches; None where nothing was known."""
    stored = info.get("switches")
    if not stored:
        return None
    above = {node: tuple(names) for node, names in stored["above"].items()}
    return Switches(above, str(stored["source"]), dict(stored.get("rates") or {}))


def from_rows(rows: Iterable[Result], places: Places) -> Switches | None:
    """Infer the switches from headlines of pairs between nodes: of the settings with most pairs, bytes first.

    Narrow links between switches show in large messages, long ways in small ones: whichever shows classes.
    """
    groups: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for row in rows:
        if not PATTERNS[row.pattern].pair or row.ranks != 2 or not isinstance(row, Measured) or not row.is_headline:
            continue
        hosts = [place.node for place in places.of_row(row)]
        if len(set(hosts)) == 2:
            key = (*values_of(row.case, _SETTINGS), row.launch_key, row.size)
            # What else goes on only adds to a latency, either way: the least is nearest to the way's own.
            times, large = groups.setdefault(key, {}), row.size >= _LARGE
            pair = (hosts[0], hosts[1]) if large else (min(hosts), max(hosts))
            time = row.median_ns if large else row.min_ns
            times[pair] = time if large else min(time, times.get(pair, time))
    pairs = math.comb(len(places.hosts), 2)
    whole = [(key, times) for key, times in groups.items() if len({frozenset(pair) for pair in times}) == pairs]
    for key, times in sorted(whole, key=lambda item: -int(item[0][-1])):
        size = int(key[-1])
        found = inferred(times, f"the {'time of large messages' if size >= _LARGE else 'latency'}")
        if found is not None:
            return found
    return None


def by_distance(rows: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Return the rows by their class, those that have one."""
    return grouped((row.distance, row) for row in rows if row.distance)
