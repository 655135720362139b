"""GPUs as NVML, KFD and amdsmi describe them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.system import kfd, sysfs
from linkgauge.system.draft import FoundDevice, figure
from linkgauge.system.model import Figure, Node

# NVML does not state caches; makers' architecture papers do.
_L2_BYTES = {
    "GH200": 50 << 20,
    "H200": 50 << 20,
    "H100": 50 << 20,
    "H800": 50 << 20,
    "A100": 40 << 20,
    "V100": 6 << 20,
    "P100": 4 << 20,
    "L40": 96 << 20,
    "T4": 4 << 20,
}


def nvidia(answers: Mapping[str, Any]) -> list[FoundDevice]:
    """NVIDIA's GPUs that have a PCI address, by NVML's answers."""
    found = []
    for entry in answers.get("devices", ()):
        address = sysfs.normal_address(entry.get("pci"))
        if address is None:
            continue
        bits, clock = entry.get("memory_bus_bits"), entry.get("memory_clock_mhz")
        rate = bits / 8 * clock * 1e6 * 2 if bits and clock else None
        model = entry.get("name") or "NVIDIA device"
        cache = next((size for part, size in _L2_BYTES.items() if part in model), None)
        pcie = entry.get("pcie") or {}
        generation, possible = pcie.get("generation"), pcie.get("max_generation")
        state, note = entry.get("performance_state"), None
        if parts := entry.get("mig_devices"):
            note = f"{address}: divided by MIG into {parts} devices, which share its links"
        if generation and possible and generation < possible and state is not None and state > 2:
            # Idle devices slow their link down; under load it trains to what is possible.
            idle = f"{address}: PCIe was at generation {generation} while idle (P{state}); taken to train to {possible}"
            note = f"{note}; {idle}" if note else idle
            generation = possible
        node = Node(
            name="",
            kind="device",
            model=model,
            vendor="nvidia",
            memory_bytes=figure(entry.get("memory_bytes"), "B", "NVML: memory info"),
            memory_rate=figure(rate, "B/s", f"NVML: {bits} bits at {clock} MHz, two transfers a clock"),
            cache_bytes=_described(cache, "NVIDIA architecture white papers: last-level cache by model"),
            cycle=_cycle(entry.get("sm_clock_mhz"), "NVML: highest clock of the multiprocessors"),
            identity=_identity(address, entry),
        )
        link = {"speed": sysfs.speed_of(generation), "width": pcie.get("width"),
                "max_speed": sysfs.speed_of(possible), "max_width": pcie.get("max_width")}  # fmt: skip
        found.append(FoundDevice(address, node, entry.get("numa"), link, note))
    return found


def _identity(address: str, entry: Mapping[str, Any]) -> dict[str, str]:
    identity = {"pci": address}
    for key in ("uuid", "serial", "vbios"):
        if entry.get(key):
            identity[key] = str(entry[key])
    fabric = entry.get("fabric")
    if fabric and fabric.get("state") == 3:
        identity["fabric"] = f"{fabric['cluster']}.{fabric['clique']}"
    return identity


def _described(value: float | None, source: str) -> Figure | None:
    return Figure(float(value), "B", "described", source) if value else None


def _cycle(clock_mhz: float | None, source: str) -> Figure | None:
    return figure(1e3 / clock_mhz, "ns", f"{source}, {clock_mhz:g} MHz") if clock_mhz else None


def amd(root: Path, said: Mapping[str, Mapping[str, str]]) -> list[FoundDevice]:
    """AMD's GPUs, by KFD under `root` and what amdsmi said of each PCI address."""
    nodes, links = kfd.read(root)
    hosts = {node.number: index for index, node in enumerate(n for n in nodes if not n.gpu_id)}
    found = []
    for node in nodes:
        if not node.gpu_id or node.address is None:
            continue
        near = [hosts[link.target] for link in links if link.source == node.number and link.target in hosts]
        identity = {"pci": node.address}
        if node.unique_id:
            identity["unique_id"] = node.unique_id
        more = said.get(node.address, {})
        identity.update({key: value for key, value in more.items() if key != "name"})
        product = sysfs.name(root / f"sys/bus/pci/devices/{node.address}/product_name")
        model = more.get("name") or product or node.name or "AMD device"
        found.append(
            FoundDevice(
                node.address,
                Node(
                    name="",
                    kind="device",
                    model=model,
                    vendor="amd",
                    # Infinity Fabric passes traffic through dies that lie on the way.
                    routes=True,
                    memory_bytes=figure(node.memory_bytes, "B", "KFD: memory banks"),
                    memory_rate=figure(
                        node.memory_rate, "B/s", "KFD: width and clock of memory, two transfers a clock"
                    ),
                    cache_bytes=figure(node.cache_bytes, "B", "KFD: caches"),
                    cycle=_cycle(node.clock_mhz, "KFD: highest clock of the engine"),
                    identity=identity,
                ),
                near[0] if near else None,
            )
        )
    return found
