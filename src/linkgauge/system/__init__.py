"""Systems: devices, hosts, switches, NICs and links as a graph, described in a file or discovered on this
machine.

What others call, without importing scipy, networkx or NVML until it is needed:

- `load(name_or_path) -> System`: a described system by name (`names()`), or a TOML or JSON file;
- `System.to_json()` and `System.from_json(text)`: the one written form, which can be edited and loaded back.

Mistakes in a description are `linkgauge.errors.UsageError` with one line that names the place.
"""

from __future__ import annotations

from linkgauge.system.catalog import from_toml, load, names
from linkgauge.system.model import Cap, Figure, Link, Network, Node, Published, System

__all__ = [
    "Cap",
    "Figure",
    "Link",
    "Network",
    "Node",
    "Published",
    "System",
    "from_toml",
    "load",
    "names",
]
