"""Which switch a node's network card is attached to, as the switch says of itself by LLDP (IEEE 802.1AB).

systemd-networkd leaves what each interface heard in `/run/systemd/netif/lldp/INDEX`: frames, each after its length in
8 bytes, low byte first. Slingshot's switches have their place as their name, `x3000c0r24b0`: cabinet 3000, chassis 0,
router 24 (HPE Slingshot's guide, "Verify AMA configuration"); a cabinet is a group there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from linkgauge.files import kernel_data
from linkgauge.system import sysfs

SOURCE = "LLDP"
_MOST_BYTES = 1 << 16  # of a file: some neighbors of some hundred bytes
_ETHERTYPE = b"\x88\xcc"
_CHASSIS, _SYSTEM_NAME, _END = 1, 5, 0
_BY_MAC = 4  # subtype of a chassis' identity
_SLINGSHOT = re.compile(r"(x\d{1,4})c\d{1,2}r\d{1,2}(?:b\d)?")
_BEYOND = "other switches"


def neighbors(content: bytes) -> Iterator[str]:
    """The switches of one interface's file by name, else by their chassis' identity; what is no frame is left out."""
    at = 0
    while at + 8 <= len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        frame = content[at + 8 : at + 8 + size]
        at += 8 + size
        if len(frame) == size and frame[12:14] == _ETHERTYPE and (name := _name(frame[14:])):
            yield name


def _name(units: bytes) -> str:
    """What a frame's units (7 bits of type, 9 of length, the value) say that its sender is; empty where nothing."""
    chassis, at = "", 0
    while at + 2 <= len(units):
        (head,) = struct.unpack_from(">H", units, at)
        kind, value = head >> 9, units[at + 2 : at + 2 + (head & 0x1FF)]
        at += 2 + (head & 0x1FF)
        if kind == _SYSTEM_NAME:
            text = value.decode(errors="replace").strip()
            if text and text.isprintable() and " " not in text:
                return text
        if kind == _CHASSIS and value:
            chassis = value[1:].hex(":") if value[0] == _BY_MAC else value[1:].decode(errors="replace")
        if kind == _END:
            break
    return chassis if chassis.isprintable() else ""


def above(root: Path = Path("/")) -> tuple[str, ...]:
    """The switch above this node and its group, by its fastest interface that has heard of one; else nothing.

    Of as fast ones the first by name counts, and hardware alone. Beyond switches without a place in their name nothing
    is told: others are then taken to be of one group.
    """
    cards = [path for path in sysfs.entries(root / "sys/class/net") if (path / "device").exists()]
    for card in sorted(cards, key=lambda path: -(sysfs.number(path / "speed") or 0)):
        content = kernel_data(root / f"run/systemd/netif/lldp/{sysfs.number(card / 'ifindex')}", _MOST_BYTES)
        name = next(neighbors(content), "")
        if name:
            return with_group(name)
    return ()


def with_group(switch: str) -> tuple[str, str]:
    """A switch and its group, by its place where its name is one."""
    place = _SLINGSHOT.fullmatch(switch)
    return (switch, f"cabinet {place[1]}" if place else _BEYOND)
