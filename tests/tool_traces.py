"""Small traces as other tools write them (src/linkgauge/apps/trace_formats.py says which)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gpu_profiles import Profile
from nsight_exports import Export

PARAM = [
    {"comms": "init"},
    {"comms": "all_reduce", "in_msg_size": 1024, "out_msg_size": 1024, "dtype": "Float", "req": 1, "world_size": 2},
    {"compute": "gemm", "mm_dim": 64},
    {"comms": "all_to_allv", "in_msg_size": 4096, "out_msg_size": 4096, "dtype": "half", "in_split": [1024, 3072],
     "out_split": [1024, 3072], "world_size": 2},
    {"comms": "wait", "req": 1},
    {"comms": "reduce_scatter", "in_msg_size": 64, "out_msg_size": 32, "dtype": "long", "world_size": 2},
    {"comms": "barrier"},
]  # fmt: skip


def execution_nodes(number: int, name: str, elements: int, root: int, **more: object) -> list[dict[str, Any]]:
    attributes = {"collective_name": name, "dtype": "Float", "in_msg_nelems": elements, "out_msg_nelems": elements,
                  "in_split_size": "[]", "global_rank_start": 0, "global_rank_stride": 1, "pg_size": 4,
                  **more}  # fmt: skip
    schema = f"c10d::{name}_(Tensor[] tensors, ProcessGroup pg, int root_rank, int timeout) -> (Tensor[], Work)"
    return [
        {"id": number, "name": f"c10d::{name}_", "ctrl_deps": 1, "inputs": {"values": [[], "<Object>", root, -1]},
         "attrs": [{"name": "op_schema", "type": "string", "value": schema}]},
        {"id": number + 1, "name": "record_param_comms", "ctrl_deps": number,
         "attrs": [{"name": name, "type": "x", "value": value} for name, value in attributes.items()]},
    ]  # fmt: skip


def kernel(begin: float, length: float, **found: object) -> dict[str, Any]:
    return {"cat": "kernel", "name": "k", "ts": begin, "dur": length, "args": found}


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def chakra_node(number: int, kind: int, needs: tuple[int, ...] = (), us: int = 0, **attributes: int) -> bytes:
    data = field(1, number) + field(2, b"node") + field(3, kind) + field(5, b"".join(map(varint, needs))) + field(7, us)
    for name, value in attributes.items():
        data += field(10, field(1, name.encode()) + field(27 if name == "is_cpu_op" else 9, value))
    return varint(len(data)) + data


def chakra(*nodes: bytes) -> bytes:
    metadata = field(1, b"0.0.4")
    return varint(len(metadata)) + metadata + b"".join(nodes)


def seeds() -> list[bytes]:
    """A trace of each kind."""
    reduced = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "BFloat16"}
    of_json: list[object] = [
        PARAM,
        {"schema": "1.1.0-chakra.0.0.4", "nodes": [*execution_nodes(10, "broadcast", 53, 0)] * 3},
        {"traceEvents": [kernel(0, 10), kernel(10, 50, **reduced), kernel(12, 20), kernel(70, 5)]},
    ]
    for events in (True, False):
        made = Profile(events=events)
        made.kernel(0, 5, 10)
        end = made.collective(1, 10, 40, elements=64)
        made.collective(2, 40, 50, "broadcast", stream=21, Rank=1)
        made.wait(3, end)
        made.kernel(4, 40, 60)
        made.hold(5, 61)
        of_json.append(made.document)
    of_json.append({"workload_graph": [{"Id": 1, "Name": "a", "NodeType": 7, "data_deps": [], "comm_type": 0,
                                        "comm_size": 64}]})  # fmt: skip
    nodes = (chakra_node(3, 4, us=7), chakra_node(5, 7, (3,), is_cpu_op=0, comm_type=0, comm_size=4000))
    return [*(json.dumps(one).encode() for one in of_json), chakra(*nodes), _export()]


def _export() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Export(Path(folder) / "x.sqlite")
        for process in (1, 2):
            made.nccl(process, 0, 1, "CommInitRank", 7, 2, process - 1, 0)
            made.nccl(process, 2, 3, "AllReduce", 7, 64, 0)
            made.kernel(process, 4, 5, "ncclDevKernel_AllReduce", 2)
            made.mpi_rank(process, process - 1)
            made.mpi("COLLECTIVES", process, 5, 6, "MPI_Bcast", 5, 1, 64, 64, None)
        return made.closed().read_bytes()
