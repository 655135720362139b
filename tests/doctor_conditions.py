"""Conditions of hosts, GPUs' settings and rails, each with the check that finds it, its status and a word of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fake_readers import GPU, OTHER, FakeReaders, changed
from linkgauge.run.machine.interfaces import Interface, Network

_NODES = {f"/sys/devices/system/node/node{number}": "" for number in range(2)}
_IDLE = "/sys/devices/system/cpu/cpu0/cpuidle/state3"
_BARE = {"/proc/cpuinfo": "flags\t\t: fpu vme"}
_ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n" + "".join(
    f"ens{card}\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n" for card in range(2)
)
_CONF = "/proc/sys/net/ipv4/conf"
_SLOW = Interface("ens9", "network", True, 1_000_000_000, "10.0.0.1")
_FAST = Interface("ens0", "network", True, 400_000_000_000, "10.1.0.1")
_PCI = "/sys/bus/pci/devices"


def machine(texts: dict[str, str], **more: Any) -> Callable[[], FakeReaders]:
    """A healthy machine with these files and facts."""
    return lambda: FakeReaders(texts=texts, **more)


def gpus(**values: Any) -> Callable[[], FakeReaders]:
    """A healthy machine whose first GPU has these values."""
    return lambda: FakeReaders(gpus=changed(GPU, **values))


SETTINGS: list[tuple[str, str, str, Callable[[], FakeReaders]]] = [
    ("numa_balancing", "warning", "balancing is on", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "1"})),
    ("idle_states", "warning", "state C10 takes 890 us", machine({
        _IDLE: "", f"{_IDLE}/name": "C10", f"{_IDLE}/latency": "890", f"{_IDLE}/disable": "0"})),
    ("memory_channels", "warning", "mc1 has 3 of 4 channels", machine({
        "/sys/devices/system/edac/mc/mc1/dimm2/size": "0"})),
    ("memory_channels", "failing", "mc0: 2 uncorrected errors", machine({
        "/sys/devices/system/edac/mc/mc0/ue_count": "2"})),
    ("gpu_settings", "warning", "confidential computing", gpus(confidential=True)),
    ("gpu_settings", "warning", "GPU 1: ECC off, others on", lambda: FakeReaders(gpus=([
        dataclasses.replace(GPU, ecc="on"), dataclasses.replace(OTHER, ecc="off")], ""))),
    ("nvlink_sharp", "warning", "not there on 1 of 2", lambda: FakeReaders(multicast=[1, 0], gpus=([
        dataclasses.replace(gpu, fabric_state="completed") for gpu in (GPU, OTHER)], ""))),
    ("nvlink_sharp", "warning", "NCCL_NVLS_ENABLE=0", lambda: FakeReaders(gpus=([
        dataclasses.replace(gpu, fabric_state="completed") for gpu in (GPU, OTHER)], ""),
        environment={"HOME": "/root", "NCCL_NVLS_ENABLE": "0"})),
    ("bar_size", "warning", "GPU 0: 256 MiB of 81920 MiB", gpus(bar_mib=256, memory_mib=81920)),
    ("pcie_errors", "warning", "GPU 1: 5000 replays, others 3", lambda: FakeReaders(gpus=([
        dataclasses.replace(GPU, pcie_replays=3), dataclasses.replace(OTHER, pcie_replays=5000)], ""))),
    ("pcie_errors", "warning", "0000:1c:00.0: 700 corrected errors", machine({
        f"{_PCI}/0000:1b:00.0/aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0",
        f"{_PCI}/0000:1c:00.0/aer_dev_correctable": "RxErr 700\nTOTAL_ERR_COR 700"})),
    ("iommu", "warning", "translates for 2 of 2", machine({
        **_BARE, **{f"{_PCI}/0000:{bus}:00.0/iommu_group/type": "DMA-FQ" for bus in ("1b", "1c")}})),
    ("rail_settings", "warning", "MTU 1500, others 9000", machine({
        "/sys/class/net/ens1/mtu": "1500", "/sys/class/infiniband/mlx5_2/device/net/ens2": "",
        "/sys/class/net/ens2/mtu": "9000"})),
    ("roce_addresses", "warning", "no RoCE v2 address on mlx5_1/1", machine({
        "/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/3": "IB/RoCE v1"})),
    ("roce_addresses", "warning", "NCCL_IB_GID_INDEX=0", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_GID_INDEX": "0"})),
    ("link_flaps", "warning", "ens1: 80 times down, others 2", machine({
        "/sys/class/net/ens1/carrier_down_count": "80"})),
    ("rail_routes", "warning", "ens0, ens1 are in one subnet, with arp_ignore=0 and rp_filter=1", machine({
        "/proc/net/route": _ROUTES, f"{_CONF}/all/arp_ignore": "0", f"{_CONF}/ens0/rp_filter": "1"})),
    ("network_choice", "warning", "ens9 (1 Gb/s, 10.0.0.1) is slower than ens0", lambda: FakeReaders(
        network=Network((_FAST, _SLOW)), environment={"HOME": "/root", "UCX_NET_DEVICES": "ens9"})),
    ("network_choice", "warning", "libfabric: ens7 is not there", lambda: FakeReaders(
        network=Network((_FAST, _SLOW)), environment={"HOME": "/root", "FI_TCP_IFACE": "ens7"})),
    ("network_choice", "warning", "NCCL: ens9", lambda: FakeReaders(
        network=Network((_FAST, _SLOW)), environment={"HOME": "/root", "NCCL_SOCKET_IFNAME": "=ens9"})),
]  # fmt: skip
"""Name of the check, status, a word of its finding, and the machine."""

QUIET: list[tuple[str, Callable[[], FakeReaders]]] = [
    ("numa_balancing", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "0"})),
    ("numa_balancing", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "1"}, gpus=([], "no GPU"))),
    ("idle_states", machine({_IDLE: "", f"{_IDLE}/name": "C10", f"{_IDLE}/latency": "890", f"{_IDLE}/disable": "1"})),
    ("idle_states", machine({_IDLE: "", f"{_IDLE}/name": "C6", f"{_IDLE}/latency": "290"})),
    ("bar_size", gpus(bar_mib=131072, memory_mib=81920)),
    ("iommu", machine({**_BARE, f"{_PCI}/0000:1b:00.0/iommu_group/type": "identity"})),
    ("iommu", machine({"/proc/cpuinfo": "flags : hypervisor", f"{_PCI}/0000:1b:00.0/iommu_group/type": "DMA"})),
    ("iommu", machine({"/proc/cpuinfo": "Features : asimd", f"{_PCI}/0000:1b:00.0/iommu_group/type": "DMA"})),
    ("rail_routes", machine({
        "/proc/net/route": _ROUTES, f"{_CONF}/all/arp_ignore": "1", f"{_CONF}/all/rp_filter": "2"})),
    ("rail_routes", machine({"/proc/net/route": _ROUTES.replace("ens1\t0001", "ens1\t0002")})),
    ("network_choice", lambda: FakeReaders(network=Network((_SLOW,)))),
]  # fmt: skip
"""Machines on which a check has no cause for alarm."""
