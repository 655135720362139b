"""The JSON files of nccl-tests (-J) and of rccl-tests (-Z json), and the CSV of the latter (-Z csv).

Read with rccl-tests' sources (ROCm/rocm-systems, projects/rccl-tests/src/common.cu, Reporter): built with MPI, both say
ranks and GPUs a rank, else GPUs alone. A row of the CSV then has a column `nodes` that its heading lacks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedLog
from linkgauge.exchange.nccl_table import Figures, NcclTable
from linkgauge.exchange.other_names import NCCL_PROGRAMS, nccl_version
from linkgauge.exchange.readers.base import JsonForm, Reader
from linkgauge.model.log_text import Line
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import each, maybe, number, scalar, table, text, whole

_DEVICE = {"rank": whole(0, MOST_RANKS), "device": whole(0, MOST_RANKS), "hostname": text, "pid": whole(),
           "device_hex": maybe(text), "device_info": maybe(text), "group": maybe(whole())}  # fmt: skip
_FIGURES = maybe(table(dict.fromkeys(("time", "bus_bw", "nwrong"), scalar)))
_SINGLE = maybe(table({"times_us": maybe(each(number(0)))}))
_NCCL = table(
    {
        "nccl_version": scalar,
        "args": each(text),
        "config": table(dict.fromkeys(("iterations", "aggregated_iterations", "warmup_iters"), whole(0, 10**9))),
        "devices": each(table(_DEVICE, needed=("rank", "device", "hostname", "pid"))),
        "results": each(
            table(
                dict.fromkeys(("size", "count", "type", "redop", "root"), scalar)
                | dict.fromkeys(("out_of_place", "in_place"), _FIGURES)
                | dict.fromkeys(("out_of_place_per_iter", "in_place_per_iter"), _SINGLE)
            )
        ),
    },
    needed=("nccl_version", "args", "results"),
)


def _nccl(data: dict[str, Any], log: ImportedLog, hints: Hints) -> None:
    config, code = data.get("config", {}), data["nccl_version"]
    one = NcclTable(
        1, program=PurePosixPath(next(iter(data["args"]), "")).name, said_pattern=hints.pattern,
        versions={"nccl": nccl_version(int(code)) if re.fullmatch(r"\d{1,9}", code) else "unknown"},
        iterations=config.get("iterations", 20) * config.get("aggregated_iterations", 1),
        warmup=config.get("warmup_iters", 5),
    )  # fmt: skip
    names = {"ordinal": "device", "pci_address": "device_hex", "name": "device_info"}
    for told in data.get("devices", []):
        identity = {key: told.get(name) for key, name in names.items()} | {"kind": "gpu"}
        rank = {"rank": told["rank"], "host": told["hostname"], "pid": told["pid"], "device": identity}
        one.devices.append(rank | ({"group": told["group"]} if told.get("group") else {}))
    one.ranks = len(one.devices) or hints.ranks or 0
    for at, result in enumerate(data["results"], start=1):
        row = {name: result.get(name, "").strip() for name in ("size", "count", "type", "redop", "root")}
        for in_place, name in ((False, "out_of_place"), (True, "in_place")):
            figures = result.get(name)
            if figures is None:
                continue
            one.rows += 1
            if "time" not in figures:
                log.problem(at, f"result {at}: times of the CPU, not of the transfer: left out")
                continue
            flat = {"time": figures["time"], "busbw": figures.get("bus_bw", ""), "wrong": figures.get("nwrong", "N/A")}
            single = (result.get(f"{name}_per_iter") or {}).get("times_us") or []
            one.found.append(Figures(at, row, flat, in_place, tuple((time * 1e3, 1) for time in single)))
    one.finish(log)


_NAMES = {program.removesuffix("_perf").replace("_", ""): program for program in NCCL_PROGRAMS.values()}
"""Programs by their names in rccl-tests' files, AllReduce, less the capitals."""
_COUNTS = ("nodes", "ranks", "ranksPerNode", "gpusPerRank", "gpus")
_RESULT_NEEDED = ("name", "size", "type", "time")
_RESULT = table(
    dict.fromkeys(("name", "size", "type", "redop", "time", "busBw", "wrong"), scalar)
    | dict.fromkeys(_COUNTS, whole(0, MOST_RANKS))
    | {"inPlace": whole(0, 1)},
    needed=_RESULT_NEEDED,
)


def _rccl(data: list[dict[str, Any]], log: ImportedLog, hints: Hints, numbers: Sequence[int] = ()) -> None:
    def same(told: tuple[int, Mapping[str, Any]]) -> tuple[Any, ...]:
        return (told[1]["name"], *(told[1].get(name) for name in _COUNTS))

    for _, some in itertools.groupby(zip(numbers or range(1, len(data) + 1), data, strict=True), same):
        members = list(some)
        line, first = members[0]
        program = _NAMES.get(first["name"].lower(), first["name"])
        each_rank = first.get("gpusPerRank", 1)
        count = first.get("gpus", first.get("ranks", 0) * each_rank)
        one = NcclTable(line, tool="rccl-tests", program=program, ranks=count or hints.ranks or 0, rows=len(members))
        if (
            each_rank != 1
            and one.pattern
            and PATTERNS[one.pattern].bus_factor(2) == PATTERNS[one.pattern].bus_factor(3)
        ):
            one.doubt = f"{each_rank} GPUs a rank: no bus bandwidth of a {one.pattern} bears out how many take part"
        for at, told in members:
            row = {name: told.get(name, "") for name in ("size", "type", "redop")}
            figures = {"time": told["time"], "busbw": told.get("busBw", ""), "wrong": told.get("wrong", "N/A")}
            one.found.append(Figures(at, row, figures, bool(told.get("inPlace", 0))))
        one.finish(log)


_CSV = re.compile(r"numCycle,\s*(?:name|collective),|name,.*\bbusBw\b")
_OF_HEADING = {"collective": "name", "rankspernode": "ranksPerNode", "gpusperrank": "gpusPerRank",
               "inplace": "inPlace", "algbw": "algBw", "busbw": "busBw", "#wrong": "wrong"}  # fmt: skip
_WHOLE = re.compile(r"\d{1,7}")


def read_csv(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the rows of rccl-tests' CSV (-Z csv), whose columns are called as the members of its JSON."""
    names: list[str] = []
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    for line in lines:
        cells = [cell.strip().strip('"') for cell in line.head.split(",")]
        if _CSV.match(line.head):
            names = [_OF_HEADING.get(name, name) for name in cells]
            if absent := [name for name in _RESULT_NEEDED if name not in names]:
                log.problem(line.number, f"its heading has no column {absent[0]}")
                names = []
        elif not line.head or not names:
            continue
        elif len(cells) == len(names) + 1 and names[1:3] == ["name", "ranks"]:
            names = [*names[:2], "nodes", *names[2:]]
            _csv_row(line, cells, names, rows, numbers, log)
        elif len(cells) != len(names):
            log.problem(line.number, f"{len(cells)} cells where the heading has {len(names)}: {line.head[:60]!r}")
        else:
            _csv_row(line, cells, names, rows, numbers, log)
    _rccl(rows, log, hints, numbers)


def _csv_row(
    line: Line, cells: Sequence[str], names: Sequence[str], rows: list[dict[str, Any]], numbers: list[int],
    log: ImportedLog,
) -> None:  # fmt: skip
    row: dict[str, Any] = dict(zip(names, cells, strict=True))
    whole_ones = [name for name in (*_COUNTS, "inPlace") if name in row]
    if all(_WHOLE.fullmatch(row[name]) for name in whole_ones) and row.get("inPlace", "0") in ("0", "1"):
        rows.append(row | {name: int(row[name]) for name in whole_ones})
        numbers.append(line.number)
    else:
        log.problem(line.number, f"not a row of the table: {line.head[:60]!r}")


def _is_rccl(data: Any) -> bool:
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "busBw" in data[0]


JsonForm(
    "nccl-tests",
    lambda data: isinstance(data, dict) and "nccl_version" in data and "communicators" not in data,
    _NCCL,
    _nccl,
).register()
JsonForm("rccl-tests", _is_rccl, each(_RESULT), _rccl).register()
Reader("rccl-tests", _CSV, read_csv).register()
