"""Evidence that one of many siblings is slower, from its rank in blocks of rounds; it may be looked at at any time.

In a block each member has one value: the mean of the middle half of its rounds. If the members are exchangeable, the
rank of each is uniform, whatever the tails, the skew or the drift of all. A bet on a rank whose mean over all ranks is
1 is then fair, and the product over blocks is an e-process: it exceeds 1 / level at any time with a probability of at
most `level` (Ville's inequality; Ramdas, Grunwald, Vovk and Shafer, Game-theoretic statistics and safe anytime-valid
inference, Statistical Science 2023, sections 2 and 4; ranks as by Vovk, Testing randomness online, Statistical Science
2021, section 3). Blocks are so long that those next to each other are nearly independent (batch means).

Values are logarithms of time, (rounds, members); evidence is the logarithm of an e-value.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.stats.basics import NORMAL_MAD, Floats
from linkgauge.stats.sequential import lowest_end

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Rounds of a block. Shorter ones name fewer: their bets are the smaller, and skewed noise has a heavier middle."""
MEMORIES = 5.0
"""Autocorrelation times in a block at least: neighbors are then correlated by a tenth."""
LEAST_BLOCKS = 5
"""In which a member must be slower: fewer do not show that it lasts."""
_FACTORS = (1.0, 3.0)
"""Shifts that are bet on, by the one that is sought: a large shift is found soon, too."""
_SHARES = (0.75, 0.25)
_LARGEST = 2.5
"""Largest bet: beyond it one block of noise would lose what all others won."""


def middle_mean(rounds: Floats) -> Floats:
    """Return the mean of the middle half along the first axis; nan where less than half of the rounds are known."""
    ordered = np.sort(rounds, axis=0)  # nan come last
    known = np.isfinite(ordered).sum(axis=0)
    cut = known // 4
    place = np.arange(ordered.shape[0]).reshape(-1, *[1] * (ordered.ndim - 1))
    used = (place >= cut) & (place < known - cut)
    means = np.where(used, ordered, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
    return np.asarray(np.where(2 * known >= max(ordered.shape[0], 1), means, np.nan), dtype=np.float64)


def blocks_of(values: Floats, length: int) -> Floats:
    """Return the middle means of whole blocks, (blocks, members)."""
    count = values.shape[0] // length
    parts = values[: count * length].reshape(count, length, values.shape[1])
    return middle_mean(np.moveaxis(parts, 1, 0))


@functools.lru_cache(maxsize=64)
def scores(count: int) -> Floats:
    """Return the normal score of each of so many ranks (van der Waerden), the least first."""
    return np.asarray(scipy.special.ndtri((np.arange(count) + 0.625) / (count + 0.25)), dtype=np.float64)


def memories_of(values: Floats) -> tuple[float, Floats]:
    """Return the autocorrelation time of all members' rounds together, and of each, in rounds.

    They come from ranks. Together they are well known even of few rounds; a member's is at least that. The sum of
    autocorrelations is cut by Geyer's initial positive sequence (1992, section 3.3). What lasts longer than the rounds
    does not show.
    """
    known = np.isfinite(values)
    rounds = values.shape[0]
    count = known.sum(axis=1, keepdims=True)
    order = np.argsort(np.argsort(np.where(known, values, np.inf), axis=1), axis=1)
    ranks = np.where(known, scipy.special.ndtri((order + 0.625) / (np.maximum(count, 1) + 0.25)), 0.0)
    own = np.maximum(known.sum(axis=0), 1)
    ranks = np.where(known, ranks - ranks.sum(axis=0) / own, 0.0)
    if rounds < 4 or not ranks.any():
        return 1.0, np.ones(values.shape[1])
    size = 1 << int(2 * rounds - 1).bit_length()
    spectra = np.abs(np.fft.rfft(ranks, size, axis=0)) ** 2
    products = np.fft.irfft(spectra, size, axis=0)[: rounds - rounds % 2]
    whole = _summed(products.sum(axis=1, keepdims=True))
    return float(whole[0]), np.maximum(whole[0], _summed(products))


def _summed(products: Floats) -> Floats:
    """Return the autocorrelation time by column, at least 1."""
    pairs = products.reshape(-1, 2, products.shape[1]).sum(axis=1) / np.where(products[0] > 0, products[0], 1.0)
    used = np.cumprod(pairs > 0, axis=0)
    return np.asarray(np.maximum(1.0, 2 * (pairs * used).sum(axis=0) - 1), dtype=np.float64)


def noise_of(values: Floats) -> Floats:
    """Return the robust deviation of each member's rounds.

    A noisy member is among the last ranks of many blocks, so each is ranked by its own noise. 1 where none is known.
    """
    there = np.isfinite(values).any(axis=0)
    scale = np.zeros(values.shape[1])
    if there.any():
        away = values[:, there] - np.nanmedian(values[:, there], axis=0)
        scale[there] = NORMAL_MAD * np.nanmedian(np.abs(away), axis=0)
    usual = float(np.median(scale[scale > 0])) if (scale > 0).any() else 1.0
    return np.asarray(np.where(scale > 0, np.maximum(scale, usual / 2), usual), dtype=np.float64)


def block_length(memory: float) -> int:
    """Return the rounds of a block at such a memory."""
    return next((length for length in LENGTHS if length >= MEMORIES * memory), LENGTHS[-1])


def bets(shift: npt.ArrayLike, deviation: float) -> Floats:
    """Return the size of each bet, (bets, ...), on shifts in blocks of this deviation, both in one unit."""
    ratio = np.asarray(shift, dtype=np.float64) / deviation if deviation > 0 else np.full(np.shape(shift), _LARGEST)
    return np.asarray(np.minimum(np.multiply.outer(np.array(_FACTORS), ratio), _LARGEST), dtype=np.float64)


def gain(sizes: Floats, score: Floats, count: int) -> Floats:
    """Return what a bet on a score pays, as a logarithm: fair if each of `count` ranks is equally likely."""
    return np.asarray(sizes * score - _price(sizes, count), dtype=np.float64)


@functools.lru_cache(maxsize=64)
def _prices(count: int) -> tuple[Floats, Floats]:
    sizes = np.linspace(0.0, _LARGEST, 65)
    return sizes, np.log(np.exp(np.multiply.outer(sizes, scores(count))).mean(axis=-1))


def _price(sizes: Floats, count: int) -> Floats:
    """The logarithm of what a bet pays on average; between two sizes a little more, since it is convex."""
    return np.interp(sizes, *_prices(count))


def mixed(paths: Floats) -> Floats:
    """Return the evidence of all bets together: the mean of e-processes is one."""
    weights = np.log(np.array(_SHARES)).reshape(-1, *[1] * (paths.ndim - 1))
    return np.asarray(scipy.special.logsumexp(paths + weights, axis=0), dtype=np.float64)


def rank_evidence(blocks: Floats, shifts: Floats) -> Floats:
    """Return the evidence of all blocks, by member, that it is slower than its siblings.

    `blocks`: each member's in its own unit, `shifts` what is sought, likewise. A member without a value in a block
    neither wins nor loses there.
    """
    total = np.zeros((len(_FACTORS), blocks.shape[1]))
    for row in blocks:
        known = np.flatnonzero(np.isfinite(row))
        if known.size > 1:
            every = scores(known.size)
            place = np.argsort(np.argsort(row[known], kind="stable"), kind="stable")
            total[:, known] += gain(bets(shifts[known], _deviation(row[known])), every[place], known.size)
    return mixed(total)


def _deviation(values: Floats) -> float:
    return NORMAL_MAD * float(np.median(np.abs(values - np.median(values))))


def deviation_of(blocks: Floats) -> float:
    """Return the deviation of a block's value among its siblings', in the median over blocks; 0 without any."""
    found = [_deviation(row[np.isfinite(row)]) for row in blocks if np.isfinite(row).sum() > 1]
    return float(np.median(found)) if found else 0.0


def rank_bounds(blocks: Floats, shifts: Floats, level: float = 0.05) -> tuple[Floats, Floats]:
    """Return for each member the bounds of its shift against its siblings that hold at all looks with 1 - `level`.

    They hold the shifts that, taken out of the member, leave neither it nor its negative evidence of 2 / level (Howard,
    Ramdas, McAuliffe and Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of Statistics
    2021, section 2). Infinite where there is no bound yet. Units are those of `rank_evidence`.
    """
    bar = math.log(2 / level)
    # Of each block its members in order, made once for all members.
    rows = []
    for at, row in enumerate(blocks):
        known = np.flatnonzero(np.isfinite(row))
        if known.size > 1:
            rows.append((at, known[np.argsort(row[known], kind="stable")], _deviation(row[known]), scores(known.size)))
    ends = []
    for sign in (1.0, -1.0):
        signed = [(at, order[:: int(sign)], *rest) for at, order, *rest in rows]
        found = [_lowest(sign * blocks, member, signed, float(shift), bar) for member, shift in enumerate(shifts)]
        ends.append(sign * np.array(found))
    return ends[0], ends[1]


def _lowest(blocks: Floats, member: int, rows: list[Any], shift: float, bar: float) -> float:
    """The smallest shift that the member is not evidence to exceed."""
    own = [
        (blocks[at, member], blocks[at, order[order != member]], bets(shift, deviation)[:, None], every)
        for at, order, deviation, every in rows
        if np.isfinite(blocks[at, member])
    ]
    if not own:
        return -math.inf
    prices = [_price(sizes, every.size) for _, _, sizes, every in own]
    width = max(float(others[-1] - others[0]) for _, others, *_ in own)
    low = min(float(value - others[-1]) for value, others, *_ in own) - width
    high = max(float(value - others[0]) for value, others, *_ in own)

    def exceeded(grid: Floats) -> npt.NDArray[np.bool_]:
        total = np.zeros((len(_FACTORS), grid.size))
        for (value, others, sizes, every), price in zip(own, prices, strict=True):
            total += sizes * every[np.searchsorted(others, value - grid)] - price
        return mixed(total) >= bar

    return lowest_end(exceeded, low, high, 3, 49)
