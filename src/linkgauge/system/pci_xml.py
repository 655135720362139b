"""A system from NCCL's topology (NCCL_TOPO_DUMP_FILE) or from hwloc's (lstopo FILE.xml), of any machine.

Both are trees of PCI functions. NCCL's tells NVLinks too, but no models and no memory; hwloc's tells no NVLinks. What
could not be known is in the system's notes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from linkgauge.errors import UsageError
from linkgauge.model.log_text import Line
from linkgauge.system import hwloc, sysfs
from linkgauge.system.draft import figure
from linkgauge.system.model import Link, Node, System

_MOST_DEVICES, _DEEPEST = 256, 64
_LONGEST_HEAD = 1 << 14  # characters before the outermost element
_VENDORS = {0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel"}
_DISPLAY, _NIC = 0x03, 0x02  # base classes of PCI
# Classes with their vendors: a display of a board's own controller, or of a processor, is no GPU here.
_GPUS = ((0x0302, 0x10DE), (0x0300, 0x10DE), (0x0302, 0x1002), (0x0300, 0x1002), (0x0380, 0x1002), (0x1200, 0x1002),
         (0x0380, 0x8086))  # fmt: skip
_SWITCH_CLASS = "0x068000"


def _root(lines: Sequence[Line]) -> str:
    """The name of the outermost element; empty where it is no XML."""
    text = "\n".join(line.text for line in lines[:50])
    text = re.sub(r"<!--.*?-->", "", text[:_LONGEST_HEAD], flags=re.DOTALL).lstrip()
    match = re.search(r"<([A-Za-z]\w*)", text) if text[:1] == "<" else None
    return match[1] if match else ""


def is_nccl(lines: Sequence[Line]) -> bool:
    """Whether it is a topology of NCCL's or RCCL's."""
    return _root(lines) == "system"


def is_hwloc(lines: Sequence[Line]) -> bool:
    """Whether it is a topology of hwloc's."""
    return _root(lines) == "topology"


def _parsed(lines: Sequence[Line], place: str) -> ElementTree.Element:
    text = "\n".join(line.text for line in lines)
    if "<!ENTITY" in text:
        raise UsageError(f"{place}: XML that defines entities: expected what NCCL or lstopo writes")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, RecursionError, ValueError) as error:
        raise UsageError(f"{place}: damaged XML ({error}): expected what NCCL or lstopo writes") from None


class _Machine:
    """Nodes and links as they are found."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.nodes: dict[str, Node] = {}
        self.links: list[Link] = []
        self.notes: list[str] = []

    def add(self, node: Node) -> str:
        if node.name in self.nodes:
            raise UsageError(f"{self.place}: {node.name} is there twice: expected the topology of one host")
        self.nodes[node.name] = node
        return node.name

    def pcie(self, lower: str, upper: str, speed: float | None, width: int | None, rate: float | None = None) -> None:
        told: dict[str, Any] = {"width": width} if width else {}
        if speed and width:
            words = f"{self.place}: {speed:g} GT/s x{width}"
            told["version"] = str(sysfs.generation_of(speed))
            told["data_rate"] = figure(sysfs.pcie_rates(speed, width)[1], "B/s", words)
        elif rate:
            told["data_rate"] = figure(rate, "B/s", f"{self.place}: speed of the PCI link")
        self.links.append(Link(lower, upper, "pcie", **told))

    def system(self, name: str, title: str) -> System:
        devices = sum(node.kind == "device" for node in self.nodes.values())
        if not 0 < devices <= _MOST_DEVICES:
            raise UsageError(f"{self.place}: {devices} GPUs in it: expected a machine with 1 to {_MOST_DEVICES}")
        if not any(node.kind == "host" for node in self.nodes.values()):
            raise UsageError(f"{self.place}: no NUMA node in it: expected the topology of a whole machine")
        hosts = [node.name for node in self.nodes.values() if node.kind == "host"]
        self.links += [Link(a, b, "upi") for at, a in enumerate(hosts) for b in hosts[at + 1 :]]
        words = f"{devices} GPU{'' if devices == 1 else 's'}, {title}"
        order = ("device", "host", "switch", "nic")
        nodes = sorted(self.nodes.values(), key=lambda node: (order.index(node.kind), node.ordinal or 0))
        return System(name, words, tuple(nodes), tuple(self.links), notes=tuple(self.notes))


# --- NCCL -------------------------------------------------------------------------------------------------------------


def of_nccl(lines: Sequence[Line], place: str) -> System:
    """The system of a topology of NCCL's; UsageError where it is damaged, or of several hosts."""
    root = _parsed(lines, place)
    machine = _Machine(place)
    gpus: dict[str, ElementTree.Element | None] = {}
    found: list[tuple[str, str, str, ElementTree.Element]] = []  # what, its address, the node above
    if len({cpu.get("host_hash") for cpu in root.iter("cpu")}) > 1:
        raise UsageError(f"{place}: a topology of several hosts: expected that of one")
    for cpu in root.findall("cpu"):
        numa = _whole(cpu.get("numaid"), 0)
        host = machine.add(Node(f"numa{numa}", "host", numa=numa))
        for pci in cpu.findall("pci"):
            _nccl_pci(pci, host, machine, found, 0)
    for what, address, _, pci in found:
        if what == "gpu":
            gpus[address] = pci.find("gpu")
    order = sorted(gpus, key=lambda one: (_whole(_of(gpus[one], "dev"), 1 << 20), one))
    names = {address: f"gpu{ordinal}" for ordinal, address in enumerate(order)}
    numbers = [_of(gpus[one], "dev") for one in order]
    if None not in numbers and len(set(numbers)) != len(numbers):
        raise UsageError(f"{place}: two GPUs are number {Counter(numbers).most_common(1)[0][0]}: expected one host")
    for what, address, above, pci in found:
        at = machine.nodes[_host_of(above, machine)].numa
        speed, width = _speed(pci.get("link_speed")), _whole(pci.get("link_width"), 0)
        if what == "gpu":
            vendor = _VENDORS.get(_whole(pci.get("vendor"), 0, 16))
            name = machine.add(
                Node(names[address], "device", vendor=vendor, ordinal=order.index(address), numa=at,
                     identity={"pci": address})
            )  # fmt: skip
        else:
            net = pci.find("nic/net")
            called = (net.get("name") if net is not None else None) or f"nic {address}"
            megabits = _whole(_of(net, "speed"), 0)
            rate = figure(megabits * 1e6 / 8, "B/s", f"{place}: speed of the port") if megabits else None
            name = machine.add(Node(called[:64], "nic", numa=at, port_rate=rate, identity={"pci": address}))
        machine.pcie(name, above, speed, width)
    _nvlinks(gpus, names, machine)
    machine.notes.insert(0, "from NCCL's topology, which names no models and no memory: unknown")
    if not any(node.kind == "nic" for node in machine.nodes.values()):
        machine.notes.append("no network card in it")
    return machine.system("nccl-topology", "as NCCL's topology has them")


def _nccl_pci(
    pci: ElementTree.Element, above: str, machine: _Machine, found: list[tuple[str, str, str, ElementTree.Element]],
    depth: int,
) -> None:  # fmt: skip
    address = sysfs.normal_address(pci.get("busid"))
    if address is None or depth > _DEEPEST:
        raise UsageError(f"{machine.place}: {str(pci.get('busid'))[:40]!r} is no PCI address")
    kind = _whole(pci.get("class"), 0, 16) >> 8
    if pci.find("gpu") is not None or (kind >> 8 == _DISPLAY and pci.find("pci") is None):
        found.append(("gpu", address, above, pci))
    elif pci.find("nic") is not None or kind >> 8 == _NIC:
        found.append(("nic", address, above, pci))
    elif pci.find("pci") is not None:
        name = machine.add(Node(f"pcie {address}", "switch", model="PCIe switch", routes=True))
        machine.pcie(name, above, _speed(pci.get("link_speed")), _whole(pci.get("link_width"), 0))
        for child in pci.findall("pci"):
            _nccl_pci(child, name, machine, found, depth + 1)


def _host_of(name: str, machine: _Machine) -> str:
    while machine.nodes[name].kind != "host":
        name = next(link.b for link in machine.links if link.a == name)
    return name


def _nvlinks(gpus: Mapping[str, ElementTree.Element | None], names: Mapping[str, str], machine: _Machine) -> None:
    """NVLink and xGMI between GPUs, counted once, and to switches, which are one."""
    counts: dict[tuple[str, str, str], int] = {}
    for address, gpu in gpus.items():
        for kind in ("nvlink", "xgmi"):
            for link in gpu.findall(kind) if gpu is not None else ():
                target, count = sysfs.normal_address(link.get("target")), _whole(link.get("count"), 0)
                to_switch = link.get("tclass", "").startswith(_SWITCH_CLASS)
                if not 0 < count <= 64 or (target not in names and not to_switch):
                    machine.notes.append(f"{names[address]}: {count} {kind} links to {str(link.get('target'))[:20]}, "
                                         "which is not in it: left out")  # fmt: skip
                    continue
                other = "nvswitch" if to_switch else names[str(target)]
                key = (names[address], other, kind)
                counts[key] = counts.get(key, 0) + count
    if any(other == "nvswitch" for _, other, _ in counts):
        machine.add(Node("nvswitch", "switch", model="NVSwitch", routes=True))
        machine.notes.append("NVSwitches are drawn as one; what a link of NVLink carries is not in it")
    elif counts:
        machine.notes.append("what a link of NVLink or xGMI carries is not in it")
    else:
        machine.notes.append(
            "no NVLink or xGMI in it: files for NCCL_TOPO_FILE leave them out, that of NCCL_TOPO_DUMP_FILE has them"
        )
    for (name, other, kind), count in counts.items():
        if other == "nvswitch" or name < other or (other, name, kind) not in counts:
            back = counts.get((other, name, kind), count)
            if other != "nvswitch" and back != count:
                raise UsageError(f"{machine.place}: {name} to {other} is {count} links one way and {back} the other")
            machine.links.append(Link(name, other, kind, count))


def _of(element: ElementTree.Element | None, name: str) -> str | None:
    return element.get(name) if element is not None else None


def _whole(text: str | None, default: int, base: int = 10) -> int:
    try:
        value = int(text or "", base) if len(text or "") < 12 else default
    except ValueError:
        return default
    return value if value >= 0 else default


def _speed(text: str | None) -> float | None:
    """GT/s of a lane: '32.0 GT/s PCIe'."""
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", text or "")
    return float(match[1]) if match and float(match[1]) in (2.5, 5, 8, 16, 32, 64) else None


# --- hwloc ------------------------------------------------------------------------------------------------------------


def of_hwloc(lines: Sequence[Line], place: str) -> System:
    """The system of a topology of hwloc's; UsageError where it is damaged or has no GPU."""
    root = _parsed(lines, place)
    machine = _Machine(place)
    facts = hwloc.functions(root)
    names = dict(_names(root))
    hosts = {}
    for node in (one for one in root.iter("object") if one.get("type") == "NUMANode"):
        numa, size = _whole(node.get("os_index"), 0), node.get("local_memory", "")
        memory = figure(float(size), "B", f"{place}: local_memory") if re.fullmatch(r"\d{1,16}", size) else None
        hosts[numa] = machine.add(Node(f"numa{numa}", "host", numa=numa, memory_bytes=memory))
    if not hosts:
        raise UsageError(f"{place}: no NUMA node in it: expected lstopo's XML of a whole machine")
    gpus = nics = 0
    for address, one in sorted(facts.items()):
        gpu = ((one.class_code or 0) >> 8, one.vendor) in _GPUS
        if not gpu and (one.class_code or 0) >> 16 != _NIC:
            continue
        if one.numa not in hosts and len(hosts) > 1:
            machine.notes.append(f"{address}: no NUMA node is stated for it; drawn at {next(iter(hosts.values()))}")
        host = hosts.get(one.numa if one.numa is not None else -1, next(iter(hosts.values())))
        told: dict[str, Any] = {"numa": machine.nodes[host].numa, "identity": {"pci": address}}
        if gpu:
            model, vendor = names.get(address), _VENDORS.get(one.vendor or 0)
            name = machine.add(Node(f"gpu{gpus}", "device", model=model, vendor=vendor, ordinal=gpus, **told))
            gpus += 1
        else:
            name = machine.add(Node((names.get(address) or f"nic{nics}")[:64], "nic", **told))
            nics += 1
        # A root port, then of each switch the port up and the one down.
        for bridge in reversed(one.parents[1::2]):
            switch = f"pcie {bridge}"
            known = switch in machine.nodes
            if not known:
                machine.add(Node(switch, "switch", model="PCIe switch", routes=True))
            machine.pcie(name, switch, None, None, one.data_rate if name[:4] != "pcie" else None)
            name = switch
            if known:
                break
        else:
            machine.pcie(name, host, None, None, one.data_rate if name[:4] != "pcie" else None)
    machine.notes.insert(
        0, "from hwloc's topology, which has no NVLink, xGMI, GPU memory and PCIe generations: unknown"
    )
    return machine.system("hwloc-topology", "as hwloc's topology has them")


def _names(root: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """What the operating system, or a driver, calls PCI devices, by address."""
    for device in (one for one in root.iter("object") if one.get("type") == "PCIDev"):
        address = sysfs.normal_address(device.get("pci_busid"))
        for inner in device.findall("object"):
            models = [info.get("value") for info in inner.findall("info") if info.get("name") == "GPUModel"]
            name = models[0] if models else inner.get("name") if inner.get("osdev_type") == "3" else None
            if address and name and re.fullmatch(r"[\w .:+/()-]{1,64}", name):
                yield address, name
