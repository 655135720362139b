"""Checks of the network cards: their ports, and which of them GPUs use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.gpus import gpus_of
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.siblings import SEVERAL, far_above, same_bridges

# Counter of a port (sysfs) -> its name for findings, and how many more than the others' are no chance.
_COUNTERS = {
    "counters/link_downed": ("times down", 10), "counters/link_error_recovery": ("recoveries", 10),
    "counters/symbol_error": ("symbol errors", SEVERAL), "counters/port_rcv_errors": ("receive errors", SEVERAL),
    "counters/local_link_integrity_errors": ("integrity errors", SEVERAL),
    "hw_counters/local_ack_timeout_err": ("messages sent again after a timeout", SEVERAL),
}  # fmt: skip
_DMA_BUF = ("CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA")


@check("network cards can read GPU memory (peermem or dma-buf), and GDRCopy is there")
def gpu_direct(readers: Readers) -> Result:
    """Only where both GPUs and RDMA cards are."""
    gpus = gpus_of(readers)
    if not readers.glob("/sys/class/infiniband/*"):
        return not_checked("no RDMA card here")
    if gpus[0].vendor == "amd":
        return _amd_gpu_direct(readers)
    modules, version = readers.text("/proc/modules"), readers.text("/proc/driver/nvidia/version")
    if modules is None and version is None:
        return not_checked("the kernel hides its modules, as sandboxes of containers have it")
    modules = modules or ""
    peermem = re.search(r"^(nvidia_peermem|nv_peer_mem) ", modules, re.MULTILINE) is not None
    dma_buf = "Open Kernel Module" in (version or "")
    if not peermem and not dma_buf:
        return Result(FAILING, "neither nvidia_peermem nor dma-buf (the open kernel module) is there",
                      "every message between nodes goes through host memory: half of the rate or less",
                      "modprobe nvidia_peermem")  # fmt: skip
    if not readers.exists("/dev/gdrdrv") and re.search(r"^gdrdrv ", modules, re.MULTILINE):
        return Result(WARNING, "GDRCopy's driver is loaded, but its device is not here", "small messages between GPUs "
                      "several times slower", "docker run --device=/dev/gdrdrv")  # fmt: skip
    if not readers.exists("/dev/gdrdrv"):
        return Result(WARNING, "GDRCopy's driver is not loaded", "small messages between GPUs several times slower",
                      "install gdrcopy and modprobe gdrdrv")  # fmt: skip
    return ok("GPUDirect RDMA is there")


def _amd_gpu_direct(readers: Readers) -> Result:
    """Peer memory of the amdgpu-dkms driver, or dma-buf with the two kernel options that RCCL asks for."""
    if any(readers.exists(f"{place}/memory_peers/amdkfd/version") for place in ("/sys/kernel/mm", "/sys")):
        return ok("amdgpu lends its memory to network cards")
    release = readers.text("/proc/sys/kernel/osrelease") or ""
    config = readers.text(f"/boot/config-{release}")
    if config is None:
        return not_checked(f"/boot/config-{release or 'RELEASE'}, which names the kernel's options, cannot be read")
    lacking = [name for name in _DMA_BUF if f"{name}=y" not in config.splitlines()]
    if lacking:
        return Result(WARNING, f"the kernel lacks {' and '.join(lacking)}, and amdgpu-dkms's peer memory is not there",
                      "every message between nodes goes through host memory: half of the rate or less",
                      "install amdgpu-dkms, or a kernel with these options")  # fmt: skip
    return ok("dma-buf is there")


def _ports(readers: Readers) -> dict[str, str]:
    """Card/port -> state."""
    found = {}
    for path in readers.glob("/sys/class/infiniband/*/ports/*/state"):
        parts = path.split("/")
        found[f"{parts[4]}/{parts[6]}"] = (readers.text(path) or "").split(":")[-1].strip()
    return found


@check("all rails of the network are up")
def rails(readers: Readers) -> Result:
    """Ports that are down while others are active."""
    ports = _ports(readers)
    if not ports:
        return not_checked("no RDMA card here")
    down = sorted(name for name, state in ports.items() if state != "ACTIVE")
    if len(down) == len(ports):
        return Result(WARNING, f"no port is active ({', '.join(down)})", "between nodes only TCP is left",
                      "ibstat; look at cables and the subnet manager")  # fmt: skip
    if down:
        return Result(WARNING, f"ports are down: {', '.join(down)} of {len(ports)}",
                      f"between nodes at most {len(ports) - len(down)}/{len(ports)} of the rate",
                      "ibstat; look at cables, and at ports that are meant to be unused")  # fmt: skip
    return ok(f"{len(ports)} ports are active")


@check("rails of one kind and model have one width and rate")
def rail_width(readers: Readers) -> Result:
    """Active ports that trained to fewer lanes, or to a lower rate, than another of this node's of their kind.

    A kind is InfiniBand or Ethernet, and the card's model (PSID) where the driver states it: a card for storage or for
    the site's network is meant to be slower than those for messages.
    """
    ports, alike = _ports(readers), dict[tuple[str, str], dict[str, tuple[float, int]]]()
    if not ports:
        return not_checked("no RDMA card here")
    for name in (name for name, state in ports.items() if state == "ACTIVE"):
        card, _, port = name.partition("/")
        place = f"/sys/class/infiniband/{card}"
        kind = readers.text(f"{place}/ports/{port}/link_layer") or "", readers.text(f"{place}/board_id") or ""
        if found := re.search(r"^([\d.]+) Gb/sec \((\d+)X", readers.text(f"{place}/ports/{port}/rate") or ""):
            alike.setdefault(kind, {})[name] = float(found[1]), int(found[2])
    if not alike:
        return not_checked("no active RDMA port says its width here")
    narrow, slow, well = [], [], []
    for of in alike.values():
        rate, lanes = (max(values) for values in zip(*of.values(), strict=True))
        narrow += [f"{name} has {has} of {lanes} lanes" for name, (_, has) in sorted(of.items()) if has < lanes]
        slow += [f"{name} is at {has:g} of {rate:g} Gb/s" for name, (has, _) in sorted(of.items()) if has < rate]
        well.append(f"{len(of)} active ports have {lanes} lanes and {rate:g} Gb/s")
    if narrow:
        return Result(WARNING, ", ".join(narrow), "as much less of the rate there",
                      "ibstat; reseat or replace cable and transceiver; a split cable is meant to be so")  # fmt: skip
    if slow:
        return Result(WARNING, ", ".join(slow), "as much less of the rate there",
                      "ibstat; look at cable, transceiver and switch port; a card of another kind is meant to be "
                      "slower")  # fmt: skip
    return ok("; ".join(well))


@check("no rail of the network has more errors than the others")
def rail_errors(readers: Readers) -> Result:
    """Counters of active ports since their driver was loaded: links that went down, and errors."""
    ports = [name for name, state in _ports(readers).items() if state == "ACTIVE"]
    counts: dict[str, dict[str, int]] = {counter: {} for counter in _COUNTERS}
    for name in ports:
        card, _, port = name.partition("/")
        for counter, known in counts.items():
            text = readers.text(f"/sys/class/infiniband/{card}/ports/{port}/{counter}") or ""
            if text.isdecimal():
                known[name] = int(text)
    if not any(counts.values()):
        return not_checked("no active RDMA port shows error counters" if ports else "no RDMA card here")
    said = [words for counter, (word, least) in _COUNTERS.items() for words in far_above(counts[counter], word, least)]
    if said:
        return Result(WARNING, "; ".join(said), "messages are repeated, or the rail is lost for seconds at a time",
                      "perfquery -x, or ethtool -S, shows whether they still rise; look at cable, transceiver and "
                      "switch port")  # fmt: skip
    return ok(f"{len(ports)} ports")


@check("network cards of one model have one firmware")
def rail_firmware(readers: Readers) -> Result:
    """Cards of one board (PSID), and their firmware's versions."""
    versions: dict[str, dict[str, list[str]]] = {}
    for path in readers.glob("/sys/class/infiniband/*"):
        board, version = (readers.text(f"{path}/{name}") for name in ("board_id", "fw_ver"))
        if board and version:
            versions.setdefault(board, {}).setdefault(version, []).append(path.split("/")[-1])
    if not versions:
        return not_checked("no RDMA card here")
    unlike = [f"{board}: " + ", ".join(f"{version} on {' '.join(cards)}" for version, cards in sorted(of.items()))
              for board, of in versions.items() if len(of) > 1]  # fmt: skip
    if unlike:
        return Result(WARNING, f"firmware differs ({'; '.join(unlike)})", "rails differ in rate, or drop messages",
                      "mlxfwmanager --query; update the older ones, and restart the host")  # fmt: skip
    # With versions and counts, so that nodes that differ in them are compared.
    return ok("; ".join(f"{board}: {version} on {len(cards)}" for board, of in sorted(versions.items())
                        for version, cards in of.items()))  # fmt: skip


@check("each GPU's traffic is meant for the card nearest to it")
def nearest_card(readers: Readers) -> Result:
    """A variable that names cards, none of which is on the NUMA node of a GPU that has one."""
    gpus = gpus_of(readers)
    cards = {
        path.split("/")[-1]: readers.text(f"{path}/device/numa_node")
        for path in readers.glob("/sys/class/infiniband/*")
    }
    if not cards:
        return not_checked("no RDMA card here")
    ports = {
        card: [name.partition("/")[2] for name in _ports(readers) if name.startswith(f"{card}/")] for card in cards
    }
    for variable, prefixes in (("NCCL_IB_HCA", True), ("UCX_NET_DEVICES", False)):
        text = readers.environment.get(variable, "")
        left = _cards_left(text, ports, prefixes=prefixes)
        if variable == "NCCL_IB_HCA" and not left:
            return Result(WARNING, f"{variable}={text} leaves none of the cards here", "NCCL goes by TCP between nodes",
                          f"unset {variable}, or name {', '.join(sorted(cards))}")  # fmt: skip
        if not left:  # UCX's may be a device of another kind
            continue
        for gpu in gpus:
            if far := _far_by_pcie(readers, gpu, left):
                finding = f"{variable}={text} leaves GPU {gpu.index} without {far}, which shares a PCIe switch with it"
                return Result(WARNING, finding, "its traffic goes up to the processor and back",
                              f"add {far} to {variable}, or unset it")  # fmt: skip
            node = readers.text(f"/sys/bus/pci/devices/{gpu.pci_address}/numa_node")
            near = [card for card, of in cards.items() if of == node]
            if node not in (None, "-1") and near and node not in {cards[card] for card in left}:
                finding = f"{variable}={text} leaves GPU {gpu.index} (node {node}) only cards of other nodes"
                verb = "take {} out of" if text.startswith("^") else "add {} to"
                fix = f"{verb.format(near[0])} {variable}, or unset it"
                return Result(WARNING, finding, "its traffic crosses the sockets", fix)
    return ok("no variable keeps a GPU from its nearest card")


def _far_by_pcie(readers: Readers, gpu: GpuFacts, left: Collection[str]) -> str:
    """The card below a PCIe switch of a GPU's, where a variable leaves none of these; empty where it does."""
    pci = readers.pci()
    cards = {path.split("/")[-1]: readers.link(f"{path}/device") for path in readers.glob("/sys/class/infiniband/*")}
    if gpu.pci_address not in pci:
        return ""
    up = pci[gpu.pci_address].parents
    shared = {card: same_bridges(up, pci[address].parents) for card, address in cards.items() if address in pci}
    # Below one root port alone, as in virtual machines, lies no switch.
    near = [card for card, count in shared.items() if count > 1 and count == max(shared.values())]
    return near[0] if near and not set(near) & set(left) else ""


def _cards_left(text: str, ports: Mapping[str, Collection[str]], *, prefixes: bool) -> list[str]:
    """The cards that a variable leaves: those of its list of CARD[:PORT], or all but these after ^.

    `ports`: of each card those that it has, none where they are not known. `prefixes`: names are beginnings of cards'
    names, unless = comes before the list, as NCCL has them.
    """
    but, text = text.startswith("^"), text.removeprefix("^")
    exact, text = not prefixes or text.startswith("="), text.removeprefix("=") if prefixes else text
    listed = [word.partition(":")[::2] for word in text.split(",") if word]
    if not listed or (not prefixes and ("all", "") in listed):
        return list(ports)

    def named(card: str, port: str) -> bool:
        return any((card == name if exact else card.startswith(name)) and (not port or asked in ("", port))
                   for name, asked in listed)  # fmt: skip

    return [card for card, its in ports.items() if any(but != named(card, port) for port in its or [""])]
