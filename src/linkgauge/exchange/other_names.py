"""What nccl-tests and OSU call our patterns and types: their logs are read by it, and tables as theirs are printed."""

from __future__ import annotations

NCCL_PROGRAMS = {
    "allreduce": "all_reduce_perf", "allgather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf", "reduce": "reduce_perf", "alltoall": "alltoall_perf", "ring_shift": "sendrecv_perf",
    "gather": "gather_perf", "scatter": "scatter_perf",
}  # fmt: skip
NCCL_UNREAD_PROGRAMS = ("hypercube_perf", "alltoallv_perf", "all_reduce_bias_perf")
"""Programs of nccl-tests and rccl-tests that measure none of our patterns."""
NCCL_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "float8_e4m3": "f8e4m3", "float8_e5m2": "f8e5m2",
    **{name: name for name in ("bfloat16", "int8", "uint8", "int32", "uint32", "int64", "uint64")},
}  # fmt: skip
"""As newer versions print them."""
NCCL_OLDER_TYPES = {"char": "int8", "int": "int32", "fp8_e4m3": "float8_e4m3", "fp8_e5m2": "float8_e5m2"}
OSU_TESTS = {
    "pingpong": "Latency Test", "unidirectional": "Bandwidth Test", "bidirectional": "Bi-Directional Bandwidth Test",
    "allreduce": "Allreduce Latency Test", "allgather": "Allgather Latency Test",
    "alltoall": "All-to-All Personalized Exchange Latency Test", "broadcast": "Broadcast Latency Test",
    "reduce": "Reduce Latency Test", "reduce_scatter": "Reduce_scatter Latency Test", "gather": "Gather Latency Test",
    "scatter": "Scatter Latency Test",
}  # fmt: skip
OSU_OTHERS = {
    "Multiple Bandwidth / Message Rate Test": ("pairs_unidirectional", ""), "Barrier Latency Test": ("barrier", ""),
    "Multi Latency Test": ("pairs_pingpong", ""), "Multi-threaded Latency Test": ("", ""),
    "All-to-Allv Personalized Exchange Latency Test": ("alltoall", "alltoallv_own"),
    "Allgatherv Latency Test": ("allgather", ""), "Gatherv Latency Test": ("gather", ""),
    "Scatterv Latency Test": ("scatter", ""),
    "Non-blocking All-to-All Latency Test": ("alltoall", "overlapped"),
    "Non-blocking Allreduce Latency Test": ("allreduce", "overlapped"),
    "Non-blocking Allgather Latency Test": ("allgather", "overlapped"),
    "Non-blocking Broadcast Latency Test": ("broadcast", "overlapped"),
    "Non-blocking Reduce Latency Test": ("reduce", "overlapped"),
    "Non-blocking Gather Latency Test": ("gather", "overlapped"),
    "Non-blocking Scatter Latency Test": ("scatter", "overlapped"),
    "Non-blocking Barrier Latency Test": ("barrier", "overlapped"),
}  # fmt: skip
"""Tests that are read alone: of each the pattern and our variant of mpi."""
OSU_ONE_SIDED = {
    "_Put Latency Test": ("unidirectional", "put"),
    "_Get Latency Test": ("unidirectional", "get"),
    "_Put Bandwidth Test": ("unidirectional", "put"),
    "_Get Bandwidth Test": ("unidirectional", "get"),
    "_Put Bi-directional Bandwidth Test": ("bidirectional", "put"),
}
"""Tests named for a call, which moves one message a time, or of bandwidths a window."""
OSU_PER_BLOCK = ("allgather", "gather", "scatter")
"""Patterns of which OSU's size is that of one of n blocks; ours is of all."""
OSU_TYPES = {
    "int8": "MPI_CHAR", "uint8": "MPI_BYTE", "int32": "MPI_INT", "float32": "MPI_FLOAT", "float64": "MPI_DOUBLE",
}  # fmt: skip


def nccl_version(code: int) -> str:
    """Return NCCL's version of its code: 22809 is 2.28.9; before 2.9 the code had a digit less."""
    if code >= 10_000:
        return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
