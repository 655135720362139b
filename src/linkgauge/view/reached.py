"""What pairs of devices reached at full size, and each link of the node: ports to switches, links, host links."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from linkgauge.findings.filled import FILLED_SHARE
from linkgauge.findings.wiring import Way, Wiring
from linkgauge.model.comparing import MECHANISM, held_apart, values_of
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.model.transports import over_host
from linkgauge.stats.alike import LEAST_DIFFERENCE
from linkgauge.system.classes import Classes
from linkgauge.system.model import is_fabric
from linkgauge.view.alike import Kinds, apart
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from linkgauge.view.units import size_text

if TYPE_CHECKING:
    from linkgauge.system.model import Link, System

Pair = tuple[int, int]
Place = TypeVar("Place")

ONE_WAY = ("unidirectional", "pingpong")
BOTH_WAYS = ("bidirectional",)
_LEAST_SAMPLES = 6
_APART = held_apart("size", "devices", *MECHANISM)


@dataclasses.dataclass(frozen=True)
class PairClass:
    """Ordered pairs that are alike, and those of them whose goodput differs from the others' beyond the noise."""

    pairs: tuple[Pair, ...]
    low: float  # of those that do not stand apart, as `high`; bytes per second
    high: float
    apart: tuple[Pair, ...]
    sure: bool  # every member's median is known closely enough to compare it

    @property
    def within(self) -> float:
        """The width of the range of those that do not stand apart, over its upper end."""
        return 1 - self.low / self.high if self.high else 0.0


class FullPairs:
    """The ordered pairs between device memories of one pattern and mechanism at one size. Goodputs in bytes/s."""

    def __init__(self, results: Results, limits: Limits, kinds: Kinds, rows: dict[Pair, Measured]) -> None:
        """Take the chosen rows, one for each pair."""
        self.rows = rows
        self._results, self._kinds = results, kinds
        self._wiring = None if limits.system is None or len(kinds.hosts) > 1 else Wiring(limits.system)
        self._first = next(iter(rows.values()))

    @property
    def pattern(self) -> str:
        """The pattern of all rows."""
        return self._first.pattern

    @property
    def size(self) -> int:
        """The size of all rows, in bytes."""
        return self._first.size

    @property
    def label(self) -> str:
        """The names of the mechanisms."""
        return labels_of(self._results, (self.rows[pair] for pair in sorted(self.rows)))

    @functools.cached_property
    def devices(self) -> list[int]:
        """The devices of the run's pairs."""
        return sorted({end for pair in self.rows for end in pair})

    @functools.cached_property
    def complete(self) -> bool:
        """Whether every ordered pair of the devices that took part in the run was measured."""
        every = set(self._kinds.devices) | set(self.devices)
        return len(self.rows) == len(every) * (len(every) - 1)

    @functools.cached_property
    def limits(self) -> dict[Pair, float]:
        """What the narrowest link on each pair's way carries, both ways' sum where that is measured, in bytes/s.

        Pairs whose way or rate is not known are left out: all, without a system, or across hosts.
        """
        lanes = PATTERNS[self.pattern].ways
        ways = {pair: self.way(pair) for pair in self.rows}
        return {pair: way.rate * lanes for pair, way in ways.items() if way is not None and way.rate}

    def way(self, pair: Pair) -> Way | None:
        """Return the way that a pair's bytes take, by fewest links; None where it is not known."""
        over = over_host(self._first.transport, self._first.case.path or "")
        return None if self._wiring is None else self._wiring.way(*pair, over_host=over)

    def link_kind(self, pair: Pair) -> str:
        """Return the kind of the links that a pair's bytes take between the devices; empty where several or unknown."""
        way = self.way(pair)
        if self._wiring is None or way is None or way.kind not in ("switch", "direct"):
            return ""
        kinds = {link.kind for arc in way.arcs for link in self._wiring.links(arc)}
        return kinds.pop() if len(kinds) == 1 else ""

    def share(self, pair: Pair) -> float | None:
        """Return a pair's goodput over what its way carries; None where either is not known."""
        return self.rows[pair].goodput / self.limits[pair] if pair in self.limits else None

    @functools.cached_property
    def shares(self) -> list[float]:
        """The shares of all pairs whose way is known."""
        return [share for pair in self.rows if (share := self.share(pair)) is not None]

    @property
    def filled(self) -> bool:
        """Whether a link was what limited the fastest pair, as far as ways are known."""
        return max(self.shares, default=0.0) >= FILLED_SHARE

    @functools.cached_property
    def classes(self) -> list[PairClass]:
        """The classes of alike pairs, the fastest first."""
        groups = grouped((self._kinds.key(self.rows[pair]), pair) for pair in sorted(self.rows))
        found = []
        for pairs in groups.values():
            rates = [self.rows[pair].goodput for pair in pairs]
            outside = apart(rates, [self.rows[pair] for pair in pairs])
            usual = [rate for place, rate in enumerate(rates) if place not in outside]
            sure = all(_known(self.rows[pair]) for pair in pairs)
            found.append(PairClass(tuple(pairs), min(usual), max(usual), tuple(pairs[i] for i in outside), sure))
        return sorted(found, key=lambda one: -one.high)


def _known(row: Measured) -> bool:
    """Whether a row has samples enough, and an interval no wider than what alike ones may differ."""
    return row.samples >= _LEAST_SAMPLES and row.half_width <= LEAST_DIFFERENCE


def full_pairs(results: Results, limits: Limits, kinds: Kinds, patterns: tuple[str, ...]) -> FullPairs | None:
    """Return the pairs of these patterns at the largest size at which all were measured, by the best mechanism.

    Where no mechanism measured all of them, those of the most pairs count. None where none was measured.
    """
    plain = [
        row
        for row in results.rows
        if row.pattern in patterns
        and row.case.source_memory == row.case.target_memory == "device"
        and row.case.groups == 1
        and not row.case.background
        and len(set(row.devices)) == 2
    ]
    rows = fullest(results, plain, lambda row: (row.devices[0], row.devices[1]))
    return FullPairs(results, limits, kinds, rows) if rows else None


def fullest(results: Results, rows: Iterable[Measured], place: Callable[[Measured], Place]) -> dict[Place, Measured]:
    """Return a row for each place, of one mechanism and task and of the largest size that has the most places.

    Of several mechanisms with as many places the one of the highest median goodput, and for a place where another is
    better at that size, that one; empty where there is no goodput.
    """
    groups: dict[tuple[Any, ...], dict[int, dict[Place, Measured]]] = {}
    for row in sorted(rows, key=lambda row: row.effective_samples, reverse=True):
        if row.goodput_bytes_per_s:
            key = (results.label(row), *values_of(row.case, _APART))
            groups.setdefault(key, {}).setdefault(row.size, {}).setdefault(place(row), row)
    found = []
    for sizes in groups.values():
        most = max(len(own) for own in sizes.values())
        found.append(sizes[max(size for size, own in sizes.items() if len(own) == most)])

    def rank(own: dict[Place, Measured]) -> tuple[int, float]:
        return (len(own), statistics.median(row.goodput for row in own.values()))

    chosen = max(found, key=rank, default={})
    size = next((row.size for row in chosen.values()), None)
    return best_of_each(
        chosen, (sizes[size] for sizes in groups.values() if size in sizes), lambda row: row.goodput, max
    )


AS_GOOD = 0.97
"""From this share on one figure is as good as another: chance makes one the better."""


def best_of_each(
    chosen: Mapping[Place, Measured],
    others: Iterable[Mapping[Place, Measured]],
    figure: Callable[[Measured], float],
    better: Callable[..., Any],
) -> dict[Place, Measured]:
    """Return the row of each place: the chosen one, or the best of all where that is better by more than chance.

    `figure`: what is compared; `better`: max or min.
    """
    best = dict(chosen)
    for own in others:
        for place in chosen.keys() & own.keys():
            best[place] = better(best[place], own[place], key=figure)

    def kept(place: Place) -> Measured:
        ends = sorted((figure(chosen[place]), figure(best[place])))
        return chosen[place] if ends[0] >= AS_GOOD * ends[1] else best[place]

    return {place: kept(place) for place in chosen}


def labels_of(results: Results, rows: Iterable[Measured]) -> str:
    """Return the mechanisms of some rows, each once."""
    return ", ".join(dict.fromkeys(results.label(row) for row in rows))


def percent_up(share: float) -> int:
    """Return a share in whole percent, rounded up: what lies within it does."""
    return max(1, math.ceil(100 * share - 1e-9))


Key = TypeVar("Key")

_HOST = {"device_to_host": 0, "host_to_device": 1}


@dataclasses.dataclass(frozen=True)
class Reached:
    """One link in one direction: what it carried and can carry, in bytes per second; None is not known.

    `why` says why no share is told of it: not measured, no rate known, or a size that fills no such link.
    """

    rate: float | None
    limit: float | None
    why: str = ""
    apart: bool = False
    row: Measured | None = None

    @property
    def share(self) -> float | None:
        """What it carried of what it can; None where that says nothing of the link."""
        return None if self.why or self.rate is None or not self.limit else self.rate / self.limit


_UNMEASURED = Reached(None, None, "not measured")

Ends = tuple[Reached, Reached]
"""Out of the device (or the link's first end), and into it."""


@dataclasses.dataclass(frozen=True)
class NodeRates:
    """All links of a node. `ports` and `host` are by device, `links` by the two devices' ordinals, the lower first."""

    ports: Mapping[int, Ends]
    links: Mapping[tuple[int, int], Ends]
    host: Mapping[int, Ends]
    host_kinds: Mapping[int, str]
    basis: str
    host_basis: str

    @property
    def told(self) -> list[Reached]:
        """Every link and direction, in order."""
        return [one for part in (self.ports, self.links, self.host) for ends in part.values() for one in ends]


def node_rates(results: Results, limits: Limits, kinds: Kinds, pairs: FullPairs | None) -> NodeRates | None:
    """Return what the links of the run's system carried; None where no system is known, or several hosts took part.

    A port to a switch carried the most of what any pair brought through it, a link between two devices what the pair
    brought, each at the one size and by the one mechanism of `pairs`; a host link what the device's copies alone did.
    """
    system = limits.system
    if system is None or len(kinds.hosts) > 1:
        return None
    names = system.names_by_ordinal
    node_kinds = system.kinds
    ordinals = {name: ordinal for ordinal, name in names.items()}
    classes = Classes(system)
    rows = pairs.rows if pairs is not None else {}
    ports: dict[int, Ends] = {}
    links: dict[tuple[int, int], Ends] = {}
    for ordinal, name in names.items():
        to_switch: list[Link] = []
        beside: dict[int, list[Link]] = {}
        for link in system.links_of(name):
            if is_fabric(link, node_kinds):
                if node_kinds[link.other(name)] == "switch":
                    to_switch.append(link)
                elif ordinals[link.other(name)] > ordinal:
                    beside.setdefault(ordinals[link.other(name)], []).append(link)
        if to_switch:
            out = _most(row for (a, _), row in rows.items() if a == ordinal)
            into = _most(row for (_, b), row in rows.items() if b == ordinal)
            ports[ordinal] = (_reached(out, _rate(to_switch, name)), _reached(into, _rate(to_switch, name, into=True)))
        for other, bundle in beside.items():
            forth, back = rows.get((ordinal, other)), rows.get((other, ordinal))
            links[ordinal, other] = (
                _reached(forth, _rate(bundle, name)),
                _reached(back, _rate(bundle, name, into=True)),
            )
    size = size_text(pairs.size) if pairs is not None else ""
    host, host_label, host_size = _host_links(results, limits, names)
    return NodeRates(
        _judged(ports, size, lambda ordinal, way: (way, classes.of([ordinal], scope="fabric"))),
        _judged(links, size, lambda ends, way: classes.of(ends[::-1] if way else ends, scope="fabric")),
        _judged(host, host_size, lambda ordinal, way: (way, classes.of([ordinal], scope="host"))),
        {ordinal: _host_kind(system, name, node_kinds) for ordinal, name in names.items()},
        f"{pairs.label}, {size}" if pairs is not None else "",
        f"{host_label}, {host_size}" if host_label else "",
    )


def _host_kind(system: System, name: str, node_kinds: Mapping[str, str]) -> str:
    """Return the kind of link that leads from a device towards the hosts; empty where none does."""
    for link in system.links_of(name):
        if not is_fabric(link, node_kinds) and node_kinds[link.other(name)] in ("host", "switch"):
            return link.kind
    return ""


def _rate(bundle: Iterable[Link], name: str, into: bool = False) -> float | None:
    """Return the rate of some links of a node out of it, or into it; None where one is not known."""
    rates = [link.rate(link.other(name) if into else name) for link in bundle]
    return None if any(one is None for one in rates) else sum(one for one in rates if one is not None)


def _most(rows: Iterable[Measured]) -> Measured | None:
    return max(rows, key=lambda row: row.goodput, default=None)


def _reached(row: Measured | None, limit: float | None) -> Reached:
    if row is None:
        return dataclasses.replace(_UNMEASURED, limit=limit)
    return Reached(row.goodput, limit, "" if limit else "its rate is not known", row=row)


def _judged(found: Mapping[Key, Ends], size: str, key: Callable[[Key, int], Hashable]) -> dict[Key, Ends]:
    """Say of each class whether its links were filled, and which of them differ from the others.

    `key` gives the class of a link in one direction: 0 is its first end's way out.
    """
    classes: dict[Hashable, list[tuple[Key, int]]] = {}
    for one, ends in found.items():
        for way, end in enumerate(ends):
            if end.share is not None:
                classes.setdefault(key(one, way), []).append((one, way))
    judged = {one: list(ends) for one, ends in found.items()}
    for members in classes.values():
        known = [found[one][way] for one, way in members]
        filled = max(end.share or 0.0 for end in known) >= FILLED_SHARE
        rows = [end.row for end in known if end.row is not None]
        outside = apart([end.rate or 0.0 for end in known], rows) if filled else []
        for place, (one, way) in enumerate(members):
            why = "" if filled else f"{size} does not fill it"
            judged[one][way] = dataclasses.replace(known[place], why=why, apart=place in outside)
    return {one: (ends[0], ends[1]) for one, ends in judged.items()}


def _host_links(results: Results, limits: Limits, names: Mapping[int, str]) -> tuple[dict[int, Ends], str, str]:
    """Return what each device's own copies from and to pinned memory reached, at which size, and by what."""
    found: dict[int, list[Reached]] = {ordinal: [_UNMEASURED, _UNMEASURED] for ordinal in names}
    sizes, labels = set(), set()
    for pattern, way in _HOST.items():
        rows = host_copies(results, pattern)
        for ordinal, row in rows.items():
            bounds = [
                line.goodput_bytes_per_s
                for line in limits.of(row)
                if line.rule == "host_links" and line.kind == "upper bound" and line.goodput_bytes_per_s
            ]
            if ordinal in found:
                found[ordinal][way] = _reached(row, min(bounds, default=None))
                sizes.add(row.size)
                labels.add(results.label(row))
    basis = " and ".join(sorted(labels))
    return {ordinal: (ends[0], ends[1]) for ordinal, ends in found.items()}, basis, size_text(max(sizes, default=0))


def host_copies(results: Results, pattern: str) -> dict[int, Measured]:
    """Return each device's copy alone from or to pinned memory, by the best mechanism at its largest size."""
    rows = [
        row
        for row in results.rows
        if row.pattern == pattern
        and row.ranks == 1
        and {row.case.source_memory, row.case.target_memory} == {"device", "pinned"}
        and row.case.source_node == row.case.target_node == -1
        and not row.case.background
    ]
    return fullest(results, rows, lambda row: row.devices[0])
