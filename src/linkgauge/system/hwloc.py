"""The PCI tree as hwloc recorded it: what a container's sysfs may hide and a host's topology file still tells.

On Linux hwloc reads the very sysfs that `linkgauge.system.sysfs` reads, so asking it here would tell nothing more; a
test holds the two together. Its XML file can come from outside, though: `HWLOC_XMLFILE` names one to hwloc's own
programs and to the MPI libraries that use hwloc, and discovery takes from it the functions that sysfs does not show.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

from linkgauge.errors import UsageError
from linkgauge.files import read_file
from linkgauge.model.shape import fitting, number, parsed_by, whole
from linkgauge.system.sysfs import PciFacts, normal_address

VARIABLE = "HWLOC_XMLFILE"
_MOST_BYTES = 64 << 20
_MOST_NODES = 1 << 12
_LONGEST_SET = _MOST_NODES // 32 * 11  # characters: "0x00000001," is of 32 nodes


def xml_file(folder: Path | None) -> Path | None:
    """Return the topology file of a recorded machine (`hwloc.xml`), or the one that the environment names for this."""
    if folder is not None:
        file = folder / "hwloc.xml"
        return file if file.is_file() else None
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def pci(file: Path | None) -> dict[str, PciFacts]:
    """Return the PCI functions in a topology file by address; empty where there is none, or it is no such file.

    Speed and width are not in it apart, only the link's data rate (GB/s = 10^9 B/s).
    """
    if file is None:
        return {}
    try:
        root = ElementTree.fromstring(read_file(file, _MOST_BYTES, "hwloc's XML"))
        return functions(root) if root.tag == "topology" else {}
    except (UsageError, ElementTree.ParseError, RecursionError):
        return {}


def functions(root: ElementTree.Element) -> dict[str, PciFacts]:
    """Return the PCI functions in a topology by address."""
    found: dict[str, PciFacts] = {}
    _walk(root, None, (), found)
    return found


def _walk(element: ElementTree.Element, numa: int | None, parents: tuple[str, ...], found: dict[str, PciFacts]) -> None:
    if element.tag == "object":
        kind, said = element.get("type"), fitting(element.attrib, _ATTRIBUTES)
        if kind == "NUMANode" and "os_index" in said:
            numa = said["os_index"]
        elif "nodeset" in said:
            numa = said["nodeset"]
        if kind == "Bridge" and element.get("bridge_type", "").startswith("0-"):
            parents = ()
        if kind in ("Bridge", "PCIDev") and "pci_busid" in said:
            address = said["pci_busid"]
            code, vendor, device = said.get("pci_type", (None, None, None))
            rate = said.get("pci_link_speed")
            found[address] = PciFacts(address, vendor, device, code, numa, parents, data_rate=rate)
            if kind == "Bridge":
                parents = (*parents, address)
    for child in element:
        _walk(child, numa, parents, found)


def _single_node(raw: str) -> int | None:
    """Return the NUMA node that an object lies at, where its set has one."""
    mask = sum(int(word or "0", 16) << 32 * i for i, word in enumerate(reversed(raw[:_LONGEST_SET].split(","))))
    return mask.bit_length() - 1 if mask > 0 and mask & (mask - 1) == 0 else None


def _address(raw: str) -> str:
    address = normal_address(raw)
    if address is None:
        raise ValueError("no PCI address")
    return address


def _codes(raw: str) -> tuple[int, int, int]:
    """Return class, vendor and device of "0302 [10de:2335] [10de:18be] a1", which also tells subsystem and revision."""
    found = re.match(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]", raw)
    if found is None:
        raise ValueError("no class, vendor and device")
    code, vendor, device = (int(word, 16) for word in found.groups())
    return code << 8, vendor, device


_ATTRIBUTES = {
    "os_index": parsed_by(lambda raw: whole(0, _MOST_NODES)(int(raw), "os_index")),
    "nodeset": parsed_by(_single_node),
    "pci_busid": parsed_by(_address),
    "pci_type": parsed_by(_codes),
    "pci_link_speed": parsed_by(lambda raw: number(1e-3, 1e6)(float(raw), "pci_link_speed") * 1e9),
}
"""What is read of an object, by its attributes; what is of another form is as if it were not there."""
