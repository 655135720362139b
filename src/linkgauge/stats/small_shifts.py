"""Small shifts over many rounds: one of many members against its siblings, or one side of pairs against the other.

Source: docs/definitions.md, Small shifts. Times are logarithms; shifts come back as shares of time (+0.003 is 0.3 %
slower). Answers may be asked for after each round: a false alarm at any of them has a probability of at most the level.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from linkgauge.stats.basics import Floats, robust_scale
from linkgauge.stats.power import Noise
from linkgauge.stats.rank_evidence import (
    LEAST_BLOCKS,
    LENGTHS,
    block_length,
    blocks_of,
    deviation_of,
    memories_of,
    middle_mean,
    noise_of,
    rank_bounds,
    rank_evidence,
)
from linkgauge.stats.sequential import discoveries, shift_bounds, signed_evidence
from linkgauge.stats.time_blocks import PART_ROUNDS, PARTS, PILOT, Blocks, adjusted, center, in_blocks

USUAL_DETECT = 0.003
_REAL = 0.5
"""Share of the shift sought that an estimate must be: less is no such shift, however sure."""
_SPREAD = 3.0
"""Robust deviations of all members' estimates, by which an outlier must lie apart."""
_LASTING = 3.0
"""Errors of its own by which a member's shift must be above 0."""
_LOOKS = 8
"""Rounds from one look to the next: every length of a block has this divisor."""
Verdict = Literal["slower", "faster", "same", "cannot tell"]


@dataclasses.dataclass(frozen=True)
class SmallShift:
    """What is known of one member: its shift with the bounds that hold at all times, as shares of time.

    `log_evidence`: logarithm of its e-value now. `since`: rounds after which a look would first have called it,
    whatever is said now; 0 for none.
    """

    verdict: Verdict
    share: float
    low: float
    high: float
    log_evidence: float
    since: int = 0

    @property
    def decided(self) -> bool:
        """Whether more rounds are not needed."""
        return self.verdict != "cannot tell"


@dataclasses.dataclass(frozen=True)
class ShiftsFound:
    """All members of one design, how far they differ in any case, and what the rounds could see.

    `spread`: robust deviation of the members' estimates. `seen`: the smallest shift that these rounds see with 95 %,
    None for none. `noise`: None before it is known.
    """

    members: tuple[SmallShift, ...]
    rounds: int
    spread: float
    noise: Noise | None
    seen: float | None
    needed: int | None

    @property
    def decided(self) -> bool:
        """Whether more rounds would not change what is said."""
        return bool(self.members) and all(one.decided for one in self.members)


def among_siblings(
    rounds: npt.ArrayLike,
    detect: float = USUAL_DETECT,
    level: float = 0.05,
    covariate: npt.ArrayLike | None = None,
    round_s: float = 0.0,
) -> ShiftsFound:
    """Say which members are slower than their siblings. `rounds`, `covariate`: (rounds, members), log times.

    A member's round is its time less the median of its siblings' in that round: what drifts for all is in both. Called
    slower: e-BH calls its ranks in blocks (stats/rank_evidence.py) at `level`, and it is `_outlying`. Same: even the
    upper bound is below `detect`. Looks are every 8 rounds, since blocks end there; between them nothing changes.
    """
    values = adjusted(against_others(np.atleast_2d(np.asarray(rounds, dtype=np.float64))), covariate)
    shift, (count, members) = math.log1p(detect), values.shape
    since = np.zeros(members, dtype=np.int64)
    called = np.zeros(members, dtype=np.bool_)
    evidence, length = np.zeros(members), LENGTHS[0]
    for look in range(_LOOKS, count + 1, _LOOKS):
        memory, own = memories_of(values[:look])
        length = max(length, block_length(memory))
        used = values[: look - look % length]
        if not used.size:
            continue
        noise = noise_of(used)
        evidence = rank_evidence(blocks_of(used, length) / noise, shift / noise)
        called = discoveries(evidence, level)
        if called.any():
            called &= _outlying(used, noise, own, shift)
            since[called & (since == 0)] = look
    used = values[: count - count % length]
    noise = noise_of(used)
    blocks = blocks_of(used, length)
    estimates = middle_mean(used) if used.size else np.full(members, math.nan)
    low, high = (noise * end for end in rank_bounds(blocks / noise, shift / noise, level))
    found = []
    for at in range(members):
        verdict: Verdict = "slower" if called[at] else "same" if high[at] < shift else "cannot tell"
        share, least, most = (_share(float(value)) for value in (estimates[at], low[at], high[at]))
        found.append(SmallShift(verdict, share, least, most, float(evidence[at]), int(since[at])))
    deviation = deviation_of(blocks)
    design = Noise(deviation, length, members, level, round_s, members) if deviation > 0 else None
    return _found(found, count, _scatter(estimates), design, shift)


def _outlying(values: Floats, noise: Floats, memories: Floats, shift: float) -> npt.NDArray[np.bool_]:
    """Return which members are slower by what counts, in enough blocks of their own memory, and beyond two scatters:
    how far all members differ, and the error that their own memory leaves."""
    estimates = middle_mean(values)
    known = np.isfinite(values).sum(axis=0)
    lasts = known >= LEAST_BLOCKS * np.array([block_length(one) for one in memories])
    least = np.maximum(_REAL * shift, _SPREAD * noise * _scatter(estimates / noise))
    errors = noise * np.sqrt(memories / np.maximum(known, 1))
    return np.asarray(lasts & (estimates >= np.maximum(least, _LASTING * errors)), dtype=np.bool_)


def _scatter(estimates: Floats) -> float:
    return robust_scale(estimates[np.isfinite(estimates)])


def between_sides(
    differences: npt.ArrayLike,
    detect: float = USUAL_DETECT,
    level: float = 0.05,
    covariate: npt.ArrayLike | None = None,
    round_s: float = 0.0,
) -> ShiftsFound:
    """Say which contrasts differ between two sides measured by turns.

    `differences`: (rounds, contrasts), log time of the second side less the first's next to it, so that what drifts is
    in both; `covariate` likewise, as a difference. Called slower or faster: e-BH calls one of both signs at `level`,
    the estimate is at least half of `detect`, and the shift lasts: over six parts of the time its mean is at least
    three of its own errors. Same: the bounds lie within `detect`.
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    return _judged(adjusted(values, covariate), detect, level, round_s)


def estimated(differences: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the shift (log) of each contrast of `between_sides`, and its standard error by its own memory."""
    values = np.asarray(differences, dtype=np.float64)
    _, memories = memories_of(values)
    known = np.maximum(np.isfinite(values).sum(axis=0), 1)
    return middle_mean(values), noise_of(values) * np.sqrt(memories / known)


def against_others(rounds: Floats) -> Floats:
    """Return each member less the median of its siblings, round by round; nan where it or all of these are missing."""
    count = rounds.shape[1]
    if count < 2:
        return np.full(rounds.shape, np.nan)
    if np.isfinite(rounds).all():
        # The median of all but one is one of three middle values, or the mean of two: found from one sort of all.
        order = np.argsort(rounds, axis=1)
        place = np.argsort(order, axis=1)
        ordered = np.take_along_axis(rounds, order, axis=1)
        low, high = (count - 2) // 2, (count - 1) // 2
        middles = [np.take_along_axis(ordered, at + (place <= at), axis=1) for at in (low, high)]
        return np.asarray(rounds - (middles[0] + middles[1]) / 2, dtype=np.float64)
    result = np.full(rounds.shape, np.nan)
    for at in range(count):
        others = np.delete(rounds, at, axis=1)
        some = np.isfinite(others).any(axis=1)
        result[some, at] = rounds[some, at] - np.nanmedian(others[some], axis=1)
    return result


def _judged(values: Floats, detect: float, level: float, round_s: float) -> ShiftsFound:
    shift, count = math.log1p(detect), values.shape[1]
    # Each contrast has noise and memory of its own, so blocks of its own.
    blocks = in_blocks(values)
    paths = [[signed_evidence(sign * one.values, one.scales, shift) for one in blocks] for sign in (1.0, -1.0)]
    evidence = np.array([path[-1] if path.size else 0.0 for of_sign in paths for path in of_sign])
    called = discoveries(evidence, level).reshape(2, count)
    bar = math.log(evidence.size / level) if count else math.inf
    members = []
    for at, one in enumerate(blocks):
        estimate, (low, high) = center(one.values), shift_bounds(one.values, one.scales, shift, level)
        verdict: Verdict = "cannot tell"
        since = 0
        for sign, of_sign, hit in zip((1.0, -1.0), paths, called[:, at], strict=True):
            series = sign * values[:, at]
            since = since or _first_called(of_sign[at], one, sign, series, shift, bar)
            if hit and sign * estimate >= _REAL * shift and _lasts(series):
                verdict = "slower" if sign > 0 else "faster"
        if verdict == "cannot tell" and -shift < low and high < shift:
            verdict = "same"
        most = max(float(evidence[at]), float(evidence[at + count]))
        members.append(SmallShift(verdict, _share(estimate), _share(low), _share(high), most, since))
    return _found(members, values.shape[0], 0.0, _typical(blocks, evidence.size, level, round_s), shift)


def _found(members: list[SmallShift], rounds: int, spread: float, noise: Noise | None, shift: float) -> ShiftsFound:
    seen = None if noise is None else noise.seen_in(rounds)
    return ShiftsFound(
        tuple(members), rounds, math.expm1(spread), noise, None if seen is None else math.expm1(seen),
        None if noise is None else noise.rounds_for(shift),
    )  # fmt: skip


def _share(value: float) -> float:
    return math.expm1(value) if value < 1 else math.inf


def _lasts(values: Floats) -> bool:
    """Whether a shift is there over the whole time: what wanders, or came for a while, is not of the member."""
    there = values[PILOT:][np.isfinite(values[PILOT:])]
    if there.size < PARTS * PART_ROUNDS:
        return False
    parts = np.array([center(part) for part in np.array_split(there, PARTS)])
    return bool(parts.mean() >= _LASTING * parts.std(ddof=1) / math.sqrt(PARTS))


def _typical(blocks: list[Blocks], tests: int, level: float, round_s: float) -> Noise | None:
    """The noise of the member in the middle, by what its rounds are worth."""
    known = sorted((one for one in blocks if one.scale > 0), key=lambda one: one.scale * math.sqrt(one.length))
    if not known:
        return None
    middle = known[len(known) // 2]
    return Noise(middle.scale, middle.length, tests, level, round_s)


def _first_called(path: Floats, blocks: Blocks, sign: float, series: Floats, shift: float, bar: float) -> int:
    """Rounds after which a look would first have called the member by its own evidence; 0 for none.

    What later rounds brought plays no part: lengths and deviations of blocks were chosen before them.
    """
    for at in np.flatnonzero(path >= bar):
        end = int(blocks.ends[at])
        if sign * center(blocks.values[: at + 1]) >= _REAL * shift and _lasts(series[:end]):
            return end
    return 0
