"""SuperBench's results-summary.jsonl: a node a line, each metric by its name `benchmark/metric:rank`.

Read with its documentation (microsoft/superbenchmark, docs/user-tutorial/benchmarks/micro-benchmarks.md): times in us,
rates in GB/s. How many GPUs a collective was of it does not say: it follows from bus over algorithm bandwidth.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from linkgauge.exchange.copies import Copies, Place
from linkgauge.exchange.imported import Hints, ImportedLog
from linkgauge.exchange.nccl_table import PATTERN_OF, Figures, NcclTable
from linkgauge.exchange.rank_count import ranks_by_factor
from linkgauge.exchange.readers.base import JsonForm
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import anything, each, mapping

_TOOL = "SuperBench"
_NCCL = re.compile(r"(?P<bench>(?:nccl|rccl)-bw(?::[^/]*)?)/(?P<op>[a-z]+)_(?P<size>\d{1,15})"
                   r"_(?P<what>time|algbw|busbw)(?::(?P<rank>\d{1,5}))?$")  # fmt: skip
_COPY = re.compile(r"gpu-copy-bw(?::[^/]*)?/(?P<source>cpu|gpu\d{1,3})_to_(?P<target>cpu|gpu\d{1,3})_by_(?P<by>sm|dma)"
                   r"(?:_under_numa(?P<numa>\d{1,3}))?_(?P<uni>uni)?_?bw(?::\d{1,5})?$")  # fmt: skip
_PROGRAMS = {program.removesuffix("_perf").replace("_", ""): program for program in PATTERN_OF}
_SHARE = 2e-3


def read_json(data: list[dict[str, Any]], log: ImportedLog, hints: Hints) -> None:
    """Take each node's figures into `log`."""
    for line, node in enumerate(data, start=1):
        host = str(node.get("node", ""))[:100]
        tables: defaultdict[tuple[str, str, str], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        others, copies = 0, []
        for name, value in node.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if match := _NCCL.match(name):
                found = tables[match["bench"], match["op"], match["rank"] or ""][int(match["size"])]
                found[match["what"]] = float(value)
            elif match := _COPY.match(name):
                copies.append((match, float(value)))
            else:
                others += "bw" in name.lower() and "return_code" not in name
        for (bench, op, _), sizes in tables.items():
            _collective(line, bench, op, sizes, log, hints)
        _copies(line, copies, log, hints)
        if others:
            log.problem(line, f"{host or 'a node'}: {others} other rates left out: no reader for them", others)


def _collective(
    line: int, bench: str, op: str, sizes: Mapping[int, Mapping[str, float]], log: ImportedLog, hints: Hints
) -> None:
    program = _PROGRAMS.get(op, op)
    pattern = PATTERN_OF.get(program)
    rows = [(size, told) for size, told in sorted(sizes.items()) if told.get("time", 0) > 0 and size > 0]
    if absent := len(sizes) - len(rows):
        log.problem(line, f"{bench}/{op}: {absent} sizes left out: no time or no size", absent)
    one = NcclTable(line, tool=_TOOL, program=program, rows=len(rows), iterations=1, ranks=hints.ranks or 0)
    if pattern is not None and not one.ranks:
        one.ranks = _ranks_of(pattern, [told for _, told in rows])
        one.doubt = "" if one.ranks else "its bandwidths do not say how many ranks took part, so --ranks must"
    for size, told in rows:
        row = {"size": str(size), "type": "float", "redop": "sum", "root": "-1"}
        if pattern is not None and not PATTERNS[pattern].reduces:
            row["redop"] = "none"
        figures = {"time": repr(told["time"]), "wrong": "N/A"}
        figures |= {"busbw": repr(told["busbw"])} if told.get("busbw", 0) > 0 else {}
        one.found.append(Figures(line, row, figures, in_place=False))
    one.finish(log)


def _ranks_of(pattern: str, rows: list[Mapping[str, float]]) -> int:
    """The number of ranks that bus over algorithm bandwidth tells by; 0 where it is not just one."""
    factors = [told["busbw"] / told["algbw"] for told in rows if told.get("algbw", 0) > 1 and told.get("busbw", 0) > 0]
    # Small rates are printed with few digits: the largest tells best.
    return ranks_by_factor(pattern, factors[-1], _SHARE) if factors else 0


def _copies(line: int, found: list[tuple[re.Match[str], float]], log: ImportedLog, hints: Hints) -> None:
    if not found:
        return
    size = hints.size_bytes
    if size is None:
        why = "of which size is not in it, so --size must say it"
        log.problem(line, f"gpu-copy-bw: {len(found)} rates left out: {why}", len(found))
        return
    into = log.table(_TOOL)
    for match, rate in found:
        source, target = (
            Place(True, int(match["numa"] or -1)) if match[end] == "cpu" else Place(False, int(match[end][3:]))
            for end in ("source", "target")
        )
        evidence = {"metric": match[0][:100], "estimator": "SuperBench's gpu-copy-bw"}
        copies = Copies(into, "kernel" if match["by"] == "sm" else "copy_engine", size, evidence)
        if not copies.add(line, source, target, rate):
            log.problem(line, f"{match[0][:80]}: no pattern measures it")


def _is_one(data: Any) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    return isinstance(first, dict) and any(_NCCL.match(name) or re.match(r"[\w-]+(?::[^/]*)?/\S+:\d+$", name)
                                           for name in first)  # fmt: skip


JsonForm(_TOOL, _is_one, each(mapping(anything), 1 << 16), read_json).register()
