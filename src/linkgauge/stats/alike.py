"""Alike things as one thing: the cases of one class of devices as one row with its range, and who stands out of it.

    classes = CaseClasses(system, launches)              # of a run: its system (or None), its launches
    rows = class_rows(results, key=lambda one: (task of one, classes.of(one.case)),
                      value=lambda one: one.goodput_bytes_per_s,
                      half_width=lambda one: one.half_width)
    for row in rows:
        row.low, row.high, row.middle                    # 53.6e9, 54.0e9, 53.8e9
        row.odd                                          # members that differ beyond the noise, the farthest first

What is alike: docs/definitions.md, Classes. What is beyond the noise: `stands_out`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from linkgauge.model.case import NAMING_DEVICES, NAMING_NODES, Case
from linkgauge.model.device_words import device_words, numbers_text, pairs_text
from linkgauge.model.grouped import grouped
from linkgauge.model.place import Place
from linkgauge.model.result import Launch
from linkgauge.model.transports import TRANSPORTS, over_host
from linkgauge.stats.basics import NORMAL_MAD, median
from linkgauge.stats.launches import launch_devices
from linkgauge.system.classes import Classes, Scope
from linkgauge.system.model import System

LEAST_DIFFERENCE = 0.03
"""Members of a class that differ by less are alike, however sure the difference is."""
DEVIATIONS = 5.0
_LEAST_SCALE = 0.002
_UNKNOWN_HALF_WIDTH = 0.05
_SHOWN = 4

T = TypeVar("T")


class CaseClasses:
    """Which cases of a run are alike by where they run: a key that equal cases share."""

    def __init__(self, system: System | None, launches: Sequence[Launch]) -> None:
        """Take a run's system, None where it stored none, and its launches."""
        self._classes = None if system is None else Classes(system)
        self._known = frozenset() if system is None else frozenset(system.names_by_ordinal)
        self._hosts = {node.numa: node.name for node in system.hosts if node.numa is not None} if system else {}
        self._places: dict[int, Place] = {}
        self._memory_nodes: dict[int, Hashable] = {}
        for number, rank in launch_devices(launches).items():
            self._places[number] = Place(rank.host, rank.device_ordinal or 0)
            self._memory_nodes[number] = rank.memory_node
        self._held: dict[Hashable, Hashable] = {}

    def of(self, case: Case, scope: Scope | None = None) -> Hashable:
        """Return the class of a case. `scope` is that of `scope_of_case` unless one is given."""
        devices = case.devices
        more = tuple(getattr(case, name) for name in NAMING_DEVICES)
        nodes = tuple(getattr(case, name) for name in NAMING_NODES)
        scope = scope_of_case(case) if scope is None else scope
        key = (devices, more, nodes, scope)
        if key not in self._held:
            members = (*devices, *(device for device in more if device >= 0))
            given = tuple(device >= 0 for device in more)
            self._held[key] = (given, *self._of(members, nodes, scope))
        return self._held[key]

    def _of(self, members: Sequence[int], nodes: Sequence[int], scope: Scope | None) -> tuple[Hashable, ...]:
        """Nodes of a cluster are taken as alike; on each of them the members there are of a class together."""
        hosts: dict[str, list[int]] = {}
        pattern = []
        for member in members:
            host, ordinal = self._places.get(member, Place("", member))
            hosts.setdefault(host, []).append(ordinal)
            pattern.append(list(hosts).index(host))
        ends = [self._hosts.get(node, "") for node in nodes if node >= 0]
        found: list[Hashable] = [tuple(pattern)]
        for ordinals in hosts.values():
            if self._classes is not None and self._known.issuperset(ordinals):
                # In two scopes one key may come twice: of a bridged pair, and of GPUs at one processor.
                found.append(self._classes.scope_of(ordinals))
                found.append(self._classes.of(ordinals, scope=scope, hosts=[end for end in ends if end]))
            else:
                found.append(self._unknown(members, ordinals))
        return (*found, tuple(nodes)) if "" in ends else tuple(found)

    def _unknown(self, members: Sequence[int], ordinals: Sequence[int]) -> tuple[Hashable, ...]:
        """Devices of which the system knows nothing, as host devices: alike are those of one memory node."""
        by_ordinal = {self._places.get(m, Place("", m)).device: self._memory_nodes.get(m) for m in members}
        order = list(dict.fromkeys(ordinals))
        return tuple((order.index(ordinal), by_ordinal.get(ordinal)) for ordinal in ordinals)


def scope_of_case(case: Case) -> Scope | None:
    """Return which part of a system's graph a case's way may use; None: what joins its devices (`Classes.of`)."""
    memory = {case.source_memory, case.target_memory}
    if case.pattern.startswith(("host_", "device_to_host", "cpu_")) or memory != {"device"}:
        return "host"
    if over_host(case.transport, case.path):
        return "host"
    if len(set(case.devices)) == 1:
        return "device"
    traits = TRANSPORTS.get(case.transport)
    return "node" if traits is not None and traits.own_way else None


@dataclasses.dataclass(frozen=True)
class ClassRow(Generic[T]):
    """The cases of one class as one row.

    `members` in the order given, their `values` beside them; `odd` are those that stand out, the farthest first, and
    `shares` by how much (-0.2: a fifth below the middle of the others). `low` to `high` is the range and `middle` the
    median of the values of those that do not. `half_width` is that of the middle's 95 % interval over it: of the
    measurements' and of what members differ by, whichever is wider.
    """

    key: Hashable
    members: tuple[T, ...]
    values: tuple[float, ...]
    low: float
    high: float
    middle: float
    half_width: float
    odd: tuple[T, ...]
    shares: tuple[float, ...]

    @property
    def alike(self) -> bool:
        """Whether nothing stands out."""
        return not self.odd


def class_rows(
    cases: Iterable[T],
    *,
    key: Callable[[T], Hashable],
    value: Callable[[T], float | None],
    half_width: Callable[[T], float | None],
) -> list[ClassRow[T]]:
    """Join cases with equal keys to rows, in the order in which each key comes first.

    `value` is what is compared, above 0 (cases without one are left out); `half_width` is that of its 95 % interval as
    a share, None where it is not known.
    """
    groups = grouped((key(case), (case, measured)) for case in cases
                     if (measured := value(case)) is not None and measured > 0 and math.isfinite(measured))  # fmt: skip
    return [_row(found, group, half_width) for found, group in groups.items()]


def _row(key: Hashable, group: list[tuple[T, float]], half_width: Callable[[T], float | None]) -> ClassRow[T]:
    values = [measured for _, measured in group]
    widths = [_UNKNOWN_HALF_WIDTH if (w := half_width(case)) is None else w for case, _ in group]
    out = stands_out(values, widths)
    rest = [i for i in range(len(group)) if i not in out]
    kept = np.array([values[i] for i in rest])
    middle = median(kept)
    between = NORMAL_MAD * median(np.abs(np.log(kept) - math.log(middle))) * 1.96 / math.sqrt(len(kept))
    wide = max(between, float(np.median([widths[i] for i in rest])))
    odd, shares = tuple(group[i][0] for i in out), tuple(values[i] / middle - 1 for i in out)
    members = tuple(case for case, _ in group)
    return ClassRow(key, members, tuple(values), float(kept.min()), float(kept.max()), middle, wide, odd, shares)


def stands_out(values: Sequence[float], half_widths: Sequence[float]) -> list[int]:
    """Return which values lie apart from the rest beyond the noise, the farthest first.

    Sorted by their logarithms, values are split at the widest gap, and again what is left, as long as the gap is at
    least 3 % beyond the two values' own 95 % intervals and five deviations of the noise wide. The noise is the robust
    deviation of all from the middles of the two sides, widened for few of them, and no less than what the intervals
    say. The smaller side stands out; of two equal ones the lower (faults make slower: give rates, not times). Of two
    values alone none does, since it cannot be told which.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    widths = np.minimum(np.asarray(half_widths, dtype=np.float64), 1.0)
    rest = [int(i) for i in np.argsort(logs)]
    out: list[int] = []
    while len(rest) >= 3:
        kept = logs[rest]
        at = int(np.argmax(np.diff(kept))) + 1
        gap = float(kept[at] - kept[at - 1])
        below, above = kept[:at], kept[at:]
        within = np.abs(np.concatenate([below - median(below), above - median(above)]))
        deviation = NORMAL_MAD * median(within) * (1 + 2 / len(rest))
        noise = max(_LEAST_SCALE, deviation, float(np.median(widths[rest])) / 1.96)
        clear = gap - float(widths[rest[at]] + widths[rest[at - 1]])
        if clear < math.log1p(LEAST_DIFFERENCE) or gap < DEVIATIONS * noise:
            break
        apart, rest = (rest[:at], rest[at:]) if below.size <= above.size else (rest[at:], rest[:at])
        out += apart
    middle = median(logs[rest]) if rest else 0.0
    return sorted(out, key=lambda i: (-abs(float(logs[i]) - middle), i))


def members_text(members: Sequence[tuple[int, ...]], noun: str = "device") -> str:
    """Return which devices or tuples of them a row is of: `each of GPUs 0-3`, `GPU 0 - GPU 1`, `GPUs 0-3`.

    Of each member the ranks' devices in their order; what is the same twice is said once. `noun`: what one is called.
    """
    distinct = list(dict.fromkeys(members))
    lengths = {len(member) for member in distinct}
    if lengths == {1}:
        alone = [member[0] for member in distinct]
        return f"each of {noun}s {numbers_text(alone)}" if len(alone) > 1 else device_words(alone, noun)
    if lengths == {2} and len(distinct) > 1:
        ends = sorted({device for member in distinct for device in member})
        every = {(a, b) for a in ends for b in ends if a != b}
        if set(distinct) == every:
            both = f"{device_words(ends, noun)}, each direction"
            return f"all pairs of {noun}s {numbers_text(ends)}" if len(ends) > 2 else both
        if set(distinct) == {(a, b) for a, b in every if a < b}:
            return f"all pairs of {noun}s {numbers_text(ends)}, from the lower"
        if all(a == b for a, b in distinct):
            return f"inside {noun}s {numbers_text(ends)}"
        return pairs_text(distinct, noun)
    words = [device_words(member, noun) for member in distinct]
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN + 1 else ""
    return ", ".join(words[:_SHOWN] if more else words) + more
