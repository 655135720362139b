"""Where GPUs lie by NVML's common ancestors, for what sysfs does not show of them, as in a container that hides it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.system import sysfs
from linkgauge.system.draft import FoundDevice
from linkgauge.system.graph import Graph
from linkgauge.system.sysfs import PciFacts

# nvmlGpuTopologyLevel_t: the two meet at PCIe switches without a host bridge, or within one NUMA node.
_AT_SWITCHES = 20
_AT_NODE = 40


def placed(
    devices: Sequence[FoundDevice], answers: Mapping[str, Any], facts: Mapping[str, PciFacts]
) -> list[FoundDevice]:
    """Return the devices with what follows from their common ancestors.

    A device that sysfs hides lies `behind` a switch with those that it meets below a host bridge. A device whose NUMA
    node nobody states has that of the devices within one node with it, where those agree.
    """
    listed = [sysfs.normal_address(entry.get("pci")) or "" for entry in answers.get("devices", ())]
    levels: dict[frozenset[str], int] = {}
    for one, other, level in answers.get("ancestors") or ():
        if max(one, other) < len(listed):
            levels[frozenset((listed[one], listed[other]))] = level
    known = {device.address: _numa(device, facts) for device in devices}

    def within(limit: int) -> Callable[[str, str], bool]:
        return lambda a, b: levels.get(frozenset((a, b)), limit + 1) <= limit

    addresses = [device.address for device in devices]
    switches = _groups([a for a in addresses if a not in facts], within(_AT_SWITCHES))
    behind = {a: f"switch {number}" for number, group in enumerate(g for g in switches if len(g) > 1) for a in group}
    nodes: dict[str, int | None] = {}
    for group in _groups(addresses, within(_AT_NODE)):
        stated = {known[a] for a in group} - {None}
        nodes.update(dict.fromkeys(group, stated.pop() if len(stated) == 1 else None))
    return [
        dataclasses.replace(
            device,
            behind=behind.get(device.address),
            numa=device.numa if known[device.address] is not None else nodes[device.address],
        )
        for device in devices
    ]


def _numa(device: FoundDevice, facts: Mapping[str, PciFacts]) -> int | None:
    shown = facts.get(device.address)
    return shown.numa if shown is not None and shown.numa is not None else device.numa


def _groups(addresses: Sequence[str], near: Callable[[str, str], bool]) -> list[list[str]]:
    """Return the classes of addresses that are near each other, directly or by others."""
    return Graph({pair: math.inf for pair in itertools.permutations(addresses, 2) if near(*pair)}).parts(addresses)
