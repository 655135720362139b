"""Two sides compared by their repeats: the shift, its interval, and which of many shifts are real.

The unit is the repeat: a fresh launch, and its median time per iteration. Samples of one launch share that launch's
luck (memory layout, routes, clocks), so a thousand of them are not a thousand witnesses. All shifts are of times as
shares of the first side: +0.03 is 3 % slower, -0.03 is 3 % faster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change, percent
from linkgauge.stats.basics import Floats, as_series, effective_size
from linkgauge.stats.rank_sum import MOST_EXACT, rank_sum_orders, rank_sum_p_value

LEAST_REPEATS = 5
Verdict = Literal["better", "worse", "same", "cannot tell"]


@dataclasses.dataclass(frozen=True)
class Shift:
    """A shift of times with its interval, as shares of the first side."""

    share: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is said of one case, or one pool of cases.

    `q_value` is the false-discovery rate at which it would be called different.
    """

    repeats: tuple[int, int]
    median_ns: tuple[float, float]
    shift: Shift | None
    p_value: float | None
    q_value: float | None
    verdict: Verdict
    reason: str


def least_p_value(n: int, m: int) -> float:
    """Smallest two-sided p-value that the rank test can give with n and m repeats."""
    return min(1.0, 2.0 / float(scipy.special.comb(n + m, n)))  # infinite, not an error, from 1,030 repeats on


def hodges_lehmann(first: npt.ArrayLike, second: npt.ArrayLike, confidence: float = 0.95) -> Shift:
    """Shift of the second side's times against the first: the median of all ratios of pairs, less one.

    The interval lies between ordered ratios, at the ranks that the exact distribution of Mann and Whitney's statistic
    gives (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3):
    distribution-free for a pure shift. With too few repeats for the confidence it is the whole range of ratios.
    ValueError for an empty side or times not above 0.
    """
    a, b = as_series(first), as_series(second)
    if not a.size or not b.size or (a <= 0).any() or (b <= 0).any():
        raise ValueError("a shift needs times above 0 on both sides")
    differences = np.sort((np.log(b)[:, None] - np.log(a)[None, :]).reshape(-1))
    tail = (1 - confidence) / 2
    if a.size * b.size <= MOST_EXACT:
        counts = rank_sum_orders(min(a.size, b.size), max(a.size, b.size))
        rank = int(np.searchsorted(np.cumsum(counts) / counts.sum(), tail, side="right"))
    else:
        spread = math.sqrt(a.size * b.size * (a.size + b.size + 1) / 12)
        rank = int(a.size * b.size / 2 - scipy.special.ndtri(1 - tail) * spread)
    rank = max(0, min(rank - 1, (differences.size - 1) // 2))
    center, low, high = np.median(differences), differences[rank], differences[differences.size - 1 - rank]
    return Shift(float(np.expm1(center)), float(np.expm1(low)), float(np.expm1(high)))


def hierarchical_bootstrap(
    first: Sequence[npt.ArrayLike],
    second: Sequence[npt.ArrayLike],
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Shift:
    """Shift of medians with an interval that holds both the spread between repeats and that within them.

    Each element is the series of one repeat. Repeats are drawn anew, then within each stretches of its series (as
    long as its integrated autocorrelation time), the median taken of each and then over the repeats; the interval is
    the percentiles of the ratio. With few repeats it is too narrow (five give about 90 % for a nominal 95 %): Hodges
    and Lehmann's is what verdicts use, this one is shown beside it.
    """
    rng = np.random.default_rng(seed)
    sides = [_bootstrap_side([as_series(part) for part in side], resamples, rng) for side in (first, second)]
    centers = [float(np.median([np.median(as_series(part)) for part in side])) for side in (first, second)]
    ratios = sides[1] / sides[0]
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Shift(centers[1] / centers[0] - 1, float(low) - 1, float(high) - 1)


def _bootstrap_side(repeats: list[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    if not repeats or any(part.size == 0 for part in repeats):
        raise ValueError("a side of a bootstrap needs repeats with samples")
    pool = np.stack([_block_medians(part, 200, rng) for part in repeats])  # (repeats, 200)
    chosen = rng.integers(0, len(repeats), (resamples, len(repeats)))
    return np.asarray(np.median(pool[chosen, rng.integers(0, pool.shape[1], chosen.shape)], axis=1), dtype=np.float64)


def _block_medians(series: Floats, draws: int, rng: np.random.Generator) -> Floats:
    n = series.size
    length = min(n, max(1, round(n / effective_size(series))))
    starts = rng.integers(0, n, (draws, math.ceil(n / length)))
    index = (starts[:, :, None] + np.arange(length)) % n
    return np.asarray(np.median(series[index.reshape(draws, -1)[:, :n]], axis=1), dtype=np.float64)


def false_discovery_rates(p_values: npt.ArrayLike, dependence: Literal["positive", "any"] = "positive") -> Floats:
    """Return each p-value's smallest false-discovery rate at which it is still called (its q-value).

    `positive`: Benjamini and Hochberg 1995, valid for independent and positively dependent tests (cases that share a
    launch are); `any`: Benjamini and Yekutieli 2001, valid for every dependence and stricter by sum(1/i).
    """
    p = as_series(p_values)
    if p.size == 0:
        return p
    order = np.argsort(p, kind="stable")
    factor = float(np.sum(1.0 / np.arange(1, p.size + 1))) if dependence == "any" else 1.0
    scaled = p[order] * p.size * factor / np.arange(1, p.size + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return q


def _moderated_p_values(first: list[Floats], second: list[Floats]) -> Floats:
    """P-values of t tests on logarithms whose variances are drawn towards those of all cases.

    Smyth 2004, Linear models and empirical Bayes methods, section 6: with few repeats a case's own variance is poorly
    known, and the other cases of the same machine say what is usual. Degrees of freedom and scale of the prior are
    fitted from the variances' logarithms; where these scatter more than chance would make them, the prior's weight
    falls to nothing.
    """
    sizes = np.array([(a.size, b.size) for a, b in zip(first, second, strict=True)], dtype=np.float64)
    shifts = np.array([np.log(b).mean() - np.log(a).mean() for a, b in zip(first, second, strict=True)])
    freedom = sizes.sum(axis=1) - 2
    variances = (
        np.array([(np.log(a).var() * a.size + np.log(b).var() * b.size) for a, b in zip(first, second, strict=True)])
        / freedom
    )
    variances = np.maximum(variances, 1e-12)
    prior_freedom, prior = fit_prior(variances, freedom)
    if math.isinf(prior_freedom):
        pooled, total = np.full_like(variances, prior), np.full_like(freedom, freedom.sum())
    else:
        pooled = (prior_freedom * prior + freedom * variances) / (prior_freedom + freedom)
        total = np.minimum(prior_freedom + freedom, freedom.sum())
    scores = np.abs(shifts) / np.sqrt(pooled * (1 / sizes[:, 0] + 1 / sizes[:, 1]))
    return np.asarray(2 * scipy.special.stdtr(total, -scores), dtype=np.float64)


def fit_prior(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """Fit degrees of freedom and scale of the inverse chi-square that true variances seem drawn from (Smyth 2004).

    Infinite degrees: all cases share one variance. Fewer than three variances: (0, 1), no prior at all.
    """
    if variances.size < 3:
        return 0.0, 1.0
    shifted = np.log(variances) - scipy.special.digamma(freedom / 2) + np.log(freedom / 2)
    center = float(shifted.mean())
    excess = float(
        np.mean((shifted - center) ** 2) * variances.size / (variances.size - 1)
        - np.mean(scipy.special.polygamma(1, freedom / 2))
    )
    if excess <= 0:
        return math.inf, math.exp(center)
    half = _inverse_trigamma(excess)
    return 2 * half, math.exp(center + float(scipy.special.digamma(half)) - math.log(half))


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value by Newton's iteration on its reciprocal (Smyth 2004, appendix)."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(scipy.special.polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x


def p_values(first: list[Floats], second: list[Floats], level: float = 0.05) -> tuple[Floats, str]:
    """Return one two-sided p-value a case that the sides differ, and the name of the test.

    The rank test of Mann and Whitney where its smallest p-value could call a single case among all of these; with
    fewer repeats than that (or more cases) it could never call any, and the moderated t test is used. The choice
    depends on counts alone, not on values.
    """
    if not first:
        return np.empty(0), "none"
    finest = max(least_p_value(a.size, b.size) for a, b in zip(first, second, strict=True))
    if finest <= level / len(first):
        ranked = [rank_sum_p_value(a, b, "two-sided") for a, b in zip(first, second, strict=True)]
        return np.array(ranked), "rank"
    return _moderated_p_values(first, second), "moderated t"


def compare_repeats(
    first: Sequence[npt.ArrayLike],
    second: Sequence[npt.ArrayLike],
    level: float = 0.05,
    margin: float = 0.01,
    dependence: Literal["positive", "any"] = "positive",
) -> list[Comparison]:
    """Compare many cases at once; element i of each side holds case i's repeat medians (times above 0).

    Called better or worse: q-value at most `level` and a shift of at least `margin`. Same: the shift's 95 % interval
    lies within the margin. All else, and fewer than five repeats on a side, is "cannot tell". The expected share of
    false calls among the calls is at most `level`; that of a single case's interval is its own 5 %.
    """
    sides = [[as_series(values) for values in side] for side in (first, second)]
    able = [i for i, (a, b) in enumerate(zip(*sides, strict=True)) if min(a.size, b.size) >= LEAST_REPEATS]
    p, test = p_values([sides[0][i] for i in able], [sides[1][i] for i in able], level)
    q = false_discovery_rates(p, dependence)
    found = {index: (float(p[k]), float(q[k])) for k, index in enumerate(able)}
    return [
        _judge(a, b, found.get(index), level, margin, test) for index, (a, b) in enumerate(zip(*sides, strict=True))
    ]


def _judge(
    a: Floats, b: Floats, values: tuple[float, float] | None, level: float, margin: float, test: str
) -> Comparison:
    repeats = (a.size, b.size)
    medians = (float(np.median(a)) if a.size else math.nan, float(np.median(b)) if b.size else math.nan)
    if values is None:
        least = min(repeats)
        shift = hodges_lehmann(a, b) if least else None
        count = f"{least} repeat{'s' if least != 1 else ''} on a side"
        reason = f"{count}: at least {LEAST_REPEATS} are needed (run --repeat {LEAST_REPEATS})"
        return Comparison(repeats, medians, shift, None, None, "cannot tell", reason)
    p_value, q_value = values
    shift = hodges_lehmann(a, b)
    verdict: Verdict
    if q_value <= level and abs(shift.share) >= margin:
        verdict = "worse" if shift.share > 0 else "better"
        reason = f"{test} test, false-discovery rate {q_value:.2g}"
    elif -margin < shift.low and shift.high < margin:
        verdict, reason = "same", f"the interval lies within {percent(margin, 1)}"
    else:
        verdict = "cannot tell"
        reason = f"the interval reaches from {change(shift.low, 1)} to {change(shift.high, 1)}, and chance explains it"
        if q_value <= level:
            reason = f"a shift of {change(shift.share, 2)} is real but smaller than the margin of {percent(margin, 1)}"
    return Comparison(repeats, medians, shift, p_value, q_value, verdict, reason)


def pool_repeats(
    first: Sequence[Mapping[int, float]], second: Sequence[Mapping[int, float]], members: Sequence[int]
) -> tuple[Floats, Floats]:
    """Return one value a repeat for a pool of cases (those of one link, say), so that repeats stay the unit.

    Elements map repeat to median time; `members` are the pool's cases. Each case's logarithm is taken against the
    middle of its two sides, the pool's value is the median over its cases of that repeat, and the exponential brings
    it back near 1. A shift too small for any one case shows when all cases of a link share it.
    """
    both = [(first[index], second[index]) for index in members if first[index] and second[index]]
    centers = [float(np.median(np.log(list(a.values()))) + np.median(np.log(list(b.values())))) / 2 for a, b in both]
    sides = [
        grouped((repeat, math.log(value) - center) for of, center in zip(both, centers, strict=True)
                for repeat, value in of[side].items())
        for side in (0, 1)
    ]  # fmt: skip
    pooled = [np.exp([np.median(side[repeat]) for repeat in sorted(side)]) for side in sides]
    return pooled[0], pooled[1]
