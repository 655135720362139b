"""The payload's share of what crossed the links, as a run's own byte counters saw it.

NVLink counts data and raw bytes: their ratio, in a direction that carries payload, is the share. Where payload flows
one way, raw bytes the other way are acknowledgements and requests; where it flows both ways at once, they ride in the
same direction and lower the share. So the two are kept apart, and a ping-pong, which alternates, gives neither. PCIe
counts packets alone, so payload comes from the case: what its copies bring into a device or take out of it. Those
counters have 32 bits and wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from linkgauge.expect.graph import FABRIC, HOST
from linkgauge.expect.limit import Limit, limit
from linkgauge.expect.of_case import least_of_links, limits
from linkgauge.expect.query import Query, query
from linkgauge.model.device_words import device_words
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.model.transports import THROUGH_HOST
from linkgauge.run.machine.observe import CASE_TIME
from linkgauge.stats.launches import shown_transports
from linkgauge.stats.windows import windows_of
from linkgauge.system.model import System

if TYPE_CHECKING:
    from linkgauge.store.run import Run

ONE_WAY, BOTH_WAYS, INTO, OUT = "one way", "both ways", "into devices", "out of devices"
# Whether each rank's copies take the case's size out of its device, and bring it in, by transport and pattern.
_COPIED = {
    ("copy_engine", "device_to_host"): (True, False),
    ("copy_engine", "host_to_device"): (False, True),
    ("copy_engine", "host_device_bidirectional"): (True, True),
    ("staging", "pingpong"): (True, True),
    ("staging", "allreduce"): (True, True),
}
_LEAST_BYTES = 1 << 26  # counters move for other reasons too: fewer bytes say little
_WRAP_BYTES = 1 << 32
_MOST_BYTES = 3 << 30  # beyond it a counter of 32 bits may have gone round more than once


@dataclass(frozen=True)
class WireShare:
    """Payload over raw bytes of one case: on which kind of link, in which direction, and in which case it was seen."""

    link_kind: str
    direction: str
    transport: str
    pattern: str
    size: int
    devices: tuple[int, ...]
    share: float
    shown: str = ""  # what its run calls the transport

    @property
    def words(self) -> str:
        """The case that it comes from; only GPUs count bytes."""
        where = device_words(self.devices, "GPU")
        return f"{self.pattern} by {self.shown or self.transport} on {where} at {size_text(self.size)}"


def wire_shares(run: Run) -> list[WireShare]:
    """Return the shares that a run's counters give, largest sizes first."""
    shown = shown_transports(run.launched)
    found = shares_of(run.rows(), run.observed(_of_links))
    return [replace(one, shown=shown.get(one.transport, "")) for one in found]


def _of_links(table: Any) -> Any:
    return pc.or_(pc.ends_with(table["name"], "x_bytes"), pc.equal(table["name"], CASE_TIME))


def shares_of(rows: Iterable[Row], observations: Iterable[Observation]) -> list[WireShare]:
    """Return the shares from the rows of cases and of their observations.

    Of a window that several cases of one kind fill NVLink's share is that of the largest, which moved most of it.
    """
    known = {row.identity: row for row in rows}
    moved: dict[Identity, dict[tuple[str, str], float]] = {}
    for window in windows_of(known, observations):
        # Kernels are chosen by measuring, which moves up to a hundred times a small case's payload.
        if window.of_one_kind and (len(window.measured) == 1 or window.measured[0].transport != "kernel"):
            largest = max(window.measured, key=lambda row: row.size)
            counted = "nvlink" if len(window.measured) > 1 else ""  # PCIe's bytes wrap, and need their case's payload
            of_case = moved.setdefault(largest.identity, {})
            for name, grown in window.grown.items():
                if name.startswith(counted) and name.endswith("x_bytes"):
                    of_case[window.subject, name] = grown
    found = []
    for identity, bytes_of in moved.items():
        # Where loads go on beside it the counters hold their bytes too.
        if not known[identity].case.background:
            found.extend(_of_row(known[identity], bytes_of))
    return sorted(found, key=lambda one: -one.size)


def _of_row(row: Row, moved: Mapping[tuple[str, str], float]) -> list[WireShare]:
    found: dict[tuple[str, str], float | None] = {}
    if row.transport not in THROUGH_HOST:
        ways = PATTERNS[row.pattern].link_ways
        if ways == "one":
            found["nvlink", ONE_WAY] = _nvlink(moved)
        elif ways == "both" or (ways == "library" and row.transport == "ccl"):  # MPI's steps may follow each other
            found["nvlink", BOTH_WAYS] = _nvlink(moved)
    out, into = _legs(row)
    found["pcie", OUT] = _pcie(moved, "pcie_tx_bytes", out)
    found["pcie", INTO] = _pcie(moved, "pcie_rx_bytes", into)
    return [
        WireShare(kind, direction, row.transport, row.pattern, row.size, row.devices, share)
        for (kind, direction), share in found.items()
        if share is not None and 0.5 <= share <= 1.0
    ]


def _nvlink(moved: Mapping[tuple[str, str], float]) -> float | None:
    """Return data over raw bytes of the ports that send: those with at least half of the busiest one's data."""
    data = {subject: value for (subject, name), value in moved.items() if name == "nvlink_data_tx_bytes"}
    most = max(data.values(), default=0.0)
    busy = [subject for subject, value in data.items() if value >= max(most / 2, _LEAST_BYTES)]
    raw = sum(moved.get((subject, "nvlink_raw_tx_bytes"), 0.0) for subject in busy)
    return sum(data[subject] for subject in busy) / raw if raw > 0 else None


def _legs(row: Row) -> tuple[dict[int, float], dict[int, float]]:
    """Return the payload that a case's copies took out of and into each device over PCIe, in bytes.

    Only of cases that copy exactly their payload: kernels are tuned with further copies before their first case, and
    staging's other collectives copy blocks that stay.
    """
    each = float(row.size) * (row.operations_total or 0)
    leaves, enters = _COPIED.get((row.transport, row.pattern), (False, False))
    out: dict[int, float] = {}
    into: dict[int, float] = {}
    for device in row.devices:
        out[device] = out.get(device, 0.0) + (each if leaves else 0.0)
        into[device] = into.get(device, 0.0) + (each if enters else 0.0)
    return out, into


def _pcie(moved: Mapping[tuple[str, str], float], name: str, payload: Mapping[int, float]) -> float | None:
    """Return payload over counted bytes; None where too little or too much for the counters crossed."""
    counted = wanted = 0.0
    for device, count in payload.items():
        raw = next((v for (subject, of), v in moved.items() if of == name and subject.endswith(f":{device}")), None)
        if raw is None or not _LEAST_BYTES <= count <= _MOST_BYTES:
            return None
        counted += raw % _WRAP_BYTES
        wanted += count
    return wanted / counted if counted > 0 else None


def counted_share(system: System, case: Mapping[str, Any], shares: Iterable[WireShare]) -> list[Limit]:
    """Return what is typical of a case by the share that this run's counters saw; nothing where none fits."""
    known = list(shares)
    q = query(system, case)
    fitting = _fitting(q, known) if known and q.nodes == 1 and not PATTERNS[q.pattern].latency_only else []
    if not fitting:
        return []
    least = least_of_links(limits(system, case))
    if least is None:
        return []
    chosen = min(fitting, key=lambda one: one.share)
    basis = (
        f"{percent(chosen.share, 1)} of {least.rule}: payload on {chosen.link_kind} {chosen.direction} as counted in "
    )
    value = (least.value_bytes_per_s or 0.0) * chosen.share
    return [limit("payload_counted", value, basis + chosen.words)]


def _fitting(q: Query, known: list[WireShare]) -> list[WireShare]:
    """Return the share of each direction that the case needs: of its own transport, its own pattern and size first."""
    kind, wanted = _needed(q)
    found = []
    for direction in wanted:
        alike = [one for one in known if (one.link_kind, one.direction) == (kind, direction)]
        alike = [one for one in alike if q.transport == one.transport or kind == "pcie"]
        if not alike:
            return []
        own = [one for one in alike if one.pattern == q.pattern and one.transport == q.transport]
        size = q.size_bytes
        best = own or alike
        found.append(best[0] if size is None else min(best, key=lambda one: (abs(one.size - size), -one.size)))
    return found


def _needed(q: Query) -> tuple[str, tuple[str, ...]]:
    if q.scope == FABRIC:
        # A ping-pong's message has the link to itself.
        both = q.traits.link_ways in ("both", "library")
        return "nvlink", (BOTH_WAYS if both else ONE_WAY,)
    ways = ("out", "into") if q.mechanism.through_host else q.traits.host_ways
    return ("pcie", tuple({"out": OUT, "into": INTO}[way] for way in ways)) if q.scope == HOST and ways else ("", ())
