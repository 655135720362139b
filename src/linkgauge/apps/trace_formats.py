"""Traces' files, each read into what its rank does.

- PARAM's communication traces: a JSON list of `comms`, `in_msg_size`, ... (facebookresearch/param, commsTraceParser).
- PyTorch's execution traces: JSON, nodes named `record_param_comms`; Chakra's host traces are these.
- PyTorch's profiles: Kineto's JSON, `traceEvents` (kineto.py).
- Chakra's execution traces (chakra_trace.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from linkgauge.apps import chakra_trace, kineto
from linkgauge.apps.trace_files import TraceFile
from linkgauge.apps.trace_steps import NOTHING, RankSteps
from linkgauge.apps.trace_values import Entry, list_of_numbers, number_of, sizes_of, sub_group
from linkgauge.errors import UsageError
from linkgauge.model.shape import DEEPEST, as_it_is, parsed

_MOST_VALUES = 1 << 25  # of JSON: each takes 60 B and more of memory, two of the file
NOT_IN = {
    "PARAM": "what ranks computed between: PARAM's traces have none",
    "PyTorch's execution":
        "what was computed between, and when DDP's and FSDP's collectives were waited for: no times in it",
    "PyTorch's profiler":
        "what multiprocessors computing and communicating take from each other: compute is time of the host",
    "OTF2":
        "whether collectives without a root were in place (taken as not), and which of several messages was waited for "
        "first",
    "Nsight Systems'":
        "copies, and what computing and communicating take from each other: compute is time of the host",
    "Chakra": "order of streams beside each other: steps follow the nodes' numbers and what they need",
}  # fmt: skip
"""What no trace of a kind has, or what a step file cannot say of it."""


def read(file: TraceFile, rank: RankSteps) -> str:
    """Fill a rank from its file; what kind of trace it is, one of NOT_IN."""
    content = file.read()
    if content.lstrip()[:1] not in (b"[", b"{"):
        chakra_trace.of_protobuf(content, file, rank)
        return "Chakra"
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise UsageError(f"{file.name}: more than {_MOST_VALUES} values: expected a trace of fewer iterations")
    document = parsed(content, as_it_is, file.name)
    if _are_entries(document):
        _of_param(document, rank)
        return "PARAM"
    held = document if isinstance(document, dict) else {}
    if _are_entries(held.get("nodes")):
        _of_execution(held["nodes"], rank)
        return "PyTorch's execution"
    if _are_entries(held.get("traceEvents")):
        about = held.get("distributedInfo")
        about = about if isinstance(about, dict) else {}
        rank.number = number_of(about.get("rank", -1))
        kineto.of_profile(held["traceEvents"], rank, number_of(about.get("world_size")))
        return "PyTorch's profiler"
    if _are_entries(held.get("workload_graph")):
        chakra_trace.of_json(held["workload_graph"], file, rank)
        return "Chakra"
    raise UsageError(
        f"{file.name}: no trace: expected a list with 'comms', or an object with 'nodes', 'traceEvents' or "
        "'workload_graph'"
    )


def _are_entries(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, dict) for one in found)


# --- PARAM -----------------------------------------------------------------------------------------------------------


def _of_param(entries: Sequence[Entry], rank: RankSteps) -> None:
    waits = any(str(one.get("comms", "")).lower() == "wait" for one in entries)
    most = rank.of_all or max(
        (one["world_size"] for one in entries if isinstance(one.get("world_size"), int)), default=0
    )
    for index, entry in enumerate(entries):
        rank.at(index)
        if "compute" in entry:
            rank.lost["compute kernels, whose time PARAM's traces do not have"] += 1
        if "comms" not in entry:
            continue
        name = str(entry["comms"])
        plain = re.sub(r"[^a-z]", "", name.lower())
        if plain in ("wait", "barrier", *NOTHING):
            rank.collective(name, {"in": 0, "out": 0}, None, 0, False)
            continue
        sizes = sizes_of(rank, entry, "in_msg_size", "out_msg_size")
        if plain in ("send", "isend", "recv", "irecv"):
            verb, key = ("send", "dst_rank") if "send" in plain else ("receive", "src_rank")
            rank.message(verb, rank.whole(entry, key), sizes["in"] or sizes["out"])
            if plain == "send":
                rank.sent()
            elif plain == "recv":
                rank.wait()
            continue
        ranks = list_of_numbers(entry.get("global_ranks"))
        root = rank.whole(entry, "root", 0) if entry.get("root") is not None else 0
        rank.collective(name, sizes, sub_group(rank, ranks, most), root, waits, list_of_numbers(entry.get("in_split")))


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def _of_execution(nodes: Sequence[Entry], rank: RankSteps) -> None:
    """Host traces have no times: collectives in the order of their begin, those without a wait until the end."""
    by_id = {number_of(one.get("id")): one for one in nodes}
    told = [one for one in nodes if one.get("name") == "record_param_comms"]
    attributes = [_attributes(one) for one in told]
    # Before schema 1.0.3 a node has no such attributes: what there is stands in its inputs.
    all_ranks = rank.of_all or max(
        (size for one in attributes if isinstance(size := one.get("pg_size"), int)), default=0
    )
    for node, found in sorted(zip(told, attributes, strict=True), key=lambda pair: number_of(pair[0].get("id"))):
        rank.at(number_of(node.get("id")))
        if "collective_name" not in found:
            _of_inputs(node, rank)
            continue
        name = str(found["collective_name"])
        sizes = sizes_of(rank, found, "in_msg_nelems", "out_msg_nelems", "float")
        parent = by_id.get(number_of(node.get("ctrl_deps")), {})
        plain = name.lower().removesuffix("anysource")
        if plain in ("send", "recv"):
            verb, key = ("send", "dst") if plain == "send" else ("receive", "src")
            rank.message(verb, _argument(rank, parent, key), sizes["in"] or sizes["out"])
            continue
        root = _argument(rank, parent, "root_rank", 0)
        size = rank.whole(found, "pg_size", 0)
        first, stride = rank.whole(found, "global_rank_start", 0), rank.whole(found, "global_rank_stride", 1)
        group = (first, stride or 1, size) if 0 < size < all_ranks and name != "wait" else None
        shares = list_of_numbers(found.get("in_split_size"))
        rank.collective(name, sizes, group, root, name not in ("wait", "barrier"), shares)


def _attributes(node: Entry) -> dict[str, Any]:
    listed = node.get("attrs")
    return (
        {str(one.get("name")): one.get("value") for one in listed if isinstance(one, dict)}
        if isinstance(listed, list)
        else {}
    )


def _of_inputs(node: Entry, rank: RankSteps) -> None:
    """A node of the schemas before 1.0.3: tensors, ..., the collective's name, ... as inputs."""
    values, got = _values(node, "inputs"), _values(node, "outputs")
    name = next((one for one in values if isinstance(one, str)), "")
    if name:
        rank.collective(name, {"in": _tensor_bytes(values), "out": _tensor_bytes(got)}, None, 0, name != "barrier")


def _values(node: Entry, end: str) -> list[Any]:
    """A node's inputs or outputs; of some schemas a list, of others an object that has one."""
    found = node.get(end)
    found = found.get("values") if isinstance(found, dict) else found
    return found if isinstance(found, list) else []


def _tensor_bytes(value: object, deepest: int = DEEPEST) -> int:
    """Bytes of the tensors in nested lists: [id, storage, offset, elements, bytes of one, device]."""
    if not isinstance(value, list) or not deepest:
        return 0
    if len(value) == 6 and isinstance(value[5], str) and all(isinstance(one, int) for one in value[:5]):
        return max(0, int(value[3])) * max(0, int(value[4]))
    return sum(_tensor_bytes(one, deepest - 1) for one in value)


def _argument(rank: RankSteps, node: Entry, name: str, default: int | None = None) -> int:
    """An argument of a c10d operator, by its place in the operator's schema."""
    schema = str(_attributes(node).get("op_schema", ""))
    inside = schema.partition("(")[2].partition(") ->")[0]
    names = [one.strip().split(" ")[-1].split("=")[0] for one in inside.split(",")]
    values = _values(node, "inputs")
    if name in names and names.index(name) < len(values):
        return rank.whole({name: values[names.index(name)]}, name)
    if default is None:
        raise rank.fail(f"a message whose operator states no {name}: expected c10d's send and recv_ around it")
    return default
