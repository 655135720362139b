r"""How often `linkgauge isolate` finds one slow node of many, by simulation with measured noise.

    PYTHONPATH=src python bench/isolate.py [--nodes 64,1024,10000] [--trials 100] [--seed 1000] \
        > docs/results/data/isolate.json

The noise is that of the stored runs `before` and `after` of docs/_runs: by how far each launch's median of a case lies
from the middle of its five launches. A group's time is off by one of these values, drawn anew for each group and round.
A group with the slow node takes longer by the node's loss. `gone`: the chance that a node is lost while a round is
measured, so that nothing is known of its group. Nodes that are lost between two rounds cost none.
"""

from __future__ import annotations

import collections
import json
import math
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from benching import ROOT, options
from linkgauge.judge.isolate import Search, rounds_for

LEAST_BYTES = 65536


def launch_noise() -> list[float]:
    """Return the deviations of launches' medians, as logarithms, free of their mean's own error."""
    from linkgauge.stats.attempts import counted
    from linkgauge.store.run import load

    found: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("before", "after"):
            with tarfile.open(ROOT / "docs" / "_runs" / f"{name}.tar.xz") as file:
                file.extractall(scratch, filter="data")
            cases: dict[str, list[float]] = collections.defaultdict(list)
            for row in counted(load(Path(scratch) / name)).rows:
                if row.is_headline and row.status == "ok" and row.case.size >= LEAST_BYTES:
                    cases[row.case_key].append(math.log(row.median_ns))  # type: ignore[union-attr]
            for logs in cases.values():
                n = len(logs)
                found += [(one - sum(logs) / n) * math.sqrt(n / (n - 1)) for one in logs if n > 2]
    return found


def trial(
    nodes: int, by: str, seed: int, noise: list[float], *, slow: bool, gone: float = 0.0, loss: float = 0.2,
    assumed: float = 0.03,
) -> tuple[str, int]:  # fmt: skip
    """Search once; return found, false or unknown, and the number of rounds."""
    drawn = np.random.default_rng(seed)
    names = [f"n{number}" for number in range(nodes)]
    bad = names[drawn.integers(nodes)] if slow else ""
    search = Search(names, loss, assumed, by, seed)
    while not search.ended:
        lost = {names[drawn.integers(nodes)]} - {bad} if drawn.random() < gone else set()
        times: dict[tuple[str, ...], float | None] = {}
        for group in search.groups():
            longer = -math.log(1 - loss) if bad in group else 0.0
            times[group] = None if lost & {*group} else math.exp(drawn.choice(noise) + longer)
        for name in lost:
            search.drop(name, "lost")
        search.observe(times)
    right = search.slow == [bad] if slow else search.cleared and not search.slow
    return "found" if right else "false" if set(search.slow) - {bad} else "unknown", search.rounds


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--nodes", default="64,1024,10000")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1000, help="the first one; tests have those below")
    given = parser.parse_args()
    noise = launch_noise()
    rows = []
    for nodes in map(int, given.nodes.split(",")):
        for by, slow, gone in (("halves", True, 0.0), ("halves", False, 0.0), ("halves", True, 0.1),
                               ("pairs", True, 0.0), ("pairs", False, 0.0)):  # fmt: skip
            seeds = range(given.seed, given.seed + given.trials)
            ends = [trial(nodes, by, seed, noise, slow=slow, gone=gone) for seed in seeds]
            counts = collections.Counter(end for end, _ in ends)
            rounds = [count for _, count in ends]
            rows.append({"nodes": nodes, "by": by, "slow": int(slow), "gone": gone, **counts,
                         "rounds_mean": float(np.mean(rounds)), "rounds_most": max(rounds),
                         "limit": rounds_for(nodes, 0.2, 0.03, by).most})  # fmt: skip
            print(rows[-1], file=sys.stderr)
    print(json.dumps({"loss": 0.2, "assumed_noise": 0.03, "trials": given.trials, "first_seed": given.seed,
                      "noise": [round(one, 5) for one in noise], "results": rows}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
