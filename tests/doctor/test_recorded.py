"""The doctor on recorded machines with NVIDIA GPUs: healthy ones of many kinds, and states that look healthy."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_readers import TreeReaders
from linkgauge.doctor import check as checks
from recorded_machine import Machine, h200, hgx_machine, switch_links
from recordings import access_control, gpus_of
from thorough import most

# What a check of links, fabric, rails or GPUs says of the recording, and not of the machine that runs this test.
_OF_RECORDING = ("gpus_answer", "pcie_width", "acs", "nvlinks", "links_as_described", "nvlink_fabric", "rails",
                 "rail_width", "nearest_card", "clocks_capped", "gpu_memory", "partitions")  # fmt: skip


def found(root: Path, *, without: str = "", **changed: Any) -> dict[str, checks.Result]:
    checks.load()
    readers = TreeReaders(root, **{"gpus": (gpus_of(root), ""), **changed})
    return {name: checks.CHECKS[name].look(readers) for name in _OF_RECORDING if name != without}


def alarms(results: dict[str, checks.Result]) -> set[str]:
    return {name for name, result in results.items() if result.status in ("warning", "failing")}


@pytest.fixture
def hgx(tmp_path: Path) -> Machine:
    return hgx_machine(tmp_path / "hgx")


HEALTHY = list(itertools.product(("2.5", "16.0", "32.0"), (1, 2, 8), ("", "mlx5", "^mlx5_9"),
                                 ("400 Gb/sec (4X NDR)", "100 Gb/sec (2X HDR)"), (0, 0x11)))  # fmt: skip
assert len(HEALTHY) > 100


def test_no_healthy_variant_is_alarmed(hgx: Machine) -> None:
    """GPUs that sleep, ports that can do more than their cards, any variable that leaves all cards, slower networks."""
    assert found(hgx.root)["links_as_described"] == checks.ok("as described for hgx-h200-8")
    for speed, times, variable, rate, services in most(HEALTHY, HEALTHY[::5]):
        for gpu in range(4):
            bus = 0x10 + 0x10 * gpu
            at = "sys/bus/pci/devices/0000:"
            hgx.write(f"{at}{bus + 3:02x}:00.0/current_link_speed", f"{speed} GT/s PCIe")
            hgx.write(f"{at}{bus + 2:02x}:00.0/max_link_width", 16 * times)
            hgx.write(f"sys/class/infiniband/mlx5_{gpu}/ports/1/rate", rate)
            for port in range(2):
                access_control(hgx, f"0000:{bus + 2:02x}:0{port}.0", services)
        generation = {"2.5": 1, "16.0": 4, "32.0": 5}[speed]
        gpus = [dataclasses.replace(gpu, pcie_generation=generation) for gpu in gpus_of(hgx.root)]
        results = found(hgx.root, without="links_as_described", gpus=(gpus, ""),
                        environment={"HOME": "/", "NCCL_IB_HCA": variable})  # fmt: skip
        assert not alarms(results), (speed, times, variable, rate, services, results)
        assert all(result.status == "ok" for result in results.values()), results


def _alike(machine: Machine, links: Callable[[], list[dict[str, Any]]]) -> None:
    answers = json.loads((machine.root / "nvml.json").read_text(encoding="utf-8"))
    machine.nvml({**answers, "devices": [h200(one["pci"], links()) for one in answers["devices"]]})


def test_links_that_all_gpus_lack_alike_are_found_by_the_description(hgx: Machine) -> None:
    _alike(hgx, lambda: switch_links(down=tuple(range(0, 18, 3))))
    results = found(hgx.root)
    assert alarms(results) == {"links_as_described"}
    assert results["nvlinks"].finding == "12 links of each GPU are up, and 6 of each are not used"
    assert results["links_as_described"].finding == "unlike the described hgx-h200-8: " + "; ".join(
        f"gpu{gpu} has 12 of 18 nvlink links" for gpu in range(4)
    )


def test_acs_between_a_gpu_and_its_card_is_found_with_a_command_for_each_port(hgx: Machine) -> None:
    for port in ("0000:12:00.0", "0000:12:01.0", "0000:22:00.0", "0000:22:01.0"):
        access_control(hgx, port, 0x1D if port.startswith("0000:12") else 0x11)
    for port in ("0000:32:00.0", "0000:32:01.0", "0000:42:00.0", "0000:42:01.0"):
        access_control(hgx, port, 0)
    results = found(hgx.root)
    assert alarms(results) == {"acs"}
    assert "2 PCIe switch ports" in results["acs"].finding
    assert results["acs"].finding.endswith("such as between GPU 3 and mlx5_0")  # NVML lists them backwards here
    for port in ("0000:12:00.0", "0000:12:01.0"):
        assert f"setpci -s {port} ECAP_ACS+0x6.w=0000" in results["acs"].fix
    assert "0000:22" not in results["acs"].fix


@pytest.mark.parametrize(
    ("path", "content", "finding"),
    [
        ("0000:12:00.0/max_link_width", 8, "GPU 3: slot x8, card x16"),
        ("0000:12:00.0/max_link_speed", "8.0 GT/s PCIe", "GPU 3: slot of generation 3, card of generation 5"),
        ("0000:11:00.0/current_link_width", 4, "switch port 0000:11:00.0: x4 of x16"),
    ],
)
def test_a_slot_that_nvml_calls_full_width_is_found(hgx: Machine, path: str, content: object, finding: str) -> None:
    """The GPU trained to what its slot can do, so that NVML states this as the most that is possible."""
    at = "sys/bus/pci/devices/"
    hgx.write(f"{at}{path}", content)
    if path.startswith("0000:12"):
        hgx.write(f"{at}0000:13:00.0/{'current_link_width' if 'width' in path else 'current_link_speed'}", content)
    results = found(hgx.root)
    assert alarms(results) == {"pcie_width"}
    assert finding in results["pcie_width"].finding


def test_a_rail_of_another_rate_is_found(hgx: Machine) -> None:
    hgx.write("sys/class/infiniband/mlx5_2/ports/1/rate", "100 Gb/sec (4X EDR)")
    results = found(hgx.root)
    assert alarms(results) == {"rail_width"}
    assert results["rail_width"].finding == "mlx5_2/1 is at 100 of 400 Gb/s"
