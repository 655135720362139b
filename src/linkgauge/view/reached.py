"""What each link of a node was seen to carry, of what it can: ports to switches, links between devices, host links."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from linkgauge.findings.filled import FILLED_SHARE
from linkgauge.system.classes import Classes
from linkgauge.system.model import is_fabric
from linkgauge.view.alike import Kinds, apart
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.full_pairs import FullPairs, fullest
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text

if TYPE_CHECKING:
    from linkgauge.system.model import Link, System

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
    row: Row | None = None

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


def node_rates(results: Results, ceilings: Ceilings, kinds: Kinds, pairs: FullPairs | None) -> NodeRates | None:
    """Return what the links of the run's system carried; None where no system is known, or several hosts took part.

    A port to a switch carried the most of what any pair brought through it, a link between two devices what the pair
    brought, each at the one size and by the one mechanism of `pairs`; a host link what the device's copies alone did.
    """
    system: System | None = ceilings.system
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
            out = _best(row for (a, _), row in rows.items() if a == ordinal)
            into = _best(row for (_, b), row in rows.items() if b == ordinal)
            ports[ordinal] = (_reached(out, _rate(to_switch, name)), _reached(into, _rate(to_switch, name, into=True)))
        for other, bundle in beside.items():
            forth, back = rows.get((ordinal, other)), rows.get((other, ordinal))
            links[ordinal, other] = (
                _reached(forth, _rate(bundle, name)),
                _reached(back, _rate(bundle, name, into=True)),
            )
    size = size_text(pairs.size) if pairs is not None else ""
    host, host_label, host_size = _host_links(results, ceilings, names)
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


def _best(rows: Iterable[Row]) -> Row | None:
    return max(rows, key=lambda row: row["goodput_bytes_per_s"], default=None)


def _reached(row: Row | None, limit: float | None) -> Reached:
    if row is None:
        return dataclasses.replace(_UNMEASURED, limit=limit)
    rate = float(row["goodput_bytes_per_s"])
    return Reached(rate, limit, "" if limit else "its rate is not known", row=row)


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


def _host_links(results: Results, ceilings: Ceilings, names: Mapping[int, str]) -> tuple[dict[int, Ends], str, str]:
    """Return what each device's own copies from and to pinned memory reached, at which size, and by what."""
    found: dict[int, list[Reached]] = {ordinal: [_UNMEASURED, _UNMEASURED] for ordinal in names}
    sizes, labels = set(), set()
    for pattern, way in _HOST.items():
        rows = host_copies(results, pattern)
        for ordinal, row in rows.items():
            bounds = [
                line.goodput_bytes_per_s
                for line in ceilings.of(row)
                if line.rule == "host_links" and line.kind == "bound" and line.goodput_bytes_per_s
            ]
            if ordinal in found:
                found[ordinal][way] = _reached(row, min(bounds, default=None))
                sizes.add(int(row["size"]))
                labels.add(results.label(row))
    basis = " and ".join(sorted(labels))
    return {ordinal: (ends[0], ends[1]) for ordinal, ends in found.items()}, basis, size_text(max(sizes, default=0))


def host_copies(results: Results, pattern: str) -> dict[int, Row]:
    """Return each device's copy alone from or to pinned memory, by the best mechanism at its largest size."""
    rows = [
        row
        for row in results.rows
        if row["pattern"] == pattern
        and len(row["devices"]) == 1
        and {row["source_memory"], row["target_memory"]} == {"device", "pinned"}
        and row["source_node"] == row["target_node"] == -1
        and not row["beside"]
    ]
    return fullest(results, rows, lambda row: int(row["devices"][0]))
