"""What benchmarks see of the ranks of a run that they have started, in /proc. Processes that are gone have nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from linkgauge.owner import start_time
from linkgauge.run.machine import processes


def status_kib(pid: int, name: str) -> int:
    """An amount of /proc/PID/status, KiB: VmRSS is resident memory, VmHWM its peak."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def ranks_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The ranks that `linkgauge run` has started, without their launcher."""
    return [pid for pid in processes.marked(f"{process.pid}.{start_time(process.pid)}.") if _is_rank(pid)]


def _is_rank(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"linkgauge.run.rank.worker" in words and b"python" in Path(os.fsdecode(words[0])).name.encode()
