"""Transport `mpi` under Intel MPI against Intel's own IMB-MPI1, by turns: what each reaches over the same library.

    python bench/intel_mpi.py PREFIX [--rounds N] [--gpus 1|2] [--out FOLDER]

PREFIX: where the wheel impi-rt is (pip install --prefix PREFIX impi-rt). Two ranks, on this machine's cores, or with
--gpus on the memory of so many GPUs by IMB-MPI1-GPU. IMB repeats an operation back to back and tells the mean, so ours
does too (streaming, batches of 100). A round is one launch of either for each benchmark; the ratio is of the two in one
round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from linkgauge.plan.library_settings import mpi_on_devices

# IMB's benchmark and the column of its time in us, pattern, log2 of the size, operations, parts of ours that it tells:
# of a ping-pong it tells half of the round trip.
BENCHMARKS = (
    ("PingPong", 2, "pingpong", 3, 20000, 2),
    ("PingPong", 2, "pingpong", 16, 4000, 2),
    ("Allreduce", 4, "allreduce", 3, 20000, 1),
    ("Allreduce", 4, "allreduce", 20, 400, 1),
    ("Alltoall", 4, "alltoall", 16, 2000, 1),
)


def said_by(command: list[str], environment: dict[str, str]) -> str:
    """What a command that succeeds prints; its words and the end of this program where it fails."""
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else sys.exit(done.stdout + done.stderr)


def ours(out: Path, words: list[str]) -> dict[str, Any]:
    """One launch of linkgauge; the one row of its one case."""
    from linkgauge.stats.summary import summarize
    from linkgauge.store.run import load

    said_by([sys.executable, "-m", "linkgauge", "run", "--no-report", "--transport", "mpi", "--pairs", "first",
             "--out", str(out), *words], {"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    rows = [row for row in summarize(load(out)).to_pylist() if row["lane"] == -1 and row["status"] == "ok"]
    return dict(rows[0])


def imb(prefix: Path, name: str, column: int, log2: int, operations: int, gpus: int) -> float:
    """One launch of IMB; the mean time of an operation in us."""
    program = [str(prefix / "bin" / ("IMB-MPI1-GPU" if gpus else "IMB-MPI1")), name, "-msglog", f"{log2}:{log2}"]
    program += ["-iter", str(operations), "-iter_policy", "off", "-time", "60", "-npmin", "2"]
    program += ["-mem_alloc_type", "device"] if gpus else []
    path = os.pathsep.join([str(prefix / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {"LD_LIBRARY_PATH": path}
    if gpus:
        # Its ranks take the one device that the launcher leaves them, ours their own of all.
        environment |= {name: value for name, value in mpi_on_devices("cuda", "intel") if name != "I_MPI_OFFLOAD_PIN"}
    said = said_by([str(prefix / "bin/mpiexec"), "-n", "2", *program], environment)
    rows = [line.split() for line in said.splitlines()]
    (row,) = [row for row in rows if row and row[0] == str(1 << log2)]
    return float(row[column])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpus", type=int, choices=(0, 1, 2), default=0)
    parser.add_argument("--out", type=Path, default=Path("build/bench-intel-mpi"))
    asked = parser.parse_args()
    prefix, out = asked.prefix.resolve(), asked.out.resolve()
    if not (prefix / "bin/IMB-MPI1").is_file():
        sys.exit(f"no bin/IMB-MPI1 in '{prefix}'; fix: pip install --prefix {prefix} impi-rt")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    where = (["--devices", "host:2"], ["--devices", "cuda:0", "--ranks-per-device", "2"], ["--devices", "cuda:0,1"])
    for name, column, pattern, log2, operations, parts in BENCHMARKS:
        rounds = []
        for number in range(asked.rounds):
            words = [*where[asked.gpus], "--mpi", str(prefix), "--pattern", pattern, "--size", str(1 << log2)]
            words += ["--warmup", "100", "--cadence", "streaming", "--batch", "100"]
            words += ["--stop-rule", "count", "--max-time", "60s", "--stop-samples", str(operations // 100)]
            row = ours(out / f"{name}-{log2}-{number}", words)
            rounds.append((row["mean_ns"] / 1e3 / parts, imb(prefix, name, column, log2, operations, asked.gpus)))
        each = ", ".join(f"{mine:.4g}/{other:.4g}" for mine, other in rounds)
        ratios = sorted(mine / other for mine, other in rounds)
        print(f"{name}, {1 << log2} B: ours/theirs in us {each}; ratio median {statistics.median(ratios):.3f}, "
              f"{ratios[0]:.3f} to {ratios[-1]:.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
