"""An application on a described cluster: what its messages and collectives take from each other's links, by a rule.

All ranks' messages between the same two waits of the file are under way at once, as are the collectives that different
groups of ranks do at a step. Each such set is one stage of `linkgauge.simulate`: its time is that of the fullest link
under max-min fair shares, and the latency of the farthest message, where a source states one. Both ways of a port are
apart, as the ports of a fabric are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from linkgauge.apps.program import Program
from linkgauge.apps.rows import SEND, WAIT, Collective
from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.simulate.answer import laid_out, of_stages
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.traffic import stages

AT_THE_END = -1  # where an iteration waits for all, in place of a step of the file
Pairs = dict[tuple[int, int], float]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A fabric, where ranks are placed on it, and by which rule their bytes find their ways."""

    fabric: Fabric
    rule: Rule
    placement: Placement = dataclasses.field(default_factory=Placement)
    per_node: int = 0

    def exchanges(self, program: Program) -> Exchanges:
        """Of one program. UsageError where it has more ranks than the cluster."""
        return Exchanges(program, laid_out(self.fabric, len(program.ranks), self.placement, self.per_node), self.rule)


class Exchanges:
    """What a program's sets of messages and collectives take, in ns."""

    def __init__(self, program: Program, layout: Layout, rule: Rule) -> None:
        """Take a program, where its ranks are, and the rule."""
        self._layout, self._rule = layout, rule
        self._phases: dict[int, Pairs] = {}
        self._own: dict[tuple[int, int], float] = {}  # bytes that a rank sends in a phase, each row once
        for rank, one in enumerate(program.ranks):
            phase = AT_THE_END
            for row, step in zip(one.rows[::-1].tolist(), one.steps[::-1].tolist(), strict=True):
                if row[0] == WAIT:
                    phase = step
                elif row[0] == SEND:
                    pairs = self._phases.setdefault(phase, {})
                    pairs[rank, row[1]] = pairs.get((rank, row[1]), 0.0) + row[3]
                    for end in (rank, row[1]):
                        self._own[phase, end] = self._own.get((phase, end), 0.0) + row[3]
        self._groups: dict[object, set[tuple[int, ...]]] = {}
        for wanted in program.collectives:
            self._groups.setdefault(_alike(wanted), set()).add(wanted.ranks)
        self._times: dict[object, tuple[float, float]] = {}

    def messages_ns(self, rank: int, phase: int, amount: float) -> float:
        """Of all messages that end with this wait, of which a rank has so many bytes of its own, sent and received."""
        if phase not in self._times:
            self._times[phase] = self._of(phase, [_flows(self._phases.get(phase, {}))])
        latency, over = self._times[phase]
        own = self._own.get((phase, rank), 0.0)
        return latency + over * (amount / own if own else 1.0)

    def collective_ns(self, wanted: Collective) -> float:
        """Of a collective beside those that other ranks do at the same step."""
        groups = tuple(sorted(ranks for ranks in self._groups[_alike(wanted)] if ranks == wanted.ranks or
                              not set(ranks) & set(wanted.ranks)))  # fmt: skip
        key = (_alike(wanted), groups)
        if key not in self._times:
            self._times[key] = self._of(wanted.pattern, self._stages(wanted, groups))
        return sum(self._times[key])

    def _of(self, what: object, made: Sequence[Stage]) -> tuple[float, float]:
        """Latency and time of bytes in ns."""
        latency, seconds = of_stages(self._layout, made, self._rule)
        return latency * 1e9, seconds * 1e9

    def _stages(self, wanted: Collective, groups: tuple[tuple[int, ...], ...]) -> list[Stage]:
        count = len(wanted.ranks)
        rounds = (count - 1).bit_length()
        if wanted.pattern == "barrier":
            pairs = {(a, b): 1.0 for ranks in groups for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True)}
            return [dataclasses.replace(_flows(pairs), steps=rounds)]
        if count == self._layout.ranks:
            asked = Request(wanted.pattern, wanted.size, distribution=wanted.distribution, root=wanted.root)
            return stages(self._layout, asked)
        share, steps = _RINGS.get(wanted.pattern, (0.0, 0))
        pairs = {}
        for ranks in groups:
            if share:
                amount = wanted.size * share * (count - 1) / count
                pairs |= dict.fromkeys(zip(ranks, ranks[1:] + ranks[:1], strict=True), amount)
                continue
            for source, target, size in _listed(wanted, count):
                pairs[ranks[source], ranks[target]] = float(size)
        return [dataclasses.replace(_flows(pairs), steps=max(1, steps * (count - 1)))]


_RINGS = {"allreduce": (2.0, 2), "allgather": (1.0, 1), "reduce_scatter": (1.0, 1)}
"""Of m what each rank of a ring passes on, times (n - 1) / n, and in how many messages, times n - 1."""


def _listed(wanted: Collective, count: int) -> list[tuple[int, int, int]]:
    if PATTERNS[wanted.pattern].distributed:
        return [one for one in pair_bytes(wanted.pattern, count, wanted.size, wanted.distribution) if one[0] != one[1]]
    others = [rank for rank in range(count) if rank != wanted.root]
    size = wanted.size // count if PATTERNS[wanted.pattern].blocks else wanted.size
    match wanted.pattern:
        case "alltoall":
            return [(a, b, size) for a in range(count) for b in range(count) if a != b]
        case "broadcast" | "scatter":
            return [(wanted.root, rank, size) for rank in others]
        case "reduce" | "gather":
            return [(rank, wanted.root, size) for rank in others]
    raise UsageError(f"{wanted.pattern} of groups of ranks is not simulated")


def _alike(wanted: Collective) -> object:
    return wanted.pattern, wanted.size, wanted.distribution, wanted.begun, wanted.turn, len(wanted.ranks)


def _flows(pairs: Mapping[tuple[int, int], float]) -> Stage:
    table = np.array([(a, b) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return Stage(source=table[:, 0], target=table[:, 1], bytes=np.array(list(pairs.values()), dtype=float))
