"""Writing a system: the JSON form, which is what a terse TOML description expands to, and run.json holds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from linkgauge.system import units
from linkgauge.system.model import NODE_KINDS, Figure, Node, Published, System

FORMAT = 1


def to_json(system: System) -> str:
    """Return the JSON form of a system: indented, in the order of the description, ending in a newline.

    >>> from linkgauge.system import load
    >>> json.loads(to_json(load("hgx-h100-8")))["name"]
    'hgx-h100-8'
    """
    return json.dumps(to_data(system), indent=1, ensure_ascii=False) + "\n"


def to_data(system: System) -> dict[str, Any]:
    """Return the JSON form as plain tables and lists, which `read` takes back; run.json holds it under `system`."""
    data: dict[str, Any] = {"format": FORMAT, "name": system.name, "title": system.title}
    if system.sources:
        data["sources"] = dict(system.sources)
    for kind in NODE_KINDS:
        nodes = [_plain(node) for node in system.of_kind(kind)]
        for node in nodes:
            del node["kind"]
        if nodes:
            data[kind] = nodes
    data["link"] = [_plain(link) for link in system.links]
    if system.network is not None:
        data["network"] = {"figures": {}, **_plain(system.network)}
    if system.published:
        data["published"] = [_with_value(entry) for entry in system.published]
    if system.caps:
        data["cap"] = [_plain(entry) for entry in system.caps]
    if system.accepted:
        data["accepted"] = [_plain(entry) for entry in system.accepted]
    if system.notes:
        data["notes"] = list(system.notes)
    if system.trays > 1:
        data["trays"] = system.trays
    return data


def _with_value(entry: Published) -> dict[str, Any]:
    table: dict[str, Any] = _plain(entry)
    value = table.pop("value")
    table["latency" if entry.value.unit == units.TIME else "rate"] = value
    return table


def _plain(item: object) -> Any:
    """Return dataclasses as tables without what is absent or empty."""
    if isinstance(item, Figure):
        return {
            "value": _tidy(item.value),
            "unit": item.unit,
            "provenance": item.provenance,
            "source": item.source,
        }
    if dataclasses.is_dataclass(item):
        fields = {f.name: (getattr(item, f.name), f.default) for f in dataclasses.fields(item)}
        return {
            key: _plain(value)
            for key, (value, default) in fields.items()
            # A switch that does not route differs from what a switch is taken to do, so it is written.
            if (value != default or (key == "routes" and isinstance(item, Node) and item.kind == "switch"))
            and value not in (None, {}, ())
        }
    if isinstance(item, Mapping):
        return {key: _plain(value) for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        return [_plain(value) for value in item]
    return item


def _tidy(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < 2**53 else value
