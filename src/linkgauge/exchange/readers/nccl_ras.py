"""NCCL RAS's state of a job (ncclras -f json): which ranks are missing, failed, or behind the others.

Read with NCCL's sources (NVIDIA/nccl, src/ras/client_support.cc). It counts collectives and has no times, so it makes
no case: what it says of ranks are notes, beside the records of other tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedLog
from linkgauge.exchange.readers.base import JsonForm
from linkgauge.model.shape import each, flag, mapping, maybe, table, text, whole

_TOOL = "NCCL RAS"
_FLAGS = ("finalize_called", "destroy_flag", "abort_flag", "unresponsive", "considered_dead")
_RANK = table(
    {"rank": whole(0, MOST_RANKS), "host": text, "pid": whole(-1),
     "status": maybe(table({"async_error": whole(), **dict.fromkeys(_FLAGS, flag)})),
     "collective_counts": maybe(mapping(whole()))},
    needed=("rank",),
)  # fmt: skip
_COMMUNICATOR = table(
    {
        "hash": text,
        "size": whole(0, MOST_RANKS),
        "ranks": each(_RANK),
        "missing_ranks": maybe(each(_RANK)),
        "missing_ranks_count": whole(0, MOST_RANKS),
    },
    needed=("size", "ranks"),
)
_STATE = table({"communicators": each(_COMMUNICATOR)}, needed=("communicators",))
_MOST_NAMED = 8
"""Ranks of a communicator that are named; the others are counted."""
_NO_TIMES = "NCCL RAS counts collectives and has no times: no case is made of it"


def read_json(data: Mapping[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take what is said of ranks as notes of `log`; that no case is made of it is a problem."""
    notes = [note for at, one in enumerate(data["communicators"]) for note in _of_communicator(at, one)]
    for note in notes:
        log.note(1, note)
    state = "; ".join(notes[:2]) if notes else "no rank is missing, failed or behind"
    log.problem(1, f"{state}. {_NO_TIMES}", max(1, len(data["communicators"])))


def _of_communicator(at: int, one: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with its ranks, a text a kind."""
    name = f"communicator {one.get('hash', str(at))[:20]} of {one['size']} ranks"
    absent: dict[str, list[Mapping[str, Any]]] = {"dead": [], "unresponsive": [], "not in the communicator": []}
    for rank in one.get("missing_ranks") or []:
        status = rank.get("status") or {}
        kind = "dead" if status.get("considered_dead") else "unresponsive" if status.get("unresponsive") else ""
        absent[kind or "not in the communicator"].append(rank)
    yield from (f"{name}: {words}: {_named(some)}" for words, some in absent.items() if some)
    if (unnamed := one.get("missing_ranks_count", 0) - sum(map(len, absent.values()))) > 0:
        yield f"{name}: missing, which ones is not said: {unnamed}"
    for key, words in (("async_error", "report an error of NCCL"), ("abort_flag", "abort")):
        if some := [rank for rank in one["ranks"] if (rank.get("status") or {}).get(key)]:
            yield f"{name}: {words}: {_named(some)}"
    counts: dict[str, list[int]] = {}
    for rank in one["ranks"]:
        for operation, count in (rank.get("collective_counts") or {}).items():
            counts.setdefault(operation, []).append(count)
    for operation, found in counts.items():
        most = max(found)
        behind = [rank for rank in one["ranks"] if (rank.get("collective_counts") or {}).get(operation, most) < most]
        if behind:
            fewest = min(rank["collective_counts"][operation] for rank in behind)
            yield f"{name}: {most - fewest} {operation[:20]} of {most} behind: {_named(behind)}"


def _named(ranks: Sequence[Mapping[str, Any]]) -> str:
    """Ranks with their hosts and processes, the first few of them."""
    words = [f"rank {one['rank']} (process {one.get('pid', -1)} on {one.get('host', 'unknown')[:60]})"
             for one in ranks[:_MOST_NAMED]]  # fmt: skip
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return ", ".join(words) + more


def _is_one(data: Any) -> bool:
    return isinstance(data, dict) and {"nccl_version", "communicators"} <= data.keys()


JsonForm(_TOOL, _is_one, _STATE, read_json, "JSON: ranks that are missing or behind, as notes").register()
