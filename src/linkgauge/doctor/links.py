"""Checks of the links of GPUs: PCIe up to the root, NVLink and XGMI."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.gpus import gpus_of, named
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.siblings import far_above
from linkgauge.system.nvlink_errors import LinkErrors
from linkgauge.system.sysfs import PciFacts, generation_of

_QEMU = 0x1B36  # vendor of emulated ports: they state any width
_REDIRECTS = 0b1100  # ACS control: P2P requests and P2P completions are sent to the root
# From here on operators' alarms sound: cluster-toolkit's health check of GB200 and GB300 (pull request 5942).
_EFFECTIVE_BER, _SYMBOL_BER = 1e-9, 1e-25
_SHOWN = 8


def _some(words: Sequence[str]) -> str:
    """At most eight of them, and how many more there are."""
    return "; ".join(words[:_SHOWN]) + (f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")


@check("PCIe links are at their full width and generation, up to the root")
def pcie_width(readers: Readers) -> Result:
    """Width counts always; generation falls while a GPU sleeps, so a lower one is only a hint."""
    gpus = gpus_of(readers)
    narrow = [f"GPU {gpu.index}: x{gpu.pcie_width} of x{gpu.pcie_width_max}"
              for gpu in gpus if 0 < gpu.pcie_width < gpu.pcie_width_max]  # fmt: skip
    pci = {} if is_virtual(readers) else readers.pci()
    narrow += dict.fromkeys(words for gpu in gpus for words in _narrow_above(gpu, pci))
    if narrow:
        return Result(FAILING, f"PCIe links below their width ({_some(narrow)})", "host transfers at that share of the "
                      "rate", "lspci -vv shows LnkSta and LnkCap; reseat the card or riser; look at the slot's lanes "
                      "in the firmware's set-up")  # fmt: skip
    # The most that NVML states is the least of what GPU and slot can: a narrow slot shows beside the others alone.
    unlike = [words for name in dict.fromkeys(gpu.name for gpu in gpus)
              for words in _unlike([gpu for gpu in gpus if gpu.name == name])]  # fmt: skip
    if unlike:
        return Result(WARNING, f"PCIe links can do less than those of like GPUs ({_some(unlike)})",
                      "host transfers at that share of the others' rate", "look at the slots' lanes and generation in "
                      "the board's manual and the firmware's set-up; some boards are made so")  # fmt: skip
    slots = [one for gpu in gpus for one in _slot(gpu, pci)]
    # A board that is one generation older than all of its cards is common; two generations are a wrong setting.
    older_board = len(slots) == len(gpus) and all(behind == 1 for _, behind in slots)
    if slots and not older_board:
        return Result(WARNING, f"PCIe slots can do less than their cards ({_some([words for words, _ in slots])})",
                      "host transfers at that share of the card's rate", "lspci -vv shows LnkCap of card and slot; set "
                      "the slot to Auto in the firmware's set-up; some boards are made so")  # fmt: skip
    slow = [gpu for gpu in gpus if 0 < gpu.pcie_generation < gpu.pcie_generation_max]
    if slow:
        return ok(f"full width; {named(slow)} at a lower generation while idle")
    return ok(f"full width; all slots are one generation older than the cards ({slots[0][0]})" if slots
              else "full width and generation")  # fmt: skip


def is_virtual(readers: Readers) -> bool:
    """Whether this is a virtual machine, whose bridges are emulated."""
    return re.search(r"^flags\s*:.*\bhypervisor\b", readers.text("/proc/cpuinfo") or "", re.MULTILINE) is not None


def _unlike(gpus: list[GpuFacts]) -> list[str]:
    """Which of like GPUs have links that can do less than another's, width or generation."""
    width = max(gpu.pcie_width_max for gpu in gpus)
    generation = max(gpu.pcie_generation_max for gpu in gpus)
    words = [f"GPU {gpu.index}: x{gpu.pcie_width_max} of x{width}" for gpu in gpus if 0 < gpu.pcie_width_max < width]
    return words + [f"GPU {gpu.index}: generation {gpu.pcie_generation_max} of {generation}" for gpu in gpus
                    if 0 < gpu.pcie_generation_max < generation]  # fmt: skip


def _links_above(gpu: GpuFacts, pci: dict[str, PciFacts]) -> Iterator[tuple[PciFacts, PciFacts]]:
    """The links from a GPU to the root: a device or a switch's upstream port, and the port above it.

    A switch's downstream port and its upstream port are one chip: no link is between them.
    """
    here = pci.get(gpu.pci_address)
    chain = [] if here is None else [gpu.pci_address, *reversed(here.parents)]
    for below, above in zip(chain[::2], chain[1::2], strict=False):
        if below in pci and above in pci and pci[above].vendor != _QEMU:
            yield pci[below], pci[above]


def _narrow_above(gpu: GpuFacts, pci: dict[str, PciFacts]) -> Iterator[str]:
    """Links between switches above a GPU that are narrower than both of their ends."""
    for below, above in list(_links_above(gpu, pci))[1:]:
        could = min(below.max_width or 0, above.max_width or 0)
        if below.width and below.width < could:
            yield f"switch port {below.address}: x{below.width} of x{could}"


def _slot(gpu: GpuFacts, pci: dict[str, PciFacts]) -> Iterator[tuple[str, int]]:
    """What the port above a GPU lacks of what the GPU itself could do, and how many generations (0: lanes)."""
    for card, port in list(_links_above(gpu, pci))[:1]:
        if port.max_width and card.max_width and (card.width or 0) <= port.max_width < card.max_width:
            yield f"GPU {gpu.index}: slot x{port.max_width}, card x{card.max_width}", 0
        slot, able = generation_of(port.max_speed), generation_of(card.max_speed)
        if slot and able and (generation_of(card.speed) or 0) <= slot < able:
            yield f"GPU {gpu.index}: slot of generation {slot}, card of generation {able}", able - slot


@check("PCIe switches let GPUs and network cards reach each other directly (ACS)")
def acs(readers: Readers) -> Result:
    """Whether a port of a switch that two of them share sends what one writes to the other up to the root."""
    gpus = gpus_of(readers)
    pci = readers.pci()
    cards = {readers.link(f"{path}/device"): path.split("/")[-1] for path in readers.glob("/sys/class/infiniband/*")}
    ends = {gpu.pci_address: f"GPU {gpu.index}" for gpu in gpus} | cards
    pairs: dict[str, list[str]] = {}  # by port: who is hindered
    hidden = shared = False
    for one, other in itertools.combinations([end for end in ends if end in pci], 2):
        up, beside = pci[one].parents, pci[other].parents
        common = sum(1 for _ in itertools.takewhile(lambda two: two[0] == two[1], zip(up, beside, strict=False)))
        if common < 2 or common in (len(up), len(beside)):
            continue  # below a root port and a switch's upstream port, and behind ports of their own
        shared = True
        for port in (up[common], beside[common]):
            services = pci[port].acs if port in pci else None
            hidden |= services is None
            if services and services & _REDIRECTS:
                pairs.setdefault(port, []).append(f"{ends[one]} and {ends[other]}")
    if pairs:
        first = next(iter(pairs.values()))[0]
        return Result(WARNING, f"ACS sends peer traffic of {len(pairs)} PCIe switch ports up to the root, such as "
                      f"between {first}", "peer copies and GPUDirect RDMA at a fraction of the rate",
                      "turn ACS off in the firmware's set-up, or until the next boot: "
                      + "; ".join(f"setpci -s {port} ECAP_ACS+0x6.w=0000" for port in pairs))  # fmt: skip
    if hidden:
        return not_checked("only root can read whether ACS is on: sudo linkgauge doctor")
    return ok("off at the switches' ports" if shared else "no two of them share a PCIe switch")


@check("all NVLinks of a GPU are up")
def nvlinks(readers: Readers) -> Result:
    """A GPU with some links down, or with fewer than its siblings."""
    gpus = gpus_of(readers, "nvidia")
    linked = [gpu for gpu in gpus if gpu.nvlinks_active or gpu.nvlinks_inactive]
    if not linked:
        return not_checked("these GPUs show no NVLinks")
    most = max(gpu.nvlinks_active for gpu in linked)
    short = [gpu for gpu in linked if gpu.nvlinks_active < most]
    if short:
        said = "; ".join(f"GPU {gpu.index}: {gpu.nvlinks_active} of {most}" for gpu in short)
        return Result(FAILING, f"NVLinks are down ({said})", "peer copies at that share of the rate",
                      "nvidia-smi nvlink -s; nvidia-smi nvlink -e; look at the fabric manager's log")  # fmt: skip
    more = max(gpu.nvlinks_active + gpu.nvlinks_inactive for gpu in linked) - most
    return ok(f"{most} links of each GPU are up" + (f", and {more} of each are not used" if more else ""))


@check("links are as many and as fast as described for machines of this kind", quick=False)
def links_as_described(readers: Readers) -> Result:
    """Compare with the described system that this machine is like: what all GPUs lack alike shows here alone."""
    gpus = gpus_of(readers)
    likeness = readers.likeness()
    if likeness is None:
        return not_checked("no described system is like this machine (linkgauge topology lists them)")
    name = likeness.system.name
    if likeness.fewer_links:
        tool = "nvidia-smi nvlink -s" if gpus[0].vendor == "nvidia" else "rocm-smi --showtopo"
        return Result(WARNING, f"unlike the described {name}: {_some(likeness.fewer_links)}",
                      "transfers over these links at that share of the rate",
                      f"{tool}; linkgauge topology --here; look at the driver's log")  # fmt: skip
    return ok("; ".join([f"as described for {name}", *likeness.differences]))


@check("no NVLink has more errors than the others", quick=False)
def nvlink_errors(readers: Readers) -> Result:
    """Bit error rates from which on operators act, links that trained again, and counters far above the others'."""
    gpus = gpus_of(readers, "nvidia")
    links = readers.nvlink_errors()
    if not any(gpu.nvlinks_active for gpu in gpus) or not links:
        return not_checked("these GPUs show no NVLinks")
    said = [words for link in links for words in _errors_of(link)]
    for counter, word in (("replays", "replays"), ("crc", "CRC errors")):
        said += far_above({link.name: getattr(link, counter) for link in links}, word)
    if said:
        return Result(WARNING, _some(said), "transfers over these links are repeated: less rate, and spread",
                      "nvidia-smi nvlink -e; after a reset of the GPU (nvidia-smi -r) look again; if they come back, "
                      "have the link or the tray replaced")  # fmt: skip
    return ok(f"{len(links)} links")


def _errors_of(link: LinkErrors) -> Iterator[str]:
    if link.effective_ber > _EFFECTIVE_BER:
        yield f"{link.name}: effective bit error rate {link.effective_ber:.0e}, above {_EFFECTIVE_BER:.0e}"
    if link.symbol_ber > _SYMBOL_BER:
        yield f"{link.name}: symbol error rate {link.symbol_ber:.0e}, above {_SYMBOL_BER:.0e}"
    if link.failed_recoveries > 0:
        yield f"{link.name}: {link.failed_recoveries} recoveries failed"
    elif link.recoveries > 0:
        yield f"{link.name}: {link.recoveries} recoveries"
