"""The native core: devices, groups of ranks, measuring a case on one rank, and the statistics that decide when to stop.

Errors: `linkgauge.errors.UsageError` for what cannot be asked, `RuntimeCallError` for a failed call of a runtime or
library, `MemoryError`, `PeerError` where another rank failed, `Unsupported` where something cannot be done here. Calls
that wait or take long give the interpreter lock away.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

FEW_SAMPLES: int
"""Fewer are no measurement: a case with fewer is a timeout after so many times its stop rule's time and one sample."""

class RuntimeCallError(RuntimeError):
    """A runtime, driver or library call returned an error."""

    call: str
    code_name: str
    code: int
    device: int
    """-1 where no device is concerned."""

class PeerError(RuntimeError):
    """Another rank failed; this one only passes it on."""

class Unsupported(RuntimeError):  # noqa: N818 - a case's reason to be skipped, not a fault
    """What was asked is not possible here, with the reason: such a case is skipped."""

class Clock(TypedDict):
    """Nanoseconds: of one reading, and the smallest step."""

    cost_ns: float
    resolution_ns: float

class Probe(TypedDict):
    """What a runtime shows: devices (as Runtime.describe, with free_bytes and total_bytes), or why there is none."""

    devices: list[dict[str, Any]]
    version: str
    reason: str

class Samples(TypedDict):
    """Columns of one length, a row a sample. phase: 0 warm-up, 1 sample. clock: 0 host, 1 event. Times in ns."""

    sample: NDArray[np.int32]
    lane: NDArray[np.int16]
    phase: NDArray[np.uint8]
    scheduled_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    ns: NDArray[np.int64]
    iterations: NDArray[np.int64]
    clock: NDArray[np.uint8]

class Verify(TypedDict):
    """What this rank's failed check found; `ok` where it found nothing. Offsets in bytes, elements as raw bits."""

    ok: bool
    bad_bytes: int
    first_bad_offset: int
    expected: int
    found: int
    where: str

class ClockComparison(TypedDict):
    """How far this rank's clock is ahead of that of the case's first node: the truth lies within the uncertainty."""

    moment: str
    when_ns: int
    offset_ns: int
    uncertainty_ns: int

class Result(TypedDict):
    """One rank's part of a measured case."""

    samples: Samples
    converged: bool
    coarse: bool
    verified: bool
    """Whether every rank's every check was right. Without it no sample counts."""
    verify: Verify
    operations_total: int
    """Warm-up and verification included."""
    operations_checked: int
    """Of these, those of which every byte was looked at."""
    stopped_by: str
    """count, interval, duration, time, timeout (fewer samples in FEW_SAMPLES times the rule's time), corrupt."""
    batch: int
    lanes: list[str]
    clocks: list[ClockComparison]
    """Before and after the samples; empty where the case's ranks share a clock."""
    host_pages: dict[str, int]
    """In bytes what host buffers requested and were given; empty where they requested nothing."""

class Runtime:
    """Devices of one kind, numbered from 0 in PCI order."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def count(self) -> int: ...
    def describe(self, device: int, /) -> dict[str, Any]:
        """Return what is known of a device: ordinal, kind, name, uuid, pci_address, numa_node, memory_bytes, ..."""

    def memory(self, device: int, /) -> tuple[int, int]:
        """Bytes that are free now, and in all."""

    def peer_access(self, device: int, peer: int, /) -> str:
        """Empty where `device` reaches the memory of `peer` directly (enabled on the first call), else why not."""

    def bind_thread(self, device: int, /) -> None:
        """Make `device` current in the calling thread."""

def open_runtime(
    which: str,
    devices: Sequence[int] = [],
    host_devices: int = 0,
    kernel_cache: str = "",
    library_folders: Sequence[str] = [],
    peer_access: bool = True,
) -> Runtime:
    """Open the runtime `which`: host, cuda or hip.

    `library_folders` is where a run-time compiler may lie besides the system's; `peer_access` False keeps GPUs from
    reaching each other's memory, so that the driver stages.

    `devices` are ordinals, empty for all; the host has as many as `host_devices` says, 0 for min(4, cores).
    Raises Unsupported with the reason where there is none.
    """

def probe(which: str, host_devices: int = 0, library_folders: Sequence[str] = []) -> Probe:
    """What a runtime shows, or the reason why it cannot be opened."""

class Group:
    """The ranks of a launch. Calls are collective over them, but for the properties and abort_with."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def node_count(self) -> int: ...
    @property
    def aborted(self) -> bool: ...
    def barrier(self, sleep: bool = False) -> None:
        """Wait for all ranks; `sleep` takes no core meanwhile."""

    def agree(self, mine: bool, /) -> bool:
        """Whether every rank says True."""

    def exchange(self, mine: bytes, /) -> list[bytes]:
        """Each rank's bytes, by rank."""

    def abort_with(self, reason: str, /) -> None:
        """Make every other rank's waits raise PeerError with this reason, for good."""

def spare_quota() -> None:
    """Make all waits of this process sleep, for good: ranks have less than a core each by their CPU quota."""

def thread_groups(size: int) -> list[Group]:
    """A group of threads of this process: element i is for the thread that plays rank i."""

def process_group(
    rank: int,
    node_of_rank: Sequence[int],
    segment_path: str,
    mpi: Mpi | None = None,
) -> Group:
    """A group of processes that meet in shared memory at `segment_path`, a file name in the launch's private folder.

    On several nodes `mpi` carries messages between them. `rank` is then that of MPI's world, all of which takes part.
    """

class Mpi:
    """An MPI library that this process has loaded."""

    @property
    def path(self) -> str: ...
    @property
    def version(self) -> str: ...

def mpi_constants(abi: str) -> dict[str, int]:
    """What the core takes mpi.h's constants to be under an ABI (mpich, openmpi, standard), for the tests."""

def open_mpi(library_path: str, abi: str, handles: dict[str, int]) -> Mpi:
    """The library that mpi4py loaded: `abi` is mpich, openmpi or standard.

    `handles` are `MPI._handleof` of comm_world, info_null, errors_return, byte; of the datatypes int8, uint8, int32,
    uint32, int64, uint64, float32, float64; and of the ops sum, prod, min, max.
    """

class Session:
    """One rank's door to measuring. All calls are made by the thread that plays the rank."""

    def __init__(
        self,
        runtime: Runtime,
        group: Group,
        mpi: Mpi | None = None,
        heartbeat: NDArray[np.uint64] | None = None,
        ccl_library: str = "",
        library_folders: Sequence[str] = [],
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`group` holds the launch's ranks, which are those of MPI's world.

        `heartbeat`: at least two writable words, usually in memory that the parent process maps: the first is raised
        once a completed sample and phase, the second is the number of the phase in hand. `on_failure` is told what this
        rank failed with before measure waits for the others.
        """

    def measure(self, case: dict[str, Any]) -> Result | None:
        """Measure a case; collective over the launch's ranks. Ranks outside of its rank_list sleep and get None.

        `case` has the core's field names: transport, pattern, size_bytes, rank_list and devices, and where they differ
        from the defaults variant, source_memory, target_memory, source_options and target_options (dicts of numa_node,
        write_combined, huge_pages, fabric_handle), cadence, arrival,
        skew_ns, clock, window, batch, root, datatype, op, in_place,
        path, algorithm, buffer, initiator, host_leg, chunk_bytes, blocks, via, managed, source_device, target_device,
        cpu_node, verify_each, checks, seed, warmup, and stop (a
        dict of kind, samples, relative_half_width, time_ns). Sizes are bytes, times nanoseconds.

        Raises UsageError naming a wrong key or value, Unsupported where the transport cannot run the case, PeerError
        where another rank failed, and RuntimeCallError or MemoryError where this one did. The session stays usable:
        all ranks leave a case before any begins the next.
        """

    def event_clock(self, device: int) -> Clock:
        """Of the device's events. Measured on the first call."""

    def set_hook(self, library: str, words: str = "") -> None:
        """For tests only: a library whose `linkgauge_make_hook` sees the phases of every later case; "": none."""

    def close(self) -> None:
        """Give back what the session holds. Further calls raise UsageError."""

def ccl_version(runtime: str, library: str = "", library_folders: Sequence[str] = []) -> tuple[str, str]:
    """Version and file of the NCCL, RCCL or oneCCL of a runtime, which stays open. Raises Unsupported where none is."""

def transport_variants() -> list[tuple[str, list[str]]]:
    """Each transport in the core's order, with the words that its cases' variants may be made of."""

def ccl_config_variables() -> list[tuple[str, str]]:
    """Variables of NCCL that a communicator of a case's own has as fields, and since which version."""

def ucx_version(library_folders: Sequence[str] = []) -> tuple[str, str]:
    """Version and file of UCX, which stays open: this process's own where it has one. Raises Unsupported."""

def ofi_version(library_folders: Sequence[str] = []) -> tuple[str, str]:
    """Version of libfabric's API, and its file, as ucx_version."""

def why_not_distributed(pattern: str, distribution: str, ranks: int) -> str:
    """Why the text distributes no bytes of the pattern over so many ranks; empty where it does."""

def rank_bytes(pattern: str, ranks: int, bytes: int, distribution: str) -> tuple[list[int], list[int]]:
    """Bytes that each rank sends, and receives, in one operation of alltoallv or halo of size `bytes`, by rank."""

def halo_buffer_bytes(ranks: int, bytes: int, distribution: str, field: bool) -> int:
    """Bytes of either of a rank's buffers in a halo: packed, or a field of cells; 0 where there is no such field."""

def pair_bytes(
    pattern: str, ranks: int, bytes: int, distribution: str = "", root: int = 0
) -> list[tuple[int, int, int]]:
    """(source, target, bytes) of one operation of a pattern between ranks of size `bytes`, by its own schedule.

    Pairs without bytes are left out. CallerError for patterns within one device.
    """

def host_clock() -> Clock:
    """Of the host's steady clock. Measured on the first call."""

def find_detours(span_ns: int, least_ns: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Gaps of `least_ns` and more between reads of the clock on this core: starts, lengths, how long was looked, and
    the time between two reads when nothing comes between. In ns; at most 10^6, which end the look."""

def median(series: NDArray[np.float64]) -> float:
    """The median; nan of an empty series."""

def warmup_cut(series: NDArray[np.float64]) -> int:
    """Number of leading values that are warm-up, at most half (MSER; see core/measure/statistics.h)."""

def effective_size(series: NDArray[np.float64]) -> float:
    """Number of independent values that tell as much of the median, from 1 to the number of values."""

def median_interval(series: NDArray[np.float64], tick: float = 0.0) -> tuple[float, float]:
    """Distribution-free 95 % interval of the median, allowing for autocorrelation, no narrower than `tick`."""

def summarize_groups(
    values: NDArray[np.float64],
    offsets: NDArray[np.int64],
    ticks: NDArray[np.float64],
    threads: int = 0,
) -> dict[str, NDArray[Any]]:
    """Summarize many series at once; series g is values[offsets[g]:offsets[g + 1]], with the clock tick ticks[g].

    Arrays of one entry a series: count_all, warmup_cut, count (int64); median, interval_low, interval_high, mean,
    quartile_1, quartile_3, p5, p95, p99, min, max, effective_size (float64; nan of an empty series). All but count_all
    are of what follows the warm-up cut. Quantiles are numpy's default. `threads` 0: one a core.
    """
