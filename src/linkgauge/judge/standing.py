"""Where a node, device, link or group stands among its siblings, and from what on it is an outlier.

Apart from what reads runs: a fleet's history is asked without it, and importing that takes longer than the answer.
"""

from __future__ import annotations

import dataclasses

LEAST_NODES = 4
LEAST_SHARE = 0.03
LEAST_SCALE = 0.003
DEVIATIONS = 5.0


@dataclasses.dataclass(frozen=True)
class Standing:
    """One node or device of the fleet: how much slower than its siblings' its cases are, and at how many deviations."""

    kind: str  # node | device | pair
    name: str
    identity: str
    run: str
    share: float
    score: float
    cases: int
    devices: tuple[int, ...] = ()  # of a device or pair

    @property
    def outlier(self) -> bool:
        """Whether it is slower than its siblings by 3 % and by five robust deviations."""
        return self.share >= LEAST_SHARE and self.score >= DEVIATIONS
