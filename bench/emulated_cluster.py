"""What holds on an emulated, lossless cluster: `simulate` beside what was measured, and jobs beside each other.

    python bench/emulated_cluster.py [simulate] [jobs] [classes] [--rate MBIT] [--out FOLDER] [--seeds 0:20]
    (as root, with iproute2)

Each line is a run of linkgauge between namespaces (tests/cluster), MPICH by libfabric's tcp, with the collective's
algorithm chosen by MPICH's own switch. `simulate`: eight nodes, two a switch, a switch's uplink as narrow as a node's
link; the library's factor is of the same pattern on two nodes of different switches. That the algorithm was taken is
told by the bytes that the shapers of a switch's uplink counted. `jobs`: slow-downs beside loads on other nodes.
`classes`: two groups of two switches of two nodes, which no file describes and whose order is drawn, distinguished by
large messages over uplinks narrower by 2 and by 4, and by latency.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, add_line, options, seeds
from cluster.cluster import Cluster
from cluster.layout import MBIT, Layout

LIBRARY = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "MPIR_CVAR_NOLOCAL": "1",
           "MPIR_CVAR_COLLECTIVE_FALLBACK": "error"}  # fmt: skip
MIB = 1 << 20
# What is measured: pattern, size, the algorithm as `simulate` has it, and as MPICH has it.
PREDICTED = (
    ("ring_shift", 16 * MIB, "", ""),
    ("alltoall", 2 * MIB, "at_once", "scattered"),
    ("alltoall", 2 * MIB, "pairwise", "pairwise"),
    ("allreduce", 16 * MIB, "ring", "ring"),
    ("allreduce", 16 * MIB, "halving", "reduce_scatter_allgather"),
    ("allreduce", 16 * MIB, "doubling", "recursive_doubling"),
)
OPERATIONS_UNTIMED = 3  # the first one's check, a warm-up, the last one's check


def run(cluster: Cluster, out: Path, hosts: str, words: list[str], algorithm: tuple[str, str] = ("", "")) -> Any:
    """One run between nodes, loaded."""
    from linkgauge.store.run import load

    asked = dict(LIBRARY)
    if algorithm[1]:
        asked[f"MPIR_CVAR_{algorithm[0].upper()}_INTRA_ALGORITHM"] = algorithm[1]
    command = [*PROGRAM, "run", "--no-report", "--devices", "host:1", "--transport", "mpi",
               "--hosts", hosts, "--stop-rule", "count", "--max-time", "120s", "--warmup", "1", "--out", str(out),
               *words, *(word for pair in asked.items() for word in ("--env", "=".join(pair)))]  # fmt: skip
    done: subprocess.CompletedProcess[str] = cluster.run(
        "login", command, cwd=Path.cwd(), env=ON_A_NODE, timeout_s=1800
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return load(out)


def summary(run_: Any) -> dict[str, Any]:
    """The one row of a run that is of all lanes."""
    from linkgauge.stats.summary import summarize

    (row,) = [row for row in summarize(run_).to_pylist() if row["lane"] == -1]
    return dict(row)


def predicted(out: Path, rate: float) -> None:
    """Print a line a pattern: what is predicted of eight nodes after calibration on two, and what was measured."""
    from linkgauge.simulate import Placement, Request, Rule, answers, fat_tree, laid_out
    from linkgauge.simulate.calibrate import calibrate

    port = rate * MBIT / 8
    fabric = fat_tree(nodes=8, gpus=1, ports=1, port_rate=port, block_nodes=2, link_rate=port, spines=1, up_links=1)
    layout = Layout(((2, 2, 2, 2),), rate=rate * MBIT, switch_rate=rate * MBIT, lossless=True)
    print("| pattern | algorithm | MiB over an uplink | factor | predicted, s | measured, s (5 samples) | goodput |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for pattern, size, name, theirs in PREDICTED:
        words = ["--pattern", pattern, "--size", str(size), "--stop-samples", "5"]
        with Cluster(layout) as cluster:
            two = run(cluster, out / f"{pattern}-{name}-2", "n0,n2", words, (pattern, theirs))
            before = cluster.carried("s0")
            eight = run(cluster, out / f"{pattern}-{name}-8", ",".join(layout.nodes), words, (pattern, theirs))
            moved = (cluster.carried("s0") - before).sent / (5 + OPERATIONS_UNTIMED)
            dropped = cluster.dropped()
        request = Request(pattern, size, name)
        # Of two nodes: halving and doubling are what they are of eight; a ring of two is an exchange as well.
        factor = calibrate(two, fabric, request).factor
        (answer,) = answers(laid_out(fabric, 8, Placement()), request, [Rule("best")], factor)
        row = summary(eight)
        expected, seen = answer.seconds / factor, row["median_ns"] / 1e9
        print(f"| {pattern} | {name or '-'} | {moved / MIB:.1f} | {factor:.3f} | {expected:.2f} | {seen:.2f} "
              f"({row['min_ns'] / 1e9:.2f} to {row['max_ns'] / 1e9:.2f}) | {expected / seen - 1:+.1%} |"
              f"{f' {dropped} dropped' if dropped else ''}", flush=True)  # fmt: skip


def jobs(out: Path, rate: float) -> None:
    """Print a line a case beside loads: its slow-down with its interval, and what each load keeps."""
    from linkgauge.stats.interference import interferences

    port = rate * MBIT / 8
    narrow = Layout(((4, 4),), rate=rate * MBIT, switch_rate=rate * MBIT, lossless=True)
    flat = Layout.of(8, rate=rate * MBIT, lossless=True)
    pairs = "n0,n4,n1,n5,n2,n6,n3,n7"  # each first one on the one switch, each second one on the other
    flow, exchange = "ring_shift 512KiB", "alltoall 256KiB"
    print("| what | alone | slow-down (95 % interval) | loads keep |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    for senders in (1, 2, 3, 7):
        with Cluster(flat) as cluster:
            hosts = ",".join(flat.nodes[: senders + 1])
            row = summary(run(cluster, out / f"incast-{senders}", hosts,
                              ["--pattern", "all_to_one", "--size", "1MiB", "--stop-samples", "9"]))  # fmt: skip
        share = row["goodput_bytes_per_s"] / port
        print(f"| {senders} into one port: sum over its rate | {share:.3f} | - | - |", flush=True)
    one = f"mpi {flow}"
    of_loads = dict.fromkeys(("n1", "n5", "n2", "n6", "n3", "n7"), 1)
    three = f"{one} on=2,3+4,5+6,7"
    cases = [
        ("disjoint pairs on one switch, three loads", flat, pairs, "2", flow, three),
        *((f"beside {k} flow{'s' * (k > 1)} on its uplink", narrow, pairs, "2", flow,
           f"{one} on={'+'.join(f'{2 * j},{2 * j + 1}' for j in range(1, k + 1))}") for k in (1, 2, 3)),
        ("two jobs of four, each on its own switch", narrow, ",".join(narrow.nodes), "4", exchange,
         f"mpi {exchange} on=4,5,6,7"),
        ("two jobs of four, interleaved over both", narrow, "n0,n1,n4,n5,n2,n3,n6,n7", "4", exchange,
         f"mpi {exchange} on=4,5,6,7"),
        *((f"service classes {a}:{b}, three flows in the other one",
           dataclasses.replace(narrow, classes=of_loads, weights=(a, b)), pairs, "2", flow, three)
          for a, b in ((1, 1), (3, 1))),
    ]  # fmt: skip
    for number, (title, layout, hosts, ranks, own, beside) in enumerate(cases):
        (pattern, size), fabric = own.split(), out / f"fabric-{number}"
        fabric.write_text(layout.fabric_file())
        with Cluster(layout) as cluster:
            words = ["--pattern", pattern, "--size", size, "--ranks", ranks, "--background", beside,
                     "--stop-samples", "27",
                     "--fabric", str(fabric)]  # fmt: skip
            (found,) = interferences(run(cluster, out / f"jobs-{number}", hosts, words))
            shown = cluster.run(
                "login", [*PROGRAM, "show", str(out / f"jobs-{number}")], cwd=Path.cwd(), env=ON_A_NODE
            ).stdout
        (out / f"jobs-{number}.txt").write_text(shown)
        middle = found.slow_downs[0]
        kept = ", ".join(f"{one.kept:.2f}" for one in found.loads if one.kept) or "-"
        between = "" if middle.interval is None else f" ({middle.interval[0]:.2f} to {middle.interval[1]:.2f})"
        print(f"| {title} | {found.alone_ns / 1e6:.0f} ms | {middle.factor:.2f}{between}, {found.windows} windows "
              f"| {kept} |", flush=True)  # fmt: skip


PAIRS = """
[[case]]
pattern = "unidirectional"
size = "128KiB"
pairs = "nodes"
stop_samples = 4

[[case]]
pattern = "pingpong"
size = "8"
pairs = "nodes"
stop_samples = 5
"""


PAIRS_BY = {"unidirectional": "median_ns", "pingpong": "min_ns"}  # of PAIRS


def classes(out: Path, rate: float, drawn: range) -> None:
    """Print a line a drawn order of the nodes: of how many pairs the class was inferred right, by rate and latency.

    What the pairs took goes to classes.jsonl, a line an order.
    """
    layout = Layout(((2, 2), (2, 2)), rate=rate * MBIT, switch_rate=rate * MBIT / 2, group_rate=rate * MBIT / 4,
                    switch_delay=0.0005, group_delay=0.001, lossless=True)  # fmt: skip
    plan = out / "pairs.toml"
    plan.write_text(PAIRS)
    print("| order of the nodes | pairs right by 128 KiB | by 8 B |")
    print("| --- | ---: | ---: |", flush=True)
    for seed in drawn:
        hosts = list(layout.nodes)
        random.Random(seed).shuffle(hosts)
        with Cluster(layout) as cluster:
            measured = run(cluster, out / f"classes-{seed}", ",".join(hosts), ["--plan", str(plan)])
        told = inferred_classes(measured, layout)
        by_size = " | ".join(f"{told[pattern]['right']} of {len(told[pattern]['ms'])}" for pattern in PAIRS_BY)
        print(f"| {' '.join(hosts)} | {by_size} |", flush=True)
        add_line(out / "classes.jsonl", {"seed": seed, "order": hosts, "load": os.getloadavg()[0], **told})


def inferred_classes(measured: Any, layout: Layout) -> dict[str, dict[str, Any]]:
    """By each pattern: of how many pairs of nodes the class is inferred right, and what the pairs took, in ms.

    Of large messages the medians' mean of both ways, of small ones the least.
    """
    from linkgauge.model.result import Measured
    from linkgauge.stats.distance import from_rows
    from linkgauge.stats.launches import Places
    from linkgauge.stats.summary import results_of

    places, told = Places(measured.launched), {}
    for pattern, figure in PAIRS_BY.items():
        rows = [row for row in results_of(measured)
                if isinstance(row, Measured) and row.is_headline and row.pattern == pattern]  # fmt: skip
        found = from_rows(rows, places)
        took: dict[str, list[float]] = {}
        for row in rows:
            pair = "-".join(sorted(place.node for place in places.of_row(row)))
            took.setdefault(pair, []).append(getattr(row, figure) / 1e6)
        right = sum(found is not None and found.distance(*pair) == layout.distance(*pair)
                    for pair in itertools.combinations(layout.nodes, 2))  # fmt: skip
        average = min if figure == "min_ns" else statistics.fmean
        told[pattern] = {"right": right, "ms": {pair: round(average(times), 3) for pair, times in sorted(took.items())}}
    return told


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", nargs="*", default=["simulate", "jobs"], help="of simulate, jobs and classes")
    parser.add_argument("--rate", type=float, default=100, help="of a node's link, Mb/s")
    parser.add_argument("--out", type=Path, default=Path("runs/emulated_cluster"), help="a folder of runs, not in /tmp")
    parser.add_argument(
        "--seeds", type=seeds, default="0:20", help="classes: of the orders drawn, from and to, as 0:20"
    )
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if "simulate" in asked.what:
        predicted(asked.out, asked.rate)
    if "jobs" in asked.what:
        jobs(asked.out, asked.rate)
    if "classes" in asked.what:
        classes(asked.out, asked.rate, asked.seeds)


if __name__ == "__main__":
    main()
