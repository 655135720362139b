"""What watcher, progress display and journal cost inside timed regions: the same cases with and without them.

With: a whole `linkgauge run --threads`: a parent that watches heartbeats, draws and reads the journal while the ranks
measure. Without: the same session in this process, nobody watching, nothing written. Alternated, medians compared; the
ratio's interval says whether a difference is there.

Example: python bench/isolation.py --pairs 9
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from linkgauge import _core
from linkgauge.plan.case import Case, StopRule
from linkgauge.run.spec import core_case
from linkgauge.store.run import load

CASES = (("kernel", 8), ("copy_engine", 65536))
SAMPLES = 2000


def case_of(transport: str, size: int) -> Case:
    """The case that both sides measure."""
    return Case(transport, "pingpong", size, size, (0, 1), stop=StopRule("count", SAMPLES, 0.025, 60_000_000_000))


def starter_median(lane: np.ndarray, phase: np.ndarray, ns: np.ndarray) -> float:
    """Median round trip of the starter, ns."""
    return float(np.median(ns[(phase == 1) & (lane >= 0)]))


def unwatched() -> dict[str, float]:
    """Medians of the cases measured by sessions of this process."""
    runtime, groups = _core.open_runtime("host", [], 2), _core.thread_groups(2)
    sessions = [_core.Session(runtime, group) for group in groups]
    found: dict[str, float] = {}

    def rank(number: int) -> None:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number % len(os.sched_getaffinity(0))]})
        for transport, size in CASES:
            result = sessions[number].measure(core_case(case_of(transport, size), (0, 1), 1))
            if number == 0 and result is not None:
                samples = result["samples"]
                found[transport] = starter_median(samples["lane"], samples["phase"], samples["ns"])

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    return found


def watched(folder: Path) -> dict[str, float]:
    """Medians of the cases measured by a whole run."""
    plan = "".join(
        f'[[case]]\ntransport = "{transport}"\npattern = "pingpong"\nsize = {size}\npairs = "first"\n'
        f'stop_rule = "count"\nstop_samples = {SAMPLES}\nstop_time_ns = "60s"\n'
        for transport, size in CASES
    )
    (folder / "plan.toml").write_text(plan)
    command = [sys.executable, "-m", "linkgauge", "run", "--threads", "--devices", "host:2", "--plan",
               str(folder / "plan.toml"), "--out", str(folder / "run"), "--no-report"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    run = load(folder / "run")
    transports = {row.case_key: row.case.transport for row in run.rows()}
    table = run.samples.select(["case_key", "lane", "phase", "ns"]).to_pandas()
    table = table[(table["phase"] == "sample") & (table["lane"] >= 0)]
    return {transports[key]: float(part["ns"].median()) for key, part in table.groupby("case_key", observed=True)}


def main() -> None:
    """Alternate, and print one line of JSON a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="alternated pairs (at least 9 for a verdict)")
    pairs = parser.parse_args().pairs
    ratios: dict[str, list[float]] = {transport: [] for transport, _ in CASES}
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            with_parent = watched(Path(folder))
        without = unwatched()
        for transport in ratios:
            ratios[transport].append(with_parent[transport] / without[transport])
    for transport, size in CASES:
        ordered = sorted(ratios[transport])
        print(json.dumps({
            "case": f"{transport} pingpong {size} B", "pairs": pairs, "median_ratio": statistics.median(ordered),
            "low": ordered[0], "high": ordered[-1],
        }))  # fmt: skip


if __name__ == "__main__":
    main()
