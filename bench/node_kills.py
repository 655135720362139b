"""Kills of a rank, of the parent and of a node, over the nodes of an emulated cluster: what is lost, and what is left.

    python bench/node_kills.py [--count 30] [--first 0] [--out FILE.json]     (as root, with iproute2)

A run over three nodes, by MPICH and Open MPI in turn, is hit at a drawn moment from its first launch on. A node is hit
with all its processes. `linkgauge run --resume RUN` alone is then to complete it, with no case lost that had its
status, and nothing of it is to be left on any node: no file, no process.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, options, say
from cluster.cluster import Cluster
from cluster.layout import MBIT, Layout
from cluster.test_between_nodes import _begun, left_on, processes_of
from linkgauge.run.parent.mpi_library import find_all

RUN = [*PROGRAM, "run", "--no-report"]
PLAN = ["--devices", "host:1", "--transport", "mpi", "--pattern", "allreduce,alltoall", "--size", "8,4KiB,64KiB",
        "--stop-rule", "duration", "--max-time", "500ms"]  # fmt: skip
LEFT_S = 25.0
FAMILIES = ("mpich", "openmpi")


def statuses(out: Path) -> dict[str, str]:
    from linkgauge.store.run import load

    return {f"{row.case_key} {row.attempt}": str(row.status) for row in load(out).rows() if row.status}


def hit(cluster: Cluster, what: str, node: str) -> int:
    """Kill a rank of a node, all that runs there, or the parent; how many processes that were."""
    if what == "parent":
        victims = processes_of(cluster, "login", "--no-report")
    elif what == "rank":
        victims = processes_of(cluster, node, "linkgauge.run.rank.worker")
    else:  # all but what holds its namespaces
        holder = str(cluster.node_pid(node))
        victims = [one for one in processes_of(cluster, node, "") if one != holder]
    if victims:
        cluster.run("fabric", ["kill", "-KILL", *victims])
    return len(victims)


def _left(cluster: Cluster) -> dict[str, list[str]]:
    """Files and processes of each node."""
    found = {}
    for node in (*cluster.layout.nodes, "login"):
        holder = str(cluster.node_pid(node))
        processes = [f"process {one}" for one in processes_of(cluster, node, "") if one != holder]
        if left := [*left_on(cluster, node), *processes]:
            found[node] = left
    return found


def one(what: str, mpi: str, seed: int) -> dict[str, Any]:
    """One kill: what it was, and what came of it."""
    from linkgauge.stats.attempts import counted
    from linkgauge.store.run import load

    drawn = random.Random(seed)
    moment, wait_s, node = drawn.randrange(4), drawn.random(), drawn.choice(("n0", "n1", "n2"))
    with Cluster(Layout.of(3, rate=100 * MBIT)) as cluster:
        out = cluster.folder / "measured"
        run = cluster.start("login", [*RUN, "--hosts", "n0,n1,n2", "--out", str(out), "--mpi", mpi, *PLAN],
                            env=ON_A_NODE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        until = time.monotonic() + 120
        first = out / "journal" / "launch-00000.json"
        while time.monotonic() < until and not (_begun(out, moment) if moment else first.exists()):
            time.sleep(0.05)
        time.sleep(wait_s * (0.5 if moment else 3.0))
        killed = hit(cluster, what, node)
        said = run.communicate(timeout=300)[1].decode(errors="replace")
        before = statuses(out)
        reasons = [row.reason for row in load(out).rows() if row.status in ("crashed", "hung", "failed")]
        done = cluster.run("login", [*RUN, "--resume", str(out)], env=ON_A_NODE, timeout_s=300)
        after = statuses(out)
        found = counted(load(out))
        until = time.monotonic() + LEFT_S
        while (left := _left(cluster)) and time.monotonic() < until:
            time.sleep(0.5)
    complete = len(found.measured) + len(found.others) == 6
    kept = all(after.get(key) == status for key, status in before.items())
    right = complete and kept and not left and done.returncode in (0, 4)
    return {"what": what, "mpi": mpi, "node": node, "seed": seed, "moment": "start" if not moment else f"case {moment}",
            "killed": killed, "kept": kept, "complete": complete, "left": left, "status": done.returncode,
            "reasons": reasons, "right": right, **({} if right else {"said": (said + done.stderr)[-800:]})}  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    usable = [one for one in find_all() if not one.problem]
    libraries = [next(one.name for one in usable if one.vendor == family) for family in FAMILIES]
    found = []
    for seed in range(asked.first, asked.first + asked.count):
        found.append(one(("rank", "parent", "node")[seed % 3], libraries[seed // 3 % 2], seed))
        say(found[-1])
        if asked.out:
            asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
