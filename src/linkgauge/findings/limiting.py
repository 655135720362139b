"""Environment variables that disable or limit what a library would do: set on purpose, or by an image that nobody read.

A run stores the variables of its environment that change what is measured (plan/tuning_variables.py).
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.rule import rule
from linkgauge.model.result import Launch
from linkgauge.model.transports import TRANSPORTS

_OFF = ("0", "n", "no", "off", "false", "disable", "disabled")
_ON = ("1", "y", "yes", "on", "true", "enable", "enabled")


def _off(value: str) -> bool:
    return value.strip().lower() in _OFF


def _on(value: str) -> bool:
    return value.strip().lower() in _ON or (value.strip().isdecimal() and int(value) > 0)


def _any(value: str) -> bool:
    return value.strip() not in ("", "all")


def _near(value: str) -> bool:
    """Whether a level of NCCL's is less than SYS, 5 as a number: the whole machine."""
    word = value.strip().upper()
    return word not in ("", "SYS") and not (word.isdecimal() and int(word) >= 5)


@dataclasses.dataclass(frozen=True)
class _Limit:
    """One row: a variable (a shell pattern), the values that limit, and what the library then does."""

    name: str
    limits: Callable[[str], bool]
    what: str
    library: str  # as `_libraries` has them; empty: whatever is used


_CCL, _UCX, _OFI = "ccl", "ucx", "ofi"
_TABLE = (
    _Limit("NCCL_P2P_DISABLE", _on, "no peer access between GPUs by NVLink, Infinity Fabric or PCIe", _CCL),
    _Limit("NCCL_P2P_LEVEL", _near, "peer access only between GPUs this near", _CCL),
    _Limit("NCCL_SHM_DISABLE", _on, "no shared memory inside a node", _CCL),
    _Limit("NCCL_IB_DISABLE", _on, "no InfiniBand or RoCE", _CCL),
    _Limit("NCCL_IB_HCA", _any, "only these NICs", _CCL),
    _Limit("NCCL_NET", _any, "only this network plug-in", _CCL),
    _Limit("NCCL_NET_GDR_LEVEL", _near, "GPUDirect RDMA only between a GPU and a NIC this near", _CCL),
    _Limit("NCCL_PXN_DISABLE", _on, "no sending through another GPU's NIC (PXN)", _CCL),
    _Limit("NCCL_NVLS_ENABLE", _off, "no NVLink SHARP: switches reduce nothing", _CCL),
    _Limit("NCCL_MNNVL_ENABLE", _off, "no NVLink between nodes", _CCL),
    _Limit("NCCL_CUMEM_ENABLE", _off, "no cuMem memory, which NVLink SHARP needs", _CCL),
    _Limit("NCCL_COLLNET_ENABLE", _off, "no reductions in the network (CollNet)", _CCL),
    _Limit("NCCL_ALGO", _any, "only these algorithms", _CCL),
    _Limit("NCCL_PROTO", _any, "only these protocols", _CCL),
    _Limit("NCCL_MAX_*CHANNELS", _any, "at most so many channels", _CCL),
    _Limit("NCCL_MAX_CTAS", _any, "at most so many thread blocks", _CCL),
    _Limit("UCX_TLS", _any, "only these transports", _UCX),
    _Limit("UCX_NET_DEVICES", _any, "only these NICs", _UCX),
    _Limit("UCX_IB_GPU_DIRECT_RDMA", _off, "no GPUDirect RDMA", _UCX),
    _Limit("FI_PROVIDER", _any, "only this libfabric provider", _OFI),
    _Limit("OMPI_MCA_pml", _any, "only these message layers", "openmpi"),
    _Limit("OMPI_MCA_btl", _any, "only these byte transfer layers", "openmpi"),
    _Limit("OMPI_MCA_btl_vader_single_copy_mechanism", lambda value: value == "none",
           "messages inside a node are copied twice (no CMA)", "openmpi"),
    _Limit("OMPI_MCA_smsc", lambda value: value == "none", "messages inside a node are copied twice", "openmpi"),
    _Limit("OMPI_MCA_btl_smcuda_use_cuda_ipc", _off, "no CUDA IPC between ranks", "openmpi"),
    _Limit("MPIR_CVAR_NOLOCAL", _on, "no shared memory inside a node", "mpich"),
    _Limit("MPIR_CVAR_ENABLE_GPU", _off, "no GPU memory in MPI calls", "mpich"),
    _Limit("MPICH_GPU_SUPPORT_ENABLED", _off, "no GPU memory in MPI calls", "cray"),
    _Limit("MPICH_GPU_IPC_ENABLED", _off, "no peer access between GPUs", "cray"),
    _Limit("I_MPI_FABRICS", _any, "only these fabrics", "intel"),
    _Limit("I_MPI_OFFLOAD", _off, "no GPU memory in MPI calls", "intel"),
    _Limit("HSA_ENABLE_SDMA", _off, "copies by kernels, not by the copy engines", ""),
    _Limit("HSA_ENABLE_PEER_SDMA", _off, "copies between GPUs by kernels, not by the copy engines", ""),
    _Limit("CUDA_LAUNCH_BLOCKING", _on, "the host waits for each kernel", ""),
    _Limit("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", lambda value: value.strip() != "100", "only a part of each GPU", ""),
)  # fmt: skip


def limiting(
    info: Mapping[str, object], launches: Sequence[Launch], transports: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield `NAME=value` and what that limits, of the libraries that a run with these transports used.

    Of variables in the run's environment, and of those that all of its launches were given.
    """
    used = _libraries(launches, transports)
    given = [launch.env.items() for launch in launches]
    common = set.intersection(*map(set, given)) if given else set()
    own = info.get("settings")
    variables = {**(own if isinstance(own, dict) else {}), **dict(common)}
    for name, value in sorted(variables.items()):
        for row in _TABLE:
            if (
                fnmatch.fnmatchcase(name, row.name)
                and row.limits(str(value))
                and (row.library or None) in {None, *used}
            ):
                yield f"{name}={value}", row.what


def _libraries(launches: Sequence[Launch], transports: Collection[str]) -> set[str]:
    by_mpi = any(TRANSPORTS[name].by_mpi for name in transports if name in TRANSPORTS)
    found = {name for name in transports if name in (_CCL, _UCX, _OFI)}
    found |= {_UCX} if "nixl" in transports else set()
    if by_mpi:  # which of both an MPI library is on is not stored
        found |= {launch.mpi_vendor for launch in launches} | {_UCX, _OFI}
    return found


@rule("environment variables that disable or limit what a library would do")
def limiting_variables(facts: Facts) -> Iterable[Finding]:
    """Variables that were set for the run and limit a library that it measured."""
    found = list(limiting(facts.info, facts.launches, {measure.transport for measure in facts.measures}))
    if not found:
        return
    words = "; ".join(f"{variable} ({what})" for variable, what in found)
    yield Finding(
        "limiting_variables",
        "note",
        "the environment",
        f"The environment limits what was measured: {words}.",
        tuple(Evidence(f"{variable}: {what}") for variable, what in found),
        0.99,
        f"Where this is not meant, unset {' '.join(variable.partition('=')[0] for variable, _ in found)} (containers "
        "and job scripts set such variables) and measure again.",
    )
