"""Who else uses GPUs and cores, by name.

A context on a GPU counts though it does nothing now. What NVML does not list, as processes of another PID namespace or
virtual machine, counts by the GPU's utilization.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from linkgauge.doctor.facts import GpuFacts
from linkgauge.files import kernel_text
from linkgauge.model.listed import listed
from linkgauge.owner import described
from linkgauge.run.machine.core_ticks import core_ticks
from linkgauge.run.machine.users import described_by_driver, is_here, processes
from linkgauge.system.allowance import allowance

_BUSY = 0.05  # utilization from which somebody works on a GPU: an idle one states 0
_CORE_SHARE = 0.2  # of a core, from which a process is named
_LEAST_S = 0.2  # the kernel counts cores' time in ticks of 10 ms
_NAMED_OVER_S = 0.3
_MOST_NAMED = 4
_MPS_SERVER = "nvidia-cuda-mps"  # /proc/PID/comm has 15 characters; its clients are listed besides


def too_loaded(busy: float, cores: float) -> bool:
    """Whether so many busy cores, or runnable processes, of others spoil what is measured on so many cores.

    >>> too_loaded(1.0, 1.0), too_loaded(1.4, 2.0), too_loaded(9.0, 16.0)
    (True, False, True)
    """
    return busy > min(0.5 * cores + 0.5, 0.75 * max(cores, 1.0))


def gpu_users(gpus: Sequence[GpuFacts], own: int = 0) -> list[str]:
    """Who uses these GPUs, a line a GPU; nobody's is left out. `own`: this process."""
    said = []
    for gpu in gpus:
        users = [pid for pid in gpu.processes if not (pid == own and is_here(pid)) and not _is_mps_server(pid)]
        if users:
            said.append(f"GPU {gpu.index}: {listed([described_by_driver(pid) for pid in users], _MOST_NAMED)}")
        elif gpu.busy is not None and gpu.busy >= _BUSY:
            said.append(f"GPU {gpu.index}: {100 * gpu.busy:.0f} % busy by processes that are not visible here")
    return said


def _is_mps_server(pid: int) -> bool:
    return is_here(pid) and kernel_text(f"/proc/{pid}/comm") == _MPS_SERVER


class Cores:
    """How busy others keep the cores that this process may use, from one look to the next. A look takes about 1 ms.

    Where they are busy it takes `_NAMED_OVER_S` more, to learn by whom.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        """Begin the first interval. `root` stands for /proc in tests."""
        self._root = root
        self._cores = sorted(os.sched_getaffinity(0))
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._then = time.monotonic(), self._busy_ticks()

    def _busy_ticks(self) -> int:
        """Ticks in which these cores worked, or a hypervisor had them."""
        lines = (line.split() for line in kernel_text(self._root / "stat", 1 << 22).splitlines())
        names = {f"cpu{core}" for core in self._cores}
        found = (core_ticks(line[1:]) for line in lines if line and line[0] in names)
        return sum(ticks.busy + ticks.stolen for ticks in found if ticks is not None)

    def users(self) -> list[str]:
        """Who kept them busy since the last look; empty where it was little, or the last look was just now."""
        now = time.monotonic(), self._busy_ticks()
        seconds = now[0] - self._then[0]
        if seconds < _LEAST_S:
            return []
        busy, cores = (now[1] - self._then[1]) * self._tick_s / seconds, allowance().cores
        self._then = now
        if not too_loaded(busy, cores):
            return []
        names = self._named()
        by = f" by {listed(names, _MOST_NAMED)}" if names else ""
        self._then = time.monotonic(), self._busy_ticks()
        return [f"{busy:.1f} of {cores:.3g} cores are busy{by}"]

    def _named(self) -> list[str]:
        """Processes that work now, the busiest first, as far as this PID namespace shows them."""
        if self._root != Path("/proc"):
            return []
        before = processes()
        time.sleep(_NAMED_OVER_S)
        least, now = _CORE_SHARE * _NAMED_OVER_S / self._tick_s, processes()
        taken = {pid: now[pid].ticks - before[pid].ticks for pid in now.keys() & before.keys() - {os.getpid()}}
        return [described(pid) for pid in sorted(taken, key=lambda pid: -taken[pid]) if taken[pid] >= least]


def core_users_now() -> list[str]:
    """Who keeps this process's cores busy now. Takes `_LEAST_S`, and more where somebody does."""
    cores = Cores()
    time.sleep(_LEAST_S)
    return cores.users()
