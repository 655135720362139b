"""The doctor on machines with AMD GPUs and without NVML: recorded trees, and what is planted in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fake_readers import TreeReaders
from linkgauge.doctor import check as checks
from linkgauge.system.amdsmi import Health
from recorded_machine import Machine, kfd_machine

_NO_NVML = ([], "libnvidia-ml.so.1 not found")
_FIRST = "sys/bus/pci/devices/0000:c1:00.0"


def found(root: Path, **changed: Any) -> dict[str, checks.Result]:
    readers = TreeReaders(root, **{"gpus": _NO_NVML, "visible": 8, **changed})
    return {one.name: result for one, result in checks.run_checks(readers)}


def of_check(name: str, root: Path, **changed: Any) -> checks.Result:
    """What one check finds: all of them cost ten times as much."""
    checks.load()
    return checks.CHECKS[name].look(TreeReaders(root, **{"gpus": _NO_NVML, "visible": 8, **changed}))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Eight GCDs of MI250X as their driver shows them on a quiet node, outside of containers."""
    monkeypatch.setattr("linkgauge.run.machine.users.in_host_namespace", lambda: True)
    machine = kfd_machine(tmp_path)
    for gpu in range(8):
        place = f"sys/bus/pci/devices/0000:{0xC1 + gpu:02x}:00.0"
        machine.write(f"{place}/max_link_speed", "16.0 GT/s PCIe")
        machine.write(f"{place}/local_cpulist", "0-63")
        for name, value in (("product_name", "AMD Instinct MI250X"), ("power_dpm_force_performance_level", "auto"),
                            ("hwmon/hwmon3/power1_cap", 560000000), ("hwmon/hwmon3/power1_cap_default", 560000000),
                            ("ras/umc_err_count", "ue: 0\nce: 3")):  # fmt: skip
            machine.write(f"{place}/{name}", value)
    return machine


def test_a_healthy_node_is_looked_at_and_warns_of_nothing(machine: Machine) -> None:
    results = found(machine.root, commands={"ucx_info": "# Transport: rocm_ipc"})
    assert not {name: one for name, one in results.items() if one.status in ("warning", "failing")
                and name not in ("other_load", "huge_pages")}  # fmt: skip
    for name in ("devices_hidden", "pcie_width", "clocks_capped", "other_gpu_users", "device_affinity", "gpu_memory",
                 "observable", "ucx_with_gpus", "mpi_with_gpus", "partitions", "acs",
                 "links_as_described"):  # fmt: skip
        assert results[name].status == "ok", (name, results[name])
    assert results["links_as_described"].finding == "as described for frontier"  # whose nodes are LUMI-G's
    skipped = {(one.needs, one.finding) for one in results.values() if "NVML" in one.finding or one.needs}
    assert skipped == {("NVIDIA", "the GPUs are of another vendor")}  # one line of the screen


PLANTED: list[tuple[str, str, str, str, object]] = [
    ("pcie_width", "failing", "GPU 0: x8 of x16", f"{_FIRST}/current_link_width", 8),
    ("pcie_width", "warning", "GPU 0: generation 3 of 4", f"{_FIRST}/max_link_speed", "8.0 GT/s PCIe"),
    ("clocks_capped", "warning", "GPU 0: power limit 300 of 560 W", f"{_FIRST}/hwmon/hwmon3/power1_cap", 300000000),
    ("clocks_capped", "warning", "performance level low", f"{_FIRST}/power_dpm_force_performance_level", "low"),
    ("other_gpu_users", "warning", "GPU 0: pid 4711", "sys/class/kfd/kfd/proc/4711/vram_1000", 4096),
    ("gpu_memory", "warning", "GPU 0: 2 uncorrected umc errors", f"{_FIRST}/ras/umc_err_count", "ue: 2\nce: 3"),
    ("device_affinity", "warning", "GPU 0", f"{_FIRST}/local_cpulist", "64-127"),
]


@pytest.mark.parametrize(
    ("name", "status", "word", "path", "content"), PLANTED, ids=[f"{p[0]}-{p[2]}" for p in PLANTED]
)
def test_a_planted_condition_is_found_with_its_fix(
    name: str, status: str, word: str, path: str, content: object, machine: Machine
) -> None:
    machine.write(path, content)
    result = of_check(name, machine.root)
    assert (result.status, word in result.finding) == (status, True), result
    assert result.cost
    assert result.fix
    assert "nvidia-smi" not in result.fix


def test_a_missing_xgmi_link_is_unlike_the_description(machine: Machine) -> None:
    """Of both directions, as the driver shows it; a bundle that lost half of its links states half of its rate."""
    nodes = machine.root / "sys/class/kfd/kfd/topology/nodes"
    for one, other in ((4, 5), (5, 4)):
        for file in (nodes / str(one) / "io_links").glob("*/properties"):
            text = file.read_text(encoding="utf-8")
            if f"node_to {other}\n" in text:
                file.write_text(text.replace("max_bandwidth 200000", "max_bandwidth 100000"), encoding="utf-8")
    result = of_check("links_as_described", machine.root)
    assert result.status == "warning"
    assert "xgmi links" in result.finding
    assert "rocm-smi --showtopo" in result.fix


def test_partitions_are_devices_and_unlike_ones_are_named(machine: Machine) -> None:
    for gpu in range(8):
        mode = "CPX" if gpu == 3 else "SPX"
        machine.write(f"sys/bus/pci/devices/0000:{0xC1 + gpu:02x}:00.0/current_compute_partition", mode)
        machine.write(f"sys/bus/pci/devices/0000:{0xC1 + gpu:02x}:00.0/current_memory_partition", "NPS1")
    result = of_check("partitions", machine.root)
    assert result.finding == "GPUs are divided differently: GPU 3 CPX NPS1, others SPX NPS1"
    assert "--setcomputepartition SPX" in result.fix


def test_a_process_on_any_partition_of_a_gpu_is_a_user_of_it(machine: Machine) -> None:
    """In CPX each GPU has several nodes of the driver's topology, with the partition's number above its PCI address."""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    for part in range(1, 8):
        machine.write(f"{nodes}/{11 + part}/gpu_id", 2000 + part)
        machine.write(f"{nodes}/{11 + part}/properties", f"domain 0\nlocation_id {part << 28 | 0xC1 << 8}")
    machine.write("sys/class/kfd/kfd/proc/4711/vram_2005", 4096)
    machine.write("sys/class/kfd/kfd/proc/4711/vram_1000", 4096)
    machine.write("sys/class/kfd/kfd/proc/4712/vram_2006", 0)
    results = found(machine.root, visible=15)
    said = results["other_gpu_users"].finding
    assert said.startswith("others use GPUs (GPU 0: pid 4711")
    assert "4712" not in said
    assert results["devices_hidden"].finding == "all 15 GPUs are visible"


def test_hidden_devices_are_counted(machine: Machine) -> None:
    hidden = of_check(
        "devices_hidden", machine.root, visible=2, environment={"HOME": "/", "ROCR_VISIBLE_DEVICES": "0,1"}
    )
    assert (hidden.status, hidden.fix) == ("warning", "unset ROCR_VISIBLE_DEVICES")
    assert hidden.finding == "6 of 8 GPUs are hidden by ROCR_VISIBLE_DEVICES=0,1"
    lost = of_check("devices_hidden", machine.root, visible=7)
    assert (lost.status, "/dev/kfd" in lost.fix) == ("failing", True)


def test_network_cards_reach_amd_memory_by_the_driver_or_by_the_kernel(machine: Machine) -> None:
    machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    assert of_check("gpu_direct", machine.root).status == checks.NOT_CHECKED
    machine.write("proc/sys/kernel/osrelease", "6.8.0-x")
    machine.write("boot/config-6.8.0-x", "CONFIG_PCI_P2PDMA=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set")
    lacking = of_check("gpu_direct", machine.root)
    assert (lacking.status, "lacks CONFIG_DMABUF_MOVE_NOTIFY" in lacking.finding) == ("warning", True)
    machine.write("boot/config-6.8.0-x", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y")
    assert of_check("gpu_direct", machine.root) == checks.ok("dma-buf is there")
    machine.write("boot/config-6.8.0-x", "")
    machine.write("sys/kernel/mm/memory_peers/amdkfd/version", "1.0")
    assert of_check("gpu_direct", machine.root) == checks.ok("amdgpu lends its memory to network cards")


def test_amdsmi_says_what_the_drivers_files_do_not(machine: Machine) -> None:
    """In a container that hides a part of /sys; where both say something, a file is not overruled."""
    said = [Health(f"0000:{0xC1 + gpu:02x}:00.0", xgmi_speed=25, xgmi_width=16) for gpu in range(8)]
    assert "xGMI links 25 Gb/s x16" in of_check("gpu_settings", machine.root, amd_smi=said).finding
    said[0] = dataclasses.replace(said[0], throttle=("heat",), uncorrected=2, pcie_replays=900)
    results = found(machine.root, amd_smi=said)
    assert "GPU 0: slowed by heat" in results["clocks_capped"].finding
    assert "GPU 0: 2 uncorrected memory errors" in results["gpu_memory"].finding
    machine.write(f"{_FIRST}/pcie_replay_count", 1)
    for gpu in range(1, 8):
        machine.write(f"sys/bus/pci/devices/0000:{0xC1 + gpu:02x}:00.0/pcie_replay_count", 1)
    assert "900 replays" in of_check("pcie_errors", machine.root, amd_smi=said).finding


def test_a_page_of_memory_that_could_not_be_retired_is_named_and_retired_ones_are_not(machine: Machine) -> None:
    pages = f"{_FIRST}/ras/gpu_vram_bad_pages"
    machine.write(pages, "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : R")
    assert of_check("gpu_memory", machine.root).status == "ok"
    machine.write(pages, "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n0x00000003 : 0x00001000 : F")
    said = of_check("gpu_memory", machine.root).finding
    assert said == ("GPU 0: 1 bad pages of memory are to be retired at the next reset, "
                    "1 bad pages of memory could not be retired")  # fmt: skip
