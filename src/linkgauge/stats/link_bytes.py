"""What a case moved over its GPUs' NVLinks, as a share of the bytes that its pattern must move between them.

GPUs count bytes from one reading to the next (stats/windows.py). Of messages over NVLink 1.00 of the payload was
counted on H100 and H200, of messages through host memory 0.00; protocols with flags move up to twice as much, and
kernels that are chosen by measuring up to a hundred times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from linkgauge.model.result import Identity, Observation, Row
from linkgauge.run.machine.observe import NVLINK_RECEIVED, NVLINK_SENT
from linkgauge.stats.crossing import LEAST_BYTES, LEAST_EACH, NONE, must_cross
from linkgauge.stats.launches import Places, nodes_of
from linkgauge.stats.windows import windows_of
from linkgauge.system.model import System, is_fabric

_GOOD_PART = 0.25
"""Of a window's payload: what a case with less did shows little in it."""
_CARRIED = 0.5
"""Of the payload. Reduced in the switches, an allreduce of n GPUs moves n + 1 of the 2 (n - 1) buffers of a ring."""


@dataclasses.dataclass(frozen=True)
class LinkBytes:
    """Bytes of a case on one node. `payload_bytes` must go between GPUs; `counted_bytes` went over NVLink, one way.

    `joined`: whether NVLink joins each two of its GPUs; None where no system is known.
    """

    payload_bytes: int
    counted_bytes: int
    joined: bool | None

    @property
    def share(self) -> float:
        """Counted over payload."""
        return self.counted_bytes / self.payload_bytes

    @property
    def by_nvlink(self) -> bool:
        """Whether NVLink carried the payload."""
        return self.share >= _CARRIED

    @property
    def past_nvlink(self) -> bool:
        """Whether the payload took another way."""
        return self.share <= NONE

    @property
    def words(self) -> str:
        """The share in words."""
        return f"NVLink bytes {self.share:.2f} of payload"


def link_bytes(
    rows: Iterable[Row], observations: Iterable[Observation], places: Places, system: System | None
) -> dict[Identity, LinkBytes]:
    """Return what is known of cases that ended well, lie on one node, and move enough between GPUs to tell.

    A window that several cases share tells of each that moves a good part of its bytes, if they are of one kind.
    """
    known = {row.identity: row for row in rows}
    found = {}
    for shared, moved in _counted(known, observations).items():
        each = [_payload(known[identity], moved, places) for identity in shared]
        window = sum(one[0] for one in each if one is not None)
        sent, received = (sum(both[way] for both in moved.values()) for way in (0, 1))
        for identity, one in zip(shared, each, strict=True):
            if None not in each and one is not None and one[1] and one[0] >= _GOOD_PART * window:
                there = places.of_row(known[identity])
                joined = None if system is None else joined_by_fabric(system, [place.device for place in there])
                found[identity] = LinkBytes(window, (sent + received) // 2, joined)
    return found


def _payload(row: Row, moved: Mapping[int, tuple[int, int]], places: Places) -> tuple[int, bool] | None:
    """Return what a case's pattern moved between its GPUs, and whether that is enough to tell; None: not known."""
    case, devices = row.case, [str(device) for device in row.devices]
    if len(nodes_of(places.of_row(row))) != 1 or case.background or case.managed or case.routed or case.app:
        return None
    if set(row.devices) != moved.keys() or len(set(devices)) != len(devices):
        return None
    each = must_cross(case, devices)  # as if each device were a node
    payload = each * (row.operations_total or 0)
    return payload, each >= LEAST_EACH and payload >= LEAST_BYTES


def joined_by_fabric(system: System, ordinals: Iterable[int]) -> bool:
    """Return whether links of the devices' fabric, or a switch of it, join each two of these devices."""
    peers = []
    for name in (system.names_by_ordinal.get(ordinal) for ordinal in ordinals):
        if name is None:
            return False
        others = (link.other(name) for link in system.links_of(name) if is_fabric(link, system.kinds))
        peers.append({name, *others})
    return all(one & other for place, one in enumerate(peers) for other in peers[:place])


def _counted(
    known: Mapping[Identity, Row], observations: Iterable[Observation]
) -> dict[tuple[Identity, ...], dict[int, tuple[int, int]]]:
    """By the cases of a window the bytes that each GPU sent and received in it, of windows that one kind fills."""
    found: dict[tuple[Identity, ...], dict[int, tuple[int, int]]] = {}
    for one in windows_of(known, observations):
        grown = [one.grown.get(name, -1.0) for name in (NVLINK_SENT, NVLINK_RECEIVED)]
        if one.of_one_kind and min(grown) >= 0:
            shared = tuple(row.identity for row in one.measured)
            found.setdefault(shared, {})[one.device] = (int(grown[0]), int(grown[1]))
    return found
