"""How long cores have worked, as the kernel counts it: in ticks of 10 ms (proc_stat(5), proc_pid_stat(5))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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


def process_ticks(fields: Sequence[str]) -> int:
    """Ticks that a process worked, all its threads: `fields` are /proc/PID/stat's from the state on. IndexError."""
    return int(fields[11]) + int(fields[12])
