"""Recorded machines for tests of discovery: trees of sysfs files and NVML's answers, made as machines state them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from linkgauge.system import catalog

HWLOC_XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" nodeset="0x00000003">
  <object type="Package" os_index="1" nodeset="0x00000002">
   <object type="NUMANode" os_index="1" nodeset="0x00000002" local_memory="1"/>
   <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[10-14]">
    <object type="Bridge" bridge_type="1-1" depth="1" bridge_pci="0000:[11-14]" pci_busid="0000:10:01.0"
            pci_type="0604 [8086:352a] [8086:0000] 04" pci_link_speed="63.015385">
     <object type="Bridge" bridge_type="1-1" depth="2" bridge_pci="0000:[12-14]" pci_busid="0000:11:00.0"
             pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.015385">
      <object type="Bridge" bridge_type="1-1" depth="3" bridge_pci="0000:[13-13]" pci_busid="0000:12:00.0"
              pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.015385">
       <object type="PCIDev" pci_busid="0000:13:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.0"/>
      </object>
      <object type="Bridge" bridge_type="1-1" depth="3" bridge_pci="0000:[14-14]" pci_busid="0000:12:01.0"
              pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.015385">
       <object type="PCIDev" pci_busid="0000:14:00.0" pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="63.0"/>
      </object>
     </object>
    </object>
   </object>
  </object>
 </object>
</topology>
"""


class Machine:
    """Writes a folder like /sys and /proc, an entry at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys").mkdir(parents=True)

    def write(self, path: str, content: object) -> None:
        file = f"{self.root}/{path}"  # a machine has hundreds: paths as objects cost as much as the files
        if not os.path.isdir(os.path.dirname(file)):
            os.makedirs(os.path.dirname(file))
        with open(file, "w", encoding="utf-8") as made:
            made.write(f"{content}\n")

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


def hgx_machine(root: Path, gpus: int = 4) -> Machine:
    """Four or eight H200 of an HGX board: each behind a PCIe switch of its own with a NIC, two processors."""
    machine = Machine(root)
    machine.write("proc/cpuinfo", "processor : 0\nmodel name : Xeon Platinum 8480C")
    for number in range(2):
        machine.numa(number, f"{number * 8}-{number * 8 + 7}", "10 21" if number == 0 else "21 10")
        machine.cache(number * 8, f"{number * 8}-{number * 8 + 7}")
    devices = []
    for i in range(gpus):
        bus = 0x10 + 0x10 * i
        root, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        down, other = f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"
        gpu, nic = f"0000:{bus + 3:02x}:00.0", f"0000:{bus + 4:02x}:00.0"
        numa = i // (gpus // 2)
        machine.pci(root, "0x060400", numa)
        machine.pci(f"{root}/{up}", "0x060400", numa)
        machine.pci(f"{root}/{up}/{down}", "0x060400", numa)
        machine.pci(f"{root}/{up}/{other}", "0x060400", numa)
        machine.pci(f"{root}/{up}/{down}/{gpu}", "0x030200", numa)
        machine.payload(f"{root}/{up}/{down}/{gpu}", 1)
        machine.pci(f"{root}/{up}/{other}/{nic}", "0x020700", numa)
        machine.rdma(f"mlx5_{i}", f"{root}/{up}/{other}/{nic}")
        devices.append(h200(f"0000{gpu.upper()}", switch_links()))
    # NVML need not list devices in the order of PCI addresses.
    machine.nvml({"driver": "570.0", "devices": devices[::-1], "ancestors": []})
    return machine


def kfd_machine(root: Path) -> Machine:
    """A node of MI250X as the kernel's driver states it, from LUMI-G's links."""
    machine = Machine(root)
    machine.numa(0, "0-15", "10 12 12 12")
    for number in range(1, 4):
        machine.numa(number, f"{16 * number}-{16 * number + 15}", "12 10 12 12")
    lumi = catalog.load("lumi-g")
    nodes = "sys/class/kfd/kfd/topology/nodes"
    for cpu in range(4):
        machine.write(f"{nodes}/{cpu}/gpu_id", 0)
        machine.write(f"{nodes}/{cpu}/properties", "cpu_cores_count 16\nsimd_count 0\nlocation_id 0")
    for i in range(8):
        bus = 0xC1 + i
        place = f"{nodes}/{4 + i}"
        machine.pci(f"0000:00:{i:02x}.1/0000:{bus:02x}:00.0", "0x038000", [3, 3, 1, 1, 0, 0, 2, 2][i], "16.0")
        machine.write(f"{place}/gpu_id", 1000 + i)
        machine.write(f"{place}/name", "aldebaran")
        machine.write(f"{place}/properties", f"simd_count 440\ndomain 0\nlocation_id {bus << 8}\nunique_id {77 + i}")
        machine.write(
            f"{place}/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 68702699520\nwidth 4096\nmem_clk_max 1600"
        )
        machine.write(f"{place}/caches/0/properties", "level 1\nsize 16")
        machine.write(f"{place}/caches/1/properties", "level 2\nsize 8192")
        targets: list[tuple[int, int, int, int]] = []
        for link in lumi.links_of(f"gcd{i}"):
            other = link.other(f"gcd{i}")
            if link.kind == "xgmi":
                targets.append((4 + int(other[3:]), 15, 50000, 50000 * link.count))
            elif link.kind == "infinity_fabric":
                targets.append((int(other[4:]), 13, 36000, 36000))
        # The driver lists pairs that are two hops apart too.
        targets.append((4 + (i + 4) % 8, 30, 50000, 50000))
        for number, (target, weight, least, most) in enumerate(targets):
            machine.write(
                f"{place}/io_links/{number}/properties",
                f"type 11\nnode_from {4 + i}\nnode_to {target}\nweight {weight}\n"
                f"min_bandwidth {least}\nmax_bandwidth {most}",
            )
    return machine


def instinct_machine(root: Path, model: str) -> Machine:
    """Eight MI300X or four MI300A, each linked to each other, as the driver's files are documented.

    Of MI300A each node of the driver's topology is a processor and a device.
    """
    machine, apu = Machine(root), model == "MI300A"
    count, first = (4, 0) if apu else (8, 2)
    for number in range(4 if apu else 2):
        machine.numa(number, f"{24 * number}-{24 * number + 23}", " ".join(["10"] * (4 if apu else 2)))
    nodes = "sys/class/kfd/kfd/topology/nodes"
    for cpu in range(first):
        machine.write(f"{nodes}/{cpu}/gpu_id", 0)
        machine.write(f"{nodes}/{cpu}/properties", "cpu_cores_count 48\nsimd_count 0\nlocation_id 0")
    for i in range(count):
        bus, place = 0x05 + 0x20 * i, f"{nodes}/{first + i}"
        machine.pci(f"0000:{bus - 1:02x}:01.1/0000:{bus:02x}:00.0", "0x120000", i if apu else i // 4, "32.0")
        machine.write(f"{place}/gpu_id", 2000 + i)
        machine.write(f"{place}/name", "gfx942")
        machine.write(f"{place}/properties", f"cpu_cores_count {24 * apu}\nsimd_count 1216\ndomain 0\n"
                                             f"location_id {bus << 8}\nunique_id {99 + i}")  # fmt: skip
        machine.write(f"{place}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {(128 if apu else 192) << 30}\n"
                                                         "width 8192\nmem_clk_max 1300")  # fmt: skip
        for number, other in enumerate(other for other in range(count) if other != i):
            rate = 128000 if apu else 64000
            machine.write(f"{place}/io_links/{number}/properties", f"type 11\nnode_from {first + i}\nnode_to "
                          f"{first + other}\nweight 15\nmin_bandwidth {rate}\nmax_bandwidth {rate}")  # fmt: skip
        device = f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        for name, value in (("product_name", f"AMD Instinct {model}"), ("power_dpm_force_performance_level", "auto"),
                            ("hwmon/hwmon3/power1_cap", 750000000), ("hwmon/hwmon3/power1_cap_default", 750000000),
                            ("current_compute_partition", "SPX"), ("current_memory_partition", "NPS1"),
                            ("ras/umc_err_count", "ue: 0\nce: 1"), ("ras/xgmi_wafl_err_count", "ue: 0\nce: 0"),
                            ("pcie_replay_count", 3), ("local_cpulist", "0-47")):  # fmt: skip
            machine.write(f"{device}/{name}", value)
    return machine


def memory_module(
    size_mib: int, width: int = 64, speed: int = 4800, configured: int = 4400, extended: bool = False
) -> bytes:
    """A memory device as SMBIOS 3.2 lays it out (DSP0134, 7.18), with strings after it."""
    raw = bytearray(0x5C)
    raw[0], raw[1] = 17, len(raw)
    struct.pack_into("<H", raw, 0x08, width + 8 if width < 0xFFFF else width)
    struct.pack_into("<H", raw, 0x0A, width)
    struct.pack_into("<H", raw, 0x0C, 0x7FFF if extended else size_mib)
    struct.pack_into("<I", raw, 0x1C, size_mib)
    for at, long_at, value in ((0x15, 0x54, speed), (0x20, 0x58, configured)):
        struct.pack_into("<H", raw, at, 0xFFFF if value > 0xFFFE else value)
        struct.pack_into("<I", raw, long_at, value)
    return bytes(raw) + b"DIMM_A1\0SERIAL-1234\0\0"


def machine_of_all(root: Path) -> Machine:
    """A machine that no maker sells, for what reads them all: MI250X and H200, a NIC, memory modules, hwloc's file."""
    machine = kfd_machine(root)
    for core in range(0, 64, 16):
        machine.cache(core, f"{core}-{core + 15}")
    for gpu in range(4):
        machine.pci(f"0000:01:0{gpu}.0/0000:1{gpu}:00.0", numa=gpu)
        machine.payload(f"0000:01:0{gpu}.0/0000:1{gpu}:00.0", 1)
    machine.pci("0000:02:06.0/0000:20:00.0", kind="0x020700")
    machine.rdma("mlx5_0", "0000:02:06.0/0000:20:00.0")
    devices = [h200(f"00000000:1{gpu}:00.0", switch_links()) for gpu in range(4)]
    pairs = [[one, other, 20] for other in range(4) for one in range(other)]
    machine.nvml({"driver": "570.1", "devices": devices, "ancestors": pairs})
    machine.write("hwloc.xml", HWLOC_XML)
    for slot in range(8):
        file = root / f"sys/firmware/dmi/entries/17-{slot}/raw"
        file.parent.mkdir(parents=True)
        file.write_bytes(memory_module(128 << 10, extended=True))
    return machine
