"""How often a shift of 0.3 % is named among 64 nodes, and how often a clean fleet is accused.

    .venv/bin/python bench/small_shifts.py [--fleets 100] [--out small-shifts.jsonl]

Each node has one figure a round of ten seconds, for 30 simulated minutes. Its noise is 0.5 %: stretches of stored
samples of two and four H200 (tests/findings/recorded_noise.npz, 1 MiB and more) in their order. A figure is the mean of
four samples that follow each other, a tenth of what a round has. So the tails and the autocorrelation are real, and a
round resembles the next one much more than in a real fleet. On top come a drift that all
nodes share (a random walk of 1 %), and for each node a temperature that wanders and
costs 0.02 % a degree. Every fleet is looked at after each round. One fleet takes a second of a processor.

Three further kinds of noise are autoregressive with heavy tails, of 0.5 % too: each node's memory is 1 to 39 rounds;
four of the 64 nodes have a memory of 65 rounds; each node's noise is a half to three times the usual. There a slow node
is often not named, and clean fleets must not be accused all the same.

The seeds are none of those with which the method was chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from benching import ROOT, options, say, write_lines
from linkgauge.stats.small_shifts import among_siblings, between_sides
from linkgauge.stats.time_blocks import center
from linkgauge.stats.whose import Pair, whose

NODES, ROUND_S, ROUNDS = 64, 10.0, 180
SAMPLES = 4  # of a round
NOISE = ROOT / "tests" / "findings" / "recorded_noise.npz"


def stored_series() -> list[np.ndarray]:
    """Stored samples of 1 MiB and more as logarithms about their center, over their robust deviation."""
    found = []
    with np.load(NOISE) as file:
        for part in np.split(file["large"].astype(float), np.cumsum(file["large_lengths"])[:-1]):
            log = np.log(part)
            scale = 1.4826 * np.median(np.abs(log - np.median(log)))
            if scale > 0:
                found.append((log - center(log)) / scale)
    return found


SERIES = stored_series()


def noise(rng: np.random.Generator, series: list[np.ndarray], rounds: int) -> np.ndarray:
    """One node's rounds, of robust deviation 1: stretches of stored series, each begun anywhere and read to its end."""
    parts: list[np.ndarray] = []
    while sum(part.size for part in parts) < rounds * SAMPLES:
        one = series[int(rng.integers(len(series)))]
        parts.append(one[int(rng.integers(one.size - 1)) :])
    figures = np.concatenate(parts)[: rounds * SAMPLES].reshape(rounds, SAMPLES).mean(axis=1)
    return figures / (1.4826 * float(np.median(np.abs(figures - np.median(figures)))))


def fleet(rng: np.random.Generator, series: list[np.ndarray], share: float) -> tuple[np.ndarray, np.ndarray]:
    """Log times and temperatures of all nodes, (rounds, nodes), without any slow node."""
    values = share * np.stack([noise(rng, series, ROUNDS) for _ in range(NODES)], axis=1)
    values += np.cumsum(rng.normal(0, 0.01 / math.sqrt(ROUNDS), (ROUNDS, 1)), axis=0)
    usual, wander = 55 + rng.normal(0, 3, NODES), np.zeros((ROUNDS, NODES))
    for at in range(1, ROUNDS):
        wander[at] = 0.95 * wander[at - 1] + rng.normal(0, 0.5, NODES)
    return values + 0.0002 * wander, usual + wander


def autoregressive(rng: np.random.Generator, share: float, rho: np.ndarray) -> tuple[np.ndarray, None]:
    drawn = rng.standard_t(5, (ROUNDS + 200, NODES)) / math.sqrt(5 / 3)
    made = [lfilter([math.sqrt(1 - one * one)], [1, -one], drawn[:, at])[200:] for at, one in enumerate(rho)]
    return share * np.stack(made, axis=1), None


def some_recorded(rng: np.random.Generator, share: float) -> tuple[np.ndarray, np.ndarray]:
    return fleet(rng, SERIES, share)


def some_memories(rng: np.random.Generator, share: float) -> tuple[np.ndarray, None]:
    return autoregressive(rng, share, rng.choice([0, 0.3, 0.6, 0.9, 0.95], NODES))


def few_long_memories(rng: np.random.Generator, share: float) -> tuple[np.ndarray, None]:
    return autoregressive(rng, share, np.where(np.arange(NODES) < 4, 0.97, 0.0))


def some_scales(rng: np.random.Generator, share: float) -> tuple[np.ndarray, None]:
    values, _ = autoregressive(rng, share, np.full(NODES, 0.3))
    return values * rng.choice([0.5, 1, 2, 3], NODES), None


def of_fleets(
    fleets: int, made: Callable[[np.random.Generator, float], tuple[np.ndarray, np.ndarray | None]],
    share: float = 0.005, shift: float = 0.003,
) -> dict[str, object]:  # fmt: skip
    named = accused = clean_accused = 0
    rounds, needed, seen = [], [], []
    for seed in range(fleets):
        rng = np.random.default_rng([5201, seed])
        values, degrees = made(rng, share)
        clean_accused += any(one.since for one in among_siblings(values, covariate=degrees).members)
        slow = int(rng.integers(NODES))
        values[:, slow] += math.log1p(shift)
        found = among_siblings(values, covariate=degrees, round_s=ROUND_S)
        hit = found.members[slow].since > 0  # whoever looks after each round stops there
        named += hit
        accused += any(one.since for at, one in enumerate(found.members) if at != slow)
        if hit:
            rounds.append(found.members[slow].since)
        if found.needed is not None and found.seen is not None:
            needed.append(found.needed * ROUND_S / 60)
            seen.append(found.seen)
    return {
        "what": f"{NODES} nodes, one slower", "noise": share, "kind": made.__name__, "shift": shift, "fleets": fleets,
        "named": named,
        "fleets_with_another_accused": accused, "clean_fleets_accused_at_any_look": clean_accused,
        "median_minutes_to_name": round(float(np.median(rounds)) * ROUND_S / 60, 1) if rounds else None,
        "predicted_minutes_median": round(float(np.median(needed)), 1) if needed else None,
        "predicted_seen_in_30_minutes_median": round(float(np.median(seen)), 5) if seen else None,
    }  # fmt: skip


def of_pairs(count: int, shift: float, rounds: int) -> dict[str, object]:
    """Two sides by turns: A/A with every look counted, then with a shift."""
    false = found = 0
    for seed in range(count):
        rng = np.random.default_rng([5301, seed])
        sides = 0.005 * np.stack([noise(rng, SERIES, rounds) for _ in range(2)], axis=1)
        differences = sides[:, 1] - sides[:, 0]
        false += bool(between_sides(differences).members[0].since)
        found += bool(between_sides(differences + math.log1p(shift)).members[0].since)
    return {
        "what": "two sides by turns", "noise": 0.005, "shift": shift, "comparisons": count, "rounds": rounds,
        "found": found, "a_a_called_at_any_look": false,
    }  # fmt: skip


def of_causes(count: int) -> list[dict[str, object]]:
    """All ordered pairs of four nodes with four GPUs each, errors of 0.05 %, one cause of 0.3 %."""
    ends = [(f"n{node}", gpu) for node in range(4) for gpu in range(4)]
    one, other = ends[1], ends[6]
    causes = {
        "nothing": lambda s, t: False,
        "node": lambda s, t: one[0] in (s[0], t[0]), "device": lambda s, t: one in (s, t),
        "sends": lambda s, t: s == one, "receives": lambda s, t: t == one, "link": lambda s, t: {s, t} == {one, other},
        "direction": lambda s, t: (s, t) == (one, other),
    }  # fmt: skip
    rows = []
    for kind, slow in causes.items():
        right = 0
        for seed in range(count):
            rng = np.random.default_rng([5401, seed])
            pairs = [
                Pair(s, t, 0.003 * slow(s, t) + float(rng.normal(0, 0.0005)), 0.0005)
                for s, t in itertools.permutations(ends, 2)
            ]
            explained = whose(pairs)
            kinds = [cause.kind for cause in explained.causes] if not explained.rivals else ["cannot tell"]
            right += kinds == ([] if kind == "nothing" else [kind])
        rows.append({"what": "whose", "cause": kind, "shift": 0.003, "error": 0.0005, "trials": count, "right": right})
    return rows


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--fleets", type=int, default=100)
    parser.add_argument("--out", type=Path, help="file to write, a line for each measurement")
    asked = parser.parse_args()
    lines = []
    for made in (some_recorded, some_memories, few_long_memories, some_scales):
        lines.append(of_fleets(asked.fleets, made))
        say(lines[-1])
    for row in [of_pairs(asked.fleets, 0.003, 360), *of_causes(asked.fleets)]:
        lines.append(row)
        say(row)
    write_lines(asked.out, lines)


if __name__ == "__main__":
    main()
