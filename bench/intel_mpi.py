"""Transport `mpi` under Intel MPI against Intel's own IMB-MPI1, by turns: what each reaches over the same library.

    python bench/intel_mpi.py PREFIX [--rounds N] [--gpu] [--out FOLDER]

PREFIX: where the wheel impi-rt is (pip install --prefix PREFIX impi-rt). Two ranks, on this machine's cores, or with
--gpu on one GPU's memory by IMB-MPI1-GPU. IMB repeats an operation back to back and tells the mean, so ours does too
(streaming, batches of 100). A round is one launch of either for each benchmark; the ratio is of the two in one round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from nic import here, ours, told

# IMB's benchmark and the column of its time in us, pattern, log2 of the size, operations, parts of ours that it tells:
# of a ping-pong it tells half of the round trip.
BENCHMARKS = (
    ("PingPong", 2, "pingpong", 3, 20000, 2),
    ("PingPong", 2, "pingpong", 16, 4000, 2),
    ("Allreduce", 4, "allreduce", 3, 20000, 1),
    ("Allreduce", 4, "allreduce", 20, 400, 1),
    ("Alltoall", 4, "alltoall", 16, 2000, 1),
)


def imb(prefix: Path, name: str, column: int, log2: int, operations: int, gpu: bool) -> float:
    """One launch of IMB; the mean time of an operation in us."""
    program = [str(prefix / "bin" / ("IMB-MPI1-GPU" if gpu else "IMB-MPI1")), name, "-msglog", f"{log2}:{log2}"]
    program += ["-iter", str(operations), "-iter_policy", "off", "-time", "60", "-npmin", "2"]
    program += ["-mem_alloc_type", "device"] if gpu else []
    path = os.pathsep.join([str(prefix / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {"LD_LIBRARY_PATH": path}
    if gpu:
        environment |= {
            "I_MPI_OFFLOAD": "1",
            "I_MPI_OFFLOAD_MODE": "cuda",
            "I_MPI_OFFLOAD_CUDA_LIBRARY": "libcuda.so.1",
        }
    said = here("", [str(prefix / "bin/mpiexec"), "-n", "2", *program], environment)
    rows = [line.split() for line in said.splitlines()]
    (row,) = [row for row in rows if row and row[0] == str(1 << log2)]
    return float(row[column])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/bench-intel-mpi"))
    asked = parser.parse_args()
    prefix, out = asked.prefix.resolve(), asked.out.resolve()
    if not (prefix / "bin/IMB-MPI1").is_file():
        sys.exit(f"no bin/IMB-MPI1 in '{prefix}'; remedy: pip install --prefix {prefix} impi-rt")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    where = ["--devices", "cuda:0", "--ranks-per-device", "2"] if asked.gpu else ["--devices", "host:2"]
    for name, column, pattern, log2, operations, parts in BENCHMARKS:
        rounds = []
        for number in range(asked.rounds):
            words = [*where, "--mpi", str(prefix), "--pattern", pattern, "--size", str(1 << log2), "--warmup", "100"]
            words += ["--cadence", "streaming", "--batch", "100", "--stop-rule", "count", "--stop-time-ns", "60s"]
            words += ["--stop-samples", str(operations // 100)]
            row = ours(here, "", out / f"{name}-{log2}-{number}", "mpi", words, {})
            rounds.append((row["mean_ns"] / 1e3 / parts, imb(prefix, name, column, log2, operations, asked.gpu)))
        told(f"{name}, {1 << log2} B", "us", rounds)


if __name__ == "__main__":
    main()
