"""Which of many nodes is slow: rounds of groups that are compared with each other, each chosen by what is known.

A group's collective is as slow as its slowest node. So each round tests many nodes at once (Dorfman 1943, The Detection
of Defective Members of Large Populations). What is known is a probability for each node that it alone is slow, and for
none: noisy binary search as by Horstein 1963 (Sequential Transmission Using Noiseless Feedback) and Ben-Or and
Hassidim 2008 (The Bayesian Learner is Optimal for Noisy Binary Search).
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from linkgauge.errors import UsageError
from linkgauge.stats.basics import Floats

HALVES, PAIRS = "halves", "pairs"
SURE = 0.99
"""Probability from which on a node, or none, is named."""
LEAST_NODES = 4
Group = tuple[str, ...]
_NONE = 0.5  # probability before any round that no node is slow
_OUTLIERS = 0.02  # share of measurements that show nothing: other users, a retransmission
# Of the logarithm of an outlier's time. A pair is measured a few times, so that outliers near the losses sought count.
_WIDTHS = {HALVES: 6.0, PAIRS: 1.0}
_LOSSES = 8  # that a slow node may have, from the one that is sought up to 95 %
_LEAST_ROUNDS = 3  # before a node or none is named: a single outlier is none of either
_PAIRS_MORE = 3  # rounds of pairs beyond these


@dataclasses.dataclass(frozen=True)
class Rounds:
    """How many rounds a search takes: `usual` in all but few cases, and `most`."""

    usual: int
    most: int


def rounds_for(nodes: int, loss: float, noise: float, by: str) -> Rounds:
    """Return the rounds of a search. `loss`, `noise`: of rate, and of a group's time from launch to launch, as shares.

    A round of halves errs with p = Phi(-d / (2 sqrt(2) noise)), d = -ln(1 - loss), and yields C = 1 - H(p) bits: of N
    nodes and none log2(N + 1) / C rounds (Ben-Or and Hassidim 2008, theorem 1.1), and one for SURE. At most 2 log2 N.
    """
    if by == PAIRS:
        return Rounds(_LEAST_ROUNDS, _LEAST_ROUNDS + _PAIRS_MORE)
    most = max(3, 2 * math.ceil(math.log2(nodes)))
    p = float(scipy.special.ndtr(math.log(1 - loss) / (2 * math.sqrt(2) * noise)))
    entropy = -sum(x * math.log2(x) for x in (p, 1 - p) if x > 0)
    return Rounds(min(most, math.ceil(math.log2(nodes + 1) / max(1 - entropy, 1e-9)) + 1), most)


def refuse_few(nodes: int) -> None:
    """UsageError for fewer than LEAST_NODES nodes."""
    if nodes < LEAST_NODES:
        noun = "node" if nodes == 1 else "nodes"
        raise UsageError(f"{nodes} {noun}: expected {LEAST_NODES} or more, so that groups can be compared")


class Search:
    """A search among nodes. Each round: `groups`, measure them, `observe`; until `ended`."""

    def __init__(self, nodes: Sequence[str], loss: float, noise: float, by: str = HALVES, seed: int = 1) -> None:
        """Seek a node that loses `loss` of its rate or more. UsageError for fewer than LEAST_NODES nodes."""
        refuse_few(len(nodes))
        self.nodes = tuple(nodes)
        self.gone: dict[str, str] = {}
        self.rounds = 0
        self.by = by
        self._noise = noise
        self._shifts = -np.log(1 - np.linspace(loss, 0.95, _LOSSES))
        self._random = random.Random(seed)
        self._evidence = dict.fromkeys(nodes, 0.0)  # logarithm of how much likelier a slow node there is than none
        self._limit = rounds_for(len(nodes), loss, noise, by).most

    @property
    def left(self) -> list[str]:
        """The nodes that still answer."""
        return [node for node in self.nodes if node not in self.gone]

    def drop(self, node: str, why: str) -> None:
        """Continue without a node that does not answer."""
        self.gone[node] = why

    def groups(self) -> list[Group]:
        """Return the groups of the next round: of equal size, with as much suspicion in each as can be.

        A collective's time depends on the number of nodes: of an odd number the least suspected node pauses. Nodes of
        equal suspicion are drawn, so that rounds test different groups. Of pairs the most suspected half meets the
        least suspected one.
        """
        order = self.left
        self._random.shuffle(order)
        order.sort(key=lambda node: -self._evidence[node])
        half = len(order) // 2
        if self.by == PAIRS:
            others = order[half : 2 * half]
            return list(zip(order[:half], others, strict=True))
        order = order[: 2 * half]
        first = [node for at, node in enumerate(order) if at % 4 in (0, 3)]
        second = [node for at, node in enumerate(order) if at % 4 in (1, 2)]
        return [tuple(first), tuple(second)]

    def observe(self, times: Mapping[Group, float | None]) -> None:
        """Take a round's times in ns; None of a group that could not be measured."""
        self.rounds += 1
        known = {group: math.log(time) for group, time in times.items() if time is not None}
        if len(known) < 2:
            return
        middle = float(np.median([*known.values()]))
        # Of two groups each is compared with the other; of many, against their median, which has little noise.
        deviation = self._noise * math.sqrt(1 + (1 if len(known) == 2 else math.pi / 2 / len(known)))
        for group, value in known.items():
            level = 2 * middle - value if len(known) == 2 else middle
            usual = self._likelihood(np.array([value - level]), deviation)
            slow = self._likelihood(value - level - self._shifts, deviation)
            for node in group:
                self._evidence[node] += math.log(slow / usual)

    def _likelihood(self, distances: Floats, deviation: float) -> float:
        density = np.exp(-0.5 * (distances / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        return float(np.mean((1 - _OUTLIERS) * density + _OUTLIERS / _WIDTHS[self.by]))

    def probabilities(self) -> dict[str, float]:
        """Return how likely each node is the slow one; of halves one alone, or none, of pairs each by itself."""
        prior = math.log((1 - _NONE) / _NONE / len(self.nodes))
        odds = {node: math.exp(min(600.0, prior + self._evidence[node])) for node in self.left}
        whole = sum(odds.values()) + 1
        return {node: one / (1 + one if self.by == PAIRS else whole) for node, one in odds.items()}

    @property
    def slow(self) -> list[str]:
        """The nodes that are named, the surest first."""
        found = self.probabilities() if self.rounds >= _LEAST_ROUNDS else {}
        return sorted((node for node, one in found.items() if one >= SURE), key=lambda node: -found[node])

    @property
    def suspects(self) -> list[str]:
        """The nodes that are likeliest to be slow, where none is named."""
        found = self.probabilities()
        least = max(found.values(), default=0.0) / 20
        return sorted((node for node, one in found.items() if one >= least), key=lambda node: -found[node])

    @property
    def cleared(self) -> bool:
        """Whether all nodes that are left are cleared."""
        found = self.probabilities().values()
        doubt = max(found, default=0.0) if self.by == PAIRS else sum(found)
        return doubt <= 1 - SURE and self.rounds >= _LEAST_ROUNDS

    @property
    def ended(self) -> bool:
        """Whether a node is named and no other suspected, all are cleared, or the rounds are used up."""
        if self.rounds >= self._limit or len(self.left) < LEAST_NODES:
            return True
        unsure = self.by == PAIRS and any(1 - SURE < one < SURE for one in self.probabilities().values())
        return self.cleared or (bool(self.slow) and not unsure)
