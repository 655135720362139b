"""What ranks send each other, as stages: the same patterns that are measured, in a form that 10^5 ranks take.

A stage is what is under way at once: pairs whose bytes are a product of what the two ranks weigh (an alltoall is one
such term, however many ranks it has), single flows, and what stays inside NVLink domains. Tests hold the stages of
small counts against the core's own schedules. m: size in bytes; n: ranks (docs/definitions.md, Sizes and goodput).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from linkgauge.errors import UsageError, nearest
from linkgauge.model.patterns import PATTERNS, pair_bytes
from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.layout import Layout

_MOST_PAIRS = 4_000_000  # of which the core lists each
_NONE_I: Ints = np.zeros(0, dtype=np.int64)
_NONE_F: Floats = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class Term:
    """Rank i sends a[i] b[j] bytes to each other rank j."""

    a: Floats
    b: Floats


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is under way at once. It is done `times` over, and in `steps` messages one after the other each time."""

    terms: tuple[Term, ...] = ()
    source: Ints = dataclasses.field(default_factory=lambda: _NONE_I)
    target: Ints = dataclasses.field(default_factory=lambda: _NONE_I)
    bytes: Floats = dataclasses.field(default_factory=lambda: _NONE_F)
    inside: Floats = dataclasses.field(default_factory=lambda: _NONE_F)  # of each rank, in its domain, each way
    times: int = 1
    steps: int = 1
    inside_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Request:
    """A pattern as it is asked for. `size` is m."""

    pattern: str
    size: int
    algorithm: str = ""
    distribution: str = ""
    root: int = 0
    seed: int = 0

    def payload(self, n: int) -> float:
        """Bytes that goodput counts, as for the measured pattern; m for those that are simulated only."""
        traits = PATTERNS.get(self.pattern)
        if self.pattern in _ONLY_HERE or traits is None:
            return float(self.size)
        return float(traits.payload_bytes(self.size, n, 1, self.distribution))


_ONLY_HERE = {
    "permutation": "each rank sends to one other and receives from one, drawn by the seed",
    "random_pairs": "ranks in pairs drawn by the seed, both ways",
    "worst_pairs": "rank i and rank i + n/2 exchange: whole groups send to one other group where ranks are packed",
}


def stages(layout: Layout, request: Request) -> list[Stage]:
    """The stages of a pattern on a layout; UsageError names the patterns and algorithms that there are."""
    if request.pattern not in TRAFFIC:
        raise UsageError(
            f"pattern '{request.pattern[:40]}' is not simulated{nearest(request.pattern, list(TRAFFIC))}: "
            f"expected one of {', '.join(TRAFFIC)}"
        )
    by_name = TRAFFIC[request.pattern]
    name = request.algorithm or next(iter(by_name))
    if name not in by_name:
        known = f"expected one of {', '.join(by_name)}" if list(by_name) != [""] else "leave --algorithm out"
        raise UsageError(f"{request.pattern} has no algorithm '{name[:40]}': {known}")
    if layout.ranks < 2:
        raise UsageError(f"{request.pattern} on 1 rank: expected 2 or more")
    if not 0 <= request.root < layout.ranks:
        raise UsageError(f"root {request.root}: expected a rank, 0 to {layout.ranks - 1}")
    return by_name[name](layout, request)


def _flows(source: Ints, target: Ints, size: float, times: int = 1) -> Stage:
    kept = source != target
    return Stage(source=source[kept], target=target[kept], bytes=np.full(int(kept.sum()), float(size)), times=times)


def _alltoall(layout: Layout, r: Request) -> list[Stage]:
    n = layout.ranks
    return [Stage(terms=(Term(np.full(n, float(r.size)), np.ones(n)),))]


def _pairwise(layout: Layout, r: Request) -> list[Stage]:
    """n - 1 rounds, each over before the next: rank i exchanges with i xor k where n is a power of two, else sends to
    i + k and receives from i - k (MPICH's and Open MPI's `pairwise`, which both take for large messages)."""
    n = layout.ranks
    if n * n > _MOST_PAIRS:
        most = int(_MOST_PAIRS**0.5)
        raise UsageError(f"alltoall by pairwise on {n} ranks: expected {most} at most; at_once takes any")
    own = np.arange(n)
    return [_flows(own, own ^ k if n & (n - 1) == 0 else (own + k) % n, r.size) for k in range(1, n)]


def _alltoallv(layout: Layout, r: Request) -> list[Stage]:
    n, text = layout.ranks, r.distribution
    if text in ("", "uniform"):
        return _alltoall(layout, r)
    word, _, rest = text.partition(":")
    if word == "zipf" and n > 64:
        return [Stage(terms=(zipf(n, r.size, rest),))]
    if word == "classes":
        return [Stage(terms=class_terms(n, r.size, rest))]
    if n * n > _MOST_PAIRS:
        raise UsageError(
            f"distribution {text[:40]} over {n} ranks: expected uniform, zipf:S or classes:... for more "
            f"than {int(_MOST_PAIRS**0.5)}"
        )
    return [_listed(layout, r)]


def zipf(n: int, size: int, text: str) -> Term:
    """Rank j receives in the ratio 1 / (j + 1)^S from each; all together send n (n - 1) m (definitions.md)."""
    try:
        exponent = float(text)
    except ValueError:
        raise UsageError(f"distribution zipf:{text[:40]}: expected a number such as zipf:1.2") from None
    if not 0 <= exponent <= 64:
        raise UsageError(f"distribution zipf:{text[:40]}: expected 0 to 64")
    weights = np.arange(1, n + 1, dtype=float) ** -exponent
    scale = n * (n - 1) * size / ((n - 1) * weights.sum())
    return Term(np.full(n, scale), weights)


def class_terms(n: int, size: int, text: str) -> tuple[Term, ...]:
    """A traffic matrix of classes: `classes:4,1;1,4` has two, of equal runs of ranks, and says the ratio of each pair's
    bytes by the classes of its ends; the mean over all pairs is m."""
    try:
        rows = [[float(cell) for cell in row.split(",")] for row in text.split(";")]
    except ValueError:
        rows = []
    c = len(rows)
    if not 1 <= c <= 64 or any(len(row) != c for row in rows) or c > n:
        raise UsageError(f"distribution classes:{text[:40]}: expected a square of numbers such as 4,1;1,4")
    matrix = np.array(rows)
    if not np.isfinite(matrix).all() or (matrix < 0).any() or not (matrix > 0).any():
        raise UsageError(f"distribution classes:{text[:40]}: expected numbers of 0 or more, not all 0")
    of = np.arange(n) * c // n
    counts = np.bincount(of, minlength=c).astype(float)
    whole = counts @ matrix @ counts - float((np.diag(matrix) * counts).sum())
    if whole <= 0:
        raise UsageError(f"distribution classes:{text[:40]}: no rank sends to another")
    scaled = matrix * (n * (n - 1) * size / whole)
    return tuple(Term((of == k).astype(float), scaled[k][of]) for k in range(c))


def _listed(layout: Layout, r: Request) -> Stage:
    listed = pair_bytes(r.pattern, layout.ranks, r.size, r.distribution)
    table = np.array([pair for pair in listed if pair[0] != pair[1]], dtype=float).reshape(-1, 3)
    return Stage(source=table[:, 0].astype(np.int64), target=table[:, 1].astype(np.int64), bytes=table[:, 2])


def _halo(layout: Layout, r: Request) -> list[Stage]:
    return [_listed(layout, r)]


def _direct(parts: Callable[[int], float], times: int = 1) -> Callable[[Layout, Request], list[Stage]]:
    """Each rank sends each other one a block, as measured patterns over channels do (core/traffic/schedule.h).

    (Of allreduce that is reduce_scatter, then allgather; the measured one goes through rank 0: `rooted`.)
    """

    def made(layout: Layout, r: Request) -> list[Stage]:
        n = layout.ranks
        return [Stage(terms=(Term(np.full(n, r.size * parts(n)), np.ones(n)),), times=times)]

    return made


def _ring_shift(layout: Layout, r: Request) -> list[Stage]:
    own = np.arange(layout.ranks)
    return [_flows(own, np.roll(own, -1), r.size)]


def _rooted(outward: bool, blocks: bool = False) -> Callable[[Layout, Request], list[Stage]]:
    """The root sends each other rank m, or one of n blocks of it; or each sends that to the root."""

    def made(layout: Layout, r: Request) -> list[Stage]:
        n = layout.ranks
        own, root = np.arange(n), np.full(n, r.root)
        size = r.size / n if blocks else r.size
        return [_flows(root, own, size) if outward else _flows(own, root, size)]

    return made


def _permutation(layout: Layout, r: Request) -> list[Stage]:
    # One cycle through all ranks in a drawn order, so that none sends to itself.
    order = np.random.default_rng(r.seed).permutation(layout.ranks)
    return [_flows(order, np.roll(order, -1), r.size)]


def _random_pairs(layout: Layout, r: Request) -> list[Stage]:
    order = np.random.default_rng(r.seed).permutation(layout.ranks)[: layout.ranks // 2 * 2]
    return [_both(order[::2], order[1::2], r.size)]


def _worst_pairs(layout: Layout, r: Request) -> list[Stage]:
    half = layout.ranks // 2
    return [_both(np.arange(half), np.arange(half) + half, r.size)]


def _both(a: Ints, b: Ints, size: float) -> Stage:
    return _flows(np.concatenate([a, b]), np.concatenate([b, a]), size)


# --- collectives over domains ----------------------------------------------------------------------------------------


def _lanes(layout: Layout) -> tuple[Ints, int]:
    """Ranks that send between domains, domains x lanes: the first ones of each, as many as the smallest domain has."""
    order, first = layout.ranks_of_units
    lanes = int(np.diff(first).min())
    return order[first[:-1, None] + np.arange(lanes)[None, :]], lanes


def _inside(layout: Layout, amount: float, between: float | Floats = 0.0) -> Floats:
    """What each rank sends, and gets, inside its domain: `amount`, but what the lanes' ends send between domains.

    `between`: of one lane, of all domains or of each. Nothing where a domain has one rank of the job.
    """
    d = np.bincount(layout.unit[layout.node])[layout.unit[layout.node]]
    found: Floats = np.where(d > 1, amount, 0.0)
    if layout.units > 1:
        ends, lanes = _lanes(layout)
        passed = np.repeat(np.broadcast_to(between, layout.units), lanes)
        found[ends.reshape(-1)] = np.maximum(0.0, found[ends.reshape(-1)] - passed)
    return found


def _rings(layout: Layout, amount: float, steps: int) -> list[Stage]:
    """One ring a lane through all ranks; each hop carries its lane's part of `amount`, domains follow each other."""
    ends, lanes = _lanes(layout)
    flat = ends.T.reshape(-1), np.roll(ends, -1, axis=0).T.reshape(-1)
    stage = _flows(*flat, amount / lanes) if layout.units > 1 else Stage()
    return [dataclasses.replace(stage, inside=_inside(layout, amount, amount / lanes), steps=steps)]


def _ring_allreduce(layout: Layout, r: Request) -> list[Stage]:
    n = layout.ranks
    return _rings(layout, 2 * (n - 1) / n * r.size, 2 * (n - 1))


def _ring_gather(layout: Layout, r: Request) -> list[Stage]:
    n = layout.ranks
    return _rings(layout, (n - 1) / n * r.size, n - 1)


def _chain(layout: Layout, r: Request) -> list[Stage]:
    """A pipelined chain from the first rank on: each domain's lanes pass the buffer on, none returns to the root."""
    ends, lanes = _lanes(layout)
    stage = Stage()
    if layout.units > 1:
        stage = _flows(ends[:-1].reshape(-1), ends[1:].reshape(-1), r.size / lanes)
    return [dataclasses.replace(stage, inside=_inside(layout, r.size), steps=layout.ranks - 1)]


def _hierarchical(
    share: Callable[[Floats], tuple[Floats, Floats]], rounds: int
) -> Callable[[Layout, Request], list[Stage]]:
    """Each domain scatters, each lane has a ring over the domains, each domain gathers; all at once, as in a pipe.

    `share`: of m what the lanes of each domain together send to the next one, and what they get, by the part of all
    ranks that each domain has.
    """

    def made(layout: Layout, r: Request) -> list[Stage]:
        ends, lanes = _lanes(layout)
        n, held = layout.ranks, np.diff(layout.ranks_of_units[1])
        stage = Stage()
        sent, taken = share(held / n)
        if layout.units > 1:
            hops = ends.T.reshape(-1), np.roll(ends, -1, axis=0).T.reshape(-1)
            stage = Stage(source=hops[0], target=hops[1], bytes=np.tile(sent * r.size / lanes, lanes))
        inside = _inside(layout, rounds * (n - 1) / n * r.size, np.minimum(sent, taken) * r.size / lanes)
        steps, inner = rounds * (layout.units - 1), rounds * (int(held.max()) - 1)
        return [dataclasses.replace(stage, inside=inside, steps=steps, inside_steps=inner)]

    return made


def _halves(part: Floats) -> tuple[Floats, Floats]:
    """Of an allreduce: as much between any two domains, however many ranks they have."""
    found = np.full(len(part), 2 * (len(part) - 1) / len(part))
    return found, found


def _blocks(part: Floats) -> tuple[Floats, Floats]:
    """Of an allgather: a domain is sent all blocks but its own."""
    return 1 - np.roll(part, -1), 1 - part


def _parts(part: Floats) -> tuple[Floats, Floats]:
    """Of a reduce_scatter: a domain sends on all blocks but its own."""
    return 1 - part, 1 - np.roll(part, 1)


def parents(n: int) -> Ints:
    """The parent of each node of a binary tree over 0 to n - 1, -1 of the root: NCCL's first tree (trees.cc)."""
    own = np.arange(n)
    bit = own & -own
    up = (own ^ bit) | (bit << 1)
    up = np.where(up >= n, own ^ bit, up)
    up[0] = -1
    return up


def _trees(layout: Layout, r: Request, both_ways: bool) -> list[Stage]:
    """Two binary trees over the domains, each with half of the buffer: where one has a leaf the other has none."""
    ends, lanes = _lanes(layout)
    u, n = layout.units, layout.ranks
    # All but the root get the whole buffer; of an allreduce each rank sends as much as any schedule must in the mean.
    amount = 2 * (n - 1) / n * r.size if both_ways else float(r.size)
    if u < 2:
        return [Stage(inside=_inside(layout, amount), steps=0, inside_steps=n - 1)]
    first = parents(u)
    # The second tree is the first mirrored, or moved on by one where their number is odd.
    if u % 2 == 0:
        other = np.where(first < 0, -1, u - 1 - first)[::-1]
    else:
        other = np.roll(np.where(first < 0, -1, (first + 1) % u), 1)
    pairs = []
    for tree in (first, other):
        child = np.flatnonzero(tree >= 0)
        if not both_ways:  # the first domain has the whole buffer, and the other tree's root half of it from there
            root = np.flatnonzero(tree < 0)
            pairs.append((root[root > 0], np.zeros(int((root > 0).sum()), dtype=np.int64)))
            child = child[child > 0]
        pairs.append((child, tree[child]))
    child, parent = (np.concatenate(side) for side in zip(*pairs, strict=True))
    up = ends[child].reshape(-1), ends[parent].reshape(-1)
    source = np.concatenate([up[1], up[0]]) if both_ways else up[1]
    target = np.concatenate([up[0], up[1]]) if both_ways else up[0]
    ways = 2 if both_ways else 1
    stage = _flows(source, target, r.size / 2 / lanes)
    depth = int(np.ceil(np.log2(u)))
    widest = int(np.diff(layout.ranks_of_units[1]).max())
    inside = _inside(layout, amount, 2 * (u - 1) / u * r.size / lanes if both_ways else 0.0)
    return [dataclasses.replace(stage, inside=inside, steps=ways * depth, inside_steps=ways * (widest - 1))]


def _power_of_two(layout: Layout, r: Request) -> int:
    n = layout.ranks
    if n & (n - 1):
        raise UsageError(f"{r.pattern} by {r.algorithm} on {n} ranks: expected a power of two")
    return n.bit_length() - 1


def _halving(layout: Layout, r: Request) -> list[Stage]:
    """Recursive halving, then doubling (Rabenseifner 2004): partners 2^k apart exchange m / 2^(k+1), twice."""
    own = np.arange(layout.ranks)
    return [_flows(own, own ^ (1 << k), r.size / (2 << k), times=2) for k in range(_power_of_two(layout, r))]


def _doubling(layout: Layout, r: Request) -> list[Stage]:
    """Recursive doubling: partners 2^k apart exchange m."""
    own = np.arange(layout.ranks)
    return [_flows(own, own ^ (1 << k), r.size) for k in range(_power_of_two(layout, r))]


Maker = Callable[[Layout, Request], list[Stage]]

TRAFFIC: dict[str, dict[str, Maker]] = {
    "alltoall": {"at_once": _alltoall, "pairwise": _pairwise},
    "allreduce": {
        "ring": _ring_allreduce,
        "tree": lambda layout, r: _trees(layout, r, both_ways=True),
        "halving": _halving,
        "doubling": _doubling,
        "hierarchical": _hierarchical(_halves, 2),
        "direct": _direct(lambda n: 1 / n, times=2),
        "rooted": lambda layout, r: [*_rooted(outward=False)(layout, r), *_rooted(outward=True)(layout, r)],
    },
    "allgather": {
        "ring": _ring_gather,
        "hierarchical": _hierarchical(_blocks, 1),
        "direct": _direct(lambda n: 1 / n),
    },
    "reduce_scatter": {
        "ring": _ring_gather,
        "hierarchical": _hierarchical(_parts, 1),
        "direct": _direct(lambda n: 1 / n),
    },
    "broadcast": {
        "ring": _chain,
        "tree": lambda layout, r: _trees(layout, r, both_ways=False),
        "direct": _rooted(outward=True),
    },
    "reduce": {"direct": _rooted(outward=False)},
    "gather": {"direct": _rooted(outward=False, blocks=True)},
    "scatter": {"direct": _rooted(outward=True, blocks=True)},
    "alltoallv": {"": _alltoallv},
    "halo": {"": _halo},
    "ring_shift": {"": _ring_shift},
    "permutation": {"": _permutation},
    "random_pairs": {"": _random_pairs},
    "worst_pairs": {"": _worst_pairs},
    "all_to_one": {"": _rooted(outward=False)},
    "one_to_all": {"": _rooted(outward=True)},
}
"""The makers of each pattern's stages, by algorithm; the first is the default."""


def describe(pattern: str) -> str:
    """What a pattern does, in a few words."""
    return _ONLY_HERE.get(pattern) or PATTERNS[pattern].what
