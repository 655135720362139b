"""perftest (ib_write_bw, ib_send_lat and the others): its printed tables, and the JSON file of --out_json.

Read with its sources (linux-rdma/perftest, src/perftest_parameters.c): MB/sec and MiB/sec are 2^20 B/s, Gb/sec are 10^9
bits; both ways at once give their sum; a latency of sends and writes is half of a round trip. The JSON does not say its
unit of bandwidth: it follows from size and message rate.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog, make_case
from linkgauge.exchange.readers.base import JsonForm, Reader
from linkgauge.model.log_text import Line, number_of, whole_of
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.shape import maybe, scalar, table

_TOOL = "perftest"
_VERB = r"(Send_imm|Send|RDMA_Write_imm|RDMA_Write|RDMA_Read|Atomic|RawEthernet)"
_TITLE = re.compile(_VERB + r"[ _]([\w ]*?(?:BW|Latency)[\w ]*?)[ _]?Test$")
_COMMAND = re.compile(r"(?:.*[\s/$#])?ib_(send|write|read|atomic)_(bw|lat)(?:\s+(.*))?$")
_VERBS = {"Send": "", "Send_imm": "", "RDMA_Write": "put", "RDMA_Write_imm": "put", "RDMA_Read": "get"}
_OF_COMMAND = {"send": "Send", "write": "RDMA_Write", "read": "RDMA_Read", "atomic": "Atomic"}
_SAID = re.compile(r"(Device|Number of qps|Connection type|TX depth|Post List|Link type)\s*:\s*(\S+)")
_ON_GPU = re.compile(r"cuMemAlloc\(\) of|(?:allocated|Allocating) .*GPU buffer|Using ROCm Device")
_HEADING = re.compile(r"#bytes\s+(?:#sl\s+)?#iterations\s")
_COLUMN = re.compile(
    r"#\w+|(?:BW|MsgRate) ?\w*\[[^\]]*\]|t_\w+\[usec\]|[\d.]+% percentile\[usec\]|tps average|CPU_Util\[%+\]"
)
_UNITS = {"MB/sec": 1 << 20, "MiB/sec": 1 << 20, "Gb/sec": 125_000_000}
_DEFAULT_WINDOW = 128


@dataclasses.dataclass
class _Test:
    """What stands above a row: the test by the words of its title, and its settings by theirs."""

    verb: str = ""
    words: str = ""
    said: dict[str, str] = dataclasses.field(default_factory=dict)
    columns: list[str] = dataclasses.field(default_factory=list)
    on_gpu: bool = False

    @property
    def name(self) -> str:
        """As its title has it."""
        return f"{self.verb} {self.words} test".replace("  ", " ") if self.verb else "a test"

    def why_not(self) -> str:
        """Why none of its rows is taken; empty where they are."""
        if not self.verb:
            return "no line says which test it is"
        if self.verb not in _VERBS:
            return "no pattern measures it"
        if self.said.get("Connection type") == "RawEth":
            return "raw Ethernet is no RDMA"
        if odd := [
            word for word in self.words.split() if word not in ("Bidirectional", "Post", "List", "BW", "Latency")
        ]:
            return f"no pattern measures {' '.join(odd)[:40]}"
        return ""


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed tables into `log`."""
    test = _Test()
    on_gpu = False  # the next one's memory, which it allocates before it prints its title
    seen: set[tuple[str, str]] = set()  # both ends print the row of the one that measured
    for line in lines:
        text = line.head
        if match := _TITLE.match(text):
            test, on_gpu = _Test(match[1], match[2], on_gpu=on_gpu), False
        elif match := _COMMAND.match(text):
            way = "Bidirectional " if re.search(r"(?:^|\s)-(?:b|-bidirectional)(?:\s|$)", match[3] or "") else ""
            test = _Test(_OF_COMMAND[match[1]], way + ("BW" if match[2] == "bw" else "Latency"))
        elif _ON_GPU.match(text):
            on_gpu = True
        elif _HEADING.match(text):
            test.columns = _COLUMN.findall(text)
        elif test.columns and re.match(r"\d+\s", text):
            words = " ".join(text.split())
            if (test.name, words) in seen:
                continue
            seen.add((test.name, words))
            _row(line.number, dict(zip(test.columns, text.split(), strict=False)), len(text.split()), test, log, hints)
        elif not test.columns:
            test.said |= dict(_SAID.findall(text))


def _row(number: int, cells: Mapping[str, str], count: int, test: _Test, log: ImportedLog, hints: Hints) -> None:
    if why := test.why_not():
        log.problem(number, f"{test.name} left out: {why}")
    elif count != len(test.columns):
        log.problem(number, f"{count} columns where the heading has {len(test.columns)}")
    else:
        named = {_plain(name): cell for name, cell in cells.items()}
        unit = next((unit for name in cells for word, unit in _UNITS.items() if f"average[{word}]" in name), 0)
        _take(number, named, unit, test, log, hints)


def _plain(name: str) -> str:
    """A column's name without its unit."""
    return name.partition("[")[0]


def _take(number: int, cells: Mapping[str, str], unit: int, test: _Test, log: ImportedLog, hints: Hints) -> None:
    """Take one row by its columns' names. `unit`: of bandwidth in bytes per second, 0 where it has to be found."""
    try:
        size, count = whole_of(cells["#bytes"]), whole_of(cells["#iterations"])
        figures = {name: number_of(cell) for name, cell in cells.items() if name[0] not in "#C"}
    except (KeyError, ValueError):
        log.problem(number, f"not a size, a count and figures: {' '.join(cells.values())[:80]!r}")
        return
    by_rate = "BW average" in figures
    if by_rate != ("BW" in test.words.split()) or not size > 0 or not count > 0:
        log.problem(number, f"{test.name} left out: no case: size {size}, columns {', '.join(cells)[:80]}")
    elif by_rate:
        _bandwidth(number, size, count, figures, unit, test, log, hints)
    else:
        _latency(number, size, count, figures, test, log)


def _bandwidth(
    number: int, size: int, count: int, figures: Mapping[str, float], unit: int, test: _Test, log: ImportedLog,
    hints: Hints,
) -> None:  # fmt: skip
    printed, rate = figures["BW average"], figures.get("MsgRate", 0.0)
    found = [one for one in ([unit] if unit else sorted(set(_UNITS.values()))) if _agrees(size, printed, rate, one)]
    if not 0 < printed < 1e9 or len(found) != 1:
        log.problem(number, f"a row left out: {rate:g} million messages of {size} bytes a second are not {printed:g}")
        return
    window = hints.window or _count(test, "TX depth") or _DEFAULT_WINDOW
    queues = _count(test, "Number of qps") or 1
    window *= queues
    both = "Bidirectional" in test.words
    evidence: dict[str, Any] = {"test": test.name, "estimator": "mean of a loop", "queue pairs": queues}
    if hints.window is None and "TX depth" not in test.said:
        evidence["window"] = "perftest's default; the log does not say"
    if figures.get("BW peak"):
        evidence["peak_gb_per_s"] = figures["BW peak"] * found[0] / 1e9
    time_ns = (2 if both else 1) * window * size / (printed * found[0]) * 1e9
    pattern = "bidirectional" if both else "unidirectional"
    _add(number, pattern, size, window, time_ns, max(1, count // window), evidence, test, log)


def _agrees(size: int, printed: float, rate: float, unit: int) -> bool:
    """Whether size and message rate, of six digits behind the point, give the bandwidth, of two."""
    ours = size * rate * 1e6 / unit
    return abs(ours - printed) <= 0.0051 + size * 0.51 / unit + 1e-3 * printed


def _latency(number: int, size: int, count: int, figures: Mapping[str, float], test: _Test, log: ImportedLog) -> None:
    us = figures.get("t_typical", figures.get("t_avg", 0.0))
    if not 0 < us < 1e9 or not figures.get("t_min", us) <= us <= figures.get("t_max", us):
        log.problem(number, f"no case: size {size}, {time_text(us * 1e3)}")
        return
    evidence: dict[str, Any] = {
        "test": test.name, "estimator": "median of iterations" if "t_typical" in figures else "mean of a loop",
    }  # fmt: skip
    evidence |= {f"{name} us": value for name, value in figures.items() if name[:2] == "99" or name == "t_avg"}
    if _VERBS[test.verb] == "get":  # of a read the whole is printed
        _add(number, "unidirectional", size, 1, us * 1e3, count, evidence, test, log)
    else:
        _add(number, "pingpong", size, 1, 2 * us * 1e3, count, evidence, test, log)


def _add(
    number: int, pattern: str, size: int, window: int, time_ns: float, count: int, evidence: dict[str, Any],
    test: _Test, log: ImportedLog,
) -> None:  # fmt: skip
    if device := test.said.get("Device"):
        evidence["network card"] = device
    if test.on_gpu:
        evidence["memory"] = "a GPU's at the end that printed this; the other end's is not printed"
    memory = "device" if test.on_gpu else "pageable"
    case = make_case(
        "verbs", pattern, size, (0, 1), variant=_VERBS[test.verb], cadence="streaming", arrival="free", window=window,
        source_memory=memory, target_memory=memory, datatype="int8",
    )  # fmt: skip
    log.table(_TOOL).add(number, ImportedCase(case, ((time_ns, 1),), evidence=evidence, operations=count))


def _count(test: _Test, name: str) -> int:
    text = test.said.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else 0


_RESULTS = {
    "MsgSize": "#bytes", "n_iterations": "#iterations", "BW_peak": "BW peak", "BW_average": "BW average",
    "MsgRate": "MsgRate", "t_min": "t_min", "t_max": "t_max", "t_typical": "t_typical", "t_avg": "t_avg",
    "percentile_99": "99% percentile", "percentile_99.9": "99.9% percentile",
}  # fmt: skip
"""Names in the JSON by those of the printed columns."""
_INFO = {"Device": "Device", "Number_of_qps": "Number of qps", "Connection_type": "Connection type",
         "TX_depth": "TX depth", "Post_List": "Post List"}  # fmt: skip
_INFO_NEEDED = {**dict.fromkeys(_INFO, maybe(scalar)), "test": scalar, "cuda_device": maybe(scalar),
                "Use_ROCm_memory": maybe(scalar)}  # fmt: skip
_SHAPE = table(
    {"test_info": table(_INFO_NEEDED, needed=("test",)), "results": table(dict.fromkeys(_RESULTS, maybe(scalar)))},
    needed=("test_info", "results"),
)


def read_json(data: Mapping[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take the case of a JSON file into `log`."""
    info, results = data["test_info"], data["results"]
    title = _TITLE.match(info["test"])
    test = _Test(
        title[1] if title else "", title[2].replace("_", " ") if title else "",
        {ours: str(info[theirs]) for theirs, ours in _INFO.items() if info.get(theirs) is not None},
        on_gpu=info.get("cuda_device") is not None or info.get("Use_ROCm_memory") == "ON",
    )  # fmt: skip
    if why := test.why_not():
        log.problem(1, f"{test.name} left out: {why}")
        return
    _take(1, {ours: str(results[theirs]) for theirs, ours in _RESULTS.items() if results.get(theirs) is not None}, 0,
          test, log, hints)  # fmt: skip


Reader(_TOOL, re.compile(rf"\s*(?:{_TITLE.pattern}|{_HEADING.pattern})"), read_text).register()
JsonForm(_TOOL, lambda data: isinstance(data, dict) and {"test_info", "results"} <= data.keys(), _SHAPE,
         read_json).register()  # fmt: skip
