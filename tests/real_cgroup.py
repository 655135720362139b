"""A cgroup of this machine's with half a core, for what only a kernel can show."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def half_a_core() -> Iterator[Path]:
    """A cgroup of either version with half a core, which a process joins by writing to cgroup.procs; skips without."""
    for base, files in ((Path("/sys/fs/cgroup/cpu"), {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "10000"}),
                        (Path("/sys/fs/cgroup"), {"cpu.max": "10000 20000"})):  # fmt: skip
        group = base / f"linkgauge-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for name, text in files.items():
                (group / name).write_text(text)
            yield group
        except FileNotFoundError:  # version 2 without the controller: another version may have it
            continue
        except PermissionError:
            continue
        else:
            return
        finally:
            group.rmdir()
    pytest.skip("no cgroup with a CPU quota can be made here: that needs root, and the cpu controller")


def run_in(group: Path, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command whose processes are all in a cgroup."""
    enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
    return subprocess.run(enter, cwd=cwd, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def cores_first() -> Iterator[str]:
    """A line of a shell that joins a cgroup whose processes get the cores before all others; empty without one.

    An emulated node's cores are its own then, whatever else this machine does. `nice` counts within a session alone.
    """
    for base, name, most in ((Path("/sys/fs/cgroup/cpu"), "cpu.shares", "40960"),
                             (Path("/sys/fs/cgroup"), "cpu.weight", "10000")):  # fmt: skip
        group = base / f"linkgauge-first-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(most)
        except OSError:  # version 2 without the controller
            group.rmdir()
            continue
        try:
            yield f"echo $$ > {group}/cgroup.procs"
        finally:
            with contextlib.suppress(OSError):  # of a process that has not ended yet
                group.rmdir()
        return
    yield ""
