"""Trees listed one by one, for tests that pack them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence


def arborescences(
    arcs: Sequence[tuple[str, str]], names: Sequence[str], root: str
) -> Iterator[frozenset[tuple[str, str]]]:
    """Every spanning tree directed away from `root`: one arc into each other vertex, no cycle."""
    others = [name for name in names if name != root]
    entering = [[arc for arc in arcs if arc[1] == name] for name in others]
    for chosen in itertools.product(*entering):
        parent = {head: tail for tail, head in chosen}
        if all(_leads_to(parent, name, root) for name in others):
            yield frozenset(chosen)


def _leads_to(parent: Mapping[str, str], name: str, root: str) -> bool:
    seen = set()
    while name != root:
        if name in seen:
            return False
        seen.add(name)
        name = parent[name]
    return True
