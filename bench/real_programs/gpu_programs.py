"""The training and inference steps of PyTorch that gpu_steps.py times and profiles, a function each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Step = Callable[[], Any]


class Bench:
    """What every program is built with: the rank, the device, and how much smaller it is on CPUs."""

    def __init__(self, rank: int, ranks: int, device: str) -> None:
        self.rank, self.ranks = rank, ranks
        self.on_gpu = device == "cuda"
        self.device = torch.device(device, rank) if self.on_gpu else torch.device("cpu")
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32

    def of(self, gpu: int, cpu: int) -> int:
        """A size."""
        return gpu if self.on_gpu else cpu

    def rand(self, *shape: int, grad: bool = False) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, dtype=self.dtype, requires_grad=grad)

    def meet(self, what: str) -> None:
        """Wait for all ranks on the hosts alone, so that nothing of it is in a profile."""
        store = dist.distributed_c10d._get_default_store()
        store.add(what, 1)
        while store.add(what, 0) < self.ranks:
            pass

    def sync(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def layers(self, count: int, width: int, *, bias: bool = False) -> nn.Sequential:
        torch.manual_seed(7)
        held = nn.Sequential(*(nn.Linear(width, width, bias=bias) for _ in range(count)))
        return held.to(self.device, self.dtype)


def _data_parallel(bench: Bench, model: nn.Module, batch: torch.Tensor, variant: str, bucket_mb: float) -> Step:
    name, _, value = variant.partition("=")
    more: dict[str, Any] = {"bucket_cap_mb": float(value) if name == "bucket" else bucket_mb}
    if name == "ctas" and bench.on_gpu:
        options = dist.ProcessGroupNCCL.Options()
        options.config.min_ctas = options.config.max_ctas = int(value)
        more["process_group"] = dist.new_group(pg_options=options)
    whole = nn.parallel.DistributedDataParallel(
        model, device_ids=[bench.rank] if bench.on_gpu else None, gradient_as_bucket_view=True, **more
    )
    if name == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        whole.register_comm_hook(None, bf16_compress_hook)

    def step() -> None:
        whole(batch).float().square().mean().backward()

    return step


def _or_graph(bench: Bench, variant: str, build: Callable[[], Step]) -> Step:
    """A step or, as variant `graph`, a CUDA graph of it."""
    if variant != "graph":
        return build()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step = build()
        for _ in range(12):  # DDP: at least 11 before a capture
            step()
    torch.cuda.current_stream().wait_stream(aside)
    bench.sync()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph.replay


def ddp_small(bench: Bench, variant: str) -> Step:
    """DDP, small buckets: 24 layers of 1,024 in float32, an allreduce a layer."""
    bench.dtype = torch.float32
    width = bench.of(1024, 128)
    model = bench.layers(bench.of(24, 6), width)
    return _data_parallel(bench, model, bench.rand(bench.of(4096, 64), width), variant, width * width * 4 / 2**20)


def ddp_large(bench: Bench, variant: str) -> Step:
    """DDP, buckets of 25 MB: 16 layers of 4,096 in bfloat16, 537 MB of gradients."""
    width = bench.of(4096, 256)
    model = bench.layers(bench.of(16, 4), width)
    return _data_parallel(bench, model, bench.rand(bench.of(2048, 64), width), variant, 25.0 if bench.on_gpu else 0.25)


def ddp_float(bench: Bench, variant: str) -> Step:
    """DDP that has too little to compute: 8 layers of 4,096 in float32, 537 MB of gradients, few rows."""
    bench.dtype = torch.float32
    width = bench.of(4096, 256)
    model = bench.layers(bench.of(8, 4), width)
    return _data_parallel(bench, model, bench.rand(bench.of(256, 16), width), variant, 25.0 if bench.on_gpu else 0.25)


def host_bound(bench: Bench, variant: str) -> Step:
    """DDP of many small kernels: 200 layers of 128 with biases and activations, where the host decides."""
    width = 128
    torch.manual_seed(7)
    parts: list[nn.Module] = []
    for _ in range(bench.of(200, 20)):
        parts += [nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()]
    model = nn.Sequential(*parts).to(bench.device, bench.dtype)
    batch = bench.rand(32, width)
    return _or_graph(bench, variant, lambda: _data_parallel(bench, model, batch, "", 1.0))


def encoder(bench: Bench, variant: str) -> Step:
    """DDP of a small transformer: 12 encoder layers of 512, 8 heads, 8 sequences of 128."""
    width = bench.of(512, 64)
    torch.manual_seed(7)
    layers = [nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True) for _ in range(bench.of(12, 2))]
    model = nn.Sequential(*layers).to(bench.device, bench.dtype)
    batch = bench.rand(8, 128, width)
    return _or_graph(bench, variant, lambda: _data_parallel(bench, model, batch, "", 25.0))


def conv(bench: Bench, variant: str) -> Step:
    """DDP of a small convolutional network: 24 layers of 64 channels with group norms, 8 images of 56 by 56."""
    channels = bench.of(64, 8)
    torch.manual_seed(7)
    parts: list[nn.Module] = []
    for _ in range(bench.of(24, 2)):
        parts += [nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.ReLU()]
    model = nn.Sequential(*parts).to(bench.device, bench.dtype)
    batch = bench.rand(8, channels, 56, 56)
    return _or_graph(bench, variant, lambda: _data_parallel(bench, model, batch, "", 1.0))


def fsdp(bench: Bench, variant: str) -> Step:
    """FSDP2: 8 layers of 4,096, each sharded by itself."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    width = bench.of(4096, 128)
    model, mesh = bench.layers(bench.of(8, 4), width), init_device_mesh(bench.device.type, (bench.ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=variant != "keep")
    fully_shard(model, mesh=mesh)
    batch = bench.rand(bench.of(4096, 64), width)

    def step() -> None:
        model(batch).float().square().mean().backward()

    return step


def tensor(bench: Bench, variant: str) -> Step:
    """Tensor parallel: 4 pairs of layers of 4,096, split by columns and then by rows, 4,096 tokens."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    width, count = bench.of(4096, 256), bench.of(8, 2)
    model = bench.layers(count, width)
    styles = {str(number): (RowwiseParallel() if number % 2 else ColwiseParallel()) for number in range(count)}
    parallelize_module(model, init_device_mesh(bench.device.type, (bench.ranks,)), styles)
    batch = bench.rand(bench.of(4096, 32), width, grad=True)

    def step() -> None:
        model(batch).float().square().mean().backward()

    return _or_graph(bench, variant, lambda: step)


def decode(bench: Bench, variant: str) -> Step:
    """Decoding, tensor parallel: 8 tokens through 32 blocks of 4,096, two allreduces of 64 KiB in each."""
    width, tokens = bench.of(4096, 128), 8
    half = width // bench.ranks
    layers = [(bench.rand(width, half), bench.rand(half, width)) for _ in range(2 * bench.of(32, 4))]
    batch = bench.rand(tokens, width)

    def step() -> None:
        with torch.no_grad():
            now = batch
            for wide, back in layers:
                part = nn.functional.silu(nn.functional.rms_norm(now, (width,)) @ wide) @ back
                dist.all_reduce(part)
                now = now + part * 1e-3

    return _or_graph(bench, variant, lambda: step)


def routed(bench: Bench, variant: str) -> Step:
    """Decoding of experts: 128 tokens of 4,096 dispatched and combined by alltoall in 16 layers, 3 of 4 to rank 0."""
    width, tokens = bench.of(4096, 128), 128
    mine = [tokens * 3 // 4, tokens // 4] if bench.ranks == 2 else [tokens // bench.ranks] * bench.ranks
    theirs = [mine[bench.rank]] * bench.ranks
    expert = bench.layers(2, width)
    batch, got, back = bench.rand(tokens, width), bench.rand(sum(theirs), width), bench.rand(tokens, width)

    def step() -> None:
        with torch.no_grad():
            for _ in range(bench.of(16, 2)):
                dist.all_to_all_single(got, batch, theirs, mine)
                dist.all_to_all_single(back, expert(got), mine, theirs)

    return _or_graph(bench, variant, lambda: step)


def pipeline(bench: Bench, variant: str) -> Step:
    """A pipeline: a stage of 4 layers of 4,096 a rank, 4 microbatches of 2,048 tokens, GPipe."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    width, rows, micro = bench.of(4096, 128), bench.of(2048, 16), 4
    sample = bench.rand(rows, width)
    stage = PipelineStage(bench.layers(4, width), bench.rank, bench.ranks, bench.device,
                          input_args=(sample,), output_args=(sample,))  # fmt: skip
    schedule = ScheduleGPipe(stage, micro, loss_fn=lambda output, target: (output - target).float().square().mean())
    first, last = bench.rank == 0, bench.rank == bench.ranks - 1
    batch, target = bench.rand(rows * micro, width, grad=True), bench.rand(rows * micro, width)

    def step() -> None:
        schedule.step(*((batch,) if first else ()), **({"target": target} if last else {}))

    return step


def moe(bench: Bench, variant: str) -> Step:
    """Experts: 4,096 tokens of 4,096 dispatched and combined by alltoall with skewed routing, two layers."""
    width, tokens = bench.of(4096, 128), bench.of(4096, 64)
    expert = bench.layers(2, width)
    to = [[tokens * 5 // 8, tokens * 3 // 8] if one == 0 else [tokens // 2, tokens // 2] for one in range(bench.ranks)]
    mine, theirs = to[bench.rank], [row[bench.rank] for row in to]
    batch, got, back = bench.rand(tokens, width), bench.rand(sum(theirs), width), bench.rand(tokens, width)

    def step() -> None:
        with torch.no_grad():
            for _ in range(2):
                dist.all_to_all_single(got, batch, theirs, mine)
                dist.all_to_all_single(back, expert(got), mine, theirs)

    return _or_graph(bench, variant, lambda: step)


def at_once(bench: Bench, variant: str) -> Step:
    """As `loop`, each allreduce waited for at once, or `async` as there."""
    return loop(bench, "" if variant == "async" else "now")


def loop(bench: Bench, variant: str) -> Step:
    """A loop of ours: four allreduces of 64 MiB, each beside a product of matrices, or `now` waited for at once."""
    held = [bench.rand(bench.of(1 << 25, 1 << 16)) for _ in range(4)]
    side = bench.of(8192, 256)
    left, right, out = bench.rand(side, side), bench.rand(side, side), bench.rand(side, side)

    def step() -> None:
        works = []
        for one in held:
            work = dist.all_reduce(one, op=dist.ReduceOp.MAX, async_op=True)  # sums would become infinite
            if variant == "now":
                work.wait()
            works.append(work)
            torch.mm(left, right, out=out)
        for work in works:
            work.wait()

    return step


PROGRAMS: dict[str, Callable[[Bench, str], Step]] = {
    one.__name__: one
    for one in (
        ddp_small,
        ddp_large,
        ddp_float,
        host_bound,
        fsdp,
        tensor,
        pipeline,
        moe,
        loop,
        decode,
        routed,
        at_once,
        encoder,
        conv,
    )
}
