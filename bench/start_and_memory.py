"""How soon a run's first sample is taken, and how much host memory a rank needs above its buffers.

Two runs for each size, of which the first fills the kernel cache. A rank's memory is its peak resident set (VmHWM, as
last seen of 50 looks a second) less 2 m, the most that the cases' buffers of size m take on a rank at once; memory that
ranks share counts in each. The first sample is the earliest stored one that is no warm-up, against the moment that the
program was started, on one clock.

The devices are those of `--devices`; `--libraries` puts folders before the loader's own (the stand-in GPU libraries of
the tests: BUILD/stand_in and BUILD/stand_in/nvrtc12).

Example: python bench/start_and_memory.py --devices cuda --libraries build/stand_in build/stand_in/nvrtc12
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benching import PROGRAM, options
from linkgauge.model.quantity import parse_size
from linkgauge.store.run import load
from ranks import ranks_of, status_kib

PLAN = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["unidirectional", "local_copy", "host_to_device", "pointer_chase"]
pairs = "first"
size = {size}
stop_rule = "count"
stop_samples = 5
max_time = "60s"
"""


def measure(folder: Path, size: int, devices: str, threads: bool, environment: dict[str, str]) -> tuple[float, int]:
    """Run the plan; seconds to its first sample, and the largest rank's peak in KiB. Raises where no case was ok."""
    (folder / "plan.toml").write_text(PLAN.format(size=size))
    out = folder / f"run-{time.monotonic_ns()}"
    command = [*PROGRAM, "run", "--plan", str(folder / "plan.toml"), "--devices", devices, "--out", str(out),
               "--no-report"]  # fmt: skip
    start_ns = time.monotonic_ns()
    process = subprocess.Popen(command + ["--threads"] * threads, env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    peak = 0
    while process.poll() is None:
        time.sleep(0.02)
        peak = max([peak, *(status_kib(pid, "VmHWM") for pid in ranks_of(process))])
    run = load(out)
    ok = sum(row.status == "ok" for row in run.rows())
    samples = run.sample_columns(["phase", "start_ns"]).to_pylist()
    first = min((row["start_ns"] for row in samples if row["phase"] == "sample"), default=None)
    if ok == 0 or first is None or peak == 0:
        raise SystemExit(f"no case of {out} was measured (exit status {process.returncode})")
    return (first - start_ns) / 1e9, peak


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each size."""
    parser = options(__doc__)
    parser.add_argument("--devices", default="host:2")
    parser.add_argument("--libraries", nargs="*", default=[], help="folders for LD_LIBRARY_PATH")
    parser.add_argument("--size", nargs="*", default=["64KiB", "32MiB"])
    parser.add_argument("--threads", action="store_true", help="threads of one process instead of MPI ranks")
    asked = parser.parse_args(arguments)
    places = [*(str(Path(folder).resolve()) for folder in asked.libraries), os.environ.get("LD_LIBRARY_PATH", "")]
    print("devices, size, first sample cold and warm s, peak of a rank MiB, above its buffers MiB")
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, places)), "XDG_CACHE_HOME": name}
        for size in map(parse_size, asked.size):
            cold, _ = measure(Path(name), size, asked.devices, asked.threads, environment)
            warm, peak = measure(Path(name), size, asked.devices, asked.threads, environment)
            # The threads of one process are all ranks: here two, with 2 m each.
            buffers = 2 * size * (2 if asked.threads else 1)
            print(f"{asked.devices}{' threads' if asked.threads else ''}, {size}, {cold:.2f}, {warm:.2f}, "
                  f"{peak / 1024:.0f}, {peak / 1024 - buffers / (1 << 20):.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
