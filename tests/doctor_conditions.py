"""Conditions of hosts, GPUs' settings and rails, each with the check that finds it, its status and a word of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fake_readers import GPU, OTHER, FakeReaders, changed, verbs
from linkgauge.doctor.facts import ImexDomain
from linkgauge.run.machine.interfaces import Interface, Network
from linkgauge.system.dmi import Module
from linkgauge.system.ethernet import PortSettings
from linkgauge.system.sysfs import PciFacts

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


def rack(texts: dict[str, str | None], **more: Any) -> Callable[[], FakeReaders]:
    """A tray of a rack whose NVLink reaches other hosts, with these files and facts."""
    return lambda: FakeReaders(texts=texts, gpus=changed(GPU, fabric_state="completed", fabric_cluster="07"), **more)


def ports(errors: dict[str, dict[str, int]]) -> Callable[[], FakeReaders]:
    """A healthy machine whose ports count these errors, too."""
    healthy = FakeReaders().facts["port_errors"]
    return lambda: FakeReaders(port_errors={name: {**of, **errors.get(name, {})} for name, of in healthy.items()})


def heat(thousandths: int) -> dict[str, str]:
    """What the driver of a card shows of its module's heat."""
    place = "/sys/class/net/ens0/device/hwmon/hwmon4/temp2"
    return {f"{place}_input": str(thousandths), f"{place}_crit": "80000", f"{place}_label": "Module0"}


def ordering(*states: bool | None) -> dict[str, PciFacts]:
    """GPUs of one kind that have relaxed ordering on, off, or hidden."""
    return {f"0000:{bus}:00.0": PciFacts(f"0000:{bus}:00.0", vendor=0x10DE, device=0x2335, relaxed_ordering=state)
            for bus, state in zip(("1b", "1c"), states, strict=True)}  # fmt: skip


CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
MODULE = """\
Vendor name                               : NVIDIA
Vendor PN                                 : MMS4X00-NS
Length (SMF)                              : 0.50km
Module temperature high alarm             : Off
Module voltage low alarm                  : Off
"""
_LOSSLESS = PortSettings("RS", "off", (3,))
_THIRD = {"/sys/class/infiniband/mlx5_2/device/net/ens2": "", "/sys/class/net/ens2/operstate": "up"}

SETTINGS: list[tuple[str, str, str, Callable[[], FakeReaders]]] = [
    ("numa_balancing", "warning", "balancing is on", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "1"})),
    ("numa_balancing", "warning", "balancing is on", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "3"})),
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
    ("nvlink_fabric", "failing", "in progress (GPU 0); fabric manager 550.54.15, driver 550.90.07", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="in progress", driver="550.90.07"), fabric_manager="550.54.15")),
    ("nvlink_fabric", "failing", "nvidia-fabricmanager does not run here", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="not started", driver="550.90.07"), fabric_manager="550.90.07", runs=set())),
    ("nvlink_fabric", "warning", "no IMEX channel, and nvidia-imex does not run", rack({CHANNEL: None}, runs=set())),
    ("nvlink_fabric", "warning", "nvidia-imex does not run; /etc/nvidia-imex/nodes_config.cfg lists 2 nodes", rack(
        {"/etc/nvidia-imex/nodes_config.cfg": "# the rack\n10.0.0.1\n10.0.0.2\n"}, runs=set())),
    ("nvlink_fabric", "warning", "lists 0 nodes", rack({}, runs={"slurmd"}, environment={"SLURM_JOB_ID": "7"})),
    ("nvlink_fabric", "warning", "the IMEX domain is DEGRADED: 17 of 18 nodes are ready", rack(
        {}, imex=ImexDomain("DEGRADED", 17, 18))),
    ("rail_fec", "warning", "ens1: 40000 symbol errors, others 3 (FEC RS)", ports({"ens1": {"symbol errors": 40000}})),
    ("rail_fec", "warning", "ens0: 700 frame check errors, others 0", ports({"ens0": {"frame check errors": 700}})),
    ("flow_control", "warning", "ens1 has PFC on none, pause rx tx, others PFC on 3, pause off", lambda: FakeReaders(
        port_settings={"ens0": _LOSSLESS, "ens1": PortSettings("RS", "rx tx", ()), "ens2": _LOSSLESS}, texts=_THIRD)),
    ("flow_control", "warning", "ens1: 2 pause storms", ports({"ens1": {"pause storms": 2}})),
    ("flow_control", "warning", "ens1: 900 discards of priority 3, others 2",
     ports({"ens1": {"discards of priority 3": 900}})),
    ("cables", "warning", "ens0: Module0 is at 81 °C, critical from 80 °C on", machine(heat(81000))),
    ("cables", "warning", "ens1: its cable or module had 3 short circuits",
     ports({"ens1": {"short circuits of the module": 3}})),
    ("cables", "warning", "ens0: module voltage low alarm", lambda: FakeReaders(
        modules={"ens0": MODULE.replace("voltage low alarm                  : Off", "voltage low alarm : On")})),
    ("rail_mtu", "warning", "mlx5_1/1: 2048 of 4096 bytes", lambda: FakeReaders(
        commands={"ibv_devinfo": verbs({"mlx5_0": 4096, "mlx5_1": 2048})})),
    ("rail_errors", "warning", "mlx5_1/1: 900 messages sent again after a timeout, others 4", machine({
        f"/sys/class/infiniband/mlx5_{card}/ports/1/hw_counters/local_ack_timeout_err": count
        for card, count in enumerate(("4", "900"))})),
    ("relaxed_ordering", "warning", "off for GPU 1, and on", lambda: FakeReaders(pci=ordering(True, False))),
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
    ("numa_balancing", machine({**_NODES, "/proc/sys/kernel/numa_balancing": "2"})),
    ("idle_states", machine({_IDLE: "", f"{_IDLE}/name": "C10", f"{_IDLE}/latency": "890", f"{_IDLE}/disable": "0"})),
    ("idle_states", machine({_IDLE: "", f"{_IDLE}/name": "C6", f"{_IDLE}/latency": "290"})),
    # A job's prolog starts IMEX, and its epilog ends it; in a container no process of the host is seen.
    ("nvlink_fabric", rack({}, runs={"slurmd"})),
    ("nvlink_fabric", rack({"/etc/nvidia-imex/nodes_config.cfg": "10.0.0.1"}, runs={"slurmd"})),
    ("nvlink_fabric", rack({}, runs=None)),
    ("nvlink_fabric", rack({"/sys/fs/cgroup/system.slice/nvidia-imex.service/cgroup.procs": ""}, runs=set())),
    ("nvlink_fabric", rack({}, imex=ImexDomain("UP", 18, 18))),
    # Cables differ in the error correction that they need, and rails of another rate in their flow control.
    ("rail_fec", lambda: FakeReaders(port_settings={"ens0": _LOSSLESS, "ens1": PortSettings("off", "off", (3,))})),
    ("flow_control", lambda: FakeReaders(
        texts={f"/sys/class/net/ens{card}/speed": rate for card, rate in enumerate(("400000", "100000"))},
        port_settings={"ens0": _LOSSLESS, "ens1": PortSettings("RS", "rx tx", ())})),
    ("flow_control", lambda: FakeReaders(
        port_settings={"ens0": _LOSSLESS, "ens1": PortSettings()}, texts={"/sys/class/net/ens1/operstate": "down"})),
    ("cables", machine(heat(62000))),
    ("cables", machine({**heat(81000), "/sys/class/net/ens0/device/hwmon/hwmon4/temp2_crit": "0"})),
    ("cables", lambda: FakeReaders(modules={"ens0": MODULE + "Laser rx power low alarm (Channel 3) : On\n"})),
    ("rail_mtu", lambda: FakeReaders(commands={
        "ibv_devinfo": verbs({"mlx5_0": 4096}) + verbs({"mlx5_1": 1024}, "Ethernet")})),
    ("rail_mtu", lambda: FakeReaders(commands={
        "ibv_devinfo": verbs({"mlx5_0": 4096}) + verbs({"mlx5_1": 256}, state="PORT_DOWN (1)")})),
    ("relaxed_ordering", lambda: FakeReaders(pci=ordering(True, True))),
    ("relaxed_ordering", lambda: FakeReaders(pci=ordering(False, False))),
    ("relaxed_ordering", lambda: FakeReaders(
        pci=ordering(True, False), links={"/sys/bus/pci/devices/0000:1c:00.0/physfn": "0000:1b:00.0"})),
    ("memory_channels", lambda: FakeReaders(
        texts={path: None for path in FakeReaders().facts["texts"] if "/edac/" in path},
        memory_modules=([Module(64 << 30, 64, 4400)] * 15 + [Module(32 << 30, 64, 4400)], ""))),
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
