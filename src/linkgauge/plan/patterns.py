"""What each pattern's size means, who keeps its time, and how many bytes must arrive.

Source: docs/definitions.md, Sizes and goodput.
m: size in bytes; n: ranks; W: window; t: time of one iteration in seconds. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

from linkgauge.errors import UsageError


@dataclasses.dataclass(frozen=True)
class PatternInfo:
    """One row of the table of patterns."""

    name: str
    size_means: str
    timekeeper: str  # starter | sender | root | lanes | slowest
    payload_bytes: Callable[[int, int, int], Fraction]  # (m, n, W) -> goodput's numerator; goodput = payload / t
    bus_factor: Callable[[int], Fraction]  # n -> bus bandwidth / goodput
    bytes_per_peer: Callable[[int, int, int], Fraction]  # (m, n, W)
    bytes_total: Callable[[int, int, int], Fraction]  # (m, n, W)
    blocks: bool = False  # m is cut into n blocks
    # "2": pairs (or one device with itself); "pairs": disjoint pairs side by side; "any"; "1": each alone; "1 or 2":
    # each, and pairs; "first": one alone.
    ranks: str = "any"
    reduces: bool = False
    rooted: bool = False
    latency_only: bool = False
    collective: bool = False
    lanes: Callable[[int], int] = lambda n: 1  # directed flows that the goodput of a case is the sum of


def _one(n: int) -> Fraction:
    return Fraction(1)


def _block_share(n: int) -> Fraction:
    return Fraction(n - 1, n)


def _whole(m: int, n: int, w: int) -> Fraction:
    return Fraction(m)


def _block(m: int, n: int, w: int) -> Fraction:
    return Fraction(m, n)


_TABLE = (
    # A ping-pong's time is half of its round trip: payload 2 m over the whole round trip.
    PatternInfo("pingpong", "message", "starter", lambda m, n, w: Fraction(2 * m), _one, _whole,
                lambda m, n, w: Fraction(2 * m), ranks="2"),
    PatternInfo("unidirectional", "message", "sender", lambda m, n, w: Fraction(w * m), _one,
                lambda m, n, w: Fraction(w * m), lambda m, n, w: Fraction(w * m), ranks="2"),
    PatternInfo("bidirectional", "message", "lanes", lambda m, n, w: Fraction(w * m), _one,
                lambda m, n, w: Fraction(w * m), lambda m, n, w: Fraction(2 * w * m), ranks="2",
                lanes=lambda n: 2),
    # Disjoint pairs at once: ranks 0 and 1, 2 and 3, ...; each direction a lane, of a ping-pong each pair.
    PatternInfo("pairs_pingpong", "message", "lanes", lambda m, n, w: Fraction(2 * m), _one, _whole,
                lambda m, n, w: Fraction(n * m), ranks="pairs", lanes=lambda n: n // 2),
    PatternInfo("pairs_unidirectional", "message", "lanes", lambda m, n, w: Fraction(w * m), _one,
                lambda m, n, w: Fraction(w * m), lambda m, n, w: Fraction(w * m * (n // 2)), ranks="pairs",
                lanes=lambda n: n // 2),
    PatternInfo("pairs_bidirectional", "message", "lanes", lambda m, n, w: Fraction(w * m), _one,
                lambda m, n, w: Fraction(w * m), lambda m, n, w: Fraction(w * m * n), ranks="pairs", lanes=lambda n: n),
    PatternInfo("ring_shift", "message", "slowest", _whole, _one, _whole,
                lambda m, n, w: Fraction(n * m), collective=True),
    PatternInfo("one_to_all", "per peer", "root", lambda m, n, w: Fraction((n - 1) * m), _one, _whole,
                lambda m, n, w: Fraction((n - 1) * m), rooted=True, collective=True),
    PatternInfo("all_to_one", "per peer", "root", lambda m, n, w: Fraction((n - 1) * m), _one, _whole,
                lambda m, n, w: Fraction((n - 1) * m), rooted=True, collective=True),
    PatternInfo("alltoall", "per destination", "slowest", lambda m, n, w: Fraction((n - 1) * m), _one, _whole,
                lambda m, n, w: Fraction(n * (n - 1) * m), collective=True),
    PatternInfo("allreduce", "buffer", "slowest", _whole, lambda n: Fraction(2 * (n - 1), n), _whole,
                lambda m, n, w: Fraction(2 * (n - 1) * m), reduces=True, collective=True),
    PatternInfo("allgather", "total of n blocks", "slowest", _whole, _block_share, _block,
                lambda m, n, w: Fraction((n - 1) * m), blocks=True, collective=True),
    PatternInfo("reduce_scatter", "total of n blocks", "slowest", _whole, _block_share, _block,
                lambda m, n, w: Fraction((n - 1) * m), blocks=True, reduces=True, collective=True),
    PatternInfo("broadcast", "buffer", "slowest", _whole, _one, _whole, lambda m, n, w: Fraction((n - 1) * m),
                rooted=True, collective=True),
    PatternInfo("reduce", "buffer", "slowest", _whole, _one, _whole, lambda m, n, w: Fraction((n - 1) * m),
                rooted=True, reduces=True, collective=True),
    PatternInfo("gather", "total of n blocks", "slowest", _whole, _block_share, _block,
                lambda m, n, w: Fraction(m * (n - 1), n), blocks=True, rooted=True, collective=True),
    PatternInfo("scatter", "total of n blocks", "slowest", _whole, _block_share, _block,
                lambda m, n, w: Fraction(m * (n - 1), n), blocks=True, rooted=True, collective=True),
    PatternInfo("host_to_device", "per device", "slowest", lambda m, n, w: Fraction(n * m), _one, _whole,
                lambda m, n, w: Fraction(n * m)),
    PatternInfo("device_to_host", "per device", "slowest", lambda m, n, w: Fraction(n * m), _one, _whole,
                lambda m, n, w: Fraction(n * m)),
    PatternInfo("host_device_both", "per device, each way", "slowest",
                lambda m, n, w: Fraction(2 * n * m), _one, _whole, lambda m, n, w: Fraction(2 * n * m)),
    # One flow, the first rank's, while others of twice the size keep on beside it (nvbandwidth's bidirectional, all).
    PatternInfo("host_to_device_beside", "of the flow that is timed", "lanes", _whole, _one, _whole, _whole),
    PatternInfo("device_to_host_beside", "of the flow that is timed", "lanes", _whole, _one, _whole, _whole),
    PatternInfo("local_copy", "bytes copied", "lanes", _whole, _one, _whole, _whole, ranks="1"),
    PatternInfo("stream_copy", "bytes copied", "slowest", lambda m, n, w: Fraction(n * m), _one, _whole,
                lambda m, n, w: Fraction(n * m)),
    PatternInfo("cpu_stream", "bytes copied, read or written", "lanes", _whole, _one, _whole, _whole, ranks="first"),
    # Alone through its own or pinned memory; of two the first walks through memory of the second.
    PatternInfo("chase", "bytes walked", "lanes", _whole, _one, _whole, _whole, ranks="1 or 2", latency_only=True),
    PatternInfo("flag_pingpong", "-", "starter", _whole, _one, _whole, _whole, ranks="2", latency_only=True),
    PatternInfo("floor", "-", "lanes", _whole, _one, _whole, _whole, ranks="1", latency_only=True),
)  # fmt: skip

WHAT = {
    "pingpong": "a message from the first to the second and back",
    "unidirectional": "messages from the first to the second, a window in flight",
    "bidirectional": "messages both ways at once, a window in flight each way",
    "pairs_pingpong": "ping-pongs of disjoint pairs at once",
    "pairs_unidirectional": "one way in disjoint pairs at once",
    "pairs_bidirectional": "both ways in disjoint pairs at once",
    "ring_shift": "from each to the next, at once",
    "one_to_all": "from the root to each other, a message for each",
    "all_to_one": "from each other to the root",
    "alltoall": "from each to each other, a message for each",
    "allreduce": "the sum of all buffers on each",
    "allgather": "the blocks of all on each",
    "reduce_scatter": "a block of the sum of all buffers on each",
    "broadcast": "the root's buffer on each",
    "reduce": "the sum of all buffers on the root",
    "gather": "the blocks of all on the root",
    "scatter": "a block of the root's buffer on each",
    "host_to_device": "from host memory into each device, at once",
    "device_to_host": "from each device into host memory, at once",
    "host_device_both": "between host memory and each device, both ways at once",
    "host_to_device_beside": "from host memory into the first device while other copies go on",
    "device_to_host_beside": "from the first device into host memory while other copies go on",
    "local_copy": "a copy inside the device's own memory",
    "stream_copy": "a copy in each device's memory or any other that it reaches, at once",
    "cpu_stream": "a copy, or reads or writes alone, by the host's cores",
    "chase": "loads of which each one waits for the one before",
    "flag_pingpong": "a flag that two kernels write for each other by turns",
    "floor": "an empty operation: what the measurement itself takes",
}
"""What each pattern does among a case's devices, in a few words. With --op other than sum: that instead of the sum."""

SIDE_BY_SIDE = {
    name.removeprefix("pairs_"): name for name in (info.name for info in _TABLE) if name.startswith("pairs_")
}
"""Patterns of a pair, and of disjoint such pairs at once, which are measured only when asked (`--concurrent-pairs`)."""

HALF_ROUND_TRIP = ("pingpong", "pairs_pingpong", "flag_pingpong")
"""Patterns whose time is of a round trip, and whose latency is half of it."""

ROUTED = ("pingpong", "unidirectional", "bidirectional", "ring_shift")
"""Patterns whose copies may go through a third device (dimension `via`)."""

PATTERNS: dict[str, PatternInfo] = {info.name: info for info in _TABLE}


def lanes_of(pattern_name: str, ranks: int, groups: int = 1) -> int:
    """Of how many lanes the goodput of a case is the sum: a pattern's directed flows, or groups side by side."""
    return groups if groups > 1 else PATTERNS[pattern_name].lanes(ranks)


def pattern(name: str) -> PatternInfo:
    """The row of a pattern; UsageError naming those there are for an unknown one."""
    try:
        return PATTERNS[name]
    except KeyError:
        raise UsageError(f"unknown pattern '{name}': expected one of {', '.join(PATTERNS)}") from None


def over_host(transport: str, path: str) -> bool:
    """Whether a case's bytes are asked to go over host links."""
    return transport == "staging" or path in ("pcie", "host")


ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "float8_e4m3": 1, "float8_e5m2": 1,
}  # fmt: skip


def restated_size(pattern: PatternInfo, size_asked: int, ranks: int, datatype: str) -> tuple[int, str]:
    """m as whole elements, and as n whole blocks where the pattern cuts blocks; with the reason where that is 0.

    Source: docs/definitions.md, Sizes and goodput.
    """
    element = ELEMENT_BYTES[datatype] if pattern.reduces or pattern.blocks else 1
    parts = ranks if pattern.blocks else 1
    block = size_asked // parts // element * element
    if block == 0 and not (size_asked == 0 and not pattern.blocks and not pattern.reduces):
        what = f"a block of {size_asked} bytes over {ranks} ranks" if pattern.blocks else f"{size_asked} bytes"
        return size_asked, f"{what} holds no whole {datatype} ({element} bytes)"
    return block * parts, ""
