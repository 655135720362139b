"""A look at the GPUs and cores while the run uses none: before its first launch and after its last.

There all that is read is somebody else's. What is too dear to read beside each case (errors of links, temperature,
clocks: up to 30 ms a GPU) is read here, and processes are found by the device files that they have open, since NVML
lists none of another PID namespace. About 0.2 s for two GPUs, most of it while the parent does something else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.owner import described, in_host_namespace
from linkgauge.run.machine.amd_reader import AmdReader
from linkgauge.run.machine.core_ticks import CoreTicks, all_cores
from linkgauge.run.machine.nvml_reader import NvmlReader
from linkgauge.run.machine.observe import Reader
from linkgauge.run.machine.users import Process, described_by_driver, holds_gpu, others, processes
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.system.resctrl import MemoryTraffic

KEY = "looks"
"""Of run.json."""
_WINDOW_S = 0.1  # ten ticks of a core's time
_WRAPS = 1 << 32  # NVML counts PCIe's bytes in 32 bits
_LINKS = {"nvlink": ("nvlink_data_tx_bytes", "nvlink_data_rx_bytes"), "pcie": ("pcie_tx_bytes", "pcie_rx_bytes")}
_CORE_SHARE = 0.5  # of a core, from which a process is named
_MOST_NAMED = 8


class Looks:
    """The looks of one run at its devices."""

    def __init__(self, devices: DeviceSet, several_nodes: bool = False) -> None:
        """Look before the run, in a thread of its own, at the GPUs of NVIDIA or AMD on this node; at no others."""
        self._found: list[dict[str, Any]] = []
        self._readers: list[tuple[int, Reader]] = []
        self._devices = devices
        self._active = devices.kind in ("cuda", "hip") and not several_nodes
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
                address, subject = str(info["pci_address"]), f"{self._devices.kind}:{ordinal}"
                nvidia = self._devices.kind == "cuda"
                reader = NvmlReader(address, subject, everything=True) if nvidia else AmdReader(address, subject)
                self._readers.append((ordinal, reader))
        self._look("before")

    def _seen(self, moment: str) -> dict[str, Any]:
        when_ns = time.monotonic_ns()
        known, memory = processes(), MemoryTraffic()
        moved = memory.read()
        cores, ticks = all_cores() or CoreTicks(), _ticks_of(known)
        first = [_values(reader) for _, reader in self._readers]
        holders = {pid: described(pid) for pid in others(known) if holds_gpu(pid)}
        engines = [reader.engine_ns(holders) for _, reader in self._readers]
        time.sleep(max(0.0, _WINDOW_S - (time.monotonic_ns() - when_ns) / 1e9))
        second = [_values(reader) for _, reader in self._readers]
        seen = [
            {"device": ordinal, "processes": users_of(reader, holders)[:_MOST_NAMED], **_rates(before, after),
             "values": after["values"],
             # After the run its own kernels are what ran last.
             **({} if moment == "after" else _busy(reader, reader.engine_ns(holders) - earlier, when_ns))}
            for (ordinal, reader), before, after, earlier in zip(self._readers, first, second, engines, strict=True)
        ]  # fmt: skip
        host = _memory(moved, memory.read(), when_ns) | _host(
            cores, all_cores() or CoreTicks(), ticks, _ticks_of(processes())
        )
        return {"moment": moment, "when_ns": when_ns, "devices": seen, "host": host}


def _memory(before: int | None, after: int | None, since_ns: int) -> dict[str, Any]:
    """Return what all cores moved from and to memory meanwhile, in bytes per second, where it is counted."""
    if before is None or after is None:
        return {}
    return {"memory_bytes_per_s": max(0, after - before) / max(1, time.monotonic_ns() - since_ns) * 1e9}


def _values(reader: Reader) -> dict[str, Any]:
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


def users_of(reader: Reader, holders: Mapping[int, str]) -> list[str]:
    """Return the processes with a context on a device, in words: as its driver lists them, and `holders` of GPUs here.

    In a container of its own PID namespace the driver's numbers name nobody here. There the processes that hold a GPU
    in it are among those that the driver lists, and only more than these are of outside.
    """
    listed = reader.users()
    if in_host_namespace() and listed is not None:
        return [described(pid) for pid in listed]
    unknown = [pid for pid in listed or () if pid not in holders]
    if not holders:
        return [described_by_driver(pid) for pid in unknown]
    more = len(unknown) - len(holders)
    outside = f"{more} process{'es' if more > 1 else ''} outside this container (of PIDs {_numbers(unknown)} there)"
    return [*holders.values(), *([outside] if more > 0 else [])]


def _numbers(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:_MOST_NAMED]))


def _busy(reader: Reader, engines_ns: int, since_ns: int) -> dict[str, float]:
    """Return the share of the last moments in which a device worked, where its driver says so."""
    sampled, counted = reader.busy(), min(1.0, max(0, engines_ns) / max(1, time.monotonic_ns() - since_ns))
    return {} if sampled is None and not counted else {"busy": max(sampled or 0.0, counted)}


def _ticks_of(known: Mapping[int, Process]) -> dict[int, int]:
    """Return the ticks of time that each other process has had; of this one and its own under 0."""
    foreign = set(others(known))
    found = {0: 0}
    for pid, one in known.items():
        of = pid if pid in foreign else 0
        found[of] = found.get(of, 0) + one.ticks
    return found


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
