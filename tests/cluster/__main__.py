"""An emulated cluster to try things on: `python -m tests.cluster [options] [-- COMMAND...]`, as root.

    python -m tests.cluster --nodes 4 --rate 100 -- linkgauge run --hosts n0,n1,n2,n3 --devices host:1 --quick

COMMAND is run on the node `login`, which has no ranks; a shell where there is none. The cluster ends with it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .cluster import Cluster, ClusterError, why_not
from .layout import MBIT, Layout
from .slurm import Slurm, slurm_why_not


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2, help="nodes of a switch (2)")
    parser.add_argument("--switches", type=int, default=1, help="switches of a group (1)")
    parser.add_argument("--groups", type=int, default=1, help="groups (1)")
    parser.add_argument("--rails", type=int, default=1, help="links of a node, each a network of its own (1)")
    parser.add_argument("--rate", type=float, default=100, help="of a node's link, in Mb/s each way (100)")
    parser.add_argument("--switch-rate", type=float, help="of a switch's link upwards; as its nodes' together")
    parser.add_argument("--group-rate", type=float, help="of a group's link upwards; as its nodes' together")
    parser.add_argument("--switch-delay", type=float, default=0, help="of a switch's link upwards, in ms one way (0)")
    parser.add_argument("--group-delay", type=float, default=0, help="of a group's link upwards, in ms one way (0)")
    parser.add_argument("--slow", action="append", default=[], metavar="LINK=SHARE", help="n3=0.6, n3.1=0, s1=0.5")
    parser.add_argument("--lossless", action="store_true", help="nothing is dropped: bounded windows, deep queues")
    parser.add_argument("--weights", help="of service classes on links between switches, as 3,1; with --lossless")
    parser.add_argument("--class", dest="classes", action="append", default=[], metavar="NODE=CLASS",
                        help="n1=1: what n1 sends is of the second class; by default of the first")  # fmt: skip
    parser.add_argument("--slurm", action="store_true", help="with Slurm, a daemon on each node")
    parser.add_argument("command", nargs="*", help="what is run on the node login")
    asked = parser.parse_args()
    reason = why_not() or (slurm_why_not() if asked.slurm else "")
    if reason:
        print(reason, file=sys.stderr)
        return 5
    if asked.weights and not asked.lossless:
        parser.error("--weights needs --lossless")
    layout = Layout(
        ((asked.nodes,) * asked.switches,) * asked.groups,
        rate=asked.rate * MBIT,
        switch_rate=asked.switch_rate and asked.switch_rate * MBIT,
        group_rate=asked.group_rate and asked.group_rate * MBIT,
        rails=asked.rails,
        switch_delay=asked.switch_delay / 1000,
        group_delay=asked.group_delay / 1000,
        slow={name: float(share) for name, _, share in (word.partition("=") for word in asked.slow)},
        lossless=asked.lossless,
        classes={name: int(number) for name, _, number in (word.partition("=") for word in asked.classes)},
        weights=tuple(map(float, asked.weights.split(","))) if asked.weights else (),
    )
    try:
        with Cluster(layout) as cluster:
            here = Path.cwd()  # but for /tmp, which each node has of its own
            folder = cluster.folder if here.is_relative_to("/tmp") else here
            command = ["env", "-C", str(folder), *(asked.command or [os.environ.get("SHELL", "sh")])]
            if not asked.slurm:
                return subprocess.call(cluster.command("login", command), env=cluster.environment)
            with Slurm(cluster) as slurm:
                return subprocess.call(cluster.command("login", command), env=slurm.environment)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
