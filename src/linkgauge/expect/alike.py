"""Vertices and arcs that a family of flows cannot tell apart: what is alike stands in a program once.

One flow goes from (or to) each of several ends, and all share the arcs. Color refinement, over all of them at once,
gives every vertex a class as each end sees it, and every arc, vertex and end one over all flows. These classes are an
equitable partition of the linear programs of `flows` and of the cuts' max flows: in each, a row has as much of every
class of columns as the other rows of its own class, and a column of every class of rows. So the program with one row
and column a class has the same optimum, and its solution, spread evenly over each class, is one of the whole program
(Grohe, Kersting, Mladenov and Selman 2014, Dimension Reduction via Color Refinement, Theorem 4.1). No automorphism is
looked for. Where nothing is alike, nothing is saved and nothing lost.

Classes are told apart by sums of 64 bits: of a million of them two would be taken for one with a chance of 3e-8.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linkgauge.expect.graph import Wires
from linkgauge.system.remembered import remembered

_AT_ONCE = 1 << 15  # flows x arcs that are looked at together: 256 KiB for each of some temporary arrays


Group = tuple[int, int, int, int]
"""Arcs that are alike: the places of their tails and of their heads, their class over all flows, how many they are."""


@dataclass(frozen=True)
class Flow:
    """A flow from or to one end, over classes of vertices, its places: `places[v]` is that of vertex v.

    It is flow `number` of its family; `count` of them are like it. `end` is a vertex (-1: none). `groups` leaves out
    arcs inside a place, which a flow that is spread evenly does not use.
    """

    number: int
    count: int
    end: int
    places: Any
    groups: tuple[Group, ...]

    @functools.cached_property
    def sizes(self) -> dict[int, int]:
        """How many vertices each place has."""
        return dict(zip(*(found.tolist() for found in np.unique(self.places, return_counts=True)), strict=True))

    @functools.cached_property
    def member(self) -> dict[int, int]:
        """A vertex of each place."""
        return dict(zip(*(found.tolist() for found in np.unique(self.places, return_index=True)), strict=True))

    @property
    def end_place(self) -> int:
        """The place of the end, which is alone there; -1 for none."""
        return -1 if self.end < 0 else int(self.places[self.end])


@dataclass(frozen=True)
class Alike:
    """The classes of a family of flows.

    Vertices and arcs are numbered as in `Wires.vertices` and `Wires.arcs`. `arc_class[a]` and `vertex_class[v]` are of
    all flows together; `seen[f, v]` is vertex v's place in flow f, `flow_class[f]` the class of that flow.
    """

    ends: tuple[int, ...]
    tails: Any
    heads: Any
    arc_class: Any
    vertex_class: Any
    flow_class: Any
    seen: Any

    @property
    def flows(self) -> Iterator[Flow]:
        """One flow of each class, in the order of their ends; each is made when it is come to."""
        _, first, counts = np.unique(self.flow_class, return_index=True, return_counts=True)
        for number, count in sorted(zip(first.tolist(), counts.tolist(), strict=True)):
            yield self._flow(number, count)

    def _flow(self, number: int, count: int) -> Flow:
        known, places = np.unique(self.seen[number], return_inverse=True)
        tails, heads = places[self.tails], places[self.heads]
        kinds = len(known), len(known), len(self.arcs)
        keys = np.ravel_multi_index((tails, heads, self.arc_class), kinds)[tails != heads]
        found, counts = np.unique(keys, return_counts=True)
        groups = tuple(zip(*(part.tolist() for part in np.unravel_index(found, kinds)), counts.tolist(), strict=True))
        return Flow(number, count, self.ends[number], places, groups)

    @functools.cached_property
    def arcs(self) -> list[int]:
        """An arc of each class."""
        found: list[int] = np.unique(self.arc_class, return_index=True)[1].tolist()
        return found

    @functools.cached_property
    def arc_counts(self) -> list[int]:
        """How many arcs each class has."""
        found: list[int] = np.unique(self.arc_class, return_counts=True)[1].tolist()
        return found


def alike(
    wires: Wires,
    ends: Sequence[str | None],
    labels: Mapping[str, Hashable] | None = None,
    arcs: Mapping[tuple[str, str], Hashable] | None = None,
) -> Alike:
    """Return what flows, one for each of `ends` (None: one that has none), cannot tell apart.

    `labels` are what tells vertices apart beside their arcs, `arcs` what tells arcs apart beside their capacity.
    """
    of_vertices = _counted([(labels or {}).get(vertex) for vertex in wires.vertices])
    of_arcs = _counted([(rate, (arcs or {}).get(arc)) for arc, rate in wires.arcs.items()])
    return _alike(wires, tuple(ends), of_vertices, of_arcs)


@remembered
def _alike(wires: Wires, ends: Sequence[str | None], of_vertices: tuple[int, ...], of_arcs: tuple[int, ...]) -> Alike:
    return _of(wires, ends, of_vertices, of_arcs, None)


def alike_but(wires: Wires, ends: Sequence[str], marks: Any) -> Alike:
    """Return the same where `marks[f, v]`, a number, is what vertex v is to flow f alone."""
    return _of(wires, ends, [0] * len(wires.vertices), _counted(list(wires.arcs.values())), marks)


def _of(
    wires: Wires, ends: Sequence[str | None], of_vertices: Sequence[int], of_arcs: Sequence[int], marks: Any
) -> Alike:
    number = {name: i for i, name in enumerate(wires.vertices)}
    tails = np.array([number[tail] for tail, _ in wires.arcs], dtype=np.int64)
    heads = np.array([number[head] for _, head in wires.arcs], dtype=np.int64)
    at = np.array([-1 if end is None else number[end] for end in ends], dtype=np.int64)
    colors = np.tile(np.array(of_vertices, dtype=np.uint64), (len(at), 1))
    if marks is not None:
        colors += np.asarray(marks, dtype=np.float64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    known = np.flatnonzero(at >= 0)
    colors[known, at[known]] += np.uint64(0xD1B54A32D192ED03)
    colors, *others = _refined(tails, heads, _mixed(colors), _mixed(np.array(of_arcs, dtype=np.uint64)))
    arc_class, vertex_class, flow_class = (_numbered(values) for values in others)
    return Alike(tuple(at.tolist()), tails, heads, arc_class, vertex_class, flow_class, _numbered(colors))


def _refined(tails: Any, heads: Any, colors: Any, of_arcs: Any) -> tuple[Any, Any, Any, Any]:
    """Return the coarsest stable colors: of vertices as each flow sees them, of arcs, vertices and flows over all.

    Every round looks at each arc of each flow, some rows at once that fit into a core's cache: 20 ns an arc.
    """
    by_tail, by_head = np.argsort(tails, kind="stable"), np.argsort(heads, kind="stable")
    with_out, first_out = np.unique(tails[by_tail], return_index=True)
    with_in, first_in = np.unique(heads[by_head], return_index=True)
    step = max(1, _AT_ONCE // max(1, len(tails)))
    count = 0, 0
    while True:
        of_flows = _mixed(colors.copy()).sum(axis=1, dtype=np.uint64)
        of_vertices = _mixed(colors + np.uint64(3)).sum(axis=0, dtype=np.uint64)
        further = _mixed(colors + 5 * of_flows[:, None] + 7 * of_vertices)
        over = np.zeros(len(tails), dtype=np.uint64)
        for first in range(0, len(colors) if len(tails) else 0, step):
            part = slice(first, first + step)
            ahead = _mixed((3 * colors[part])[:, heads] + of_arcs)
            behind = _mixed((5 * colors[part])[:, tails] + of_arcs)
            further[part, with_out] += np.add.reduceat(ahead[:, by_tail], first_out, axis=1)
            further[part, with_in] += 3 * np.add.reduceat(behind[:, by_head], first_in, axis=1)
            ahead += 3 * behind
            over += _mixed(ahead).sum(axis=0, dtype=np.uint64)
        colors, of_arcs = _mixed(further), _mixed(of_arcs + 3 * over)
        now = _classes(colors), len(np.unique(of_arcs))
        if now == count:
            return colors, of_arcs, of_vertices, of_flows
        count = now


def _classes(colors: Any) -> int:
    """Return how many classes of flow and vertex there are.

    Flows that see as many vertices of each color are alike, so one of each class is counted: a thousandth of them all
    where a thousand are alike.
    """
    _, first = np.unique(_mixed(colors.copy()).sum(axis=1, dtype=np.uint64), return_index=True)
    return sum(len(np.unique(colors[row])) for row in first.tolist())


def _mixed(values: Any) -> Any:
    """Scatter whole numbers over all 64 bits, in place, so that their sums tell sets apart (as splitmix64 does)."""
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(32)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(29)
    return values


def _counted(values: Sequence[Hashable]) -> tuple[int, ...]:
    """Return a number for each value, equal ones for equal values, from 1 on in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(value, len(numbers) + 1) for value in values)


def _numbered(values: Any) -> Any:
    _, numbers = np.unique(values, return_inverse=True)
    return numbers.reshape(values.shape)
