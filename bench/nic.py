"""Transports `ucx` and `ofi` against ucx_perftest and fi_pingpong, by turns: what each reaches over the same library.

    python bench/nic.py [memory] [link] [--transport ucx] [--transport ofi] [--rounds N] [--out FOLDER] [--rate MBIT]

`memory`: two processes of this machine, 8 B there and back and 1 MiB, of `ucx` one way with 32 under way (tag_bw), of
`ofi` there and back, which is all that fi_pingpong does, over tcp. `link`, as root with iproute2: two emulated nodes
(tests/cluster), 16 MiB likewise over tcp. A round is one launch of either; the ratio is of the two in one round. Of 8 B
by `ucx` both are medians, since a waiting ucx_perftest keeps its core from whoever it waits for; fi_pingpong has means.
LINKGAUGE_PEER_LIBRARY names the folder of the library that they are to load; without it that of MPICH's wheel, which
the ranks' own MPI library brings.
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

OVER_TCP = {"ucx": {"UCX_TLS": "tcp,self"}, "ofi": {"FI_PROVIDER": "tcp"}}
FINAL = "Final:"
OF_LATENCY, OF_BANDWIDTH = 2, 6  # words of its last line: the median in us, MiB/s in all
MIB = 1 << 20
Runner = Callable[[str, list[str], dict[str, str]], str]


def program(name: str, remedy: str) -> str:
    """A peer's program: on PATH, or in the wheel libucx-cu12."""
    import importlib.util

    spec = importlib.util.find_spec("libucx")
    wheel = [str(Path(place) / "bin") for place in (spec.submodule_search_locations or [])] if spec else []
    found = shutil.which(name, path=os.pathsep.join([*wheel, os.environ.get("PATH", "")]))
    return found or sys.exit(f"{name} is not here; remedy: {remedy}")


def pair(run: Runner, address: str, command: list[str], port_option: str, environment: dict[str, str]) -> str:
    """What the client of one launch of a server and a client says."""
    library = os.environ.get("LINKGAUGE_PEER_LIBRARY", str(Path(sys.prefix) / "lib/mpich"))
    env = {"LD_LIBRARY_PATH": library, **environment}
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    server = threading.Thread(target=run, args=("n1", [*command, f"-{port_option[0]}", port], env))
    server.start()
    time.sleep(1)
    said = run("n0", [*command, f"-{port_option[1]}", port, address], env)
    server.join()
    return said


def perftest(run: Runner, address: str, words: list[str], environment: dict[str, str], place: int) -> float:
    """One launch of ucx_perftest; a word of its last line."""
    name = program("ucx_perftest", "pip install libucx-cu12, or Debian's ucx-utils")
    said = pair(run, address, [name, *words], "pp", environment)
    (line,) = [line for line in said.splitlines() if FINAL in line]
    return float(line.split()[place])


def pingpong(run: Runner, address: str, size: int, count: int) -> float:
    """One launch of libfabric's fi_pingpong by tagged messages over tcp; microseconds of a transfer one way."""
    name = program("fi_pingpong", "Debian's libfabric-bin")
    words = ["-p", "tcp", "-e", "rdm", "-m", "tagged", "-I", str(count), "-S", str(size)]
    said = pair(run, address, [name, *words], "BP", {})
    return float(said.splitlines()[-1].split()[-2])


def ours(
    run: Runner, where: str, out: Path, transport: str, words: list[str], environment: dict[str, str]
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


STREAMED = ["--cadence", "streaming", "--batch"]


def ucx_memory(out: Path, rounds: int) -> None:
    """`ucx` through this machine's memory."""
    common = ["--devices", "host:2", "--stop-time-ns", "3s", "--stop-samples", "200"]
    latency, bandwidth = [], []
    for number in range(rounds):
        row = ours(here, "", out / f"latency-{number}", "ucx", [*common, "--pattern", "pingpong", "--size", "8",
                   *STREAMED, "100"], {})  # fmt: skip
        other = perftest(here, "127.0.0.1", ["-t", "tag_lat", "-s", "8", "-n", "20000", "-w", "1000"], {}, OF_LATENCY)
        latency.append((row["latency_ns"] / 1e3, other))
        row = ours(here, "", out / f"bandwidth-{number}", "ucx", [*common, "--pattern", "unidirectional", "--size",
                   "1MiB", "--window", "32"], {})  # fmt: skip
        words = ["-t", "tag_bw", "-s", str(MIB), "-n", "2000", "-w", "100", "-O", "32"]
        other = perftest(here, "127.0.0.1", words, {}, OF_BANDWIDTH) * MIB
        bandwidth.append((row["goodput_bytes_per_s"] / 1e9, other / 1e9))
    told("ucx, 8 B there and back, half", "us", latency)
    told("ucx, 1 MiB one way, 32 under way", "GB/s", bandwidth)


def ofi_memory(out: Path, rounds: int) -> None:
    """`ofi` between processes of this machine, over tcp."""
    for size, text, count in ((8, "8", 10_000), (MIB, "1MiB", 500)):
        found = []
        for number in range(rounds):
            row = ours(here, "", out / f"{text}-{number}", "ofi", ["--devices", "host:2", "--stop-time-ns", "3s",
                       "--stop-samples", "200", "--pattern", "pingpong", "--size", text, *STREAMED,
                       "100" if size == 8 else "1"], OVER_TCP["ofi"])  # fmt: skip
            found.append((row["latency_ns"] / 1e3, pingpong(here, "127.0.0.1", size, count)))
        told(f"ofi, {text} B there and back, half", "us", found)


def link(out: Path, rounds: int, transports: list[str], rate: int) -> None:
    """Between two nodes."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in transports}
    counted = ["--stop-rule", "count", "--stop-samples", "5", "--stop-time-ns", "200s", "--warmup", "1"]
    with Cluster(Layout.of(2, rate=rate, lossless=True)) as cluster:

        def run(node: str, command: list[str], environment: dict[str, str]) -> str:
            done = cluster.run(node, command, cwd=Path.cwd(), env=environment, timeout_s=500)
            return str(done.stdout) if done.returncode == 0 else sys.exit(done.stdout + done.stderr)

        address = run("n1", ["hostname", "-I"], {}).split()[0]
        for number in range(rounds):
            for name in transports:
                pattern = ["pingpong"] if name == "ofi" else ["unidirectional", "--window", "2"]
                row = ours(run, "login", out / f"link-{name}-{number}", name, ["--devices", "host:1", "--hosts",
                           "n0,n1", "--size", "16MiB", *counted, "--pattern", *pattern], OVER_TCP[name])  # fmt: skip
                mine = row["goodput_bytes_per_s"] * 8 / rate
                if name == "ofi":
                    other = 16 * MIB * 8 / (pingpong(run, address, 16 * MIB, 5) * 1e-6) / rate
                else:
                    words = ["-t", "tag_bw", "-s", str(16 * MIB), "-n", "10", "-w", "1", "-O", "2"]
                    other = perftest(run, address, words, OVER_TCP["ucx"], OF_BANDWIDTH) * MIB * 8 / rate
                found[name].append((mine, other))
    for name, each in found.items():
        told(f"{name}, 16 MiB over {rate // MBIT} Mb/s", "shares of the link", each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["memory", "link"], default=["memory"])
    parser.add_argument("--transport", action="append", choices=["ucx", "ofi"], help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=100, help="of the emulated link, in Mb/s")
    parser.add_argument("--out", type=Path, default=Path("build/bench-nic"), help="not in /tmp: each node has its own")
    asked = parser.parse_args()
    transports = asked.transport or ["ucx", "ofi"]
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    out = asked.out.resolve()
    for what in asked.what:
        if what == "link":
            link(out, asked.rounds, transports, asked.rate * MBIT)
            continue
        for name in transports:
            (ucx_memory if name == "ucx" else ofi_memory)(out, asked.rounds)


if __name__ == "__main__":
    main()
