"""Hockney and LogGP parameters from a sweep over sizes, with their uncertainty; protocol switches as breakpoints.

Hockney (1994): t(m) = alpha + m / r. Libraries change protocol with size, so t is fitted piece by piece; where one
piece ends and the next begins is a breakpoint. LogGP (Alexandrov et al. 1995): a message of m bytes takes L + 2o + (m -
1) G, and a rank sends one every max(g, o) at most.

Which cadence identifies which parameter:

- a ping-pong's half round trip gives L + 2o, as a sum, and G;
- messages queued back to back (unidirectional with a window, streaming) give max(g, o) from small sizes, and G;
- o alone, and so L alone, need the time that the processor spends in a call, which neither has: they are missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]

_LEAST_POINTS = 3
# Deviations below this part of a time are no evidence of another protocol.
_FLOOR = 2e-3


@dataclass(frozen=True)
class Parameter:
    """A fitted value with its 95 % interval; `high` may be infinite where the data does not bound it."""

    value: float
    low: float
    high: float
    unit: str


@dataclass(frozen=True)
class Piece:
    """One protocol: from the least to the greatest size that it was seen at, in bytes."""

    first_bytes: int
    last_bytes: int
    points: int
    latency: Parameter
    rate: Parameter

    def time_ns(self, size_bytes: float) -> float:
        """Return the fitted time of a size in ns."""
        return self.latency.value + (0.0 if math.isinf(self.rate.value) else size_bytes / self.rate.value * 1e9)


@dataclass(frozen=True)
class Fit:
    """The pieces of a sweep in order of size, and the root mean square of relative residuals."""

    pieces: tuple[Piece, ...]
    residual: float

    @property
    def breakpoints(self) -> tuple[tuple[int, int], ...]:
        """The sizes between which the protocol changes: the last of one piece, the first of the next."""
        return tuple((a.last_bytes, b.first_bytes) for a, b in zip(self.pieces, self.pieces[1:], strict=False))

    def time_ns(self, size_bytes: float) -> float:
        """Return the fitted time of a size in ns: by the piece that holds it, between pieces by the one above."""
        piece = next((p for p in self.pieces if size_bytes <= p.last_bytes), self.pieces[-1])
        return piece.time_ns(size_bytes)


@dataclass(frozen=True)
class LogGP:
    """LogGP parameters in ns (G in ns a byte). None is missing, with the reason in `missing`."""

    latency_and_overheads: Parameter | None
    gap_per_byte: Parameter
    gap: Parameter | None
    missing: dict[str, str]


def hockney(sizes_bytes: Sequence[int], times_ns: Sequence[float], *, most_pieces: int = 4) -> Fit:
    """Fit t(m) = alpha + m / r piece by piece; times are one way, of one message.

    Pieces are chosen by a Bayesian information criterion over all splits into up to `most_pieces` runs of at least
    three sizes; errors are taken as relative, equal at all sizes, and estimated from the residuals. Latency and time
    per byte are kept from below 0. Raises `ValueError` for fewer than three sizes, or times that are not above 0.
    """
    if len(sizes_bytes) != len(times_ns):
        raise ValueError(f"{len(sizes_bytes)} sizes and {len(times_ns)} times")
    order = np.argsort(np.asarray(sizes_bytes), kind="stable")
    m = np.asarray(sizes_bytes, dtype=np.float64)[order]
    t = np.asarray(times_ns, dtype=np.float64)[order]
    if len(np.unique(m)) < _LEAST_POINTS:
        raise ValueError(f"{len(np.unique(m))} sizes; a fit of two parameters needs at least {_LEAST_POINTS}")
    if not np.all(np.isfinite(t)) or np.any(t <= 0):
        raise ValueError("times must be above 0")
    starts = [i for i in range(m.size) if i == 0 or m[i] != m[i - 1]]
    edges = [*starts, m.size]
    bounds = _split(m, t, edges, most_pieces)
    total = sum(_solve(m[a:b], t[a:b])[2] for a, b in bounds)
    pieces = tuple(_piece(m[a:b], t[a:b]) for a, b in bounds)
    return Fit(pieces, math.sqrt(total / m.size))


def _solve(m: Floats, t: Floats) -> tuple[float, float, float]:
    """Return latency (ns), time per byte (ns), and the sum of squared relative residuals."""
    rows = np.column_stack([1 / t, m / t])
    ones = np.ones_like(t)
    both, *_ = np.linalg.lstsq(rows, ones, rcond=None)
    candidates = [(float(both[0]), float(both[1]))]
    if both[0] < 0 or both[1] < 0:
        # The least squares with one parameter held at 0; with two parameters these are all the corners.
        alone = [float(row @ ones / (row @ row)) if row @ row > 0 else 0.0 for row in rows.T]
        candidates = [(alone[0], 0.0), (0.0, alone[1])]
    scored = [(float(np.sum((rows @ np.array(c) - 1) ** 2)), c) for c in candidates]
    cost, (latency, per_byte) = min(scored)
    return latency, per_byte, cost


def _split(m: Floats, t: Floats, edges: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return the pieces as ranges of points: the least criterion over all splits, by dynamic programming."""
    count = len(edges) - 1
    cost: dict[tuple[int, int], float] = {}
    for a in range(count if most > 1 else 1):
        for b in range(a + _LEAST_POINTS if most > 1 else count, count + 1):
            cost[a, b] = _solve(m[edges[a] : edges[b]], t[edges[a] : edges[b]])[2]
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for _ in range(most):
        following: dict[int, tuple[float, int]] = {}
        for (a, b), value in cost.items():
            if a in best[-1]:
                candidate = (best[-1][a][0] + value, a)
                if b not in following or candidate < following[b]:
                    following[b] = candidate
        best.append(following)
    n = m.size
    scores = {}
    for pieces in range(1, most + 1):
        if count in best[pieces]:
            variance = max(best[pieces][count][0] / n, _FLOOR**2)
            # Two parameters a piece; where a piece begins was searched for and counts as two more (Zhang and Siegmund
            # 2007: the plain criterion finds too many).
            scores[pieces] = n * math.log(variance) + (4 * pieces - 2) * math.log(n)
    pieces = min(scores, key=lambda k: scores[k])
    result: list[tuple[int, int]] = []
    end = count
    for k in range(pieces, 0, -1):
        start = best[k][end][1]
        result.append((edges[start], edges[end]))
        end = start
    return result[::-1]


def _piece(m: Floats, t: Floats) -> Piece:
    latency, per_byte, cost = _solve(m, t)
    rows = np.column_stack([1 / t, m / t])
    freedom = max(m.size - 2, 1)
    variance = max(cost / freedom, 1e-12)
    # Scaled columns: bytes and ones differ by nine orders of magnitude.
    scale = np.linalg.norm(rows, axis=0)
    inverse = np.linalg.pinv((rows / scale).T @ (rows / scale))
    errors = np.sqrt(variance * np.diag(inverse)) / scale
    width = float(scipy.special.stdtrit(freedom, 0.975))
    low, high = per_byte - width * float(errors[1]), per_byte + width * float(errors[1])
    rate = Parameter(
        1e9 / per_byte if per_byte > 0 else math.inf,
        1e9 / high if high > 0 else math.inf,
        1e9 / low if low > 0 else math.inf,
        "B/s",
    )
    spread = width * float(errors[0])
    return Piece(
        first_bytes=int(m[0]),
        last_bytes=int(m[-1]),
        points=int(m.size),
        latency=Parameter(latency, max(latency - spread, 0.0), latency + spread, "ns"),
        rate=rate,
    )


def loggp(fit: Fit, pattern: str, cadence: str, window: int = 1) -> LogGP | None:
    """Return what a sweep's fit identifies of LogGP, None where it is nothing; G is the largest piece's.

    Times are those of half round trips, or of each of several messages in flight together.

    A collective's sweep gives Hockney's two numbers for that collective, and no parameter of single messages.
    """
    latency, rate = fit.pieces[0].latency, fit.pieces[-1].rate
    ends = (rate.value, rate.high, rate.low)
    value, low, high = (0.0 if math.isinf(end) else 1e9 / end if end > 0 else math.inf for end in ends)
    per_byte = Parameter(value, low, high, "ns/B")
    missing = {
        "o": "needs the time that the processor spends in a call",
        "L": "needs o: a ping-pong gives L + 2o alone",
    }
    if pattern == "pingpong" and cadence in ("isolated", "streaming"):
        missing["g"] = "needs messages queued back to back (unidirectional with a window)"
        return LogGP(latency, per_byte, None, missing)
    if pattern == "unidirectional" and (window > 1 or cadence in ("streaming", "gated")):
        missing["L + 2o"] = "needs a ping-pong"
        return LogGP(None, per_byte, latency, missing)
    return None
