"""`linkgauge health` as Slurm's HealthCheckProgram, and `linkgauge isolate`, on emulated clusters.

    python bench/health.py [--nodes 2] [--rounds 50] [--interval 20] [--texts FOLDER] > docs/results/data/health.json
    (as root, with iproute2, Slurm and munge)

Nodes of one switch run docs/schedulers/slurm-health.sh with the partner `login`. They share the machine's cores and the
partner's link, and Slurm starts their looks over each interval (CYCLE). Each look adds to the history. When each node
has six runs, the last node's link gets a quarter of its rate. Then the other nodes are looked at for so many rounds.
`took_s` is by the program's own clock. `isolate`: six nodes, of which n4 has half of its rate and n1 does not answer.

`--texts`: a folder for the outputs that docs/how-to shows.
"""

from __future__ import annotations

import collections
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, options
from cluster.cluster import Cluster
from cluster.layout import MBIT, Layout
from cluster.slurm import Slurm
from real_cgroup import cores_first
from scheduler_scripts import adapted

BUDGET_S = 45.0
RATE = 100 * MBIT
RUNS = 6
LOOK = ["--devices", "host:1", "--partner", "login", "--max-size", "256KiB", "--loss", "0.4"]


class Fleet:
    """A cluster under Slurm whose nodes write a line of JSON for each look."""

    def __init__(self, cluster: Cluster, interval_s: int, first: str, end: float) -> None:
        """Write the program: the documented script, in which `linkgauge` also notes its line, status and time.

        `first`: a line that gives it the cores before all else that this machine does.
        """
        self.cluster, self.end = cluster, end
        self.notes = cluster.folder / "looks"
        options = " ".join(["--budget", f"{BUDGET_S:.0f}s", "--history", str(cluster.folder / "fleet"), *LOOK])
        own = f"""export PYTHONPATH='{os.pathsep.join(sys.path)}'
export SLURM_CONF='{cluster.folder}/slurm.conf'
{first}
cd /tmp
linkgauge() {{
    found=$('{sys.executable}' -m linkgauge "$@" -o json 2>>'{cluster.folder}/errors'); status=$?
    printf '%s\\t%s\\t%s\\n' "$(hostname)" "$status" "$(echo "$found" | tr -d '\\n')" >> '{self.notes}'
    echo "$found" | sed -n 's/^ *"line": "\\(.*\\)",$/\\1/p'
    return $status
}}"""
        self.program = cluster.folder / "program"
        self.program.write_text(adapted("slurm-health.sh", cluster.environment["PATH"], options, own))
        self.program.chmod(0o755)
        self.more = (
            f"HealthCheckProgram={self.program}\nHealthCheckInterval={interval_s}\nHealthCheckNodeState=IDLE,CYCLE\n"
        )

    def looks(self, node: str) -> list[dict[str, Any]]:
        """The looks of a node so far."""
        found = []
        for line in self.notes.read_text().splitlines() if self.notes.exists() else []:
            host, status, text = line.split("\t")
            if host == node:
                found.append({"status": int(status), **(json.loads(text) if text else {})})
        return found

    def passed(self, node: str) -> int:
        """How many of its looks added a run to the history, at most."""
        return sum(one.get("exit_status") in (0, 3) and one.get("repeats", 0) > 0 for one in self.looks(node))

    def wait(self, what: str, ready: Any) -> None:
        """Wait for what comes by looks."""
        while not ready():
            if time.monotonic() > self.end:
                print(f"no time for {what}", file=sys.stderr)
                return
            time.sleep(1.0)
        print(f"{time.strftime('%T')} {what}", file=sys.stderr)


def states(cluster: Cluster, slurm: Slurm) -> dict[str, list[str]]:
    said = cluster.run("login", ["sinfo", "-h", "-N", "-o", "%N|%t|%E"], env=slurm.environment).stdout
    return {line.split("|")[0]: line.split("|")[1:] for line in said.splitlines()}


def summary(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """What looks said, and how long they took."""
    counts = collections.Counter(str(one.get("line", f"status {one['status']}")).partition(":")[0] for one in looks)
    took = [one["took_s"] for one in looks if "took_s" in one]
    unknown = collections.Counter(re.sub(r"\d+ %", "N %", one["line"]) for one in looks if one.get("exit_status") == 3)
    return {"looks": len(looks), **counts, "unknown_because": dict(unknown),
            "took_s_median": round(statistics.median(took), 2) if took else None,
            "took_s_most": max(took, default=None)}  # fmt: skip


def watched(count: int, rounds: int, interval_s: int, end: float, texts: Path | None) -> dict[str, Any]:
    """Rounds of looks under Slurm."""
    with cores_first() as first, Cluster(Layout.of(count, rate=RATE)) as cluster:
        fleet = Fleet(cluster, interval_s, first, end)
        with Slurm(cluster, more=fleet.more) as slurm:
            *sound, slowed = nodes = cluster.layout.nodes
            fleet.wait(f"{RUNS} runs of each node", lambda: min(map(fleet.passed, nodes)) >= RUNS)
            before = {node: len(fleet.looks(node)) for node in nodes}
            cluster.set_rate(slowed, RATE / 4)
            fleet.wait(f"the drain of {slowed}", lambda: states(cluster, slurm)[slowed][0].startswith("drain"))
            reason = states(cluster, slurm)[slowed][1]
            slow = fleet.looks(slowed)[before[slowed] :]
            if texts is not None:
                shown = cluster.run("login", ["sinfo", "-R", "-o", "%.6N %.12t %E"], env=slurm.environment).stdout
                (texts / "drained.txt").write_text(shown)
                (texts / "line.txt").write_text(f"{slow[-1]['line']}\n")
            fleet.wait(
                f"{rounds} rounds of the others",
                lambda: all(len(fleet.looks(node)) - before[node] >= rounds for node in sound),
            )
            ended = {node: words[0] for node, words in states(cluster, slurm).items()}
        return {"budget_s": BUDGET_S, "interval_s": interval_s, "cores": os.cpu_count(),
                "until_slow": {node: summary(fleet.looks(node)[: before[node]]) for node in nodes},
                "sound": {node: summary(fleet.looks(node)[before[node] :]) for node in sound},
                "slow": {**summary(slow), "reason": reason}, "states": ended}  # fmt: skip


def isolated(texts: Path | None) -> dict[str, Any]:
    """One search among six nodes, of which one does not answer."""
    with Cluster(Layout.of(6, rate=RATE, slow={"n4": 0.5})) as cluster:
        (cluster.folder / "n1.down").touch()
        words = ["isolate", "--hosts", "n[0-5]", "--devices", "host:1", "--transport", "mpi", "--size", "256KiB",
                 "--loss", "0.3", "--noise", "0.1"]  # fmt: skip
        ended = []
        for more in (["--dry-run"], []):
            done: subprocess.CompletedProcess[str] = cluster.run(
                "login", [*PROGRAM, *words, *more], cwd=cluster.folder, timeout_s=1800, env=ON_A_NODE
            )
            ended.append({"words": " ".join(more), "status": done.returncode, "line": done.stdout.strip(),
                          "rounds": [line for line in done.stderr.splitlines() if "round" in line]})  # fmt: skip
            if texts is not None:
                (texts / f"isolate{''.join(more)}.txt").write_text(done.stderr + done.stdout)
        return {"command": " ".join(words), "ended": ended}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--interval", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="end the rounds after so long")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--only", choices=("health", "isolate"))
    given = parser.parse_args()
    if given.texts is not None:
        given.texts.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    if given.only != "isolate":
        found["health"] = watched(
            given.nodes, given.rounds, given.interval, time.monotonic() + 60 * given.minutes, given.texts
        )
    if given.only != "health":
        found["isolate"] = isolated(given.texts)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
