"""An application as execution traces of Chakra (mlcommons/chakra, schema/protobuf/et_def.proto), a file a rank.

A step becomes a node that needs those which its rank, or its queue, waits for before it; attributes have the types that
Chakra's feeder reads (src/feeder/et_feeder_node.cpp). Loops are written out. Of a collective `comm_size` is one rank's
bytes: what it sends, of a reduce_scatter and a scatter what it keeps.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from linkgauge.apps.program import Program
from linkgauge.apps.rows import (
    AFTER,
    COLLECTIVE,
    COMPUTE,
    COPY,
    RECEIVE,
    SEND,
    SYNC,
    WAIT,
    Collective,
    RankProgram,
    places,
)
from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS

MOST_NODES = 2_000_000  # of all ranks
GROUPS_FILE = "comm_groups.json"
_VERSION = "1.0.0"
_MOST_NEEDS = 16
_LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 2, 3, 4, 5, 6, 7
_TYPES = {
    "allreduce": 0, "reduce": 1, "allgather": 2, "gather": 3, "scatter": 4, "broadcast": 5, "alltoall": 6,
    "alltoallv": 6, "reduce_scatter": 7, "barrier": 9,
}  # fmt: skip
_COPIES = ((_LOAD, "host_to_device"), (_STORE, "device_to_host"), (_COMPUTE, "within_device"))
# Fields of AttributeProto by the type of the value.
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29
Attribute = tuple[str, int, int | str]


@dataclasses.dataclass
class _Rank:
    """What a rank's next node waits for: `host` ids of the host's own thread, `under_way` of what WAIT waits for, and
    `queues` of the last in each queue.
    """

    host: list[int] = dataclasses.field(default_factory=list)
    under_way: list[int] = dataclasses.field(default_factory=list)
    queues: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    number: int = 0


def write_chakra(program: Program, folder: Path, name: str) -> Counter[str]:
    """Write `NAME.RANK.et` for each rank, and the ranks of groups as JSON where there are any; how often what was lost.

    Raises:
        UsageError: a step has no node there, more nodes than MOST_NODES, or the folder cannot be written.
    """
    for one in program.collectives:
        if one.pattern not in _TYPES:
            known = ", ".join(sorted(_TYPES))
            raise UsageError(f"{name}: Chakra has no collective for {one.pattern}: expected one of {known}")
    executed = sum(rank.executed for rank in program.ranks)
    if executed > MOST_NODES:
        raise UsageError(f"{name}: {executed:,} steps of all ranks: expected at most {MOST_NODES:,} nodes")
    lost: Counter[str] = Counter()
    every = tuple(range(len(program.ranks)))
    groups = list(dict.fromkeys(one.ranks for one in program.collectives if one.ranks != every))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, rank in enumerate(program.ranks):
            messages = [_text(1, _VERSION), *_nodes(program, rank, groups, lost)]
            (folder / f"{name}.{number}.et").write_bytes(b"".join(_varint(len(one)) + one for one in messages))
        if groups:
            named = {_group_name(number): list(ranks) for number, ranks in enumerate(groups)}
            (folder / GROUPS_FILE).write_text(json.dumps(named, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    return lost


def _group_name(number: int) -> str:
    return f"group{number}"


def _nodes(
    program: Program, rank: RankProgram, groups: Sequence[tuple[int, ...]], lost: Counter[str]
) -> Iterator[bytes]:
    at = _Rank()
    rows = rank.rows.tolist()
    for row in (rows[place] for place in places(*rank.rows[:, (0, 3)].T.tolist())):
        kind, which, queue, amount, _ = row
        if kind in (WAIT, SYNC):
            if kind == WAIT:
                at.host, at.under_way = [*at.host, *at.under_way], []
            else:
                at.host += [one for number, tail in at.queues.items() if queue in (-1, number) for one in tail]
            if len(at.host) > _MOST_NEEDS:  # else each of many posted next would name them all
                yield _node(at, _COMPUTE, "join", [("num_ops", _INT64, 0)])
        elif kind == AFTER:
            at.queues[queue] = [*at.queues.get(queue, []), *at.queues.get(which, [])]
        elif kind == COLLECTIVE:
            one = program.collectives[which]
            yield _node(at, _COLLECTIVE, one.words, _of_collective(one, groups, lost), posted=one.begun)
        elif kind in (SEND, RECEIVE):
            verb, node, key = ("send", _SEND, "comm_dst") if kind == SEND else ("receive", _RECEIVE, "comm_src")
            attributes = [(key, _INT32, which), ("comm_size", _INT64, amount), ("comm_tag", _INT32, 0)]
            yield _node(at, node, f"{verb} {which}", attributes, posted=True)
        elif kind == COPY:
            node, way = _COPIES[which]
            yield _node(at, node, way, [("tensor_size", _UINT64, amount), ("num_ops", _INT64, 0)], queue=queue)
        elif kind == COMPUTE and queue < 0:
            lost["parts of a microsecond, in which Chakra counts: rounded up"] += amount % 1000 > 0
            yield _node(at, _COMPUTE, "compute", [("num_ops", _INT64, 0)], us=-(-amount // 1000))
        else:
            lost["how long an emulated kernel takes: its bytes are there, as tensor_size"] += 1
            yield _node(at, _COMPUTE, "work", [("tensor_size", _UINT64, amount), ("num_ops", _INT64, 0)], queue=queue)


def _of_collective(one: Collective, groups: Sequence[tuple[int, ...]], lost: Counter[str]) -> list[Attribute]:
    size, count, info = one.size, len(one.ranks), PATTERNS[one.pattern]
    if info.per_peer:
        size *= count
    elif info.blocks:
        size //= count
    lost["uneven shares of an alltoallv: each pair has the mean"] += bool(one.distribution)
    attributes: list[Attribute] = [("comm_type", _INT64, _TYPES[one.pattern]), ("comm_size", _INT64, size)]
    if info.rooted:
        attributes.append(("comm_root", _INT32, one.ranks[one.root]))
    if one.ranks in groups:
        attributes.append(("pg_name", _STRING, _group_name(groups.index(one.ranks))))
    return attributes


def _node(
    at: _Rank, kind: int, name: str, attributes: Sequence[Attribute], *, us: int = 0, posted: bool = False,
    queue: int = -1,
) -> bytes:  # fmt: skip
    """A node after what it waits for. What is posted, or in a queue, the host does not wait for."""
    needs = [*at.host, *(at.queues.get(queue, []) if queue >= 0 else [])]
    number = at.number
    at.number += 1
    if posted:
        at.under_way.append(number)
    elif queue >= 0:
        at.queues[queue] = [number]
    else:
        at.host = [number]
    parts = [_number(1, number), _text(2, name), _number(3, kind)]
    if needs:
        parts.append(_bytes(5, b"".join(_varint(one) for one in dict.fromkeys(needs))))
    parts.append(_number(7, us))
    parts += [_attribute(one) for one in [*attributes, ("is_cpu_op", _BOOL, 0)]]
    return b"".join(parts)


# --- protobuf (protobuf.dev, Encoding) --------------------------------------------------------------------------------


def _attribute(attribute: Attribute) -> bytes:
    name, field, value = attribute
    held = _text(field, value) if isinstance(value, str) else _varint(field << 3) + _varint(value)
    return _bytes(10, _text(1, name) + held)


def _number(field: int, value: int) -> bytes:
    """A field of a whole number; none of 0, which proto3 takes it for."""
    return _varint(field << 3) + _varint(value) if value else b""


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
