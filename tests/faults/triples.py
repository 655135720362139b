"""The list of (fault, phase, transport) triples that are planted, and what each must end as."""

from __future__ import annotations

import dataclasses
import itertools
import random

from linkgauge.run.machine.transports import absent_transports

# One process a rank, under mpiexec. NIXL is in no wheel that the tests need.
NIXL = () if "nixl" in absent_transports("host") else ("nixl",)
LAUNCHED = ("staging", "copy_engine", "kernel", "mpi", "ucx", "ofi", *NIXL, "nvshmem")
# The stand-in for NCCL knows ranks of one process only: its launches are of threads, without MPI and mpiexec.
THREADED = ("ccl",)
TRANSPORTS = (*LAUNCHED, *THREADED)
# Those of GPUs alone: the folder of the stand-in for their library, beside those for a driver and a compiler.
GPU_LIBRARIES = {"ccl": "nccl0", "nvshmem": "nvshmem"}
# Phases as they are listed -> the core's words for them (Moment of core/measure/sampler.h).
PHASES = {
    "prepare": "prepare", "check": "check", "warm up": "warmup", "align": "align", "time": "time", "record": "record",
    "finished": "finished", "verify": "verify", "release": "release",
}  # fmt: skip
NOT_RELEASE = tuple(phase for phase in PHASES if phase != "release")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault: at which phases it can be, for which transports, and what the case's status must be."""

    kind: str
    what: str
    status: str  # "" : the case has no status; it is measured when the run is resumed
    phases: tuple[str, ...] = tuple(PHASES)
    transports: tuple[str, ...] = TRANSPORTS

    @property
    def resumes(self) -> bool:
        """Whether it ends the whole run."""
        return self.status == ""


FAULTS = (
    Fault("kill", "SIGKILL of a rank", "crashed"),
    Fault("segv", "SIGSEGV of a rank", "crashed"),
    Fault("stop", "SIGSTOP of a rank", "hung"),
    Fault("hang", "an endless wait", "hung"),
    Fault("throw", "an error of the operation", "failed", NOT_RELEASE),
    Fault("memory", "out of memory", "failed", NOT_RELEASE),
    Fault("abort", "MPI abort", "crashed", transports=LAUNCHED),
    Fault("launcher", "a killed mpiexec", "crashed", transports=LAUNCHED),
    # Where the case's data are looked at afterwards; in warm up and time that takes verify each.
    # The planter knows buffers that the runtime gave; NVSHMEM's are in tests/run/test_nvshmem.py.
    Fault("corrupt", "a wrong byte", "corrupt", ("check", "warm up", "time", "verify"),
          tuple(name for name in TRANSPORTS if name != "nvshmem")),
    # Only where the transport calls the runtime after that phase has begun.
    Fault("call", "an error from the runtime's next call", "failed", ("prepare", "check", "time", "verify"),
          ("staging", "copy_engine", "kernel")),
    Fault("call", "an error from the runtime's next call", "failed", ("prepare", "verify"),
          ("mpi", "ccl", "ucx", "ofi", *NIXL, "nvshmem")),
    Fault("library", "an error from a call of NCCL", "failed", ("check", "warm up", "time", "verify"), ("ccl",)),
    # On a host device the kernel is this process' own code; on a GPU see also test_gpu_fault.py.
    Fault("address", "a kernel's illegal address", "crashed", ("check", "time", "verify"),
          ("staging", "copy_engine", "kernel")),
    Fault("address", "a kernel's illegal address, on a stand-in for a GPU", "failed", ("check", "time", "verify"),
          ("ccl",)),
    Fault("parent", "a killed parent", ""),
    Fault("disk", "a full disk under the journal", "", ("prepare", "record", "release")),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Triple:
    """One fault at one phase of one transport."""

    fault: Fault
    phase: str
    transport: str

    @property
    def name(self) -> str:
        """`kill at warm up of mpi`."""
        return f"{self.fault.kind} at {self.phase} of {self.transport}"

    @property
    def core_phase(self) -> str:
        """The phase as the planter names it."""
        if self.fault.kind == "corrupt" and self.phase == "verify":
            return "final_check"
        return self.phase if self.fault.kind == "disk" else PHASES[self.phase]


TRIPLES: tuple[Triple, ...] = tuple(
    Triple(fault, phase, transport)
    for fault in FAULTS
    for phase, transport in itertools.product(fault.phases, fault.transports)
)


def seeded(count: int, seed: int) -> list[Triple]:
    """`count` triples drawn by a seed, every kind of fault among them."""
    generator = random.Random(seed)
    chosen = [generator.choice([t for t in TRIPLES if t.fault == fault]) for fault in FAULTS]
    rest = [triple for triple in TRIPLES if triple not in chosen]
    return chosen + generator.sample(rest, count - len(chosen))
