"""Machines that differ from each other in what healthy machines differ in: the doctor alarms nobody on them.

Virtual machines and containers that hide a part of /sys, virtual functions, InfiniBand beside Ethernet, other makers'
cards, other processors, other layouts. Where a variant has a true finding, that one alone is expected.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_readers import verbs
from linkgauge.doctor.facts import GpuFacts, ImexDomain
from linkgauge.system.ethernet import PortSettings
from recorded_machine import Machine, hgx_machine, instinct_machine
from recordings import gpus_of, recording_of, replayed
from thorough import most

Changed = dict[str, Any]
_VIRTUAL = "processor : 0\nflags\t\t: fpu hypervisor\n"
_MLX = "sys/class/infiniband/mlx5_{}"


def hgx(folder: Path) -> Machine:
    """Four GPUs and four InfiniBand cards, with what these need."""
    machine = hgx_machine(folder, 4)
    machine.write("proc/modules", "nvidia_peermem 16384 0 - Live 0x0")
    machine.write("dev/gdrdrv", "")
    return machine


def facts(machine: Machine, **values: Any) -> Changed:
    gpus = [dataclasses.replace(gpu, **values) for gpu in gpus_of(machine.root)]
    return {"gpus": (gpus, ""), "visible": len(gpus), "multicast": [1] * len(gpus)}


def without(machine: Machine, *patterns: str) -> None:
    for pattern in patterns:
        for path in machine.root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def ethernet(machine: Machine, card: int, *, rate: int = 400000, mtu: int = 9000, kind: int = 1, up: str = "up") -> str:
    """Give a card a network interface: of Ethernet, or with `kind` 32 of IP over InfiniBand."""
    name, place = f"ens{card}", _MLX.format(card)
    machine.write(f"{place}/device/net/{name}/type", kind)
    for what, value in (("type", kind), ("mtu", mtu), ("speed", rate), ("operstate", up), ("carrier_down_count", 2)):
        machine.write(f"sys/class/net/{name}/{what}", value)
    machine.link(f"sys/class/net/{name}/device", f"{place}/device")
    if kind == 1:
        machine.write(f"{place}/ports/1/link_layer", "Ethernet")
        machine.write(f"{place}/ports/1/gid_attrs/types/3", "RoCE v2")
    return name


def a_virtual_machine(machine: Machine) -> Changed:
    machine.write("proc/cpuinfo", _VIRTUAL)
    for path in machine.root.glob("sys/bus/pci/devices/*/max_link_width"):
        path.write_text("32\n")
    return facts(machine)


def a_virtual_machine_without_numa(machine: Machine) -> Changed:
    machine.write("proc/cpuinfo", _VIRTUAL)
    without(machine, "sys/devices/system/node", "sys/bus/pci/devices/*/numa_node", "sys/bus/pci/devices/*/max_link_*")
    return facts(machine)


def a_virtual_machine_without_cards(machine: Machine) -> Changed:
    machine.write("proc/cpuinfo", _VIRTUAL)
    without(machine, "sys/class/infiniband", "proc/modules", "dev/gdrdrv")
    return facts(machine)


def a_container(machine: Machine) -> Changed:
    without(machine, "proc/modules")
    return {**facts(machine), "runs": None, "commands": {"ucx_info": "cuda"}}


def a_sandbox(machine: Machine) -> Changed:
    """gVisor: neither processors nor modules nor control groups show."""
    without(machine, "proc/modules", "proc/cpuinfo", "sys/devices/system/cpu", "sys/kernel")
    return {**facts(machine), "runs": None, "cross": None, "load": 0.0}


def virtual_functions(machine: Machine) -> Changed:
    """Cards of SR-IOV: neither counters nor settings of the port, and a mode of the link that is not known."""
    for card in range(4):
        address = f"0000:{0x14 + 0x10 * card:02x}:00.0"
        machine.link(f"sys/bus/pci/devices/{address}/physfn", "sys/devices/pci0000:10")
        for what in ("current_link_speed", "max_link_speed"):
            machine.write(f"sys/bus/pci/devices/{address}/{what}", "Unknown")
        for what in ("current_link_width", "max_link_width"):
            machine.write(f"sys/bus/pci/devices/{address}/{what}", 0)
        ethernet(machine, card)
    return {**facts(machine), "port_settings": {}, "port_errors": {}}


def one_card_down(machine: Machine) -> Changed:
    machine.write(f"{_MLX.format(2)}/ports/1/state", "1: DOWN")
    machine.write(f"{_MLX.format(2)}/ports/1/rate", "10 Gb/sec (4X)")
    ethernet(machine, 2, rate=-1, mtu=1500, up="down")
    return {**facts(machine), "port_settings": {"ens2": PortSettings("off", "rx tx", ())},
            "commands": {"ucx_info": "cuda", "ibv_devinfo": verbs({"mlx5_0": 4096}) +
                         verbs({"mlx5_2": 1024}, "Ethernet", "PORT_DOWN (1)")}}  # fmt: skip


def infiniband_beside_ethernet(machine: Machine) -> Changed:
    """Two rails of InfiniBand with IP over them, and two of Ethernet for storage: another model, another rate."""
    for card in range(2):
        ethernet(machine, card, mtu=2044, kind=32)
        machine.write(f"{_MLX.format(card)}/ports/1/link_layer", "InfiniBand")
        ethernet(machine, 2 + card, rate=100000, mtu=1500)
        machine.write(f"{_MLX.format(2 + card)}/ports/1/rate", "100 Gb/sec (4X EDR)")
    return {**facts(machine), "port_settings": {"ens2": PortSettings("RS", "rx tx", ()), "ens3": PortSettings(
        "RS", "rx tx", ()), "ens0": PortSettings(), "ens1": PortSettings()}}  # fmt: skip


def a_card_of_another_model(machine: Machine) -> Changed:
    for card in range(4):
        machine.write(f"{_MLX.format(card)}/board_id", "MT_0000000838" if card < 3 else "DEL0000000036")
        machine.write(f"{_MLX.format(card)}/fw_ver", "28.39.2048" if card < 3 else "22.36.1010")
        ethernet(machine, card, rate=400000 if card < 3 else 25000, mtu=9000 if card < 3 else 1500)
    machine.write(f"{_MLX.format(3)}/ports/1/rate", "25 Gb/sec (1X EDR)")
    return facts(machine)


def a_bond(machine: Machine) -> Changed:
    """Two ports of one card behind one RDMA device."""
    without(machine, "sys/class/infiniband/mlx5_[123]")
    (machine.root / "sys/class/infiniband/mlx5_0").rename(machine.root / "sys/class/infiniband/mlx5_bond_0")
    for name in ("ens0f0", "ens0f1"):
        machine.write(f"sys/class/infiniband/mlx5_bond_0/device/net/{name}/mtu", 9000)
        machine.write(f"sys/class/net/{name}/mtu", 9000)
    return facts(machine)


def elastic_fabric_adapters(machine: Machine) -> Changed:
    """Amazon's: no network interface, no counters, another layer."""
    for card in range(4):
        (machine.root / _MLX.format(card)).rename(machine.root / f"sys/class/infiniband/rdmap{card}s0")
        machine.write(f"sys/class/infiniband/rdmap{card}s0/ports/1/link_layer", "Unspecified")
        machine.write(f"sys/class/infiniband/rdmap{card}s0/ports/1/rate", "100 Gb/sec (4X EDR)")
    machine.write("proc/cpuinfo", _VIRTUAL)
    return facts(machine)


def slingshot(machine: Machine) -> Changed:
    without(machine, "sys/class/infiniband", "proc/modules")
    for card in range(4):
        for what, value in (("mtu", 9000), ("operstate", "up"), ("device/x", ""), ("carrier_down_count", card)):
            machine.write(f"sys/class/net/hsn{card}/{what}", value)
    return facts(machine)


def divided_by_mig(machine: Machine) -> Changed:
    return facts(machine, partition="MIG", instances=("MIG-a", "MIG-b"), nvlinks_active=0, nvlinks_inactive=0,
                 fabric_state="")  # fmt: skip


def grace(machine: Machine) -> Changed:
    """GPUs on the processors' own links: no PCIe bridge above them, no link width, no x86."""
    machine.write("proc/cpuinfo", "processor : 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n")
    without(machine, "sys/bus/pci/devices", "sys/devices/pci*", "sys/class/infiniband", "proc/modules", "nvml.json")
    gpus = []
    for number in range(4):
        address = f"{8 + number:04x}:01:00.0"
        machine.pci(f"{address[:4]}:00:00.0/{address}", numa=0)
        gpus.append(GpuFacts(number, "NVIDIA GH200 480GB", f"GPU-{number}", address, persistence="on", ecc="on"))
    return {"gpus": (gpus, ""), "visible": 4, "multicast": [1] * 4, "likeness": None}


def a_rack(machine: Machine) -> Changed:
    machine.write("dev/nvidia-caps-imex-channels/channel0", "")
    machine.write("etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2")
    changed = facts(machine, fabric_cluster="0f1e2d3c4b5a69788796a5b4c3d2e1f0", fabric_clique=7)
    return {**changed, "imex": ImexDomain("UP", 18, 18)}


def a_rack_outside_of_a_job(machine: Machine) -> Changed:
    return {**a_rack(machine), "runs": {"slurmd"}, "imex": None}


def windows_subsystem(machine: Machine) -> Changed:
    """WSL: the GPU is behind /dev/dxg; no driver's folder, no rails, one NUMA node."""
    machine.write("proc/cpuinfo", _VIRTUAL)
    without(machine, "sys/bus/pci/devices/*", "sys/devices/pci*", "sys/class/infiniband", "proc/modules",
            "sys/devices/system/node", "dev/gdrdrv")  # fmt: skip
    machine.pci("5582:00:00.0", "0x030200")
    gpu = GpuFacts(0, "NVIDIA GeForce RTX 4090", "GPU-a", "0000:01:00.0", persistence="on", pcie_width=16,
                   pcie_width_max=16, pcie_generation=4, pcie_generation_max=4, bar_mib=256,
                   memory_mib=24564)  # fmt: skip
    return {"gpus": ([gpu], ""), "visible": 1, "rank_count": 1}


def cards_of_pcie_alone(machine: Machine) -> Changed:
    """L40S: no NVLink and no fabric."""
    return {**facts(machine, name="NVIDIA L40S", nvlinks_active=0, nvlinks_inactive=0, fabric_state=""),
            "link_errors": []}  # fmt: skip


def two_kinds_of_gpus(machine: Machine) -> Changed:
    changed = facts(machine, fabric_state="", nvlinks_active=0, nvlinks_inactive=0)
    other = {"name": "NVIDIA T4", "pcie_width_max": 8, "pcie_width": 8, "bar_mib": 256, "memory_mib": 400, "ecc": "off"}
    gpus = [dataclasses.replace(gpu, **other) if gpu.index > 1 else gpu for gpu in changed["gpus"][0]]
    return {**changed, "gpus": (gpus, ""), "link_errors": []}


def one_gpu_of_a_job(machine: Machine) -> Changed:
    changed = facts(machine)
    for gpu in changed["gpus"][0]:
        machine.write(f"proc/driver/nvidia/gpus/{gpu.pci_address}/information", "Model: NVIDIA H200")
    return {**changed, "gpus": (changed["gpus"][0][:1], ""), "visible": 1, "rank_count": 1,
            "environment": {"HOME": "/root", "SLURM_JOB_ID": "7"}}  # fmt: skip


def no_gpu_at_all(machine: Machine) -> Changed:
    without(machine, "sys/bus/pci/devices/*", "sys/devices/pci*")
    return {"gpus": ([], "libnvidia-ml.so.1 not found"), "visible": 0}


def many_controllers_of_memory(machine: Machine) -> Changed:
    for number in range(8):
        for channel in range(2):
            place = f"sys/devices/system/edac/mc/mc{number}/dimm{channel}"
            machine.write(f"{place}/dimm_location", f"channel {channel} slot 0")
            machine.write(f"{place}/size", 65536)
        machine.write(f"sys/devices/system/edac/mc/mc{number}/ue_count", 0)
    return facts(machine)


def deep_idle_states(machine: Machine) -> Changed:
    place = "sys/devices/system/cpu/cpu0/cpuidle/state3"
    for what, value in (("name", "C10"), ("latency", 890), ("disable", 0)):
        machine.write(f"{place}/{what}", value)
    machine.write("proc/sys/kernel/numa_balancing", 2)
    return facts(machine)


def ports_that_all_count(machine: Machine) -> Changed:
    names = [ethernet(machine, card) for card in range(4)]
    errors = {name: {"symbol errors": 9000 + at, "discards of priority 3": 40000} for at, name in enumerate(names)}
    settings = dict.fromkeys(names, PortSettings("RS", "off", (3,)))
    return {**facts(machine), "port_errors": errors, "port_settings": settings}


def cables_of_two_kinds(machine: Machine) -> Changed:
    names = [ethernet(machine, card, rate=100000) for card in range(4)]
    settings = {name: PortSettings("RS" if at % 2 else "off", "rx tx", ()) for at, name in enumerate(names)}
    modules = {names[0]: "Vendor name : Mellanox\nVendor PN : MCP1600\nLength (Copper or Active cable) : 1m\n"}
    return {**facts(machine), "port_settings": settings, "modules": modules}


def warm_modules(machine: Machine) -> Changed:
    for card in range(4):
        name = ethernet(machine, card)
        for what, value in (("input", 71000), ("crit", 80000), ("label", "Module0")):
            machine.write(f"sys/class/net/{name}/device/hwmon/hwmon{card}/temp2_{what}", value)
    return facts(machine)


NVIDIA: list[tuple[Callable[[Machine], Changed], frozenset[str]]] = [
    (a_virtual_machine, frozenset()), (a_virtual_machine_without_numa, frozenset()),
    (a_virtual_machine_without_cards, frozenset()), (a_container, frozenset()), (a_sandbox, frozenset()),
    (virtual_functions, frozenset()), (one_card_down, frozenset({"rails"})),
    (infiniband_beside_ethernet, frozenset()), (a_card_of_another_model, frozenset()), (a_bond, frozenset()),
    (elastic_fabric_adapters, frozenset()), (slingshot, frozenset()), (divided_by_mig, frozenset({"gpus_shared"})),
    (grace, frozenset()), (a_rack, frozenset()), (a_rack_outside_of_a_job, frozenset()),
    (windows_subsystem, frozenset()), (cards_of_pcie_alone, frozenset()), (two_kinds_of_gpus, frozenset()),
    (one_gpu_of_a_job, frozenset()), (no_gpu_at_all, frozenset()), (many_controllers_of_memory, frozenset()),
    (deep_idle_states, frozenset()), (ports_that_all_count, frozenset()), (cables_of_two_kinds, frozenset()),
    (warm_modules, frozenset()),
]  # fmt: skip


def alarms_of(machine: Machine, changed: Changed) -> dict[str, str]:
    """What the doctor alarms of a recording of it; none of its checks breaks."""
    found = replayed(recording_of(machine.root, **changed))
    broken = [one.finding for one in found.values() if "could not look" in one.finding]
    assert not broken
    return {name: one.finding for name, one in found.items() if one.status in ("warning", "failing")}


@pytest.mark.parametrize(
    ("variant", "expected"), most(NVIDIA, NVIDIA[5:15:3]), ids=lambda one: getattr(one, "__name__", "")
)
def test_a_variant_of_a_machine_with_nvidias_gpus_is_not_alarmed(
    variant: Callable[[Machine], Changed], expected: frozenset[str], tmp_path: Path
) -> None:
    machine = hgx(tmp_path / "machine")
    found = alarms_of(machine, variant(machine))
    assert set(found) == expected, found


def in_partitions(machine: Machine) -> None:
    for path in machine.root.glob("sys/bus/pci/devices/*/current_*_partition"):
        path.write_text("CPX\n" if "compute" in path.name else "NPS4\n")


def in_a_container(machine: Machine) -> None:
    without(machine, "sys/bus/pci/devices/*/ras", "sys/bus/pci/devices/*/hwmon", "sys/module", "proc/modules")


def in_a_virtual_machine(machine: Machine) -> None:
    machine.write("proc/cpuinfo", _VIRTUAL)
    without(machine, "sys/bus/pci/devices/*/current_*_partition", "sys/bus/pci/devices/*/max_link_*")


def with_retired_pages(machine: Machine) -> None:
    for path in machine.root.glob("sys/bus/pci/devices/*/ras"):
        (path / "gpu_vram_bad_pages").write_text("0x00000001 : 0x00001000 : R\n")


AMD = [(model, change) for model in ("MI300X", "MI300A")
       for change in (in_partitions, in_a_container, in_a_virtual_machine, with_retired_pages)]  # fmt: skip


@pytest.mark.parametrize(("model", "change"), most(AMD, AMD[1:7:5]))
def test_a_variant_of_a_machine_with_amds_gpus_is_not_alarmed(
    model: str, change: Callable[[Machine], None], tmp_path: Path
) -> None:
    machine = instinct_machine(tmp_path / "machine", model)
    change(machine)
    assert alarms_of(machine, {"gpus": ([], "libnvidia-ml.so.1 not found"), "visible": 4 if model == "MI300A" else 8,
                               "commands": {"ucx_info": "rocm"}}) == {}  # fmt: skip
