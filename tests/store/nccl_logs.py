"""nccl-tests' output as its programs print it, figures and all, for any program, ranks, devices and version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

FACTORS: dict[str, Callable[[int], float]] = {  # of its bus bandwidth, by PERFORMANCE.md of nccl-tests
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"), lambda n: (n - 1) / n),
    **dict.fromkeys(("broadcast", "reduce", "sendrecv"), lambda n: 1.0),
}
_REDUCING = ("all_reduce", "reduce", "reduce_scatter", "sendrecv")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def figure(value: float, width: int) -> str:
    """A number as getFloatStr of its util.cu prints it: 12.34, 123.4, 12345, 1.2e+07."""
    digits = len(str(int(value))) if value >= 1 else 0
    places = 2 if digits < width - 2 else 1 if digits < width - 1 else 0
    return f"{value:{width}.{places}f}" if digits < width + 1 else f"{value:{width}.1e}"


def nccl_log(
    program: str = "all_reduce",
    ranks: int = 4,
    *,
    sizes: Sequence[int] = (1 << 20, 1 << 24, 1 << 34),
    named: bool = True,
    blank_op: bool = False,
    older: bool = False,  # before 2.12: the largest error in place of the count, no root where there is none
    columns: Sequence[str] = ("time", "algbw", "busbw", "#wrong"),
    sides: Sequence[str] = ("out-of-place", "in-place"),
    host: Callable[[int], str] = lambda rank: "node1",
    device: Callable[[int], int] = lambda rank: rank,
    pci: Callable[[int], str] = lambda rank: f"{0x10 + rank:#x}",
    version: str = "",
    printed_ranks: int | None = None,  # of which the printed bus bandwidth is
    stamp: str = "",
    mark: str = "#",
    end: bool = True,
    rate: float = 50e9,
    lag: float = 10e-6,
) -> list[str]:
    """The lines of one run: so many bytes a second of algorithm bandwidth, and a lag; in place a tenth slower."""
    lines = [f"{mark} nccl-tests version {version} nccl-headers=22809 nccl-library=22809"] if version else []
    lines += [f"{mark} Collective test starting: {program}_perf"] if named else []
    lines += [f"{mark} nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
              f"validation: 1 graph: 0", mark, f"{mark} Using devices"]  # fmt: skip
    lines += [
        f"{mark}  Rank {rank:2d} Group  0 Pid {100 + rank} on {host(rank)} device {device(rank):2d} [{pci(rank)}] GPU"
        for rank in range(ranks)
    ]
    columns = [*columns[:-1], "error"] if older else columns
    root = not older or program in _ROOTED
    lines += [mark, f"{mark}{' ' * 50}{'     '.join(sides)}"]
    names = ("size", "count", "type", "redop", *(("root",) if root else ()), *list(columns) * len(sides))
    lines += [f"{mark}   {'   '.join(names)}"]
    lines += [f"{mark}        (B)  (elements)             {'(us)  (GB/s)  (GB/s)   ' * len(sides)}"]
    for size in sizes:
        op = "sum" if program in _REDUCING else "" if blank_op else "none"
        row = [f"{size:12d}", f"{size // 4:12d}", "float", op, ("0" if program in _ROOTED else "-1") if root else ""]
        for side in sides:
            seconds = size / rate * (1.1 if side == "in-place" else 1.0) + lag
            algbw = size / seconds / 1e9
            told = {"time": figure(seconds * 1e6, 7), "algbw": figure(algbw, 6), "#wrong": "0", "error": "0e+00",
                    "busbw": figure(algbw * FACTORS[program](printed_ranks or ranks), 6)}  # fmt: skip
            row += [told[name] for name in columns]
        lines.append("  ".join([*row, stamp]))
    return [*lines, f"{mark} Out of bounds values : 0 OK", f"{mark} Avg bus bandwidth    : 1.0", mark] if end else lines
