"""Systems: devices, hosts, switches, NICs and links as a graph, described in a file or discovered on this
machine.

What others call, without importing scipy or NVML until it is needed:

- `load(name_or_path) -> System`: a described system by name (`names()`), or a TOML or JSON file;
- `discover(...) -> System`: the machine at hand, or a recorded one;
- `to_json(system)` and `from_json(text, place)`: the one written form, which can be edited and loaded back.

Mistakes in a description are `linkgauge.errors.UsageError` with one line that names the place.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linkgauge.system.catalog import load
    from linkgauge.system.discovery import discover
    from linkgauge.system.dump import to_json
    from linkgauge.system.form import from_json, from_toml
    from linkgauge.system.model import Cap, Figure, Link, Network, Node, Published, System
    from linkgauge.system.shipped import names

__all__ = [
    "Cap",
    "Figure",
    "Link",
    "Network",
    "Node",
    "Published",
    "System",
    "discover",
    "from_json",
    "from_toml",
    "load",
    "names",
    "to_json",
]


_MODULES = {
    "catalog": ("load",),
    "discovery": ("discover",),
    "dump": ("to_json",),
    "form": ("from_json", "from_toml"),
    "model": ("Cap", "Figure", "Link", "Network", "Node", "Published", "System"),
    "shipped": ("names",),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a worker that reads counters by `system.sysfs` needs none of it."""
    for module, known in _MODULES.items():
        if name in known:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
