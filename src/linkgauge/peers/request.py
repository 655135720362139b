"""What one comparison asks for: its rows, how often each side repeats an operation, and what no row is made of.

A row is one line of the table: a peer's test at one size, on so many ranks, between two kinds of memory. The ratio of
two tools over alternated pairs of launches: docs/definitions.md, Sample, timekeeper, cadence.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from linkgauge.model.patterns import PATTERNS
from linkgauge.peers.catalog import TWO_ENDED, Counts, PeerTest, usual_counts
from linkgauge.run.machine.private_folder import LaunchFolders
from linkgauge.run.machine.processes import MARK
from linkgauge.stats.basics import sign_interval_ranks

MIN_PAIRS = 6  # the fewest of which the whole range is a 95 % interval
MAX_PAIRS = 31

Verdict = Literal["holds", "differs", "more pairs", "cannot tell"]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Ours over the peer's, of `pairs` alternated pairs: median and distribution-free 95 % interval of it."""

    median: float
    low: float
    high: float
    pairs: int

    def verdict(self, tolerance: float, *, at_least: bool = False) -> Verdict:
        """Whether the ratio is within `tolerance` of 1 (at_least: not below 1 - tolerance; above is welcome)."""
        if self.pairs < MIN_PAIRS:
            return "more pairs"
        if self.high - self.low > 2 * tolerance:
            return "more pairs" if self.pairs < MAX_PAIRS else "cannot tell"
        # A hair of slack, so that 1 - 0.05 and 0.95 are the same number.
        within = self.median >= 1 - tolerance - 1e-12 and (at_least or self.median <= 1 + tolerance + 1e-12)
        return "holds" if within else "differs"


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Median and interval of ours[i] / theirs[i]. Raises ValueError when the lengths differ or nothing was measured."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"pairs are needed: {len(ours)} of ours, {len(theirs)} of the peer's")
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, high = sign_interval_ranks(len(ratios))
    return Ratio(statistics.median(ratios), ratios[low], ratios[high], len(ratios))


_NCCL_BLOCK_BYTES = 16  # nccl-tests cuts blocks of whole 16 bytes
# From where on an acknowledgement a window, which we and fi_rdm_tagged_bw have and the others do not, is nothing beside
# its bytes.
_NO_ACKNOWLEDGEMENT = ("tag_bw", "ucp_put_bw", "ucp_get", "fi_rma_bw", "ib_send_bw", "ib_write_bw", "ib_read_bw")
_LEAST_OF_THEM = 64 << 10


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: `size` is ours in bytes, `memory` the kinds sent from and received into."""

    test: PeerTest
    ranks: int
    memory: tuple[str, str]
    size: int

    @property
    def key(self) -> str:
        """The row's name in files: all that tells it apart."""
        return f"{self.test.name} {self.ranks} {self.memory[0]},{self.memory[1]} {self.size}"

    @property
    def peer_size(self) -> int:
        """The size in bytes as the peer counts it: a total or a block where ours is the other."""
        if self.test.sizes == "times ranks":
            return self.size * self.ranks
        return self.size // self.ranks if self.test.sizes == "over ranks" else self.size


@dataclasses.dataclass(frozen=True)
class Request:
    """One comparison of many rows. `mpi` as `--mpi`; empty: threads of one process.

    `iterations`, `large_iterations` and `warmup`: operations that each side times and those before; None: the peer's
    usual counts. `time_limit_s`: no round begins that would end later, by the longest so far; None: no limit.
    `buffer`: whose memory our NCCL cases use, as the dimension of that name. nccl-tests has its own from ncclMemAlloc
    wherever it was built with NCCL 2.19 or newer (AllocateBuffs of its src/common.cu). On several hosts a pair is the
    first device of the first two, and a collective is of every device of each.
    """

    peer: str
    folder: Path
    rows: tuple[Row, ...]
    mpi: str
    devices: str
    out: Path
    iterations: int | None = None
    large_iterations: int | None = None
    warmup: int | None = None
    bind: str = "none"  # none | core: rank i on the i-th core that is allowed
    max_pairs: int = MAX_PAIRS
    time_limit_s: float | None = None
    buffer: str = "allocated"  # allocated | plain
    hosts: tuple[str, ...] = ()  # the nodes, by name; none: this one
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what both sides have besides this process' own
    own: LaunchFolders | None = None  # whose mark and folder what the peer leaves is found by

    @property
    def peers_environment(self) -> dict[str, str]:
        """What a peer's program is started with besides this process' own. Its folder is this node's alone."""
        if self.own is None:
            return dict(self.env)
        return {**({} if self.hosts else {"TMPDIR": str(self.own.temporary)}), **self.env, MARK: self.own.token}

    @property
    def ranks(self) -> int:
        """The most ranks of any row."""
        return max(row.ranks for row in self.rows)

    @functools.cached_property
    def runtime(self) -> str:
        """Whose devices they are: cuda, hip, or host, whose memory is the host's."""
        from linkgauge.run.parent.devices import find_devices

        return find_devices(self.devices).kind

    def hosts_of(self, row: Row) -> tuple[str, ...]:
        """The nodes that a row's ranks are on, as many on each."""
        return self.hosts[: row.ranks] if PATTERNS[row.test.case["pattern"]].pair else self.hosts

    def why_not_placed(self, row: Row) -> str:
        """Why the row's ranks are not those of our own cases on these hosts; empty where they are."""
        if not self.hosts or PATTERNS[row.test.case["pattern"]].pair:
            return ""
        from linkgauge.run.parent.devices import find_devices

        wanted = len(self.hosts) * find_devices(self.devices).count
        return "" if row.ranks == wanted else f"{row.ranks} ranks: on these hosts expected {wanted}, one a device"

    def counts(self, row: Row) -> Counts:
        """How many operations both sides time of a row, and how many come before them."""
        usual = usual_counts(self.peer, row.test, row.size)
        iterations = self.iterations or usual.iterations
        if usual.large and self.large_iterations:
            iterations = self.large_iterations
        return Counts(iterations, usual.warmup if self.warmup is None else self.warmup, usual.large)


def rows_of(
    peer: str,
    tests: Sequence[PeerTest],
    ranks: Sequence[int],
    memories: Sequence[tuple[str, str]],
    sizes: Iterable[int],
) -> tuple[tuple[Row, ...], dict[str, str]]:
    """Every row of the product that the peer can measure, and by row key why the others are left out."""
    rows: dict[str, Row] = {}
    left_out: dict[str, str] = {}
    for test in tests:
        for count in ranks if test.own_ranks is None else (test.own_ranks,):
            for memory in memories if test.takes_memory else memories[:1]:
                for size in (test.only_bytes,) if test.only_bytes or test.sizeless else sorted(set(sizes)):
                    row = Row(test, count, memory, size)
                    if reason := _cannot(peer, row):
                        left_out[row.key] = reason
                    else:
                        rows[row.key] = row
    return tuple(rows.values()), left_out


def _cannot(peer: str, row: Row) -> str:
    """Why the peer has no such row; empty where it has."""
    if row.test.sizes == "over ranks" and row.size % row.ranks:
        return f"{row.size} bytes are not {row.ranks} equal blocks"
    if peer == "osu" and "pinned" in row.memory:
        return "OSU's host buffers are pageable"
    if row.test.messages and row.ranks % 2 and row.ranks > 1:
        return f"{row.ranks} ranks are not pairs"
    if peer == "osu" and not row.test.messages and row.memory[0] != row.memory[1]:
        return "OSU's collectives send from and receive into one kind of memory"
    if peer in TWO_ENDED and (len(set(row.memory)) > 1 or "pinned" in row.memory):
        return f"{peer}'s ends have one kind of memory, which is not pinned by CUDA or HIP"
    if row.test.name in _NO_ACKNOWLEDGEMENT and row.size < _LEAST_OF_THEM:
        return "it continues without an acknowledgment of each window, which counts below 64 KiB"
    if peer == "nvbandwidth" and row.size % (1 << 20):
        return "nvbandwidth takes whole MiB"
    if peer == "nccl-tests":
        parts = row.ranks if row.test.blocks else 1
        least = _NCCL_BLOCK_BYTES * parts if row.test.blocks or row.test.sizes == "times ranks" else 4
        if row.size < least or row.size % least:
            return f"nccl-tests would cut {row.size} bytes to another size: expected a multiple of {least}"
    return ""
