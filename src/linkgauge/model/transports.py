"""What is known of each transport, a row each: whose library it uses, which links it takes, what it needs.

This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.traits import having


@dataclasses.dataclass(frozen=True)
class NicLibrary:
    """The library of a transport that is no MPI library and no collective library: one that moves bytes by itself."""

    name: str
    file: str  # as the loader looks for it
    fix: str  # what brings it
    ways_by: str  # the variable that says which ways it may take
    with_mpi: bool = True  # MPI libraries may bring one, which ranks then use
    runtime: str = ""  # whose devices it needs; empty: any


@dataclasses.dataclass(frozen=True)
class TransportTraits:
    """One row of the table of transports."""

    name: str
    what: str
    library: bool = False  # a communication library, which chooses ways and algorithms by itself
    one_sided: bool = False  # a device reaches another's memory itself, by the way that it is told
    on_fabric: bool = (
        False  # stays on the devices' fabric where that joins them: peer access does, and NCCL and RCCL do
    )
    host_links: bool = False  # reaches host memory by the device's own host links
    through_host: bool = False  # its bytes pass through buffers of hosts
    by_mpi: bool = False  # measured anew under each MPI library
    needs_processes: bool = False
    only_by_name: bool = False  # left out where all are asked for
    measured_by: str = ""  # the tools that alone measure it, whose logs are imported; empty: this program
    # What it keeps in /dev/shm for each rank, whatever the case: Open MPI 4 to 5 fast boxes and FIFOs 4 MiB, MPICH's
    # cells a few MiB, NCCL's buffers of 2 channels a peer about 10 MiB. Rounded up.
    shm_bytes_per_rank: int = 0
    nic_library: NicLibrary | None = None
    our_kernels: str = ""  # the variant, or its first word, that has our kernels over the library's memory
    between_kernels: str = ""  # the variant whose barrier is between kernels that run, not between hosts
    our_steps: bool = False  # the library moves what this program's own collectives send, step by step
    own_collectives: tuple[str, ...] = ()  # but for these variants, which are the library's own

    def collects(self, variant: str) -> bool:
        """Whether a collective is the library's own, which may choose its steps and have switches take part."""
        return (
            self.library
            and not self.by_our_kernels(variant)
            and (not self.our_steps or variant in self.own_collectives)
        )

    def by_our_kernels(self, variant: str) -> bool:
        """Whether kernels of ours do what the library would otherwise: its algorithms are those of transport kernel."""
        return bool(self.our_kernels) and variant.partition("+")[0] == self.our_kernels

    def meets_kernels(self, variant: str) -> bool:
        """Whether a barrier by this variant is between kernels that run."""
        return bool(self.between_kernels) and variant == self.between_kernels

    @property
    def own_way(self) -> bool:
        """Whether its bytes move within the ranks' own calls, over whichever links the library likes."""
        return self.library and not self.on_fabric


_TABLE = (
    TransportTraits("staging", "device to host, between hosts' buffers, host to device; its host leg by MPI or a copy",
                    host_links=True, through_host=True, by_mpi=True, shm_bytes_per_rank=16 << 20),
    TransportTraits("copy_engine", "the devices' copy engines, from one device's memory to another's",
                    one_sided=True, on_fabric=True, host_links=True),
    TransportTraits("kernel", "kernels on the devices that load and store (on host devices: threads)",
                    one_sided=True, on_fabric=True, host_links=True),
    TransportTraits("ccl", "NCCL, RCCL or oneCCL", library=True, on_fabric=True, shm_bytes_per_rank=32 << 20,
                    our_kernels="device", between_kernels="device"),
    # Under most MPI libraries on a network: beside them it says whose a loss is, which not every run asks.
    TransportTraits("ucx", "UCX's own tagged messages, puts and gets, below MPI", library=True, only_by_name=True,
                    shm_bytes_per_rank=16 << 20, our_steps=True,
                    nic_library=NicLibrary("UCX", "libucp.so.0", "pip install libucx-cu12", "UCX_TLS")),
    TransportTraits("ofi", "libfabric's own tagged messages, puts and gets, below MPI", library=True, only_by_name=True,
                    shm_bytes_per_rank=16 << 20, our_steps=True,
                    nic_library=NicLibrary("libfabric", "libfabric.so.1", "install libfabric (Debian: libfabric1)",
                                           "FI_PROVIDER")),
    # What inference frameworks move KV caches by; it stands on UCX.
    TransportTraits("nixl", "NIXL's transfers between registered memory, by descriptors", library=True,
                    only_by_name=True, shm_bytes_per_rank=16 << 20, our_steps=True,
                    nic_library=NicLibrary("NIXL", "libnixl_capi.so", "pip install --no-deps nixl-cu13 (or -cu12, for "
                                           "a driver of CUDA 12)", "UCX_TLS", with_mpi=False)),
    # Its memory is its own, so that its cases have launches of their own: it is measured where it is asked for.
    TransportTraits("nvshmem", "NVSHMEM's puts, gets and collectives between GPUs, on streams or by kernels",
                    library=True, on_fabric=True, needs_processes=True, only_by_name=True, shm_bytes_per_rank=16 << 20,
                    our_steps=True, own_collectives=("collective", "device+collective"),
                    between_kernels="device+collective",
                    nic_library=NicLibrary("NVSHMEM", "libnvshmem_host.so.3", "pip install nvidia-nvshmem-cu13 (or "
                                           "-cu12, for a driver of CUDA 12)", "NVSHMEM_REMOTE_TRANSPORT",
                                           with_mpi=False, runtime="cuda")),
    TransportTraits("mpi", "the MPI library, on device or host buffers", library=True, by_mpi=True,
                    needs_processes=True, shm_bytes_per_rank=16 << 20),
    TransportTraits("verbs", "RDMA verbs of network cards, without a library above them", library=True,
                    only_by_name=True, measured_by="perftest"),
    TransportTraits("ucc", "UCC's own collectives, below MPI", library=True, only_by_name=True,
                    measured_by="ucc_perftest"),
)  # fmt: skip

TRANSPORTS: dict[str, TransportTraits] = {one.name: one for one in _TABLE}
"""By name, in the order in which tables and charts list them."""


NIC_LIBRARIES = {name: one.nic_library for name, one in TRANSPORTS.items() if one.nic_library is not None}
"""By transport: libraries of network cards below MPI."""
THROUGH_HOST = having(TRANSPORTS, "through_host")
NAMED_ALONE = having(TRANSPORTS, "only_by_name")
IMPORTED = having(TRANSPORTS, "measured_by")
"""Transports of imported runs alone: this program has no code that measures them."""
EVERY_TRANSPORT = tuple(name for name in TRANSPORTS if name not in NAMED_ALONE)
"""What `all` stands for."""

TRANSPORT_ALIASES = {"nccl": "ccl", "rccl": "ccl", "oneccl": "ccl"}
"""Names of libraries, by the transport that opens whichever of them is here."""

TRANSPORT_NAMES = tuple(
    word
    for name in TRANSPORTS
    if name not in IMPORTED
    for word in ([a for a, b in TRANSPORT_ALIASES.items() if b == name] or [name])
)
"""What people write: the libraries in place of `ccl`, which files hold."""

WITHOUT_GPU = {"copy_engine": "memcpy", "kernel": "vector_copy"}
"""What screens call transports where a processor's core does the copying."""

SHOWN_ALIASES = {**TRANSPORT_ALIASES, **{shown: transport for transport, shown in WITHOUT_GPU.items()}}
"""What people may write besides the transports' own names: whatever a screen calls them."""


def shown_names(kinds: Collection[str], libraries: Iterable[str] = ()) -> dict[str, str]:
    """Return what screens call transports, where that is not their name: `ccl` by its library. Files keep the names.

    `kinds`: of the devices; `libraries`: the collective libraries in use, where that is known.
    """
    names = dict(WITHOUT_GPU) if {*kinds} == {"host"} else {}
    used = [*libraries] or [RUNTIMES[kind].ccl.lower() for kind in sorted({*kinds} & {*RUNTIMES}) if RUNTIMES[kind].ccl]
    return {**names, "ccl": used[0]} if len(used) == 1 else names


def transport_shown_as(name: str) -> str:
    """Return the transport that screens call `name`."""
    return SHOWN_ALIASES.get(name, name)


def order_of(transport: str) -> int:
    """Where tables and charts list a transport; one that is unknown comes last."""
    return list(TRANSPORTS).index(transport) if transport in TRANSPORTS else len(TRANSPORTS)


def over_host(transport: str, path: str) -> bool:
    """Whether a case's bytes are asked to go over host links."""
    return transport in THROUGH_HOST or path in ("pcie", "host")
