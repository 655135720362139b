"""Whether a case between nodes is alive though no sample has ended: its nodes' network cards go on counting its bytes.

How long an operation over a network takes the parent cannot know before one has ended: what a card says it could carry
is not what the way carries. So a silent case is not hung while bytes that it still needs go on crossing. Others' bytes
are counted too, and the ranks' own talk: what is more than the sample needs, or too little to be of it, tells nothing.
"""

from __future__ import annotations

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS

_MOST = 3  # times a sample's bytes: a node sends and receives, with headers, and a library may repeat or go around
_LEAST_STEP = 1 << 16  # bytes; nodes tell the parent of their ranks at some 400 B a second
_LEAST_SHARE = 0.002  # of a sample's bytes, for which a way has as long as the patience: 83 minutes a sample


class CrossingWatch:
    """Follows what the cards of the case in hand count, from one heartbeat of its ranks to the next."""

    def __init__(self) -> None:
        """Nothing is in hand."""
        self._at = self._from = -1  # bytes counted; -1: not told yet since the last heartbeat
        self._moved_at = 0.0

    def beat(self) -> None:
        """A sample has ended, or another part of the case begun."""
        self._at = self._from = -1

    def moved_at(self, case: Case, crossed: int, now: float) -> float:
        """When bytes of the sample in hand last crossed, as far as `crossed`, all that was counted so far, tells."""
        if not crossed:
            return 0.0  # no card was read, or no node but the parent's is there
        if self._from < 0:
            self._at = self._from = crossed
            self._moved_at = 0.0
        needs = sample_bytes(case)
        step = max(_LEAST_STEP, _LEAST_SHARE * needs)
        if crossed - self._at >= step and crossed - self._from <= _MOST * needs:
            self._at, self._moved_at = crossed, now
        return self._moved_at


def sample_bytes(case: Case) -> float:
    """Payload bytes of all ranks in one sample; 0 of an application, whose steps are not added up here."""
    traits = PATTERNS[case.pattern]
    if traits.scripted:
        return 0.0
    total = traits.bytes_total(case.size, max(case.group_ranks, 1), case.window, case.distribution)
    return float(total) * case.groups * (case.batch if case.cadence in ("streaming", "gated") else 1)
