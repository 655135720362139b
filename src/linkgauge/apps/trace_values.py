"""What traces' files write of sizes, datatypes, times and groups of ranks, as numbers."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.apps.trace_steps import Group, RankSteps

Entry = Mapping[str, Any]
_ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "half": 2, "float16": 2, "bfloat16": 2, "short": 2,
    "int": 4, "int32": 4, "float": 4, "float32": 4, "long": 8, "int64": 8, "double": 8, "float64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


def sizes_of(rank: RankSteps, entry: Entry, sent: str, received: str, usual: str = "") -> dict[str, int]:
    """Bytes that a rank puts in and gets out, by the numbers of elements under these keys; `usual`: without a dtype."""
    element = _element(rank, entry.get("dtype", usual))
    return {"in": rank.whole(entry, sent, 0) * element, "out": rank.whole(entry, received, 0) * element}


def _element(rank: RankSteps, name: object) -> int:
    plain = re.sub(r"^.*[:.(]|\)$", "", str(name).strip().lower().replace("c10::", "")).replace("long int", "long")
    if plain not in _ELEMENT_BYTES:
        raise rank.fail(f"dtype {str(name)[:40]!r}: expected one of {', '.join(_ELEMENT_BYTES)}")
    return _ELEMENT_BYTES[plain]


def number_of(value: object) -> int:
    """A whole number; 0 where it is none."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def list_of_numbers(value: object) -> list[int]:
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
    """The group where it is not all ranks; that its ranks take part is noted."""
    rank.most_ranks = max([rank.most_ranks, *(one + 1 for one in ranks)])
    if not ranks or (of_all and len(ranks) >= of_all):
        return None
    group = _group_of(sorted(ranks))
    if group is None or group[0] < 0:
        raise rank.fail(f"a group of ranks {', '.join(map(str, ranks[:8]))}: expected ranks at equal distances")
    return group
