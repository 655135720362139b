"""Which tests of each peer are compared, and the case of ours that is the same measurement.

A `PeerTest` pairs a peer's program with a `[[case]]` table of a plan: same pattern, sizes, buffers and cadence, so that
only the tools differ. Estimators are the peer's own (ours.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS, REPEATED

_WINDOW = 64  # of osu_bw and osu_bibw, unless -W says another; of others as we ask for it
_ONE_DEVICE = ("host_to_device", "device_to_host", "local_copy")


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many operations a side times, and how many come before; `large`: whether the size counts as large there."""

    iterations: int
    warmup: int
    large: bool = False


@dataclasses.dataclass(frozen=True)
class PeerTest:
    """One test of a peer.

    `case`: dimensions of our case. `figure`: `time` (less is better) or `rate`. `tolerance_at(size)`: the share within
    which the two should agree. `sizes`: `same`, `times ranks` where the peer's size is the total of n of ours, or
    `over ranks` where it is one of the n blocks of ours. `takes_memory`: whether the kinds of memory are asked for;
    otherwise the test itself says them. `ranks`: how many it takes, 0 where others say it. `only_bytes`: the peer's own
    size, whatever is asked for. `counts`: the test's own. `sizes_an_operation`: how many of the peer's sizes one
    operation of ours moves. `theirs_in_place`: of its two figures the one in place is of what ours does.
    """

    name: str  # osu_latency, all_reduce_perf, device_to_device_memcpy_read_ce
    case: Mapping[str, Any]
    estimator: str
    figure: str
    tolerance: float
    small_tolerance: float  # below 1 MiB
    sizes: str = "same"
    takes_memory: bool = True
    ranks: int = 0
    only_bytes: int = 0
    counts: Counts | None = None
    sizes_an_operation: int = 1
    theirs_in_place: bool = False
    pairs: str = "first"  # which, of patterns of pairs

    def case_of(self, ranks: int) -> Mapping[str, Any]:
        """Dimensions of our case of so many ranks: of one pair the pattern of a pair alone."""
        alone = PATTERNS[self.case["pattern"]].side_by_side_of
        return {**self.case, "pattern": alone} if ranks == 2 and alone else self.case

    @property
    def messages(self) -> bool:
        """Whether it is of messages in pairs, one or several."""
        return PATTERNS[self.case["pattern"]].pair or bool(PATTERNS[self.case["pattern"]].side_by_side_of)

    @property
    def own_ranks(self) -> int | None:
        """How many ranks the test takes, where nobody else can say it."""
        pattern = self.case["pattern"]
        return self.ranks or (2 if PATTERNS[pattern].pair else 1 if pattern in _ONE_DEVICE else None)

    @property
    def sizeless(self) -> bool:
        """Whether there is no size to ask for."""
        return PATTERNS[self.case["pattern"]].size_means == "-"

    @property
    def blocks(self) -> bool:
        """Whether the size is a total that is cut into a block for each rank."""
        return PATTERNS[self.case["pattern"]].blocks

    @property
    def windowed(self) -> bool:
        """Whether its messages in flight are others than the peer's own number, so that the peer is told."""
        return int(self.case.get("window", _WINDOW)) != _WINDOW

    def with_window(self, window: int) -> PeerTest:
        """The same test with so many messages in flight, where it has several; itself where it has one."""
        return dataclasses.replace(self, case={**self.case, "window": window}) if "window" in self.case else self

    def tolerance_at(self, size: int) -> float:
        """The tolerance at a size in bytes."""
        return self.tolerance if size >= 1 << 20 else self.small_tolerance


# What each peer repeats unless told otherwise, for small and for large sizes, and above which size that is. OSU 7.4's
# own (its osu_util.h), which those below MPI are told, too. nccl-tests' own 20 leave small sizes too noisy to compare
# within 5 %: 10,000 of 20 us are a twentieth of the time that its start takes, and the processor's launches, which
# bound them, have two speeds for milliseconds at a time (docs/results/h200.md).
_OSU_LARGE_ABOVE = 8192
_NCCL_LARGE_ABOVE = 64 << 10
_OSU_LATENCY = (Counts(10000, 100), Counts(1000, 10, large=True))
_OSU_WINDOWS = (Counts(100, 10), Counts(20, 2, large=True))
_OSU_COLLECTIVE = (Counts(1000, 100), Counts(100, 10, large=True))
_NCCL_TESTS = (Counts(10000, 5), Counts(100, 5, large=True))


def usual_counts(peer: str, test: PeerTest, size: int) -> Counts:
    """What the peer itself times at a size in bytes unless it is told otherwise."""
    if peer in BETWEEN_NODES:
        pattern = test.case["pattern"]
        usual = _OSU_LATENCY if pattern == "pingpong" else _OSU_WINDOWS if test.messages else _OSU_COLLECTIVE
        return usual[size > _OSU_LARGE_ABOVE]
    return _NCCL_TESTS[size > _NCCL_LARGE_ABOVE]


def _below_mpi(name: str, transport: str, pattern: str, variant: str = "", *, median: bool = False) -> PeerTest:
    """A test of UCX, libfabric or verbs: a round trip of messages, or windows of them one way.

    Round trips of puts are left out: these programs watch the data's last byte, ours has a word behind the data.
    """
    latency = PATTERNS[pattern].pair and not PATTERNS[pattern].windowed
    table = {"transport": transport, "pattern": pattern, "variant": variant}
    table |= _BACK_TO_BACK if latency else _WINDOWS
    estimator = "median_of_rank_0" if median else "mean_of_rank_0"
    return PeerTest(name, table, estimator, "time" if latency else "rate", 0.05, 0.05)


def _osu(
    name: str, pattern: str, sizes: str = "same", *, mean: str = "of_rank_means", pairs: str = "first", **case: Any
) -> PeerTest:
    table = {"transport": "mpi", "pattern": pattern, **case}
    figure = "rate" if "window" in case else "time"
    return PeerTest(name, table, f"mean_{mean}", figure, 0.05, 0.05, sizes, pairs=pairs)


def _nccl(name: str, pattern: str, sizes: str = "same", *, theirs_in_place: bool = False) -> PeerTest:
    case = {"transport": "ccl", "pattern": pattern, "cadence": "streaming"}
    return PeerTest(name, case, "mean_of_rank_means", "time", 0.02, 0.05, sizes, theirs_in_place=theirs_in_place)


def _nvbandwidth(
    name: str,
    transport: str,
    pattern: str,
    *,
    ranks: int = 0,
    counts: Counts | None = None,
    sizes: int = 1,
    **case: Any,
) -> PeerTest:
    table = {"transport": transport, "pattern": pattern, "cadence": "gated", "clock": "event", "batch": 16, **case}
    estimator = "nvbandwidth_sum" if pattern == "bidirectional" else "nvbandwidth"
    own: dict[str, Any] = {"ranks": ranks, "counts": counts, "sizes_an_operation": sizes}
    return PeerTest(name, table, estimator, "rate", 0.01, 0.01, takes_memory=False, **own)


def _nvbandwidth_both_ways() -> Iterator[PeerTest]:
    """Two flows at once, as nvbandwidth 0.8 counts them (testcases_ce.cpp, testcases_sm.cpp, testcase.cpp).

    Between devices: both ways, each timed by itself, and the sum of the two rates. To and from the host by copy
    engines, or of several devices one way: the rate of one flow while others of twice the size go on beside it. To and
    from the host both ways by kernels: one kernel whose warps go either way by turns over one pair of buffers of the
    size and copy each word 16 times in a row, which makes writes to host memory faster; the rate of one way. So a
    sample is one launch of ours that moves 8 sizes each way. Each names the two directions alike, and both are one and
    the same measurement.
    """
    for transport, word in (("copy_engine", "ce"), ("kernel", "sm")):
        for way, initiator in (("read", "receiver"), ("write", "sender")):
            name = f"device_to_device_bidirectional_memcpy_{way}_{word}"
            yield _nvbandwidth(name, transport, "bidirectional", initiator=initiator)
        for one, all_of_them, pattern, end in (
            ("host_to_device", "host_to_all", "host_to_device_contended", "source_memory"),
            ("device_to_host", "all_to_host", "device_to_host_contended", "target_memory"),
        ):
            pinned: dict[str, Any] = {end: "pinned"}
            yield _nvbandwidth(f"{all_of_them}_memcpy_{word}", transport, pattern, **pinned)
            for name, ranks in ((one, 1), (all_of_them, 0)):
                name = f"{name}_bidirectional_memcpy_{word}"
                if word == "sm":
                    both: dict[str, Any] = {"variant": REPEATED, "source_memory": "pinned", "batch": 1}
                    both |= {"counts": Counts(3, 1), "sizes": 8}
                    yield _nvbandwidth(name, transport, "host_device_bidirectional", ranks=ranks, **both)
                else:
                    yield _nvbandwidth(name, transport, pattern, ranks=ranks, variant="both_ways", **pinned)


def _nvbandwidth_latency(name: str, ranks: int, source_memory: str) -> PeerTest:
    """A chase of 1,000,000 loads through 2 MiB, whatever size is asked for, from each multiprocessor in turn."""
    case = {"transport": "kernel", "pattern": "pointer_chase", "variant": "in_turn", "clock": "event",
            "cadence": "isolated", "batch": 1, "source_memory": source_memory}  # fmt: skip
    shape: dict[str, Any] = {"takes_memory": False, "ranks": ranks, "only_bytes": 2 << 20, "counts": Counts(1, 1)}
    return PeerTest(name, case, "nvbandwidth", "time", 0.03, 0.03, **shape)


_BARRIER = {"cadence": "barrier"}
# OSU 7 reads the clock before and after each round trip of its loop and adds the differences up; the ranks never meet.
_BACK_TO_BACK = {"cadence": "isolated", "arrival": "free"}
_WINDOWS: dict[str, Any] = {"window": _WINDOW, "cadence": "streaming", "batch": 1}
_TESTS: dict[str, tuple[PeerTest, ...]] = {
    "osu": (
        _osu("osu_latency", "pingpong", mean="of_rank_0", **_BACK_TO_BACK),
        _osu("osu_bw", "unidirectional", mean="of_rank_0", **_WINDOWS),
        _osu("osu_bibw", "bidirectional", mean="of_rank_0", **_WINDOWS),
        # Of all pairs at once, with a barrier before each window: the mean over the senders.
        _osu("osu_mbw_mr", "pairs_unidirectional", pairs="halves", **{**_WINDOWS, **_BARRIER}),
        _osu("osu_barrier", "barrier", **_BACK_TO_BACK),
        _osu("osu_allreduce", "allreduce", **_BARRIER),
        _osu("osu_alltoall", "alltoall", **_BARRIER),
        _osu("osu_alltoallv", "alltoall", variant="alltoallv_own", **_BARRIER),
        _osu("osu_ialltoall", "alltoall", variant="overlapped", **_BARRIER),
        _osu("osu_bcast", "broadcast", **_BARRIER),
        _osu("osu_reduce", "reduce", **_BARRIER),
        _osu("osu_allgather", "allgather", "over ranks", **_BARRIER),
        _osu("osu_gather", "gather", "over ranks", **_BARRIER),
        _osu("osu_scatter", "scatter", "over ranks", **_BARRIER),
    ),
    "nccl-tests": (
        _nccl("all_reduce_perf", "allreduce"),
        _nccl("all_gather_perf", "allgather"),
        _nccl("reduce_scatter_perf", "reduce_scatter"),
        # Out of place its root also copies its operand to itself, over which MPI's and our broadcast has nothing to do.
        _nccl("broadcast_perf", "broadcast", theirs_in_place=True),
        _nccl("reduce_perf", "reduce"),
        _nccl("alltoall_perf", "alltoall", "times ranks"),
        _nccl("sendrecv_perf", "ring_shift"),
        _nccl("gather_perf", "gather"),
        _nccl("scatter_perf", "scatter"),
    ),
    "ucx_perftest": (
        _below_mpi("tag_lat", "ucx", "pingpong", median=True),
        _below_mpi("tag_bw", "ucx", "unidirectional"),
        _below_mpi("ucp_put_bw", "ucx", "unidirectional", "put"),
        _below_mpi("ucp_get", "ucx", "unidirectional", "get"),
    ),
    "fabtests": (
        _below_mpi("fi_pingpong", "ofi", "pingpong"),
        _below_mpi("fi_rdm_tagged_pingpong", "ofi", "pingpong"),
        _below_mpi("fi_rdm_tagged_bw", "ofi", "unidirectional"),
        _below_mpi("fi_rma_bw", "ofi", "unidirectional", "put"),
    ),
    "perftest": (
        _below_mpi("ib_send_lat", "ucx", "pingpong", median=True),
        _below_mpi("ib_send_bw", "ucx", "unidirectional"),
        _below_mpi("ib_write_bw", "ucx", "unidirectional", "put"),
        _below_mpi("ib_read_bw", "ucx", "unidirectional", "get"),
    ),
    "nvbandwidth": (
        _nvbandwidth("device_to_device_memcpy_read_ce", "copy_engine", "unidirectional", initiator="receiver"),
        _nvbandwidth("device_to_device_memcpy_write_ce", "copy_engine", "unidirectional", initiator="sender"),
        _nvbandwidth("device_to_device_memcpy_read_sm", "kernel", "unidirectional", initiator="receiver"),
        _nvbandwidth("device_to_device_memcpy_write_sm", "kernel", "unidirectional", initiator="sender"),
        _nvbandwidth("host_to_device_memcpy_ce", "copy_engine", "host_to_device", source_memory="pinned"),
        _nvbandwidth("device_to_host_memcpy_ce", "copy_engine", "device_to_host", target_memory="pinned"),
        _nvbandwidth("host_to_device_memcpy_sm", "kernel", "host_to_device", source_memory="pinned"),
        _nvbandwidth("device_to_host_memcpy_sm", "kernel", "device_to_host", target_memory="pinned"),
        _nvbandwidth("device_local_copy", "copy_engine", "local_copy"),
        *_nvbandwidth_both_ways(),
        # Those whose copies the one device starts, so that its own events time them.
        _nvbandwidth("one_to_all_write_ce", "copy_engine", "one_to_all", initiator="sender"),
        _nvbandwidth("one_to_all_read_ce", "copy_engine", "all_to_one", initiator="receiver"),
        _nvbandwidth("one_to_all_write_sm", "kernel", "one_to_all", initiator="sender"),
        _nvbandwidth("all_to_one_read_sm", "kernel", "one_to_all", initiator="sender"),
        _nvbandwidth_latency("device_to_device_latency_sm", 2, "device"),
        _nvbandwidth_latency("host_device_latency_sm", 1, "pinned"),
    ),
}
PEERS = tuple(_TESTS)
TWO_ENDED = ("ucx_perftest", "fabtests", "perftest")
"""Peers whose programs are a server and a client."""
BETWEEN_NODES = ("osu", *TWO_ENDED)
"""Peers that are started on several nodes, by an MPI library's launcher."""


def peer_tests(peer: str, names: tuple[str, ...] = ()) -> tuple[PeerTest, ...]:
    """The tests of a peer, all or those named; UsageError naming what there is."""
    if peer not in _TESTS:
        raise UsageError(f"unknown peer '{peer}': expected one of {', '.join(PEERS)}")
    known = {test.name: test for test in _TESTS[peer]}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown test '{name}' of {peer}: expected one of {', '.join(known)}")
    return tuple(known[name] for name in names) if names else _TESTS[peer]
