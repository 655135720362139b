"""The built-in plans on slow links: whether each pair is measured without a timeout, and how long a run takes.

    python bench/link_rates.py [--rates 10 100 1000] [--plans quick default] [--out FILE.json]  (as root, with iproute2)

Two nodes of an emulated cluster, their links of so many Mb/s. What a plan is estimated to take is that of --dry-run.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benching import ON_A_NODE, PROGRAM, options, say
from cluster.cluster import Cluster
from cluster.layout import MBIT, Layout

OPTIONS = {"quick": ["--quick"], "default": []}


def measured(rate: float, plan: str) -> dict[str, Any]:
    """One run of a plan on links of a rate: its statuses, its time, and that of the estimate."""
    from linkgauge.store.run import load

    words = [*PROGRAM, "run", "--hosts", "n0,n1", "--devices", "host:1", *OPTIONS[plan]]
    with Cluster(Layout.of(2, rate=rate * MBIT)) as cluster:
        dry = cluster.run("login", [*words, "--dry-run", "-o", "json"], cwd=cluster.folder, env=ON_A_NODE)
        began = time.monotonic()
        done = cluster.run("login", [*words, "--no-report", "--out", "run"], cwd=cluster.folder, env=ON_A_NODE,
                           timeout_s=1200)  # fmt: skip
        seconds = time.monotonic() - began
        rows = list(load(cluster.folder / "run").rows())
    bad = [f"{row.case.transport} {row.case.pattern} {row.case.size}: {row.status}: {row.reason}" for row in rows
           if row.status not in ("ok", "skipped")]  # fmt: skip
    pairs = {row.case.devices for row in rows if len(set(row.case.devices)) == 2}
    return {"mbit": rate, "plan": plan, "seconds": round(seconds, 1), "load": os.getloadavg()[0],
            "estimated_s": json.loads(dry.stdout)["estimated_s"], "exit": done.returncode,
            "statuses": dict(Counter(str(row.status) for row in rows)),
            "pairs_measured": len({row.case.devices for row in rows if row.status == "ok"} & pairs),
            "pairs": len(pairs), "bad": bad, "said": done.stderr.splitlines()[:6] if bad else []}  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[10, 100, 1000], help="in Mb/s")
    parser.add_argument("--plans", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = []
    for rate in asked.rates:
        for plan in asked.plans:
            found.append(measured(rate, plan))
            say(found[-1])
            if asked.out:
                asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
