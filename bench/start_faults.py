"""What is said, and how soon, where a node of an emulated cluster cannot start ranks: each fault alone, three at once.

    python bench/start_faults.py [--nodes 4] [--only NAME] [--out FILE.json]     (as root, with iproute2)

Each fault of tests/cluster/start_faults.py is planted on a node in turn, and `linkgauge run --hosts` is to name node
and cause. Then threes of faults on three nodes of one cluster. Then a look at 100 nodes, of which ten hang.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, options, say
from cluster.cluster import Cluster
from cluster.layout import Layout
from cluster.start_faults import FAULTS, READ_ONLY, StartFault


def started(
    cluster: Cluster, hosts: Sequence[str], env: Mapping[str, str]
) -> tuple[subprocess.CompletedProcess[str], float]:
    """The start of a run between hosts, and how long it took."""
    folder = cluster.folder / "shared"
    words = [*PROGRAM, "run", "--hosts", ",".join(hosts), "--devices", "host:1", "--no-report",
             "--transport", "mpi", "--pattern", "barrier", "--stop-rule", "count", "--stop-samples", "5", "--out",
             str(folder / "run")]  # fmt: skip
    began = time.monotonic()
    done = cluster.run("login", words, cwd=folder, env={**ON_A_NODE, **env})
    return done, time.monotonic() - began


def tried(faults: Mapping[str, StartFault], nodes: int) -> dict[str, Any]:
    """Plant each fault on its node of one cluster, and return whether all were named, in how many seconds."""
    with Cluster(Layout.of(nodes)) as cluster:
        (cluster.folder / "shared").mkdir()
        for node, fault in faults.items():
            fault.plant(cluster, node)
        env = {name: value for fault in faults.values() for name, value in fault.env.items()}
        done, seconds = started(cluster, cluster.layout.nodes, env)
    lines = done.stderr.splitlines()
    named = {node: any(node in line and fault.says in line for line in lines) for node, fault in faults.items()}
    accused = sorted(
        {node for node in cluster.layout.nodes for line in lines
         if f"node {node}" in line and node not in faults and "has an MTU of" not in line}
    )  # fmt: skip
    status = max(fault.status for fault in faults.values())
    return {
        "faults": {node: fault.name for node, fault in faults.items()},
        "named": named,
        "seconds": round(seconds, 2),
        "status": done.returncode,
        "others_named": accused,
        "right": all(named.values()) and not accused and done.returncode == status,
        **({} if all(named.values()) else {"said": lines[-12:]}),
    }


def many(nodes: int, hung: int) -> dict[str, Any]:
    """A look at many nodes, of which some hang."""
    faults = {fault.name: fault for fault in FAULTS}
    with Cluster(Layout.of(nodes)) as cluster:
        (cluster.folder / "shared").mkdir()
        for node in cluster.layout.nodes[:hung]:
            faults["ssh hangs"].plant(cluster, node)
        done, seconds = started(cluster, cluster.layout.nodes, {})
    said = sum("ssh has said nothing" in line for line in done.stderr.splitlines() if "warning: node" in line)
    return {"nodes": nodes, "hung": hung, "named": said, "seconds": round(seconds, 2), "status": done.returncode}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--only", help="a fault's name")
    parser.add_argument("--first", type=int, default=0, help="begin with this fault")
    parser.add_argument("--many", type=int, default=100, help="nodes of the last look; 0: none")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "alone": [], "three": []}
    chosen = [fault for fault in FAULTS if asked.only in (None, fault.name)][asked.first :]
    for number, fault in enumerate(chosen):
        found["alone"].append(tried({f"n{1 + number % (asked.nodes - 1)}": fault}, asked.nodes))
        say(found["alone"][-1])
    if asked.only in (None, READ_ONLY.name):
        found["alone"].append(tried({"n0": READ_ONLY}, asked.nodes))
        say(found["alone"][-1])
    if asked.only is None:
        stopping = [fault for fault in FAULTS if fault.stops and fault.name not in ("MTU", "no way to others")]
        for three in itertools.islice(zip(*[iter(stopping)] * 3, strict=False), 7):
            found["three"].append(tried({f"n{one + 1}": fault for one, fault in enumerate(three)}, max(asked.nodes, 5)))
            say(found["three"][-1])
        if asked.many:
            found["many"] = many(asked.many, asked.many // 10)
            say(found["many"])
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
