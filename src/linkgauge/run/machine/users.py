"""Who else uses this node: processes as /proc has them, and GPUs' processes as their drivers number them.

Drivers (NVML, /sys/class/kfd/kfd/proc) number processes as the host's PID namespace does, or NVML in some versions as
the caller's. A container's /proc has other processes under these numbers, so that a number names one here only in the
host's namespace, or where the process of that number has a GPU open. /proc shows no number of an enclosing namespace:
NSpid (proc_pid_status(5)) begins with the one that /proc is of.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.owner import described, in_host_namespace, sees_itself
from linkgauge.run.machine.core_ticks import process_ticks

PROC = Path("/proc")
_GPU_FILE = re.compile(r"/dev/(nvidia\d+|kfd|dri/render\w+)")
_GPU_LIBRARIES = ("libcuda", "libhsa-runtime64")


@dataclasses.dataclass(frozen=True)
class Process:
    """A process: who started it, and the ticks of time that it worked, with its threads."""

    parent: int
    ticks: int


def processes(root: Path = PROC) -> dict[int, Process]:
    """Return all processes that /proc shows, by number; 30 us each. Nothing where /proc is another namespace's.

    `root` stands for /proc in tests.
    """
    if not sees_itself():
        return {}
    found = {}
    for name in os.listdir(root):
        fields = kernel_text(root / name / "stat").rpartition(")")[2].split() if name.isdecimal() else []
        if len(fields) > 12:
            with contextlib.suppress(ValueError):
                found[int(name)] = Process(int(fields[1]), process_ticks(fields))
    return found


def others(known: Mapping[int, Process]) -> list[int]:
    """Return those that are neither this process nor started by it, the numbers rising."""
    return [pid for pid in sorted(known) if not _is_own(pid, known)]


def _is_own(pid: int, known: Mapping[int, Process]) -> bool:
    above, steps = pid, 0
    while above > 0 and above != os.getpid() and steps <= len(known):
        above, steps = known[above].parent if above in known else 0, steps + 1
    return above == os.getpid()


def holds_gpu(pid: int, root: Path = PROC) -> bool:
    """Whether a process has a GPU's device file open and its driver's library mapped: a context, as far as is seen."""
    folder = root / str(pid)
    try:
        if not any(_GPU_FILE.fullmatch(target) for target in _open_files(folder / "fd")):
            return False
        maps = (folder / "maps").read_text(errors="replace")
    except OSError:  # ended, or another user's
        return False
    return any(library in maps for library in _GPU_LIBRARIES)


def _open_files(folder: Path) -> Iterable[str]:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # closed since
            yield os.readlink(folder / name)


def is_here(pid: int, root: Path = PROC) -> bool:
    """Whether a driver's number of a process is that of the process which /proc has under it."""
    return sees_itself() and (in_host_namespace() or holds_gpu(pid, root))


def described_by_driver(pid: int) -> str:
    """Name a process by the number that a GPU's driver gives it."""
    return described(pid) if is_here(pid) else f"a process outside this container (PID {pid} there)"
