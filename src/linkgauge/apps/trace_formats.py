"""Traces' files, each read into what its rank does.

- PARAM's communication traces: a JSON list of `comms`, `in_msg_size`, ... (facebookresearch/param, commsTraceParser).
- PyTorch's execution traces: JSON, nodes named `record_param_comms`; Chakra's host traces are these.
- PyTorch's profiles: Kineto's JSON, `traceEvents`, kernels whose arguments have a `Collective name`.
- Chakra's execution traces: protobuf (mlcommons/chakra, et_def.proto), a length before each message.
"""

from __future__ import annotations

import ast
import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.apps.trace_steps import NOTHING, Group, RankSteps, follow
from linkgauge.errors import UsageError
from linkgauge.files import read_file
from linkgauge.model.shape import DEEPEST, as_it_is, parsed

MOST_BYTES = 1 << 30  # of a trace, unpacked
# Real traces unpack to some 30 times their size. A small file that unpacks to more would take gigabytes to parse.
_FREE_BYTES, _MOST_RATIO = 16 << 20, 100
_ZSTD, _USTAR = b"\x28\xb5\x2f\xfd", range(257, 262)  # how zstd begins, and where tar says what it is
_MOST_VALUES = 1 << 25  # of JSON: each takes 60 B and more of memory, two of the file
_LATEST_US = 1e17  # profiles count from 1970 or later
_ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "half": 2, "float16": 2, "bfloat16": 2, "short": 2,
    "int": 4, "int32": 4, "float": 4, "float32": 4, "long": 8, "int64": 8, "double": 8, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_CHAKRA_TYPES = ("allreduce", "reduce", "allgather", "gather", "scatter", "broadcast", "alltoall", "reducescatter",
                 "reducescatterblock", "barrier")  # fmt: skip
_COMPUTE_NODE, _SEND_NODE, _RECEIVE_NODE, _COLLECTIVE_NODE = 4, 5, 6, 7
Entry = Mapping[str, Any]
NOT_IN = {
    "PARAM": "what ranks computed between: PARAM's traces have none",
    "PyTorch's execution":
        "what was computed between, and when DDP's and FSDP's collectives were waited for: no times in it",
    "PyTorch's profiler":
        "what multiprocessors computing and communicating take from each other: compute is time of the host",
    "OTF2": "whether collectives were in place (taken as not), and which of several messages was waited for first",
    "Nsight Systems'":
        "copies, and what computing and communicating take from each other: compute is time of the host",
    "Chakra": "order of streams beside each other: steps follow the nodes' numbers and what they need",
}  # fmt: skip
"""What no trace of a kind has, or what a step file cannot say of it."""


def read(path: Path, rank: RankSteps) -> str:
    """Fill a rank from its file; what kind of trace it is, one of NOT_IN."""
    content = read_file(path, MOST_BYTES, "a trace: PARAM's or PyTorch's JSON, or Chakra's protobuf")
    if content[:2] == b"\x1f\x8b":
        content = _unpacked(content, path)
    elif content[:4] == _ZSTD:
        content = _unpacked_zstd(content, path)
    if content[_USTAR.start : _USTAR.stop] == b"ustar":
        raise UsageError(f"{path}: a tar archive: unpack it, and give its folder")
    if content.lstrip()[:1] not in (b"[", b"{"):
        _of_chakra(_messages(content, path), rank)
        return "Chakra"
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise UsageError(f"{path}: more than {_MOST_VALUES} values: expected a trace of fewer iterations")
    document = parsed(content, as_it_is, str(path))
    if isinstance(document, list) and all(isinstance(one, dict) for one in document):
        _of_param(document, rank)
        return "PARAM"
    nodes = document.get("nodes") if isinstance(document, dict) else None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if isinstance(nodes, list) and all(isinstance(one, dict) for one in nodes):
        _of_execution(nodes, rank)
        return "PyTorch's execution"
    if isinstance(events, list) and all(isinstance(one, dict) for one in events):
        _of_profile(events, rank)
        return "PyTorch's profiler"
    raise UsageError(f"{path}: no trace: expected a list with 'comms', or an object with 'nodes' or 'traceEvents'")


def _unpacked(content: bytes, path: Path) -> bytes:
    most = min(MOST_BYTES, max(_FREE_BYTES, _MOST_RATIO * len(content)))
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        found = unpacker.decompress(content, most + 1)
    except zlib.error:
        raise UsageError(f"{path}: a damaged gzip file: expected a trace") from None
    if len(found) > most:
        raise UsageError(
            f"{path}: more than {most >> 20} MiB unpacked, of {len(content) >> 10} KiB packed: expected a trace; "
            "gunzip one that is so repetitive"
        )
    return found


def _unpacked_zstd(content: bytes, path: Path) -> bytes:
    import pyarrow as pa

    most = min(MOST_BYTES, max(_FREE_BYTES, _MOST_RATIO * len(content)))
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            found = bytes(stream.read(most + 1))
    except (OSError, pa.ArrowException):
        raise UsageError(f"{path}: a damaged zstd file: expected a trace") from None
    if len(found) > most:
        raise UsageError(f"{path}: more than {most >> 20} MiB unpacked, of {len(content) >> 10} KiB packed: expected a "
                         "trace; unzstd one that is so repetitive")  # fmt: skip
    return found


def _sizes(rank: RankSteps, entry: Entry, sent: str, received: str, usual: str = "") -> dict[str, int]:
    """Bytes that a rank puts in and gets out, by the numbers of elements under these keys; `usual`: without a dtype."""
    element = _element(rank, entry.get("dtype", usual))
    return {"in": rank.whole(entry, sent, 0) * element, "out": rank.whole(entry, received, 0) * element}


def _element(rank: RankSteps, name: object) -> int:
    plain = re.sub(r"^.*[:.(]|\)$", "", str(name).strip().lower().replace("c10::", "")).replace("long int", "long")
    if plain not in _ELEMENT_BYTES:
        raise rank.fail(f"dtype {str(name)[:40]!r}: expected one of {', '.join(_ELEMENT_BYTES)}")
    return _ELEMENT_BYTES[plain]


def _list_of_numbers(value: object) -> list[int]:
    """A list, or the text of one; empty where it is neither."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value) if len(value) < 1 << 16 else []
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return []
    return [one for one in value if type(one) is int] if isinstance(value, list) else []


def _group_of(ranks: Sequence[int]) -> Group | None:
    """First rank, stride and number of equally spaced ranks; None where they are otherwise."""
    if len(ranks) < 2:
        return (ranks[0], 1, 1) if ranks else None
    steps = {after - before for before, after in itertools.pairwise(ranks)}
    return (ranks[0], ranks[1] - ranks[0], len(ranks)) if len(steps) == 1 and min(steps) > 0 else None


def sub_group(rank: RankSteps, ranks: Sequence[int], of_all: int) -> Group | None:
    """The group where it is not all ranks."""
    if not ranks or (of_all and len(ranks) >= of_all):
        return None
    group = _group_of(sorted(ranks))
    if group is None or group[0] < 0:
        raise rank.fail(f"a group of ranks {', '.join(map(str, ranks[:8]))}: expected ranks at equal distances")
    return group


# --- PARAM -----------------------------------------------------------------------------------------------------------


def _of_param(entries: Sequence[Entry], rank: RankSteps) -> None:
    waits = any(str(one.get("comms", "")).lower() == "wait" for one in entries)
    most = max((one["world_size"] for one in entries if isinstance(one.get("world_size"), int)), default=0)
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
        sizes = _sizes(rank, entry, "in_msg_size", "out_msg_size")
        if plain in ("send", "isend", "recv", "irecv"):
            verb, key = ("send", "dst_rank") if "send" in plain else ("receive", "src_rank")
            rank.message(verb, rank.whole(entry, key), sizes["in"] or sizes["out"])
            if plain == "send":
                rank.sent()
            elif plain == "recv":
                rank.wait()
            continue
        ranks = _list_of_numbers(entry.get("global_ranks"))
        root = rank.whole(entry, "root", 0) if entry.get("root") is not None else 0
        rank.collective(name, sizes, sub_group(rank, ranks, most), root, waits, _list_of_numbers(entry.get("in_split")))


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def _of_execution(nodes: Sequence[Entry], rank: RankSteps) -> None:
    """Host traces have no times: collectives in the order of their begin, those without a wait until the end."""
    by_id = {_number(one.get("id")): one for one in nodes}
    told = [one for one in nodes if one.get("name") == "record_param_comms"]
    attributes = [_attributes(one) for one in told]
    # Before schema 1.0.3 a node has no such attributes: what there is stands in its inputs.
    all_ranks = max((size for one in attributes if isinstance(size := one.get("pg_size"), int)), default=0)
    for node, found in sorted(zip(told, attributes, strict=True), key=lambda pair: _number(pair[0].get("id"))):
        rank.at(_number(node.get("id")))
        if "collective_name" not in found:
            _of_inputs(node, rank)
            continue
        name = str(found["collective_name"])
        sizes = _sizes(rank, found, "in_msg_nelems", "out_msg_nelems", "float")
        parent = by_id.get(_number(node.get("ctrl_deps")), {})
        plain = name.lower().removesuffix("anysource")
        if plain in ("send", "recv"):
            verb, key = ("send", "dst") if plain == "send" else ("receive", "src")
            rank.message(verb, _argument(rank, parent, key), sizes["in"] or sizes["out"])
            continue
        root = _argument(rank, parent, "root_rank", 0)
        size = rank.whole(found, "pg_size", 0)
        first, stride = rank.whole(found, "global_rank_start", 0), rank.whole(found, "global_rank_stride", 1)
        group = (first, stride or 1, size) if 0 < size < all_ranks and name != "wait" else None
        shares = _list_of_numbers(found.get("in_split_size"))
        rank.collective(name, sizes, group, root, name not in ("wait", "barrier"), shares)


def _attributes(node: Entry) -> dict[str, Any]:
    listed = node.get("attrs")
    return (
        {str(one.get("name")): one.get("value") for one in listed if isinstance(one, dict)}
        if isinstance(listed, list)
        else {}
    )


def _number(value: object) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


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


def _of_profile(events: Sequence[Entry], rank: RankSteps) -> None:
    """Kernels by their begin: other kernels are time, and one that begins after a collective's end waits for it."""
    timed = ((number, _us(one.get("ts")), _us(one.get("dur"))) for number, one in enumerate(events)
             if one.get("cat") == "kernel")  # fmt: skip
    kernels = [(ts, us, number) for number, ts, us in timed if ts is not None and us is not None]
    all_ranks = max((_number(_arguments(events[number]).get("Group size")) for *_, number in kernels), default=0)
    follow(rank, ((ts * 1e3, (ts + us) * 1e3, number, _profiled(_arguments(events[number]), rank, all_ranks))
                  for ts, us, number in kernels))  # fmt: skip


def _profiled(found: Entry, rank: RankSteps, all_ranks: int) -> Callable[[], None] | None:
    """What a kernel with these arguments communicates; None where it computes."""
    if "Collective name" not in found:
        return None

    def act() -> None:
        sizes = _sizes(rank, found, "In msg nelems", "Out msg nelems", "float")
        ranks = _list_of_numbers(found.get("Process Group Ranks"))
        shares = _list_of_numbers(found.get("In split size"))
        name = str(found["Collective name"])
        if name.lower() in ("send", "recv"):
            verb, key = ("send", "Dst Rank") if name.lower() == "send" else ("receive", "Src Rank")
            rank.message(verb, rank.whole(found, key), sizes["in"] or sizes["out"])
        else:
            rank.collective(name, sizes, sub_group(rank, ranks, all_ranks), rank.whole(found, "Root", 0), True,
                            shares)  # fmt: skip

    return act


def _us(value: object) -> float | None:
    """A time of a profile in us; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_US:
        return None
    return float(value)


def _arguments(event: Entry) -> Entry:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


# --- Chakra ----------------------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protobuf message: number, and a number or bytes (protobuf.dev, Encoding)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}[kind]
        if at + length > len(data):
            raise ValueError
        yield key >> 3, data[at : at + length]
        at += length


def _messages(content: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """Nodes of a Chakra trace: id, name, type, deps, duration in us, and attributes that are numbers or texts."""
    at = 0
    try:
        first = True
        while at < len(content):
            length, at = _varint(content, at)
            if at + length > len(content):
                raise ValueError
            if not first:  # the first is the trace's metadata
                yield _node(content[at : at + length])
            first = False
            at += length
    except (ValueError, IndexError, KeyError):
        raise UsageError(f"{path}: no trace of Chakra (damaged at byte {at}): expected its protobuf, or JSON") from None


def _node(data: bytes) -> dict[str, Any]:
    node: dict[str, Any] = {"id": 0, "name": "", "type": 0, "deps": [], "us": 0}
    for number, value in _fields(data):
        if isinstance(value, int):
            key = {1: "id", 3: "type", 7: "us"}.get(number)
            if key:
                node[key] = value
            elif number in (4, 5):
                node["deps"].append(value)
        elif number == 2:
            node["name"] = value.decode(errors="replace")
        elif number in (4, 5):
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                node["deps"].append(one)
        elif number == 10:
            fields = dict(_fields(value))
            name = fields.get(1, b"")
            held = next((v for k, v in fields.items() if k > 2), 0)
            if isinstance(name, bytes):
                # An attribute that is called as a field is not that field.
                node.setdefault(
                    name.decode(errors="replace"), held if isinstance(held, int) else held.decode(errors="replace")
                )
    return node


def _of_chakra(nodes: Iterator[dict[str, Any]], rank: RankSteps) -> None:
    """Nodes by their numbers: kernels are time, and what needs a collective or a message waits for it."""
    under_way: dict[int, bool] = {}  # and whether it is a message that is sent
    for node in sorted(nodes, key=lambda one: one["id"]):
        rank.at(node["id"])
        host = bool(node.get("is_cpu_op"))
        needed = under_way.keys() & set(node["deps"])
        if not all(under_way[one] for one in needed):
            rank.wait()
            under_way = {}
        elif needed:
            under_way = {} if rank.sent() else {one: under_way[one] for one in under_way.keys() - needed}
        if node["type"] == _COMPUTE_NODE and not host:
            rank.compute(node["us"] * 1000)
        elif node["type"] in (_SEND_NODE, _RECEIVE_NODE):
            verb, key = ("send", "comm_dst") if node["type"] == _SEND_NODE else ("receive", "comm_src")
            rank.message(verb, rank.whole(node, key), rank.whole(node, "comm_size"))
            under_way[node["id"]] = verb == "send"
        elif node["type"] == _COLLECTIVE_NODE and not host and "comm_type" in node:
            kind = rank.whole(node, "comm_type")
            if kind >= len(_CHAKRA_TYPES):
                raise rank.fail(f"comm_type {kind}: expected 0 to {len(_CHAKRA_TYPES) - 1}")
            size = rank.whole(node, "comm_size", 0)
            rank.collective(
                _CHAKRA_TYPES[kind], {"in": size, "out": size}, None, rank.whole(node, "comm_root", 0), True
            )
            under_way[node["id"]] = False
