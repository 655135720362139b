"""A look at the GPUs and cores while the run uses none: before its first launch and after its last.

There all that is read is somebody else's. What is too dear to read beside each case (errors of links, temperature,
clocks: up to 30 ms a GPU) is read here, and processes are found by the device files that they have open, since NVML
lists none of another PID namespace. About 0.2 s for two GPUs, most of it while the parent does something else.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.files import kernel_text
from linkgauge.nvml import open_nvml
from linkgauge.owner import described, sees_itself, stat_fields
from linkgauge.run.machine.core_ticks import CoreTicks, core_ticks, process_ticks
from linkgauge.run.machine.observe import NvmlReader
from linkgauge.run.parent.devices import DeviceSet

KEY = "looks"
"""Of run.json."""
_WINDOW_S = 0.1  # ten ticks of a core's time
_WRAPS = 1 << 32  # NVML counts PCIe's bytes in 32 bits
_LINKS = {"nvlink": ("nvlink_data_tx_bytes", "nvlink_data_rx_bytes"), "pcie": ("pcie_tx_bytes", "pcie_rx_bytes")}
_GPU_FILE = re.compile(r"/dev/nvidia\d+")
_CORE_SHARE = 0.5  # of a core, from which a process is named
_MOST_NAMED = 8


class Looks:
    """The looks of one run at its devices."""

    def __init__(self, devices: DeviceSet, several_nodes: bool = False) -> None:
        """Look before the run, in a thread of its own, at NVIDIA's GPUs of this node; at no others."""
        self._found: list[dict[str, Any]] = []
        self._readers: list[tuple[int, NvmlReader]] = []
        self._devices = devices
        self._active = devices.kind == "cuda" and not several_nodes
        self._thread: threading.Thread | None = None
        self._begin(self._first)

    def _begin(self, look: Callable[[], None]) -> None:
        if self._active:
            self._thread = threading.Thread(target=look, daemon=True)
            self._thread.start()

    def again(self) -> None:
        """Begin the look after the run."""
        self.found()
        self._begin(lambda: self._look("after"))

    def found(self) -> list[dict[str, Any]]:
        """Wait for what was begun, and return all looks as they are stored."""
        if self._thread is not None:
            self._thread.join()
        return self._found

    def _look(self, moment: str) -> None:
        with contextlib.suppress(Exception):  # whatever a driver raises: a run does without its looks
            self._found.append(self._seen(moment))

    def _first(self) -> None:
        for ordinal, info in enumerate(self._devices.infos):
            with contextlib.suppress(Exception):  # whatever NVML raises: a run does without
                address = str(info["pci_address"])
                self._readers.append((ordinal, NvmlReader(address, f"cuda:{ordinal}", budget_ns=math.inf)))
        self._look("before")

    def _seen(self, moment: str) -> dict[str, Any]:
        when_ns = time.monotonic_ns()
        cores, ticks = _core_ticks(), _ticks_by_process()
        first = [_values(reader) for _, reader in self._readers]
        users = gpu_processes()
        time.sleep(max(0.0, _WINDOW_S - (time.monotonic_ns() - when_ns) / 1e9))
        second = [_values(reader) for _, reader in self._readers]
        seen = [
            {"device": ordinal, "processes": users, **_rates(before, after), "values": after["values"],
             # After the run its own kernels are what ran last.
             **({} if moment == "after" else _busy(reader))}
            for (ordinal, reader), before, after in zip(self._readers, first, second, strict=True)
        ]  # fmt: skip
        host = _host(cores, _core_ticks(), ticks, _ticks_by_process())
        return {"moment": moment, "when_ns": when_ns, "devices": seen, "host": host}


def _values(reader: NvmlReader) -> dict[str, Any]:
    when_ns = time.monotonic_ns()
    return {"when_ns": when_ns, "values": {value.name: value.value for value in reader.read()}}


def _rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Return what each link moved, the larger of both ways, in bytes per second."""
    seconds = (after["when_ns"] - before["when_ns"]) / 1e9
    found = {}
    for link, names in _LINKS.items():
        moved = [after["values"][name] - before["values"][name] for name in names if name in after["values"]]
        if moved and seconds > 0:
            found[f"{link}_bytes_per_s"] = max(n % _WRAPS if link == "pcie" else max(0.0, n) for n in moved) / seconds
    return found


def _busy(reader: NvmlReader) -> dict[str, float]:
    """Return the share of the last moments in which kernels ran or memory was used, where NVML says so."""
    library = open_nvml()
    try:
        rates = library.nvmlDeviceGetUtilizationRates(reader.handle)
        return {"busy": max(rates.gpu, rates.memory) / 100}
    except (library.NVMLError, AttributeError):
        return {}


def gpu_processes(root: Path = Path("/proc")) -> list[str]:
    """Return the processes, in words, that have a CUDA context: a GPU's device file open and CUDA's library mapped.

    Without this process and those that it started. `root` stands for /proc in tests.
    """
    if not sees_itself():
        return []
    found = []
    for pid in _others(root):
        folder = root / str(pid)
        with contextlib.suppress(OSError):  # ended, or another user's
            on_gpu = any(_GPU_FILE.fullmatch(target) for target in _open_files(folder / "fd"))
            if on_gpu and "libcuda" in (folder / "maps").read_text(errors="replace"):
                found.append(described(pid))
    return found[:_MOST_NAMED]


def _open_files(folder: Path) -> Iterable[str]:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # closed since
            yield os.readlink(folder / name)


def _others(root: Path) -> Iterable[int]:
    """Yield the processes of `root` that are neither this one nor its descendants, the numbers rising."""
    parents = {}
    for name in os.listdir(root):
        if name.isdecimal():
            fields = kernel_text(root / name / "stat").rpartition(")")[2].split()
            parents[int(name)] = int(fields[1]) if len(fields) > 1 and fields[1].isdecimal() else 0
    for pid in sorted(parents):
        above = pid
        while above > 0 and above != os.getpid():
            above = parents.get(above, 0)
        if above == 0:
            yield pid


def _ticks_by_process() -> dict[int, int]:
    """Return the ticks of time that each other process has had; of this one and its own under 0."""
    if not sees_itself():
        return {}
    others = set(_others(Path("/proc")))
    found = {0: 0}
    for name in os.listdir("/proc"):
        fields = stat_fields(name) if name.isdecimal() else []
        if len(fields) > 12:
            of = int(name) if int(name) in others else 0
            found[of] = found.get(of, 0) + process_ticks(fields)
    return found


def _core_ticks() -> CoreTicks:
    """Return the ticks of all cores together."""
    return core_ticks(kernel_text("/proc/stat", 1 << 22).partition("\n")[0].split()[1:]) or CoreTicks()


def _host(
    before: tuple[int, int, int], after: tuple[int, int, int], by_process: Mapping[int, int], later: Mapping[int, int]
) -> dict[str, Any]:
    """Return how many cores others kept busy, how many a hypervisor took, and which processes those were."""
    whole, busy, stolen = (then - first for then, first in zip(after, before, strict=True))
    if whole <= 0:
        return {}
    per_core = (os.cpu_count() or 1) / whole
    grown = {pid: (ticks - by_process[pid]) * per_core for pid, ticks in later.items() if pid in by_process}
    named = sorted((pid for pid in grown if pid and grown[pid] >= _CORE_SHARE), key=lambda pid: -grown[pid])
    return {"cores": os.cpu_count() or 1, "others": max(0.0, busy * per_core - grown.get(0, 0.0)),
            "stolen": stolen * per_core, "processes": [described(pid) for pid in named[:_MOST_NAMED]]}  # fmt: skip


def stored(earlier: object, new: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the looks of a run that was resumed, the earlier ones first."""
    return [*(earlier if isinstance(earlier, list) else ()), *new]
