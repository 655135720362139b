"""Recorded machines for tests of discovery: trees of sysfs files and NVML's answers, made as machines state them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any


class Machine:
    """Writes a folder like /sys and /proc, an entry at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys").mkdir(parents=True)

    def write(self, path: str, content: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n", encoding="utf-8")

    def numa(self, number: int, cores: str, distances: str, gib: int = 256) -> None:
        place = f"sys/devices/system/node/node{number}"
        self.write(f"{place}/cpulist", cores)
        self.write(f"{place}/distance", distances)
        self.write(f"{place}/meminfo", f"Node {number} MemTotal:       {gib << 20} kB")

    def cache(self, core: int, shared: str, size: str = "32768K") -> None:
        place = f"sys/devices/system/cpu/cpu{core}/cache/index3"
        for name, value in (("level", 3), ("size", size), ("type", "Unified"), ("shared_cpu_list", shared)):
            self.write(f"{place}/{name}", value)

    def pci(self, chain: str, kind: str = "0x030200", numa: int = 0, speed: str = "32.0", width: int = 16) -> None:
        """A PCI function at the end of `chain`, as `0000:00:01.0/0000:01:00.0`."""
        parts = chain.split("/")
        place = f"sys/devices/pci{parts[0][:7]}/{chain}"
        self.write(f"{place}/class", kind)
        self.write(f"{place}/vendor", "0x10de")
        self.write(f"{place}/numa_node", numa)
        self.write(f"{place}/current_link_speed", f"{speed} GT/s PCIe")
        self.write(f"{place}/current_link_width", width)
        self.write(f"{place}/max_link_speed", "32.0 GT/s PCIe")
        self.write(f"{place}/max_link_width", 16)
        self.link(f"sys/bus/pci/devices/{parts[-1]}", place)

    def payload(self, chain: str, code: int) -> None:
        """A configuration space whose PCI Express capability states a maximum payload size of 128 << code."""
        config = bytearray(256)
        config[0x34] = 0x60
        config[0x60:0x62] = bytes([0x05, 0x80])
        config[0x80:0x82] = bytes([0x10, 0x00])
        config[0x88:0x8A] = struct.pack("<H", code << 5)
        (self.root / f"sys/devices/pci{chain[:7]}/{chain}/config").write_bytes(bytes(config))

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def rdma(self, name: str, chain: str, rate: str = "400 Gb/sec (4X NDR)", state: str = "4: ACTIVE") -> None:
        self.write(f"sys/class/infiniband/{name}/ports/1/rate", rate)
        self.write(f"sys/class/infiniband/{name}/ports/1/state", state)
        self.link(f"sys/class/infiniband/{name}/device", f"sys/devices/pci{chain[:7]}/{chain}")

    def nvml(self, answers: dict[str, Any]) -> None:
        self.write("nvml.json", json.dumps(answers))


def h200(pci: str, links: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "name": "NVIDIA H200",
        "uuid": f"GPU-{pci}",
        "serial": None,
        "pci": pci,
        "vbios": "96.00",
        "memory_bytes": 150754820096,
        "memory_bus_bits": 6144,
        "memory_clock_mhz": 3201,
        "performance_state": 0,
        "numa": None,
        "pcie": {"generation": 5, "width": 16, "max_generation": 5, "max_width": 16},
        "links": links,
        "c2c": None,
        "fabric": {"state": 3, "cluster": "00", "clique": 0},
        **more,
    }


def switch_links(count: int = 18, down: tuple[int, ...] = (), hidden: bool = False) -> list[dict[str, Any]]:
    """Eighteen links to four switches, five, four, four and five, as an HGX H200 has."""
    switches = [0] * 5 + [1] * 4 + [2] * 4 + [3] * 5
    return [
        {
            "link": i,
            "active": i not in down,
            "version": "4",
            "megabytes_per_s": 26562,
            "remote": "switch",
            "remote_pci": "FFFFFFFF:FFFF:FF.0" if hidden else f"00000000:0{5 + switches[i]}:00.0",
        }
        for i in range(count)
    ]
