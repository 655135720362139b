"""The two written forms of a system: TOML, as people describe machines, and JSON, as discovery dumps them.

Both hold the same entries and are read by the same tables of shapes. TOML may be terse (ranges of names, meshes, one
source for all figures of an entry); JSON is what TOML expands to (`linkgauge.system.dump` writes it). Every mistake is
a `UsageError` of one line that names the place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import (
    Shape,
    anything,
    as_it_is,
    checked,
    each,
    flag,
    label,
    mapping,
    number,
    one_of,
    one_or_more,
    only,
    parsed,
    parsed_toml,
    plain,
    table,
    tables,
    whole,
)
from linkgauge.model.transports import TRANSPORTS
from linkgauge.system import units
from linkgauge.system.based import NODE_FIGURES, other_of, with_others
from linkgauge.system.dump import FORMAT
from linkgauge.system.model import (
    ALGORITHMS,
    LINK_KINDS,
    NODE_KINDS,
    ORIGINS,
    PROVENANCES,
    TOPOLOGIES,
    Accepted,
    Cap,
    Figure,
    Link,
    Network,
    Node,
    Published,
    System,
)
from linkgauge.system.ranges import count_of, expand
from linkgauge.system.shipped import text_of

# Beyond any machine: ranges and meshes are short to write, and a stranger's file must not fill the memory. They are
# looked at before anything is expanded; 100 000 links take half a second and 100 MB.
_MAX_NODES = 10_000
_MOST = {"devices, hosts, switches and nics": _MAX_NODES, "links": 100_000}
_MAX_SIDE_BY_SIDE = 1_000_000


# --- shapes ----------------------------------------------------------------------------------------------------------


def _figure(unit: str, most: float | None = None) -> Shape:
    """A figure: its value alone, or a table that also says where it comes from. Gives such a table, with the unit."""
    least, largest = units.WITHIN[unit]
    value_of = units.quantity(unit, least, most or largest)
    full = only(
        {"value": value_of, "unit": one_of((unit,)), "provenance": one_of(PROVENANCES), "source": plain}, ("value",)
    )

    def read(value: Any, at: str) -> dict[str, Any]:
        said = full(value, at) if isinstance(value, dict) else {"value": value_of(value, at)}
        return {**said, "unit": unit}

    return read


_RATE, _SIZE, _TIME, _COUNT = _figure(units.RATE), _figure(units.SIZE), _figure(units.TIME), _figure(units.COUNT)
_SHARE = _figure(units.COUNT, most=1.0)
_FROM_SIZE = _SIZE("1 MiB", "size")  # shares hold from here on where a description does not say it
_PLACE = each(number(), 2, 2)
_GRID = only(
    {"start": _PLACE, "step": _PLACE, "columns": whole(1, _MAX_NODES), "rows": whole(1, _MAX_NODES)}, ("start", "step")
)


def _at(value: Any, at: str) -> Any:
    """A place, a list of them, or for a range of names `{start, step, columns}`."""
    if isinstance(value, dict):
        return _GRID(value, at)
    several = isinstance(value, list) and any(isinstance(one, list) for one in value)
    return each(_PLACE)(value if several else [value], at)


def _version(value: Any, at: str) -> str:
    return str(anything(value, at)) if type(value) in (int, float) else plain(value, at)


def _by_size(value: Any, at: str) -> list[tuple[Any, Any]]:
    """Shares under the sizes from which they hold."""
    return [(_SIZE(size, f"{at}: size"), share) for size, share in mapping(_SHARE)(value, at).items()]


def _of_network(value: Any, at: str) -> dict[str, Any]:
    """A figure of any name: those that end in `_rate` are rates, in `_latency` times, the rest counts."""
    shape = _RATE if at.endswith("_rate") else _TIME if at.endswith("_latency") else _COUNT
    found: dict[str, Any] = shape(value, at)
    return found


_NODE_FIGURES = dict(zip(NODE_FIGURES, (_SIZE, _RATE, _SIZE, _RATE, _TIME, _RATE, _RATE), strict=True))
_NODE = {
    "name": label, "model": plain, "vendor": plain, "ordinal": whole(), "package": plain, "numa": whole(-1),
    "cores": plain, "multicast": flag, "reduction": flag, "routes": flag, "at": _at, "source": plain,
    "identity": mapping(plain, plain), **_NODE_FIGURES,
}  # fmt: skip
_LINK_FIGURES = {
    "signalling_rate": _RATE, "data_rate": _RATE, "back_rate": _RATE, "possible_rate": _RATE, "payload_share": _SHARE,
}  # fmt: skip
_LINK = {
    "kind": one_of(LINK_KINDS), "a": label, "b": label, "pairs": each(each(label, 2, 2)), "mesh": one_or_more(label),
    "from": one_or_more(label), "to": one_or_more(label), "count": whole(1, _MAX_SIDE_BY_SIDE), "version": _version,
    "width": whole(1, _MAX_SIDE_BY_SIDE), "max_payload_bytes": whole(64), "source": plain, **_LINK_FIGURES,
}  # fmt: skip
_ABOUT = {"transport": one_of(TRANSPORTS), "pattern": one_of(PATTERNS), "note": plain, "source": plain}
_ENTRIES: dict[str, Shape] = {
    **dict.fromkeys(NODE_KINDS, only(_NODE, ("name",))),
    "link": only(_LINK, ("kind",)),
    "published": only(
        {"rule": label, "rate": _RATE, "latency": _TIME, "devices": each(whole()), "nodes": whole(1), **_ABOUT},
        ("rule", "pattern"),
    ),
    "cap": only({"rate": _RATE, **_ABOUT}, ("transport", "rate")),
    "accepted": only(
        {"kind": one_of(LINK_KINDS), "share": _SHARE, "size": _SIZE, "shares": _by_size, "ranks": whole(1),
         "provenance": one_of(PROVENANCES), "origin": one_of(ORIGINS), "algorithm": one_of(ALGORITHMS),
         "nodes": whole(2), "initiator": one_of(("sender", "receiver")), "library": plain, "date": plain,
         "condition": plain, **_ABOUT},
        ("kind",),
    ),
}  # fmt: skip
_NETWORK = table(
    {"topology": one_of(TOPOLOGIES), "name": plain, "source": plain, "figures": mapping(_of_network, plain)},
    rest=_of_network,
    needed=("topology",),
)
_SYSTEM = only(
    {"format": whole(FORMAT, FORMAT), "name": label, "title": plain, "source": plain, "sources": mapping(plain, plain),
     "network": _NETWORK, "notes": each(plain), "accepted_of": plain, "node_of": plain, "based_on": plain,
     "trays": whole(1),
     **dict.fromkeys(_ENTRIES, tables)},
    ("name",),
)  # fmt: skip
_OF_ACCEPTED = ("kind", "transport", "pattern", "ranks", "nodes", "algorithm", "initiator", "library", "date", "origin",
                "note", "condition")  # fmt: skip
_NAMED_BY = {"published": "rule", "cap": "transport", "accepted": "kind"}  # the others by their name


# --- what shapes do not say ------------------------------------------------------------------------------------------


class _Reader:
    """Reads a description's entries and knows how to name each in an error."""

    def __init__(self, data: Mapping[str, Any], place: str) -> None:
        self.place = place
        self.data = with_others(checked(data, _SYSTEM, place), place)
        self.sources = self.data.get("sources", {})
        self.counts = dict.fromkeys(_MOST, 0)

    def fail(self, where: str, why: str) -> UsageError:
        return UsageError(f"{self.place}: {where}: {why}")

    def entries(self, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each entry of a kind with its name in errors."""
        for index, entry in enumerate(self.data.get(key, ())):
            name = entry.get(_NAMED_BY.get(key, "name"))
            where = f"{key} {name if isinstance(name, str) else index}"
            if key == "link" and isinstance(entry.get("a"), str) and isinstance(entry.get("b"), str):
                where += f" ({entry['a']} - {entry['b']})"
            yield where, checked(entry, _ENTRIES[key], f"{self.place}: {where}")

    def figure(self, where: str, key: str, said: Mapping[str, Any], entry: Mapping[str, Any]) -> Figure:
        """Return a figure with where it comes from: what it says itself, its entry, or the file."""
        source = said.get("source", entry.get("source", self.data.get("source")))
        if source is None:
            raise self.fail(where, f'{key}: has no source; add source = "..." here, to the entry or to the file')
        provenance = said.get("provenance", entry.get("provenance", "described"))
        return Figure(said["value"], said["unit"], provenance, self.sources.get(source, source))

    def figures(self, where: str, entry: Mapping[str, Any], known: Mapping[str, Shape]) -> dict[str, Any]:
        return {key: self.figure(where, key, entry[key], entry) for key in known if key in entry}

    def add(self, where: str, what: str, count: int) -> None:
        """Count nodes or links before they are made; ranges and meshes of too many are refused."""
        self.counts[what] += count
        if self.counts[what] > _MOST[what]:
            raise self.fail(
                where, f"brings the description to {self.counts[what]} {what}; expected at most {_MOST[what]}"
            )


def read(data: Mapping[str, Any], place: str) -> System:
    """Build and check a system from the parsed TOML or JSON of `place` (a file name, for errors)."""
    reader = _Reader(data, place)
    nodes = _ordinals(reader, [node for kind in NODE_KINDS for node in _nodes(reader, kind)])
    kinds: dict[str, str] = {}
    for node in nodes:
        if node.name in kinds:
            raise reader.fail(f"{node.kind} {node.name}", f"a {kinds[node.name]} of this name is there already")
        kinds[node.name] = node.kind
    if not nodes:
        raise reader.fail("file", "describes no device, host, switch or nic")
    said = reader.data
    return System(
        name=said["name"],
        title=said.get("title") or said["name"],
        nodes=tuple(nodes),
        links=tuple(link for where, entry in reader.entries("link") for link in _links(reader, where, entry, kinds)),
        sources=reader.sources,
        network=_network(reader, said["network"]) if "network" in said else None,
        published=tuple(_published(reader, nodes)),
        caps=tuple(
            Cap(entry["transport"], reader.figure(where, "rate", entry["rate"], entry), entry.get("note"))
            for where, entry in reader.entries("cap")
        ),
        accepted=(*_accepted(reader), *_accepted_of(reader)),
        notes=tuple(said.get("notes", ())),
        trays=_trays(reader, sum(node.kind == "device" for node in nodes)),
    )


def _trays(reader: _Reader, devices: int) -> int:
    trays: int = reader.data.get("trays", 1)
    if trays > 1 and devices % trays:
        raise reader.fail("file", f"trays: {devices} devices are not {trays} equal parts")
    return trays


def refuse_twice(system: System, place: str) -> None:
    """UsageError for a link that is described twice: rates of both would be summed without a word.

    Links side by side are one entry with a count. Bundles that differ in kind, version, width or rate may share ends.
    """
    seen: set[object] = set()
    for link in system.links:
        a, b = sorted((link.a, link.b))
        key = (a, b, link.kind, link.version, link.width, link.rate(a), link.rate(b))
        if key in seen:
            raise UsageError(f"{place}: link ({link.a} - {link.b}): is there twice; use count for links side by side")
        seen.add(key)


def _nodes(reader: _Reader, kind: str) -> Iterator[Node]:
    for where, entry in reader.entries(kind):
        reader.add(where, "devices, hosts, switches and nics", count_of(entry["name"]))
        called = expand(entry["name"])
        if len(called) > 1 and "ordinal" in entry:
            raise reader.fail(where, "ordinal: a range of names cannot have one ordinal")
        same = {key: value for key, value in entry.items() if key not in ("name", "at", "source")}
        same |= reader.figures(where, entry, _NODE_FIGURES)
        if kind == "switch":
            same.setdefault("routes", True)
        for name, at in zip(called, _places(reader, where, entry.get("at"), len(called)), strict=True):
            yield Node(name=name, kind=kind, at=at, **same)


def _places(reader: _Reader, where: str, said: Any, count: int) -> list[tuple[float, float] | None]:
    """Return a place for each name."""
    if said is None:
        return [None] * count
    if isinstance(said, dict):
        (x, y), (dx, dy) = said["start"], said["step"]
        rows, columns = said.get("rows", 1), said.get("columns", count)
        cells = [divmod(i, rows) if "rows" in said else divmod(i, columns)[::-1] for i in range(count)]
        return [(x + i * dx, y + j * dy) for i, j in cells]
    if len(said) != count:
        raise reader.fail(where, f"at: {len(said)} places for {count} names")
    return [(x, y) for x, y in said]


def _ordinals(reader: _Reader, nodes: list[Node]) -> list[Node]:
    """Number devices in the order of the description where it states no ordinals; all or none may be
    stated."""
    devices = [node for node in nodes if node.kind == "device"]
    stated = [node for node in devices if node.ordinal is not None]
    if stated and len(stated) != len(devices):
        lacking = next(node.name for node in devices if node.ordinal is None)
        raise reader.fail(f"device {lacking}", "has no ordinal while others have one")
    if stated:
        if sorted(node.ordinal or 0 for node in devices) != list(range(len(devices))):
            raise reader.fail("device", f"ordinals must be 0 to {len(devices) - 1}, each once")
        return nodes
    count = iter(range(len(devices)))
    return [dataclasses.replace(n, ordinal=next(count)) if n.kind == "device" else n for n in nodes]


def _links(reader: _Reader, where: str, entry: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[Link]:
    figures = reader.figures(where, entry, _LINK_FIGURES)
    signaling, data = figures.get("signalling_rate"), figures.get("data_rate")
    if signaling and data and data.value > signaling.value * (1 + 1e-9):
        raise reader.fail(where, "data_rate is above signalling_rate; data is what coding leaves of the signal")
    same = {key: entry[key] for key in ("kind", "count", "version", "width", "max_payload_bytes") if key in entry}
    for a, b in _pairs(reader, where, entry):
        named = where if "a" in entry else f"{where} ({a} - {b})"
        for end in (a, b):
            if end not in known:
                raise reader.fail(named, f"ends at {end!r}, which no device, host, switch or nic is")
        if a == b:
            raise reader.fail(named, "joins a node to itself")
        yield Link(a=a, b=b, **same, **figures)


def _pairs(reader: _Reader, where: str, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ends of each link: `a` and `b`, a list of `pairs`, a `mesh` of names, or all of `from`
    with all of `to`."""
    ways = [way for way in ("a", "pairs", "mesh", "from") if way in entry]
    other = {"a": "b", "from": "to"}.get(ways[0], ways[0]) if len(ways) == 1 else ""
    if other not in entry:
        raise reader.fail(where, "needs one of: a and b; pairs; mesh; from and to")
    if ways == ["a"]:
        reader.add(where, "links", 1)
        return [(entry["a"], entry["b"])]
    if ways == ["pairs"]:
        listed: list[tuple[str, str]] = []
        for a, b in entry["pairs"]:
            if count_of(a) != count_of(b):
                raise reader.fail(where, f"pairs: {a!r} and {b!r} are ranges of different lengths")
            reader.add(where, "links", count_of(a))
            listed.extend(zip(expand(a), expand(b), strict=True))
        return listed
    sources, targets = (_names(reader, where, key, entry[key]) for key in (ways[0], other))
    mesh = ways == ["mesh"]
    reader.add(where, "links", len(sources) * (len(sources) - 1) // 2 if mesh else len(sources) * len(targets))
    return [(a, b) for i, a in enumerate(sources) for b in (targets[i + 1 :] if mesh else targets)]


def _names(reader: _Reader, where: str, key: str, listed: list[str]) -> list[str]:
    count = sum(map(count_of, listed))
    if count > _MAX_NODES:
        raise reader.fail(where, f"{key}: stands for {count} names; expected at most {_MAX_NODES}")
    return [name for item in listed for name in expand(item)]


def _network(reader: _Reader, entry: Mapping[str, Any]) -> Network:
    said = {key: value for key, value in entry.items() if key not in ("topology", "name", "source", "figures")}
    said |= entry.get("figures", {})
    figures = {key: reader.figure("network", key, one, entry) for key, one in said.items()}
    return Network(topology=entry["topology"], name=entry.get("name"), figures=figures)


def _published(reader: _Reader, nodes: list[Node]) -> Iterator[Published]:
    count = sum(node.kind == "device" for node in nodes)
    for where, entry in reader.entries("published"):
        value = reader.figures(where, entry, {"rate": _RATE, "latency": _TIME})
        if not value:
            raise reader.fail(where, "needs a rate or a latency")
        for device in entry.get("devices", ()):
            if device >= count:
                raise reader.fail(where, f"devices: there is no device {device}")
        same = {key: entry[key] for key in ("rule", "pattern", "transport", "nodes", "note") if key in entry}
        devices = tuple(entry["devices"]) if "devices" in entry else None
        yield Published(value=next(iter(value.values())), devices=devices, **same)


def _accepted(reader: _Reader) -> Iterator[Accepted]:
    """Yield the shares of each entry: one from a size on, or `shares`, a table of them by size."""
    for where, entry in reader.entries("accepted"):
        if ("shares" in entry) == ("share" in entry) or {"shares", "size"} <= entry.keys():
            raise reader.fail(where, "needs a share (with its size), or shares by size")
        by_size: list[Any] = entry["shares"] if "shares" in entry else [(entry.get("size", _FROM_SIZE), entry["share"])]
        same = {key: entry[key] for key in _OF_ACCEPTED if key in entry}
        for least, of in by_size:
            size, share = reader.figure(where, "size", least, entry), reader.figure(where, "share", of, entry)
            same.setdefault("origin", "here" if share.provenance == "measured" else "publication")
            yield Accepted(size=size, share=share, **same)


def _accepted_of(reader: _Reader) -> tuple[Accepted, ...]:
    """Return the shares of the described system that `accepted_of` names, whose own they are."""
    if "accepted_of" not in reader.data:
        return ()
    name = other_of(reader.data, "accepted_of", reader.place)
    return from_toml(text_of(name), f"{name}.toml").accepted


def from_json(text: str | bytes, place: str = "system") -> System:
    """Read the JSON form; `UsageError` names `place`, and the line where it is no JSON."""
    return read(parsed(text, as_it_is, place), place)


def from_toml(text: str | bytes, place: str = "system") -> System:
    """Read the TOML form; `UsageError` names `place` and the entry or line that is wrong."""
    return read(parsed_toml(text, place), place)
