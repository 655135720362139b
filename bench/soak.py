"""Thousands of small cases in one launch: memory, file handles and shared memory of ranks and parent over time.

Prints one line of CSV every so many seconds and, at the end, the growth of each over the second half of the run.
Nothing may grow with the number of cases (docs/results/ has curves that were taken).

Example: python bench/soak.py --cases 10000 --out soak.csv
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benching import PROGRAM, options
from ranks import ranks_of, status_kib

COLUMNS = (
    "seconds",
    "journal_bytes",
    "parent_rss_kib",
    "rank_rss_kib",
    "parent_files",
    "rank_files",
    "shared_memory_bytes",
)


def files_of(pid: int) -> int:
    """Open file handles of a process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def shared_memory_bytes() -> int:
    """What lies in /dev/shm."""
    total = 0
    for path in Path("/dev/shm").rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue
    return total


def plan_of(cases: int) -> str:
    """So many cases of four patterns, each of a few samples; sizes tell them apart."""
    each = cases // 4
    return (
        '[[case]]\ntransport = "kernel"\npattern = ["pingpong", "unidirectional", "allreduce", "alltoall"]\n'
        f'size = "4:{4 * each}:+4"\npairs = "first"\nstop_rule = "count"\nstop_samples = 5\nmax_time = "60s"\n'
    )


def main() -> None:
    """Run, watch, and tell the growth."""
    parser = options(__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between lines")
    parser.add_argument("--out", type=Path, default=None, help="CSV file; stdout by default")
    parser.add_argument("--threads", action="store_true", help="threads of one process instead of MPI ranks")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.toml").write_text(plan_of(asked.cases))
        command = [*PROGRAM, "run", "--plan", str(folder / "plan.toml"), "--devices", "host:2", "--out",
                   str(folder / "run"), "--no-report", "--max-failures", "100000"]  # fmt: skip
        command += ["--threads"] if asked.threads else []
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = []
        while process.poll() is None:
            time.sleep(asked.every)
            ranks = ranks_of(process)
            journal = sum(path.stat().st_size for path in (folder / "run/journal").glob("launch-*.lgj"))
            rows.append((round(time.monotonic() - start, 1), journal, status_kib(process.pid, "VmRSS"),
                         max((status_kib(pid, "VmRSS") for pid in ranks), default=0), files_of(process.pid),
                         max(map(files_of, ranks), default=0), shared_memory_bytes()))  # fmt: skip
        with asked.out.open("w") if asked.out else sys.stdout as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows)
        busy = [row for row in rows if row[3]]
        half = busy[len(busy) // 2 :]
        if len(half) > 2:
            print(
                f"exit status {process.returncode}; over the second half, {half[-1][0] - half[0][0]:.0f} s:",
                file=sys.stderr,
            )
            for index in range(2, len(COLUMNS)):
                print(f"  {COLUMNS[index]}: {half[0][index]} -> {half[-1][index]}", file=sys.stderr)


if __name__ == "__main__":
    main()
