"""What runs have left on the machine: processes, temporary files, shared memory."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from linkgauge.run.machine import processes
from patience import PATIENCE_S

# Semaphores of Python's multiprocessing, which neither Linkgauge nor MPI uses: another program's, here for long.
_MULTIPROCESSING = "sem.mp-"


def left_behind(folder: Path, patience_s: float = PATIENCE_S) -> list[str]:
    """Processes and temporary files of the runs whose TMPDIR is `folder`/tmp, MPI libraries' own included."""
    found = []
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        own = [pid for pid in processes.own_processes() if str(folder) in _environment(pid)]
        found = [f"process {pid} {_command(pid)}" for pid in own]
        if not found:
            break
        time.sleep(0.05)
    found += [str(path) for path in (folder / "tmp").rglob("*") if not path.name.startswith("linkgauge-")]
    return found


def _command(pid: int) -> str:
    """What a process is, for whoever reads that it stayed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return ""


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def new_shared_memory(before: set[str], patience_s: float = 120.0) -> set[str]:
    """What is new in /dev/shm and stays: other programs' files come and go, and some stay."""
    deadline = time.monotonic() + patience_s
    while (new := shared_memory() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    return new


def shared_memory() -> set[str]:
    """What lies in /dev/shm that is this user's and that no process maps; folders of runs left out."""
    mapped = processes.mapped_files(processes.own_processes())
    found = set()
    for path in Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):
            other = path.name.startswith(("linkgauge-", _MULTIPROCESSING))
            if path.stat().st_uid == os.getuid() and not other and path not in mapped:
                found.add(path.name)
    return found
