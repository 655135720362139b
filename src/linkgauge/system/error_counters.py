"""Every error counter of this node's links, cards and memories at one moment, and which of them rose since another.

Nothing but reading. Two moments tell what a count since the driver's start cannot: what a run, or an hour, has cost.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.model.shape import mapping, number, table, text, whole
from linkgauge.system import ethernet, sysfs
from linkgauge.system.nvlink_errors import gpu_errors, nvlink_errors

Counters = dict[str, dict[str, int]]
"""By part (`NVLink 3 of GPU 5`, `mlx5_0/1`) each counter's value."""

KEY = "error_counters"
"""Of run.json: each time that the run went on, the host and its counters before and after."""
_OF_PORT = {
    "symbol_error": "symbol errors", "link_error_recovery": "recoveries", "link_downed": "times down",
    "port_rcv_errors": "receive errors", "local_link_integrity_errors": "integrity errors",
}  # fmt: skip
_OF_PCI = {"aer_dev_correctable": "corrected PCIe errors", "aer_dev_nonfatal": "nonfatal PCIe errors",
           "aer_dev_fatal": "fatal PCIe errors"}  # fmt: skip
_LINK = {"replays": "replays", "recoveries": "recoveries", "failed_recoveries": "failed recoveries",
         "crc": "CRC errors"}  # fmt: skip
# How many of a counter sound hardware may have: so many a minute, by NVIDIA's own monitor (DCGM,
# dcgm_gpu_hardware_limits.h), where a corrected error of PCIe ends in a replay; and so many in all, by the thresholds
# of ibqueryerrors(8). Of NVLink's replays and recoveries that monitor has no number: each one counts.
_A_MINUTE = {"PCIe replays": 8, "corrected PCIe errors": 8, "CRC errors": 100 * 60}
_IN_ALL = dict.fromkeys(("symbol errors", "receive errors", "frame check errors"), 10)
_GRAVE = ("times down", "failed recoveries", "nonfatal PCIe errors", "fatal PCIe errors", "uncorrected")

COUNTERS = mapping(mapping(whole()))
NODE = table({"boot_s": whole(), "uptime_s": number(0), "counters": COUNTERS}, needed=("boot_s", "counters"))
"""One node's counters as JSON has them: `boot_s`, when its kernel started, `uptime_s`, how long ago, and `counters`."""
STORED = table({"host": text, "seconds": number(0), "before": COUNTERS, "after": COUNTERS},
               needed=("host", "before", "after"))  # fmt: skip
NODES = mapping(NODE, text)


@dataclasses.dataclass(frozen=True)
class Rise:
    """A counter of a part that is higher than it was, by how much in which time; 0 s: not known, taken as a minute."""

    part: str
    counter: str
    by: int
    seconds: float = 0

    @property
    def grave(self) -> bool:
        """Whether a link or data was lost; else the hardware has mended it itself."""
        return self.counter.startswith(_GRAVE)

    @property
    def few(self) -> bool:
        """Whether so few are expected of sound hardware."""
        a_minute = _A_MINUTE.get(self.counter, 0) * max(self.seconds / 60, 1)
        return self.by <= a_minute + _IN_ALL.get(self.counter, 0)

    @property
    def words(self) -> str:
        """For findings: `NVLink 3 of GPU 5: 1,204 replays`."""
        return f"{self.part}: {self.by:,} {self.counter}"


def error_counters(root: Path = Path("/")) -> Counters:
    """The counters of this node, or those below `root`; a part that shows none is left out."""
    found: Counters = {} if root != Path("/") else {**_of_nvlinks(), **gpu_errors()}
    for device in sysfs.entries(root / "sys/bus/pci/devices"):
        of_device = {name: total for file, name in _OF_PCI.items()
                     if (total := _total(kernel_text(device / file))) is not None}  # fmt: skip
        if (replays := sysfs.number(device / "pcie_replay_count")) is not None:  # amdgpu's
            of_device["PCIe replays"] = max(replays, 0)
        for file in sysfs.entries(device / "ras"):
            if (said := re.search(r"\bue: ([0-9]{1,18})\b", kernel_text(file))) and file.name.endswith("_err_count"):
                of_device[f"uncorrected {file.name.removesuffix('_err_count')} errors"] = int(said[1])
        if of_device:
            found[f"PCIe device {device.name}"] = of_device
    for card in sysfs.entries(root / "sys/class/infiniband"):
        for port in sysfs.entries(card / "ports"):
            of_port = {name: int(count) for file, name in _OF_PORT.items()
                       if re.fullmatch("[0-9]{1,18}", count := kernel_text(port / "counters" / file))}  # fmt: skip
            if of_port:
                found[f"{card.name}/{port.name}"] = of_port
    for interface in sysfs.entries(root / "sys/class/net"):
        if (interface / "device").exists() and (downs := sysfs.number(interface / "carrier_down_count")) is not None:
            of_port = ethernet.errors(interface.name) if root == Path("/") else {}
            found[interface.name] = {"times down": max(downs, 0), **of_port}
    return found


def _of_nvlinks() -> Counters:
    return {
        link.name: {word: getattr(link, name) for name, word in _LINK.items() if getattr(link, name) >= 0}
        for link in nvlink_errors() or ()
    }


def _total(content: str) -> int | None:
    """The sum in a file of Advanced Error Reporting: `TOTAL_ERR_COR 3`."""
    found = re.search(r"(?m)^TOTAL_ERR_\w+ ([0-9]{1,18})$", content)
    return int(found[1]) if found else None


def boot_s(root: Path = Path("/")) -> int:
    """When the kernel started, in seconds since 1970; 0 where it does not say. Counters begin anew then."""
    found = re.search(r"(?m)^btime ([0-9]{1,12})$", kernel_text(root / "proc/stat", 1 << 22))
    return int(found[1]) if found else 0


def uptime_s(root: Path = Path("/")) -> float:
    """For how long the kernel has run, in seconds, whatever became of the date; 0 where it does not say."""
    found = re.match(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ", kernel_text(root / "proc/uptime"))
    return float(found[1]) if found else 0.0


def rises(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]], seconds: float = 0
) -> list[Rise]:
    """What rose in so many seconds, the gravest first. A part that is new, or was set back, says nothing."""
    found = [
        Rise(part, name, count - before[part][name], seconds)
        for part, counts in after.items() if part in before
        for name, count in counts.items() if count > before[part].get(name, count)
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.few, not one.grave, -one.by, one.part))


def plain(before: Counters, after: Counters) -> dict[str, Counters]:
    """Both moments as they are stored: without counters that are 0 in both."""
    kept: dict[str, Counters] = {"before": {}, "after": {}}
    for part, counts in after.items():
        for name, count in counts.items():
            then = before.get(part, {}).get(name)
            if then is not None and (count or then):
                kept["before"].setdefault(part, {})[name] = then
                kept["after"].setdefault(part, {})[name] = count
    return kept
