"""A solver of its own for small fabrics: ways of each flow enumerated, its rate by textbook filling, link by link.

It shares no code with `linkgauge.simulate`: only the words of docs/definitions.md, Fabrics and routing rules.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

Ways = list[tuple[float, list[tuple]]]  # type: ignore[type-arg]  # the part of a flow, and the links on its way


@dataclasses.dataclass(frozen=True)
class Small:
    """A small fabric by its figures; the same words as the generators'."""

    kind: str
    groups: int
    nodes: tuple[int, ...]  # of each group
    gpus: int
    ports: int
    port_rate: float
    link_rate: float
    leaves: int
    homes: int
    block: int
    spines: int = 1
    up: int = 1  # links of a leaf to each spine
    pair: int = 1
    core: int = 1
    rows: int = 1

    def places(self) -> list[tuple[int, int]]:
        return [(g, i) for g, count in enumerate(self.nodes) for i in range(count)]

    def leaf(self, place: tuple[int, int], port: int) -> tuple[int, int]:
        return place[0], place[1] // self.block * self.homes + port % self.homes

    def routers(self, own: int, other: int) -> list[int]:
        """The router of each link from one group to another."""
        count = self.leaves if self.kind == "dragonfly" else self.spines
        ahead = (other - own) % self.groups
        return [((ahead - 1) * self.pair + i) % count for i in range(self.pair)]

    def inside(self, g: int, a: int, b: int) -> list[tuple]:  # type: ignore[type-arg]
        """Links between two leaves of a dragonfly's group: along the row, then along the column."""
        if a == b:
            return []
        columns = self.leaves // self.rows
        corner = a // columns * columns + b % columns
        return [("local", g, x, y) for x, y in ((a, corner), (corner, b)) if x != y]

    def capacity(self, link: tuple) -> float:  # type: ignore[type-arg]
        if link[0] in ("out", "in"):
            return self.port_rate
        if link[0] in ("up", "down"):
            return self.link_rate * self.up
        if link[0] in ("pod up", "pod down"):
            return self.link_rate * self.core
        if link[0] == "global":
            return self.link_rate * self.routers(link[1], link[3]).count(link[2])
        return self.link_rate

    def ways(self, s: tuple[int, int], t: tuple[int, int], direct: float) -> Ways:
        """All ways between two leaves, each with its part."""
        if s == t:
            return [(1.0, [])]
        (g, a), (h, b) = s, t
        if self.kind == "fat_tree":
            return list(self._tree(g, a, h, b))
        if g == h:
            if self.kind == "dragonfly":
                return [(1.0, self.inside(g, a, b))]
            return [(1 / self.spines, [("up", g, a, p), ("down", g, b, p)]) for p in range(self.spines)]
        found: Ways = []
        straight = direct if self.groups > 2 else 1.0
        if straight:
            for r, q in itertools.product(self.routers(g, h), self.routers(h, g)):
                links = [*self._to(g, a, r), ("global", g, r, h), *self._from(h, q, b)]
                found.append((straight / self.pair**2, links))
        if straight < 1:
            thirds = [k for k in range(self.groups) if k not in (g, h)]
            for k in thirds:
                part = (1 - straight) / len(thirds)
                for r, x, q in itertools.product(self.routers(g, k), self.routers(k, g), self.routers(h, k)):
                    each = part / self.pair**3
                    onward = self.routers(k, h)
                    for y in [x] if x in onward else onward:
                        share = each if x in onward else each / len(onward)
                        for hop_part, hop in self._across(k, x, y):
                            links = [*self._to(g, a, r), ("global", g, r, k), *hop, ("global", k, y, h)]
                            found.append((share * hop_part, [*links, *self._from(h, q, b)]))
        return found

    def _to(self, g: int, leaf: int, router: int) -> list[tuple]:  # type: ignore[type-arg]
        return self.inside(g, leaf, router) if self.kind == "dragonfly" else [("up", g, leaf, router)]

    def _from(self, g: int, router: int, leaf: int) -> list[tuple]:  # type: ignore[type-arg]
        return self.inside(g, router, leaf) if self.kind == "dragonfly" else [("down", g, leaf, router)]

    def _across(self, k: int, x: int, y: int) -> Ways:
        if x == y:
            return [(1.0, [])]
        if self.kind == "dragonfly":
            return [(1.0, self.inside(k, x, y))]
        return [(1 / self.leaves, [("down", k, leaf, x), ("up", k, leaf, y)]) for leaf in range(self.leaves)]

    def _tree(self, g: int, a: int, h: int, b: int) -> Iterator[tuple[float, list[tuple]]]:  # type: ignore[type-arg]
        for p in range(self.spines):
            if g == h:
                yield 1 / self.spines, [("up", g, a, p), ("down", g, b, p)]
            else:
                links = [("up", g, a, p), ("pod up", g, p), ("pod down", h, p), ("down", h, b, p)]
                yield 1 / self.spines, links


Flow = tuple[int, tuple[int, int], int, tuple[int, int], int, float]
"""A job, the node and port that it leaves, those that it enters, and its bytes."""


def finish_times(small: Small, flows: list[Flow], direct: float) -> dict[int, float]:
    """When each job's last flow is through, all begun at once, under max-min fair shares of flows."""
    names: dict[tuple, int] = {}  # type: ignore[type-arg]
    uses = []
    for _, s, sp, t, tp, _ in flows:
        parts: dict[int, float] = collections.defaultdict(float)
        for part, links in small.ways(small.leaf(s, sp), small.leaf(t, tp), direct):
            for link in (("out", s, sp), *links, ("in", t, tp)):
                parts[names.setdefault(link, len(names))] += part
        uses.append(parts)
    table = np.zeros((len(flows), len(names)))
    for row, parts in enumerate(uses):
        table[row, list(parts)] = list(parts.values())
    capacity = np.array([small.capacity(link) for link in names])
    left = np.array([flow[5] for flow in flows])
    job = np.array([flow[0] for flow in flows])
    ends: dict[int, float] = dict.fromkeys(job.tolist(), 0.0)
    now, going = 0.0, left > 0
    while going.any():
        rates = filled(table, capacity, going)
        step = float((left[going] / rates[going]).min())
        now += step
        over = going & (left <= rates * step * (1 + 1e-9))
        left = left - rates * step
        going &= ~over
        for number in job[over].tolist():
            ends[number] = now
    return ends


def filled(table: np.ndarray, capacity: np.ndarray, going: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Raise all rates together; where a link is full its flows stop; go on with the others."""
    rates = np.zeros(len(table))
    rising = going.copy()
    residual = capacity.astype(float).copy()
    while rising.any():
        wanted = table[rising].sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(wanted > 1e-12, residual / wanted, np.inf)
        link = int(share.argmin())
        stopped = rising & (table[:, link] > 0)
        rates[stopped] = share[link]
        residual = np.maximum(0.0, residual - table[stopped].sum(axis=0) * share[link])
        rising &= ~stopped
    return rates
