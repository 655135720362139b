"""Who else uses GPUs and cores, and the wait for a machine of one's own."""

from __future__ import annotations

import dataclasses
import getpass
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fake_readers import GPU, OTHER
from linkgauge.doctor import idle, others
from linkgauge.doctor.idle import await_idle, onlooker
from linkgauge.doctor.others import Cores, gpu_users
from linkgauge.errors import EnvironmentLackingError, Exit


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def looks(*seen: list[str]) -> Callable[[], list[str]]:
    """A look that answers these in turn, then nothing."""
    rest = iter(seen)
    return lambda: next(rest, [])


def awaited(look: Callable[[], list[str]], wait_s: float) -> tuple[float, list[tuple[float, str]]]:
    """How long it was waited, and what was said when."""
    clock, said = Clock(), []
    await_idle(look, wait_s, lambda text: said.append((clock.now - 1000, text)), clock=clock, sleep=clock.sleep)
    return clock.now - 1000, said


def test_an_idle_machine_is_looked_at_for_some_seconds() -> None:
    assert awaited(looks(), 0.0) == (idle.QUIET_S, [])
    assert awaited(looks(), 60.0) == (idle.QUIET_S, [])


def test_who_is_waited_for_is_said_each_ten_seconds() -> None:
    took, said = awaited(looks(*[["GPU 0: pid 7 (python3, user anna)"]] * 35), 600.0)
    assert took == 35 + idle.QUIET_S
    times = [when for when, _ in said]
    assert times[0] <= 10
    assert all(later - before <= 10 for before, later in itertools.pairwise(times))
    assert took - times[-1] <= 10 + idle.QUIET_S
    assert said[0][1] == ("waiting for an idle machine (GPU 0: pid 7 (python3, user anna)), at most 599 s more; "
                          "Ctrl-C ends")  # fmt: skip


def test_bursts_are_no_idleness() -> None:
    """A burst in every second look begins the quiet time anew."""
    took, _ = awaited(looks(*[["x"], []] * 10), 600.0)
    assert took == 19 + idle.QUIET_S


def test_when_the_time_is_over_the_environment_lacks() -> None:
    with pytest.raises(EnvironmentLackingError, match=r"after 5 s \(GPU 0: x\): give a longer --wait-idle") as raised:
        awaited(lambda: ["GPU 0: x"], 5.0)
    assert raised.value.exit_status == Exit.LACKING


def test_exclusive_refuses_at_once_and_names_who_is_there() -> None:
    with pytest.raises(
        EnvironmentLackingError, match=r"\(GPU 0: x; 2\.0 of 2 cores are busy\): wait .*--wait-idle 10m"
    ):
        awaited(lambda: ["GPU 0: x", "2.0 of 2 cores are busy"], 0.0)
    with pytest.raises(EnvironmentLackingError):  # also where they come after a moment
        awaited(looks([], ["GPU 0: x"]), 0.0)


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes have the numbers that drivers give them, as where the tests run in no container."""
    monkeypatch.setattr("linkgauge.run.machine.users.in_host_namespace", lambda: True)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("on_the_host")
def test_processes_of_a_gpu_are_named(other: subprocess.Popen[bytes]) -> None:
    program = Path(f"/proc/{other.pid}/comm").read_text().strip()
    busy = dataclasses.replace(GPU, processes=(other.pid, os.getpid()), busy=0.9)
    assert gpu_users([busy, OTHER], os.getpid()) == [f"GPU 0: pid {other.pid} ({program}, user {getpass.getuser()})"]
    gone = dataclasses.replace(GPU, processes=(1 << 22,))  # of another PID namespace
    assert gpu_users([gone]) == [f"GPU 0: pid {1 << 22}"]
    assert gpu_users([dataclasses.replace(GPU, processes=(os.getpid(),))], os.getpid()) == []


def test_a_number_of_another_pid_namespace_names_no_process_of_this_one(
    other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkgauge.run.machine.users.in_host_namespace", lambda: False)
    listed = dataclasses.replace(GPU, processes=(other.pid, os.getpid()))
    assert gpu_users([listed], os.getpid()) == [  # neither of the two has a GPU open
        f"GPU 0: a process outside this container (PID {other.pid} there), "
        f"a process outside this container (PID {os.getpid()} there)"
    ]


def test_work_that_no_listed_process_does_counts() -> None:
    """NVML lists no process of another PID namespace or virtual machine, but how busy the GPU is."""
    assert gpu_users([dataclasses.replace(GPU, busy=0.04), dataclasses.replace(OTHER, busy=1.0)]) == [
        "GPU 1: 100 % busy by processes that are not visible here"
    ]


@pytest.mark.usefixtures("on_the_host")
def test_an_mps_server_is_no_user_but_its_clients_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"/proc/50/comm": "nvidia-cuda-mps", "/proc/51/comm": "python3"}
    monkeypatch.setattr(others, "kernel_text", lambda path: names.get(path, ""))
    assert gpu_users([dataclasses.replace(GPU, processes=(50,))]) == []
    (line,) = gpu_users([dataclasses.replace(GPU, processes=(50, 51))])
    assert line.startswith("GPU 0: pid 51")


def stat(root: Path, busy: int, idle_ticks: int, stolen: int = 0) -> None:
    line = f"{busy} 0 0 {idle_ticks} 0 0 0 {stolen} 0 0"
    cores = "".join(f"cpu{core} {line}\n" for core in range(max(os.sched_getaffinity(0)) + 1))
    (root / "stat").write_text(f"cpu  {line}\n{cores}intr 1\n")


def test_busy_cores_are_counted_from_look_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(others.time, "monotonic", clock)
    ticks = os.sysconf("SC_CLK_TCK")
    many = len(os.sched_getaffinity(0))
    stat(tmp_path, 1000, 1000)
    cores = Cores(tmp_path)
    assert cores.users() == []  # no time has passed
    clock.sleep(10)
    stat(tmp_path, 1000, 1000 + 10 * ticks)
    assert cores.users() == []
    clock.sleep(10)
    stat(tmp_path, 1000 + 10 * ticks, 1000 + 10 * ticks)
    expected = [f"{many:.1f} of {many} cores are busy"]
    assert cores.users() == expected
    clock.sleep(10)
    stat(tmp_path, 1000 + 10 * ticks, 1000 + 10 * ticks, 10 * ticks)  # a hypervisor had them
    assert cores.users() == expected
    (tmp_path / "stat").write_text("cpu0 \u0663 x 99999999999999999999999\n\0\ncpu0\n")
    clock.sleep(10)
    cores.users()


def test_a_busy_process_is_named_where_cores_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the threshold of a core out of the way, since how many cores are here is not known."""
    monkeypatch.setattr(others, "too_loaded", lambda busy, cores: True)
    monkeypatch.setattr(others, "_MOST_NAMED", 1000)
    monkeypatch.setattr(others, "_CORE_SHARE", 0.0)  # on a busy machine the loop may get little
    look = onlooker("host", ())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        try:
            seen: list[str] = []
            while not any(f"pid {loop.pid} (" in line for line in seen):
                time.sleep(0.2)
                seen = look()
        finally:
            loop.kill()
    assert "cores are busy by " in seen[0]


def test_busy_loops_on_every_core_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load average of a minute knows nothing of what began a second ago."""
    count = len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
             for _ in range(count)]  # fmt: skip
    try:
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()
        monkeypatch.setattr(others, "_LEAST_S", 1.0)
        (line,) = others.core_users_now()
        assert re.match(r"[0-9.]+ of [0-9.]+ cores are busy", line)
    finally:
        for loop in loops:
            loop.kill()
            loop.communicate()
