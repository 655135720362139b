"""What the first look at a run needs, worked out once: for the report's head and for what `linkgauge run` prints."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from linkgauge.view.answer import TaskAnswer, answers
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.full_pairs import BOTH_WAYS, ONE_WAY, FullPairs, full_pairs
from linkgauge.view.reached import NodeRates, node_rates
from linkgauge.view.results import Results

if TYPE_CHECKING:
    from linkgauge.store.run import Run


class FirstLook:
    """A run's best of each task, its pairs at full size, and what its links carried."""

    def __init__(self, results: Results, ceilings: Ceilings) -> None:
        """Take what is known of the run; nothing is computed yet."""
        self.results, self.ceilings = results, ceilings
        self.kinds = results.kinds

    @classmethod
    def of(cls, run: Run) -> FirstLook:
        """Return the first look at a run."""
        return cls(Results(run), Ceilings(run))

    @functools.cached_property
    def answers(self) -> list[TaskAnswer]:
        """The best of each task."""
        return answers(self.results, self.ceilings)

    @functools.cached_property
    def one_way(self) -> FullPairs | None:
        """All pairs one way at full size; None where none was measured."""
        return full_pairs(self.results, self.ceilings, self.kinds, ONE_WAY)

    @functools.cached_property
    def both_ways(self) -> FullPairs | None:
        """All pairs both ways at full size; None where none was measured."""
        return full_pairs(self.results, self.ceilings, self.kinds, BOTH_WAYS)

    @functools.cached_property
    def node(self) -> NodeRates | None:
        """What the node's links carried; None where the system is not known."""
        return node_rates(self.results, self.ceilings, self.kinds, self.one_way)
