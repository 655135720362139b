"""Holds bounds and simulated times against independent solvers on drawn clusters (tests/cluster_oracle.py).

    python bench/drawn_clusters.py [--count 300] [--first 0] [--json FILE]

Every description has a network with domains of nodes, short groups, NICs behind PCIe, and unlike flows. The tests try a
few dozen of them; docs/results/simulate.md has what 300 showed.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from benching import options, write_lines
from cluster_oracle import drawn, said_of, tried


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    began, rows, every = time.process_time(), [], []
    for seed in range(asked.first, asked.first + asked.count):
        one, cluster = tried(seed), drawn(seed)
        every.append(one)
        rows.append({"seed": seed, "kind": cluster.small.kind, "nodes": cluster.nodes, "in_domain": cluster.in_domain,
                     "behind": cluster.behind, **dataclasses.asdict(one)})  # fmt: skip
        for line in one.broken:
            print(line, flush=True)
        write_lines(asked.json, rows)
    print(f"{said_of(every)}; {time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
