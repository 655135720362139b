"""Transport `ucx` against ucx_perftest, by turns: what each reaches over the same UCX.

    python bench/ucx.py [memory] [link] [--rounds N] [--out FOLDER]        (link: as root, with iproute2)

`memory`: two processes of this machine through its memory, 8 B there and back (tag_lat) and 1 MiB one way, 32 under way
(tag_bw). `link`: two emulated nodes (tests/cluster) with 100 Mb/s between them, 16 MiB one way over tcp. A round is one
launch of either; the ratio is of the two in one round. Of 8 B both are medians, since a waiting ucx_perftest keeps its
core from whoever it waits for. LINKGAUGE_UCX names the folder of the libucp.so.0 that ucx_perftest is to load; without
it that of MPICH's wheel, which the ranks' own MPI library brings.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from cluster.cluster import Cluster  # noqa: E402
from cluster.layout import MBIT, Layout  # noqa: E402

RATE = 100 * MBIT
OVER_TCP = {"UCX_TLS": "tcp,self"}
FINAL = "Final:"
OF_LATENCY, OF_BANDWIDTH = 2, 6  # words of its last line: the median in us, MiB/s in all
MIB = 1 << 20
Runner = Callable[[str, list[str], dict[str, str]], str]


def perftest() -> list[str]:
    """The program: on PATH, or in the wheel libucx-cu12."""
    import importlib.util

    spec = importlib.util.find_spec("libucx")
    wheel = [str(Path(place) / "bin") for place in (spec.submodule_search_locations or [])] if spec else []
    found = shutil.which("ucx_perftest", path=os.pathsep.join([*wheel, os.environ.get("PATH", "")]))
    if found is None:
        sys.exit("ucx_perftest is not here; remedy: pip install libucx-cu12, or Debian's ucx-utils")
    return [found]


def theirs(run: Runner, address: str, words: list[str], environment: dict[str, str], place: int) -> float:
    """One launch of the pair; a word of its last line."""
    library = os.environ.get("LINKGAUGE_UCX", str(Path(sys.prefix) / "lib/mpich"))
    env = {"LD_LIBRARY_PATH": library, **environment}
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    command = [*perftest(), "-p", port, *words]
    server = threading.Thread(target=run, args=("n1", command, env))
    server.start()
    time.sleep(1)
    said = run("n0", [*command, address], env)
    server.join()
    (line,) = [line for line in said.splitlines() if FINAL in line]
    return float(line.split()[place])


def ours(
    run: Runner, where: str, out: Path, words: list[str], environment: dict[str, str], transport: str = "ucx"
) -> dict[str, Any]:
    """One launch of linkgauge; the one row of its one case."""
    from linkgauge.stats.summary import summarise
    from linkgauge.store.run import load

    escaped = (f"{name}={value}".replace(",", "\\,") for name, value in environment.items())
    command = [sys.executable, "-m", "linkgauge", "run", "--no-report", "--transport", transport, "--pairs", "first",
               "--out", str(out), *words, *(word for pair in escaped for word in ("--env", pair))]  # fmt: skip
    run(where, command, {"PYTHONPATH": os.pathsep.join(sys.path)})
    rows = [row for row in summarise(load(out)).to_pylist() if row["lane"] == -1 and row["status"] == "ok"]
    return dict(rows[0])


def here(_node: str, command: list[str], environment: dict[str, str]) -> str:
    """Runs a command on this machine."""
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else sys.exit(done.stdout + done.stderr)


def told(name: str, unit: str, rounds: list[tuple[float, float]]) -> None:
    """Print a line of a comparison: every round, and the median ratio of ours over theirs."""
    ratios = [mine / other for mine, other in rounds]
    each = ", ".join(f"{mine:.4g}/{other:.4g}" for mine, other in rounds)
    print(f"{name}: ours/theirs in {unit} {each}; ratio median {statistics.median(ratios):.3f}, "
          f"{min(ratios):.3f} to {max(ratios):.3f}", flush=True)  # fmt: skip


def memory(out: Path, rounds: int) -> None:
    """Through this machine's memory."""
    common = ["--devices", "host:2", "--stop-time-ns", "3s"]
    latency, bandwidth = [], []
    for number in range(rounds):
        row = ours(here, "", out / f"latency-{number}", [*common, "--pattern", "pingpong", "--size", "8", "--cadence",
                   "streaming", "--batch", "100", "--stop-samples", "200"], {})  # fmt: skip
        other = theirs(here, "127.0.0.1", ["-t", "tag_lat", "-s", "8", "-n", "20000", "-w", "1000"], {}, OF_LATENCY)
        latency.append((row["latency_ns"] / 1e3, other))
        row = ours(here, "", out / f"bandwidth-{number}", [*common, "--pattern", "unidirectional", "--size", "1MiB",
                   "--window", "32", "--stop-samples", "200"], {})  # fmt: skip
        words = ["-t", "tag_bw", "-s", str(MIB), "-n", "2000", "-w", "100", "-O", "32"]
        other = theirs(here, "127.0.0.1", words, {}, OF_BANDWIDTH) * MIB
        bandwidth.append((row["goodput_bytes_per_s"] / 1e9, other / 1e9))
    told("8 B there and back, half", "us", latency)
    told("1 MiB one way, 32 under way", "GB/s", bandwidth)


def link(out: Path, rounds: int) -> None:
    """Between two nodes."""
    found = []
    with Cluster(Layout.of(2, rate=RATE, lossless=True)) as cluster:

        def run(node: str, command: list[str], environment: dict[str, str]) -> str:
            done = cluster.run(node, command, cwd=Path.cwd(), env=environment, timeout_s=500)
            return str(done.stdout) if done.returncode == 0 else sys.exit(done.stdout + done.stderr)

        address = run("n1", ["hostname", "-I"], {}).split()[0]
        for number in range(rounds):
            row = ours(run, "login", out / f"link-{number}", ["--devices", "host:1", "--hosts", "n0,n1", "--pattern",
                       "unidirectional", "--size", "16MiB", "--window", "2", "--stop-rule", "count", "--stop-samples",
                       "5", "--stop-time-ns", "120s", "--warmup", "1"], OVER_TCP)  # fmt: skip
            other = theirs(run, address, ["-t", "tag_bw", "-s", str(16 * MIB), "-n", "10", "-w", "1", "-O", "2"],
                           OVER_TCP, OF_BANDWIDTH)  # fmt: skip
            found.append((row["goodput_bytes_per_s"] * 8 / RATE, other * MIB * 8 / RATE))
    told("16 MiB one way over 100 Mb/s", "shares of the link", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["memory", "link"], default=["memory"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build/bench-ucx"), help="not in /tmp: each node has its own")
    asked = parser.parse_args()
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    for what in asked.what:
        (memory if what == "memory" else link)(asked.out.resolve(), asked.rounds)


if __name__ == "__main__":
    main()
