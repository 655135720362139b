"""How much of a collective goes on while its ranks compute: variant `overlapped` of mpi (docs/definitions.md)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity
from linkgauge.run.rank.case_rows import OVERLAP
from linkgauge.stats import series
from linkgauge.stats.basics import median

if TYPE_CHECKING:
    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class Overlap:
    """Times in ns, each the mean over ranks of a rank's median: of the collective begun and waited for at once, of the
    computation, and of both together, from the begin to the end of the wait."""

    alone_ns: float
    compute_ns: float
    together_ns: float

    @property
    def share(self) -> float:
        """Which part of the collective cost no time beside the computation, from 0 to 1 (OSU's Overlap(%))."""
        return min(1.0, max(0.0, 1 - (self.together_ns - self.compute_ns) / self.alone_ns))


def overlaps(run: Run) -> dict[Identity, Overlap]:
    """By row identity; cases of other variants, and those without samples, are left out."""
    told = grouped(((one.identity, one.name), one.value) for one in run.observed_of(OVERLAP))
    found: dict[Identity, Overlap] = {}
    for identity, block in series.run_blocks(run) if told else ():
        apart = [told.get((identity, name), []) for name in ("alone", "compute")]
        own = block.only(block.measured)
        if not own.rank.size or not all(apart):
            continue
        times = own.ns / own.iterations
        of_ranks = [median(times[own.rank == rank]) for rank in np.unique(own.rank)]
        alone, compute, together = (float(np.mean(values)) for values in (*apart, of_ranks))
        if alone > 0:
            found[identity] = Overlap(alone, compute, together)
    return found
