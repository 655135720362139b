"""nccl-tests and rccl-tests: their printed tables and their JSON files.

Sizes there are totals over all blocks, the own one included; times are means over the iterations and ranks.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedCase, ImportedLog, make_case, restated
from linkgauge.exchange.other_names import NCCL_OLDER_TYPES, NCCL_PROGRAMS, NCCL_TYPES
from linkgauge.model.case import OPS
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import each, maybe, number, scalar, table, text, whole

_PATTERNS = {program: pattern for pattern, program in NCCL_PROGRAMS.items()}
_TYPES = NCCL_OLDER_TYPES | {theirs: ours for ours, theirs in NCCL_TYPES.items()}
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,9})(?:\s+Group\s+\d+)?\s+Pid\s+(\d{1,9})\s+on\s+(\S+)\s+device\s+(\d{1,9})\s+\[([^\]]*)\]\s*(.*)"
)
TEXT = re.compile(r"(?m)^#\s+size\s+count\b.*\balgbw\s+busbw\b")
_COLUMNS = ("time", "algbw", "busbw")


@dataclasses.dataclass
class _Settings:
    """What a log says before its table."""

    pattern: str | None
    ranks: int
    iterations: int = 20
    warmup: int = 5


def read_text(text: str, log: ImportedLog, hints: Hints) -> None:
    """Take the cases of a printed table into `log`."""
    settings = _Settings(hints.pattern, hints.ranks or 0)
    names: list[str] = []
    warned = False
    for at, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            names = _heading(line, log, settings) or names
            continue
        tokens = line.split()
        if not tokens:
            continue
        if not names or not tokens[0].isdecimal():
            log.problem(at, f"not a row of the table: {line.strip()[:80]!r}")
            continue
        if settings.pattern is None or settings.ranks == 0:
            if not warned:
                lacking = "--pattern" if settings.pattern is None else "--ranks"
                log.problem(at, f"the log does not say it, so {lacking} must: this and the rows after it are left out")
            warned = True
            continue
        _row(at, tokens, names, log, settings)


def _pattern_of(program: str, otherwise: str | None) -> str | None:
    """The pattern of a program by its path; a build for MPI may say so at the end of its name."""
    return _PATTERNS.get(PurePosixPath(program).name.removesuffix("_mpi"), otherwise)


def _heading(line: str, log: ImportedLog, settings: _Settings) -> list[str] | None:
    """Take what a comment says; return the names of the columns where it is their line."""
    if match := re.match(r"#\s*Collective test starting:\s*(\S+)", line):
        settings.pattern = _pattern_of(match[1], settings.pattern)
    elif match := re.search(r"nccl-library=(\d{1,9})", line):
        log.versions["nccl"] = version_text(int(match[1]))
        if tests := re.search(r"version (\S+)", line):
            log.versions["nccl-tests"] = tests[1]
    elif match := _RANK.match(line):
        rank, pid, host, device, pci, name = match.groups()
        identity = {"ordinal": int(device), "pci_address": pci, "name": name.strip(), "kind": "gpu"}
        log.ranks.append({"rank": int(rank), "host": host, "pid": int(pid), "device": identity})
        settings.ranks = len(log.ranks)
    elif match := re.search(r"warmup iters: (\d{1,9}) iters: (\d{1,9})(?: agg iters: (\d{1,9}))?", line):
        settings.warmup = int(match[1])
        settings.iterations = int(match[2]) * int(match[3] or 1)
    elif re.match(r"#\s+size\s+count\b", line):
        return line.lstrip("#").split()
    return None


def _row(number: int, tokens: list[str], names: list[str], log: ImportedLog, settings: _Settings) -> None:
    timed = [at for at, name in enumerate(names) if name == "time"]
    if not timed:
        log.problem(number, "times of the CPU, not of the transfer (-C): left out")
        return
    # A timestamp at the end of the row has a column of its own, whose name may be absent.
    if len(tokens) not in (len(names), len(names) + 1, len(names) + 2) or len(tokens) < timed[-1] + 3:
        log.problem(number, f"{len(tokens)} columns where the heading has {len(names)}")
        return
    row = dict(zip(names[: timed[0]], tokens, strict=False))
    for place, start in enumerate(timed):
        figures = dict(zip((*_COLUMNS, "wrong"), tokens[start : start + 4], strict=False))
        if len(timed) == 2 and figures["time"] == "N/A":
            continue
        _case(number, row, figures, place == 1, log, settings)


def _case(
    number: int,
    row: Mapping[str, str],
    figures: Mapping[str, str],
    in_place: bool,
    log: ImportedLog,
    settings: _Settings,
    intervals: Sequence[tuple[float, int]] = (),
) -> None:
    assert settings.pattern is not None
    try:
        total, time_us = int(row["size"]), float(figures["time"])
        wrong = None if figures["wrong"] in ("N/A", "") else float(figures["wrong"])
        root = max(0, int(row.get("root", "-1")))
        bus = float(figures["busbw"])
        if not all(map(math.isfinite, (time_us, bus, wrong or 0.0))):
            raise ValueError
    except (KeyError, ValueError):
        log.problem(number, f"a figure that is not a number: {' '.join(figures.values())[:80]!r}")
        return
    datatype = _TYPES.get(row.get("type", ""))
    op = row.get("redop", "none")
    size = restated(settings.pattern, total, settings.ranks)
    if datatype is None or op not in ("none", *OPS) or size is None or size <= 0 or not time_us > 0:
        log.problem(number, f"no case: size {total}, type {row.get('type')}, operation {op}, time {time_us}")
        return
    info = PATTERNS[settings.pattern]
    case = make_case(
        "ccl", info.name, size, range(settings.ranks), cadence="streaming", batch=settings.iterations,
        in_place=in_place, datatype=datatype, op=op if info.reduces and op in OPS else "sum",
        root=root if info.rooted else 0, warmup=settings.warmup, clock="event" if intervals else "host",
    )  # fmt: skip
    times = tuple(intervals) or ((time_us * 1e3 * settings.iterations, settings.iterations),)
    evidence = {"size_printed": total, "busbw_printed_gb_per_s": bus, "estimator": "mean over iterations and ranks"}
    told: dict[str, Any] = {"operations": sum(iterations for _, iterations in times), "evidence": evidence}
    said = f"{wrong:g} wrong values" if wrong else ""
    log.add(number, ImportedCase(case, times, said, verified=None if wrong is None else True, **told))


_DEVICE = {"rank": whole(0, MOST_RANKS), "device": whole(0, MOST_RANKS), "hostname": text, "pid": whole(),
           "device_hex": maybe(text), "device_info": maybe(text)}  # fmt: skip
_FIGURES = maybe(table(dict.fromkeys(("time", "bus_bw", "nwrong"), scalar)))
_SINGLE = maybe(table({"times_us": maybe(each(number(0)))}))
JSON = table(
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
"""What nccl-tests writes with -J."""


def read_json(data: dict[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of a JSON file, of the shape JSON, into `log`."""
    program = next(iter(data["args"]), "")
    config = data.get("config", {})
    code = data["nccl_version"]
    log.versions["nccl"] = version_text(int(code)) if re.fullmatch(r"\d{1,9}", code) else "unknown"
    for one in data.get("devices", []):
        names = {"ordinal": "device", "pci_address": "device_hex", "name": "device_info"}
        identity = {key: one.get(name) for key, name in names.items()} | {"kind": "gpu"}
        log.ranks.append({"rank": one["rank"], "host": one["hostname"], "pid": one["pid"], "device": identity})
    settings = _Settings(
        _pattern_of(program, hints.pattern),
        len(log.ranks) or hints.ranks or 0,
        config.get("iterations", 20) * config.get("aggregated_iterations", 1),
        config.get("warmup_iters", 5),
    )
    if settings.pattern is None or settings.ranks == 0:
        log.problem(
            1, f"{program or 'the program'} is no pattern that is known, or has no devices: say --pattern and --ranks"
        )
        return
    for number_, result in enumerate(data["results"], start=1):
        row = {name: result.get(name, "").strip() for name in ("size", "count", "type", "redop", "root")}
        for in_place, name in ((False, "out_of_place"), (True, "in_place")):
            figures = result.get(name)
            if figures is None:
                continue
            if "time" not in figures:
                log.problem(number_, f"result {number_}: times of the CPU, not of the transfer: left out")
                continue
            flat = {"time": figures["time"], "busbw": figures.get("bus_bw", ""), "wrong": figures.get("nwrong", "N/A")}
            single = (result.get(f"{name}_per_iter") or {}).get("times_us") or []
            _case(number_, row, flat, in_place, log, settings, [(time * 1e3, 1) for time in single])


def version_text(code: int) -> str:
    """Return NCCL's version of its code: 22809 is 2.28.9; before 2.9 the code had a digit less."""
    if code >= 10_000:
        return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
