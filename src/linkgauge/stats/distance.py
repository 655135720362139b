"""How far a case's ranks are from each other: the distance class of its farthest two, for every table that has one.

Which switch a node hangs on a run stored where it could be read (system/switches.py); else it is inferred here, from
the run's own pairs between nodes, and every word of it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.model.case import held_apart, values_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.launches import Places, nodes_of
from linkgauge.system.switches import DEVICE, NODE, Switches, inferred

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_SETTINGS = held_apart("size", "devices")
_LARGE = 1 << 16  # from here on a time is of the bytes; below, of the latency


class Distances:
    """The distance classes of a run's cases."""

    def __init__(self, run: Run, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take a run, and the headline rows of its summary, from which classes are inferred where none were read."""
        self._places = Places(run.launches.to_pylist())
        self._several = len(self._places.hosts) > 1
        self.switches = stored_switches(run.info) if self._several else None
        if self.switches is None and self._several:
            self.switches = from_rows(rows, self._places)

    def of_row(self, row: Mapping[str, Any]) -> str | None:
        """Return the class of a row's case; None where it is not known."""
        hosts = nodes_of(self._places.of_row(row)) if self._several else ()
        if len(hosts) > 1:
            return (self.switches.farthest(hosts) or None) if self.switches is not None else None
        return DEVICE if len(set(row["devices"])) == 1 else NODE


def stored_switches(info: Mapping[str, Any]) -> Switches | None:
    """Return what a run stored of its nodes' switches; None where nothing was known."""
    stored = info.get("switches")
    if not stored:
        return None
    above = {node: tuple(names) for node, names in stored["above"].items()}
    return Switches(above, str(stored["source"]), dict(stored.get("rates") or {}))


def from_rows(rows: Iterable[Mapping[str, Any]], places: Places) -> Switches | None:
    """Infer the switches from pairs between nodes: of the settings with the most pairs, bytes before latencies.

    Narrow links between switches show in large messages, long ways in small ones: whichever shows classes.
    """
    groups: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for row in rows:
        if not PATTERNS[row["pattern"]].pair or len(row["devices"]) != 2 or not row["median_ns"]:
            continue
        hosts = [place.node for place in places.of_row(row)]
        if len(set(hosts)) == 2:
            key = (*values_of(row, _SETTINGS), row["launch_key"], row["size"])
            # What else goes on only adds to a latency, either way: the least is nearest to the way's own.
            times, large = groups.setdefault(key, {}), row["size"] >= _LARGE
            pair = (hosts[0], hosts[1]) if large else (min(hosts), max(hosts))
            time = float(row["median_ns"] if large else row["min_ns"])
            times[pair] = time if large else min(time, times.get(pair, time))
    nodes = len(places.hosts)
    whole = [(key, times) for key, times in groups.items() if len({frozenset(pair) for pair in times}) == _pairs(nodes)]
    for key, times in sorted(whole, key=lambda item: -int(item[0][-1])):
        size = int(key[-1])
        found = inferred(times, f"the {'time of large messages' if size >= _LARGE else 'latency'}")
        if found is not None:
            return found
    return None


def _pairs(nodes: int) -> int:
    return nodes * (nodes - 1) // 2


def by_distance(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows by their class, those that have one."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("distance"):
            found.setdefault(str(row["distance"]), []).append(row)
    return found
