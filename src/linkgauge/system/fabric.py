"""The links between devices as NVML and the kernel state them: NVLink with its switches, C2C, and xGMI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.system import kfd, sysfs
from linkgauge.system.draft import Draft, FoundDevice, figure
from linkgauge.system.model import Link, Node

# Data rate of one link and direction in bytes per second by NVML's signaling rate in MB/s (makers' figures).
_NVLINK_DATA = {19200: 19.2e9, 20000: 20e9, 25000: 25e9, 25781: 25e9, 26562: 25e9, 50000: 50e9, 53125: 50e9}
_NVLINK_VERSIONS = {19200: "1", 20000: "1", 26562: "4", 50000: "5", 53125: "5"}


def add_nvlinks(draft: Draft, answers: Mapping[str, Any], devices: Sequence[FoundDevice]) -> None:
    """Add NVLinks, the switches at their ends, and C2C links; `devices` are in the order of their ordinals."""
    names = {device.address: f"gpu{ordinal}" for ordinal, device in enumerate(devices)}
    numas = {node.name: node.numa for node in draft.nodes if node.kind == "device"}
    bundles: dict[tuple[str, str, int | None, str | None], int] = {}
    switches: dict[str, str] = {}
    for entry in answers.get("devices", ()):
        name = names.get(sysfs.normal_address(entry.get("pci")) or "")
        if name is None:
            continue
        for link in entry.get("links") or ():
            if not link.get("active"):
                continue
            other = _other_end(draft, link, names, switches, numas.get(name))
            rate = link.get("megabytes_per_s")
            # Both ends report a link between devices; it counts once.
            if other is not None and not (other in names.values() and other < name):
                version = _NVLINK_VERSIONS.get(rate or 0) or link.get("version")
                key = (name, other, rate, version)
                bundles[key] = bundles.get(key, 0) + 1
        idle = [link["link"] for link in entry.get("links") or () if not link.get("active")]
        if idle:
            draft.notes.append(f"{name}: NVLink {', '.join(str(i) for i in idle)} not active")
        c2c = entry.get("c2c")
        if c2c:
            host = draft.hosts.get(numas.get(name) or 0) or next(iter(draft.hosts.values()))
            rate = figure(c2c["megabytes_per_s"] * 1e6, "B/s", "NVML: C2C link")
            draft.links.append(Link(name, host, "c2c", count=c2c["links"], data_rate=rate))
    versions: dict[str, float] = {}
    for (name, other, rate, version), count in bundles.items():
        draft.links.append(_nvlink(name, other, rate, version, count))
        if other in switches.values():
            versions[other] = float(version or 0)
    for address, switch in switches.items():
        # From the third NVSwitch on (NVLink 4) switches repeat and add; whether a library uses it is its own affair.
        able = versions.get(switch, 0) >= 4
        identity = {} if address == "unknown" else {"pci": address}
        node = Node(switch, "switch", model="NVSwitch", multicast=able, reduction=able, routes=True, identity=identity)
        draft.nodes.append(node)


def _nvlink(a: str, b: str, rate: int | None, version: str | None, count: int) -> Link:
    if not rate:
        return Link(a, b, "nvlink", count=count, version=version)
    source = f"NVML: NVLink {version or ''} at {rate} MB/s".replace("  ", " ")
    data = _NVLINK_DATA.get(rate)
    if data is None:
        # Of a signaling rate that is not in the table the data rate is at most that.
        of_data = figure(rate * 1e6, "B/s", f"{source}; data rate not known, at most this")
    else:
        of_data = figure(data, "B/s", f"{source}: {data / 1e9:g} GB/s of data")
    signaling = figure(rate * 1e6, "B/s", source)
    return Link(a, b, "nvlink", count=count, version=version, signalling_rate=signaling, data_rate=of_data)


def _other_end(
    draft: Draft, link: Mapping[str, Any], names: Mapping[str, str], switches: dict[str, str], numa: int | None
) -> str | None:
    """Return the node at a link's far end: a device, a switch (made when first met), or a host."""
    remote, address = link.get("remote"), _remote_address(link.get("remote_pci"))
    if address in names:
        return names[address]
    if remote == "npu":
        return draft.hosts.get(numa or 0) or next(iter(draft.hosts.values()))
    if remote == "gpu":
        # A device that this process may not see: the link leads out of what is described here.
        return None
    return switches.setdefault(address, f"nvswitch{len(switches)}")


def _remote_address(raw: str | None) -> str:
    """Return the PCI address of a link's far end; `unknown` where the fabric's manager hides it."""
    address = sysfs.normal_address(raw)
    return "unknown" if address is None or address.startswith("ffff") or address == "0000:00:00.0" else address


def add_xgmi(draft: Draft, root: Path, devices: Sequence[FoundDevice]) -> None:
    """Add xGMI links between devices, and to processors where those are what joins them."""
    nodes, links = kfd.read(root)
    names = {device.address: f"gpu{ordinal}" for ordinal, device in enumerate(devices)}
    known = {node.number: names.get(node.address or "") for node in nodes if node.gpu_id}
    hosts = {n.number: draft.hosts.get(i) for i, n in enumerate(node for node in nodes if not node.gpu_id)}
    done = set()
    for link in links:
        if not link.xgmi:
            continue
        a = known.get(link.source)
        b = known.get(link.target) or hosts.get(link.target)
        if a is None or b is None or frozenset((a, b)) in done:
            continue
        done.add(frozenset((a, b)))
        rate = figure(link.link_rate, "B/s", "KFD: xGMI link")
        if b in draft.hosts.values():
            # The PCIe function that the kernel shows is the same wires.
            hosts_of = set(draft.hosts.values())
            draft.links[:] = [k for k in draft.links if not (k.kind == "pcie" and k.a == a and k.b in hosts_of)]
            draft.links.append(Link(a, b, "infinity_fabric", count=link.count, data_rate=rate))
        else:
            draft.links.append(Link(a, b, "xgmi", count=link.count, data_rate=rate))
