"""What `linkgauge simulate` takes: seconds and memory over counts of GPUs, patterns, placements and rules.

    PYTHONPATH=src python bench/simulated_clusters.py [--simgrid] [--json FILE]

Each line is a process of its own. --simgrid also times SimGrid 3.32 (Debian: python3-simgrid) on the same alltoall of
a dragonfly zone of 32, 64 and 128 hosts, beside ours, and prints how far the two times of finishing are apart.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benching import options, say, write_lines

# A dragonfly of 100 groups of 128 nodes of 8 GPUs: 102,400 GPUs, 32 switches a group, 4 links between two groups.
COUNTS = (1_000, 10_000, 100_000)
RULES = ("minimal", "third_group", "best")


def case(gpus: int, pattern: str, algorithm: str, placement: str, rule: str) -> dict[str, object]:
    """Simulate one case in this process."""
    from linkgauge.simulate import Placement, Request, Rule, answers, dragonfly, laid_out

    began = time.perf_counter()
    fabric = dragonfly(
        groups=100, nodes_per_group=128, gpus=8, ports=4, port_rate=25e9, switches=32, block_nodes=16, homes=4,
        link_rate=25e9, pair_links=4,
    )  # fmt: skip
    layout = laid_out(fabric, gpus, Placement(placement))
    (found,) = answers(layout, Request(pattern, 2 << 20, algorithm), [Rule(rule)])
    return {
        "gpus": gpus, "pattern": pattern, "algorithm": algorithm, "placement": placement, "rule": rule,
        "seconds": round(time.perf_counter() - began, 3),
        "peak_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "goodput_Gbit": round(found.goodput * 8e-9, 2),
        "reached_Gbit": None if found.reached is None else round(found.reached * 8e-9, 2),
    }  # fmt: skip


def cases() -> list[tuple[int, str, str, str, str]]:
    """Those of the bars, and all patterns at 4,096 GPUs."""
    from linkgauge.simulate.traffic import TRAFFIC

    listed = [
        (gpus, pattern, algorithm, placement, rule)
        for gpus in COUNTS
        for pattern, algorithm in (("alltoall", ""), ("allreduce", "hierarchical"))
        for placement in ("packed", "random")
        for rule in RULES
    ]
    listed += [(100_000, "permutation", "", "random", "best")]
    listed += [
        (4096, pattern, name, "random", rule) for pattern in TRAFFIC for name in TRAFFIC[pattern] for rule in RULES
    ]
    return listed


def beside_simgrid() -> list[dict[str, object]]:
    """The same alltoall by SimGrid and by us."""
    from linkgauge.simulate.routes import Rule
    from simulate import test_simgrid

    found: list[dict[str, object]] = []
    for shape in ((2, 2, 2, 4), (2, 2, 4, 4), (4, 2, 4, 4)):
        made = test_simgrid.zone(*shape)
        jobs = test_simgrid.jobs_on(made, "alltoall", 1)
        there, their_seconds = test_simgrid.theirs(
            kind="dragonfly", shape=shape, rate=1e9, flows=test_simgrid.flows_of(jobs)
        )
        here, shared = min((test_simgrid.ours(made, jobs, Rule("minimal")) for _ in range(5)), key=lambda one: one[1])
        alone, seconds = min(
            (test_simgrid.alone(made, jobs[0], Rule("minimal")) for _ in range(5)), key=lambda one: one[1]
        )
        found.append({
            "hosts": made.nodes, "simgrid_s": round(their_seconds, 3), "fullest_link_s": round(seconds, 5),
            "played_out_s": round(shared, 4), "times": round(their_seconds / seconds),
            "times_played_out": round(their_seconds / shared), "apart": f"{alone / there[0] - 1:+.1e}",
            "played_out_apart": f"{here[0] / there[0] - 1:+.1e}",
        })  # fmt: skip
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--simgrid", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        gpus, pattern, algorithm, placement, rule = json.loads(arguments.case)
        print(json.dumps(case(gpus, pattern, algorithm, placement, rule)))
        return
    lines: list[dict[str, object]] = []
    for one in cases():
        done = subprocess.run(
            [sys.executable, __file__, "--case", json.dumps(one)], capture_output=True, text=True, check=True
        )
        lines.append(json.loads(done.stdout))
        print(done.stdout.strip(), flush=True)
    if arguments.simgrid:
        for line in beside_simgrid():
            lines.append(line)
            say(line)
    write_lines(arguments.json, lines)


if __name__ == "__main__":
    main()
