"""Slurm's topology/block: blocks of nodes, and the larger ones that follow each other's blocks make.

Read with its documentation (topology.conf(5)) and sources (SchedMD/slurm, src/plugins/topology/block): a block is of
nodes that are alike near each other, such as an NVLink domain, and names no switch. `BlockSizes=4,16` has as many
blocks in a row as a larger one is of make one, from the first on; the last one may be of fewer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from linkgauge.errors import UsageError

_MOST_LEVELS = 5
_WORDS = re.compile(r"(\w+)=(\S+)")

Above = dict[str, tuple[str, ...]]


def is_blocks(text: str) -> bool:
    """Whether a text is a topology.conf of blocks, or `scontrol show topology` of one."""
    return re.search(r"^\s*(?:BlockName|AggregatedBlock)=", text, re.MULTILINE | re.IGNORECASE) is not None


def above_by_blocks(text: str, source: str, expanded: Callable[[str, str], list[str]], most: int) -> Above:
    """Of each node its block and the larger blocks that hold it, the nearest first.

    `expanded` makes names of a list with ranges, and is given `source`; `most`: nodes. UsageError where a block is
    damaged or there twice, or a size is no size of whole blocks.
    """
    blocks: dict[str, list[str]] = {}
    stated: dict[str, list[str]] = {}
    sizes: list[int] = []
    for line in text.splitlines():
        words = {key.lower(): value for key, value in _WORDS.findall(line.partition("#")[0])}
        if "blocksizes" in words:
            sizes = _sizes(words["blocksizes"], source)
        name = words.get("blockname") or words.get("aggregatedblock")
        if name is None:
            continue
        into = blocks if "blockname" in words else stated
        if name in into:
            raise UsageError(f"{source}: block {name[:40]} is there twice: expected each once")
        into[name] = expanded(words.get("nodes", ""), source)  # a block may be empty, and counts all the same
        if sum(map(len, blocks.values())) > most or sum(map(len, stated.values())) > _MOST_LEVELS * most:
            raise UsageError(f"{source}: more than {most} nodes: expected a network's")
    if not any(blocks.values()):
        raise UsageError(f"{source}: no block has nodes: expected BlockName=NAME Nodes=NODES")
    above: defaultdict[str, list[str]] = defaultdict(list)
    for name, nodes in blocks.items():
        for node in nodes:
            if above[node]:
                raise UsageError(f"{source}: {node[:60]} is in blocks {above[node][0][:40]} and {name[:40]}")
            above[node].append(f"block {name}")
    larger = sorted(stated.items(), key=lambda one: len(one[1])) if stated else _larger(blocks, sizes, source)
    for name, nodes in larger:
        for node in nodes:
            above[node].append(f"blocks {name}")
    return {node: tuple(names) for node, names in above.items()}


def _sizes(text: str, source: str) -> list[int]:
    words = text.split(",")
    if len(words) > _MOST_LEVELS or not all(re.fullmatch(r"[1-9]\d{0,5}", word, re.ASCII) for word in words):
        raise UsageError(f"{source}: BlockSizes={text[:40]}: expected at most {_MOST_LEVELS} numbers of nodes")
    return [int(word) for word in words]


def _larger(blocks: dict[str, list[str]], sizes: list[int], source: str) -> list[tuple[str, list[str]]]:
    """The larger blocks by name with their nodes, level by level."""
    names = list(blocks)
    found = []
    for size in sizes[1:]:
        count = size // sizes[0]
        if size % sizes[0] or count & (count - 1) or count < 2:
            raise UsageError(f"{source}: BlockSizes={sizes[0]},...,{size}: expected powers of two of the first")
        for at in range(0, len(names), count):
            some = names[at : at + count]
            found.append((f"{some[0]} to {some[-1]} of {count}", [node for name in some for node in blocks[name]]))
    return found
