"""Who else uses the GPUs and cores that a run is to have, by name, and a wait until nobody does.

A context on a GPU counts though it does nothing now. What NVML does not list, as processes of another PID namespace or
virtual machine, counts by the GPU's utilization. Cores count as in the doctor's check of other load, over the time
between two looks in place of a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.gpus import gpus_of
from linkgauge.doctor.readers import Readers
from linkgauge.errors import EnvironmentLackingError
from linkgauge.files import kernel_text
from linkgauge.model.quantity import format_duration
from linkgauge.owner import described, stat_fields
from linkgauge.system.allowance import allowance
from linkgauge.system.sysfs import normal_address

QUIET_S = 3.0
"""So long nothing may be seen: bursts that come every two seconds are seen by their utilization."""
LOOK_EVERY_S = 1.0
SAID_EVERY_S = 10.0
_BUSY = 0.05  # utilization from which somebody works on a GPU: an idle one states 0
_CORE_SHARE = 0.2  # of a core, from which a process is named
_MOST_NAMED = 4
_MPS_SERVER = "nvidia-cuda-mps"  # /proc/PID/comm has 15 characters; its clients are listed besides
_IDLE, _WAITING, _FIELDS = 3, 4, 8  # of a line of /proc/stat: what follows counts guests, who are users' too


def too_loaded(busy: float, cores: float) -> bool:
    """Whether so many busy cores, or runnable processes, of others spoil what is measured on so many cores."""
    return busy > 0.5 * cores + 0.5


def gpu_users(gpus: Sequence[GpuFacts], own: int = 0) -> list[str]:
    """Who uses these GPUs, a line a GPU; nobody's is left out. `own`: this process."""
    said = []
    for gpu in gpus:
        others = [pid for pid in gpu.processes if pid != own and kernel_text(f"/proc/{pid}/comm") != _MPS_SERVER]
        if others:
            said.append(f"GPU {gpu.index}: {_listed([described(pid) for pid in others])}")
        elif gpu.busy is not None and gpu.busy >= _BUSY:
            said.append(f"GPU {gpu.index}: {100 * gpu.busy:.0f} % busy by processes that are not visible here")
    return said


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


class Cores:
    """How busy others keep the cores that this process may use, from one look to the next."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        """Begin the first interval. `root` stands for /proc in tests."""
        self._root = root
        self._cores = sorted(os.sched_getaffinity(0))
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._then = time.monotonic(), self._busy_ticks(), self._by_process()

    def _busy_ticks(self) -> int:
        """Ticks in which these cores worked, or a hypervisor had them."""
        lines = (line.split() for line in kernel_text(self._root / "stat", 1 << 22).splitlines())
        names = {f"cpu{core}" for core in self._cores}
        busy = 0
        for words in (line[1:] for line in lines if line and line[0] in names):
            ticks = [int(word) for word in words[:_FIELDS] if word.isascii() and word.isdecimal() and len(word) < 20]
            busy += sum(ticks) - sum(ticks[_IDLE : _WAITING + 1])
        return busy

    def _by_process(self) -> dict[int, int]:
        if self._root != Path("/proc"):
            return {}
        pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
        fields = {pid: stat_fields(pid) for pid in pids if pid != os.getpid()}
        return {pid: int(words[11]) + int(words[12]) for pid, words in fields.items() if len(words) > 12}

    def users(self) -> list[str]:
        """Who kept them busy since the last look; empty where it was little, or less than half a second ago."""
        now = time.monotonic(), self._busy_ticks(), self._by_process()
        seconds = now[0] - self._then[0]
        if seconds < LOOK_EVERY_S / 2:
            return []
        then, self._then = self._then, now
        busy, cores = (now[1] - then[1]) * self._tick_s / seconds, allowance().cores
        if not too_loaded(busy, cores):
            return []
        shares = {pid: (ticks - then[2].get(pid, ticks)) * self._tick_s / seconds for pid, ticks in now[2].items()}
        named = [described(pid) for pid in sorted(shares, key=lambda pid: -shares[pid]) if shares[pid] >= _CORE_SHARE]
        by = f" by {_listed(named)}" if named else ""
        return [f"{busy:.1f} of {cores:.3g} cores are busy{by}"]


def onlooker(kind: str, infos: Sequence[Mapping[str, Any]]) -> Callable[[], list[str]]:
    """A look at a run's devices and cores: who else uses them now. About 30 ms a GPU."""
    cores = Cores()
    wanted = {normal_address(str(info.get("pci_address") or "")) for info in infos} - {None}

    def look() -> list[str]:
        gpus = gpus_of(Readers())[0] if kind != "host" else []
        ours = [gpu for gpu in gpus if not wanted or normal_address(gpu.pci_address) in {*wanted, None}]
        return gpu_users(ours, os.getpid()) + cores.users()

    return look


def await_idle(
    look: Callable[[], list[str]],
    wait_s: float,
    note: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when nobody else was seen for `QUIET_S`; with `wait_s` = 0 whoever is seen ends it.

    `note` hears whom it waits for, at least every `SAID_EVERY_S`.

    Raises:
        EnvironmentLackingError: others are there still, by name.
    """
    until, said_at, quiet_since = clock() + wait_s, clock() - SAID_EVERY_S, clock()
    while True:
        sleep(LOOK_EVERY_S)
        who, now = "; ".join(look()), clock()
        if not who:
            if now - quiet_since >= QUIET_S:
                return
            continue
        quiet_since = now
        if not wait_s:
            raise EnvironmentLackingError(
                f"others use this machine ({who}): wait for them with --wait-idle 10m, or leave out --exclusive"
            )
        if now >= until:
            raise EnvironmentLackingError(
                f"others use this machine after {format_duration(wait_s * 1e9)} ({who}): give a longer --wait-idle, "
                "or leave it out"
            )
        if now - said_at >= SAID_EVERY_S - LOOK_EVERY_S:
            said_at = now
            note(f"waiting for an idle machine ({who}), at most {until - now:.0f} s more; Ctrl-C ends")
