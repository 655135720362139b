"""What the kernel's AMD driver says in /sys/class/kfd of devices, their memory and their xGMI links.

The numbers come from the driver's topology: `io_links/*/properties` has one entry for each reachable node, with the
link's type, its weight (15 a hop over xGMI, 13 inside a socket) and least and greatest rate in MB/s; the greatest over
the least is the number of links in the bundle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.model.shape import fitting, whole
from linkgauge.system.sysfs import name, number, numbered

_TYPE_PCIE = 2
_TYPE_XGMI = 11
_ONE_HOP = 15
_MOST_BUNDLED = 100  # links side by side: more is no bundle


@dataclass(frozen=True)
class KfdLink:
    """A direct link from one KFD node to another; rates in bytes per second and direction, None where not stated."""

    source: int
    target: int
    xgmi: bool
    weight: int
    link_rate: float | None
    count: int


@dataclass(frozen=True)
class KfdNode:
    """A node of the driver's topology: a device (`gpu_id` not 0) or a processor."""

    number: int
    gpu_id: int
    name: str | None
    address: str | None
    unique_id: str | None
    memory_bytes: int | None
    memory_rate: float | None
    cache_bytes: int | None
    clock_mhz: int | None


_WORD = whole(0, (1 << 32) - 1)
_PROPERTIES = {
    "size_in_bytes": whole(0, 1 << 53), "unique_id": whole(1, (1 << 64) - 1),
    **dict.fromkeys(("min_bandwidth", "max_bandwidth"), whole(1, 10**9)),
    **dict.fromkeys(("domain", "location_id", "heap_type", "width", "mem_clk_max", "level", "size", "type", "weight",
                     "node_to", "max_engine_clk_fcompute"), _WORD),
}  # fmt: skip


def _properties(path: Path) -> dict[str, int]:
    """Return what a file of the driver says of the names that are known here, a number each."""
    said = re.findall(r"(?m)^(\w+) +(-?[0-9]{1,20})$", kernel_text(path))
    return fitting({key: int(value) for key, value in said}, _PROPERTIES)


def read(root: Path) -> tuple[list[KfdNode], list[KfdLink]]:
    """Return the nodes and the direct links of the topology; empty lists where there is no such driver."""
    nodes, links = [], []
    for folder in numbered(root / "sys/class/kfd/kfd/topology/nodes"):
        nodes.append(_node(folder, number(folder / "gpu_id") or 0, _properties(folder / "properties")))
        for kind in ("io_links", "p2p_links"):
            for entry in numbered(folder / kind):
                link = _link(nodes[-1].number, _properties(entry / "properties"))
                if link is not None:
                    links.append(link)
    return nodes, links


def _node(folder: Path, gpu_id: int, facts: dict[str, int]) -> KfdNode:
    address = None
    if gpu_id and "location_id" in facts:
        location = facts["location_id"]
        address = f"{facts.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"
    size, rate = 0, 0.0
    for bank in numbered(folder / "mem_banks"):
        bank_facts = _properties(bank / "properties")
        # Heap types 1 and 2 are the device's own memory, visible to the processor or not.
        if bank_facts.get("heap_type") in (1, 2):
            size += bank_facts.get("size_in_bytes", 0)
            # Two transfers a clock; all heaps lie on one bus.
            rate = max(rate, bank_facts.get("width", 0) / 8 * bank_facts.get("mem_clk_max", 0) * 1e6 * 2)
    caches: dict[int, int] = {}
    for cache in numbered(folder / "caches"):
        cache_facts = _properties(cache / "properties")
        level = cache_facts.get("level", 0)
        caches[level] = caches.get(level, 0) + cache_facts.get("size", 0) * 1024
    last = max((level for level in caches if level >= 2), default=None)
    return KfdNode(
        number=int(folder.name),
        gpu_id=gpu_id,
        name=name(folder / "name"),
        address=address,
        unique_id=str(facts["unique_id"]) if facts.get("unique_id") else None,
        memory_bytes=size or None,
        memory_rate=rate or None,
        cache_bytes=None if last is None else caches[last] or None,
        clock_mhz=facts.get("max_engine_clk_fcompute") or None,
    )


def _link(source: int, facts: dict[str, int]) -> KfdLink | None:
    kind, weight = facts.get("type"), facts.get("weight", 0)
    if kind not in (_TYPE_PCIE, _TYPE_XGMI) or "node_to" not in facts:
        return None
    xgmi = kind == _TYPE_XGMI
    if xgmi and weight > _ONE_HOP:
        return None
    most = facts.get("max_bandwidth")
    least = facts.get("min_bandwidth", most)
    count = round(most / least) if most and least and most < _MOST_BUNDLED * least else 1
    return KfdLink(source, facts["node_to"], xgmi, weight, least and least * 1e6, max(count, 1))
