"""The two written forms of a system: TOML, as people describe machines, and JSON, as discovery dumps them.

Both hold the same entries and are read by the same code. TOML may be terse (ranges of names, meshes, one
source for all figures of an entry); JSON is what TOML expands to (`linkgauge.system.dump` writes it). Every mistake is
a `UsageError` of one line that names the place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import clean
from linkgauge.model.transports import TRANSPORTS
from linkgauge.system import units
from linkgauge.system.dump import FORMAT
from linkgauge.system.model import (
    LINK_KINDS,
    NODE_KINDS,
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
from linkgauge.system.shipped import names, text_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NODE_FIGURES = {
    "memory_bytes": units.SIZE,
    "memory_rate": units.RATE,
    "cache_bytes": units.SIZE,
    "copy_rate": units.RATE,
    "cycle": units.TIME,
    "throughput": units.RATE,
    "port_rate": units.RATE,
}
_LINK_FIGURES = {
    "signalling_rate": units.RATE,
    "data_rate": units.RATE,
    "back_rate": units.RATE,
    "possible_rate": units.RATE,
    "payload_share": units.COUNT,
}
_NODE_PLAIN: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "vendor": str,
    "ordinal": int,
    "package": str,
    "numa": int,
    "cores": str,
    "multicast": bool,
    "reduction": bool,
    "routes": bool,
}
_TOP = {
    "format",
    "name",
    "title",
    "source",
    "sources",
    "network",
    "published",
    "cap",
    "accepted",
    "accepted_of",
    "notes",
    "link",
    *NODE_KINDS,
}
_RANGE = re.compile(r"^(.*?)(\d{1,9})\.\.(?:(.*?))(\d{1,9})$")
# Beyond any machine: ranges and meshes are short to write, and a stranger's file must not fill the memory. They are
# looked at before anything is expanded; 100 000 links take half a second and 100 MB.
_MAX_NODES = 10_000
_MAX_LINKS = 100_000
_MAX_SIDE_BY_SIDE = 1_000_000
_DEEPEST = 16
_MOST_TABLES = 400_000  # looking at each takes a second
_WHOLE_BITS = 63
# What a figure may be, by unit. Cuts are computed on whole bytes per second, so that less than one would be none; and
# the sum of all links that a system may have must stay a number.
_WITHIN = {
    units.RATE: (1.0, 1e18),
    units.SIZE: (1.0, 1e21),
    units.TIME: (1e-6, 1e18),
    units.COUNT: (1e-9, 1e15),
}


class _Reader:
    """Reads one entry at a time and knows how to name it in an error."""

    def __init__(self, place: str, sources: Mapping[str, str], default_source: str | None) -> None:
        self.place = place
        self.sources = sources
        self.default_source = default_source
        self.nodes = 0
        self.links = 0

    def fail(self, where: str, why: str) -> UsageError:
        return UsageError(f"{self.place}: {where}: {why}")

    def only(self, where: str, entry: Mapping[str, Any], known: Iterable[str]) -> None:
        known = set(known)
        for key in entry:
            if key not in known:
                raise self.fail(where, f"unknown key {key!r}; known are {', '.join(sorted(known))}")

    def figure(
        self, where: str, key: str, raw: object, unit: str, source: str | None, provenance: str | None = None
    ) -> Figure:
        provenance = provenance or "described"
        if isinstance(raw, Mapping):
            self.only(f"{where}: {key}", raw, ("value", "unit", "provenance", "source"))
            if "value" not in raw:
                raise self.fail(where, f"{key}: has no value")
            if raw.get("unit", unit) != unit:
                raise self.fail(where, f"{key}: unknown unit {raw['unit']!r}; a bare value is in {unit}")
            provenance = raw.get("provenance", provenance)
            source = raw.get("source", source)
            raw = raw["value"]
        try:
            value = units.parse(raw, unit)
        except ValueError as error:
            raise self.fail(where, f"{key}: {error}") from None
        if value <= 0:
            raise self.fail(where, f"{key}: {raw!r} is not above 0; leave an unknown figure out")
        least, most = _WITHIN[unit]
        if not least <= value <= most:
            suffix = "" if unit == units.COUNT else f" {unit}"
            raise self.fail(where, f"{key}: {raw!r} is beyond any machine; expected {least:g} to {most:g}{suffix}")
        if unit == units.COUNT and key == "payload_share" and value > 1:
            raise self.fail(where, f"{key}: {raw!r} is a share and cannot be above 1")
        if provenance not in PROVENANCES:
            raise self.fail(where, f"{key}: provenance {provenance!r} is none of {', '.join(PROVENANCES)}")
        source = source if source is not None else self.default_source
        if source is None:
            raise self.fail(where, f'{key}: has no source; add source = "..." here, to the entry or to the file')
        if not isinstance(source, str):
            raise self.fail(where, f"{key}: source is no text")
        return Figure(value, unit, provenance, self.sources.get(source, source))

    def text(self, where: str, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key)
        if not isinstance(value, str) or not value:
            raise self.fail(where, f"{key} is missing or no text")
        return value

    def text_or_none(self, where: str, entry: Mapping[str, Any], key: str) -> str | None:
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fail(where, f"{key}: {value!r} is no text")
        return value

    def typed(self, where: str, key: str, value: object, kind: type | tuple[type, ...]) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            name = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
            raise self.fail(where, f"{key}: {value!r} is no {name}")
        return value

    def whole(self, where: str, key: str, value: object, least: int, most: int | None = None) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(where, f"{key}: {value!r} is no whole number of at least {least}")
        if most is not None and value > most:
            raise self.fail(where, f"{key}: {value!r} is beyond any machine; expected {least} to {most}")
        return value

    def one_of(self, where: str, key: str, value: str, known: Iterable[str]) -> str:
        if value not in known:
            raise self.fail(where, f"{key}: {value!r} is none of {', '.join(known)}")
        return value

    def add_nodes(self, where: str, count: int) -> None:
        """Count nodes before they are made; ranges of too many are refused."""
        self.nodes += count
        if self.nodes > _MAX_NODES:
            what = f"{self.nodes} devices, hosts, switches and nics"
            raise self.fail(where, f"brings the description to {what}; expected at most {_MAX_NODES}")

    def add_links(self, where: str, count: int) -> None:
        """Count links before they are made; meshes of too many are refused."""
        self.links += count
        if self.links > _MAX_LINKS:
            raise self.fail(where, f"brings the description to {self.links} links; expected at most {_MAX_LINKS}")


def _span(name: str) -> tuple[str, int, int]:
    """Return what a range stands for: the prefix, the first number and how many; `(name, 0, 0)` for a name alone."""
    found = _RANGE.match(name)
    if found is None:
        return name, 0, 0
    prefix, first, again, last = found.groups()
    if again not in ("", prefix) or int(last) < int(first):
        return name, 0, 0
    return prefix, int(first), int(last) - int(first) + 1


def count_of(name: str) -> int:
    """Return for how many names one stands, without making them."""
    return _span(name)[2] or 1


def expand(name: str) -> list[str]:
    """Return the names that a range such as `gpu0..7` or `gpu0..gpu7` stands for, or the name alone.

    Who asks looks at `count_of` first: a range of eight letters may stand for a hundred million.
    """
    prefix, first, count = _span(name)
    return [f"{prefix}{number}" for number in range(first, first + count)] if count else [name]


def _check_plain(data: Mapping[str, Any], place: str) -> None:
    """Refuse what no entry may hold, wherever it is: endless nesting, numbers beyond 64 bits, what a terminal obeys.

    Python refuses to print a number of thousands of digits, also in an error. Without recursion: dotted keys nest
    without end in TOML.
    """
    count = 0
    path: list[object] = []
    open_: list[Iterator[tuple[object, object]]] = [_entries(data)]
    while open_:
        for name, value in open_[-1]:
            if isinstance(name, str) and clean(name) != name:
                raise UsageError(f"{place}: {_place((*path, name))}: a name with control characters")
            if isinstance(value, str):
                if clean(value) != value:
                    raise UsageError(f"{place}: {_place((*path, name))}: a text with control characters")
                continue
            if isinstance(value, (dict, list)):  # what parsers make; to ask for Mapping takes ten times as long
                path.append(name)
                open_.append(_entries(value))
                count += 1
                if count > _MOST_TABLES:
                    raise UsageError(f"{place}: {_place(path)}: more than {_MOST_TABLES} tables and lists in all")
                if len(open_) > _DEEPEST:
                    raise UsageError(f"{place}: {_place(path)}: nested more than {_DEEPEST} deep, as no entry is")
                break
            why = ""
            if isinstance(value, bool):
                continue
            if isinstance(value, int) and value.bit_length() > _WHOLE_BITS:
                why = "a whole number beyond every quantity; expected one of 64 bits"
            elif isinstance(value, float) and not math.isfinite(value):
                why = f"{value} is not finite; leave an unknown figure out"
            if why:
                raise UsageError(f"{place}: {_place((*path, name))}: {why}")
        else:
            open_.pop()
            del path[-1:]


def _entries(value: Mapping[str, object] | list[object]) -> Iterator[tuple[object, object]]:
    return enumerate(value) if isinstance(value, list) else iter(value.items())


def _place(path: Iterable[object]) -> str:
    """Return where something stands: `link 0: count`."""
    return "".join(f" {name}" if isinstance(name, int) else f": {name}" for name in path)[2:]


def read(data: Mapping[str, Any], place: str) -> System:
    """Build and check a system from the parsed TOML or JSON of `place` (a file name, for errors)."""
    _check_plain(data, place)
    raw_sources = data.get("sources", {})
    if not isinstance(raw_sources, Mapping) or not all(isinstance(v, str) for v in raw_sources.values()):
        raise UsageError(f"{place}: sources: must be a table of texts")
    reader = _Reader(place, raw_sources, data.get("source"))
    reader.only("file", data, _TOP)
    if data.get("format", FORMAT) != FORMAT:
        raise reader.fail("format", f"{data['format']!r} is not read by this version, which reads {FORMAT}")
    nodes: list[Node] = []
    for kind in NODE_KINDS:
        for index, entry in enumerate(_tables(reader, data, kind)):
            nodes.extend(_nodes(reader, kind, index, entry))
    nodes = _ordinals(reader, nodes)
    seen: dict[str, str] = {}
    for node in nodes:
        if node.name in seen:
            raise reader.fail(f"{node.kind} {node.name}", f"a {seen[node.name]} of this name is there already")
        seen[node.name] = node.kind
    if not nodes:
        raise reader.fail("file", "describes no device, host, switch or nic")
    links: list[Link] = []
    for index, entry in enumerate(_tables(reader, data, "link")):
        links.extend(_links(reader, index, entry, seen))
    devices = sum(node.kind == "device" for node in nodes)
    return System(
        name=reader.text("file", data, "name"),
        title=reader.text_or_none("file", data, "title") or str(data["name"]),
        nodes=tuple(nodes),
        links=tuple(links),
        sources=dict(raw_sources),
        network=_network(reader, data["network"]) if "network" in data else None,
        published=tuple(_published(reader, i, e, devices) for i, e in enumerate(_tables(reader, data, "published"))),
        caps=tuple(_cap(reader, i, e) for i, e in enumerate(_tables(reader, data, "cap"))),
        accepted=(
            *(one for i, e in enumerate(_tables(reader, data, "accepted")) for one in _accepted(reader, i, e)),
            *_accepted_of(reader, data),
        ),
        notes=tuple(str(note) for note in reader.typed("file", "notes", data.get("notes", []), list)),
    )


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


def _tables(reader: _Reader, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    tables = data.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise reader.fail(key, f"must be a list of tables ([[{key}]])")
    return tables


def _nodes(reader: _Reader, kind: str, index: int, entry: Mapping[str, Any]) -> list[Node]:
    where = f"{kind} {entry.get('name', index)}"
    reader.only(where, entry, ("name", "source", "at", "identity", *_NODE_FIGURES, *_NODE_PLAIN))
    name = reader.text(where, entry, "name")
    reader.add_nodes(where, count_of(name))
    names = expand(name)
    source = entry.get("source")
    figures: dict[str, Any] = {
        key: reader.figure(where, key, entry[key], unit, source) for key, unit in _NODE_FIGURES.items() if key in entry
    }
    plain = {key: reader.typed(where, key, entry[key], t) for key, t in _NODE_PLAIN.items() if key in entry}
    if kind == "switch":
        plain.setdefault("routes", True)
    if len(names) > 1 and "ordinal" in plain:
        raise reader.fail(where, "ordinal: a range of names cannot have one ordinal")
    places = _places(reader, where, entry.get("at"), len(names))
    identity = entry.get("identity", {})
    if not isinstance(identity, Mapping):
        raise reader.fail(where, "identity: must be a table of texts")
    identity = {str(key): str(value) for key, value in identity.items()}
    return [
        Node(name=name, kind=kind, at=at, identity=identity, **plain, **figures)
        for name, at in zip(names, places, strict=True)
    ]


def _places(reader: _Reader, where: str, raw: object, count: int) -> list[tuple[float, float] | None]:
    """Return a place for each name: none, one `[x, y]`, or for a range a list of them or `{start, step,
    columns}`."""
    if raw is None:
        return [None] * count
    if isinstance(raw, Mapping):
        reader.only(f"{where}: at", raw, ("start", "step", "columns", "rows"))
        try:
            (x, y), (dx, dy) = raw["start"], raw["step"]
            if "rows" in raw:
                rows = int(raw["rows"])
                return [(float(x + i // rows * dx), float(y + i % rows * dy)) for i in range(count)]
            columns = int(raw.get("columns", count))
            return [(float(x + i % columns * dx), float(y + i // columns * dy)) for i in range(count)]
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise reader.fail(where, "at: needs start = [x, y], step = [dx, dy] and may have columns") from None
    try:
        pairs = raw if isinstance(raw, list) and raw and isinstance(raw[0], list) else [raw]
        places = [(float(x), float(y)) for x, y in pairs]  # type: ignore[misc]
        if not all(math.isfinite(x) and math.isfinite(y) for x, y in places):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise reader.fail(where, f"at: {raw!r} is no place; write [x, y]") from None
    if len(places) != count:
        raise reader.fail(where, f"at: {len(places)} places for {count} names")
    return list(places)


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


def _links(reader: _Reader, index: int, entry: Mapping[str, Any], known: Mapping[str, str]) -> list[Link]:
    where = f"link {index}"
    plain = (
        "a",
        "b",
        "pairs",
        "mesh",
        "from",
        "to",
        "kind",
        "count",
        "version",
        "width",
        "max_payload_bytes",
        "source",
    )
    pairs = _pairs(reader, where, entry)
    if len(pairs) == 1:
        where = f"link {index} ({pairs[0][0]} - {pairs[0][1]})"
    reader.only(where, entry, (*plain, *_LINK_FIGURES))
    kind = reader.text(where, entry, "kind")
    if kind not in LINK_KINDS:
        raise reader.fail(where, f"kind: {kind!r} is none of {', '.join(LINK_KINDS)}")
    source = entry.get("source")
    figures = {
        key: reader.figure(where, key, entry[key], unit, source) for key, unit in _LINK_FIGURES.items() if key in entry
    }
    signalling, data = figures.get("signalling_rate"), figures.get("data_rate")
    if signalling and data and data.value > signalling.value * (1 + 1e-9):
        raise reader.fail(where, "data_rate is above signalling_rate; data is what coding leaves of the signal")
    count = reader.whole(where, "count", entry.get("count", 1), 1, _MAX_SIDE_BY_SIDE)
    width = reader.whole(where, "width", entry["width"], 1, _MAX_SIDE_BY_SIDE) if "width" in entry else None
    payload = None
    if "max_payload_bytes" in entry:
        payload = reader.whole(where, "max_payload_bytes", entry["max_payload_bytes"], 64)
    version = str(reader.typed(where, "version", entry["version"], (str, int, float))) if "version" in entry else None
    links = []
    for a, b in pairs:
        for end in (a, b):
            if end not in known:
                raise reader.fail(
                    f"link {index} ({a} - {b})", f"ends at {end!r}, which no device, host, switch or nic is"
                )
        if a == b:
            raise reader.fail(f"link {index} ({a} - {b})", "joins a node to itself")
        links.append(
            Link(
                a=a,
                b=b,
                kind=kind,
                count=count,
                version=version,
                width=width,
                max_payload_bytes=payload,
                **figures,
            )
        )
    return links


def _pairs(reader: _Reader, where: str, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ends of each link: `a` and `b`, a list of `pairs`, a `mesh` of names, or all of `from`
    with all of `to`."""
    ways = [way for way in ("a", "pairs", "mesh", "from") if way in entry]
    if len(ways) != 1:
        raise reader.fail(where, "needs one of: a and b; pairs; mesh; from and to")
    try:
        if ways == ["a"]:
            reader.add_links(where, 1)
            return [(reader.text(where, entry, "a"), reader.text(where, entry, "b"))]
        if ways == ["pairs"]:
            listed: list[tuple[str, str]] = []
            for a, b in entry["pairs"]:
                if count_of(a) != count_of(b):
                    raise reader.fail(where, f"pairs: {a!r} and {b!r} are ranges of different lengths")
                reader.add_links(where, count_of(a))
                listed.extend(zip(expand(a), expand(b), strict=True))
            return listed
        if ways == ["mesh"]:
            names = _names(reader, where, "mesh", entry["mesh"])
            reader.add_links(where, len(names) * (len(names) - 1) // 2)
            return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        sources, targets = (_names(reader, where, key, entry[key]) for key in ("from", "to"))
        reader.add_links(where, len(sources) * len(targets))
        return [(a, b) for a in sources for b in targets]
    except (TypeError, ValueError, KeyError, AttributeError):
        raise reader.fail(where, f"{ways[0]}: is no list of names; see docs/systems.md") from None


def _names(reader: _Reader, where: str, key: str, raw: Any) -> list[str]:
    listed = [raw] if isinstance(raw, str) else list(raw)
    count = sum(map(count_of, listed))
    if count > _MAX_NODES:
        raise reader.fail(where, f"{key}: stands for {count} names; expected at most {_MAX_NODES}")
    return [name for item in listed for name in expand(item)]


def _network(reader: _Reader, entry: Mapping[str, Any]) -> Network:
    if not isinstance(entry, Mapping):
        raise reader.fail("network", "must be a table")
    topology = reader.text("network", entry, "topology")
    if topology not in TOPOLOGIES:
        raise reader.fail("network", f"topology: {topology!r} is none of {', '.join(TOPOLOGIES)}")
    source = entry.get("source")
    raw = entry.get("figures")
    if raw is None:
        raw = {key: value for key, value in entry.items() if key not in ("topology", "name", "source")}
    figures = {
        key: reader.figure("network", key, value, units.RATE if key.endswith("_rate") else units.COUNT, source)
        for key, value in raw.items()
    }
    return Network(topology=topology, name=reader.text_or_none("network", entry, "name"), figures=figures)


def _value(reader: _Reader, where: str, entry: Mapping[str, Any]) -> Figure:
    for key, unit in (("rate", units.RATE), ("latency", units.TIME)):
        if key in entry:
            return reader.figure(where, key, entry[key], unit, entry.get("source"))
    raise reader.fail(where, "needs a rate or a latency")


def _transport(reader: _Reader, where: str, entry: Mapping[str, Any]) -> str | None:
    transport = reader.text_or_none(where, entry, "transport")
    return None if transport is None else reader.one_of(where, "transport", transport, TRANSPORTS)


def _published(reader: _Reader, index: int, entry: Mapping[str, Any], count: int) -> Published:
    where = f"published {entry.get('rule', index)}"
    known = ("rule", "pattern", "rate", "latency", "transport", "devices", "nodes", "note", "source")
    reader.only(where, entry, known)
    devices = entry.get("devices")
    if devices is not None:
        for device in reader.typed(where, "devices", devices, list):
            if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < count:
                raise reader.fail(where, f"devices: there is no device {device!r}")
    return Published(
        rule=reader.text(where, entry, "rule"),
        pattern=reader.one_of(where, "pattern", reader.text(where, entry, "pattern"), PATTERNS),
        value=_value(reader, where, entry),
        transport=_transport(reader, where, entry),
        devices=None if devices is None else tuple(devices),
        nodes=reader.whole(where, "nodes", entry["nodes"], 1) if "nodes" in entry else None,
        note=reader.text_or_none(where, entry, "note"),
    )


def _cap(reader: _Reader, index: int, entry: Mapping[str, Any]) -> Cap:
    where = f"cap {entry.get('transport', index)}"
    reader.only(where, entry, ("transport", "rate", "note", "source"))
    return Cap(
        transport=reader.one_of(where, "transport", reader.text(where, entry, "transport"), TRANSPORTS),
        rate=_value(reader, where, entry),
        note=reader.text_or_none(where, entry, "note"),
    )


def _accepted(reader: _Reader, index: int, entry: Mapping[str, Any]) -> list[Accepted]:
    """Return the shares of one entry: one from a size on, or `shares`, a table of them by size."""
    where = f"accepted {entry.get('kind', index)}"
    known = ("kind", "share", "size", "shares", "transport", "pattern", "ranks", "note", "provenance", "source")
    reader.only(where, entry, known)
    kind = reader.text(where, entry, "kind")
    if kind not in LINK_KINDS:
        raise reader.fail(where, f"unknown link kind {kind!r}; known are {', '.join(LINK_KINDS)}")
    shares = entry.get("shares")
    if (shares is None) == ("share" not in entry) or (shares is not None and "size" in entry):
        raise reader.fail(where, "needs a share (with its size), or shares by size")
    if shares is not None and not isinstance(shares, Mapping):
        raise reader.fail(where, "shares: must be a table of shares by size")
    by_size = [(entry.get("size", "1 MiB"), entry["share"])] if shares is None else list(shares.items())
    pattern = reader.text_or_none(where, entry, "pattern")
    common = {
        "transport": _transport(reader, where, entry),
        "pattern": None if pattern is None else reader.one_of(where, "pattern", pattern, PATTERNS),
        "note": reader.text_or_none(where, entry, "note"),
    }
    ranks = None if "ranks" not in entry else reader.typed(where, "ranks", entry["ranks"], int)
    found = []
    for size, raw in by_size:
        share = reader.figure(where, "share", raw, units.COUNT, entry.get("source"), entry.get("provenance"))
        if not 0 < share.value <= 1:
            raise reader.fail(where, f"share: {share.value:g} is not above 0 and at most 1")
        least = reader.figure(where, "size", size, units.SIZE, entry.get("source"), entry.get("provenance"))
        found.append(Accepted(kind=kind, share=share, size=least, ranks=ranks, **common))
    return found


def _accepted_of(reader: _Reader, data: Mapping[str, Any]) -> tuple[Accepted, ...]:
    """Return the shares of the described system that `accepted_of` names, whose own they are."""
    name = reader.text_or_none("file", data, "accepted_of")
    if name is None:
        return ()
    if name not in names() or name == data.get("name"):
        raise reader.fail("accepted_of", f"{name!r} is no other described system")
    return from_toml(text_of(name), f"{name}.toml").accepted


def from_json(text: str, place: str = "system") -> System:
    """Read the JSON form; `UsageError` names `place`, and the line where it is no JSON."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place}: line {error.lineno}: is no JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits; nested too deeply
        raise UsageError(f"{place}: is no JSON ({error})") from None
    if not isinstance(data, Mapping):
        raise UsageError(f"{place}: is no system: the outermost thing must be an object")
    return read(data, place)


def from_toml(text: str, place: str = "system") -> System:
    """Read the TOML form; `UsageError` names `place` and the entry or line that is wrong."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own, and a number of too many digits
        raise UsageError(f"{place}: is no TOML: {error}") from None
    return read(data, place)
