"""Steps of PyTorch on two GPUs by NCCL: real, profiled, replayed and predicted, and what changes of them gain.

    python bench/real_programs/gpu_harness.py --out FOLDER [--device cpu] [--seconds 290] [--only PART,...]

Parts, in order, each of what the ones before left in FOLDER, so that one may be done again, or elsewhere:

- programs: gpu_steps.py with PROGRAMS and VARIANTS; a program that takes too long is ended and left out;
- convert: of each profile a step file of the GPU's times, one with the host's, and one of its communication alone;
- curves: `linkgauge run` of collectives and messages;
- replay: all step files by `linkgauge run --app`;
- kernels: those of communication alone again, by the profiler that timed NCCL's kernels in the programs;
- beside: the same of BESIDE while products of matrices occupy the multiprocessors;
- overlap: allreduces beside products of matrices; capped: allreduces with NCCL_MAX_CTAS;
- compare: `linkgauge predict`, the advice of `convert --exposed`, and results.jsonl, a line a program and a variant.

A program's communication is the sum of NCCL's kernels, each as on the rank that came last: the other's includes its
wait. A replay's is the same of the step file's communication alone, begun one after the other. Its wall time also has
launches and the gaps between kernels. "Exposed" is what the GPU waits for with nothing to compute. Times in ms are of
ITERATION steps; an interval has 94 % of the median.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_results import compare  # noqa: E402

PROGRAMS = ("host_bound", "ddp_small", "ddp_large", "ddp_float", "fsdp", "tensor", "pipeline", "moe", "loop", "decode",
            "routed", "at_once", "encoder", "conv")  # fmt: skip
# Graphs last: a capture that fails may leave a process that can do nothing more.
VARIANTS = ("at_once:async", "ddp_large:bucket=100", "ddp_large:bucket=400", "ddp_float:bf16", "fsdp:keep",
            "ddp_large:ctas=4", "ddp_float:ctas=4", "ddp_float:bucket=200", "host_bound:graph", "decode:graph",
            "moe:graph", "routed:graph", "tensor:graph", "encoder:graph", "conv:graph")  # fmt: skip
EMPTY = 'description = "A launch and a wait"\nstep = [ { collective = "allreduce", bytes = 8 } ]\n'
RANKS, LONGEST_S, START_S, CTAS = 2, 20, 60, 4
PARTS = ("programs", "convert", "curves", "replay", "kernels", "beside", "overlap", "capped", "compare")
CURVES = """
name = "curves"
[[case]]
pattern = ["allreduce", "allgather", "reduce_scatter", "alltoall", "alltoallv"]
transport = "{collectives}"
size = "1KiB:256MiB:x4"
max_time = "150ms"
[[case]]
pattern = ["allreduce", "allgather", "reduce_scatter", "alltoall", "alltoallv"]
transport = "{collectives}"
size = "1KiB:64MiB:x4"
cadence = "streaming"
max_time = "100ms"
[[case]]
pattern = ["allreduce", "allgather", "reduce_scatter", "alltoall", "alltoallv", "barrier"]
transport = "{collectives}"
size = "1KiB:64KiB:x4"
cadence = "barrier"
max_time = "100ms"
[[case]]
pattern = ["pingpong", "unidirectional", "bidirectional"]
transport = "{messages}"
size = "64KiB:64MiB:x4"
pairs = "first"
max_time = "100ms"
[[case]]
pattern = "unidirectional"
transport = "{messages}"
size = "64KiB:64MiB:x4"
cadence = "streaming"
pairs = "first"
max_time = "100ms"
[[case]]
pattern = "unidirectional"
transport = "{messages}"
size = "64KiB:64MiB:x4"
window = 16
pairs = "first"
max_time = "100ms"
[[case]]
pattern = "application"
app = ["data_parallel", "fsdp", "tensor_parallel", "moe", "krylov", "fft_slab", "halo_stencil", "pipeline", "cnn",
       "graph_frontier", "trk"]
transport = "{messages}"
collectives = "{collectives}"
max_time = "150ms"
"""
PRODUCTS = """
name = "beside_products"
[[launch]]
name = "node"
threads = true
[[job]]
name = "gemm"
transport = "kernel"
pattern = "gemm"
size = "64MiB"
on = "same"
"""
OVERLAP = """
[[case]]
launch = "node"
transport = "ccl"
pattern = ["allreduce", "alltoall"]
size = ["4MiB", "64MiB"]
background = "gemm"
swap_roles = true
max_time = "300ms"
"""
BESIDE = ("loop", "ddp_float", "ddp_large")  # what overlaps large collectives with computing
COMMUNICATION = """
[[case]]
launch = "node"
pattern = "application"
transport = "{messages}"
collectives = "{collectives}"
app = {apps}
background = "gemm"
max_time = "150ms"
"""


class Harness:
    """Where it all is, and until when."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.out: Path = asked.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.device: str = asked.device
        self.until = time.monotonic() + asked.seconds
        on_gpu = self.device == "cuda"
        self.messages, self.collectives = ("ccl", "ccl") if on_gpu else ("mpi", "mpi")
        self.devices = "auto" if on_gpu else f"host:{RANKS}"
        self.mpi: list[str] = ["--mpi", asked.mpi] if asked.mpi else []
        self.names: Sequence[str] = asked.name or (*PROGRAMS, *(VARIANTS if on_gpu else VARIANTS[:5]))

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()

    def linkgauge(self, *words: str, log: str, longest_s: float = 300.0, more: Mapping[str, str] | None = None) -> str:
        """What a command prints; "" where it fails or takes too long, which LOG.txt says. `more`: its environment's."""
        limit = max(1.0, min(longest_s, self.left_s))
        command = [sys.executable, "-m", "linkgauge", *words]
        with (self.out / f"{log}.txt").open("a") as errors:
            errors.write(f"$ linkgauge {shlex.join(words)}\n")
            errors.flush()
            running = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, **(more or {})},
            )
            try:
                text, _ = running.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)  # keeps what was measured, and ends its ranks
                try:
                    text, _ = running.communicate(timeout=8)
                except subprocess.TimeoutExpired:
                    os.killpg(running.pid, signal.SIGKILL)
                    text, _ = running.communicate()
                errors.write(f"ended after {limit:.0f} s\n")
            errors.write(f"{text}exit {running.returncode}\n")
        return text if running.returncode in (0, 3, 4) else ""


# --- programs --------------------------------------------------------------------------------------------------------


def programs(harness: Harness) -> None:
    """Run all that are named: a program that fails or hangs is left out, and the others go on in a new start."""
    left = [name for name in harness.names if name not in _done(harness)]
    in_vain = 0
    while left and harness.left_s > LONGEST_S and in_vain < 2:
        before = len(left)
        _started(harness, left)
        done = _done(harness)
        left = [name for name in left if name not in done]
        in_vain = in_vain + 1 if len(left) == before else 0
        if left:
            print(f"left out: {left.pop(0)}", flush=True)


def _done(harness: Harness) -> set[str]:
    return {line["name"] for line in said(harness.out, 0)} & {line["name"] for line in said(harness.out, RANKS - 1)}


def said(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What a rank wrote."""
    path = folder / f"said.{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _started(harness: Harness, names: Sequence[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        words = [sys.executable, str(HERE / "gpu_steps.py"), str(rank), str(RANKS), str(port), str(harness.out),
                 harness.device, *names]  # fmt: skip
        log = (harness.out / f"programs.{rank}.txt").open("a")
        ranks.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
    known, since, longest = len(_done(harness)), time.monotonic(), START_S
    while any(one.poll() is None for one in ranks):
        time.sleep(0.1)
        if (count := len(_done(harness))) > known:
            print(f"{time.monotonic() - since:.1f} s: {sorted(_done(harness))[-1]} and {count - 1} more", flush=True)
            known, since, longest = count, time.monotonic(), LONGEST_S
        failed = any(one.poll() not in (None, 0) for one in ranks)
        if time.monotonic() - since > (5 if failed else longest) or harness.left_s < 5:
            break
    for one in ranks:
        if one.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
        one.wait()


# --- linkgauge -------------------------------------------------------------------------------------------------------


def curves(harness: Harness) -> None:
    """Curves of collectives and messages."""
    plan = harness.out / "curves.toml"
    plan.write_text(CURVES.format(messages=harness.messages, collectives=harness.collectives))
    harness.linkgauge("run", "--plan", str(plan), "--devices", harness.devices, "--out", str(harness.out / "curves"),
                      "--no-report", "--time-limit", "65s", *harness.mpi, log="curves", longest_s=80)  # fmt: skip


def overlap(harness: Harness) -> None:
    """What allreduces and products of matrices cost each other."""
    if harness.device == "cuda":
        plan = harness.out / "overlap.toml"
        plan.write_text(PRODUCTS + OVERLAP)
        harness.linkgauge("run", "--plan", str(plan), "--out", str(harness.out / "overlap"), "--no-report",
                          "--time-limit", "30s", log="overlap", longest_s=45)  # fmt: skip


def capped(harness: Harness) -> None:
    """Allreduces as NCCL does them with fewer thread blocks."""
    if harness.device == "cuda":
        harness.linkgauge("run", "--pattern", "allreduce", "--size", "1MiB:256MiB:x4", "--transport", "ccl", "--env",
                          f"NCCL_MAX_CTAS={CTAS}", "--max-time", "100ms", "--out", str(harness.out / "capped"),
                          "--no-report", "--time-limit", "25s", log="capped", longest_s=40)  # fmt: skip


def convert(harness: Harness) -> None:
    """Three step files of each program that was profiled."""
    folders = sorted(one.parent for one in harness.out.glob(f"*/{_traces(harness)[0]}"))
    with ThreadPoolExecutor(8 if harness.device == "cuda" else 1) as pool:
        list(pool.map(lambda folder: _converted(harness, folder), folders))


def _traces(harness: Harness) -> list[str]:
    form = "prof.{}.json.gz" if harness.device == "cuda" else "et.{}.json"
    return [form.format(rank) for rank in range(RANKS)]


def _converted(harness: Harness, folder: Path) -> None:
    traces = [str(folder / one) for one in _traces(harness)]
    name = folder.name
    for suffix, flags in (("", ()), ("_host", ("--host-time",))):
        harness.linkgauge("convert", *traces, *flags, "-o", str(folder / f"{name}{suffix}.toml"), log=f"{name}/convert")
    harness.linkgauge("convert", *traces, "--exposed", log=f"{name}/exposed")
    if (steps := folder / f"{name}.toml").exists():
        _write_steps(folder / f"{name}_comm.toml", steps, _communication)


def _write_steps(target: Path, source: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    from linkgauge.apps.step_file import as_toml
    from linkgauge.model.shape import parsed_toml

    document = parsed_toml(source.read_text(), source.name)
    document["step"] = change(document["step"])
    target.write_text(as_toml(document))


def _communication(steps: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without computing and waits: collectives are begun one after the other, and each message is a group of its own,
    as each was a kernel of its own."""
    found: list[dict[str, Any]] = []
    for one in steps:
        if "step" in one:
            if inner := _communication(one["step"]):
                found.append({**one, "step": inner})
        elif "collective" in one:
            found.append({**one, "begun": True} if one["collective"] != "barrier" else one)
        elif "send" in one or "receive" in one:
            found += [one, {"compute": 1}]
    return found


def _sound(path: Path) -> bool:
    """Whether all ranks can follow it: one that they cannot would end the run of all."""
    from linkgauge.apps.catalog import parse
    from linkgauge.apps.matching import check
    from linkgauge.apps.program import program_of
    from linkgauge.errors import LinkgaugeError

    try:
        check(program_of(parse(path.read_text(), path.name), {}, RANKS))
    except LinkgaugeError as error:
        print(f"left out: {error}", flush=True)
        return False
    return True


def replay(harness: Harness) -> None:
    """All step files in one run."""
    files = [folder / f"{folder.name}{suffix}.toml" for suffix in ("", "_comm", "_host")
             for folder in sorted(one.parent for one in harness.out.glob("*/*_comm.toml"))]  # fmt: skip
    files = [one for one in files if one.exists() and _sound(one)]
    if files:
        files.append(harness.out / "empty.toml")
        files[-1].write_text(EMPTY)
        harness.linkgauge("run", "--app", ",".join(map(str, files)), "--devices", harness.devices, "--transport",
                          harness.messages, "--collectives", harness.collectives, "--max-time", "500ms", "--warmup",
                          "2", "--out", str(harness.out / "replay"), "--no-report", "--time-limit", "65s",
                          *harness.mpi, log="replay", longest_s=80)  # fmt: skip


def kernels(harness: Harness) -> None:
    """Step files of communication alone once more, each of NCCL's kernels timed."""
    files = [one for one in sorted(harness.out.glob("*/*_comm.toml")) if _sound(one)]
    if files:
        _timed(harness, "kernels", "--app", ",".join(map(str, files)), "--devices", harness.devices, "--transport",
               harness.messages, "--collectives", harness.collectives, "--max-time", "150ms", "--warmup", "2",
               *harness.mpi)  # fmt: skip


def beside(harness: Harness) -> None:
    """Some of them while products of matrices are computed."""
    files = [one for name in BESIDE if (one := harness.out / name / f"{name}_comm.toml").exists() and _sound(one)]
    if files:
        plan = harness.out / "beside.toml"
        apps = json.dumps([f"file:{one}" for one in files])
        plan.write_text(PRODUCTS + COMMUNICATION.format(
            messages=harness.messages, collectives=harness.collectives, apps=apps))  # fmt: skip
        _timed(harness, "beside", "--plan", str(plan), "--devices", harness.devices)


def _timed(harness: Harness, what: str, *words: str) -> None:
    """A run whose kernels are timed, into a folder of that name."""
    path = os.pathsep.join(filter(None, (str(HERE / "kernel_times"), os.environ.get("PYTHONPATH"))))
    harness.linkgauge("run", *words, "--out", str(harness.out / what / "run"), "--no-report", "--time-limit", "60s",
                      log=what, longest_s=75,
                      more={"PYTHONPATH": path, "KERNEL_TIMES": str(harness.out / what)})  # fmt: skip


def main() -> None:
    """Do all parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="programs and variants; all by default")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=290, help="end within this time, with what there is")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to do")
    parser.add_argument("--mpi", default="", help="as 'linkgauge run --mpi' takes it")
    asked = parser.parse_args()
    harness = Harness(asked)
    doing: dict[str, Callable[[Harness], Any]] = {
        "programs": programs, "curves": curves, "convert": convert, "replay": replay, "kernels": kernels,
        "beside": beside,
        "overlap": overlap, "capped": capped, "compare": compare,
    }  # fmt: skip
    took = {}
    for part in asked.only.split(","):
        begun = time.monotonic()
        if harness.left_s > 3:
            doing[part](harness)
        took[part] = round(time.monotonic() - begun, 1)
        print(f"{part}: {took[part]} s; load {os.getloadavg()[0]:.1f}", flush=True)
    (harness.out / "took.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main()
