"""Looks outside the run: which processes are somebody else's, what links moved, and who keeps the cores busy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkgauge.run.machine.observe import Value
from linkgauge.run.parent import looks
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.store.shapes import INFO


def made(root: Path, pid: int, parent: int, files: tuple[str, ...] = (), maps: str = "") -> None:
    """A process in a folder that stands for /proc."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (any ) name) S {parent} 0 0")
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
    assert looks.gpu_processes(tmp_path) == ["pid 2000001"]


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
        ticks = looks._ticks_by_process()
        assert child.pid not in ticks
        assert {0, 1} <= ticks.keys() or os.getpid() == 1
    finally:
        child.communicate()


class Script:
    """A reader of a device with one value a reading."""

    handle = 0

    def __init__(self, *readings: dict[str, float]) -> None:
        self.readings = list(readings)

    def read(self) -> list[Value]:
        return [Value(name, value, "B") for name, value in self.readings.pop(0).items()]


def test_a_look_tells_what_each_link_moved_and_is_a_shape_of_run_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "_busy", lambda reader: {"busy": 0.5})
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
    for of, several, moments in (("host", False, []), ("cuda", True, []), ("cuda", False, ["before", "after"])):
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
