"""NCCL Inspector's records: a JSON object a line, each a collective of one rank.

Read with NCCL's sources (NVIDIA/nccl, plugins/profiler/inspector): `coll_algobw_gbs` is by the size of nccl-tests. A
record's own size is that, or of an allgather and a reduce_scatter one rank's share of it: what it is follows from both.
"""

from __future__ import annotations

from typing import Any

from linkgauge.exchange.imported import MOST_RANKS, Call, Hints, ImportedLog
from linkgauge.exchange.readers.base import JsonForm
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.shape import MOST_WHOLE, each, maybe, number, table, text, whole

_PATTERNS = {"AllReduce": "allreduce", "AllGather": "allgather", "ReduceScatter": "reduce_scatter",
             "Broadcast": "broadcast", "Reduce": "reduce"}  # fmt: skip
_PERF = table(
    {
        "coll": text,
        "coll_sn": whole(),
        "coll_msg_size_bytes": whole(0, MOST_WHOLE),
        "coll_exec_time_us": number(0, 1e15),
        "coll_timing_source": text,
        "coll_algobw_gbs": number(0, 1e9),
    },
    needed=("coll", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us", "coll_algobw_gbs"),
)
_HEADER = table({"id": text, "rank": whole(0, MOST_RANKS), "n_ranks": whole(1, MOST_RANKS)},
                needed=("id", "rank", "n_ranks"))  # fmt: skip
_RECORD = table({"header": _HEADER, "metadata": maybe(table({"hostname": text, "pid": whole()})),
                 "coll_perf": maybe(_PERF)}, needed=("header",))  # fmt: skip
_ROUNDING = 0.02  # whole microseconds of the time, beside what the time itself says
_BY_HOST = "collective_cpu"


def read_json(data: Any, log: ImportedLog, hints: Hints) -> None:
    """Take the records of one rank, or of several, into `log`."""
    others = by_host = 0
    for line, record in enumerate(data, start=1):
        perf, header = record.get("coll_perf"), record["header"]
        if perf is None:
            others += 1
            continue
        by_host += perf.get("coll_timing_source") == _BY_HOST
        name, us = perf["coll"], perf["coll_exec_time_us"]
        if name not in _PATTERNS or us <= 0:
            log.problem(line, f"record of {name[:40]!r} in {time_text(us * 1e3)} left out: no pattern measures it")
            continue
        total, told = perf["coll_algobw_gbs"] * us * 1e3, perf["coll_msg_size_bytes"]
        slack = _ROUNDING + 0.6 / us
        fitting = [
            size for size in dict.fromkeys((told, told * header["n_ranks"])) if abs(total - size) <= slack * size
        ]
        if len(fitting) != 1 or fitting[0] <= 0:
            log.problem(line, f"record of {name} left out: {told} bytes in {time_text(us * 1e3)} are not "
                              f"{perf['coll_algobw_gbs']:g} GB/s")  # fmt: skip
            continue
        metadata = record.get("metadata") or {}
        log.calls.append(
            Call(line, "NCCL Inspector", header["id"], perf["coll_sn"], header["rank"], header["n_ranks"],
                 _PATTERNS[name], fitting[0], us * 1e3, metadata.get("hostname", ""), metadata.get("pid", 0))
        )  # fmt: skip
    if others:
        log.problem(1, f"{others} records of sends, receives or proxies left out: only collectives are read", others)
    if by_host:
        log.note(1, f"{by_host} times are the host's, from the call to its end ({_BY_HOST}), not the kernel's")


def _is_one(data: Any) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    return (
        isinstance(first, dict) and "header" in first and {"coll_perf", "p2p_perf", "proxy_op"} & first.keys() != set()
    )


JsonForm("NCCL Inspector", _is_one, each(_RECORD), read_json).register()
