"""What a plan must know of the machine before anything is started: devices, free memory, cores, absent transports."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.model.runtimes import RUNTIMES, RuntimeTraits


@dataclasses.dataclass(frozen=True)
class PlanMachine:
    """The machine as the planner sees it. Memory in bytes, what is free now."""

    kind: str  # of model.runtimes
    device_count: int
    device_free_bytes: int  # of the fullest device; for host devices the host's own memory
    host_free_bytes: int
    shm_free_bytes: int
    cores: int
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)  # transport -> why it cannot run here at all
    memory_nodes: tuple[int, ...] = (0,)  # NUMA nodes with memory
    core_nodes: tuple[int, ...] = (0,)  # NUMA nodes with cores
    nodes: int = 1  # of the run, each with as many devices; all else is of the node that has least
    above: Mapping[str, tuple[str, ...]] | None = None  # by node in their order the switches above it; None: not known
    start_s: float = 0.0  # that a process of this program takes to start, on the slowest node seen; 0: not seen
    slowdown: float = 1.0  # how many times as long as on a free core this process has taken for its own work
    one_a_nic: tuple[int, ...] = ()  # devices that stand for a node's NICs, one each; none: not known

    @property
    def places(self) -> int:
        """Devices of all nodes."""
        return self.device_count * self.nodes

    @property
    def _assumed(self) -> RuntimeTraits:
        return RUNTIMES.get(self.kind, RUNTIMES["host"])

    def assumed_bytes_per_s(self, *, over_host: bool) -> float:
        """The rate that estimates of time start from, of data that go through host memory or stay on devices."""
        return self._assumed.through_host if over_host else self._assumed.between_devices

    @property
    def assumed_checked_bytes_per_s(self) -> float:
        """The rate at which data are taken to be written and checked."""
        return self._assumed.checked

    @property
    def assumed_latency_s(self) -> float:
        """The time of an empty operation that estimates start from."""
        return self._assumed.operation_s


def numa_nodes(what: str) -> tuple[int, ...]:
    """NUMA nodes that have `what` ("memory" or "cpu"); (0,) where the machine does not say."""
    nodes: list[int] = []
    for part in kernel_text(f"/sys/devices/system/node/has_{what}").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match:
            nodes += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(nodes) or (0,)


def slowdown(root: Path = Path("/proc")) -> float:
    """How many times as long as on a core of its own this thread has taken; 1 where the kernel does not count it.

    It ran for the first number of ns and waited for a core for the second one (sched-stats of Linux). A slow file
    server is not in it.
    """
    fields = kernel_text(root / "thread-self" / "schedstat").split()
    ran, waited = (int(one) if one.isdecimal() else 0 for one in (*fields, "", "")[:2])
    return (ran + waited) / ran if ran else 1.0


def free_shared_memory() -> int:
    """Bytes free in the file system that communication libraries put their segments in; 0 where there is none."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize


def rank_devices(device_count: int, ranks_per_device: int) -> tuple[int, ...]:
    """The device that each rank of a launch drives: devices[i // R]."""
    return tuple(rank // ranks_per_device for rank in range(device_count * ranks_per_device))
