"""p2pBandwidthLatencyTest of the CUDA samples: its printed matrices.

Read with its source (NVIDIA/cuda-samples, p2pBandwidthLatencyTest.cu): 40,000,000 ints a copy, 5 copies a figure held
by a flag, 100 copies of one int for a latency, of which the GPU's is by events. Of a write the row's device copies to
the column's, of a read it copies from there. On the diagonal bytes count twice, as read and as written. Without peer
access the driver copies through host memory: a copy of `staging`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from linkgauge.exchange.copies import Copies, Place, gpu, left_out, matrix
from linkgauge.exchange.imported import Hints, ImportedLog, ImportedTable
from linkgauge.exchange.readers.base import Reader
from linkgauge.model.log_text import Line

_BYTES, _LATENCY_BYTES = 160_000_000, 4
_BEGIN = re.compile(r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]")
_DEVICE = re.compile(
    r"Device: (\d{1,3}), (.+?), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2}), pciDomainID: ?([0-9a-f]{1,8})$"
)
_CANNOT = re.compile(r"Device=(\d{1,3}) CANNOT Access Peer Device=(\d{1,3})$")
_TITLE = re.compile(
    r"(?:(?P<ways>Unidirectional|Bidirectional) )?P2P=(?P<p2p>Enabled|Disabled) (?P<what>Bandwidth|Latency) "
    r"(?:\(P2P (?P<verb>Writes|Reads)\) )?Matrix \((?P<unit>GB/s|us)\)$"
)
_CORNER = re.compile(r"D\\D|GPU")
_CPU = re.compile(r"CPU")
_NO_ACCESS = "peer access is off in it, which is no setting of a case"


def read_text(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> None:
    """Take the cases of printed matrices into `log`; each start of the program has devices of its own."""
    into, at = log.table("p2pBandwidthLatencyTest"), 0
    without: set[tuple[str, str]] = set()
    while at < len(lines):
        line = lines[at]
        at += 1
        if _BEGIN.match(line.head):
            into, without = log.table("p2pBandwidthLatencyTest"), set()
        elif match := _DEVICE.match(line.head):
            number, name, bus, device, domain = match.groups()
            if all(rank["rank"] != int(number) for rank in into.ranks):
                into.ranks.append(gpu(int(number), name, f"{domain:0>4}:{bus:0>2}:{device:0>2}"))
        elif line.head == "P2P Connectivity Matrix":
            _, at = matrix(lines, at, _CORNER, log, line.head)
        elif match := _CANNOT.match(line.head):
            without.add((match[1], match[2]))
        elif match := _TITLE.match(line.head):
            at = _matrix(match, line.number, lines, at, into, without, hints)
        elif re.match(r"\d{1,3}(?:\s+[\d.]+){2}", line.head) and not into.cases:
            log.problem(line.number, f"a row outside of a matrix: {line.head[:60]!r}")


def _matrix(
    title: re.Match[str], number: int, lines: Sequence[Line], at: int, into: ImportedTable,
    without: set[tuple[str, str]], hints: Hints,
) -> int:  # fmt: skip
    log, name, of_rate = into.log, title[0], title["what"] == "Bandwidth"
    cells, at = matrix(lines, at, _CORNER, log, name)
    if not of_rate:
        times, at = matrix(lines, at, _CPU, log, f"{name}, CPU")
        left_out(log, number, f"{name}, CPU", len(times), "how long the host takes to begin a copy has no pattern")
    if (title["unit"] == "GB/s") != of_rate or (title["ways"] is None) == of_rate:
        log.problem(number, f"{name}: no title of this test", len(cells))
        return at
    if title["p2p"] == "Disabled":
        left_out(log, number, name, len(cells), _NO_ACCESS)
        return at
    if not cells:
        log.problem(number, f"{name}: no matrix follows")
    ways = 2 if title["ways"] == "Bidirectional" else 1
    reads = title["verb"] == "Reads"
    size = _LATENCY_BYTES if not of_rate else hints.size_bytes or _BYTES
    evidence = {"test": name, "estimator": f"mean of {5 if of_rate else 100} gated copies"}
    if of_rate and hints.size_bytes is None:
        evidence["size"] = "the sample's own, 40,000,000 ints; the log does not say"
    absent = 0
    for line, row, column, value in cells:
        source, target = (column, row) if reads else (row, column)
        staged = (row, column) in without
        told = evidence | ({"peer access": "none"} if staged else {})
        copies = Copies(into, "staging" if staged else "copy_engine", size, told, "gated", by_receiver=reads)
        per_copy = value if of_rate else size / (value * 1e3) if value > 0 else 0.0
        rate = per_copy / 2 if of_rate and source == target else per_copy
        absent += not copies.add(line, Place(False, int(source)), Place(False, int(target)), rate, ways)
    left_out(log, number, name, absent, "two copies within one device at once are no pattern")
    return at


_STARTS = rf"{_BEGIN.pattern}|(?:(?:Uni|Bi)directional )?P2P=(?:En|Dis)abled (?:Bandwidth|Latency) .*Matrix"
Reader("p2pBandwidthLatencyTest", re.compile(_STARTS), read_text).register()
