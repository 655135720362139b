"""Measures how long expected goodput takes: the linear programs, the cuts, and the command as a user types it.

    python bench/expect.py [--repeats 5] [--json]

Wall clock and processor time, each the least of the repeats, of this process; `expect lumi-g --pattern all` is run in
a fresh process, start-up included. The bars that the figures are held against are printed beside them and asserted
nowhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

EIGHT = ("lumi-g", "p100-dgx-1", "v100-dgx-1", "hgx-h200-8", "mi300x-8")
LEAVES, PER_LEAF, SPINES = 8, 8, 8


def two_level() -> str:
    """Return 64 devices below 8 leaf switches below 8 spine switches, half of the rate going up."""
    text = f'name = "two-level"\nsource = "made up"\n[[device]]\nname = "g0..{LEAVES * PER_LEAF - 1}"\n'
    text += f'[[switch]]\nname = "leaf0..{LEAVES - 1}"\n[[switch]]\nname = "spine0..{SPINES - 1}"\n'
    for leaf in range(LEAVES):
        first = leaf * PER_LEAF
        text += '[[link]]\nkind = "nvlink"\ndata_rate = "50 GB/s"\n'
        text += f'from = ["g{first}..{first + PER_LEAF - 1}"]\nto = ["leaf{leaf}"]\n'
    # One leaf's links to each spine differ, so that the spines are no twins and none are merged.
    for spine in range(SPINES):
        for leaf in range(LEAVES):
            rate = 25 + (spine if leaf == 0 else 0)
            text += f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate} GB/s"\na = "leaf{leaf}"\nb = "spine{spine}"\n'
    return text


def least(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the least wall clock and the least processor time of some repeats, in s."""
    walls, processor = [], []
    for _ in range(repeats):
        start, used = time.monotonic(), time.process_time()
        work()
        walls.append(time.monotonic() - start)
        processor.append(time.process_time() - used)
    return {"wall_s": min(walls), "processor_s": min(processor)}


def programs(repeats: int) -> list[dict[str, object]]:
    """Time the linear programs and the cuts on each system."""
    import linkgauge.system as systems
    from linkgauge.expect import cuts, flows
    from linkgauge.expect.graph import Wires, wires

    found = []
    named = [(name, systems.load(name), 0.2) for name in EIGHT] + [("two-level", systems.from_toml(two_level()), 10.0)]
    for name, system, bar in named:
        graph = wires(system)
        names = list(graph.devices.values())
        weights = dict.fromkeys(names, 1)
        demands = flows.all_pairs(weights)

        def fresh(graph: Wires = graph) -> Wires:
            # Results are kept with the graph that they were asked of: each repetition asks a new one.
            return dataclasses.replace(graph)

        works: dict[str, Callable[[], object]] = {
            "alltoall, concurrent flow": lambda new=fresh, demands=demands: flows.concurrent(new(), demands),
            "allreduce, trees": lambda new=fresh, names=names: flows.allreduce_trees(new(), names),
            "allgather, cuts": lambda new=fresh, weights=weights: cuts.gather_all(new(), weights),
        }
        for what, work in works.items():
            times = least(work, repeats if bar < 1 else 1)
            found.append({"system": name, "what": what, "arcs": len(graph.arcs), "bar_s": bar, **times})
    return found


def command(repeats: int) -> dict[str, object]:
    """Time `linkgauge expect lumi-g --pattern all` from start to end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "linkgauge", "expect", "lumi-g", "--pattern", "all"]

    def work() -> None:
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=120)

    before = os.times()
    times = least(work, repeats)
    after = os.times()
    used = (after.children_user + after.children_system - before.children_user - before.children_system) / repeats
    return {"system": "lumi-g", "what": "expect --pattern all", "bar_s": 2.0, **times, "processor_s": used}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [*programs(options.repeats), command(options.repeats)]
    if options.json:
        print(json.dumps({"load": os.getloadavg(), "cores": os.cpu_count(), "rows": rows}, indent=1))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for row in rows:
        print(
            f"{row['system']:12} {row['what']:28} wall {row['wall_s']:8.3f} s   processor {row['processor_s']:8.3f} s"
            f"   bar {row['bar_s']:g} s"
        )


if __name__ == "__main__":
    main()
