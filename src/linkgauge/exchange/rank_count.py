"""How many ranks took part, where a log prints a bandwidth and not their number."""

from __future__ import annotations

import bisect
import functools
from fractions import Fraction

from linkgauge.exchange.other_names import OSU_PER_BLOCK
from linkgauge.model.patterns import PATTERNS

_MOST_RANKS = 4096


def ranks_by_factor(pattern: str, factor: float, share: float, *, per_block: bool = False) -> int:
    """The one number of ranks by which bus bandwidth is `factor` times size over time; 0 where it is not just one.

    `share`: by how much the factor may be off, of itself. `per_block`: the size is one rank's block of those patterns
    that cut blocks or gather them, as OSU has it; else that of nccl-tests.
    """
    # A file may have thousands of collectives: factors are found once, and rise with the ranks.
    known = _factors(pattern, per_block)
    low = bisect.bisect_left(known, factor * (1 - share))
    high = bisect.bisect_right(known, factor * (1 + share))
    return low + 2 if high - low == 1 else 0


@functools.cache
def _factors(pattern: str, per_block: bool) -> list[float]:
    """Of 2 ranks and more."""
    info = PATTERNS[pattern]
    if info.algorithm_factor is None:
        return []

    def factor(n: int) -> Fraction:
        assert info.algorithm_factor is not None
        if per_block:
            return info.payload_bytes(n if pattern in OSU_PER_BLOCK else 1, n, 1) * info.bus_factor(n)
        return info.bus_factor(n) / info.algorithm_factor(n)

    return [float(factor(n)) for n in range(2, _MOST_RANKS)]
