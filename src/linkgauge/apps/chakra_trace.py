"""Chakra's execution traces (mlcommons/chakra, schema/protobuf/et_def.proto): what a rank communicates.

Protobuf with a length before each message, or the JSON of Chakra's feeder, which lists nodes as `workload_graph`. The
ranks of a group stand in a node `process_group:init`, or in a file beside the trace, as chakra.py and astra-sim have
it. `comm_size` is one rank's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from linkgauge.apps.chakra import GROUPS_FILE
from linkgauge.apps.trace_files import TraceFile
from linkgauge.apps.trace_steps import RankSteps
from linkgauge.apps.trace_values import list_of_numbers, sub_group
from linkgauge.errors import UsageError
from linkgauge.files import read_file
from linkgauge.model.shape import as_it_is, parsed

_TYPES = ("allreduce", "reduce", "allgather", "gather", "scatter", "broadcast", "alltoall", "reducescatter",
          "reducescatterblock", "barrier")  # fmt: skip
_LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 2, 3, 4, 5, 6, 7
_MOST_GROUPS_BYTES = 64 << 20
_JSON_KEYS = {"id": "Id", "name": "Name", "type": "NodeType", "us": "runtime", "deps": "data_deps"}
Node = Mapping[str, Any]
Groups = dict[str, list[int]]


def of_protobuf(content: bytes, file: TraceFile, rank: RankSteps) -> None:
    """Fill a rank from its trace."""
    _fill(list(_messages(content, file.name)), _groups_beside(file), rank)


def of_json(nodes: Sequence[Node], file: TraceFile, rank: RankSteps) -> None:
    """Fill a rank from the nodes of a `workload_graph`."""
    usual: Node = {"id": 0, "name": "", "type": 0, "us": 0}
    found = []
    for number, one in enumerate(nodes):
        rank.at(number)
        node = {**one, **{key: one.get(word, usual.get(key)) for key, word in _JSON_KEYS.items()}}
        node |= {key: rank.whole(node, key) for key in ("id", "type", "us")}
        found.append({**node, "deps": list_of_numbers(node["deps"])})
    _fill(found, _groups_beside(file), rank)


def _fill(nodes: Sequence[Node], groups: Groups, rank: RankSteps) -> None:
    """Nodes by their numbers: kernels are time, and what needs a collective or a message waits for it."""
    groups |= {name: ranks for node in nodes for name, ranks in _declared(node)}
    of_all = rank.of_all or max((len(ranks) for ranks in groups.values()), default=0)
    under_way: dict[int, bool] = {}  # and whether it is a message that is sent
    for node in sorted(nodes, key=lambda one: int(one["id"])):
        rank.at(node["id"])
        host = bool(node.get("is_cpu_op"))
        needed = under_way.keys() & set(node["deps"])
        if not all(under_way[one] for one in needed):
            rank.wait()
            under_way = {}
        elif needed:
            under_way = {} if rank.sent() else {one: under_way[one] for one in under_way.keys() - needed}
        if node["type"] == _COMPUTE and not host:
            rank.compute(node["us"] * 1000)
        elif node["type"] in (_LOAD, _STORE):
            rank.lost["loads and stores of memory"] += 1
        elif node["type"] in (_SEND, _RECEIVE):
            verb, key = ("send", "comm_dst") if node["type"] == _SEND else ("receive", "comm_src")
            if key not in node:
                raise rank.fail(f"a message without {key}: expected PyTorch's own traces, which name ranks")
            rank.message(verb, rank.whole(node, key), rank.whole(node, "comm_size"))
            under_way[node["id"]] = verb == "send"
        elif node["type"] == _COLLECTIVE and not host and "comm_type" in node:
            _collective(node, groups, of_all, rank)
            under_way[node["id"]] = False


def _collective(node: Node, groups: Groups, of_all: int, rank: RankSteps) -> None:
    kind = rank.whole(node, "comm_type")
    if kind >= len(_TYPES):
        raise rank.fail(f"comm_type {kind}: expected 0 to {len(_TYPES) - 1}")
    size, name = rank.whole(node, "comm_size", 0), str(node.get("pg_name", ""))
    if name not in groups and name not in ("", "0", "default_pg"):
        rank.lost[f"groups of ranks that are named and not listed, as in {GROUPS_FILE}: taken as all ranks"] += 1
    group = sub_group(rank, groups.get(name, []), of_all)
    rank.collective(_TYPES[kind], {"in": size, "out": size}, group, rank.whole(node, "comm_root", 0), True)


# --- groups of ranks -------------------------------------------------------------------------------------------------


def _groups_beside(file: TraceFile) -> Groups:
    """The groups of the file beside a trace; none where there is no such file."""
    path = file.path.parent / GROUPS_FILE
    if file.content is not None or not path.is_file():
        return {}
    found = parsed(read_file(path, _MOST_GROUPS_BYTES, "ranks of groups"), as_it_is, str(path))
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected an object of lists of ranks by the group's name")
    return {str(name): list_of_numbers(ranks) for name, ranks in found.items()}


def _declared(node: Node) -> Iterable[tuple[str, list[int]]]:
    """The groups that a node of PyTorch's process groups lists: a text of a list that has a text of JSON."""
    if "process_group:init" not in str(node["name"]):
        return
    text = str(node.get("values", ""))
    begin, end = text.find("[{"), text.rfind("}]")
    try:
        listed = json.loads(text[begin : end + 2].replace('\\"', '"')) if 0 <= begin < end else []
    except (ValueError, RecursionError):
        return
    for one in listed:
        ranks = list_of_numbers(one.get("ranks")) if isinstance(one, dict) else []
        if ranks:
            yield str(one.get("pg_name", "")), ranks


# --- protobuf (protobuf.dev, Encoding) -------------------------------------------------------------------------------
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


def _messages(content: bytes, name: str) -> Iterator[dict[str, Any]]:
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
        raise UsageError(f"{name}: no trace of Chakra (damaged at byte {at}): expected its protobuf, or JSON") from None


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
        elif number == 8:  # inputs, of which the first field has the values
            values = dict(_fields(value)).get(1, b"")
            node["values"] = values.decode(errors="replace") if isinstance(values, bytes) else ""
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
