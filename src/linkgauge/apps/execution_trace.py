"""PyTorch's execution traces: JSON, a node an operator, with its tensors and no times.

NCCL records a node `record_param_comms` of each call. Other backends, as gloo and MPI, do not: of these there are
c10d's operators, whose schemas name their tensors, peers and shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

from linkgauge.apps.trace_steps import RankSteps
from linkgauge.apps.trace_values import Entry, list_of_numbers, number_of, sizes_of
from linkgauge.model.shape import DEEPEST

_C10D = "c10d::"
_NAMELESS = "which process group an operator is of, where NCCL does not record it: taken as all ranks"


def of_execution(nodes: Sequence[Entry], rank: RankSteps) -> None:
    """Host traces have no times: collectives in the order of their begin, those without a wait until the end."""
    by_id = {number_of(one.get("id")): one for one in nodes}
    told = [one for one in nodes if one.get("name") == "record_param_comms"]
    if not told:
        _of_operators(sorted(nodes, key=lambda one: number_of(one.get("id"))), rank)
        return
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
    if _is_tensor(value):
        return max(0, int(value[3])) * max(0, int(value[4]))
    return sum(_tensor_bytes(one, deepest - 1) for one in value)


def _is_tensor(value: object) -> TypeGuard[list[Any]]:
    return (isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)
            and all(isinstance(one, int) for one in value[:5]))  # fmt: skip


def _arguments(node: Entry) -> dict[str, Any]:
    """An operator's arguments by the names in its schema."""
    inside = str(_attributes(node).get("op_schema", "")).partition("(")[2].partition(") ->")[0]
    names = [one.strip().split(" ")[-1].split("=")[0] for one in inside.split(",")]
    return dict(zip(names, _values(node, "inputs"), strict=False))


def _argument(rank: RankSteps, node: Entry, name: str, default: int | None = None) -> int:
    """An argument of a c10d operator."""
    found = _arguments(node)
    if name in found:
        return rank.whole(found, name)
    if default is None:
        raise rank.fail(f"a message whose operator states no {name}: expected c10d's send and recv_ around it")
    return default


# --- without record_param_comms


def _of_operators(nodes: Sequence[Entry], rank: RankSteps) -> None:
    """c10d's operators, in their order: what is begun is waited for where another operator uses its tensors."""
    inside: set[int] = set()  # operators of c10d, and what they call themselves
    under_way: set[int] = set()  # storages
    for node in nodes:
        number, name = number_of(node.get("id")), str(node.get("name", ""))
        rank.at(number)
        if name.startswith(_C10D):
            # Beside gloo's own threads the observer has an operator's parent wrong: none of c10d calls another of it.
            inside.add(number)
            under_way |= _operator(name.removeprefix(_C10D), node, rank)
        elif number_of(node.get("ctrl_deps")) in inside:
            inside.add(number)
        elif under_way and under_way & set(_storages(_values(node, "inputs"))):
            rank.wait()
            under_way = set()


def _operator(name: str, node: Entry, rank: RankSteps) -> set[int]:
    """Adds what an operator communicates; the storages that it fills behind its caller's back."""
    tensors: dict[str, Any] = {"in": [], "out": []}
    for key, value in _arguments(node).items():
        if "tensor" in key or key in ("input", "output"):
            sides = [side for side in tensors if key.startswith(side)]
            for side in sides or tensors:
                tensors[side].append(value)
    sizes = {side: _tensor_bytes(held) for side, held in tensors.items()}
    plain = name.strip("_").removesuffix("_any_source")
    if plain in ("send", "recv"):
        verb, key = ("send", "dst") if plain == "send" else ("receive", "src")
        rank.message(verb, _argument(rank, node, key), sizes["in"])
        return set(_storages(tensors["out"])) if verb == "receive" else set()
    begun = "barrier" not in plain and _arguments(node).get("async_op", _arguments(node).get("asyncOp")) is not False
    rank.lost[_NAMELESS] += 1
    rank.collective("barrier" if plain == "monitored_barrier" else plain, sizes, None,
                    _argument(rank, node, "root_rank", 0), begun,
                    list_of_numbers(_arguments(node).get("input_split_sizes")))  # fmt: skip
    return set(_storages(tensors["out"])) if begun else set()


def _storages(value: object, deepest: int = DEEPEST) -> Iterator[int]:
    """Those of the tensors in nested lists."""
    if _is_tensor(value):
        yield value[1]
    elif isinstance(value, list) and deepest:
        for one in value:
            yield from _storages(one, deepest - 1)
