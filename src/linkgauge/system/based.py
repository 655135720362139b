"""Descriptions that take entries of others: `based_on`, of a machine of the same form; `node_of`, of a cluster node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.shape import parsed_toml
from linkgauge.system.model import NODE_KINDS
from linkgauge.system.shipped import names, text_of

ENTRIES = (*NODE_KINDS, "link", "published", "cap", "accepted")
"""The lists of a description."""
NODE_FIGURES = ("memory_bytes", "memory_rate", "cache_bytes", "copy_rate", "cycle", "throughput", "port_rate")


def other_of(said: Mapping[str, Any], key: str, place: str) -> str:
    """The described system that a key of a description names: another one."""
    name: str = said[key]
    if name not in names() or name == said["name"]:
        raise UsageError(f"{place}: {key}: {name[:60]!r} is no other described system")
    return name


def with_others(said: dict[str, Any], place: str, under: tuple[str, ...] = ()) -> dict[str, Any]:
    """The description with the entries of those that `based_on` and `node_of` name.

    Their sources and their files' source come with them, so that each figure keeps where it comes from. `under` are the
    descriptions that are being read, whose names may not come again.
    """
    if "based_on" in said:
        _base(said, _whole(said, "based_on", place, under))
    if "node_of" in said:
        other = _whole(said, "node_of", place, under)
        if "node_of" in other:
            raise UsageError(f"{place}: node_of: {said['node_of']!r} is itself of another system's nodes")
        said["sources"] = {**other.get("sources", {}), **said.get("sources", {})}
        if "accepted_of" in other:
            said.setdefault("accepted_of", other["accepted_of"])
        for key in ENTRIES:
            said[key] = [*_sourced(other, key), *said.get(key, [])]
    return said


def _whole(said: Mapping[str, Any], key: str, place: str, under: tuple[str, ...]) -> dict[str, Any]:
    """The entries of the described system that a key names, with those of the one that it is based on."""
    name = other_of(said, key, place)
    if name in under:
        raise UsageError(f"{place}: {key}: {name!r} is based on this description")
    other = parsed_toml(text_of(name), f"{name}.toml")
    return with_others(other, f"{name}.toml", (*under, said["name"])) if "based_on" in other else other


def _base(said: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Put the nodes and links of a base under a description's own.

    A node of the same name as one of the base adds to it and replaces figures of it. Links of its own replace all links
    of the base. Shares, published figures and the network are not taken over: they are of one machine.
    """
    said["sources"] = {**base.get("sources", {}), **said.get("sources", {})}
    for kind in NODE_KINDS:
        own: dict[str, dict[str, Any]] = {}
        wrong = []  # that have no name, or have one twice: kept, for their fault is named where entries are read
        for entry in said.get(kind, []):
            name = entry.get("name")
            if isinstance(name, str) and name not in own:
                own[name] = _with_source(entry, said.get("source"))
            else:
                wrong.append(entry)
        said[kind] = [{**entry, **own.pop(entry["name"], {})} for entry in _sourced(base, kind)]
        said[kind] += [*own.values(), *wrong]
    for kind in ("link", "cap"):
        said[kind] = said.get(kind) or _sourced(base, kind)


def _sourced(other: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The entries of a kind, their sources in full: short names may stand for others in the file that takes them."""
    known = other.get("sources", {})

    def full(said: dict[str, Any]) -> dict[str, Any]:
        inside = {name: full(value) if isinstance(value, dict) else value for name, value in said.items()}
        return {**inside, "source": known.get(said["source"], said["source"])} if "source" in said else inside

    default = {"source": other["source"]} if "source" in other else {}
    return [full({**default, **entry}) for entry in other.get(key, [])]


def _with_source(entry: Mapping[str, Any], source: str | None) -> dict[str, Any]:
    """An entry whose figures each state a source, so that they keep it beside figures of another file."""
    named = entry.get("source", source)
    figures = {
        key: {"source": named, **(value if isinstance(value, dict) else {"value": value})}
        for key, value in entry.items()
        if key in NODE_FIGURES and named is not None
    }
    return {**entry, **figures}
