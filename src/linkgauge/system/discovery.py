"""The machine at hand, or a recorded one, as a system: sysfs for hosts, PCIe and NICs, NVML and KFD for devices.

Discovered figures say what stated them. What nothing states is left out: a rate that is not known is missing, not 0.
A recorded machine is a folder with `sys/`, `proc/cpuinfo` and, where it has NVIDIA devices, `nvml.json`
(see `linkgauge.system.record`).
"""

from __future__ import annotations

import dataclasses
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.grouped import grouped
from linkgauge.system import amdsmi, ancestors, dmi, hwloc, nvml, sysfs
from linkgauge.system.draft import Draft, FoundDevice, figure
from linkgauge.system.fabric import add_nvlinks, add_xgmi
from linkgauge.system.gpus import amd, nvidia
from linkgauge.system.model import NODE_KINDS, Figure, Link, Node, System
from linkgauge.system.sysfs import HostFacts, PciFacts

_HOST_DEVICES = 4


def discover(
    folder: Path | None = None,
    *,
    nvml_answers: Mapping[str, Any] | None = None,
    name: str | None = None,
    host_devices: int | None = None,
    hosts_only: bool = False,
) -> System:
    """Return this machine as a system, or the one recorded in `folder`.

    `nvml_answers` stands for NVML (an empty mapping: none). `host_devices` is how many host devices a machine without
    GPU gets (by default the lesser of 4 and its cores); with `hosts_only` a machine with GPUs gets them instead of
    these. `UsageError` where `folder` is no recorded machine.
    """
    root = Path("/") if folder is None else folder
    if folder is not None and not (folder / "sys/devices").is_dir():
        raise UsageError(
            f"{folder}: is no recorded machine: it has no folder sys/devices: make one with linkgauge record FILE"
        )
    answers = nvml_answers
    if answers is None and not hosts_only:
        answers = nvml.read() if folder is None else nvml.recorded(folder)
    # Only where there is an AMD driver: the import of amdsmi is slow, and noisy where its library is missing.
    ask_amdsmi = folder is None and (root / "sys/class/kfd").exists()
    # What sysfs shows is the machine's own word; hwloc's file tells what a container hides of it.
    draft = Draft(facts={**hwloc.pci(hwloc.xml_file(folder)), **sysfs.pci(root)})
    # Coherent devices' memory shows as NUMA nodes of its own, and some nodes are empty: neither is a host.
    own = {entry.get("own_numa") for entry in (answers or {}).get("devices", ())}
    every = sysfs.hosts(root)
    listed = [h for h in every if h.cores or (h.memory_bytes and h.number not in own)] or every[:1]
    _add_hosts(draft, listed, _memory_rates(root, listed, draft))
    devices = [] if hosts_only else nvidia(answers or {}) + amd(root, amdsmi.read() if ask_amdsmi else {})
    devices.sort(key=lambda device: device.address)
    if devices:
        devices = ancestors.placed(devices, answers or {}, draft.facts)
        for ordinal, device in enumerate(devices):
            _add_device(draft, device, ordinal)
        add_nvlinks(draft, answers or {}, devices)
        add_xgmi(draft, root, devices)
    else:
        _add_host_devices(draft, listed, host_devices)
    _add_nics(draft, root)
    title = platform.node() if folder is None else folder.name
    return System(
        name=name or ("here" if folder is None else folder.name or "recorded"),
        title=title or "this machine",
        nodes=tuple(sorted(draft.nodes, key=lambda node: NODE_KINDS.index(node.kind))),
        links=tuple(draft.links),
        notes=tuple(draft.notes),
    )


def _memory_rates(root: Path, listed: Sequence[HostFacts], draft: Draft) -> list[Figure | None]:
    """Return each host's memory rate; where it is not known, a note says why."""
    found, reason = dmi.modules(root)
    rates: list[tuple[float, str]] = []
    if found:
        rates, reason = dmi.rates(found, [host.memory_bytes for host in listed])
    if not rates:
        draft.notes.append(f"the rate of host memory is not known: {reason}")
        return [None] * len(listed)
    return [figure(rate, "B/s", source) for rate, source in rates]


def _add_hosts(draft: Draft, listed: list[HostFacts], rates: Sequence[Figure | None]) -> None:
    for host, rate in zip(listed, rates, strict=True):
        name = f"numa{host.number}"
        draft.hosts[host.number] = name
        draft.nodes.append(
            Node(
                name=name,
                kind="host",
                model=host.model,
                numa=host.number,
                cores=_ranges(host.cores),
                memory_bytes=figure(host.memory_bytes, "B", "sysfs: meminfo of the node"),
                memory_rate=rate,
                cache_bytes=figure(host.cache_bytes, "B", "sysfs: last-level caches"),
            )
        )
    for i, one in enumerate(listed):
        for other in listed[i + 1 :]:
            distance = one.distances[other.number] if other.number < len(one.distances) else None
            words = None if distance is None else f"NUMA distance {distance}"
            # What joins nodes and how fast is not in sysfs: the link is there, its rate unknown.
            draft.links.append(Link(draft.hosts[one.number], draft.hosts[other.number], "upi", version=words))


def _ranges(cores: tuple[int, ...]) -> str:
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1][-1:] = [parts[-1][-1], core] if len(parts[-1]) == 1 else [core]
        else:
            parts.append([core])
    return ",".join("-".join(str(core) for core in part) for part in parts)


def _add_device(draft: Draft, device: FoundDevice, ordinal: int) -> None:
    name = f"gpu{ordinal}"
    facts = draft.facts.get(device.address, PciFacts(device.address))
    numa = device.numa if facts.numa is None else facts.numa
    draft.nodes.append(dataclasses.replace(device.node, name=name, ordinal=ordinal, numa=numa))
    if device.note:
        draft.notes.append(device.note)
    facts = dataclasses.replace(facts, **{fact: value for fact, value in device.pcie.items() if value})
    _attach(draft, name, facts, numa, "NVML" if device.pcie.get("speed") else "sysfs", device.behind)


def _attach(
    draft: Draft, name: str, facts: PciFacts, numa: int | None, source: str = "sysfs", behind: str | None = None
) -> None:
    """Join a device or NIC to its host by way of the PCIe switches above it; `behind` is one that sysfs hides."""
    lower, link = name, _pcie(facts, source)
    # Above an endpoint lie pairs of bridges, a switch's downstream and upstream port, and then the root port.
    seen = [facts.parents[at] for at in range(len(facts.parents) - 2, 0, -2)]
    for address in seen if behind is None else [behind, *seen]:
        present, switch = address in draft.switches, f"pcie {address}"
        draft.links.append(Link(lower, switch, "pcie", **link))
        if present:
            return
        identity = {} if address == behind else {"pci": address}
        draft.switches.add(address)
        draft.nodes.append(Node(switch, "switch", model="PCIe switch", routes=True, identity=identity))
        up = draft.facts.get(address, PciFacts(address))
        lower, link = switch, _pcie(up)
        numa = numa if numa is not None else up.numa
    host = draft.hosts.get(numa) if numa is not None else None
    if host is None:
        host = next(iter(draft.hosts.values()))
        if len(draft.hosts) > 1:
            draft.notes.append(f"{name}: no NUMA node is stated for it; drawn at {host}")
    draft.links.append(Link(lower, host, "pcie", **link))


def _pcie(facts: PciFacts, source: str = "sysfs") -> dict[str, Any]:
    """Return a PCIe link's facts as `Link` takes them; the data rate is hwloc's where nothing tells more."""
    result: dict[str, Any] = {"max_payload_bytes": facts.max_payload_bytes}
    if facts.width:
        result["width"] = facts.width
    if facts.speed is not None:
        result["version"] = str(sysfs.generation_of(facts.speed))
    if facts.speed is not None and facts.width:
        signaling, data = sysfs.pcie_rates(facts.speed, facts.width)
        words = f"{source}: PCIe link, {facts.speed:g} GT/s x{facts.width} as trained"
        result["signalling_rate"] = figure(signaling, "B/s", words)
        result["data_rate"] = figure(data, "B/s", words)
    elif facts.data_rate is not None:
        result["data_rate"] = figure(facts.data_rate, "B/s", "hwloc: speed of the PCI link")
    if facts.max_speed is not None and facts.max_width:
        words = f"{source}: PCIe link, {facts.max_speed:g} GT/s x{facts.max_width} as possible"
        result["possible_rate"] = figure(sysfs.pcie_rates(facts.max_speed, facts.max_width)[1], "B/s", words)
    return result


def _add_host_devices(draft: Draft, listed: list[HostFacts], wanted: int | None) -> None:
    cores = [(core, host.number) for host in listed for core in host.cores] or [(0, listed[0].number)]
    count = wanted if wanted is not None else min(_HOST_DEVICES, len(cores))
    draft.notes.append("host devices stand for GPUs here")
    for ordinal in range(count):
        core, numa = cores[ordinal % len(cores)]
        draft.nodes.append(
            Node(f"host{ordinal}", "device", model="host device", ordinal=ordinal, numa=numa, cores=str(core))
        )
        draft.links.append(Link(f"host{ordinal}", draft.hosts[numa], "memory"))


def _add_nics(draft: Draft, root: Path) -> None:
    for nic in sysfs.nics(root):
        facts = draft.facts.get(nic.address or "", PciFacts(""))
        rate = nic.rate_bits_per_s / 8 if nic.active and nic.rate_bits_per_s else None
        draft.nodes.append(
            Node(
                nic.name,
                "nic",
                model="RDMA" if nic.rdma else "Ethernet",
                numa=facts.numa,
                port_rate=figure(rate, "B/s", "sysfs: rate of the port"),
                identity={"pci": nic.address} if nic.address else {},
            )
        )
        if not nic.active:
            draft.notes.append(f"{nic.name}: not active")
        _attach(draft, nic.name, facts, facts.numa)


def of_devices(kind: str, infos: Sequence[Mapping[str, Any]], folder: Path | None = None) -> System:
    """Return this machine with the devices of a run under the run's ordinals; further ones of the machine come after.

    `kind` is the runtime (`cuda`, `hip`, `sycl`, `host`), `infos` what it says of each device in order:
    `pci_address` finds the device, `last_level_cache_bytes` fills in what NVML does not state. `UsageError` for a
    device that is not found.
    """
    if kind == "host":
        return discover(folder, host_devices=len(infos), hosts_only=True)
    system = discover(folder)
    by_address = grouped((device.identity.get("pci"), device) for device in system.devices)
    found: list[tuple[Node, Mapping[str, Any]]] = []
    for ordinal, info in enumerate(infos):
        address = str(info.get("pci_address") or "")
        alike = by_address.get(sysfs.normal_address(address) or "")
        if alike is None:
            raise UsageError(
                f"device {ordinal} ({address or 'no PCI address'}) is not among those that are discovered here"
            )
        # Partitions that discovery tells apart come in its order; the last one stands for all of MIG's instances.
        found.append((alike.pop(0) if len(alike) > 1 else alike[0], info))
    several = {name for name, count in Counter(device.name for device, _ in found).items() if count > 1}
    parts: Counter[str] = Counter()
    chosen: list[Node] = []
    for device, info in found:
        cache = info.get("last_level_cache_bytes")
        if cache:
            stated = figure(cache, "B", f"{kind} runtime: last-level cache")
            device = dataclasses.replace(device, cache_bytes=stated)
        if device.name in several:
            parts[device.name] += 1
            device = _part_of(device, parts[device.name], kind, info)
        chosen.append(device)
    taken = {device.name for device, _ in found}
    rest = [device for device in system.devices if device.name not in taken]
    devices = [dataclasses.replace(device, ordinal=i) for i, device in enumerate([*chosen, *rest])]
    others = tuple(node for node in system.nodes if node.kind != "device")
    return _with_ports(dataclasses.replace(system, nodes=(*devices, *others)), system, parts)


def _part_of(device: Node, number: int, kind: str, info: Mapping[str, Any]) -> Node:
    """One of several devices with one PCI address: instances of MIG, partitions of an AMD GPU. What is stated of the
    whole GPU's memory is not the part's."""
    memory = figure(info.get("total_bytes") or info.get("memory_bytes"), "B", f"{kind} runtime: memory")
    return dataclasses.replace(device, name=f"{device.name}.{number}", memory_bytes=memory, memory_rate=None)


def _with_ports(system: System, whole: System, parts: Mapping[str, int]) -> System:
    """The system, where each GPU that is several devices is a switch which has its links: the devices share them."""
    if not parts:
        return system
    ports = {name: f"{name} port" for name in parts}
    links = [dataclasses.replace(link, a=ports.get(link.a, link.a), b=ports.get(link.b, link.b))
             for link in system.links]  # fmt: skip
    links += [Link(f"{name}.{number}", ports[name], "internal")
              for name, count in parts.items() for number in range(1, count + 1)]  # fmt: skip
    made = [Node(ports[device.name], "switch", model=f"what the devices of a {device.model} share", routes=True,
                 identity=device.identity) for device in whole.devices if device.name in parts]  # fmt: skip
    notes = [f"{name}: {count} devices have its PCI address, as instances of MIG do: they share its links"
             for name, count in parts.items()]  # fmt: skip
    return dataclasses.replace(system, nodes=(*system.nodes, *made), links=tuple(links),
                               notes=(*system.notes, *notes))  # fmt: skip
