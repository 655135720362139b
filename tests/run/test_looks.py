"""Looks outside the run: which processes are somebody else's, what links moved, and who keeps the cores busy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkgauge.run.machine import users
from linkgauge.run.machine.observe import Value
from linkgauge.run.parent import looks
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.store.shapes import INFO


def made(root: Path, pid: int, parent: int, files: tuple[str, ...] = (), maps: str = "") -> None:
    """A process in a folder that stands for /proc."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (any ) name) S {parent} 0 0 0 0 0 0 0 0 0 30 12 0 0")
    (folder / "maps").write_text(maps)
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


def test_processes_on_a_gpu_are_those_with_its_file_and_the_library(tmp_path: Path) -> None:
    cuda, me = "7f00-7f01 r-xp /usr/lib/libcuda.so.580.1\n", os.getpid()
    made(tmp_path, 2_000_001, 1, ("/dev/null", "/dev/nvidia0"), cuda)
    made(tmp_path, 2_000_002, 1, ("/dev/nvidia0",))  # the persistence daemon, which has no context
    made(tmp_path, 2_000_003, 1, ("/dev/nvidiactl",), cuda)  # one that only asks
    made(tmp_path, me, 1, ("/dev/nvidia0",), cuda)
    made(tmp_path, 2_000_004, me, ("/dev/nvidia0",), cuda)  # the run's own
    made(tmp_path, 2_000_005, 1, ("/dev/kfd", "/dev/dri/renderD128"), "7f00 /opt/rocm/lib/libhsa-runtime64.so.1\n")
    made(tmp_path, 2_000_006, 1, ("/dev/dri/renderD128",))  # a desktop
    holding = [pid for pid in users.others(users.processes(tmp_path)) if users.holds_gpu(pid, tmp_path)]
    assert holding == [2_000_001, 2_000_005]


def test_a_busy_process_is_named_and_the_runs_own_is_not() -> None:
    before, after = (1000, 500, 10), (1400, 780, 50)  # 400 ticks of all cores
    found = looks._host(before, after, {0: 100, 7: 50, 8: 3}, {0: 180, 7: 230, 8: 4})
    cores = os.cpu_count() or 1
    assert found["others"] == pytest.approx(cores * (280 - 80) / 400)
    assert found["stolen"] == pytest.approx(cores * 40 / 400)
    assert [name.split(" ")[1] for name in found["processes"]] == (["7"] if cores * 180 / 400 >= 0.5 else [])


def test_the_ticks_of_what_this_process_started_are_its_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = looks._ticks_of(users.processes())
        assert child.pid not in ticks
        assert {0, 1} <= ticks.keys() or os.getpid() == 1
    finally:
        child.communicate()


class Script:
    """A reader of a device with one value a reading."""

    handle = 0

    def __init__(self, *readings: dict[str, float]) -> None:
        self.readings = list(readings)

    def users(self) -> list[int] | None:
        return None

    def busy(self) -> float | None:
        return 0.5

    def engine_ns(self, pids: object) -> int:
        return 0

    def read(self) -> list[Value]:
        return [Value(name, value, "B") for name, value in self.readings.pop(0).items()]


def test_a_look_tells_what_each_link_moved_and_is_a_shape_of_run_json(monkeypatch: pytest.MonkeyPatch) -> None:
    one = looks.Looks(DeviceSet("host", (0,), ({},)))
    first = {"nvlink_data_tx_bytes": 0.0, "pcie_tx_bytes": 2.0**32 - 1}
    second = {"nvlink_data_tx_bytes": 4e9, "pcie_tx_bytes": 1.0}
    reader: Any = Script(first, second)
    one._readers = [(1, reader)]
    seen = one._seen("before")
    (device,) = seen["devices"]
    assert device["nvlink_bytes_per_s"] / device["pcie_bytes_per_s"] == pytest.approx(4e9 / 2)  # the latter wraps
    assert (device["device"], device["busy"], device["values"]) == (1, 0.5, second)
    INFO({"format": "linkgauge-run", "format_version": 3, "looks": [seen]}, "run.json")


def test_only_gpus_of_one_node_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks.Looks, "_seen", lambda self, moment: {"moment": moment})
    for of, several, moments in (
        ("host", False, []),
        ("cuda", True, []),
        ("cuda", False, ["before", "after"]),
        ("hip", False, ["before", "after"]),
    ):
        one = looks.Looks(DeviceSet(of, (0,), ({},)), several)
        one.again()
        assert [seen["moment"] for seen in one.found()] == moments


def test_a_driver_that_fails_costs_the_run_its_look_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: looks.Looks, moment: str) -> None:
        raise RuntimeError("driver")

    monkeypatch.setattr(looks.Looks, "_seen", fails)
    one = looks.Looks(DeviceSet("cuda", (0,), ({},)))
    one.again()
    assert one.found() == []


# --- numbers of processes that a driver gives -------------------------------------------------------------------------


class Listing(Script):
    def __init__(self, pids: list[int] | None) -> None:
        super().__init__()
        self.pids = pids

    def users(self) -> list[int] | None:
        return self.pids


@pytest.mark.parametrize("in_host", [True, False])
def test_a_number_of_another_pid_namespace_names_no_process_here(
    in_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process with that number in this /proc is another one: it has no GPU open."""
    for module in (looks, users):
        monkeypatch.setattr(module, "in_host_namespace", lambda: in_host)
    reader: Any = Listing([1])  # the first process of any container
    (said,) = looks.users_of(reader, {})
    if in_host:
        assert said.startswith("pid 1 (")
    else:
        assert said == "a process outside this container (PID 1 there)"


def test_in_a_container_its_own_processes_are_among_those_that_the_driver_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looks, "in_host_namespace", lambda: False)
    holders = {7: "pid 7 (python3)"}
    for listed, said in (
        ([9001], ["pid 7 (python3)"]),
        ([7], ["pid 7 (python3)"]),  # a driver that counts as the caller does
        ([9001, 9002], ["pid 7 (python3)", "1 process outside this container (of PIDs 9001, 9002 there)"]),
        (None, ["pid 7 (python3)"]),
    ):
        reader: Any = Listing(listed)
        assert looks.users_of(reader, holders) == said


def test_a_process_that_holds_a_gpu_is_the_one_of_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "in_host_namespace", lambda: False)
    made(tmp_path, 2_000_001, 1, ("/dev/nvidia0",), "7f00 /usr/lib/libcuda.so.1\n")
    made(tmp_path, 2_000_002, 1)
    assert users.is_here(2_000_001, tmp_path)
    assert not users.is_here(2_000_002, tmp_path)
    assert not users.is_here(2_000_003, tmp_path)
