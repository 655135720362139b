"""What state an AMD GPU was in, and who else used it, as the kernel's drivers say in files; no library and no root.

- /sys/class/kfd/kfd/proc/PID has, of each process with a compute context, by the driver's id of the GPU: `vram_ID`
  (bytes it holds), `sdma_ID` (for how long its copies kept SDMA engines busy, in us) and `stats_ID/cu_occupancy`
  (compute units that run its waves) (Linux, amdkfd/kfd_process.c).
- gpu_busy_percent of the PCI device, and the power of its hwmon (Linux, Documentation/gpu/amdgpu/thermal.rst).
- /proc/PID/fdinfo of each open file of a GPU: `drm-pdev`, `drm-client-id` and `drm-engine-NAME` (busy time in ns)
  (Linux, Documentation/gpu/drm-usage-stats.rst).

A reading takes 20 us a file: three a process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.run.machine.observe import OTHER_PROCESSES, OTHERS_BUSY, OTHERS_COPY, STATE, Value
from linkgauge.run.machine.users import PROC, is_here
from linkgauge.system import kfd
from linkgauge.system.sysfs import entries

_NAMESPACE = "the driver's process numbers are of another PID namespace"
_UNITS = re.compile(r"(?m)^(simd_count|simd_per_cu) +([0-9]{1,6})$")
_ENGINE = re.compile(r"(?m)^drm-engine-(?!capacity-)[\w.-]+:\s*([0-9]{1,19}) ns$")
_CLIENT, _DEVICE = (re.compile(rf"(?m)^{name}:\s*(\S+)$") for name in ("drm-client-id", "drm-pdev"))


class AmdReader:
    """Reads one AMD GPU, by its PCI address: all of its partitions together, which share power and memory."""

    parts: Sequence[str] = (STATE,)

    def __init__(self, pci_address: str, subject: str, root: Path = Path("/")) -> None:
        """Find the driver's ids of the GPU. OSError where there is no such GPU. `root` is of tests alone."""
        self.subject = subject
        self._address = pci_address.lower()
        nodes = [node for node in kfd.read(root)[0] if node.gpu_id and node.address == self._address]
        if not nodes:
            raise OSError(f"/sys/class/kfd/kfd/topology has no GPU at {pci_address}")
        self._ids = [node.gpu_id for node in nodes]
        self._units = sum(_units(root / f"sys/class/kfd/kfd/topology/nodes/{node.number}/properties") for node in nodes)
        self._proc = root / "sys/class/kfd/kfd/proc"
        self._root = root
        self._device = root / "sys/bus/pci/devices" / self._address
        self._power = next((path for folder in entries(self._device / "hwmon")
                            for path in (folder / "power1_average", folder / "power1_input") if path.exists()),
                           None)  # fmt: skip
        self._own = {os.getpid()}

    def own(self, pids: Iterable[int]) -> None:
        """Say which processes of this host are the run's; this process always is."""
        self._own |= set(pids)

    def users(self) -> list[int] | None:
        """Return the processes that hold memory of it, as the driver numbers them; None where it lists none at all."""
        return None if not self._proc.exists() else [pid for pid in self._listed() if self._of(pid, "vram_{}")]

    def _listed(self) -> list[int]:
        return sorted(int(entry.name) for entry in entries(self._proc) if entry.name.isdecimal())

    def _of(self, pid: int, name: str) -> int:
        texts = (kernel_text(self._proc / str(pid) / name.format(gpu)) for gpu in self._ids)
        return sum(int(text) for text in texts if text.isdecimal() and len(text) < 20)

    def _comparable(self) -> bool:
        return is_here(os.getpid(), self._root / "proc") and self._proc.exists()

    def read(self, part: str = "") -> list[Value]:
        """The values of this moment."""
        found = list[Value]()
        if part not in ("", STATE):
            return found
        if self._power is not None and (text := kernel_text(self._power)).isdecimal():
            found.append(Value("power", int(text) / 1e6, "W"))
        if self._comparable():
            others = [pid for pid in self._listed() if pid not in self._own]
            copies = sum(self._of(pid, "sdma_{}") for pid in others)
            found.append(Value(OTHER_PROCESSES, sum(1 for pid in others if self._of(pid, "vram_{}")), ""))
            found.append(Value(OTHERS_COPY, 1e3 * copies, "ns"))
            if self._units:
                busy = sum(self._of(pid, "stats_{}/cu_occupancy") for pid in others)
                found.append(Value(OTHERS_BUSY, min(1.0, busy / self._units), ""))
        return found

    def busy(self) -> float | None:
        """Return the share of the last moments in which it worked, as the driver samples it."""
        text = kernel_text(self._device / "gpu_busy_percent")
        return int(text) / 100 if re.fullmatch(r"[0-9]{1,3}", text) else None

    def engine_ns(self, pids: Iterable[int]) -> int:
        """Return for how long these processes have kept its engines busy: of each of their clients once."""
        return sum(engine_ns(pid, self._address, self._root / "proc") for pid in pids)

    def refused(self) -> dict[str, str]:
        """What cannot be read here, each with its reason."""
        found = {} if self._power is not None else {"power": "the driver has no file of it"}
        if not self._comparable():
            found |= dict.fromkeys((OTHER_PROCESSES, OTHERS_BUSY, OTHERS_COPY), _NAMESPACE)
        return found


def _units(properties: Path) -> int:
    """Compute units of a device, by its driver."""
    said = {name: int(number) for name, number in _UNITS.findall(kernel_text(properties))}
    return said.get("simd_count", 0) // (said.get("simd_per_cu") or 1)


def engine_ns(pid: int, pci_address: str, root: Path = PROC) -> int:
    """Return for how long a process has kept a GPU's engines busy, as its open files say."""
    clients: dict[str, int] = {}
    with contextlib.suppress(OSError):  # ended, or another user's
        for name in os.listdir(root / str(pid) / "fdinfo"):
            text = kernel_text(root / str(pid) / "fdinfo" / name)
            device, client = _DEVICE.search(text), _CLIENT.search(text)
            if device and device[1].lower() == pci_address.lower():
                clients[client[1] if client else name] = sum(map(int, _ENGINE.findall(text)))
    return sum(clients.values())
