"""What `path`, `algorithm`, `service_class` and `gpudirect` mean as settings of the library that is to follow them.

They are environment variables that the library reads when it starts, so cases that differ in them belong to different
launches. Path and algorithm are ccl's and mpi's; for the other transports they are the transport's own business.
"""

from __future__ import annotations

from linkgauge.model.case import Case
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.transports import NIC_LIBRARIES, TRANSPORTS

Settings = tuple[tuple[str, str], ...]

# NCCL's and RCCL's own words (NCCL environment variables, NCCL user guide). Each path leaves no way back to another:
# direct forbids what goes through host memory or a network card, and the others forbid peers and multicast. Whether
# host memory is shared memory is left to the environment asked for: NCCL_SHM_DISABLE=1 takes that away too.
_CCL_PATHS: dict[str, Settings] = {
    "direct": (("NCCL_P2P_LEVEL", "SYS"), ("NCCL_SHM_DISABLE", "1"), ("NCCL_NET_DISABLE_INTRA", "1")),
    "host": (("NCCL_P2P_DISABLE", "1"), ("NCCL_NVLS_ENABLE", "0")),
    "net": (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"), ("NCCL_NVLS_ENABLE", "0")),
}
_NO_CCL_PATH = {
    "pcie": "no setting of NCCL keeps peers off NVLink while they use PCIe; take path = host, which goes over PCIe",
}
# The transport's own way for patterns that newer libraries have a call for; no setting of the library.
_CCL_MESSAGES = "send_recv"
_CCL_MESSAGE_PATTERNS = ("alltoall", "gather", "scatter")
_CCL_ALGORITHMS = ("ring", "tree", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
CCL_ALGORITHMS = (*_CCL_ALGORITHMS, _CCL_MESSAGES)
"""What `algorithm` may be with ccl, before the protocol."""

# How each dialect's libraries are told which way device buffers go inside a node.
_MPI_PATHS: dict[str, dict[str, Settings]] = {
    "openmpi": {
        "direct": (("UCX_TLS", "self,sm,cuda_copy,cuda_ipc,rocm_copy,rocm_ipc"),),
        "host": (("UCX_TLS", "self,sm,cuda_copy,rocm_copy"),),
    },
    "mpich": {
        "direct": (("MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD", "1"), ("MPICH_GPU_IPC_ENABLED", "1")),
        "host": (("MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD", "-1"), ("MPICH_GPU_IPC_ENABLED", "0")),
    },
    "intel": {"direct": (("I_MPI_OFFLOAD_IPC", "1"),), "host": (("I_MPI_OFFLOAD_IPC", "0"),)},
}
PATHS = tuple(dict.fromkeys((*_CCL_PATHS, *_NO_CCL_PATH, *(path for one in _MPI_PATHS.values() for path in one))))
"""Every word that `path` may be."""
# NVSHMEM binds all its memory to NVLink multicast when it begins, which few cases use. Where it finds NCCL it makes a
# communicator of it for every team, and its collectives on streams are NCCL's.
_NVSHMEM: Settings = (("NVSHMEM_DISABLE_NVLS", "1"), ("NVSHMEM_DISABLE_NCCL", "1"))
# oneCCL on the CPU: without the first it looks for GPUs and fails, without the others it goes by an MPI library and a
# launcher of Intel's. Ranks are told of each other by NCCL's way, a unique id.
_ONECCL: Settings = (
    ("CCL_PLUGIN", "ONECCL_LEGACY_CPU"), ("CCL_ATL_TRANSPORT", "ofi"), ("CCL_PROCESS_LAUNCHER", "none"),
)  # fmt: skip
# Of vendors whose libraries have an ABI of another's, and variables of their own (Intel MPI developer reference).
_DIALECTS = ("intel",)
# What a library must be told before it takes a GPU's pointers. Intel's ends its process where it is told so and finds
# no driver, and it looks for a name of that which only a toolkit's or a container's links have. Its launcher would hide
# all GPUs but one from each rank (CUDA_VISIBLE_DEVICES), which then lacks its own.
_MPI_ON_DEVICES: dict[tuple[str, str], Settings] = {
    ("intel", "cuda"): (
        ("I_MPI_OFFLOAD", "1"), ("I_MPI_OFFLOAD_MODE", "cuda"), ("I_MPI_OFFLOAD_CUDA_LIBRARY", "libcuda.so.1"),
        ("I_MPI_OFFLOAD_PIN", "0"),
    ),
}  # fmt: skip
# Variables that name the class of a library's messages, by how a class is written: a service level of InfiniBand (on
# RoCE a priority), a DSCP, which is the upper six bits of a traffic class, or a word of Slingshot's (NCCL user guide;
# UCX's FAQ; Cray MPICH's intro_mpi). MPI libraries are told through UCX, which most use; libfabric has no variable.
_SL, _TC = {"ccl": "NCCL_IB_SL", "ucx": "UCX_IB_SL"}, {"ccl": "NCCL_IB_TC", "ucx": "UCX_IB_TRAFFIC_CLASS"}
_BY_UCX = ("ucx", "nixl", "mpi", "staging")
_SLINGSHOT = {"mpich": "MPICH_OFI_DEFAULT_TCLASS"}
# GPUDirect RDMA's switch, (variable, on, off), of a transport's library or of an MPI library's dialect: MPI libraries
# are told through what they may have below them too (NCCL user guide; UCX's `ucx_info -cf`; fi_hmem's
# FI_HMEM_DISABLE_P2P; MPICH's cvars; MVAPICH2-GDR user guide; Intel MPI developer reference; Open MPI's openib and
# Spectrum MPI's pami). What a library does not know it does not read.
_UCX_DIRECT = ("UCX_IB_GPU_DIRECT_RDMA", "yes", "no")
_OFI_DIRECT = ("FI_HMEM_DISABLE_P2P", "0", "1")
_GPUDIRECT: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ccl": (("NCCL_NET_GDR_LEVEL", "SYS", "LOC"),),
    "ucx": (_UCX_DIRECT,),
    "nixl": (_UCX_DIRECT,),
    "ofi": (_OFI_DIRECT,),
    "openmpi": (_UCX_DIRECT, ("OMPI_MCA_btl_openib_want_cuda_gdr", "1", "0"),
                ("OMPI_MCA_pml_pami_enable_cuda", "1", "0")),
    "mpich": (_UCX_DIRECT, ("MPIR_CVAR_CH4_OFI_ENABLE_HMEM", "1", "0"), ("MV2_USE_GPUDIRECT_RDMA", "1", "0")),
    "intel": (("I_MPI_OFFLOAD_RDMA", "1", "0"),),
}  # fmt: skip
# MPI_T control variables of collectives: pattern -> name of the collective in each library.
_MPI_COLLECTIVES = {
    "allreduce": "allreduce", "allgather": "allgather", "alltoall": "alltoall", "broadcast": "bcast",
    "reduce": "reduce", "reduce_scatter": "reduce_scatter_block", "gather": "gather", "scatter": "scatter",
}  # fmt: skip


def dialect(vendor: str, abi: str) -> str:
    """Whose words an MPI library is told in: its vendor's where that has its own, else its ABI's ("mpich", ...)."""
    return vendor if vendor in _DIALECTS else abi


def library_settings(case: Case, dialect: str) -> tuple[Settings, str]:
    """The environment that follows from the case's path and algorithm, and the reason where none is known.

    `dialect` is the MPI library's, by whose variables it is requested. A word that this library does not know is a
    reason to skip, not an error: another machine's may. One that none knows is refused before (plan/words.py).
    """
    if not case.path and not case.algorithm:
        return (), ""
    if case.transport == "ccl":
        return _ccl(case)
    if case.transport == "mpi":
        return _mpi(case, dialect)
    library = NIC_LIBRARIES.get(case.transport)
    if library is not None and case.path:
        return (), (f"{case.transport} knows no path '{case.path}': leave --path out; --env {library.ways_by}=... says "
                    f"what {library.name} may use")  # fmt: skip
    return (), ""


def class_settings(case: Case, dialect: str) -> tuple[Settings, str]:
    """The environment that follows from the case's service class, and the reason where none is known.

    Whether the library and the network follow it is for counters to say: stats/request_paths.py.
    """
    asked, by_mpi = case.service_class, TRANSPORTS[case.transport].by_mpi
    library = "ucx" if case.transport in _BY_UCX else case.transport
    if not asked:
        return (), ""
    if asked.dscp is not None:
        variable, value = _TC.get(library), str(asked.dscp << 2)
    elif asked.level is not None:
        variable, value = _SL.get(library), str(asked.level)
    else:
        variable, value = _SLINGSHOT.get(dialect) if by_mpi else None, f"TC_{asked.text.upper()}"
    if variable is None:
        told = f"{case.transport} of this MPI library" if by_mpi else case.transport
        return (), f"no variable is known that gives messages of {told} the service class '{asked}'"
    return ((variable, value),), ""


def gpudirect_settings(case: Case, dialect: str) -> tuple[Settings, str]:
    """The environment that follows from the case's `gpudirect`, and the reason where none is known.

    Whether it held is for the library's log and the kernel's counts to say: stats/request_paths.py.
    """
    if not case.gpudirect:
        return (), ""
    by_mpi = TRANSPORTS[case.transport].by_mpi
    switches = _GPUDIRECT.get(dialect if by_mpi else case.transport)
    if switches is None:
        told = f"{case.transport} of this MPI library" if by_mpi else case.transport
        return (), f"no variable is known that turns GPUDirect RDMA of {told} {case.gpudirect}"
    on = case.gpudirect == "on"
    return tuple((name, yes if on else no) for name, yes, no in switches), ""


def runtime_settings(case: Case, kind: str, dialect: str) -> Settings:
    """The environment that the case needs on devices of that kind, where the launch does not say otherwise; none where
    it is no kind that is known, as a run's launches may name.

    For its use of managed memory, by the runtime (none on CUDA and hosts); for MPI on device memory, by the library;
    for NVSHMEM and oneCCL, also of a load.
    """
    if kind not in RUNTIMES:
        return ()
    settings = tuple((name, value) for use, name, value in RUNTIMES[kind].managed_env if use == case.managed)
    if "nvshmem" in (job.transport for job in case.jobs):
        settings += _NVSHMEM
    if kind == "host" and "ccl" in (job.transport for job in case.jobs):
        settings += _ONECCL
    on_devices = case.transport == "mpi" and {case.source_memory, case.target_memory} & {"device", "managed"}
    return settings + (mpi_on_devices(kind, dialect) if on_devices else ())


def mpi_on_devices(kind: str, dialect: str) -> Settings:
    """What an MPI library must be told before it takes memory of devices of that kind; none for most."""
    return _MPI_ON_DEVICES.get((dialect, kind), ())


def _ccl(case: Case) -> tuple[Settings, str]:
    settings: Settings = ()
    if case.path:
        if case.path in _NO_CCL_PATH:
            return (), _NO_CCL_PATH[case.path]
        if case.path not in _CCL_PATHS:
            return (), f"the collective library knows no path '{case.path}': expected one of {', '.join(_CCL_PATHS)}"
        settings += _CCL_PATHS[case.path]
    if case.algorithm == _CCL_MESSAGES:
        if case.pattern not in _CCL_MESSAGE_PATTERNS:
            return (), f"send_recv is an algorithm of {', '.join(_CCL_MESSAGE_PATTERNS)}, not of {case.pattern}"
    elif case.algorithm and not TRANSPORTS["ccl"].by_our_kernels(case.variant):
        name, _, protocol = case.algorithm.partition("+")
        if name.lower() not in _CCL_ALGORITHMS:
            known = ", ".join(CCL_ALGORITHMS)
            return (), f"the collective library knows no algorithm '{name}': expected one of {known}"
        settings += (("NCCL_ALGO", name),)
        if protocol:
            settings += (("NCCL_PROTO", protocol),)
    return settings, ""


def _mpi(case: Case, dialect: str) -> tuple[Settings, str]:
    settings: Settings = ()
    if case.path:
        known = _MPI_PATHS.get(dialect, {})
        if case.path not in known:
            return (), f"no setting of this MPI library is known for path '{case.path}': expected one of " + (
                ", ".join(known) or "none"
            )
        settings += known[case.path]
    if case.algorithm:
        collective = _MPI_COLLECTIVES.get(case.pattern)
        if collective is None:
            return (), f"mpi's {case.pattern} has no algorithm to choose"
        if dialect == "mpich":
            settings += ((f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM", case.algorithm),)
        elif dialect == "intel":
            settings += ((f"I_MPI_ADJUST_{collective.upper()}", case.algorithm),)
        elif dialect == "openmpi":
            settings += (
                ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"),
                (f"OMPI_MCA_coll_tuned_{collective}_algorithm", case.algorithm),
            )
        else:
            return (), "no setting of this MPI library is known for algorithms"
    return settings, ""
