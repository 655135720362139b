"""The end of a process is told at once, with or without the kernel's file descriptor of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from linkgauge.run.machine import processes
from linkgauge.run.wire import evidence

LONG_S = 3600.0  # longer than a test may take


@pytest.mark.parametrize("blind", [False, True])
def test_the_end_of_a_process_is_told_at_once(blind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if blind:

        def refused(pid: int) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "pidfd_open", refused)
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with processes.EndOf(child.pid) as end:
        start = time.monotonic()
        end.wait(0.02)
        assert time.monotonic() - start >= 0.015
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        looks = 0
        while child.poll() is None:
            end.wait(LONG_S)
            looks += 1
        if not blind:
            assert looks <= 2  # the descriptor tells of the end a moment before the child can be reaped
        end.wait(LONG_S)  # of one that has ended
        during = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == during - (0 if blind else 1)


def test_a_launchers_message_names_the_rank_by_its_process() -> None:
    ranks = [{"rank": 0, "pid": 15747}, {"rank": 1, "pid": 15749}]
    said = ["=   BAD TERMINATION OF ONE OF YOUR PROCESSES", "=   PID 15749 RUNNING AT vm", "=   EXIT CODE: 3"]
    assert evidence.told_rank(said, ranks) == 1
    assert evidence.told_rank(["=   PID 157 RUNNING AT vm"], ranks) is None
    assert evidence.told_rank(["mpirun noticed that process rank 1 exited on signal 9"], ranks) is None
    assert evidence.told_rank(said, [{"rank": 0, "pid": 0}]) is None


def test_of_several_ends_that_a_launcher_tells_of_the_cause_is_one_that_is_not_its_own_work() -> None:
    """Intel's Hydra, of ranks 0 and 2 that it killed when rank 1 had died."""

    def told(*signals: int) -> list[str]:
        return [
            line
            for rank, number in enumerate(signals)
            for line in (f"=   RANK {rank} PID 2935{rank} RUNNING AT vm", f"=   KILLED BY SIGNAL: {number} (X)")
        ]

    ranks = [{"rank": rank, "pid": 29350 + rank} for rank in range(3)]
    assert evidence.told_rank(told(9, 11, 9), ranks) == 1
    assert evidence.how_it_ended(255, told(9, 11, 9), "")["signal"] == 11
    assert evidence.told_rank(told(9, 9, 9), ranks) is None
    assert evidence.told_rank(told(9), ranks) == 0
