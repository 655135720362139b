"""Which causes between nodes are named right: each planted into drawn layouts of an emulated cluster, and none.

    python bench/network_causes.py [--kinds loss-0.5 delay ...] [--layouts 5] [--rate MBIT] [--out FILE]
    (as root, with iproute2 and iptables)

Each run is of MPICH by libfabric's tcp: all ordered pairs at 256 KiB, and all pairs at 8 B. A layout is drawn from its
number: four to eight nodes, on one switch, or where an uplink is planted on two or more. A line of JSON a run says what
was planted, what was reported as a fault or loss, and whether that is right and nothing else is accused.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "bench")]

from cluster.cluster import Cluster  # noqa: E402
from cluster.layout import MBIT, Layout  # noqa: E402
from emulated_cluster import LIBRARY  # noqa: E402

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


@dataclasses.dataclass
class Planted:
    """One cause: the layout that has it, what is done when the cluster is there, and which finding is right."""

    layout: Layout
    rules: tuple[str, ...]
    words: tuple[str, ...]  # all are in the right finding's subject
    begin: Callable[[Cluster], None] = lambda cluster: None
    meanwhile: Callable[[Cluster], None] | None = None
    fabric: bool = False
    mpi: str = "mpich"


def sets_of(rng: random.Random) -> tuple[int, ...]:
    """Nodes by switch, of three switches or two."""
    return rng.choice([(2, 2, 2), (2, 3), (2, 4), (3, 2, 2), (2, 2, 4), (3, 5), (4, 2, 2)])


def planted(kind: str, number: int, rate: float) -> Planted:
    """The cause of a kind in layout `number`."""
    rng = random.Random(f"{kind}/{number}")
    flat = Layout.of(rng.randint(4, 8 if rate > 40 else 6), rate=rate)
    node = rng.choice(flat.nodes)
    name, _, share = kind.partition("-")

    def on(where: str, *words: str) -> Callable[[Cluster], None]:
        def begin(cluster: Cluster) -> None:
            done = cluster.run(where, list(words))
            assert done.returncode == 0, done.stderr

        return begin

    match name:
        case "clean":
            return Planted(flat if number % 2 else Layout((sets_of(rng),), rate=rate, switch_rate=rate), (), ())
        case "loss":
            drop = on(node, IPTABLES, "-A", "INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random",
                      "--probability", str(float(share) / 100), "-j", "DROP")  # fmt: skip
            return Planted(flat, ("lossy_link",), (node, "eth0"), drop)
        case "delay":
            return Planted(dataclasses.replace(flat, delays={node: 0.01}), ("high_latency",), (node,))
        case "mtu":
            return Planted(flat, ("mtu_mismatch",), (node, "eth0"),
                           on(node, "ip", "link", "set", "eth0", "mtu", "9000"))  # fmt: skip
        case "flap":

            def flap(cluster: Cluster) -> None:
                cluster.run("fabric", ["ip", "link", "set", f"{node}p0", "down"])
                time.sleep(FLAP_S)
                cluster.run("fabric", ["ip", "link", "set", f"{node}p0", "up"])

            return Planted(flat, ("flapping_link",), (node, "eth0"), meanwhile=flap)
        case "uplink" | "downlink":
            counts = sets_of(rng)
            layout = Layout((counts,), rate=rate, switch_rate=rate)
            switch = min(range(len(counts)), key=lambda at: (counts[at], rng.random()))
            behind = layout.nodes[sum(counts[:switch]) : sum(counts[: switch + 1])]
            if name == "uplink":
                slow = dataclasses.replace(layout, slow={f"s{switch}": 0.5})
                words = (f"s{switch}",) if share else behind
                rules = ("slow_link", "slow_switch") if share else ("slow_uplink",)
                return Planted(slow, rules, words, fabric=bool(share))
            from cluster.layout import tbf_words

            half = on("fabric", "tc", *tbf_words(f"s{switch}p0", rate / 2))
            return Planted(layout, ("slow_uplink",), behind, half)
        case "rail":
            node = f"n{number % 4}"
            railed = Layout.of(4, rate=rate, rails=2, lossless=True, slow={f"{node}.1": 0.0})
            return Planted(railed, ("slow_node", "slow_device"), (node,), mpi="openmpi")
    raise SystemExit(f"unknown kind {kind}")


def measured(one: Planted) -> list[dict[str, Any]]:
    """The faults and losses of a run."""
    words = ["run", "--no-report", "--devices", "host:1", "--transport", "mpi", "--plan", "plan.toml", "--out", "run",
             "--hosts", ",".join(one.layout.nodes), "--mpi", one.mpi]  # fmt: skip
    words += [word for pair in LIBRARY.items() for word in ("--env", "=".join(pair))] if one.mpi == "mpich" else []
    words += ["--fabric", "fabric"] if one.fabric else []
    environment = {"PYTHONPATH": str(ROOT / "src")}
    with Cluster(one.layout) as cluster:  # whose folder all nodes see
        plan = PLAN.replace('size = "256KiB"', 'size = "1MiB"\nwindow = 4') if one.layout.rails > 1 else PLAN
        (cluster.folder / "plan.toml").write_text(plan)
        (cluster.folder / "fabric").write_text(dataclasses.replace(one.layout, slow={}).fabric_file())
        one.begin(cluster)
        if one.meanwhile is not None:
            threading.Timer(0.0, _when_begun, (cluster.folder / "run", one.meanwhile, cluster)).start()

        def linkgauge(*words: str) -> subprocess.CompletedProcess[str]:
            return cluster.run("login", [sys.executable, "-m", "linkgauge", *words], cwd=cluster.folder,
                               env=environment, timeout_s=600)  # fmt: skip

        done = linkgauge(*words)
        found = linkgauge("findings", "run", "--json")
    try:
        plain = json.loads(found.stdout)
    except ValueError:
        return [{"rule": "none", "severity": "fault", "subject": (done.stderr + found.stderr)[-300:]}]
    listed: list[dict[str, Any]] = plain["findings"] if isinstance(plain, dict) else plain
    return [one for one in listed if one["severity"] in ("fault", "loss")]


def _when_begun(out: Path, act: Callable[[Cluster], None], cluster: Cluster) -> None:
    """Act once some cases have been measured."""
    until = time.monotonic() + 60
    journal = out / "journal" / "launch-00000.lgj"
    while time.monotonic() < until and not (journal.exists() and journal.stat().st_size > 60_000):
        time.sleep(0.1)
    act(cluster)


KINDS = ("clean", "loss-0.5", "loss-2", "loss-5", "delay", "mtu", "flap", "uplink", "uplink-fabric", "downlink", "rail")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--layouts", default="0:5", help="numbers of layouts, FIRST:END")
    parser.add_argument("--rate", type=float, default=100, help="of a node's link in Mb/s")
    parser.add_argument("--out", type=Path, help="a file to which lines are added")
    asked = parser.parse_args(arguments)
    first, end = map(int, asked.layouts.split(":"))
    for kind in asked.kinds:
        for number in range(first, end):
            one = planted(kind, number, asked.rate * MBIT)
            found = measured(one)
            right = [all(word in item["subject"] for word in one.words) and item["rule"] in one.rules for item in found]
            line = json.dumps({
                "kind": kind, "layout": number, "groups": one.layout.groups, "rate_mbit": asked.rate,
                "planted": list(one.words), "right": all(right) and len(right) == bool(one.rules),
                "told": [f"{item['rule']} ({item['severity']}): {item['subject']}" for item in found],
            })  # fmt: skip
            print(line, flush=True)
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
