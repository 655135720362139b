"""Traces' files, each read into what its rank does.

- PARAM's communication traces: a JSON list of `comms`, `in_msg_size`, ... (facebookresearch/param, commsTraceParser).
- PyTorch's execution traces (execution_trace.py); Chakra's host traces are these.
- PyTorch's profiles: Kineto's JSON, `traceEvents` (kineto.py).
- Chakra's execution traces (chakra_trace.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from linkgauge.apps import chakra_trace, execution_trace, kineto
from linkgauge.apps.trace_files import TraceFile
from linkgauge.apps.trace_steps import NOTHING, RankSteps
from linkgauge.apps.trace_values import Entry, list_of_numbers, number_of, sizes_of, sub_group
from linkgauge.errors import UsageError
from linkgauge.model.shape import as_it_is, parsed

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
    if file.name.endswith(".toml"):
        raise UsageError(
            f"{file.name}: TOML is of step files, not traces: give it to 'linkgauge predict' or 'linkgauge run --app'"
        )
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
        execution_trace.of_execution(held["nodes"], rank)
        return "PyTorch's execution"
    if _are_entries(held.get("traceEvents")):
        about = held.get("distributedInfo")
        about = about if isinstance(about, dict) else {}
        rank.number = number_of(about.get("rank")) if isinstance(about.get("rank"), int) else -1
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
