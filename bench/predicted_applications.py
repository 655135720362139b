"""What applications are predicted to take from a run of patterns, beside what they take: all, on 2 and 4 host ranks.

    PYTHONPATH=src python bench/predicted_applications.py --out FOLDER [--ranks 2,4] [--mpi MPIEXEC]

For each number of ranks one `linkgauge run` of the plan `applications`, its patterns stopped after 120 ms and not 300,
which takes one to two minutes where each rank has a core; then `linkgauge predict all`, by medians and by p5. FOLDER
gets both run folders and applications.json: every case, what of it is beyond 40 %, and errors by number of ranks and
by transport. A machine with fewer free cores than ranks measures who gets one.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benching import ROOT, linkgauge, options

PLAN = ROOT / "src" / "linkgauge" / "plans" / "applications.toml"
STATISTICS = ("median", "p5")
BEYOND = 0.4  # of which the cause is to be named


def plan_for(ranks: int) -> str:
    """The shipped plan, in less time: groups of an application have all ranks, or two of four."""
    text = PLAN.read_text()
    for shipped, here in (("[1, 2, 4, 8]", str(sorted({2, ranks}))), ('"300ms"', '"120ms"')):
        if shipped not in text:
            sys.exit(f"{PLAN}: no {shipped} in it: expected the plan that this was written for")
        text = text.replace(shipped, here)
    return text


def measure(folder: Path, ranks: int, more: Sequence[str]) -> Path:
    """One run, unless it is there."""
    run = folder / f"run-{ranks}"
    if not run.exists():
        plan = folder / f"plan-{ranks}.toml"
        plan.write_text(plan_for(ranks))
        done = linkgauge(
            "run", "--plan", str(plan), "--devices", f"host:{ranks}", "--out", str(run), "--no-report", *more
        )
        if not (run / "cases.parquet").exists():
            sys.exit(done.stderr + done.stdout)
        if done.returncode:
            print(f"{run}: exit {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
    return run


def predicted(run: Path, statistic: str) -> list[dict[str, Any]]:
    done = linkgauge("predict", "all", "--from", str(run), "--statistic", statistic, "--json")
    if done.returncode:
        sys.exit(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def errors_of(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of those predicted and measured: the error in the median and at most, as shares of what was measured."""
    known = [case for case in cases if case["error"] is not None]
    if not known:
        return {"cases": len(cases), "known": 0}
    errors = [case["error"] for case in known]
    return {
        "cases": len(cases),
        "known": len(known),
        "median": round(statistics.median(map(abs, errors)), 4),
        "median_signed": round(statistics.median(errors), 4),
        "factor": round(statistics.median(math.exp(abs(math.log(1 + error))) for error in errors), 4),
        "most": round(max(map(abs, errors)), 4),
        "beyond": [
            f"{case['app']} by {case['transport']} {case['error']:+.0%}"
            for case in known
            if abs(case["error"]) > BEYOND
        ],
    }


def main() -> None:
    """Measure, predict, write applications.json, and print a line for each number of ranks and statistic."""
    parser = options(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder; a run that it has is not measured again")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, apart by commas")
    parser.add_argument("--mpi", help="as 'linkgauge run --mpi' takes it")
    parser.add_argument("--transport", help="only these: mpi,staging,copy_engine,kernel")
    parser.add_argument("--time-limit", help="of each run, as 110s; what does not fit is left out")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    more = [word for name in ("mpi", "transport", "time-limit")
            if (value := getattr(asked, name.replace("-", "_"))) for word in (f"--{name}", value)]  # fmt: skip
    found: dict[str, Any] = {"machine": platform.platform(), "cores": os.cpu_count(), "runs": []}
    for ranks in map(int, asked.ranks.split(",")):
        load, begun = os.getloadavg()[0], time.monotonic()
        run = measure(asked.out, ranks, more)
        one: dict[str, Any] = {"ranks": ranks, "run": run.name, "load_before": load,
                               "seconds": round(time.monotonic() - begun, 1)}  # fmt: skip
        for statistic in STATISTICS:
            cases = predicted(run, statistic)
            transports = sorted({case["transport"] for case in cases})
            one[statistic] = {
                **errors_of(cases),
                "by_transport": {
                    name: errors_of([case for case in cases if case["transport"] == name]) for name in transports
                },
                "every": cases,
            }
            told = one[statistic]
            print(f"{ranks} ranks, {statistic}, {one['seconds']} s: {told['known']} of {told['cases']}, error "
                  f"{told.get('median', math.nan):.1%} in the median, {told.get('most', math.nan):.0%} at most; "
                  f"beyond {BEYOND:.0%}: {', '.join(told.get('beyond', [])) or 'none'}", flush=True)  # fmt: skip
        found["runs"].append(one)
        (asked.out / "applications.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
