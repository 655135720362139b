"""What watcher, progress display and journal cost inside timed regions: the same cases with and without them.

With: a whole `linkgauge run --threads` on a terminal: a parent that watches heartbeats, draws four times a second and
reads the journal while the ranks measure. Without: the same sessions in a process that does nothing else: nobody
watches, there is no heartbeat, nothing is drawn or written. Both in fresh processes, the ranks bound to the same cores,
in turn, the first one of a pair changing places from pair to pair. The ratio is that of a pair's medians, its interval
the 95 % interval of the median over the pairs.

Example: python bench/isolation.py --pairs 15
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from benching import PROGRAM, options, say
from linkgauge import _core
from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.peers.request import ratio_of_pairs
from linkgauge.run.machine.binding import cores_by_rank
from linkgauge.run.wire.spec import core_case
from linkgauge.store.run import load

CASES = (("kernel", 8), ("copy_engine", 65536))
SAMPLES = 2000


def case_of(transport: str, size: int) -> Case:
    """The case that both sides measure."""
    return Case(transport, "pingpong", size, size, (0, 1), stop=StopRule("count", SAMPLES, 0.025, 60_000_000_000))


def starter_median(lane: np.ndarray, phase: np.ndarray, ns: np.ndarray) -> float:
    """Median round trip of the starter, ns."""
    return float(np.median(ns[(phase == 1) & (lane >= 0)]))


def bare() -> None:
    """Measure the cases by sessions of this process, and print each transport's median in ns as one line of JSON."""
    runtime, groups = _core.open_runtime("host", [], 2), _core.thread_groups(2)
    sessions = [_core.Session(runtime, group) for group in groups]
    cores = cores_by_rank("nearest", (0, 1), [{}, {}])
    found: dict[str, float] = {}

    def rank(number: int) -> None:
        if cores is not None and cores[number]:
            os.sched_setaffinity(0, cores[number])
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
    print(json.dumps(found))


def unwatched() -> dict[str, float]:
    """Medians of the cases measured by `bare` in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--bare"], check=True, capture_output=True, text=True)
    medians: dict[str, float] = json.loads(done.stdout)
    return medians


def on_a_terminal(command: list[str]) -> bytes:
    """Run a command whose output is a terminal, so that it draws as for a user; return what it drew."""
    ours, theirs = pty.openpty()
    drawn = []
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # a terminal's other end is gone: EIO
            while chunk := os.read(ours, 65536):
                drawn.append(chunk)
    os.close(ours)
    if process.returncode != 0:
        sys.exit(b"".join(drawn).decode(errors="replace"))
    return b"".join(drawn)


def watched(folder: Path) -> dict[str, float]:
    """Medians of the cases measured by a whole run."""
    plan = "".join(
        f'[[case]]\ntransport = "{transport}"\npattern = "pingpong"\nsize = {size}\npairs = "first"\n'
        f'stop_rule = "count"\nstop_samples = {SAMPLES}\nmax_time = "60s"\n'
        for transport, size in CASES
    )
    (folder / "plan.toml").write_text(plan)
    command = [*PROGRAM, "run", "--threads", "--devices", "host:2", "--plan", str(folder / "plan.toml"), "--out",
               str(folder / "run"), "--no-report"]  # fmt: skip
    drawn = on_a_terminal(command)
    if b"\x1b[" not in drawn:
        sys.exit("the run drew no progress display")
    run = load(folder / "run")
    transports = {row.case_key: row.case.transport for row in run.rows()}
    table = run.samples.select(["case_key", "lane", "phase", "ns"]).to_pandas()
    table = table[(table["phase"] == "sample") & (table["lane"] >= 0)]
    return {transports[key]: float(part["ns"].median()) for key, part in table.groupby("case_key", observed=True)}


def main() -> None:
    """Alternate, and print one line of JSON a case."""
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="alternated pairs (at least 9 for a verdict)")
    parser.add_argument("--add-to", type=Path, help="a file of earlier pairs of this machine, which these are added to")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bare:
        bare()
        return
    taken: list[dict[str, dict[str, float]]] = []
    if asked.add_to is not None and asked.add_to.exists():
        taken = json.loads(asked.add_to.read_text())
    for number in range(asked.pairs):
        pair: dict[str, dict[str, float]] = {}
        for side in ("with", "without") if number % 2 == 0 else ("without", "with"):
            if side == "without":
                pair[side] = unwatched()
                continue
            with tempfile.TemporaryDirectory() as folder:
                pair[side] = watched(Path(folder))
        taken.append(pair)
        if asked.add_to is not None:
            asked.add_to.write_text(json.dumps(taken))
    for transport, size in CASES:
        watched_ns, bare_ns = ([pair[side][transport] for pair in taken] for side in ("with", "without"))
        ratio = ratio_of_pairs(watched_ns, bare_ns)
        say({
            "case": f"{transport} pingpong {size} B", "pairs": ratio.pairs, "ratio": round(ratio.median, 4),
            "interval": [round(ratio.low, 4), round(ratio.high, 4)], "with_ns": round(float(np.median(watched_ns))),
            "without_ns": round(float(np.median(bare_ns))),
        })  # fmt: skip


if __name__ == "__main__":
    main()
