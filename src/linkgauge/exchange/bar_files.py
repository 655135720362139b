"""Files in which others state what they require of machines, as bars: each form known by its own words.

Only lines that state a bandwidth are taken; the forms are configuration and code, so each is read by its lines.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.exchange.nccl_table import PATTERN_OF
from linkgauge.exchange.other_names import NCCL_PROGRAMS
from linkgauge.files import read_file
from linkgauge.model.bar import BUS, GOODPUT, PORT, Bar
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import parse_size
from linkgauge.model.transports import TRANSPORTS
from linkgauge.system.shipped import names

_MAX_BYTES = 8 << 20
GB, GBIT = 1e9, 1e9 / 8
READ = "AzNHC .conf, Oracle's and AWS' check scripts, Google's health scanner, AICR, CVS, SuperBench, dcgmi, CSV"

MACHINES = {
    "nd96asr_v4": "azure-nd-a100-v4", "nd96amsr_a100_v4": "azure-nd-a100-v4", "nd96isr_h100_v5": "azure-nd-h100-v5",
    "nd96isr_v5": "azure-nd-h100-v5", "nd96is_h100_v5": "azure-nd-h100-v5", "nd96isr_h200_v5": "azure-nd-h200-v5",
    "nd96isrf_h200_v5": "azure-nd-h200-v5", "nd96is_h200_v5": "azure-nd-h200-v5",
    "nd96isr_mi300x_v5": "azure-nd-mi300x-v5", "nc80adis_h100_v5": "h100-nvl-2", "nc40ads_h100_v5": "h100-nvl-2",
    "nd128isr_ndr_gb200_v6": "gb200-tray",
    "BM.GPU4.8": "hgx-a100-8-40gb", "BM.GPU.B4.8": "hgx-a100-8-40gb", "BM.GPU.A100-v2.8": "hgx-a100-8",
    "BM.GPU.H100.8": "oci-bm-h100-8", "BM.GPU.H200.8": "oci-bm-h200-8", "BM.GPU.B200.8": "hgx-b200-8",
    "BM.GPU.B300.8": "oci-bm-b300-8", "BM.GPU.GB300.4": "oci-bm-gb300-4", "BM.GPU.MI300X.8": "oci-bm-mi300x-8",
    "BM.GPU.MI355X.8": "oci-bm-mi355x-8",
    "p4d.24xlarge": "aws-p4d", "p5.48xlarge": "aws-p5", "p5en.48xlarge": "aws-p5en", "p6-b200.48xlarge": "aws-p6-b200",
    "p6-b300.48xlarge": "aws-p6-b300",
    "a3-highgpu-8g": "gcp-a3-high", "a3-megagpu-8g": "gcp-a3-mega", "a3-ultragpu-8g": "gcp-a3-ultra",
    "a4-highgpu-8g": "gcp-a4", "a4x-highgpu-4g": "gcp-a4x",
}  # fmt: skip
"""Which described machine a cloud's name of an instance is."""
_AICR = {
    ("eks", "h100"): "aws-p5", ("eks", "h200"): "aws-p5en", ("eks", "b200"): "aws-p6-b200", ("eks", "a100"): "aws-p4d",
    ("gke", "h100"): "gcp-a3-mega", ("gke", "h200"): "gcp-a3-ultra", ("gke", "b200"): "gcp-a4",
    ("gke", "gb200"): "gcp-a4x",
    ("aks", "h100"): "azure-nd-h100-v5", ("aks", "h200"): "azure-nd-h200-v5", ("aks", "a100"): "azure-nd-a100-v4",
    ("oke", "h100"): "oci-bm-h100-8", ("oke", "h200"): "oci-bm-h200-8", ("oke", "gb300"): "oci-bm-gb300-4",
}  # fmt: skip
_CHIPS = {"mi300x": "mi300x-8", "mi325x": "mi325x-8", "mi350x": "mi350x-8", "mi355x": "mi355x-8", "mi300a": "mi300a-4"}


def read_bars(path: Path) -> list[Bar]:
    """Read the bars of a file. UsageError where it is of no known form, or states none."""
    text = read_file(path, _MAX_BYTES, "a file of bars").decode("utf-8", "replace")
    for knows, read in _FORMS:
        if knows(text, path):
            found = list(read(text, path))
            if not found:
                raise UsageError(f"{path}: states no bandwidth that a machine must reach")
            return found
    raise UsageError(
        f"{path}: no file of bars that Linkgauge reads: expected {READ} with the columns {', '.join(_NEEDED)}"
    )


# --- AzNHC -----------------------------------------------------------------------------------------------------------

_NHC = re.compile(r"^\s*(?!#)\S+\s*\|\|\s*(check_\w+)[^\S\n]*(.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?$")
_SIZE = re.compile(r"\d{1,6}[KMG]$")


def _nhc(text: str, path: Path) -> Iterator[Bar]:
    system = MACHINES.get(path.stem, "")
    for match in _NHC.finditer(text):
        check, words = match[1], match[2].split()
        value = float(words[0]) if words and _NUMBER.match(words[0]) else None
        said = f"{check} {match[2].strip()}"
        if value is None:
            continue
        if check in ("check_nccl_allreduce", "check_rccl_allreduce"):
            size = next((parse_size(word + "iB") for word in words[1:] if _SIZE.match(word)), 0)
            yield Bar(said, value * GB, system=system, size=size)
        elif check in ("check_gpu_bw", "check_cuda_bw"):
            second = float(words[1]) * GB if len(words) > 1 and _NUMBER.match(words[1]) else None
            # On AMD the two are the two ways of host copies; else both ways share the first.
            amd = "mi300x" in path.stem or "rccl" in text
            yield _copy(said, value * GB, "host_to_device", system)
            yield _copy(said, second if amd and second else value * GB, "device_to_host", system)
            if second and not amd:
                yield _copy(said, second, "unidirectional", system)
        elif check in ("check_ib_bw_gdr", "check_ib_bw_non_gdr"):
            yield Bar(said, value * GBIT, "unidirectional", system, quantity=PORT)
        elif check == "check_nccl_allreduce_ib_loopback":
            yield Bar(said, value * GB, system=system, unread="a loop through the NICs of one node has no rule")


def _copy(text: str, value: float, pattern: str, system: str) -> Bar:
    return Bar(text, value, pattern, system, transport="copy_engine", size=256 << 20, quantity=GOODPUT)


# --- scripts of clouds -----------------------------------------------------------------------------------------------

_SHAPE = re.compile(r'"(BM\.[\w.-]+)"\s*:\s*\{([^{}]*)\}')
_OF_SHAPE = re.compile(r'"(threshold|ib_write_bw)"\s*:\s*"?(\d{1,9}(?:\.\d{1,9})?)')
_INSTANCE = re.compile(r"^\s*([a-z]\d[\w-]*\.\d*xlarge)\)\s*echo\s+(\d{1,9}(?:\.\d{1,9})?)", re.MULTILINE)
_ENV = re.compile(r'^\s*(\w+)\s*:\s*"?([\w.-]+)"?\s*(?:#.*)?$', re.MULTILINE)


def _oracle(text: str, path: Path) -> Iterator[Bar]:
    nodes = 2 if re.search(r"multi[_-]?node", path.stem + text[:2000]) else 1
    for shape in _SHAPE.finditer(text):
        for name, value in _OF_SHAPE.findall(shape[2]):
            said, system = f"{shape[1]} {name} {value}", MACHINES.get(shape[1], "")
            if name == "threshold":
                yield Bar(said, float(value) * GB, system=system, nodes=nodes, size=1 << 30)
            else:
                yield Bar(said, float(value) * GBIT, "unidirectional", system, quantity=PORT)


def _aws(text: str, path: Path) -> Iterator[Bar]:
    for name, value in _INSTANCE.findall(text):
        yield Bar(f"{name} {value}", float(value) * GB, system=MACHINES.get(name, ""), nodes=2)


def _google(text: str, path: Path) -> Iterator[Bar]:
    said = dict(_ENV.findall(text))
    machine = said.get("INSTANCE_TYPE", "")
    size = said.get("END_MESSAGE_SIZE", "")
    nodes, rate = said.get("NHOSTS", "2"), _number(said.get("BANDWIDTH_THRESHOLD"))
    if rate is not None:
        yield Bar(
            f"{machine} BANDWIDTH_THRESHOLD {rate:g}", rate * GB, system=MACHINES.get(machine, ""),
            nodes=int(nodes) if re.fullmatch(r"[1-9]\d{0,5}", nodes) else 2,
            size=parse_size(size + "iB") if _SIZE.match(size) else 0,
        )  # fmt: skip


_CONSTRAINT = re.compile(
    r"^\s*-\s*name:\s*(nccl-all-reduce-bw[\w-]*)\s*\n\s*value:\s*[\"']?>=\s*(\d{1,9}(?:\.\d{1,9})?)", re.MULTILINE
)
_CRITERION = re.compile(r"^\s*(service|accelerator):\s*(\w+)\s*(?:#.*)?$", re.MULTILINE)


def _aicr(text: str, path: Path) -> Iterator[Bar]:
    said: dict[str, str] = {}
    for name, value in _CRITERION.findall(text):
        said.setdefault(name, value)
    chip = said.get("accelerator", "")
    system = _AICR.get((said.get("service", ""), chip), "")
    for name, value in _CONSTRAINT.findall(text):
        words, bar = f"{said.get('service', '')} {chip} {name} >= {value}".strip(), float(value) * GB
        if name.endswith("-nvls") and f"{chip}-nvl72" in names():
            yield Bar(words, bar, system=f"{chip}-nvl72", ranks=8)
        else:
            yield Bar(words, bar, system=system, nodes=2)


# --- AMD's CVS, SuperBench, DCGM -------------------------------------------------------------------------------------

_COLLECTIVE = re.compile(r"([a-z_]+_perf)(?:-[a-z0-9_]+?-(\d{1,6}))?$")


def _cvs(text: str, path: Path) -> Iterator[Bar]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    chip = re.search(r"mi3\d\d[ax]", (path.stem + text).lower())
    system = _CHIPS.get(chip[0], "") if chip else ""
    nodes = re.search(r'"no_of_nodes"\s*:\s*"?(\d{1,6})', text)
    yield from _expected(data, system, int(nodes[1]) if nodes else 1, "", 0)


def _expected(data: Any, system: str, nodes: int, pattern: str, size: int, ranks: int = 0) -> Iterator[Bar]:
    """The bus bandwidths of any depth of tables: by program (with its ranks), by size, by `bus_bw`, in either order."""
    if isinstance(data, dict):
        for key, value in data.items():
            match = _COLLECTIVE.match(str(key))
            if match and match[1] in PATTERN_OF:
                yield from _expected(value, system, nodes, PATTERN_OF[match[1]], size, int(match[2] or 0))
            elif pattern and str(key).isdecimal() and len(str(key)) < 19:
                yield from _expected(value, system, nodes, pattern, int(key), ranks)
            elif str(key) in _TRANSFERBENCH and (rate := _number(value)) is not None:
                yield Bar(f"{key} {rate:g}", rate * GB, _TRANSFERBENCH[key], system, "kernel", size=256 << 20,
                          quantity=GOODPUT)  # fmt: skip
            else:
                yield from _expected(value, system, nodes, pattern, size, ranks)
    elif pattern and size and (rate := _number(data)) is not None:
        ranks //= nodes if ranks and ranks % nodes == 0 else 1
        said = f"{NCCL_PROGRAMS[pattern]} {size} B bus_bw {rate:g}"
        yield Bar(said, rate * GB, pattern, system, ranks=ranks, nodes=nodes, size=size)


_TRANSFERBENCH = {"avg_gpu_to_gpu_p2p_unidir_bw": "unidirectional", "avg_gpu_to_gpu_p2p_bidir_bw": "bidirectional"}


def _number(value: Any) -> float | None:
    return float(value) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", str(value)) else None


_CRITERIA = re.compile(r"criteria:\s*['\"]?lambda\s+x\s*:\s*x\s*<=?\s*(-?\d{1,9}(?:\.\d{1,9})?)")
_METRIC = re.compile(r"^\s*-\s*([\w-]+(?::[\w.-]+)?)/(\S+)", re.MULTILINE)
_NCCL_METRIC = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce)_(\d{1,15})_busbw", re.IGNORECASE
)
_COPY_METRIC = re.compile(r"(H2D|D2H)_Mem_BW", re.IGNORECASE)


def _superbench(text: str, path: Path) -> Iterator[Bar]:
    # A rule is a table with its criterion and its metrics, each indented below its name.
    for rule in re.split(r"^\s{4}(?=\S[^\n]*:\s*$)", text, flags=re.MULTILINE):
        criteria = _CRITERIA.search(rule)
        value = float(criteria[1]) if criteria else 0.0
        for name, metric in _METRIC.findall(rule) if criteria else ():
            said = f"{name}/{metric} x<{value:g} fails"
            relative = "a share of the user's own baseline, no rate" if value <= 0 else ""
            rate = max(0.0, value) * GB
            if match := _NCCL_METRIC.match(metric):
                pattern = match[1].lower().replace("_", "").replace("reducescatter", "reduce_scatter")
                yield Bar(said, rate, pattern, size=int(match[2]), unread=relative)
            elif match := _COPY_METRIC.match(metric):
                pattern = "host_to_device" if match[1].upper() == "H2D" else "device_to_host"
                yield Bar(said, rate, pattern, "", "copy_engine", size=256 << 20, quantity=GOODPUT, unread=relative)


_DCGM = re.compile(
    r"(memory_bandwidth\.minimum_bandwidth|pcie\.h2d_d2h_single_pinned\.min_bandwidth)\s*[=:]\s*(\d{1,9}(?:\.\d{1,9})?)"
)


def _dcgm(text: str, path: Path) -> Iterator[Bar]:
    for name, value in _DCGM.findall(text):
        said = f"{name}={value}"
        if name.startswith("memory"):  # in MB/s; reads and writes are counted, of which a copy's goodput is half
            yield Bar(said, float(value) * 1e6 / 2, "local_copy", "", "kernel", size=512 << 20, quantity=GOODPUT)
        else:
            for pattern in ("host_to_device", "device_to_host"):
                yield _copy(said, float(value) * GB, pattern, "")


# --- a table ---------------------------------------------------------------------------------------------------------

COLUMNS = ("source", "system", "pattern", "transport", "ranks", "nodes", "size", "quantity", "value")
_NEEDED = ("system", "pattern", "value")
_UNITS = {BUS: GB, GOODPUT: GB, PORT: GBIT}


def _csv(text: str, path: Path) -> Iterator[Bar]:
    for line, row in enumerate(_rows(text, path), 2):
        said = {key: (value or "").strip() for key, value in row.items() if key and isinstance(value, str | None)}
        place = f"{path}:{line}"
        quantity, pattern = said.get("quantity") or BUS, said.get("pattern", "")
        transport = said.get("transport") or "ccl"
        if quantity not in _UNITS or pattern not in PATTERNS or transport not in TRANSPORTS:
            raise UsageError(f"{place}: expected a pattern, a transport and a quantity ({', '.join(_UNITS)}), found "
                             f"'{pattern}', '{transport}' and '{quantity}'")  # fmt: skip
        value = _number(said.get("value", ""))
        counts = [said.get(name) or default for name, default in (("ranks", "0"), ("nodes", "1"))]
        if value is None or not all(re.fullmatch(r"\d{1,6}", count) for count in counts) or counts[1] == "0":
            raise UsageError(f"{place}: expected numbers as value, ranks and nodes")
        size = parse_size(said["size"]) if said.get("size") else 0
        words = f"{said.get('source', '')}: {pattern} {value:g}"
        yield Bar(words, value * _UNITS[quantity], pattern, said.get("system", ""), transport, int(counts[0]),
                  int(counts[1]), size, quantity, said.get("source", ""))  # fmt: skip


def _rows(text: str, path: Path) -> list[dict[str, str | None]]:
    try:
        return list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise UsageError(f"{path}: not CSV: {error}") from None


def _is_csv(text: str, path: Path) -> bool:
    return set(_NEEDED) <= set(text.partition("\n")[0].strip().split(","))


_FORMS: list[tuple[Callable[[str, Path], bool], Callable[[str, Path], Iterator[Bar]]]] = [
    (_is_csv, _csv),
    (lambda text, path: _NHC.search(text) is not None, _nhc),
    (lambda text, path: _SHAPE.search(text) is not None and "threshold" in text, _oracle),
    (lambda text, path: _INSTANCE.search(text) is not None, _aws),
    (lambda text, path: re.search(r"^\s*BANDWIDTH_THRESHOLD:\s*\"?\d", text, re.MULTILINE) is not None, _google),
    (lambda text, path: _CONSTRAINT.search(text) is not None, _aicr),
    (lambda text, path: text.lstrip().startswith("{") and ("bus_bw" in text or "_unidir_bw" in text), _cvs),
    (lambda text, path: text.find("superbench:") >= 0 and "criteria" in text, _superbench),
    (lambda text, path: _DCGM.search(text) is not None, _dcgm),
]
