"""How long cores have worked, as the kernel counts it: in ticks of 10 ms (proc_stat(5), proc_pid_stat(5))."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from linkgauge.files import kernel_text

_IDLE, _WAITING, _STOLEN, _GUESTS = 3, 4, 7, 8  # of a line `cpu`; guests are counted as users' too


class CoreTicks(NamedTuple):
    """Ticks since the node began, of one core or of all: all, those that worked, those that a hypervisor took."""

    whole: int = 0
    busy: int = 0
    stolen: int = 0


def core_ticks(words: Sequence[str]) -> CoreTicks | None:
    """What follows the name in a line `cpu` of /proc/stat; None where it is no such line."""
    counts = [int(word) for word in words[:_GUESTS] if word.isascii() and word.isdecimal() and len(word) < 20]
    if len(counts) < _GUESTS:
        return None
    whole = sum(counts)
    return CoreTicks(whole, whole - counts[_IDLE] - counts[_WAITING] - counts[_STOLEN], counts[_STOLEN])


def all_cores(root: Path = Path("/proc")) -> CoreTicks | None:
    """Ticks of all cores together; None where the kernel does not say. `root` stands for /proc in tests."""
    return core_ticks(kernel_text(root / "stat", 1 << 22).partition("\n")[0].split()[1:])


def stolen_share(before: CoreTicks | None, after: CoreTicks | None) -> float:
    """Of the cores' time in between the share that a hypervisor took, which ran others there; 0: none, or not told."""
    if before is None or after is None or after.whole <= before.whole:
        return 0.0
    return min(1.0, max(0, after.stolen - before.stolen) / (after.whole - before.whole))


def process_ticks(fields: Sequence[str]) -> int:
    """Ticks that a process worked, all its threads: `fields` are /proc/PID/stat's from the state on. IndexError."""
    return int(fields[11]) + int(fields[12])
