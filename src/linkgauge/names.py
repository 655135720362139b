"""The words that rooms beside each other share: systems name transports and patterns that plans measure.

`system/` and `plan/` import neither each other nor more than this. This module imports nothing.
"""

from __future__ import annotations

TRANSPORTS = ("staging", "copy_engine", "kernel", "ccl", "mpi")
PATTERNS = (
    "pingpong", "unidirectional", "bidirectional", "pairs_pingpong", "pairs_unidirectional", "pairs_bidirectional",
    "ring_shift", "one_to_all", "all_to_one", "alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast",
    "reduce", "gather", "scatter", "host_to_device", "device_to_host", "host_device_both", "host_to_device_beside",
    "device_to_host_beside", "local_copy", "stream_copy", "cpu_stream", "chase", "flag_pingpong", "floor",
)  # fmt: skip
"""In the order of the table in `plan/patterns.py`, which says what each is; a test keeps the two together."""
