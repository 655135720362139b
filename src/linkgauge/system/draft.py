"""A system while discovery puts it together, and a device before it has an ordinal."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    switches: dict[str, str] = field(default_factory=dict)
    facts: dict[str, PciFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundDevice:
    """A device before it has an ordinal. `behind` names the PCIe switch above it where sysfs does not show one."""

    address: str
    node: Node
    numa: int | None
    pcie: tuple[float | None, int | None, float | None, int | None]
    note: str | None = None
    behind: str | None = None


def figure(value: float | None, unit: str, source: str) -> Figure | None:
    """Return what `source` stated on the machine itself, or None for nothing, 0 and what no description may hold."""
    least, most = WITHIN[unit]
    return Figure(float(value), unit, "discovered", source) if value and least <= value <= most else None
