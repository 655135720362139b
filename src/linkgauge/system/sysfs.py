"""What Linux says in /sys and /proc of hosts, caches, PCI devices and NICs. Reads any folder laid out like them.

Nothing here raises for what a machine does not say: it is None, and discovery leaves it out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from linkgauge.errors import one_line
from linkgauge.files import kernel_data, kernel_text, looked_at

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCIE_CAPABILITY = 0x10
_RELAXED_ORDERING = 0x10  # of the device control register (PCIe Base Specification, 7.5.3.4)
_EXTENDED, _ACS_CAPABILITY = 0x100, 0x0D
_MOST_CPUINFO_BYTES = 64 << 20
_LONGEST_NAME = 200
_MOST_CORES, _MOST_NUMBERED = 1 << 16, 1 << 12  # beyond any kernel
_BEYOND = 1 << 40  # no number that is read here


@dataclass(frozen=True)
class HostFacts:
    """One NUMA node: its number, cores, memory and the distance to each node as the firmware states it."""

    number: int
    cores: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]
    cache_bytes: int | None
    model: str | None


@dataclass(frozen=True)
class PciFacts:
    """One PCI function. `parents` are the bridges above it, from the root port down; speeds in GT/s a lane.

    `data_rate` in bytes per second where speed and width are not told apart. `acs`: its access control services that
    are on, as the control register has them; 0 where it has none, None where the register cannot be read.
    """

    address: str
    vendor: int | None = None
    device: int | None = None
    class_code: int | None = None
    numa: int | None = None
    parents: tuple[str, ...] = ()
    speed: float | None = None
    width: int | None = None
    max_speed: float | None = None
    max_width: int | None = None
    max_payload_bytes: int | None = None
    data_rate: float | None = None
    acs: int | None = None
    relaxed_ordering: bool | None = None


@dataclass(frozen=True)
class NicFacts:
    """One NIC or port of it: RDMA devices by their name and port, others by their network interface."""

    name: str
    address: str | None
    rate_bits_per_s: float | None
    active: bool
    rdma: bool


def name(path: Path) -> str | None:
    """Return a file's text as a name that can be shown; None where it has none."""
    return one_line(kernel_text(path))[:_LONGEST_NAME] or None


def number(path: Path) -> int | None:
    """Return a file's number (decimal, or hexadecimal after 0x), or None."""
    try:
        found = int(kernel_text(path), 0)
    except ValueError:
        return None
    return found if abs(found) < _BEYOND else None


def cpu_list(content: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `0-3,8`."""
    numbers: list[int] = []
    for part in content.split(","):
        if found := re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part):
            numbers.extend(range(int(found[1]), int(found[2] or found[1]) + 1))
        if len(numbers) > _MOST_CORES:
            break
    return tuple(dict.fromkeys(numbers))


def cpu_model(root: Path) -> str | None:
    """Return the processor's name from `proc/cpuinfo` beside `sys`."""
    for line in kernel_text(root / "proc/cpuinfo", _MOST_CPUINFO_BYTES).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "cpu", "Model") and value.strip():
            return one_line(value)[:_LONGEST_NAME]
    return None


def hosts(root: Path) -> list[HostFacts]:
    """Return the NUMA nodes; a kernel without NUMA gets one node with every core that is online."""
    model = cpu_model(root)
    found = []
    for folder in numbered(root / "sys/devices/system/node", "node"):
        cores = cpu_list(kernel_text(folder / "cpulist"))
        stated = re.search(r"\bMemTotal:\s+([0-9]{1,12})\b", kernel_text(folder / "meminfo"))
        memory = int(stated[1]) * 1024 if stated else None
        distances = tuple(map(int, re.findall(r"\b[0-9]{1,5}\b", kernel_text(folder / "distance"))))
        found.append(HostFacts(int(folder.name[4:]), cores, memory, distances, _cache(root, cores), model))
    if not found:
        cores = cpu_list(kernel_text(root / "sys/devices/system/cpu/online"))
        found.append(HostFacts(0, cores, None, (10,), _cache(root, cores), model))
    return found


def numbered(folder: Path, prefix: str = "") -> list[Path]:
    """Return what lies in a folder under names of that prefix and a number, by number."""
    found = [path for path in entries(folder) if re.fullmatch(prefix + "[0-9]{1,5}", path.name)]
    return sorted(found, key=lambda path: int(path.name[len(prefix) :]))[:_MOST_NUMBERED]


def _cache(root: Path, cores: tuple[int, ...]) -> int | None:
    """Return the bytes of all last-level caches of these cores together."""
    caches: dict[str, int] = {}
    for core in cores:
        levels = []
        for folder in numbered(root / f"sys/devices/system/cpu/cpu{core}/cache", "index"):
            level, size = number(folder / "level"), _size(kernel_text(folder / "size"))
            if level is not None and size is not None and kernel_text(folder / "type") != "Instruction":
                levels.append((level, size, kernel_text(folder / "shared_cpu_list") or str(core)))
        if levels:
            level, size, shared = max(levels)
            caches[f"{level}:{shared}"] = size
    return sum(caches.values()) or None


def _size(content: str) -> int | None:
    found = re.fullmatch(r"([0-9]{1,12})([KMG]?)", content)
    return None if found is None else int(found.group(1)) * 1024 ** " KMG".index(found.group(2) or " ")


def normal_address(address: str | None) -> str | None:
    """Return a PCI address as Linux writes it: `0000:18:00.0`, lower case, four digits of domain where they suffice.

    None for what is no such address.
    """
    found = re.fullmatch(r"([0-9a-f]{1,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", (address or "").lower())
    return f"{int(found[1], 16):04x}{found[2]}" if found else None


def pci(root: Path, kinds: Collection[int] = ()) -> dict[str, PciFacts]:
    """Return the PCI functions by address; those of these base classes alone, where any are named.

    A server has hundreds of functions, each of which costs a dozen files and, for root, a read of its registers.
    """
    result = {}
    for place in entries(root / "sys/bus/pci/devices"):
        name = place.name
        if _ADDRESS.fullmatch(name) and (not kinds or (number(place / "class") or 0) >> 16 in kinds):
            chain = [part for part in Path(os.path.realpath(place)).parts if _ADDRESS.fullmatch(part)]
            numa = _node(number(place / "numa_node"))
            config = kernel_data(place / "config")
            control = _device_control(config)
            result[name] = PciFacts(
                address=name,
                vendor=number(place / "vendor"),
                device=number(place / "device"),
                class_code=number(place / "class"),
                numa=numa,
                parents=tuple(part for part in chain if part != name),
                speed=_speed(kernel_text(place / "current_link_speed")),
                width=_positive(number(place / "current_link_width")),
                max_speed=_speed(kernel_text(place / "max_link_speed")),
                max_width=_positive(number(place / "max_link_width")),
                max_payload_bytes=None if control is None else 128 << (control >> 5 & 7),
                relaxed_ordering=None if control is None else bool(control & _RELAXED_ORDERING),
                acs=_acs(config),
            )
    return result


def _speed(content: str) -> float | None:
    found = re.match(r"([0-9]{1,5}(?:\.[0-9]{1,5})?) GT/s", content)
    return None if found is None else float(found.group(1)) or None


def _positive(value: int | None) -> int | None:
    # Width 255 is what the kernel prints for a link that it cannot read.
    return value if value is not None and 0 < value < 255 else None


def _node(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < _MOST_NUMBERED else None


def _device_control(content: bytes) -> int | None:
    """Return the device control register of the PCI Express capability.

    Past byte 64 the configuration space is readable by root alone; else None.
    """
    at, seen = content[0x34] if len(content) > 0x34 else 0, set()
    while at and at not in seen and at + 10 <= len(content):
        seen.add(at)
        if content[at] == _PCIE_CAPABILITY:
            return int.from_bytes(content[at + 8 : at + 10], "little")
        at = content[at + 1]
    return None


def _acs(content: bytes) -> int | None:
    """Return the access control services in force (PCIe Base Specification, 7.7.11.3), from the extended capabilities.

    These begin at byte 256, which only root can read.
    """
    if len(content) < _EXTENDED + 4:
        return None
    at, seen = _EXTENDED, set()
    while at >= _EXTENDED and at not in seen and at + 8 <= len(content):
        seen.add(at)
        header = int.from_bytes(content[at : at + 4], "little")
        if header & 0xFFFF == _ACS_CAPABILITY:
            return int.from_bytes(content[at + 6 : at + 8], "little")
        at = header >> 20
    return 0


def nics(root: Path) -> list[NicFacts]:
    """Return RDMA ports, and network interfaces that belong to a PCI device without RDMA ports."""
    found: list[NicFacts] = []
    covered = set()
    for device in entries(root / "sys/class/infiniband"):
        address = _address_of(device / "device")
        ports = entries(device / "ports")
        for port in ports:
            # "400 Gb/sec (4X NDR)"
            rate = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) Gb/sec", kernel_text(port / "rate"))
            name = device.name if len(ports) == 1 else f"{device.name}:{port.name}"
            active = "ACTIVE" in kernel_text(port / "state")
            found.append(NicFacts(name, address, float(rate.group(1)) * 1e9 if rate else None, active, True))
        if address is not None:
            covered.add(address)
    for interface in entries(root / "sys/class/net"):
        address = _address_of(interface / "device")
        if address is None or address in covered:
            continue
        speed = number(interface / "speed")
        active = kernel_text(interface / "operstate") == "up"
        rate_bits = speed * 1e6 if speed is not None and speed > 0 else None
        found.append(NicFacts(interface.name, address, rate_bits, active, False))
    return found


def entries(folder: Path) -> list[Path]:
    """Return what lies in a folder under names that can be shown."""
    try:
        found = sorted(path for path in folder.iterdir() if path.name.isprintable())
    except OSError:
        return []
    for path in found:
        looked_at(path)
    return found


def _address_of(device: Path) -> str | None:
    """Return the PCI address behind a `device` link, also where a virtio function lies between."""
    if not device.exists():
        return None
    looked_at(device)
    parts = [part for part in Path(os.path.realpath(device)).parts if _ADDRESS.fullmatch(part)]
    return parts[-1] if parts else None


def generation_of(speed: float | None) -> int | None:
    """Return the PCIe generation whose lanes run at `speed` GT/s."""
    return {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}.get(speed) if speed is not None else None


def speed_of(generation: int | None) -> float | None:
    """Return the GT/s a lane of a PCIe generation."""
    return {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}.get(generation or 0)


def pcie_rates(speed: float, width: int) -> tuple[float, float]:
    """Return signaling and data rate in bytes per second of a PCIe link in one direction.

    Coding: 8b/10b up to 5 GT/s, 128b/130b to 32 GT/s, at 64 GT/s flits of 256 bytes that carry 236 of packets.
    """
    signaling = speed * 1e9 * width / 8
    share = 0.8 if speed <= 5 else 128 / 130 if speed <= 32 else 236 / 256
    return signaling, signaling * share
