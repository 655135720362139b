"""One rank of real training and inference steps of PyTorch by NCCL (by gloo on CPUs): timed, then profiled.

    python gpu_steps.py RANK RANKS PORT FOLDER cuda|cpu NAME[:VARIANT]...

For each name FOLDER gets NAME/prof.RANK.json.gz, a profile of ITERATION steps with waits of streams (without VARIANT),
and a line of FOLDER/said.RANK.jsonl: ns of each timed iteration, unprofiled, and of the profiled one. An iteration is
ITERATION steps from a barrier until the device has nothing to do, as an iteration of `linkgauge run --app` is.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_programs import PROGRAMS, Bench, Step

ITERATION = 2  # steps
TIMED = 24  # iterations: the 8th and the 17th of 24 are a 94 % interval of the median
WARM = 6
SLOWED = 4  # iterations; the first warms the profile up
COMMUNICATED = 20  # iterations: the 6th and the 15th are a 96 % interval


def _iteration(bench: Bench, step: Step) -> None:
    for _ in range(ITERATION):
        step()
    bench.sync()


def _communicated(bench: Bench, step: Step, name: str) -> list[list[int]]:
    """Of each of COMMUNICATED iterations, how long each of NCCL's kernels takes, in ns; nothing else is profiled."""
    if not bench.on_gpu:
        return []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for number in range(COMMUNICATED):
            bench.meet(f"{name} {number}")
            _iteration(bench, step)
    found = sorted((one.start_ns(), one.duration_ns()) for one in profile.profiler.kineto_results.events()
                   if one.name().startswith("ncclDevKernel"))  # fmt: skip
    each = len(found) // COMMUNICATED
    return [[ns for _, ns in found[at : at + each]] for at in range(0, each * COMMUNICATED, each or 1)]


def _profiled(bench: Bench, step: Step, where: Path) -> int:
    """One profiled iteration, in ns; its profile is written to `where`."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if bench.on_gpu else []
    settings = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    observer = None if bench.on_gpu else torch.profiler.ExecutionTraceObserver()
    if observer is not None:
        observer.register_callback(str(where.with_name(f"et.{bench.rank}.json")))
    with torch.profiler.profile(
        activities=kinds, record_shapes=True, experimental_config=settings,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(where)),
    ) as profile:  # fmt: skip
        _iteration(bench, step)
        dist.barrier()
        bench.sync()
        profile.step()
        if observer is not None:
            observer.start()
        bench.meet(str(where.parent))
        begun = time.perf_counter_ns()
        _iteration(bench, step)
        taken = time.perf_counter_ns() - begun
        if observer is not None:
            observer.stop()
        profile.step()
    if observer is not None:
        observer.unregister_callback()
    return taken


def _slowed(bench: Bench, step: Step, name: str) -> dict[str, list[int]]:
    """Iterations in ns under profiles that record less and less: what each costs the host."""
    every = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    of = {"shapes": (every, True), "no shapes": (every, False), "device": (every[1:], False)}
    found: dict[str, list[int]] = {}
    for words, (activities, shapes) in of.items() if bench.on_gpu else ():
        with torch.profiler.profile(activities=activities, record_shapes=shapes):
            for number in range(SLOWED):
                bench.meet(f"{name} {words} {number}")
                begun = time.perf_counter_ns()
                _iteration(bench, step)
                found.setdefault(words, []).append(time.perf_counter_ns() - begun)
    return found


def measured(bench: Bench, what: str, folder: Path) -> dict[str, Any]:
    """Build, warm up, time, profile."""
    name, _, variant = what.partition(":")
    step = PROGRAMS[name](bench, variant)
    for _ in range(WARM):
        step()
    bench.sync()
    taken = []
    for _ in range(TIMED):
        dist.barrier()
        bench.sync()
        begun = time.perf_counter_ns()
        _iteration(bench, step)
        taken.append(time.perf_counter_ns() - begun)
    dist.barrier()
    bench.sync()
    begun = time.perf_counter_ns()
    for _ in range(TIMED):
        step()
    bench.sync()
    flow = (time.perf_counter_ns() - begun) / TIMED
    profiled = None if variant else _profiled(bench, step, folder / name / f"prof.{bench.rank}.json.gz")
    kernels = [] if variant else _communicated(bench, step, name)
    slowed = {} if variant else _slowed(bench, step, name)
    return {"name": what, "about": (PROGRAMS[name].__doc__ or "").strip(), "rank": bench.rank, "steps": ITERATION,
            "iterations_ns": taken, "flow_step_ns": flow, "profiled_ns": profiled,
            "kernels_ns": kernels, "slowed_ns": slowed}  # fmt: skip


def main() -> None:
    """All programs that are named, in one process."""
    rank, ranks, port, folder, device = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5]
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", rank=rank, world_size=ranks, init_method=f"tcp://127.0.0.1:{port}",
        timeout=datetime.timedelta(seconds=60),
        **({"device_id": torch.device("cuda", rank)} if device == "cuda" else {}),
    )  # fmt: skip
    said = folder / f"said.{rank}.jsonl"
    for what in sys.argv[6:]:
        begun = time.monotonic()
        try:
            line = measured(Bench(rank, ranks, device), what, folder)
        except Exception:  # the next program may do; where only one rank failed, the other's watch ends both
            line = {"name": what, "rank": rank, "failed": traceback.format_exc()[-1500:]}
        line["took_s"] = round(time.monotonic() - begun, 2)
        with said.open("a") as file:
            file.write(json.dumps(line) + "\n")
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    os._exit(0)  # communicators of variants take seconds to end


if __name__ == "__main__":
    main()
