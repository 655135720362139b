"""PyTorch's flight recorder: what one rank's process groups did last, as JSON or as the pickle that a watchdog writes.

Read with its sources (pytorch/pytorch, torch/csrc/distributed/c10d/FlightRecorder.hpp and its tutorial): sizes are
shapes of tensors, `duration_ms` is there where TORCH_NCCL_ENABLE_TIMING was set, and the rank stands in the file's
name alone. A pickle is read for plain values only; anything else in it is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.exchange.imported import MOST_RANKS, Call, Hints, ImportedLog
from linkgauge.exchange.readers.base import JsonForm
from linkgauge.model.elements import ELEMENT_BYTES
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import LEAST, as_it_is, maybe, number, table, text, whole

_TOOL = "PyTorch's flight recorder"
# By c10d's name: our pattern, and whether the size is that of what goes in or of what comes out; of gathers and
# scatters the larger end is the whole.
_PATTERNS = {
    "all_reduce": ("allreduce", "input"), "allreduce_coalesced": ("allreduce", "input"),
    "_all_gather_base": ("allgather", "output"), "all_gather_into_tensor": ("allgather", "output"),
    "all_gather": ("allgather", "output"), "_reduce_scatter_base": ("reduce_scatter", "input"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"), "reduce_scatter": ("reduce_scatter", "input"),
    "all_to_all": ("alltoall", "input"), "all_to_allv": ("alltoallv", "input"), "broadcast": ("broadcast", "input"),
    "reduce": ("reduce", "input"),
}  # fmt: skip
_TYPES = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "char": "int8",
          "byte": "uint8", "int": "int32", "long": "int64", "float8_e4m3fn": "float8_e4m3",
          "float8_e5m2": "float8_e5m2"}  # fmt: skip
_MOST_ENTRIES, _MOST_TENSORS, _MOST_DIMENSIONS = 1 << 15, 64, 16
_MOST_PICKLE = 64 << 20
_PLAIN = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_TUPLE,
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1,
    pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET,
    pickle.LONG_BINGET, pickle.MEMOIZE, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.TUPLE,
    pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3,
)  # fmt: skip


class _Plain(pickle._Unpickler):
    """Takes numbers, texts, lists, tuples and tables apart, and knows no other instruction: nothing of it is called.

    The memo of the unpickler in C is as long as a file says; this one is as long as what was put there.
    """

    dispatch = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _PLAIN}  # noqa: RUF012


def is_pickle(content: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5 that is a table."""
    return content[:1] == b"\x80" and 2 <= (content[1:2] or b"\0")[0] <= 5


def unpickled(content: bytes, where: str) -> Any:
    """The plain values of a pickle. UsageError where it has anything else, or is damaged."""
    if len(content) > _MOST_PICKLE:
        raise UsageError(f"{where}: more than {_MOST_PICKLE >> 20} MiB: expected a dump of {_TOOL}")
    try:
        return _Plain(io.BytesIO(content)).load()
    except (ValueError, KeyError, IndexError, EOFError, TypeError, AttributeError, OverflowError, RecursionError,
            UnicodeError, MemoryError, pickle.UnpicklingError):  # fmt: skip
        raise UsageError(f"{where}: a pickle that is damaged or not plain: expected a dump of {_TOOL}") from None


def _entries(value: Any, at: str) -> list[Any]:
    if not isinstance(value, list | tuple) or len(value) > _MOST_ENTRIES:
        raise UsageError(f"{at}: expected a list of at most {_MOST_ENTRIES} entries")
    return [_ENTRY(one, f"{at}[{place}]") for place, one in enumerate(value)]


_ENTRY = table(
    {"profiling_name": text, "state": text, "duration_ms": maybe(number(0, 1e12)), "collective_seq_id": as_it_is,
     "pg_id": as_it_is, "process_group": as_it_is, "input_sizes": as_it_is, "input_dtypes": as_it_is,
     "output_sizes": as_it_is, "output_dtypes": as_it_is, "is_p2p": as_it_is, "record_id": maybe(whole())},
    needed=("profiling_name",),
)  # fmt: skip
_DUMP = table({"entries": _entries, "pg_config": as_it_is, "nccl_version": as_it_is}, needed=("entries",))


def read_dump(data: dict[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take one rank's entries into `log`."""
    rank = _rank_of(log.file)
    groups = _groups(data.get("pg_config"))
    timeless, pending, messages = 0, [], 0
    for at, entry in enumerate(data["entries"], start=1):
        name = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
        if entry.get("is_p2p") is True or name.split(" ")[0] in ("send", "recv"):
            messages += 1
        elif entry.get("state") not in (None, "completed"):
            pending.append((at, name, entry))
        elif not entry.get("duration_ms"):
            timeless += 1
        elif isinstance(call := _call(at, name, entry, groups, rank), str):
            log.problem(at, f"entry {at}, {name[:40]!r}, left out: {call}")
        else:
            log.calls.append(call)
    if timeless:
        why = "no duration: TORCH_NCCL_ENABLE_TIMING=1 has it recorded"
        log.problem(1, f"{timeless} {'entry' if timeless == 1 else 'entries'} left out: {why}", timeless)
    if messages:
        log.problem(1, f"{messages} messages between two ranks left out: only collectives are read", messages)
    if pending:
        at, name, entry = pending[0]
        words = f"{name[:40]!r}, number {str(entry.get('collective_seq_id'))[:20]}, is {entry['state'][:20]}"
        log.problem(at, f"{len(pending)} not completed, of which the first, {words}", len(pending))


def _rank_of(file: str) -> int | None:
    numbers = re.findall(r"\d{1,7}", re.sub(r"\.\w+$", "", file))
    return int(numbers[-1]) if numbers else None


def _groups(config: Any) -> dict[str, list[int]]:
    """The ranks of each process group, which stand there as a text."""
    found = {}
    for name, told in config.items() if isinstance(config, Mapping) and len(config) < 1 << 16 else ():
        ranks = told.get("ranks") if isinstance(told, Mapping) else None
        if isinstance(ranks, str) and re.fullmatch(r"\[\d{1,7}(?:, ?\d{1,7})*\]", ranks, re.ASCII):
            ranks = [int(one) for one in re.findall(r"\d+", ranks)]
        if isinstance(ranks, list | tuple) and 0 < len(ranks) <= MOST_RANKS and all(type(one) is int for one in ranks):
            found[str(name)[:100]] = list(ranks)
    return found


def _call(
    at: int, name: str, entry: Mapping[str, Any], groups: Mapping[str, Sequence[int]], rank: int | None
) -> Call | str:
    """One entry as a call, or why it is none."""
    if name not in _PATTERNS:
        return "no pattern measures it"
    pattern, end = _PATTERNS[name]
    group = entry.get("process_group")
    key = str(group[0] if isinstance(group, list | tuple) and group else entry.get("pg_id"))[:100]
    members = groups.get(key)
    if members is None:
        return f"pg_config has no ranks of group {key[:20]!r}"
    if rank is None or rank not in members:
        return "the file's name does not end in a rank of its group, as nccl_trace_rank_0 does"
    sequence = str(entry.get("collective_seq_id"))
    if not re.fullmatch(r"\d{1,15}", sequence):
        return "no collective_seq_id"
    kinds = entry.get(f"{end}_dtypes")
    kind = str(kinds[0] if isinstance(kinds, list | tuple) and kinds else kinds).lower()
    datatype, count = _TYPES.get(kind, ""), _elements(entry.get(f"{end}_sizes"))
    if not datatype or (isinstance(kinds, list | tuple) and len({str(one) for one in kinds[:_MOST_TENSORS]}) > 1):
        return f"no one datatype for {kind[:20]!r}"
    if not count:
        return "its sizes are no shapes of tensors"
    size, n = count * ELEMENT_BYTES[datatype], len(members)
    if pattern == "alltoallv" or ((PATTERNS[pattern].per_peer or PATTERNS[pattern].blocks) and size % n):
        return "its shares of the ranks are not even"
    size = size // n if PATTERNS[pattern].per_peer else size
    ns = max(LEAST, entry["duration_ms"] * 1e6)
    return Call(at, _TOOL, key, int(sequence), members.index(rank), n, pattern, size, ns, datatype=datatype)


def _elements(sizes: Any) -> int:
    """How many elements the tensors of these shapes have; 0 where it is no list of shapes."""
    if not isinstance(sizes, list | tuple) or not 0 < len(sizes) <= _MOST_TENSORS:
        return 0
    shapes = [sizes] if all(type(one) is int for one in sizes) else sizes
    if not all(isinstance(one, list | tuple) and len(one) <= _MOST_DIMENSIONS
               and all(type(size) is int and 0 <= size < 1 << 40 for size in one) for one in shapes):  # fmt: skip
        return 0
    count = sum(math.prod(one) for one in shapes)
    return count if count < 1 << 50 else 0


def _is_dump(data: Any) -> bool:
    return isinstance(data, dict) and "entries" in data and ("pg_config" in data or "pg_status" in data)


JsonForm(_TOOL, _is_dump, _DUMP, read_dump).register()
