"""One rank of a small training step of PyTorch on CPUs, by gloo, traced: what `linkgauge convert` is to read.

    python torch_step.py KIND RANK RANKS PORT FOLDER

KIND: ddp, fsdp, tensor, pipeline or moe. FOLDER gets KIND.et.RANK.json, the execution trace of STEPS steps, and
KIND.said.RANK.json: what the step communicates by the model's own shapes, counted without any trace, and its time.
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS, WIDTH, LAYERS, BATCH = 2, 256, 3, 32
Counts = dict[str, list[int]]  # by pattern: how many a step, and bytes that this rank puts in


def layers(count: int = LAYERS) -> nn.Sequential:
    """A stack of square layers without biases, so that sizes are plain."""
    torch.manual_seed(7)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))


def ddp(rank: int, ranks: int) -> tuple[Callable[[], None], Counts]:
    """Gradients in one bucket a layer but the first, which is small by DDP's own rule."""
    model = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=WIDTH * WIDTH * 4 / 2**20)

    def step() -> None:
        model(torch.ones(BATCH, WIDTH)).sum().backward()

    return step, {"allreduce": [0, LAYERS * WIDTH * WIDTH * 4]}


def fsdp(rank: int, ranks: int) -> tuple[Callable[[], None], Counts]:
    """Each layer sharded by itself: gathered forward and backward (the last only once), its gradient scattered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = layers(), init_device_mesh("cpu", (ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def step() -> None:
        model(torch.ones(BATCH, WIDTH)).sum().backward()

    one = WIDTH * WIDTH * 4
    return step, {"allgather": [0, 2 * LAYERS * one // ranks], "reduce_scatter": [LAYERS, LAYERS * one]}


def tensor(rank: int, ranks: int) -> tuple[Callable[[], None], Counts]:
    """Two layers, split by columns and then by rows: one allreduce of activations forward, one of inputs backward."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = layers(2)
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), {"0": ColwiseParallel(), "1": RowwiseParallel()})

    def step() -> None:
        model(torch.ones(BATCH, WIDTH, requires_grad=True)).sum().backward()

    return step, {"allreduce": [2, 2 * BATCH * WIDTH * 4]}


def pipeline(rank: int, ranks: int) -> tuple[Callable[[], None], Counts]:
    """A stage a rank, two microbatches, GPipe: activations forward, their gradients backward."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    sample = torch.ones(BATCH // 2, WIDTH)
    stage = PipelineStage(layers(), rank, ranks, torch.device("cpu"), input_args=(sample,), output_args=(sample,))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, target: (output - target).sum())
    first, last = rank == 0, rank == ranks - 1

    def step() -> None:
        more: dict[str, Any] = {"target": torch.zeros(BATCH, WIDTH)} if last else {}
        schedule.step(*((torch.ones(BATCH, WIDTH, requires_grad=True),) if first else ()), **more)

    one = BATCH // 2 * WIDTH * 4
    sides = (0 if first else 1) + (0 if last else 1)
    return step, {"sent": [2 * sides, 2 * sides * one], "received": [2 * sides, 2 * sides * one]}


def moe(rank: int, ranks: int) -> tuple[Callable[[], None], Counts]:
    """An expert a rank, with skewed routing: rank 0's expert gets three of four of its tokens, and none of rank 1's."""
    expert = layers(1)
    to = [[BATCH * 3 // 4, BATCH // 4] if one == 0 else [0, BATCH] for one in range(ranks)]
    mine, theirs = to[rank], [row[rank] for row in to]

    def step() -> None:
        with torch.no_grad():
            tokens, got = torch.ones(BATCH, WIDTH), torch.empty(sum(theirs), WIDTH)
            dist.all_to_all_single(got, tokens, theirs, mine)
            back = torch.empty(BATCH, WIDTH)
            dist.all_to_all_single(back, expert(got), mine, theirs)

    return step, {"alltoall": [2, (BATCH + sum(theirs)) * WIDTH * 4]}


def main() -> None:
    """Warm up, time steps, trace some, and say what they communicate."""
    kind, rank, ranks, port, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"tcp://127.0.0.1:{port}",
                            timeout=datetime.timedelta(minutes=5))  # fmt: skip
    step, counts = {"ddp": ddp, "fsdp": fsdp, "tensor": tensor, "pipeline": pipeline, "moe": moe}[kind](rank, ranks)
    for _ in range(3):  # DDP orders its buckets anew after the first step
        step()
    taken = []
    for _ in range(10):
        dist.barrier()
        begun = time.perf_counter_ns()
        step()
        taken.append(time.perf_counter_ns() - begun)
    dist.barrier()
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(folder / f"{kind}.et.{rank}.json"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        observer.start()
        for _ in range(STEPS):
            step()
        observer.stop()
    observer.unregister_callback()
    profile.export_chrome_trace(str(folder / f"{kind}.prof.{rank}.json"))
    said = {"counts": counts, "steps": STEPS, "step_ns": statistics.median(taken)}
    (folder / f"{kind}.said.{rank}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
