"""Witnesses of other users: cases and looks in which a device's counters show only what others did.

A case that uses no link of a kind is a witness of it: what its counters moved was somebody else's. So is a reading of
the power of a device that has done next to nothing, and a look outside the run. docs/definitions.md, Other users,
states what counts and why.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from linkgauge.model.link_use import DIRECT, leaves_fabric_idle, leaves_host_link_idle, reaches_elsewhere
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.model.transports import over_host
from linkgauge.run.machine.observe import OTHERS_BUSY, OTHERS_COPY
from linkgauge.run.rank.node_counters import MEMORY_BYTES
from linkgauge.stats.windows import Window, is_device, span_of
from linkgauge.system.model import System, is_fabric

NVLINK, PCIE, COMPUTE, PROCESSES = "NVLink", "PCIe", "processors", "contexts"
KERNELS, COPIES = "kernels by process", "copies by process"
MEMORY = "host memory"
_SENT, _RECEIVED = f"{NVLINK} sent", f"{NVLINK} received"  # each way has its own witnesses
_LINK = {_SENT: NVLINK, _RECEIVED: NVLINK}
CORES = "cores"
HOST = -1
"""In place of a device: the node's cores and memory, which host copies and libraries over the host need."""
LIGHT = 0.1
"""The share of a link below which another user leaves links judged: it explains no more than that of a loss, and rules
tell a slow link from a larger one."""
_NVLINK_RATE = 1e9  # B/s: NCCL's acknowledgments come to 0.1 GB/s, an NVLink 4 port carries 450
_ACKNOWLEDGED = 1e-3  # of the bytes the other way
_PCIE_RATE = 2e9  # B/s: polled flags and launches were seen to move up to 0.4
_MEMORY_RATE = 20e9  # B/s: a tenth of a processor's; launches and polling move below one
_LEAST_BYTES = 8 << 20  # of a few milliseconds a rate says little
_WRAPS = 1 << 32  # NVML counts PCIe's bytes in 32 bits
_UNWRAPPED_NS = 60e6  # at 64 GB/s they take longer to come round
_POWER = 2.0  # times what alike devices take when idle: free ones were seen at up to 1.3 times
_HELD = 0.01  # of a quiet case's time: clocks held down for power
_SAMPLED_NS = 1e9  # drivers sample processors every sixth of a second to every second
_AFTER_NS = 250_000_000  # power is a mean over some 100 ms
_HEAVY = 1 << 20  # bytes: operations from here on warm a device up
_LEAST_READINGS = 5
_BUSY_CORES, _BUSY_SHARE = 2.0, 0.05  # of cores: a node's own daemons keep fewer busy


@dataclasses.dataclass(frozen=True)
class Look:
    """What was seen of a device while the run itself used none: before its first launch, or after its last.

    `rates` are of NVLINK and PCIE in bytes per second, `busy` the share of time in which kernels ran; None: not known.
    `processes` are in words. Of device HOST `busy` is how many cores others kept busy, `cores` how many there are.
    """

    device: int
    when_ns: int
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    busy: float | None = None
    processes: tuple[str, ...] = ()
    cores: float = 0.0


@dataclasses.dataclass(frozen=True)
class Seen:
    """A witness: whether others used a device's medium then, and how much they moved, in bytes."""

    start_ns: float
    end_ns: float
    hit: bool
    moved: float = 0.0

    @property
    def rate(self) -> float:
        """Return what others moved in the mean, in bytes per second."""
        return self.moved / max(1.0, self.end_ns - self.start_ns) * 1e9


@dataclasses.dataclass(frozen=True)
class Beside:
    """A case on one device, and its span; `power` are readings with their time, in W.

    `busy`: the share of the device's processors that others kept busy meanwhile, by process; None: not known.
    """

    row: Row
    device: int
    start_ns: float
    end_ns: float
    power: tuple[tuple[float, float], ...] = ()
    others: bool = False
    busy: float | None = None

    @property
    def lasts_ns(self) -> float:
        """Return how long it took."""
        return max(1.0, self.end_ns - self.start_ns)


def witnesses_of(
    beside: Sequence[Beside],
    windows: Sequence[Window],
    links: Links,
    looks: Sequence[Look],
    models: Mapping[int, str],
) -> dict[tuple[int, str], list[Seen]]:
    """Return by device and medium what was seen of it; of media that nothing could show there is none."""
    seen: dict[tuple[int, str], list[Seen]] = {}
    for window in windows:
        if window.is_known and window.measured and not any(row.case.background for row in window.rows):
            for medium, witness in links.witnesses(window):
                seen.setdefault((window.device, medium), []).append(witness)
    for one in filter(_is_measured, beside):
        # A driver samples processors some times a second: no sample of a short case is no proof of idleness.
        if one.busy is not None and (one.busy >= LIGHT or one.lasts_ns >= _SAMPLED_NS):
            witness = Seen(one.start_ns, one.end_ns, one.busy >= LIGHT)
            seen.setdefault((one.device, KERNELS), []).append(witness)
    for device, witnesses in _quiet(beside, windows, models).items():
        seen.setdefault((device, COMPUTE), []).extend(witnesses)
    for look in looks:
        for medium, witness in _looked(look):
            seen.setdefault((look.device, medium), []).append(witness)
    busy = {look.device for look in looks if any(witness.hit for _, witness in _looked(look))}
    idle = {look.device for look in looks if look.busy is not None} - busy
    for one in beside:
        if one.others and one.device not in idle:
            seen.setdefault((one.device, PROCESSES), []).append(Seen(one.start_ns, one.end_ns, True))
    return seen


def _is_measured(one: Beside) -> bool:
    return one.row.status == "ok" and not one.row.case.background


def beside_of(known: Mapping[Identity, Row], observations: Iterable[Observation]) -> list[Beside]:
    """Return the cases beside which something was observed, on each of their devices, in order of time."""
    found: dict[tuple[Identity, int], list[Observation]] = {}
    for one in observations:
        row = known.get(one.identity)
        if row is not None and 0 <= one.rank < len(row.devices) and is_device(one.subject):
            found.setdefault((one.identity, row.devices[one.rank]), []).append(one)
    result = []
    for (identity, device), values in found.items():
        span = span_of(values)
        if span is None:
            continue
        busy = next((one.value for one in values if one.name == OTHERS_BUSY and one.moment == "after"), None)
        power = tuple((float(one.when_ns), one.value) for one in values if one.name == "power")
        others = any("process" in one.name and "own" not in one.name and one.value > 0 for one in values)
        result.append(Beside(known[identity], device, *span, power, others, busy))
    return sorted(result, key=lambda one: one.start_ns)


class Links:
    """Which cases explain no byte of a link, by how the system joins its devices."""

    def __init__(self, system: System | None) -> None:
        """Take the links of `system`."""
        self.rates: dict[tuple[int, str], float] = {}
        self._peers: dict[int, set[str]] = {}
        self._to_host_by_fabric: set[int] = set()
        for ordinal, name in system.names_by_ordinal.items() if system is not None else ():
            assert system is not None
            fabric = total = 0.0
            for link in system.links_of(name):
                other, rate = system.kinds[link.other(name)], link.rate(name) or 0.0
                if is_fabric(link, system.kinds):
                    fabric += rate
                    self._peers.setdefault(ordinal, set()).add(link.other(name))
                elif link.kind == "pcie" and other in ("host", "switch"):
                    total = max(total, rate)
                elif other == "host":
                    self._to_host_by_fabric.add(ordinal)
            self.rates |= {(ordinal, medium): rate for medium, rate in ((NVLINK, fabric), (PCIE, total)) if rate}
        self._names = {} if system is None else system.names_by_ordinal

    def witnesses(self, window: Window) -> Iterable[tuple[str, Seen]]:
        """Yield what a window says of the links of its device, and of the copies of others there."""
        sent, received = (window.grown.get(f"nvlink_data_{way}_bytes") for way in ("tx", "rx"))
        if sent is not None and received is not None:
            for way, unexplained in self._over_nvlink(window, max(0.0, sent), max(0.0, received)):
                yield way, _moved(window, unexplained, _NVLINK_RATE)
        counted = [window.grown[name] % _WRAPS for name in ("pcie_tx_bytes", "pcie_rx_bytes") if name in window.grown]
        if counted and self._explains_no_pcie(window, (sent or 0.0) + (received or 0.0)):
            seen = _moved(window, max(counted), _PCIE_RATE)
            if window.lasts_ns <= _UNWRAPPED_NS:
                yield PCIE, seen
            elif seen.hit:  # it may have moved more, and others that seem to have moved little may have moved much
                yield PCIE, dataclasses.replace(seen, moved=0.0)
        if (copies := window.grown.get(OTHERS_COPY)) is not None:
            yield COPIES, Seen(window.start_ns, window.end_ns, copies >= LIGHT * window.lasts_ns)

    def _over_nvlink(self, window: Window, sent: float, received: float) -> Iterable[tuple[str, float]]:
        """Yield the bytes that others moved over the device's NVLinks, of each way that all its cases leave idle."""
        ways = [self._idle_ways(row, window.device) for row in window.measured]
        for way, moved, other in ((_SENT, sent, received), (_RECEIVED, received, sent)):
            if all(way in one for one in ways):
                yield way, max(0.0, moved - max(one[way] for one in ways) * other)

    def _idle_ways(self, row: Row, device: int) -> dict[str, float]:
        """Return the ways that a case leaves idle, each with what share of the bytes the other way it may carry."""
        case = row.case
        if reaches_elsewhere(case) or (PATTERNS[row.pattern].host_end and device in self._to_host_by_fabric):
            return {}
        if leaves_fabric_idle(case):
            return {_SENT: 0.0, _RECEIVED: 0.0}
        direct = not case.routed and case.transport in DIRECT and not case.devices_per_node
        if case.pattern == "unidirectional" and direct:
            return {_RECEIVED if device == case.devices[0] else _SENT: _ACKNOWLEDGED}
        return {}

    def _explains_no_pcie(self, window: Window, over_nvlink: float) -> bool:
        own = 0.0  # what pairs must move over NVLink
        for row in window.measured:
            if leaves_host_link_idle(row.case):
                continue
            case, info, devices = row.case, PATTERNS[row.pattern], set(row.devices)
            # An application also moves bytes to and from the host.
            if reaches_elsewhere(case) or info.host_end or info.scripted or len(devices) == 1:
                return False
            if case.transport not in DIRECT or case.devices_per_node or over_host(case.transport, case.path):
                return False
            joined = [self._peers.get(device, set()) | {self._names.get(device, "")} for device in devices]
            if not all(a & b for i, a in enumerate(joined) for b in joined[:i]):
                return False
            own += float(row.bytes_total or 0) * float(row.operations_total or 0) / len(devices)
        # What a pair's own bytes take where peer access is off is PCIe: then they are missing on NVLink.
        return over_nvlink >= own / 2


def _moved(one: Window, moved: float, rate: float) -> Seen:
    hit = moved >= _LEAST_BYTES and moved / one.lasts_ns * 1e9 > rate
    return Seen(one.start_ns, one.end_ns, hit, moved)


def _looked(look: Look) -> list[tuple[str, Seen]]:
    found = [
        (medium, Seen(look.when_ns, look.when_ns, rate > least))
        for medium, least in ((_SENT, _NVLINK_RATE), (_RECEIVED, _NVLINK_RATE), (PCIE, _PCIE_RATE))
        if (rate := look.rates.get(_LINK.get(medium, medium))) is not None
    ]
    if look.device == HOST:
        busy = (look.busy or 0.0) > max(_BUSY_CORES, _BUSY_SHARE * look.cores)
        seen = [(CORES, Seen(look.when_ns, look.when_ns, busy))]
        if (rate := look.rates.get(MEMORY)) is not None:
            seen.append((MEMORY, Seen(look.when_ns, look.when_ns, rate > _MEMORY_RATE)))
        return seen
    if look.busy is not None and look.busy >= LIGHT:
        found.append((COMPUTE, Seen(look.when_ns, look.when_ns, True)))
    return found


def _quiet(beside: Sequence[Beside], windows: Iterable[Window], models: Mapping[int, str]) -> dict[int, list[Seen]]:
    """Return by device what its power, and clocks held down for power, say while it does next to nothing.

    Of alike devices the least that one of them takes is what an idle one takes.
    """
    readings: dict[int, list[tuple[float, float]]] = {}
    held: dict[int, list[Seen]] = {}
    last: dict[int, float] = {}
    rested_at: set[tuple[int, Identity]] = set()
    for one in beside:
        heavy = one.row.size >= _HEAVY or one.row.transport == "kernel" or PATTERNS[one.row.pattern].computes
        rested = one.start_ns - last.get(one.device, -math.inf) > _AFTER_NS
        if heavy:
            last[one.device] = one.end_ns
        quiet = [reading for reading in one.power if rested and (not heavy or reading[0] <= one.start_ns)]
        readings.setdefault(one.device, []).extend(quiet)
        if rested and not heavy:
            rested_at.add((one.device, one.row.identity))
    for window in windows:
        quiet_ones = all((window.device, row.identity) in rested_at for row in window.rows)
        if quiet_ones and (grown := window.grown.get("power_violation")) is not None:
            hit = grown > _HELD * window.lasts_ns
            if hit or window.lasts_ns > _AFTER_NS:
                held.setdefault(window.device, []).append(Seen(window.start_ns, window.end_ns, hit))
    idle: dict[str, float] = {}
    for device, values in readings.items():
        if len(values) >= _LEAST_READINGS:
            model = models.get(device, "")
            idle[model] = min(idle.get(model, math.inf), float(np.quantile([power for _, power in values], 0.25)))
    for device, values in readings.items():
        least = _POWER * idle.get(models.get(device, ""), math.inf)
        if math.isfinite(least):
            held.setdefault(device, []).extend(Seen(at, at, power > least) for at, power in values)
    # One reading may be of what the device did before the run.
    return {device: seen for device, seen in held.items() if sum(one.hit for one in seen) >= 3}


def memory_witnesses(beside: Sequence[Beside], observations: Iterable[Observation]) -> list[Seen]:
    """Return what the cores' memory traffic says beside cases that use no host memory (resctrl)."""
    quiet = {one.row.identity: one for one in beside if _is_measured(one) and HOST not in places_of(one)
             and one.row.case.transport in DIRECT and not reaches_elsewhere(one.row.case)}  # fmt: skip
    counted: dict[Identity, dict[str, Observation]] = {}
    for one in observations:
        if one.name == MEMORY_BYTES and one.identity in quiet:
            counted.setdefault(one.identity, {}).setdefault(one.moment, one)
    found = []
    for moments in counted.values():
        if "before" in moments and "after" in moments:
            before, after = moments["before"], moments["after"]
            lasts_ns, moved = max(1, after.when_ns - before.when_ns), max(0.0, after.value - before.value)
            hit = moved >= _LEAST_BYTES and moved / lasts_ns * 1e9 > _MEMORY_RATE
            found.append(Seen(before.when_ns, after.when_ns, hit, moved))
    return found


def link_of(medium: str) -> str:
    """Return the medium of which this one may be a direction."""
    return _LINK.get(medium, medium)


def places_of(one: Beside) -> Iterable[int]:
    """Yield what a case uses: its device, and the host where its bytes go through it."""
    yield one.device
    if PATTERNS[one.row.pattern].host_end or over_host(one.row.transport, one.row.case.path):
        yield HOST
