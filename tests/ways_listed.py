"""Ways over a graph listed one by one, and all at once by matrices: what any search must find."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from linkgauge.expect.graph import Wires
from linkgauge.expect.paths import length, shortest

Arc = tuple[str, str]
Path = tuple[str, ...]


def ways_from(arcs: Collection[Arc], source: str, passing: Collection[str] | None = None) -> Iterator[Path]:
    """Every way from a vertex that meets none twice and of whose inner vertices all are `passing`; itself first."""

    def further(path: Path) -> Iterator[Path]:
        yield path
        if len(path) == 1 or passing is None or path[-1] in passing:
            for tail, head in arcs:
                if tail == path[-1] and head not in path:
                    yield from further((*path, head))

    return further((source,))


def rate_over(arcs: Mapping[Arc, float], path: Path) -> float:
    """The rate of the narrowest arc of a path; infinite where it has none."""
    return min((arcs[arc] for arc in itertools.pairwise(path)), default=math.inf)


def hops_over(path: Path, inner: Collection[Arc] = ()) -> int:
    """How many arcs a path has, inner ones left out."""
    return sum(arc not in inner for arc in itertools.pairwise(path))


def fewest(ways: Iterable[Path], arcs: Mapping[Arc, float], inner: Collection[Arc] = ()) -> dict[str, list[Path]]:
    """By end: of the ways of fewest hops those that are, up to each of their vertices, as wide as any so short."""
    by_end: dict[str, list[Path]] = {}
    for way in ways:
        by_end.setdefault(way[-1], []).append(way)
    least = {end: min(hops_over(way, inner) for way in there) for end, there in by_end.items()}
    short = {end: [w for w in there if hops_over(w, inner) == least[end]] for end, there in by_end.items()}
    widest = {end: max(rate_over(arcs, way) for way in there) for end, there in short.items()}

    def wide_all_along(way: Path) -> bool:
        parts = [way[: place + 1] for place in range(len(way))]
        return all(hops_over(p, inner) == least[p[-1]] and rate_over(arcs, p) == widest[p[-1]] for p in parts)

    return {end: [way for way in there if wide_all_along(way)] for end, there in short.items()}


def by_matrix(
    arcs: Mapping[Arc, float], names: Sequence[str], passing: Collection[str] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hops (infinite where there is no way), the rate of the widest way so short, and of the widest of all.

    Products of matrices of the greatest least rate: walks of one hop more each time, of which the first that arrive are
    the shortest. Vertices that pass nothing on only begin and end walks.
    """
    place = {name: index for index, name in enumerate(names)}
    step = np.zeros((len(names), len(names)))
    for (tail, head), rate in arcs.items():
        step[place[tail], place[head]] = rate
    onward = step.copy()
    for name in names:
        if passing is not None and name not in passing:
            onward[place[name]] = 0.0
    hops, short = np.full(step.shape, np.inf), np.zeros(step.shape)
    np.fill_diagonal(hops, 0.0)
    walks, widest = step, step.copy()
    for count in range(1, len(names)):
        arrived = np.isinf(hops) & (walks > 0)
        hops[arrived], short[arrived] = count, walks[arrived]
        walks = np.stack([np.minimum(row[:, None], onward).max(axis=0) for row in walks])
        widest = np.maximum(widest, walks)
    return hops, short, widest


def hops(wires: Wires, source: str, target: str) -> int | None:
    """How many links the chosen shortest path has (0 to itself), None where there is no path."""
    path = (source,) if source == target else shortest(wires, source, target)
    return None if path is None else length(wires, path)


def hop_matrix(wires: Wires, ordinals: Iterable[int]) -> list[list[int | None]]:
    """The hops from each device to each other, in the order of `ordinals`."""
    names = [wires.devices[ordinal] for ordinal in ordinals]
    return [[hops(wires, a, b) for b in names] for a in names]
