"""The PCI tree as hwloc recorded it: what a container's sysfs may hide and a host's topology file still tells.

On Linux hwloc reads the very sysfs that `linkgauge.system.sysfs` reads, so asking it here would tell nothing more; a
test holds the two together. Its XML file can come from outside, though: `HWLOC_XMLFILE` names one to hwloc's own
programs and to the MPI libraries that use hwloc, and discovery takes from it the functions that sysfs does not show.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from linkgauge.errors import UsageError
from linkgauge.files import read_file
from linkgauge.system.sysfs import PciFacts, normal_address

VARIABLE = "HWLOC_XMLFILE"
_MOST_BYTES = 64 << 20


def xml_file(folder: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the topology file of a recorded machine (`hwloc.xml`), or the one that the environment names for this."""
    if folder is not None:
        file = folder / "hwloc.xml"
        return file if file.is_file() else None
    named = environment.get(VARIABLE)
    return Path(named) if named else None


def pci(file: Path | None) -> dict[str, PciFacts]:
    """Return the PCI functions in a topology file by address; empty where there is none, or it is no such file.

    Speed and width are not in it apart, only the link's data rate (GB/s = 10^9 B/s).
    """
    if file is None:
        return {}
    found: dict[str, PciFacts] = {}
    try:
        root = ElementTree.fromstring(read_file(file, _MOST_BYTES, "hwloc's XML"))
        if root.tag == "topology":
            _walk(root, None, (), found)
    except (UsageError, ElementTree.ParseError, RecursionError):
        return {}
    return found


def _walk(element: ElementTree.Element, numa: int | None, parents: tuple[str, ...], found: dict[str, PciFacts]) -> None:
    kind = element.get("type")
    if element.tag == "object":
        numa = _single_node(element, numa)
        if kind == "Bridge" and element.get("bridge_type", "").startswith("0-"):
            parents = ()
        address = _address(element.get("pci_busid")) if kind in ("Bridge", "PCIDev") else None
        if address is not None:
            found[address] = _facts(element, address, numa, parents)
            if kind == "Bridge":
                parents = (*parents, address)
    for child in element:
        _walk(child, numa, parents, found)


def _single_node(element: ElementTree.Element, above: int | None) -> int | None:
    """Return the NUMA node that an object lies at, where it is one; `above` is its parent's."""
    if element.get("type") == "NUMANode" and re.fullmatch(r"[0-9]{1,5}", element.get("os_index") or ""):
        return int(element.get("os_index") or 0)
    raw = element.get("nodeset")
    if raw is None:
        return above
    try:
        mask = sum(int(word or "0", 16) << 32 * i for i, word in enumerate(reversed(raw.split(","))))
    except ValueError:
        return above
    return mask.bit_length() - 1 if mask and mask & (mask - 1) == 0 else None


def _address(raw: str | None) -> str | None:
    try:
        return normal_address(raw) if raw else None
    except ValueError:
        return None


def _facts(element: ElementTree.Element, address: str, numa: int | None, parents: tuple[str, ...]) -> PciFacts:
    # "0302 [10de:2335] [10de:18be] a1": class, vendor and device, subsystem, revision.
    words = (element.get("pci_type") or "").replace("[", " ").replace("]", " ").split()
    code = vendor = device = None
    try:
        code = int(words[0], 16) << 8
        vendor, device = (int(part, 16) for part in words[1].split(":"))
        rate = float(element.get("pci_link_speed") or 0) * 1e9
    except (IndexError, ValueError):
        rate = 0.0
    return PciFacts(
        address=address,
        vendor=vendor,
        device=device,
        class_code=code,
        numa=numa,
        parents=parents,
        speed=None,
        width=None,
        max_speed=None,
        max_width=None,
        max_payload_bytes=None,
        data_rate=rate or None,
    )
