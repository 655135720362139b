"""What two versions of Linkgauge measure of the same cases: the ratio of their medians, and its interval.

Both run the same plan in turn, the first one of a round changing places. They start as commands, so each may be an
installation of its own. A ratio above 1 means that the second version takes longer.

Example: python bench/versions.py /opt/before/bin/linkgauge .venv/bin/linkgauge --devices host:2 --rounds 9
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from benching import options, say
from linkgauge.model.result import Measured
from linkgauge.peers.request import ratio_of_pairs
from linkgauge.stats.summary import results_of
from linkgauge.store.run import load

CASES = ("pingpong:8", "pingpong:64KiB", "allreduce:8", "alltoall:1MiB")


def plan_of(transports: list[str], cases: list[str], samples: int) -> str:
    """The plan file of both."""
    parts = []
    for case in cases:
        pattern, size = case.split(":")
        parts.append(
            f'[[case]]\ntransport = {json.dumps(transports)}\npattern = "{pattern}"\nsize = "{size}"\nranks = 2\n'
            f'stop_rule = "count"\nstop_samples = {samples}\n'
        )
    return "".join(parts)


def medians(command: str, plan: Path, out: Path, devices: str) -> dict[str, float]:
    """The median in ns of each case from device 0 to 1, measured by a run of `command`."""
    words = [*shlex.split(command), "run", "--plan", str(plan), "--devices", devices, "--out", str(out), "--no-report"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return {
        f"{one.case.transport} {one.case.pattern} {one.case.size}": one.median_ns
        for one in results_of(load(out))
        if isinstance(one, Measured) and one.case.devices == (0, 1)
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--transports", default="kernel,copy_engine,staging,mpi")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    pairs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.toml")
        plan.write_text(plan_of(asked.transports.split(","), asked.cases.split(","), asked.samples))
        for round_ in range(asked.rounds):
            found: dict[str, dict[str, float]] = {}
            for which in ("before", "after") if round_ % 2 else ("after", "before"):
                out = Path(folder, f"{which}-{round_}")
                found[which] = medians(getattr(asked, which), plan, out, asked.devices)
            for case in found["before"].keys() & found["after"].keys():
                pairs.setdefault(case, []).append((found["after"][case], found["before"][case]))
    for case, both in sorted(pairs.items()):
        ratio = ratio_of_pairs(*zip(*both, strict=True))
        say({"case": case, **dataclasses.asdict(ratio)})


if __name__ == "__main__":
    main()
