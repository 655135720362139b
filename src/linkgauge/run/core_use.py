"""What a node's cores did beside a case: how long they were busy, with this launch's ranks, and taken by a hypervisor.

Read before and after each case of a watch, whose rounds are told apart by it: 20 us, and 15 us more a process of the
launch on the node, outside of all timed parts. The kernel counts in ticks of 10 ms, a core's time to what ran when the
tick came (proc_stat(5)): sums over a round's cases say a share of a few percent, a single short case says nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from linkgauge.run.observe import Value

SUBJECT = "cores"
ALL, BUSY, STOLEN, OWN = "cores_all", "cores_busy", "cores_stolen", "cores_own"
_IDLE, _WAITING, _STOLEN, _GUESTS = 3, 4, 7, 8  # of the line `cpu`; guests are counted as users' too


class CoreUse:
    """This node's cores, and the processes of the launch there. `root` is that of /proc, of tests only."""

    def __init__(self, pids: Iterable[int], root: Path = Path("/proc")) -> None:
        """Take the launch's processes on this node."""
        self._root = root
        self._own = sorted(set(pids))
        self._tick_ns = 1e9 / os.sysconf("SC_CLK_TCK")

    def read(self) -> list[Value]:
        """Time of all cores together since the node began, in ns; nothing where the kernel does not say."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            first = (self._root / "stat").read_text().split("\n", 1)[0].split()
            ticks = [int(word) for word in first[1 : 1 + _GUESTS]]
            busy = sum(ticks) - ticks[_IDLE] - ticks[_WAITING] - ticks[_STOLEN]
            counts = {ALL: sum(ticks), BUSY: busy, STOLEN: ticks[_STOLEN], OWN: sum(map(self._ticks_of, self._own))}
            return [Value(name, count * self._tick_ns, "ns") for name, count in counts.items()]
        return []

    def _ticks_of(self, pid: int) -> int:
        words = (self._root / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])  # utime and stime, of all threads
