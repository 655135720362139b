"""A system while discovery puts it together, and a device before it has an ordinal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from linkgauge.system.model import Figure, Link, Node
from linkgauge.system.sysfs import PciFacts
from linkgauge.system.units import WITHIN


@dataclass
class Draft:
    """A system in the making."""

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    facts: dict[str, PciFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundDevice:
    """A device before it has an ordinal. `pcie` are facts of its link that another than sysfs states, by the names of
    `PciFacts`. `behind` names the PCIe switch above it where sysfs does not show one."""

    address: str
    node: Node
    numa: int | None
    pcie: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None
    behind: str | None = None


def figure(value: float | None, unit: str, source: str) -> Figure | None:
    """Return what `source` stated on the machine itself, or None for nothing, 0 and what no description may hold."""
    least, most = WITHIN[unit]
    return Figure(float(value), unit, "discovered", source) if value and least <= value <= most else None
