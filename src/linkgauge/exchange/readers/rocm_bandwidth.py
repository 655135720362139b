"""rocm_bandwidth_test: its matrices of peak rates between all devices.

Read with its source (ROCm/rocm_bandwidth_test, base_test and ComputeCopyTime): a figure is the best over sizes, both
ways count both, and a copy within a device counts its bytes twice. Devices are numbered through processors and GPUs;
a GPU's line has its PCI address.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from linkgauge.exchange.copies import Copies, Place, gpu, left_out, matrix
from linkgauge.exchange.imported import Hints, ImportedLog, ImportedTable
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line

_BEGIN = re.compile(r"RocmBandwidthTest Version:\s*(\S+)")
_DEVICE = re.compile(r"Device: +(\d{1,3}), +(.+?)(?:, +([0-9a-f]{1,4}:)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.\d)?$")
_UUID = re.compile(r", +GPU-[0-9a-zA-Z]+$")
_RATES = re.compile(r"(?P<ways>Unidirectional|Bi?directional) copy peak bandwidth GB/s$")
_OTHERS = re.compile(r"(?:Inter-)?Device (?:Access|Numa Distance)$")
_RESULT = re.compile(r"=+\s+(?:(?:Uni|Bi)directional )?Benchmark Result\s+=+|Data Size\s+Avg Time")
_CORNER = re.compile(r"D/D")


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed matrices into `log`."""
    into, at = log.table("rocm_bandwidth_test"), 0
    places: dict[str, Place] = {}
    while at < len(lines):
        line = lines[at]
        at += 1
        if match := _BEGIN.match(line.head):
            into, places = log.table("rocm_bandwidth_test", {"rocm_bandwidth_test": match[1]}), {}
        elif match := _DEVICE.match(line.head):
            _device(match, places, into)
        elif _OTHERS.match(line.head):
            _, at = matrix(lines, at, _CORNER, log, line.head)
        elif match := _RATES.match(line.head):
            at = _matrix(match, line, lines, at, places, into, hints)
        elif _RESULT.match(line.head):
            log.problem(line.number, "results of single pairs by size are not read: give the output without -s and -d")
        elif re.match(r"\d[\d.]*(?: [KMG]?B)?(?:\s+[\d.]+){2}", line.head):
            log.problem(line.number, f"a row outside of a matrix: {line.head[:60]!r}")


def _device(match: re.Match[str], places: dict[str, Place], into: ImportedTable) -> None:
    number, name, domain, bus, device = match.groups()
    if number in places:
        return
    host = bus is None
    place = places[number] = Place(host, sum(one.host == host for one in places.values()))
    if not host:
        pci = f"{(domain or '0').rstrip(':'):0>4}:{bus:0>2}:{device:0>2}"
        into.ranks.append(gpu(place.number, _UUID.sub("", name), pci))


def _matrix(
    title: re.Match[str], line: Line, lines: Sequence[Line], at: int, places: dict[str, Place], into: ImportedTable,
    hints: Hints,
) -> int:  # fmt: skip
    log, name = into.log, line.head
    cells, at = matrix(lines, at, _CORNER, log, name)
    if not cells:
        log.problem(line.number, f"{name}: no matrix follows")
    doubt = ""
    if hints.size_bytes is None:
        doubt = "the peak's size is not printed, so --size must say it"
    for cell in cells:
        ends = {cell.row, cell.column}
        if not ends <= places.keys():
            doubt = "it has devices that no line 'Device:' names"
        elif len(ends) == 1 and places[cell.row].host:
            doubt = f"device {cell.row} copies within itself, and its line has no PCI address: processor or GPU?"
    if doubt or hints.size_bytes is None:
        left_out(log, line.number, name, len(cells), doubt)
        return at
    ways = 1 if title["ways"] == "Unidirectional" else 2
    one_host = sum(place.host for place in places.values()) == 1
    copies = Copies(into, "copy_engine", hints.size_bytes, {"test": name, "estimator": "best of all sizes and copies"})
    absent = 0
    for number, row, column, value in cells:
        source, target = (Place(True, -1) if one_host and places[one].host else places[one] for one in (row, column))
        absent += not copies.add(number, source, target, value / 2 if source == target else value, ways)
    left_out(log, line.number, name, absent, "copies between processors have no pattern")
    return at


_STARTS = r"\s*(?:RocmBandwidthTest Version:|(?:Uni|Bi?)directional copy peak bandwidth GB/s\s*$)"
Reader("rocm_bandwidth_test", re.compile(_STARTS), read_text).register()
