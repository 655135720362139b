"""The rate of host memory from the firmware's table of memory modules (SMBIOS type 17), which root may read.

The table says of each module its size, width and speed, but of channels only what makers print on their boards, so
every module is taken to be on a channel of its own. Where two share one the true rate is lower: what is computed bounds
it.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linkgauge.files import kernel_data
from linkgauge.system.sysfs import numbered

_TYPE_MEMORY_DEVICE = 17
_UNKNOWN = 0xFFFF


@dataclass(frozen=True)
class Module:
    """One memory module: bytes, bits of data at once (without those of ECC), and million transfers a second."""

    size_bytes: int
    width_bits: int | None
    megatransfers: int | None


def modules(root: Path) -> tuple[list[Module], str]:
    """Return the modules that are plugged in, and in one sentence why there are none where that is so."""
    files = [folder / "raw" for folder in numbered(root / "sys/firmware/dmi/entries", f"{_TYPE_MEMORY_DEVICE}-")]
    if any(file.exists() and not os.access(file, os.R_OK) for file in files):
        return [], "only root may read the table of memory modules"
    found = [module for file in files if (module := parse(kernel_data(file))) is not None]
    return found, "" if found else "the firmware shows no table of memory modules"


def parse(raw: bytes) -> Module | None:
    """Return the module of a structure of type 17; None where its slot is empty, or the structure is another or cut."""
    if len(raw) < 0x17 or raw[0] != _TYPE_MEMORY_DEVICE:
        return None
    length = min(raw[1], len(raw))

    def word(at: int) -> int:
        return struct.unpack_from("<H", raw, at)[0] if at + 2 <= length else 0

    def double(at: int) -> int:
        return struct.unpack_from("<I", raw, at)[0] if at + 4 <= length else 0

    size = word(0x0C)
    if size in (0, _UNKNOWN):
        return None
    short_bytes = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    count = (double(0x1C) & 0x7FFF_FFFF) << 20 if size == 0x7FFF else short_bytes
    if not count:  # so many KiB, of which there are none
        return None
    width = word(0x0A)
    # What it runs at, else what it could; a word of ones refers to the double word that later versions have.
    speeds = [(word(0x20), double(0x58)), (word(0x15), double(0x54))]
    speed = next((s for s in (long if short == _UNKNOWN else short for short, long in speeds) if s), 0)
    return Module(count, width if 0 < width < _UNKNOWN else None, speed or None)


def rates(found: Sequence[Module], node_bytes: Sequence[int | None]) -> tuple[list[tuple[float, str]], str]:
    """Return each NUMA node's memory rate in bytes per second with its basis, or none and why not.

    `node_bytes` is each node's memory as the kernel counts it, a little less than its modules hold. Modules are spread
    over the nodes by it, which needs them to be alike.
    """
    kinds = set(found)
    if len(kinds) != 1:
        return [], "the memory modules are unlike, and which node has which is not known"
    (kind,) = kinds
    if kind.width_bits is None or kind.megatransfers is None:
        return [], "the firmware states no speed of the memory modules, as in virtual machines"
    if any(count is None for count in node_bytes):
        return [], "the memory of a node is not known"
    counts = [math.ceil((count or 0) / kind.size_bytes) for count in node_bytes]
    if sum(counts) != len(found):
        return [], f"{len(found)} memory modules do not match the nodes' memory ({sum(counts)} modules' worth)"
    each = kind.width_bits / 8 * kind.megatransfers * 1e6
    words = f"modules of {kind.width_bits} bits at {kind.megatransfers} MT/s, each taken to have a channel of its own"
    return [(count * each, f"DMI: {count} {words}") for count in counts], ""
