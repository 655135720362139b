"""What is known of each pattern, a row each: what its size means, who keeps its time, how many bytes must arrive, ...

Source: docs/definitions.md, Sizes and goodput.
m: size in bytes; n: ranks; W: window; t: time of one iteration in seconds. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Protocol

from linkgauge.errors import UsageError
from linkgauge.model.rank_bytes import sent_and_received


class Amount(Protocol):
    """(m, n, W, distribution) -> bytes. The distribution tells only of patterns that are `distributed`."""

    def __call__(self, m: int, n: int, w: int, d: str = "", /) -> Fraction:
        """Bytes of one operation."""


Legs = tuple[int, int]
"""Bytes that leave and enter a rank's memory in one operation, in m / n."""


@dataclasses.dataclass(frozen=True)
class PatternTraits:
    """One row of the table of patterns: all that is known of one, so that no other place names it to tell it apart."""

    name: str
    what: str  # what it does among a case's devices, in a few words; with --op other than sum: that instead of the sum
    size_means: str
    timekeeper: str  # starter | sender | root | lanes | slowest
    payload_bytes: Amount  # goodput's numerator; goodput = payload / t
    bus_factor: Callable[[int], Fraction]  # n -> busbw / goodput
    bytes_per_peer: Amount
    bytes_total: Amount
    blocks: bool = False  # m is cut into n blocks
    # "2": pairs (or one device with itself); "pairs": disjoint pairs side by side; "any"; "1": each alone; "1 or 2":
    # each, and pairs; "first": one alone.
    ranks: str = "any"
    reduces: bool = False
    root: str = ""  # "sends" or "receives": what the root alone does
    latency_only: bool = False
    collective: bool = False
    lanes: Callable[[int], int] = lambda n: 1  # directed flows that the goodput of a case is the sum of
    half_round_trip: bool = False  # its time is of a round trip, and its latency half of it
    windowed: bool = False
    routed: bool = False  # its copies may go through a third device (dimension `via`)
    distributed: bool = False  # a distribution says how its bytes are spread over the ranks
    side_by_side_of: str = ""  # the pattern of one pair, of which this is disjoint pairs at once
    host_end: str = ""  # "source" or "target": the end that is host memory unless the plan says otherwise
    host_ways: tuple[str, ...] = ()  # over a device's host link: "into" it, "out" of it
    alone: str = ""  # the pattern of the flow that is timed, without what goes on beside it
    scripted: bool = False  # who sends what to whom stands in a step file (dimension `app`)
    computes: bool = False  # moves nothing: what communication is measured beside
    by_cores: bool = False  # done by the host's cores, which leaves its device alone
    spread_of: str = ""  # the pattern that it is where the distribution is even
    variants: tuple[str, ...] = ()  # its own, beside those of the transport
    own_memory: bool = False  # its bytes stay in memories that each rank reaches by itself: no rank sends to another
    # n -> algbw / goodput, algbw being nccl-tests' size over t; None where nccl-tests has no such collective.
    algorithm_factor: Callable[[int], Fraction] | None = None
    # Links of a port in use at once: "one" way, "both", or both where a library sends and receives at once ("library").
    link_ways: str = ""
    # n -> what every rank's buffer gives and takes at least, and the root's where that differs.
    legs: Callable[[int], tuple[Legs, Legs | None]] | None = None

    def takes(self, ranks: int) -> bool:
        """Whether a case of it can be of so many ranks."""
        one = self.ranks in ("1", "first")
        most = 1 if one else 2 if self.ranks in ("2", "1 or 2") else ranks
        return 1 <= ranks <= most and (self.ranks != "pairs" or ranks % 2 == 0)

    def why_not(self, ranks: int, groups: int, root: int) -> str:
        """Why there is no case of it of so many ranks in so many groups with that root; empty where there is."""
        if ranks % groups or not self.takes(ranks // groups):
            among = f" in {groups} groups" if groups > 1 else ""
            return f"a {self.name} of {ranks} ranks{among}: expected what that pattern takes"
        if self.rooted and root >= ranks // groups:
            return f"root {root} of {ranks // groups} ranks: expected one of them"
        return ""

    def shown_factor(self, ranks: int) -> float:
        """What a goodput of so many ranks is multiplied by to be shown: to busbw for nccl-tests' collectives, or 1."""
        return 1.0 if self.algorithm_factor is None else float(self.bus_factor(ranks))

    @property
    def rooted(self) -> bool:
        """Whether one rank does what the others do not."""
        return bool(self.root)

    @property
    def latency_share(self) -> float:
        """What of its time is its latency: half of a round trip, else all."""
        return 0.5 if self.half_round_trip else 1.0

    @property
    def latency_words(self) -> str:
        """What that share of its time is, as axes and tables head it."""
        return "one-way latency" if self.half_round_trip else "time of one iteration"

    @property
    def pair(self) -> bool:
        """Whether it is of messages between the two ranks of a pair, or of one device with itself."""
        return self.ranks == "2" and not self.latency_only

    @property
    def one_way(self) -> bool:
        """Whether of a pair's messages all that are under way go one way."""
        return self.pair and self.lanes(2) == 1

    @property
    def both_ways(self) -> bool:
        """Whether a pair's messages go both ways at once."""
        return self.pair and self.lanes(2) == 2

    @property
    def counts_messages(self) -> bool:
        """Whether a goodput over m is messages a second: all of its messages are of m bytes, a window in flight."""
        return self.windowed and self.payload_bytes is _window

    @property
    def ways(self) -> int:
        """Of how many directions between two ends a goodput is the sum."""
        return max(len(self.host_ways), self.lanes(2) if self.pair else 1)

    @property
    def per_peer(self) -> bool:
        """Whether m is what goes to or comes from each other rank, so that goodput counts (n - 1) m."""
        return self.collective and self.payload_bytes is _to_others

    @property
    def to_each(self) -> bool:
        """Whether each rank has as many bytes of its own for each other."""
        return self.per_peer and not self.rooted and not self.distributed

    @property
    def to_next(self) -> bool:
        """Whether each rank has a message for the next."""
        return self.collective and self.size_means == "message"

    @property
    def block_of_each(self) -> bool:
        """Whether each rank gives or gets a block of every rank's."""
        return self.collective and self.blocks and not self.rooted

    @property
    def within_device(self) -> bool:
        """Whether it is a copy inside each device's own memory, by itself."""
        return self.own_memory and self.ranks == "1" and not self.computes

    @property
    def one_buffer(self) -> bool:
        """Whether one buffer ends on all or on the root, so that its bytes may be repeated or added up on the way."""
        return self.collective and self.size_means == "buffer"


def _one(n: int) -> Fraction:
    return Fraction(1)


def _block_share(n: int) -> Fraction:
    return Fraction(n - 1, n)


def _all_over_others(n: int) -> Fraction:
    return Fraction(n, n - 1) if n > 1 else Fraction(1)


def _whole(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(m)


def _block(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(m, n)


def _window(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(w * m)


def _to_others(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction((n - 1) * m)


def _blocks_to_others(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(m * (n - 1), n)


def _each(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(n * m)


def _halo_most(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(w * max(sent_and_received("halo", n, m, d)[0]))


def _halo_total(m: int, n: int, w: int, d: str = "") -> Fraction:
    return Fraction(w * sum(sent_and_received("halo", n, m, d)[0]))


def _all_ranks(n: int) -> tuple[Legs, Legs | None]:
    return (n, n), None


_TABLE = (
    # A ping-pong's time is half of its round trip: payload 2 m over the whole round trip.
    PatternTraits(
        "pingpong", "a message from the first to the second and back", "message", "starter",
        lambda m, n, w, d="": Fraction(2 * m), _one, _whole, lambda m, n, w, d="": Fraction(2 * m),
        ranks="2", half_round_trip=True, routed=True),
    PatternTraits(
        "unidirectional", "messages from the first to the second, a window in flight", "message", "sender",
        _window, _one, _window, _window,
        ranks="2", windowed=True, routed=True, link_ways="one"),
    PatternTraits(
        "bidirectional", "messages both ways at once, a window in flight each way", "message", "lanes",
        _window, _one, _window, lambda m, n, w, d="": Fraction(2 * w * m),
        ranks="2", lanes=lambda n: 2, windowed=True, routed=True, link_ways="both", legs=_all_ranks),
    # Disjoint pairs at once: ranks 0 and 1, 2 and 3, ...; each direction a lane, of a ping-pong each pair.
    PatternTraits(
        "pairs_pingpong", "ping-pongs of disjoint pairs at once", "message", "lanes",
        lambda m, n, w, d="": Fraction(2 * m), _one, _whole, _each,
        ranks="pairs", lanes=lambda n: n // 2, half_round_trip=True, side_by_side_of="pingpong"),
    PatternTraits(
        "pairs_unidirectional", "one way in disjoint pairs at once", "message", "lanes",
        _window, _one, _window, lambda m, n, w, d="": Fraction(w * m * (n // 2)),
        ranks="pairs", lanes=lambda n: n // 2, windowed=True, side_by_side_of="unidirectional"),
    PatternTraits(
        "pairs_bidirectional", "both ways in disjoint pairs at once", "message", "lanes",
        _window, _one, _window, lambda m, n, w, d="": Fraction(w * m * n),
        ranks="pairs", lanes=lambda n: n, windowed=True, side_by_side_of="bidirectional"),
    PatternTraits(
        "ring_shift", "from each to the next, at once", "message", "slowest",
        _whole, _one, _whole, _each,
        collective=True, algorithm_factor=_one, routed=True, link_ways="both", legs=_all_ranks),
    PatternTraits(
        "one_to_all", "from the root to each other, a message for each", "per peer", "root",
        _to_others, _one, _whole, _to_others,
        root="sends", collective=True, link_ways="one", legs=lambda n: ((0, n), (n * (n - 1), 0))),
    PatternTraits(
        "all_to_one", "from each other to the root", "per peer", "root",
        _to_others, _one, _whole, _to_others,
        root="receives", collective=True, link_ways="one", legs=lambda n: ((n, 0), (0, n * (n - 1)))),
    PatternTraits(
        "alltoall", "from each to each other, a message for each", "per destination", "slowest",
        _to_others, _one, _whole, lambda m, n, w, d="": Fraction(n * (n - 1) * m),
        collective=True, algorithm_factor=_all_over_others,
        link_ways="both", legs=lambda n: ((n * (n - 1), n * (n - 1)), None)),
    PatternTraits(
        "allreduce", "the sum of all buffers on each", "buffer", "slowest",
        _whole, lambda n: Fraction(2 * (n - 1), n), _whole, lambda m, n, w, d="": Fraction(2 * (n - 1) * m),
        reduces=True, collective=True, algorithm_factor=_one, link_ways="library", legs=_all_ranks),
    PatternTraits(
        "allgather", "the blocks of all on each", "total of n blocks", "slowest",
        _whole, _block_share, _block, _to_others,
        blocks=True, collective=True, algorithm_factor=_one, link_ways="library", legs=lambda n: ((1, n - 1), None)),
    PatternTraits(
        "reduce_scatter", "a block of the sum of all buffers on each", "total of n blocks", "slowest",
        _whole, _block_share, _block, _to_others,
        blocks=True, reduces=True, collective=True, algorithm_factor=_one,
        link_ways="library", legs=lambda n: ((n, 1), None)),
    PatternTraits(
        "broadcast", "the root's buffer on each", "buffer", "slowest",
        _whole, _one, _whole, _to_others,
        root="sends", collective=True, algorithm_factor=_one, legs=lambda n: ((0, n), (n, 0))),
    PatternTraits(
        "reduce", "the sum of all buffers on the root", "buffer", "slowest",
        _whole, _one, _whole, _to_others,
        root="receives", reduces=True, collective=True, algorithm_factor=_one, legs=lambda n: ((n, 0), (0, n))),
    PatternTraits(
        "gather", "the blocks of all on the root", "total of n blocks", "slowest",
        _whole, _block_share, _block, _blocks_to_others,
        blocks=True, root="receives", collective=True, algorithm_factor=_one,
        link_ways="one", legs=lambda n: ((1, 0), (0, n - 1))),
    PatternTraits(
        "scatter", "a block of the root's buffer on each", "total of n blocks", "slowest",
        _whole, _block_share, _block, _blocks_to_others,
        blocks=True, root="sends", collective=True, algorithm_factor=_one,
        link_ways="one", legs=lambda n: ((0, 1), (n - 1, 0))),
    PatternTraits(
        "alltoallv", "from each to each other, as much as a traffic matrix says", "mean per destination", "slowest",
        _to_others, _one, _whole, lambda m, n, w, d="": Fraction(n * (n - 1) * m),
        collective=True, distributed=True, spread_of="alltoall", link_ways="both"),
    PatternTraits(
        "halo", "between neighbors in a grid of ranks, at once", "message across a face", "slowest",
        _halo_most, _one, _window, _halo_total,
        collective=True, distributed=True, windowed=True, link_ways="both"),
    PatternTraits(
        "barrier", "a barrier: no rank leaves before all have entered", "-", "slowest",
        _whole, _one, _whole, _whole, collective=True, latency_only=True),
    PatternTraits(
        "application", "the steps of an application, as a step file has them", "-", "slowest",
        _whole, _one, _whole, _whole, collective=True, latency_only=True, scripted=True, variants=("graph",)),
    PatternTraits(
        "host_to_device", "from host memory into each device, at once", "per device", "slowest",
        _each, _one, _whole, _each, host_end="source", host_ways=("into",)),
    PatternTraits(
        "device_to_host", "from each device into host memory, at once", "per device", "slowest",
        _each, _one, _whole, _each, host_end="target", host_ways=("out",)),
    PatternTraits(
        "host_device_bidirectional", "between host memory and each device, both ways at once",
        "per device, each way", "slowest",
        lambda m, n, w, d="": Fraction(2 * n * m), _one, _whole, lambda m, n, w, d="": Fraction(2 * n * m),
        host_end="source", host_ways=("out", "into"), variants=("repeated",)),
    # One flow, the first rank's, while others of twice the size keep on beside it (nvbandwidth's bidirectional, all).
    PatternTraits(
        "host_to_device_contended", "from host memory into the first device while other copies run",
        "of the flow that is timed", "lanes", _whole, _one, _whole, _whole, host_end="source", alone="host_to_device",
        variants=("both_ways",)),
    PatternTraits(
        "device_to_host_contended", "from the first device into host memory while other copies run",
        "of the flow that is timed", "lanes", _whole, _one, _whole, _whole, host_end="target", alone="device_to_host",
        variants=("both_ways",)),
    PatternTraits(
        "local_copy", "a copy inside the device's own memory", "bytes copied", "lanes",
        _whole, _one, _whole, _whole, ranks="1", own_memory=True),
    PatternTraits(
        "stream_copy", "a copy in each device's memory or any other that it reaches, at once", "bytes copied",
        "slowest", _each, _one, _whole, _each, own_memory=True),
    PatternTraits(
        "host_stream", "a copy, or reads or writes alone, by the host's cores", "bytes copied, read or written",
        "lanes",
        _whole, _one, _whole, _whole, ranks="first", own_memory=True, by_cores=True,
        variants=("copy", "read", "write", "triad")),
    # Alone through its own or pinned memory; of two the first walks through memory of the second.
    PatternTraits(
        "pointer_chase", "loads of which each one waits for the one before", "bytes walked", "lanes",
        _whole, _one, _whole, _whole, ranks="1 or 2", latency_only=True, variants=("in_turn",)),
    PatternTraits(
        "flag_pingpong", "a flag that two kernels write for each other alternately", "-", "starter",
        _whole, _one, _whole, _whole, ranks="2", latency_only=True, half_round_trip=True, variants=("relaxed",)),
    PatternTraits(
        "empty_op", "an empty operation: what the measurement itself takes", "-", "lanes",
        _whole, _one, _whole, _whole, ranks="1", latency_only=True),
    PatternTraits(
        "gemm", "a matrix product on each device's multiprocessors", "each of three matrices", "lanes",
        _whole, _one, _whole, _whole, ranks="1", latency_only=True, own_memory=True, computes=True),
)  # fmt: skip

PATTERNS: dict[str, PatternTraits] = {one.name: one for one in _TABLE}

USUAL_MEMORY = {
    "host_to_device": ("pinned", "device"), "device_to_host": ("device", "pinned"),
    "host_device_bidirectional": ("pinned", "device"),
}  # fmt: skip
"""Source and target memory that screens leave out, where they are not the devices' own."""
PATTERN_ALIASES = {"sendrecv": "ring_shift", "bcast": "broadcast"}
"""What nccl-tests and OSU call some of the patterns."""

UNORDERED_FLAGS = ("relaxed", "device+p")
"""Variants of flag_pingpong whose flag orders nothing: no data can be handed over at their latency."""

STRIPED = "striped"
"""Variant of routed patterns that cuts a message in equal parts: one direct, one through each other device."""

REPEATED = "repeated"
"""Variant of host_device_bidirectional that copies each word 16 times in a row, over one pair of buffers."""

SIDE_BY_SIDE = {one.side_by_side_of: one.name for one in _TABLE if one.side_by_side_of}
"""Patterns of a pair, and of disjoint such pairs at once, which are measured only when asked (`--concurrent-pairs`)."""


def lanes_of(pattern_name: str, ranks: int, groups: int = 1) -> int:
    """Of how many lanes the goodput of a case is the sum: a pattern's directed flows, or groups side by side."""
    return groups if groups > 1 else PATTERNS[pattern_name].lanes(ranks)


def pattern(name: str) -> PatternTraits:
    """The row of a pattern; UsageError naming those there are for an unknown one."""
    try:
        return PATTERNS[name]
    except KeyError:
        raise UsageError(f"unknown pattern '{name}': expected one of {', '.join(PATTERNS)}") from None


PAIRS, COLLECTIVES, HOST_COPIES, MEMORY = GROUPS = ("pairs", "collectives", "host copies", "memory")


def group_of(pattern: str, devices: Collection[int]) -> str:
    """The group of GROUPS that a case is of, by which what was not judged or not measured is named; empty for none."""
    info = PATTERNS[pattern]
    if info.ranks in ("2", "1 or 2") and len(set(devices)) == 2:
        return PAIRS
    if info.algorithm_factor is not None:
        return COLLECTIVES
    return HOST_COPIES if info.host_end else MEMORY if info.within_device else ""


def group_words(group: str, noun: str) -> str:
    """A group in words; `noun`: what one of the devices is called."""
    return f"{noun} pairs" if group == PAIRS else group
