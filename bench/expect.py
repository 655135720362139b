"""Measures how long limits take, and how much memory: from nodes of eight devices to graphs of a thousand.

    python bench/expect.py [--systems mesh-64,...] [--patterns alltoall,...] [--limit 60] [--source DIR] [--json]

Each system and pattern has a process of its own, which is ended after `--limit` seconds: from the description to all
limits, wall clock and processor time, and the largest resident memory. `--source` takes another tree's `src`, to
compare with. `expect lumi-g --pattern all` is run as a user types it, start-up included. The bars that the figures are
held against are printed beside them and asserted nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benching import ROOT, options

PATTERNS = (
    "unidirectional", "ring_shift", "pairs_bidirectional", "pairs_pingpong", "alltoall", "broadcast", "reduce",
    "scatter", "one_to_all", "allgather", "reduce_scatter", "allreduce",
)  # fmt: skip
EIGHT = ("lumi-g", "v100-dgx-1", "hgx-h200-8", "mi300x-8")


def link(a: str, b: str, rate: float) -> str:
    return f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate} GB/s"\nfrom = ["{a}"]\nto = ["{b}"]\n'


def head(devices: int, switches: Sequence[str] = ()) -> str:
    text = f'name = "made-up"\nsource = "made up"\n[[device]]\nname = "g0..{devices - 1}"\n'
    return text + "".join(f'[[switch]]\nname = "{name}"\n' for name in switches)


def mesh(devices: int) -> str:
    """Return a full mesh."""
    return f'{head(devices)}[[link]]\nkind = "nvlink"\ndata_rate = "25 GB/s"\nmesh = ["g0..{devices - 1}"]\n'


def fat_tree(leaves: int, per_leaf: int, spines: int, *, unlike: bool = False) -> str:
    """Return devices below leaf switches below spine switches, half of the rate going up.

    `unlike`: one leaf's links to each spine differ, so that the spines are no twins and none are merged.
    """
    text = head(leaves * per_leaf, [f"leaf0..{leaves - 1}", f"spine0..{spines - 1}"])
    for leaf in range(leaves):
        text += link(f"g{leaf * per_leaf}..{(leaf + 1) * per_leaf - 1}", f"leaf{leaf}", 50)
        if not unlike:
            text += link(f"leaf{leaf}", f"spine0..{spines - 1}", 25 * per_leaf / spines)
        for spine in range(spines if unlike else 0):
            text += link(f"leaf{leaf}", f"spine{spine}", 25 * per_leaf / spines + (spine if leaf == 0 else 0))
    return text


def dragonfly(groups: int, per_group: int, per_switch: int) -> str:
    """Return groups of switches that are all joined, and a link between any two groups, handed out in turn."""
    text = head(groups * per_group * per_switch, [f"s0..{groups * per_group - 1}"])
    for switch in range(groups * per_group):
        text += link(f"g{switch * per_switch}..{(switch + 1) * per_switch - 1}", f"s{switch}", 25)
    for group in range(groups):
        first = group * per_group
        text += f'[[link]]\nkind = "nvlink"\ndata_rate = "25 GB/s"\nmesh = ["s{first}..{first + per_group - 1}"]\n'
        for other in range(group + 1, groups):
            a, b = first + (other - 1) % per_group, other * per_group + group % per_group
            text += link(f"s{a}", f"s{b}", 25)
    return text


LARGE = {
    "mesh-64": (lambda: mesh(64), 2.0),
    "two-level-64": (lambda: fat_tree(8, 8, 8, unlike=True), 2.0),
    "fat-tree-256": (lambda: fat_tree(16, 16, 8), 10.0),
    "dragonfly-256": (lambda: dragonfly(16, 4, 4), 10.0),
    "fat-tree-1024": (lambda: fat_tree(32, 32, 16), 20.0),
    "dragonfly-1024": (lambda: dragonfly(16, 8, 8), 20.0),
}


def python(source: str) -> tuple[list[str], dict[str, str]]:
    """Return how to start a Python that takes Linkgauge from `source`, wherever it is installed."""
    if Path(source) == ROOT / "src":  # as it is installed: the core lies apart from the sources
        return [sys.executable], dict(os.environ)
    places = (source, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return [sys.executable, "-S"], {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def child(name: str, pattern: str) -> None:
    """Work one system's limits of one pattern out, and print what they took."""
    import linkgauge.system as systems
    from linkgauge.expect import limits

    began, used = time.monotonic(), time.process_time()
    system = systems.from_toml(LARGE[name][0]()) if name in LARGE else systems.load(name)
    devices = range(2) if pattern == "unidirectional" else range(len(system.devices))
    found = limits(system, {"pattern": pattern, "devices": tuple(devices)})
    row = {
        "wall_s": round(time.monotonic() - began, 3),
        "processor_s": round(time.process_time() - used, 3),
        "memory_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "GB_per_s": {c.rule: round((c.value_bytes_per_s or 0.0) / 1e9, 6) for c in found},
    }
    print(json.dumps(row))


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    start, environment = python(options.source)
    for name in options.systems:
        for pattern in options.patterns:
            words = [*start, __file__, "--child", name, pattern]
            row: dict[str, object] = {"system": name, "pattern": pattern}
            row["bar_s"] = LARGE[name][1] if name in LARGE else 0.2
            try:
                done = subprocess.run(words, env=environment, capture_output=True, timeout=options.limit, text=True)
            except subprocess.TimeoutExpired:
                yield {**row, "over_s": options.limit}
                continue
            yield {**row, **(json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-300:]})}
    yield command(options.source)


def command(source: str, repeats: int = 3) -> dict[str, object]:
    """Time `linkgauge expect lumi-g --pattern all` from start to end, the least of some times."""
    start, environment = python(source)
    words = [*start, "-m", "linkgauge", "expect", "lumi-g", "--pattern", "all"]
    walls = []
    for _ in range(repeats):
        began = time.monotonic()
        subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
        walls.append(time.monotonic() - began)
    return {"system": "lumi-g", "pattern": "all, as a command", "bar_s": 2.0, "wall_s": round(min(walls), 3)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=[*EIGHT, *LARGE])
    parser.add_argument("--patterns", type=lambda text: text.split(","), default=PATTERNS)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--source", default=str(ROOT / "src"))
    parser.add_argument("--json", action="store_true", help="a row a line, with the values")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*asked.child)
        return
    for row in rows(asked):
        if asked.json:
            print(json.dumps(row), flush=True)
            continue
        taken = f"{row['wall_s']:8.2f} s" if "wall_s" in row else f"over {asked.limit:g} s"
        taken += f" ({row['processor_s']:.2f} s of processor)" if "processor_s" in row else ""
        memory = f"{row['memory_MiB']:6} MiB" if "memory_MiB" in row else ""
        print(f"{row['system']:15} {row['pattern']:20} {taken:38} of {row['bar_s']:4g} {memory} {row.get('error', '')}")


if __name__ == "__main__":
    main()
