"""Checks of how GPUs are set, and of errors on their way to the host."""

from __future__ import annotations

import re
from collections import Counter

from linkgauge.doctor.check import WARNING, Result, check, not_checked, ok
from linkgauge.doctor.gpus import gpus_of, gpus_or_why
from linkgauge.doctor.links import is_virtual
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.siblings import far_above

_X86 = re.compile(r"^flags\s*:", re.MULTILINE)
_TRANSLATING = ("DMA", "DMA-FQ")


@check("GPUs of one kind are set alike, and without confidential computing")
def gpu_settings(readers: Readers) -> Result:
    """ECC, persistence mode, firmware (VBIOS), and whether transfers are encrypted."""
    gpus = gpus_of(readers)
    if secret := [gpu for gpu in gpus if gpu.confidential]:
        return Result(WARNING, f"confidential computing is on ({len(secret)} GPUs)", "host transfers are encrypted and "
                      "go through a bounce buffer: a fraction of the rate", "nvidia-smi conf-compute -f shows it; the "
                      "host's administrator turns it off")  # fmt: skip
    unlike = []
    for setting, word in (("ecc", "ECC"), ("persistence", "persistence mode"), ("vbios", "VBIOS")):
        for name in dict.fromkeys(gpu.name for gpu in gpus):
            of = {gpu.index: getattr(gpu, setting) for gpu in gpus if gpu.name == name and getattr(gpu, setting)}
            (usual, _), *others = Counter(of.values()).most_common() or [("", 0)]
            if others:
                unlike += [f"GPU {index}: {word} {value}, others {usual}" for index, value in of.items()
                           if value != usual]  # fmt: skip
    if unlike:
        return Result(WARNING, "; ".join(unlike), "GPUs differ in rate, or in the time to start",
                      "nvidia-smi -e 1; nvidia-smi -pm 1; update the older firmware")  # fmt: skip
    first = gpus[0]
    xgmi = sorted({f"{gpu.xgmi_speed:g} Gb/s x{gpu.xgmi_width}" for gpu in gpus if gpu.xgmi_width > 0})
    known = {"ECC": first.ecc, "persistence mode": first.persistence, "driver": first.driver, "GSP": first.gsp,
             "xGMI links": " and ".join(xgmi)}  # fmt: skip
    return ok(", ".join(f"{word} {value}" for word, value in known.items() if value) or "the driver names no settings")


@check("network cards can map the GPUs' memory (BAR size)")
def bar_size(readers: Readers) -> Result:
    """BAR1 against the GPU's memory, where RDMA cards are, and against siblings."""
    gpus = gpus_of(readers)
    known = [gpu for gpu in gpus if gpu.bar_mib > 0 and gpu.memory_mib > 0]
    most = {gpu.name: max(one.bar_mib for one in known if one.name == gpu.name) for gpu in known}
    rdma = bool(readers.glob("/sys/class/infiniband/*"))
    small = [f"GPU {gpu.index}: {gpu.bar_mib} MiB of {gpu.memory_mib} MiB" for gpu in known
             if gpu.bar_mib < most[gpu.name] or (rdma and 2 * gpu.bar_mib < gpu.memory_mib)]  # fmt: skip
    if small:
        return Result(WARNING, f"BAR1 is small ({'; '.join(small)})", "GPUDirect RDMA and GDRCopy can map little: "
                      "registering fails, or host memory is used", "turn on Above 4G Decoding and Resizable BAR in the "
                      "firmware's set-up; nvidia-smi -q -d MEMORY shows BAR1")  # fmt: skip
    return ok("BAR1 is large enough" if known else "the driver names no BAR1")


@check("no GPU or PCIe bridge above one has more PCIe errors than the others")
def pcie_errors(readers: Readers) -> Result:
    """Replays that GPUs count, and corrected errors of each device up to the root."""
    gpus = gpus_of(readers)
    pci = readers.pci()
    said = list(far_above({f"GPU {gpu.index}": gpu.pcie_replays for gpu in gpus if gpu.pcie_replays >= 0}, "replays"))
    above = [address for gpu in gpus if gpu.pci_address in pci for address in pci[gpu.pci_address].parents]
    devices = dict.fromkeys([*(gpu.pci_address for gpu in gpus), *above])
    counts = {}
    for address in devices:
        text = readers.text(f"/sys/bus/pci/devices/{address}/aer_dev_correctable") or ""
        if total := re.search(r"^TOTAL_ERR_COR (\d{1,18})$", text, re.MULTILINE):
            counts[f"PCIe device {address}"] = int(total[1])
    said += far_above(counts, "corrected errors")
    if said:
        return Result(WARNING, "; ".join(said), "packets are repeated: less rate, and spread",
                      "lspci -vv; dmesg shows PCIe errors; reseat the card or riser; linkgauge doctor --snapshot FILE "
                      "shows later whether they rise")  # fmt: skip
    return ok("replays and corrected errors are few" if counts else "replays are few")


@check("the IOMMU does not translate between devices that should reach each other")
def iommu(readers: Readers) -> Result:
    """On x86 without a hypervisor: with translation, peer traffic goes up to the root and back."""
    gpus = gpus_of(readers)
    if is_virtual(readers) or not _X86.search(readers.text("/proc/cpuinfo") or ""):
        return ok("of the host's kernel, or of another architecture")
    cards = {readers.link(f"{path}/device") for path in readers.glob("/sys/class/infiniband/*")} - {""}
    ends = [*(gpu.pci_address for gpu in gpus), *sorted(cards)]
    kinds = {end: readers.text(f"/sys/bus/pci/devices/{end}/iommu_group/type") for end in ends}
    translated = [end for end, kind in kinds.items() if kind in _TRANSLATING]
    if len(ends) > 1 and translated:
        return Result(WARNING, f"the IOMMU translates for {len(translated)} of {len(ends)} GPUs and cards, such as "
                      f"{translated[0]}", "peer copies by PCIe and GPUDirect RDMA at a fraction of the rate",
                      "boot with iommu=pt")  # fmt: skip
    return ok("it passes through, or is off")


@check("PCIe relaxed ordering is on for all GPUs and network cards of one kind, or for none")
def relaxed_ordering(readers: Readers) -> Result:
    """The device control register of each, whose registers past byte 64 only root can read.

    Virtual functions have the setting of their card, and in a virtual machine the host's counts.
    """
    gpus, none = gpus_or_why(readers)
    cards = {readers.link(f"{path}/device"): path.split("/")[-1] for path in readers.glob("/sys/class/infiniband/*")}
    pci = readers.pci()
    ends = {gpu.pci_address: f"GPU {gpu.index}" for gpu in gpus} | cards
    own = {end: name for end, name in ends.items()
           if end in pci and not readers.link(f"/sys/bus/pci/devices/{end}/physfn")}  # fmt: skip
    if not own or is_virtual(readers):
        return none if none and not cards else not_checked("in a virtual machine, or without PCIe, the host decides")
    states = {end: pci[end].relaxed_ordering for end in own}
    if all(state is None for state in states.values()):
        return not_checked("only root can read PCIe relaxed ordering: sudo linkgauge doctor")
    kinds: dict[tuple[int | None, int | None], dict[str, bool]] = {}
    for end, state in states.items():
        if state is not None:
            kinds.setdefault((pci[end].vendor, pci[end].device), {})[end] = state
    off = [end for of in kinds.values() if any(of.values()) for end, state in of.items() if not state]
    if off:
        return Result(WARNING, f"PCIe relaxed ordering is off for {', '.join(own[end] for end in off)}, and on for "
                      "others of its kind", "its writes wait for each other at the processor: less rate", "lspci -vv "
                      "shows RlxdOrd; until the next boot: "
                      + "; ".join(f"setpci -s {end} CAP_EXP+8.w=0010:0010" for end in off))  # fmt: skip
    on = sum(bool(state) for state in states.values())
    return ok(f"on for {on} of {len(own)} GPUs and cards")
