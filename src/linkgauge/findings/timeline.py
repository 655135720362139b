"""The cases of a run in the order in which they ran, each beside what its siblings took.

Cases run in an order that a seed shuffles, so that what is always slow and what became slow at a moment look
different: docs/explanation/slow-links.md, What starts during the run. Only on one node, where all samples are of one
clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity
from linkgauge.stats.basics import NORMAL_MAD, Floats
from linkgauge.system.remembered import remembered

_LEAST_SCALE = 0.003
_LEAST_SIBLINGS = 3


@dataclasses.dataclass(frozen=True)
class Turn:
    """One case in one launch: when it ran (ns of the node's clock) and its time (ns of one iteration)."""

    measure: Measure
    identity: Identity
    start_ns: float
    end_ns: float
    time_ns: float


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Turns in order of time. Arrays have an entry a turn.

    `group` numbers turns that ought to take equally long, -1 where a turn has no siblings; `logs` are the logarithms of
    the times, `scale` the deviation of a group's noise as a share. `steady` is equal for turns that a part which is
    always slow would slow alike: the same devices in the same order, and for pairs the same way.
    """

    turns: tuple[Turn, ...]
    group: npt.NDArray[np.int64]
    logs: Floats
    scale: Floats

    @property
    def first_ns(self) -> float:
        """When the run's first sample began."""
        return self.turns[0].start_ns

    def of(self, device: int) -> npt.NDArray[np.bool_]:
        """Which turns a device takes part in."""
        return np.array([device in turn.measure.devices for turn in self.turns])


@remembered
def timeline(facts: Facts) -> Timeline | None:
    """Return the turns of a run on one node, None without samples of one clock."""
    turns = sorted(_turns(facts), key=lambda turn: turn.start_ns) if len(facts.hosts) <= 1 else []
    return _grouped(facts, turns) if turns else None


def _turns(facts: Facts) -> Iterable[Turn]:
    for measure in facts.measures:
        for identity, time in zip(measure.identities, measure.repeats, strict=True):
            held = facts.samples.of(identity)
            if held is not None and held.start_ns.size:
                end = float((held.start_ns + held.ns).max())
                yield Turn(measure, identity, float(held.start_ns.min()), end, time)


def _grouped(facts: Facts, turns: list[Turn]) -> Timeline:
    groups = grouped(((turn.measure.settings, turn.measure.size, facts.classes.of(turn.measure.case)), index)
                     for index, turn in enumerate(turns))  # fmt: skip
    logs = np.log(np.array([turn.time_ns for turn in turns]))
    group = np.full(len(turns), -1)
    scale = np.ones(len(turns))
    for number, members in enumerate(groups.values()):
        if len(members) < _LEAST_SIBLINGS or len({turns[i].measure.devices for i in members}) < 2:
            continue
        group[members] = number
        own = _shortest_half(np.sort(logs[members]))
        widths = float(np.median([turns[i].measure.half_width for i in members])) / 1.96
        scale[members] = max(_LEAST_SCALE, own, widths)
    return Timeline(tuple(turns), group, logs, scale)


def _shortest_half(ordered: Floats) -> float:
    """Deviation of the noise from the half of the values that lie closest together: what is slow is not among them."""
    half = max(3, (ordered.size + 1) // 2)
    reach = float((ordered[half - 1 :] - ordered[: ordered.size - half + 1]).min()) / 2
    return NORMAL_MAD * reach * (1 + 3 / ordered.size)
