"""What ranks send each other, as stages, by pattern and algorithm: the same patterns that are measured.

Tests compare the stages of small counts with the core's own schedules. m: size in bytes; n: ranks (docs/definitions.md,
Sizes and goodput).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from linkgauge.errors import UsageError, not_one_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.simulate.arrays import Ints
from linkgauge.simulate.domains import (
    chain,
    hierarchical_allgather,
    hierarchical_allreduce,
    hierarchical_reduce_scatter,
    ring_allreduce,
    ring_gather,
    tree_allreduce,
    tree_broadcast,
)
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.stage import ONLY_SIMULATED, Request, Stage, Term, flows

_MOST_PAIRS = 4_000_000  # of which the core lists each


def stages(layout: Layout, request: Request) -> list[Stage]:
    """The stages of a pattern on a layout; UsageError names the patterns and algorithms that there are."""
    if request.pattern not in TRAFFIC:
        raise UsageError(f"pattern '{request.pattern[:40]}' is not simulated{not_one_of(request.pattern, TRAFFIC)}")
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
    return [flows(own, own ^ k if n & (n - 1) == 0 else (own + k) % n, r.size) for k in range(1, n)]


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
    return _listed(layout, r)


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


def _listed(layout: Layout, r: Request) -> list[Stage]:
    listed = pair_bytes(r.pattern, layout.ranks, r.size, r.distribution)
    table = np.array([pair for pair in listed if pair[0] != pair[1]], dtype=float).reshape(-1, 3)
    return [Stage(source=table[:, 0].astype(np.int64), target=table[:, 1].astype(np.int64), bytes=table[:, 2])]


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
    return [flows(own, np.roll(own, -1), r.size)]


def _rooted(outward: bool, blocks: bool = False) -> Callable[[Layout, Request], list[Stage]]:
    """The root sends each other rank m, or one of n blocks of it; or each sends that to the root."""

    def made(layout: Layout, r: Request) -> list[Stage]:
        n = layout.ranks
        own, root = np.arange(n), np.full(n, r.root)
        size = r.size / n if blocks else r.size
        return [flows(root, own, size) if outward else flows(own, root, size)]

    return made


def _permutation(layout: Layout, r: Request) -> list[Stage]:
    # One cycle through all ranks in a drawn order, so that none sends to itself.
    order = np.random.default_rng(r.seed).permutation(layout.ranks)
    return [flows(order, np.roll(order, -1), r.size)]


def _random_pairs(layout: Layout, r: Request) -> list[Stage]:
    order = np.random.default_rng(r.seed).permutation(layout.ranks)[: layout.ranks // 2 * 2]
    return [_both(order[::2], order[1::2], r.size)]


def _worst_pairs(layout: Layout, r: Request) -> list[Stage]:
    half = layout.ranks // 2
    return [_both(np.arange(half), np.arange(half) + half, r.size)]


def _both(a: Ints, b: Ints, size: float) -> Stage:
    return flows(np.concatenate([a, b]), np.concatenate([b, a]), size)


def _power_of_two(layout: Layout, r: Request) -> int:
    n = layout.ranks
    if n & (n - 1):
        raise UsageError(f"{r.pattern} by {r.algorithm} on {n} ranks: expected a power of two")
    return n.bit_length() - 1


def _halving(layout: Layout, r: Request) -> list[Stage]:
    """Recursive halving, then doubling (Rabenseifner 2004): partners 2^k apart exchange m / 2^(k+1), twice."""
    own = np.arange(layout.ranks)
    return [flows(own, own ^ (1 << k), r.size / (2 << k), times=2) for k in range(_power_of_two(layout, r))]


def _doubling(layout: Layout, r: Request) -> list[Stage]:
    """Recursive doubling: partners 2^k apart exchange m."""
    own = np.arange(layout.ranks)
    return [flows(own, own ^ (1 << k), r.size) for k in range(_power_of_two(layout, r))]


Maker = Callable[[Layout, Request], list[Stage]]

TRAFFIC: dict[str, dict[str, Maker]] = {
    "alltoall": {"at_once": _alltoall, "pairwise": _pairwise},
    "allreduce": {
        "ring": ring_allreduce,
        "tree": tree_allreduce,
        "halving": _halving,
        "doubling": _doubling,
        "hierarchical": hierarchical_allreduce,
        "direct": _direct(lambda n: 1 / n, times=2),
        "rooted": lambda layout, r: [*_rooted(outward=False)(layout, r), *_rooted(outward=True)(layout, r)],
    },
    "allgather": {
        "ring": ring_gather,
        "hierarchical": hierarchical_allgather,
        "direct": _direct(lambda n: 1 / n),
    },
    "reduce_scatter": {
        "ring": ring_gather,
        "hierarchical": hierarchical_reduce_scatter,
        "direct": _direct(lambda n: 1 / n),
    },
    "broadcast": {
        "ring": chain,
        "tree": tree_broadcast,
        "direct": _rooted(outward=True),
    },
    "reduce": {"direct": _rooted(outward=False)},
    "gather": {"direct": _rooted(outward=False, blocks=True)},
    "scatter": {"direct": _rooted(outward=True, blocks=True)},
    "alltoallv": {"": _alltoallv},
    "halo": {"": _listed},
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
    return ONLY_SIMULATED.get(pattern) or PATTERNS[pattern].what
