"""Kills of a rank, of the parent and of a node, over the nodes of an emulated cluster: what is lost, and what is left.

    python bench/node_kills.py [--count 30] [--out FILE.json]     (as root, with iproute2)

A run over three nodes is hit at a drawn moment. `linkgauge run --resume RUN` alone is then to complete it, with no
case lost that had its status, and nothing of it is to be left on any node.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from cluster.cluster import Cluster  # noqa: E402
from cluster.layout import MBIT, Layout  # noqa: E402
from cluster.test_between_nodes import _begun, left_on, processes_of  # noqa: E402

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path)}
PROGRAM = [sys.executable, "-m", "linkgauge", "run", "--no-report"]
PLAN = ["--devices", "host:1", "--transport", "mpi", "--pattern", "allreduce,alltoall", "--size", "8,4KiB,64KiB",
        "--stop-rule", "duration", "--max-time", "500ms"]  # fmt: skip
LEFT_S = 25.0


def statuses(out: Path) -> dict[str, str]:
    from linkgauge.store.run import load

    return {f"{row.case_key} {row.attempt}": str(row.status) for row in load(out).rows() if row.status}


def hit(cluster: Cluster, what: str, out: Path) -> None:
    if what == "parent":
        victims = processes_of(cluster, "login", out.name)
    elif what == "rank":
        victims = processes_of(cluster, "n1", "linkgauge.run.rank.worker")
    else:  # all that runs there, but what holds its namespaces
        holder = str(cluster.node_pid("n1"))
        victims = [one for one in processes_of(cluster, "n1", "") if one != holder]
    if victims:
        cluster.run("fabric", ["kill", "-KILL", *victims])


def _left(cluster: Cluster) -> dict[str, list[str]]:
    return {node: files for node in (*cluster.layout.nodes, "login") if (files := left_on(cluster, node))}


def one(what: str, seed: int) -> dict[str, Any]:
    from linkgauge.stats.attempts import counted
    from linkgauge.store.run import load

    drawn = random.Random(seed)
    with Cluster(Layout.of(3, rate=100 * MBIT)) as cluster:
        out = cluster.folder / "run"
        run = cluster.start("login", [*PROGRAM, "--hosts", "n0,n1,n2", "--out", str(out), *PLAN], env=ENVIRONMENT,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        until = time.monotonic() + 120
        while time.monotonic() < until and not _begun(out, 1 + drawn.randrange(3)):
            time.sleep(0.05)
        time.sleep(drawn.random() * 0.5)
        hit(cluster, what, out)
        said = run.communicate(timeout=240)[1].decode(errors="replace")
        before = statuses(out)
        reasons = [row.reason for row in load(out).rows() if row.status in ("crashed", "hung")]
        done = cluster.run("login", [*PROGRAM, "--resume", str(out)], env=ENVIRONMENT, timeout_s=240)
        after = statuses(out)
        found = counted(load(out))
        until = time.monotonic() + LEFT_S
        while (left := _left(cluster)) and time.monotonic() < until:
            time.sleep(0.5)
    complete = len(found.measured) + len(found.others) == 6
    kept = all(after.get(key) == status for key, status in before.items())
    right = complete and kept and not left and done.returncode in (0, 4)
    return {"what": what, "seed": seed, "kept": kept, "complete": complete, "left": left, "status": done.returncode,
            "reasons": reasons, "right": right, **({} if right else {"said": (said + done.stderr)[-800:]})}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = []
    for number in range(asked.count):
        found.append(one(("rank", "parent", "node")[number % 3], number))
        print(json.dumps(found[-1]), flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
