"""Which causes between nodes are named right: each planted into drawn layouts of an emulated cluster, and none.

    python bench/network_causes.py [--kinds loss-0.5 delay ...] [--seeds 0:10] [--out FILE] [--runs FOLDER] [--judge]
    (as root, with iproute2 and iptables)

A seed draws the layout, the rate of its links and which part is bad: four to eight nodes on one switch, or where an
uplink is planted on two or more. Thresholds are tuned on even seeds; odd ones are only reported. Each run measures all
ordered pairs at 256 KiB and all pairs at 8 B, by MPICH and libfabric's tcp; with two rails by Open MPI at 1 MiB.

--runs keeps the run folders, and --judge judges those again without measuring. A line of JSON a run says what was
planted, what was reported as a fault or loss, and whether that is right: the part is named, and no other is accused.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, options, say, seeds
from cluster.cluster import Cluster
from cluster.layout import MBIT, Layout, tbf_words
from emulated_cluster import LIBRARY

PLAN = """
[[case]]
pattern = "unidirectional"
size = "256KiB"
pairs = "ordered"
stop_rule = "count"
stop_samples = 8
max_time = "20s"
warmup = 1

[[case]]
pattern = "pingpong"
size = "8"
pairs = "nodes"
stop_rule = "count"
stop_samples = 20
max_time = "20s"
warmup = 1
"""
IPTABLES = "/usr/sbin/iptables"
FLAP_S = 3.0
RATES = (35, 60, 80, 130, 180, 240)  # Mb/s of a node's link; thresholds were first tuned at 100
SLOWEST_OF_MANY = 50  # Mb/s: with slower links pairs of many nodes take minutes
SWITCHES = ((2, 2, 2), (2, 3), (2, 4), (3, 2, 2), (2, 2, 4), (3, 5), (4, 2, 2), (3, 3), (2, 3, 3))


@dataclasses.dataclass
class Planted:
    """One cause: the layout that has it, what is done when the cluster is there, and which finding is right."""

    layout: Layout
    rules: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # all are in the right finding's subject
    begin: Callable[[Cluster], object] = lambda cluster: None
    meanwhile: Callable[[Cluster], object] | None = None
    fabric: str = ""  # what `--fabric` gets
    mpi: str = "mpich"


def planted(kind: str, seed: int) -> Planted:
    """The cause of a kind that a seed draws."""
    rng = random.Random(f"{kind}/{seed}/causes")
    rate = rng.choice(RATES)
    most = 5 if rate < SLOWEST_OF_MANY else 8
    flat = Layout.of(rng.randint(4, most), rate=rate * MBIT)
    counts = rng.choice([one for one in SWITCHES if sum(one) <= most])
    switched = Layout((counts,), rate=rate * MBIT, switch_rate=rate * MBIT)
    railed = Layout.of(rng.randint(4, 6), rate=rate * MBIT, rails=2, lossless=True)
    node = rng.choice(flat.nodes)
    name, _, more = kind.partition("-")

    def on(where: str, *words: str) -> Callable[[Cluster], object]:
        return lambda cluster: _done(cluster, where, words)

    match name:
        case "clean":
            layout = (flat, switched, switched, railed)[seed // 2 % 4]
            fabric = layout.fabric_file() if seed // 2 % 4 == 2 else ""
            return Planted(layout, fabric=fabric, mpi="openmpi" if layout is railed else "mpich")
        case "loss":
            drop = on(node, IPTABLES, "-A", "INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random",
                      "--probability", str(float(more) / 100), "-j", "DROP")  # fmt: skip
            return Planted(flat, ("lossy_link",), (node, "eth0"), drop)
        case "delay":
            return Planted(dataclasses.replace(flat, delays={node: 0.01}), ("high_latency",), (node,))
        case "mtu":
            larger = on(node, "ip", "link", "set", "eth0", "mtu", "9000")
            return Planted(flat, ("mtu_mismatch",), (node, "eth0"), larger)
        case "flap":

            def flap(cluster: Cluster) -> None:
                _done(cluster, "fabric", ("ip", "link", "set", f"{node}p0", "down"))
                time.sleep(FLAP_S)
                _done(cluster, "fabric", ("ip", "link", "set", f"{node}p0", "up"))

            return Planted(flat, ("flapping_link",), (node, "eth0"), meanwhile=flap)
        case "uplink" | "downlink":
            switch = min(range(len(counts)), key=lambda at: (counts[at], rng.random()))
            behind = switched.nodes[sum(counts[:switch]) : sum(counts[: switch + 1])]
            rules, words = (("slow_link", "slow_switch"), (f"s{switch}",)) if more else (("slow_uplink",), behind)
            fabric = switched.fabric_file() if more else ""
            if name == "uplink":
                return Planted(dataclasses.replace(switched, slow={f"s{switch}": 0.5}), rules, words, fabric=fabric)
            half = on("fabric", "tc", *tbf_words(f"s{switch}p0", rate * MBIT / 2))
            return Planted(switched, rules, words, half, fabric=fabric)
        case "rail":
            node = rng.choice(railed.nodes)
            down = dataclasses.replace(railed, slow={f"{node}.1": 0.0})
            return Planted(down, ("link_down", "slow_node", "slow_device"), (node,), mpi="openmpi")
    raise SystemExit(f"unknown kind {kind}: expected one of {', '.join(KINDS)}")


def _done(cluster: Cluster, where: str, words: Sequence[str]) -> None:
    done = cluster.run(where, list(words))
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")


def measure(one: Planted, out: Path) -> str:
    """Measure into `out`; why there is no run, or its cause was not there; empty where all is well."""
    words = ["run", "--no-report", "--devices", "host:1", "--transport", "mpi", "--plan", "plan.toml", "--out", "run",
             "--hosts", ",".join(one.layout.nodes), "--mpi", one.mpi]  # fmt: skip
    words += [word for pair in LIBRARY.items() for word in ("--env", "=".join(pair))] if one.mpi == "mpich" else []
    words += ["--fabric", "fabric"] if one.fabric else []
    with Cluster(one.layout) as cluster:  # whose folder all nodes see
        plan = PLAN.replace('size = "256KiB"', 'size = "1MiB"\nwindow = 4') if one.layout.rails > 1 else PLAN
        (cluster.folder / "plan.toml").write_text(plan)
        (cluster.folder / "fabric").write_text(one.fabric)
        one.begin(cluster)
        journal = cluster.folder / "run" / "journal" / "launch-00000.lgj"
        acting = None if one.meanwhile is None else _Acting(journal, one.meanwhile, cluster)
        done = cluster.run("login", [*PROGRAM, *words], cwd=cluster.folder, env=ON_A_NODE, timeout_s=600)
        ended = time.monotonic()
        if acting is not None:
            acting.join()
        if not (cluster.folder / "run" / "run.json").exists():
            return (done.stderr or done.stdout)[-300:]
        shutil.copytree(cluster.folder / "run", out, dirs_exist_ok=True)
    return "" if acting is None or acting.done < ended else "the run ended before the cause did"


class _Acting(threading.Thread):
    """Acts once some cases have been measured; `done` is when that was over."""

    def __init__(self, journal: Path, act: Callable[[Cluster], object], cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._journal, self._act, self._cluster, self.done = journal, act, cluster, float("inf")
        self.start()

    def run(self) -> None:
        first, until = None, time.monotonic() + 300
        while time.monotonic() < until:
            time.sleep(0.1)
            size = self._journal.stat().st_size if self._journal.exists() else 0
            first = size if first is None and size else first
            if first is not None and size > first + SOME_CASES:
                self._act(self._cluster)
                self.done = time.monotonic()
                return


SOME_CASES = 40_000  # bytes of the journal


def judged(run: Path) -> list[dict[str, str]]:
    """The faults and losses of a run, with what each says."""
    from linkgauge.findings.rules import apply
    from linkgauge.judge.subjects import load_subjects

    (subject,) = load_subjects([run])
    return [{"rule": one.rule, "severity": one.severity, "subject": one.subject, "says": one.sentence}
            for one in apply(subject.facts) if one.severity in ("fault", "loss")]  # fmt: skip


KINDS = ("clean", "loss-0.5", "loss-2", "loss-5", "delay", "mtu", "flap", "uplink", "uplink-fabric", "downlink",
         "downlink-fabric", "rail")  # fmt: skip


def line_of(kind: str, seed: int, one: Planted, run: Path, failed: str) -> dict[str, Any]:
    """What a line of the results says."""
    found = [] if failed else judged(run)
    right = [item["rule"] in one.rules and all(word in _words(item["subject"]) for word in one.words) for item in found]
    return {
        "kind": kind, "seed": seed, "groups": one.layout.groups, "rate_mbit": round(one.layout.rate / MBIT),
        "fabric": bool(one.fabric), "rails": one.layout.rails, "load": round(os.getloadavg()[0], 1),
        "planted": list(one.words), "right": not failed and all(right) and bool(right) == bool(one.rules),
        "found": [f"{item['rule']} ({item['severity']}): {item['subject']}" for item in found],
        **({"failed": failed} if failed else {}),
    }  # fmt: skip


def _words(subject: str) -> list[str]:
    return subject.replace(",", " ").replace("{", " ").replace("}", " ").split()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = options(__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--seeds", type=seeds, default="0:10", help="FIRST:END or FIRST:END:STEP")
    parser.add_argument("--out", type=Path, help="a file to which lines are added")
    parser.add_argument("--runs", type=Path, default=Path("runs/network_causes"), help="a folder of run folders")
    parser.add_argument("--judge", action="store_true", help="judge the kept runs; measure nothing")
    asked = parser.parse_args(arguments)
    for seed in asked.seeds:
        for kind in asked.kinds:
            one, run = planted(kind, seed), asked.runs / f"{kind}-{seed}"
            if asked.judge and not run.exists():
                continue
            say(line_of(kind, seed, one, run, "" if asked.judge else measure(one, run)), asked.out)


if __name__ == "__main__":
    main()
