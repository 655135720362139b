"""Other users of an AMD GPU, from files as its drivers write them.

The trees are made after the kernel's sources and documentation: amdkfd/kfd_process.c (/sys/class/kfd/kfd/proc),
Documentation/gpu/amdgpu/thermal.rst (gpu_busy_percent, hwmon) and Documentation/gpu/drm-usage-stats.rst (fdinfo).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linkgauge.run.machine import amd_reader
from linkgauge.run.machine.amd_reader import AmdReader, engine_ns
from linkgauge.run.machine.observe import OTHER_PROCESSES, OTHERS_BUSY, OTHERS_COPY

ADDRESS = "0000:c1:00.0"
LOCATION = 0xC100
FDINFO = """pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-pdev:\t{address}
drm-client-id:\t{client}
drm-engine-gfx:\t{gfx} ns
drm-engine-compute:\t{compute} ns
drm-engine-capacity-compute:\t8 ns
drm-memory-vram:\t512 KiB
"""


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def gpu(root: Path, number: int, gpu_id: int, units: int) -> None:
    folder = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    write(folder / "gpu_id", gpu_id)
    write(folder / "properties", f"simd_count {4 * units}\nsimd_per_cu 4\ndomain 0\nlocation_id {LOCATION}\n")


def process(root: Path, pid: int, gpu_id: int, vram: int, sdma_us: int = 0, units: int = 0) -> None:
    folder = root / f"sys/class/kfd/kfd/proc/{pid}"
    write(folder / f"vram_{gpu_id}", vram)
    write(folder / f"sdma_{gpu_id}", sdma_us)
    write(folder / f"stats_{gpu_id}/cu_occupancy", units)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(amd_reader, "is_here", lambda pid, root: True)
    gpu(tmp_path, 1, 4242, 76)
    gpu(tmp_path, 2, 4343, 76)  # a second partition of the same GPU
    device = tmp_path / f"sys/bus/pci/devices/{ADDRESS}"
    write(device / "gpu_busy_percent", 37)
    write(device / "hwmon/hwmon3/power1_average", 215_000_000)
    process(tmp_path, os.getpid(), 4242, 1 << 30, sdma_us=10**6, units=76)
    return tmp_path


def values(reader: AmdReader) -> dict[str, float]:
    return {value.name: value.value for value in reader.read()}


def test_others_are_those_that_hold_memory_and_are_not_the_runs(tree: Path) -> None:
    reader = AmdReader(ADDRESS.upper(), "hip:0", tree)
    assert values(reader) == {"power": 215.0, OTHER_PROCESSES: 0, OTHERS_COPY: 0, OTHERS_BUSY: 0}
    assert reader.busy() == 0.37
    process(tree, 800, 4242, 0)  # the driver lists each process with each GPU
    process(tree, 801, 4343, 1 << 20, sdma_us=2500, units=38)
    process(tree, 802, 4242, 1 << 20, sdma_us=500, units=0)
    assert values(reader) == {"power": 215.0, OTHER_PROCESSES: 2, OTHERS_COPY: 3e6, OTHERS_BUSY: 38 / 152}
    reader.own([801])
    assert values(reader) == {"power": 215.0, OTHER_PROCESSES: 1, OTHERS_COPY: 5e5, OTHERS_BUSY: 0}
    assert sorted(reader.users() or ()) == sorted([801, 802, os.getpid()])
    assert reader.refused() == {}


def test_in_a_container_the_drivers_numbers_say_nothing_of_others(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd_reader, "is_here", lambda pid, root: False)
    reader = AmdReader(ADDRESS, "hip:0", tree)
    assert values(reader) == {"power": 215.0}
    assert set(reader.refused()) == {OTHER_PROCESSES, OTHERS_BUSY, OTHERS_COPY}
    assert all("PID namespace" in reason for reason in reader.refused().values())


def test_a_machine_whose_driver_says_less_is_read_for_the_rest(tree: Path) -> None:
    device = tree / f"sys/bus/pci/devices/{ADDRESS}"
    (device / "hwmon/hwmon3/power1_average").unlink()
    write(device / "hwmon/hwmon3/power1_input", 90_000_000)  # newer GPUs
    write(device / "gpu_busy_percent", "N/A")
    reader = AmdReader(ADDRESS, "hip:0", tree)
    assert values(reader)["power"] == 90.0
    assert reader.busy() is None
    with pytest.raises(OSError, match="has no GPU at 0000"):
        AmdReader("0000:01:00.0", "hip:0", tree)


def test_engines_are_counted_once_a_client(tmp_path: Path) -> None:
    opened = [(ADDRESS, 5, 100, 7000), (ADDRESS, 5, 100, 7000), (ADDRESS, 6, 0, 400), ("0000:01:00.0", 9, 9, 9)]
    for number, (address, client, gfx, compute) in enumerate(opened):
        text = FDINFO.format(address=address, client=client, gfx=gfx, compute=compute)
        write(tmp_path / f"77/fdinfo/{number}", text)
    write(tmp_path / "77/fdinfo/9", "pos:\t0\nflags:\t02\n")
    assert engine_ns(77, ADDRESS, tmp_path) == 7500
    assert engine_ns(78, ADDRESS, tmp_path) == 0
