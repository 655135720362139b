"""States that look healthy and are not, as recordings: each is named with its fix, and no healthy recording is."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linkgauge.doctor import check as checks
from linkgauge.doctor.facts import GpuFacts
from linkgauge.nvml import fabric_health
from linkgauge.system.nvlink_errors import LinkErrors
from program import linkgauge
from recorded_machine import Machine, h200, hgx_machine, instinct_machine, kfd_machine, switch_links
from recordings import access_control, gpus_of, looked_at, recording_of, replayed, written
from thorough import most

_NO_NVML = ([], "libnvidia-ml.so.1 not found")
Changed = dict[str, Any]


def alarms(found: dict[str, checks.Result]) -> dict[str, checks.Result]:
    return {name: one for name, one in found.items() if one.status in ("warning", "failing")}


def _all(machine: Machine, **values: Any) -> Changed:
    return {"gpus": ([dataclasses.replace(gpu, **values) for gpu in gpus_of(machine.root)], "")}


def _some(machine: Machine, which: Callable[[GpuFacts], bool], **values: Any) -> Changed:
    gpus = [dataclasses.replace(gpu, **values) if which(gpu) else gpu for gpu in gpus_of(machine.root)]
    return {"gpus": (gpus, "")}


def hgx(folder: Path, gpus: int = 8) -> Machine:
    """An HGX with what its network cards need to read GPU memory."""
    machine = hgx_machine(folder, gpus)
    machine.write("proc/modules", "nvidia_peermem 16384 0 - Live 0x0")
    machine.write("dev/gdrdrv", "")
    return machine


def status(machine: Machine) -> Changed:
    return _all(machine, fabric_status="Insufficient Resources")


def clique(machine: Machine) -> Changed:
    return _some(machine, lambda gpu: gpu.index == 2, fabric_clique=1)


def zeros_of_the_cluster(machine: Machine) -> Changed:
    return _all(machine, name="NVIDIA GB200")


def health_mask(machine: Machine) -> Changed:
    return _some(machine, lambda gpu: gpu.index == 5, fabric_health=tuple(fabric_health(0x55)))


def bit_errors(machine: Machine) -> Changed:
    links = [LinkErrors(gpu, link, effective_ber=2e-9 if (gpu, link) == (5, 3) else 1e-15)
             for gpu in range(8) for link in range(18)]  # fmt: skip
    return {"link_errors": links}


def half_width(machine: Machine) -> Changed:
    return _slots(machine, "width", 8, pcie_width=8, pcie_width_max=8)


def generation_3(machine: Machine) -> Changed:
    return _slots(machine, "speed", "8.0 GT/s PCIe", pcie_generation=3, pcie_generation_max=3)


def _slots(machine: Machine, what: str, value: object, **values: Any) -> Changed:
    """Two of eight GPUs in slots that can do less, which NVML calls full."""
    for bus in (0x30, 0x60):
        machine.write(f"sys/bus/pci/devices/0000:{bus + 2:02x}:00.0/max_link_{what}", value)
        machine.write(f"sys/bus/pci/devices/0000:{bus + 3:02x}:00.0/current_link_{what}", value)
    return _some(machine, lambda gpu: gpu.pci_address[5:7] in ("33", "63"), **values)


def acs(machine: Machine) -> Changed:
    for bus in range(0x10, 0x90, 0x10):
        for port in range(2):
            access_control(machine, f"0000:{bus + 2:02x}:0{port}.0", 0x1D if bus == 0x20 else 0)
    return {}


def twelve_links(machine: Machine) -> Changed:
    answers = json.loads((machine.root / "nvml.json").read_text(encoding="utf-8"))
    devices = [h200(one["pci"], switch_links(down=tuple(range(0, 18, 3)))) for one in answers["devices"]]
    machine.nvml({**answers, "devices": devices})
    return {}


def seven_gpus(machine: Machine) -> Changed:
    for gpu in gpus_of(machine.root):
        machine.write(f"proc/driver/nvidia/gpus/{gpu.pci_address}/information", "Model: NVIDIA H200")
    return {"gpus": (gpus_of(machine.root)[:7], ""), "visible": 7}


def mixed_rails(machine: Machine) -> Changed:
    machine.write("sys/class/infiniband/mlx5_6/ports/1/rate", "100 Gb/sec (4X EDR)")
    return {}


def sharp_lost(machine: Machine) -> Changed:
    return {"multicast": [0] * 8}


STATES: list[tuple[Callable[[Machine], Changed], str, str, str]] = [
    (status, "nvlink_fabric", "status is Insufficient Resources", "systemctl restart nvidia-fabricmanager"),
    (clique, "nvlink_fabric", "GPU 2 in clique 1", "nvidia-smi -q"),
    (zeros_of_the_cluster, "nvlink_fabric", "cluster UUID", "nvidia-smi -q"),
    (health_mask, "nvlink_fabric", "GPU 5: degraded bandwidth", "nvidia-smi nvlink -s"),
    (bit_errors, "nvlink_errors", "NVLink 3 of GPU 5: effective bit error rate 2e-09", "nvidia-smi nvlink -e"),
    (half_width, "pcie_width", "x8 of x16", "board's manual"),
    (generation_3, "pcie_width", "generation 3 of 5", "firmware's set-up"),
    (acs, "acs", "2 PCIe switch ports", "setpci -s 0000:22:00.0 ECAP_ACS+0x6.w=0000"),
    (twelve_links, "links_as_described", "12 of 18 nvlink links", "nvidia-smi nvlink -s"),
    (seven_gpus, "gpus_answer", "cannot be initialized", "dmesg"),
    (mixed_rails, "rail_width", "mlx5_6/1 is at 100 of 400 Gb/s", "ibstat"),
    (sharp_lost, "nvlink_sharp", "not there on 8 of 8", "systemctl restart nvidia-fabricmanager"),
]


def healthy(machine: Machine) -> Changed:
    """What is no file of a healthy HGX."""
    count = len(gpus_of(machine.root))
    return {"gpus": (gpus_of(machine.root), ""), "visible": count, "multicast": [1] * count}


@pytest.mark.parametrize(("state", "check", "finding", "fix"), STATES, ids=[one[0].__name__ for one in STATES])
def test_a_state_that_looks_healthy_is_named_with_its_fix(
    state: Callable[[Machine], Changed], check: str, finding: str, fix: str, tmp_path: Path
) -> None:
    machine = hgx(tmp_path / "hgx")
    changed = {**healthy(machine), **state(machine)}
    if state is twelve_links:
        changed["gpus"] = (gpus_of(machine.root), "")
    found = alarms(looked_at(machine.root, **changed))
    # What a lost GPU is unlike, the described machine, may be named too.
    assert set(found) - {"links_as_described", "devices_hidden"} == {check} - {"links_as_described"}, found
    assert finding in found[check].finding
    assert fix in found[check].fix
    assert found[check].cost


def test_the_program_names_a_state_by_its_exit_status(tmp_path: Path) -> None:
    machine = hgx(tmp_path / "hgx")
    for state, expected in ((healthy, 0), (status, 1)):
        file = tmp_path / "machine.json"
        file.write_text(written(machine.root, **{**healthy(machine), **state(machine)}))
        before = {path: path.stat().st_mtime_ns for path in machine.root.rglob("*")}
        done = linkgauge("doctor", "--recording", str(file), "--json", cwd=tmp_path)
        assert done.returncode == expected
        failing = [one["check"] for one in json.loads(done.stdout) if one["status"] == "failing"]
        assert failing == ["nvlink_fabric"] * expected
        assert {path: path.stat().st_mtime_ns for path in machine.root.rglob("*")} == before


AMD: list[tuple[str, str, str, str, object]] = [
    ("gpu_memory", "failing|warning", "2 uncorrected xgmi_wafl errors", "ras/xgmi_wafl_err_count", "ue: 2\nce: 9"),
    ("clocks_capped", "warning", "power limit 500 of 750 W", "hwmon/hwmon3/power1_cap", 500000000),
    ("partitions", "warning", "CPX NPS1, others SPX NPS1", "current_compute_partition", "CPX"),
    ("partitions", "warning", "SPX NPS4, others SPX NPS1", "current_memory_partition", "NPS4"),
    ("pcie_errors", "warning", "5000 replays, others 3", "pcie_replay_count", 5000),
    ("pcie_width", "failing", "x8 of x16", "current_link_width", 8),
]


@pytest.mark.parametrize("model", most(["MI300X", "MI300A"], ["MI300A"]))
def test_recorded_instincts_are_silent_until_something_is_planted(model: str, tmp_path: Path) -> None:
    machine = instinct_machine(tmp_path / model, model)
    more = {"gpus": _NO_NVML, "visible": 4 if model == "MI300A" else 8, "commands": {"ucx_info": "# rocm_ipc"}}
    assert alarms(replayed(recording_of(machine.root, **more))) == {}
    for check, status, finding, path, content in most(AMD, AMD[:3]):
        file = f"sys/bus/pci/devices/0000:25:00.0/{path}"
        sound = (machine.root / file).read_text()
        machine.write(file, content)
        found = alarms(looked_at(machine.root, **more))
        assert set(found) == {check}, (check, found)
        assert found[check].status in status
        assert finding in found[check].finding
        machine.write(file, sound.strip())


def variant(seed: int, folder: Path) -> tuple[Machine, Changed]:
    """A healthy machine that differs from others in what healthy machines differ in."""
    draw = random.Random(seed)
    kind = draw.choice(["hgx4", "hgx8", "mi250x", "mi300x", "mi300a"])
    if not kind.startswith("hgx"):
        made = kfd_machine(folder) if kind == "mi250x" else instinct_machine(folder, kind.upper())
        for path in made.root.glob("sys/bus/pci/devices/*/pcie_replay_count"):
            path.write_text(f"{draw.randrange(40)}\n")
        return made, {"gpus": _NO_NVML, "visible": 4 if kind == "mi300a" else 8, "commands": {"ucx_info": "rocm"}}
    made = hgx(folder, int(kind[3:]))
    rate = draw.choice(["400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "100 Gb/sec (2X HDR)"])
    speed, services = draw.choice(["2.5", "16.0", "32.0"]), draw.choice([0, 0x11])
    for path in made.root.glob("sys/class/infiniband/*"):
        made.write(f"sys/class/infiniband/{path.name}/ports/1/rate", rate)
        for name in ("symbol_error", "link_downed"):
            made.write(f"sys/class/infiniband/{path.name}/ports/1/counters/{name}", draw.randrange(9))
    gpus = gpus_of(made.root)
    for gpu in gpus:
        made.write(f"sys/bus/pci/devices/{gpu.pci_address}/current_link_speed", f"{speed} GT/s PCIe")
        made.write(f"sys/bus/pci/devices/{gpu.pci_address}/aer_dev_correctable", f"TOTAL_ERR_COR {draw.randrange(50)}")
        for port in range(2):
            access_control(made, f"0000:{gpu.pci_address[5]}2:0{port}.0", services)
    ecc, bar, vbios = draw.choice(["on", "off", ""]), draw.choice([262144, -1]), draw.choice(["96.00.74.00.01", ""])
    facts = [
        dataclasses.replace(
            gpu, ecc=ecc, bar_mib=bar, memory_mib=143771, vbios=vbios, pcie_replays=draw.randrange(20),
            pcie_generation={"2.5": 1, "16.0": 4, "32.0": 5}[speed], persistence=draw.choice(["on"]),
        )
        for gpu in gpus
    ]  # fmt: skip
    links = [
        LinkErrors(gpu.index, link, replays=draw.randrange(30), recoveries=0) for gpu in gpus for link in range(18)
    ]
    environment = {"HOME": "/root", "NCCL_IB_HCA": draw.choice(["mlx5", "^mlx5_9", ""])}
    return made, {**healthy(made), "gpus": (facts, ""), "link_errors": links, "environment": environment}


@pytest.mark.parametrize("seed", most(range(0, 100, 3), range(0, 100, 50)))
def test_no_healthy_recording_is_alarmed(seed: int, tmp_path: Path) -> None:
    machine, changed = variant(seed, tmp_path / "machine")
    assert alarms(replayed(recording_of(machine.root, **changed))) == {}
