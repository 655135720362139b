"""What the doctor knows of a GPU and of an NVLink, whoever's library or driver shows it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class GpuFacts:
    """One GPU as its management library or driver shows it. -1 and None: not told. Clocks in MHz, power in watts."""

    index: int
    name: str
    uuid: str
    pci_address: str
    vendor: str = "nvidia"
    processes: tuple[int, ...] = ()
    clock_limit: int = -1  # highest that applications may use now
    clock_max: int = -1
    power_limit: float = -1
    power_default: float = -1
    throttle: tuple[str, ...] = ()
    pcie_width: int = -1
    pcie_width_max: int = -1
    pcie_generation: int = -1
    pcie_generation_max: int = -1
    nvlinks_active: int = 0
    nvlinks_inactive: int = 0
    fabric_state: str = ""  # of the NVLink fabric behind switches: completed, in progress, ...; empty: none
    fabric_status: str = ""  # why the probe of the fabric failed, in the library's words; empty: it did not
    fabric_health: tuple[str, ...] = ()  # what its health mask says is wrong
    fabric_cluster: str = ""  # hexadecimal; all zeros where the fabric ends with this host
    fabric_clique: int = 0
    partition: str = ""  # how it is divided: MIG, or AMD's compute and memory partition (CPX, NPS4); empty: not told
    instances: tuple[str, ...] = ()  # UUIDs of the MIG devices that it is divided into
    virtual: bool = False  # a vGPU: a hypervisor shares the GPU out
    busy: float | None = None  # share of the last moments in which kernels ran; None: not told
    lost: str = ""  # why it does not answer, in the library's words: of such a GPU nothing else is known
    persistence: str = ""  # on, off; empty: not told
    ecc: str = ""  # on, off
    confidential: bool = False  # confidential computing: transfers are encrypted
    vbios: str = ""
    driver: str = ""
    gsp: str = ""  # version of the GPU System Processor's firmware
    bar_mib: int = -1  # of BAR1, by which others reach its memory
    memory_mib: int = -1
    pcie_replays: int = -1
    xgmi_speed: float = -1  # Gb/s a lane of AMD's links between GPUs, and lanes of each
    xgmi_width: int = -1
    memory_faults: tuple[str, ...] = ()  # errors of its memory that it could not correct, and what it still has to do

    @property
    def fabric_across_hosts(self) -> bool:
        """Whether its NVLink fabric reaches other hosts."""
        return bool(self.fabric_cluster.strip("0"))


@dataclasses.dataclass(frozen=True)
class ImexDomain:
    """The nodes between which memory may be shared over NVLink: UP, DEGRADED or DOWN, and how many are ready."""

    status: str
    ready: int
    nodes: int
