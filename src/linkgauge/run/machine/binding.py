"""Which cores a rank runs on: near its device by default, the node's cores shared out evenly among its ranks."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.files import kernel_text
from linkgauge.system.sysfs import cpu_list

_NODES = Path("/sys/devices/system/node")


def parse_core_list(text: str) -> list[int]:
    """Cores of a list as Linux writes them: `0-3,8`. ValueError where it is none."""
    cores: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(text)
        last = int(match[2] or match[1])
        if not 0 <= last - int(match[1]) <= 1 << 16:
            raise ValueError(text)
        cores += range(int(match[1]), last + 1)
    return cores


def node_cores(node: int, allowed: Sequence[int]) -> list[int]:
    """The allowed cores of a NUMA node; all allowed ones where the node is not known or has none of them."""
    of_node = cpu_list(kernel_text(_NODES / f"node{node}" / "cpulist"))
    return [core for core in of_node if core in set(allowed)] or list(allowed)


def share_out(cores: Sequence[int], places: int) -> list[list[int]]:
    """`cores` in `places` contiguous parts of nearly equal size; by turns one core each where there are too few."""
    if len(cores) < places:
        return [[cores[place % len(cores)]] for place in range(places)]
    bounds = [place * len(cores) // places for place in range(places + 1)]
    return [list(cores[low:high]) for low, high in itertools.pairwise(bounds)]


def cores_by_rank(
    bind: str,
    devices: Sequence[int],
    infos: Sequence[Mapping[str, Any]],
    allowed: Sequence[int] | None = None,
    near: Mapping[int, Sequence[int]] | None = None,
) -> list[list[int]] | None:
    """The cores of each rank; None: unbound. `devices[i]` is the device of rank i, an index of `infos`.

    `allowed` and `near`, the cores of its NUMA nodes, are those of another node where they are given, else this one's.
    `bind`: nearest, none, or lists by rank (`0-3:4-7`). UsageError where a list names a core that is not allowed or
    there are not as many lists as ranks.
    """
    allowed = sorted(os.sched_getaffinity(0)) if allowed is None else allowed
    if bind == "none":
        return None
    if bind != "nearest":
        return _listed(bind, len(devices), allowed)
    nodes = [int(infos[device].get("numa_node", -1)) if device < len(infos) else -1 for device in devices]
    cores: list[list[int]] = [[] for _ in devices]
    for node in sorted(set(nodes)):
        of_node = node_cores(node, allowed) if near is None else near.get(node, allowed)
        ranks = [rank for rank, of in enumerate(nodes) if of == node]
        for rank, part in zip(ranks, share_out(of_node, len(ranks)), strict=True):
            cores[rank] = part
    return cores


def _listed(bind: str, ranks: int, allowed: Sequence[int]) -> list[list[int]]:
    lists = []
    for part in bind.split(":"):
        try:
            lists.append(parse_core_list(part))
        except ValueError:
            raise UsageError(f"--bind '{bind}': expected nearest, none, or cores by rank such as 0-3:4-7") from None
    if len(lists) != ranks:
        raise UsageError(f"--bind '{bind}' has {len(lists)} lists of cores: expected {ranks}, one for each rank")
    for core in (core for cores in lists for core in cores):
        if core not in allowed:
            raise UsageError(f"--bind '{bind}': core {core} is not available: expected among {_shown(allowed)}")
    return lists


def with_own_core(lists: Sequence[Sequence[int]]) -> int:
    """Of so many threads, each bound to a list of cores, how many can run at once (a maximum matching)."""
    holder: dict[int, int] = {}

    def seat(thread: int, tried: set[int]) -> bool:
        for core in lists[thread]:
            if core not in tried:
                tried.add(core)
                if core not in holder or seat(holder[core], tried):
                    holder[core] = thread
                    return True
        return False

    return sum(seat(thread, set()) for thread in range(len(lists)))


def _shown(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores[:64])) + (",..." if len(cores) > 64 else "")
