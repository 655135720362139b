"""A machine as the doctor reads it, made up: healthy but for what a test changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.doctor.facts import GpuFacts, ImexDomain
from linkgauge.doctor.readers import Need, Readers
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import Network
from linkgauge.system import catalog, sysfs
from linkgauge.system.allowance import Allowance
from linkgauge.system.amdsmi import Health
from linkgauge.system.dmi import Module
from linkgauge.system.ethernet import PortSettings
from linkgauge.system.likeness import Likeness
from linkgauge.system.nvlink_errors import LinkErrors

MPICH = MpiInstallation(
    "mpich-5", "mpich", "5", "mpich", Path("/p/lib/libmpi.so.12"), Path("/p/bin/mpiexec"), "hydra", "x"
)
CRAY = dataclasses.replace(MPICH, vendor="cray")
GPU = GpuFacts(
    0, "H200", "GPU-a", "0000:1b:00.0", clock_limit=1980, clock_max=1980, power_limit=700, power_default=700,
    pcie_width=16, pcie_width_max=16, pcie_generation=5, pcie_generation_max=5, nvlinks_active=18,
)  # fmt: skip
OTHER = dataclasses.replace(GPU, index=1, uuid="GPU-b", pci_address="0000:1c:00.0")

_LIKE = Likeness(catalog.load("hgx-h200-8"), "2 of its 8 devices", (), part=True, host_links=True)


def verbs(mtus: Mapping[str, int], layer: str = "InfiniBand", state: str = "PORT_ACTIVE (4)") -> str:
    """What ibv_devinfo prints of cards with one port each whose active MTU is so many bytes."""
    return "".join(
        f"hca_id:\t{card}\n\ttransport:\t\t\tInfiniBand (0)\n\tnode_guid:\t\t\tb83f:d203:00ab:cdef\n"
        f"\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tmax_mtu:\t\t4096 (5)\n"
        f"\t\t\tactive_mtu:\t\t{mtu} ({mtu.bit_length() - 8})\n\t\t\tlink_layer:\t\t{layer}\n\n"
        for card, mtu in mtus.items()
    )


class FakeReaders(Readers):
    """A healthy machine with two GPUs and two RDMA cards, of which a test changes what it names."""

    def __init__(self, **changed: Any) -> None:
        super().__init__(changed.pop("environment", {"HOME": "/root"}), mpi=changed.pop("mpi", MPICH),
                         ranks=changed.pop("rank_count", 2), need=changed.pop("need", Need()))  # fmt: skip
        self.facts: dict[str, Any] = {
            "gpus": ([GPU, OTHER], ""),
            "limits": {},
            "texts": {
                "/proc/modules": "nvidia_peermem 16384 0 - Live 0x0\n",
                "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
                "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
                "/sys/class/infiniband/mlx5_1/ports/1/state": "4: ACTIVE",
                "/sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
                "/sys/class/infiniband/mlx5_1/ports/1/rate": "200 Gb/sec (4X HDR)",
                **{f"/sys/class/infiniband/mlx5_{card}/ports/1/counters/{name}": "3"
                   for card in range(2) for name in ("link_downed", "symbol_error")},
                **{f"/sys/class/infiniband/mlx5_{card}/{name}": value for card in range(2)
                   for name, value in (("board_id", "MT_0000000838"), ("fw_ver", "28.39.2048"))},
                "/sys/class/infiniband/mlx5_0/device/numa_node": "0",
                "/sys/class/infiniband/mlx5_1/device/numa_node": "1",
                "/sys/bus/pci/devices/0000:1b:00.0/local_cpulist": "0-3",
                "/sys/bus/pci/devices/0000:1b:00.0/numa_node": "0",
                "/sys/bus/pci/devices/0000:1c:00.0/local_cpulist": "0-3",
                "/sys/bus/pci/devices/0000:1c:00.0/numa_node": "0",
                **{f"/sys/class/infiniband/mlx5_{card}/{name}": value for card in range(2) for name, value in (
                    ("ports/1/link_layer", "Ethernet"), ("ports/1/gid_attrs/types/3", "RoCE v2"))},
                **{f"/sys/class/infiniband/mlx5_{card}/device/net/ens{card}": "" for card in range(2)},
                **{f"/sys/class/net/ens{card}/{name}": value for card in range(2) for name, value in (
                    ("device", ""), ("mtu", "9000"), ("operstate", "up"), ("carrier_down_count", "2"))},
                **{f"/sys/devices/system/edac/mc/mc{number}/dimm{channel}/{name}": value for number in range(2)
                   for channel in range(4) for name, value in (
                       ("dimm_location", f"channel {channel} slot 0"), ("size", "65536"))},
                "/dev/gdrdrv": "",
                "/dev/nvidia-caps-imex-channels/channel0": "",
            },
            "free": 8 << 30,
            "locked": -1,
            "cores": {0, 1, 2, 3},
            "load": 0.1,
            "core_users": [],
            "allowed": {},
            "commands": {"ucx_info": "# Transport: cuda_ipc", "ibv_devinfo": verbs({"mlx5_0": 4096, "mlx5_1": 4096})},
            "port_settings": {f"ens{card}": PortSettings("RS", "off", (3,)) for card in range(2)},
            "port_errors": {f"ens{card}": {"symbol errors": 3, "frame check errors": 0, "discards of priority 3": 2}
                            for card in range(2)},
            "modules": {},
            "runs": {"nvidia-imex", "nv-fabricmanager"},
            "fabric_manager": None,
            "imex": None,
            "amd_smi": [],
            "memory_modules": ([], "only root may read the table of memory modules"),
            "packages": {"numpy": "2.0", "mpi4py": "4.1", "pyarrow": "20.0.0", "rich": "13.9", "click": "8.3",
                         "altair": "5.5", "duckdb": "1.2", "dpctl": "0.22"},
            "visible": 2,
            "links": {},
            "pci": {},
            "kfd": ([], []),
            "network": Network(),
            "likeness": _LIKE,
            "multicast": [1, 1],
            "link_errors": [LinkErrors(gpu, link) for gpu in range(2) for link in range(18)],
            "sycl": "",
            "refused": {},
            "cross": "",
            "ranks": [(0, 2), (1, 2)],
            "mpi_gpus": True,
            "writable": True,
        }  # fmt: skip
        self.facts["texts"] |= changed.pop("texts", {})
        self.facts["packages"] |= changed.pop("packages", {})
        self.facts |= changed

    def text(self, path: str) -> str | None:
        return self.facts["texts"].get(path)

    def exists(self, path: str) -> bool:
        return self.facts["texts"].get(path) is not None

    def glob(self, pattern: str) -> list[str]:
        import fnmatch

        depth = pattern.count("/")
        paths = {
            "/".join(path.split("/")[: depth + 1]) for path, text in self.facts["texts"].items() if text is not None
        }
        return sorted(path for path in paths if fnmatch.fnmatch(path, pattern))

    def link(self, path: str) -> str:
        return self.facts["links"].get(path, "")

    def free_bytes(self, path: str) -> int | None:
        return self.facts["free"]

    def writable(self, path: Path) -> bool:
        return self.facts["writable"]

    def limit(self, name: str) -> int:
        return self.facts["locked"] if name == "MEMLOCK" else self.facts["limits"].get(name, -1)

    def affinity(self) -> set[int]:
        return self.facts["cores"]

    def allowance(self) -> Allowance:
        return dataclasses.replace(Allowance(4, len(self.facts["cores"]), machine_bytes=64 << 30),
                                   **self.facts["allowed"])  # fmt: skip

    def core_users(self) -> list[str]:
        return self.facts["core_users"]

    def load(self) -> float:
        return self.facts["load"]

    def run(self, command: Any) -> str | None:
        return self.facts["commands"].get(command[0])

    def module(self, interface: str) -> str:
        return self.facts["modules"].get(interface, "")

    def port_settings(self, interface: str) -> PortSettings:
        return self.facts["port_settings"].get(interface, PortSettings())

    def port_errors(self, interface: str) -> dict[str, int]:
        return self.facts["port_errors"].get(interface, {})

    def runs(self, program: str) -> bool | None:
        return None if self.facts["runs"] is None else program in self.facts["runs"]

    def fabric_manager(self) -> str | None:
        return self.facts["fabric_manager"]

    def imex(self) -> ImexDomain | None:
        return self.facts["imex"]

    def amd_smi(self) -> list[Health]:
        return self.facts["amd_smi"]

    def memory_modules(self) -> tuple[list[Module], str]:
        return self.facts["memory_modules"]

    def package_version(self, name: str) -> str | None:
        return self.facts["packages"].get(name)

    def gpus(self) -> tuple[list[GpuFacts], str]:
        return self.facts["gpus"]

    def nvlink_errors(self) -> list[LinkErrors] | None:
        return self.facts["link_errors"]

    def network(self) -> Network:
        return self.facts["network"]

    def multicast(self) -> list[int] | None:
        return self.facts["multicast"]

    def kfd(self) -> Any:
        return self.facts["kfd"]

    def pci(self) -> dict[str, sysfs.PciFacts]:
        return self.facts["pci"]

    def likeness(self) -> Likeness | None:
        return self.facts["likeness"]

    def visible_devices(self) -> int | None:
        return self.facts["visible"]

    def why_no_sycl(self) -> str:
        return self.facts["sycl"]

    def refused_peers(self) -> dict[str, str] | None:
        return self.facts["refused"]

    def cross_memory_refused(self) -> str | None:
        return self.facts["cross"]

    def ranks_seen(self) -> list[tuple[int, int]] | str:
        return self.facts["ranks"]

    def mpi_knows_gpus(self) -> bool | None:
        return self.facts["mpi_gpus"]


def changed(gpu: GpuFacts, **values: Any) -> tuple[list[GpuFacts], str]:
    """The healthy machine's GPUs, the first with these values."""
    return [dataclasses.replace(gpu, **values), OTHER], ""


class TreeReaders(FakeReaders):
    """A healthy host around a recorded machine, from whose folder all files are read."""

    def __init__(self, root: Path, **changed: Any) -> None:
        super().__init__(**changed)
        self.real = Readers(root=root)
        for name in ("text", "exists", "glob", "link", "kfd", "pci", "likeness", "network", "memory_modules"):
            setattr(self, name, getattr(self.real, name))
