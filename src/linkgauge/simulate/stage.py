"""A stage of a pattern: what ranks send each other at once, in a form that 10^5 ranks take.

A stage is what is under way at once: pairs whose bytes are a product of what the two ranks weigh (an alltoall is one
such term, however many ranks it has), single flows, and what stays inside NVLink domains.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from linkgauge.model.patterns import PATTERNS
from linkgauge.simulate.arrays import Floats, Ints

_NONE_I: Ints = np.zeros(0, dtype=np.int64)
_NONE_F: Floats = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class Term:
    """Rank i sends a[i] b[j] bytes to each other rank j."""

    a: Floats
    b: Floats

    @property
    def total(self) -> float:
        """Bytes that all ranks send to others."""
        return float(self.a.sum() * self.b.sum() - (self.a * self.b).sum())


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is under way at once. It is done `times` over, and in `steps` messages one after the other each time."""

    terms: tuple[Term, ...] = ()
    source: Ints = dataclasses.field(default_factory=lambda: _NONE_I)
    target: Ints = dataclasses.field(default_factory=lambda: _NONE_I)
    bytes: Floats = dataclasses.field(default_factory=lambda: _NONE_F)
    inside: Floats = dataclasses.field(default_factory=lambda: _NONE_F)  # of each rank, in its domain, each way
    times: int = 1
    steps: int = 1
    inside_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Request:
    """A pattern as it is asked for. `size` is m."""

    pattern: str
    size: int
    algorithm: str = ""
    distribution: str = ""
    root: int = 0
    seed: int = 0

    def payload(self, n: int) -> float:
        """Bytes that goodput counts, as for the measured pattern; m for those that are simulated only."""
        traits = PATTERNS.get(self.pattern)
        if self.pattern in ONLY_SIMULATED or traits is None:
            return float(self.size)
        return float(traits.payload_bytes(self.size, n, 1, self.distribution))


ONLY_SIMULATED = {
    "permutation": "each rank sends to one other and receives from one, drawn by the seed",
    "random_pairs": "ranks in pairs drawn by the seed, both ways",
    "worst_pairs": "rank i and rank i + n/2 exchange: whole groups send to one other group where ranks are packed",
}
"""Patterns that are simulated and not measured, with what each does."""


def flows(source: Ints, target: Ints, size: float, times: int = 1) -> Stage:
    """A stage of single flows of one size; a rank sends nothing to itself."""
    kept = source != target
    return Stage(source=source[kept], target=target[kept], bytes=np.full(int(kept.sum()), float(size)), times=times)
