"""The GPUs as AMD's kernel driver shows them in sysfs, and amdsmi beside it, for the doctor.

Nothing but reading, and no root is needed. The driver's files come first; amdsmi adds what they do not say, as in a
container that hides a part of /sys.
"""

from __future__ import annotations

import re
from collections import Counter

from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.readers import Readers
from linkgauge.model.grouped import grouped
from linkgauge.system.amdsmi import Health
from linkgauge.system.sysfs import generation_of

_PROCESSES = "/sys/class/kfd/kfd/proc"
# Of ras/gpu_vram_bad_pages; R, a page that is retired, is well.
_PAGES = {"P": "are to be retired at the next reset", "F": "could not be retired"}
# Of power_dpm_force_performance_level; auto, manual and high do not hold clocks down by themselves.
_LOW_LEVELS = ("low", "profile_min_sclk", "profile_min_mclk", "profile_standard")


def amd_gpus(readers: Readers) -> list[GpuFacts]:
    """Facts of every AMD GPU of the host, one for each PCI function: partitions (CPX) of a GPU share its own."""
    nodes = grouped((node.address, node) for node in readers.kfd()[0] if node.gpu_id and node.address)
    pci, found = readers.pci(), []
    healths = {one.address: one for one in (readers.amd_smi() if nodes else ())}
    for index, (address, parts) in enumerate(sorted(nodes.items())):
        node = parts[0]
        place = f"/sys/bus/pci/devices/{address}"
        level = readers.text(f"{place}/power_dpm_force_performance_level")
        link, health = pci.get(address), healths.get(address, Health(address))
        found.append(
            GpuFacts(
                index=index,
                name=readers.text(f"{place}/product_name") or node.name or "AMD GPU",
                uuid=node.unique_id or "",
                pci_address=address,
                vendor="amd",
                busy=_busy(readers, place),
                processes=_processes(readers, [part.gpu_id for part in parts]),
                power_limit=_watts(readers, place, "power1_cap"),
                power_default=_watts(readers, place, "power1_cap_default"),
                throttle=(*((f"performance level {level}",) if level in _LOW_LEVELS else ()), *health.throttle),
                pcie_width=(link and link.width) or health.pcie_width or -1,
                pcie_width_max=(link and link.max_width) or health.pcie_width_max or -1,
                pcie_generation=(link and generation_of(link.speed)) or -1,
                pcie_generation_max=(link and generation_of(link.max_speed)) or -1,
                partition=" ".join(filter(None, (readers.text(f"{place}/current_{kind}_partition")
                                                 for kind in ("compute", "memory")))),
                pcie_replays=max(_count(readers, f"{place}/pcie_replay_count"), health.pcie_replays),
                vbios=readers.text(f"{place}/vbios_version") or "",
                driver=readers.text("/sys/module/amdgpu/version") or "",
                memory_faults=_memory_faults(readers, place, health),
                xgmi_speed=health.xgmi_speed,
                xgmi_width=health.xgmi_width,
            )
        )  # fmt: skip
    return found


def _processes(readers: Readers, gpu_ids: list[int]) -> tuple[int, ...]:
    """Those that have memory on it. The driver lists each process with each partition, most with 0 bytes."""
    paths = [path for gpu_id in gpu_ids for path in readers.glob(f"{_PROCESSES}/*/vram_{gpu_id}")]
    pids = {path.split("/")[-2] for path in paths if (readers.text(path) or "0") != "0"}
    return tuple(sorted(int(pid) for pid in pids if pid.isdecimal()))


def _busy(readers: Readers, place: str) -> float | None:
    """Share of the last moments in which it worked, as the driver samples it."""
    text = readers.text(f"{place}/gpu_busy_percent") or ""
    return int(text) / 100 if re.fullmatch(r"[0-9]{1,3}", text) else None


def _watts(readers: Readers, place: str, name: str) -> float:
    for path in readers.glob(f"{place}/hwmon/hwmon*/{name}"):
        if (text := readers.text(path) or "").isdecimal():
            return int(text) / 1e6
    return -1


def _count(readers: Readers, path: str) -> int:
    text = readers.text(path) or ""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _memory_faults(readers: Readers, place: str, health: Health) -> tuple[str, ...]:
    """Uncorrected errors that the driver counts for each block (RAS), `ue: 1`, and pages that it could not retire."""
    errors = {}
    for path in readers.glob(f"{place}/ras/*_err_count"):
        if (said := re.search(r"\bue: (\d+)", readers.text(path) or "")) and int(said[1]):
            errors[path.split("/")[-1].removesuffix("_err_count")] = int(said[1])
    found = [f"{count} uncorrected {block} errors" for block, count in sorted(errors.items())]
    if not found and health.uncorrected > 0:
        found.append(f"{health.uncorrected} uncorrected memory errors")
    pages = Counter(re.findall(r"(?m): ([PF])$", readers.text(f"{place}/ras/gpu_vram_bad_pages") or ""))
    return (*found, *(f"{pages[sign]} bad pages of memory {words}" for sign, words in _PAGES.items() if pages[sign]))
